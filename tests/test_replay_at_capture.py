"""`replay --at-capture`: on the files as they were, and nowhere else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from running import Shell, clean_environment, plain_git
from states import fingerprint, picture

from repotrace.records.command import CommandRun, FileState, Places, RepositoryState
from repotrace.replay import ReplayOptions, Verdict, accepted, replay_from_store
from repotrace.storage import ReportStore, Store
from repotrace.system.relocate import Copied, Missing, relocate
from repotrace.workcopy import source_of

APP = "raise ValueError('as recorded')\n"
NEW = "print('changed since')\n"


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    (tmp_path / "tmp").mkdir()
    return Shell(tmp_path)


@pytest.fixture
def repository(repotrace: Shell) -> Shell:
    (repotrace.cwd / "app.py").write_text(APP)
    (repotrace.cwd / ".gitignore").write_text(
        ".repotrace/\n*.log\n.env\nbuild/\n.venv/\nnode_modules/\n"
    )
    repotrace.git("init", "-q", "-b", "main")
    commit(repotrace)
    return repotrace


def commit(shell: Shell, message: str = "one") -> str:
    shell.git("add", ".")
    shell.git("commit", "-q", "-m", message)
    return shell.git("rev-parse", "HEAD").strip()


def temporary(shell: Shell) -> Path:
    return shell.cwd.parent / "tmp"


def replayed(
    shell: Shell, *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
) -> dict[str, object]:
    """What the replay says, as JSON; nothing of the copy is left."""
    extra = {"TMPDIR": str(temporary(shell))} | (env or {})
    done = shell("replay", "--at-capture", "--json", *arguments, cwd=cwd, env=extra)
    assert done.returncode in (0, 1, 2), done.stderr
    assert list(temporary(shell).iterdir()) == []
    said = json.loads(done.stdout)
    assert isinstance(said, dict)
    codes = {"matched": 0, "differs": 2 if said["verdict"] == "cannot-run" else 1}
    assert done.returncode == codes[said["outcome"]]
    return said


def verdict(shell: Shell, *arguments: str) -> object:
    return replayed(shell, *arguments)["verdict"]


def without_ours(folder: Path) -> dict[bytes, tuple[int, bytes]]:
    found = fingerprint(folder)
    return {
        path: seen
        for path, seen in found.items()
        if not path.startswith((b".git/repotrace", b".repotrace")) and path != b".git"
    }


def test_the_files_of_then_are_run_and_not_those_of_now(repository: Shell) -> None:
    (repository.cwd / "untracked.py").write_text(APP)
    repository("capture", "--id", "tracked", "python", "app.py")
    repository("capture", "--id", "untracked", "python", "untracked.py")
    (repository.cwd / "app.py").write_text(NEW)
    (repository.cwd / "untracked.py").unlink()

    assert repository("replay", "tracked").returncode == 1
    said = replayed(repository, "tracked")
    assert said["verdict"] == "same-after-normalising"
    assert str(said["files"]).startswith("state ")
    assert verdict(repository, "untracked") == "same-after-normalising"
    done = repository("replay", "--at-capture", "tracked")
    assert b"ran in a copy of state " in done.stderr


def test_row_47_what_a_replay_writes_or_deletes_is_gone_afterwards(repository: Shell) -> None:
    work = repository.cwd
    script = (
        "import os, pathlib, sys\n"
        "pathlib.Path('made').write_text('x')\n"
        f"pathlib.Path({str(work / 'made elsewhere')!r}).parent\n"
        "pathlib.Path(sys.argv[1]).write_text('overwritten')\n"
        "pathlib.Path(sys.argv[2]).write_text('out')\n"
        "os.unlink('doomed')\n"
        "os.mkdir('locked'); open('locked/in', 'w').close(); os.chmod('locked', 0o500)\n"
        "sys.exit(5)\n"
    )
    (work / "doomed").write_text("there")
    (work / "input").write_text("as it was")
    (work / "breaks.py").write_text(script)
    commit(repository)
    before = without_ours(work)
    paths = [str(work / "input"), str(work / "out.xml")]
    repository("capture", "--id", "a", "python", "breaks.py", *paths)
    repository.git("checkout", "-q", ".")
    repository.git("clean", "-fdxq", "-e", ".repotrace")
    assert picture(work, but=(b".git", b".repotrace")) == {
        path: seen for path, seen in before.items() if not path.startswith(b".git/")
    }

    now = without_ours(work)
    for _ in range(2):
        assert verdict(repository, "a") == "same"
        assert without_ours(work) == now
    # Each run of several meets the file that the one before it deleted.
    said = replayed(repository, "a", "--repeat", "3")
    assert (said["verdict"], said["reproduced"]) == ("same", 3)


def test_row_48_caches_do_not_change_the_second_run(repository: Shell) -> None:
    (repository.cwd / "check.py").write_text(
        "import pathlib, sys\n"
        "cache = pathlib.Path('.mypy_cache')\n"
        "if cache.exists(): print('nothing to check'); sys.exit(0)\n"
        "cache.mkdir(); print('1 error'); sys.exit(1)\n"
    )
    repository("capture", "--id", "a", "python", "check.py")
    assert b"fixed" in repository("replay", "a").stdout
    said = replayed(repository, "a", "--repeat", "4")
    assert (said["verdict"], said["reproduced"], said["repeats"]) == ("same", 4, 4)


def test_paths_of_the_work_tree_lead_into_the_copy(repository: Shell) -> None:
    work = repository.cwd
    for name, text in (("lib/thing.py", "WORD = 'then'\n"), ("data.txt", "then\n")):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(text)
    code = (
        "import sys, thing; print(thing.WORD)\n"
        "for a in sys.argv[1:]: print(open(a.split('=')[-1]).read())\n"
        "sys.exit(1)"
    )
    data = work / "data.txt"
    env = {"PYTHONPATH": f"{work}/gone:{work}/lib"}
    repository("capture", "--id", "argv", "python", "-c", code, str(data), f"--in={data}", env=env)
    repository("capture", "--id", "shell", "--shell", f"cat '{data}' {work}/data.txt; exit 3")
    (work / "data.txt").write_text("now\n")
    (work / "lib/thing.py").write_text("WORD = 'now'\n")
    assert verdict(repository, "argv") == "same"
    assert verdict(repository, "shell") == "same"


def test_a_neighbour_with_a_longer_name_stays_where_it_is(tmp_path: Path) -> None:
    work, copy = tmp_path / "work", tmp_path / "copy" / "work"
    for folder in (work, copy, tmp_path / "work2"):
        (folder / "a").mkdir(parents=True)
    (work / "only here").mkdir()
    run = CommandRun(
        argv=("x", f"{work}2/a", f"-I{work}/a", f"{work}/only here", f"a:{work}/b:{work}2"),
        cwd=str(work),
        env={"PYTHONPATH": f"{work}/a{os.pathsep}{work}2/a"},
        places=Places(cwd=str(work)),
    )
    spec = relocate(run, environ={"PWD": str(work)}, copy=Copied(str(work), str(copy), "."))
    assert spec.argv[1:] == (
        f"{work}2/a",
        f"-I{copy}/a",
        f"{work}/only here",
        f"a:{copy}/b:{work}2",
    )
    assert spec.env["PYTHONPATH"] == f"{copy}/a{os.pathsep}{work}2/a"
    assert spec.env["PWD"] == str(copy)


@pytest.mark.parametrize("python", [".venv/bin/python", "{work}/.venv/bin/python", "python"])
def test_the_environment_of_the_project_is_used_where_it_is(repository: Shell, python: str) -> None:
    work = repository.cwd
    venv.create(work / ".venv", symlinks=True)
    command = [python.format(work=work), "-c", "import sys; print(sys.prefix); sys.exit(1)"]
    env = {"VIRTUAL_ENV": str(work / ".venv")}
    env["PATH"] = os.pathsep.join([str(work / ".venv/bin"), clean_environment(work)["PATH"]])
    repository("capture", "--id", "a", *command, env=env)
    said = replayed(repository, "a", env=env)
    assert said["verdict"] in ("same", "same-after-normalising"), said
    assert said["stdout"] == {"expected": f"{work}/.venv\n"} | {
        "observed": said["stdout"]["observed"]  # type: ignore[index]
    }
    assert said["not_captured"] == [".venv/"]


@pytest.mark.parametrize("way", ["pth", "finder"])
def test_code_that_is_installed_in_place_comes_from_the_copy(repository: Shell, way: str) -> None:
    """As `pip install -e .` leaves it: a folder on the path, or a finder of setuptools."""
    work = repository.cwd
    venv.create(work / ".venv", symlinks=True)
    (site,) = (work / ".venv/lib").glob("python3*/site-packages")
    package = work / "src" / "thing"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def word(): return 'then'\n")
    if way == "pth":
        (site / "__editable__.thing-1.0.pth").write_text(f"{work}/src\n")
    else:
        (site / "__editable__.thing-1.0.pth").write_text(
            "import __editable___thing_1_0_finder; __editable___thing_1_0_finder.install()\n"
        )
        (site / "__editable___thing_1_0_finder.py").write_text(
            "from __future__ import annotations\n"
            "import sys\n"
            "from importlib.util import spec_from_file_location\n"
            f"MAPPING: dict[str, str] = {{'thing': '{package}'}}\n"
            "class Finder:\n"
            "    @classmethod\n"
            "    def find_spec(cls, name, path=None, target=None):\n"
            "        if name in MAPPING:\n"
            "            file = MAPPING[name] + '/__init__.py'\n"
            "            return spec_from_file_location(name, file)\n"
            "def install():\n"
            "    sys.meta_path.append(Finder)\n"
        )
    code = "import sys, thing; print(thing.word()); sys.exit(1)"
    done = repository("capture", "--id", "a", ".venv/bin/python", "-P", "-c", code)
    assert done.stdout == b"then\n", done.stderr
    (package / "__init__.py").write_text("def word(): return 'now'\n")
    assert verdict(repository, "a") == "same"


def test_git_finds_the_commit_and_the_branch_of_then(repository: Shell) -> None:
    work = repository.cwd
    repository.git("tag", "v1")
    (work / "app.py").write_text("changed\n")
    script = (
        "git rev-parse HEAD; git branch --show-current; git describe --tags; git status --short;"
        " git diff; git log --oneline; exit 4"
    )
    repository("capture", "--id", "a", "--shell", script)
    commit(repository, "two")
    repository.git("checkout", "-q", "-b", "other")
    (work / "app.py").write_text("again\n")
    said = replayed(repository, "a")
    assert said["verdict"] == "same", said


def test_git_in_the_copy_cannot_reach_the_repository_of_the_user(repository: Shell) -> None:
    script = (
        "git config user.name x; git config user.email x; git add -A; git commit -qm more;"
        " git tag made; git branch -f other; git stash list; git gc -q --prune=now;"
        " git config some.thing 1; exit 4"
    )
    repository("capture", "--id", "a", "--shell", "true")
    report = repository.cwd / ".repotrace/reports/a.json"
    document = json.loads(report.read_text())
    document["metadata"]["command_run"]["script"] = script
    report.write_text(json.dumps(document))
    (repository.cwd / "app.py").write_text(NEW)
    before = without_ours(repository.cwd)
    inside_a_hook = {"GIT_DIR": str(repository.cwd / ".git"), "GIT_INDEX_FILE": ".git/index"}
    said = replayed(repository, "a", env=inside_a_hook)
    assert said["exit_code"] == {"expected": 0, "observed": 4}, said
    assert without_ours(repository.cwd) == before


def elsewhere(shell: Shell, tmp_path: Path) -> Path:
    """A clone with the reports but without the home, as on another machine."""
    clone = tmp_path / "clone"
    plain_git(tmp_path, "clone", "-q", str(shell.cwd), str(clone))
    shutil.copytree(shell.cwd / ".repotrace", clone / ".repotrace")
    shutil.rmtree(shell.cwd)
    return clone


def test_elsewhere_a_clean_commit_stands_for_the_files(repository: Shell, tmp_path: Path) -> None:
    work = repository.cwd
    (work / ".gitattributes").write_text("*.txt text eol=crlf\n*.sub export-ignore export-subst\n")
    (work / "data.txt").write_bytes(b"one\r\ntwo\r\n")
    (work / "x.sub").write_text("$Format:%H$\n")
    (work / "run").write_text("#!/bin/sh\npython app.py\n")
    (work / "run").chmod(0o755)
    (work / "link").symlink_to("app.py")
    clean = commit(repository)
    script = (
        "ls -A | grep -v .repotrace; cat data.txt x.sub | od -c;"
        " test -x run -a -L link || exit 9; ./run"
    )
    repository("capture", "--id", "a", "--shell", script)
    (work / "app.py").write_text(NEW)
    commit(repository, "two")
    clone = elsewhere(repository, tmp_path)
    (clone / "app.py").write_text("print('not committed')\n")
    before = without_ours(clone)

    said = replayed(repository, "a", cwd=clone)
    assert said["verdict"] == "same-after-normalising", said
    assert said["files"] == f"commit {clean[:12]}"
    said = replayed(repository, "a", "--repeat", "2", cwd=clone)
    assert said["reproduced"] == 2
    assert without_ours(clone) == before


def test_elsewhere_changed_files_cannot_run(repository: Shell, tmp_path: Path) -> None:
    (repository.cwd / "app.py").write_text("raise KeyError(1)\n")
    head = repository.git("rev-parse", "HEAD").strip()
    repository("capture", "--id", "a", "python", "app.py")
    clone = elsewhere(repository, tmp_path)
    said = replayed(repository, "a", cwd=clone)
    assert said["verdict"] == "cannot-run"
    assert "are not in " in str(said["detail"])
    assert f"had changes that commit {head[:12]} does not hold" in str(said["detail"])


def test_elsewhere_a_commit_that_is_not_there_cannot_run(repository: Shell, tmp_path: Path) -> None:
    repository("capture", "--id", "a", "python", "app.py")
    head = repository.git("rev-parse", "HEAD").strip()
    shutil.rmtree(repository.cwd / ".git")
    repository.git("init", "-q")
    said = replayed(repository, "a")
    assert said["verdict"] == "cannot-run"
    assert f"commit {head[:12]} is not here; fetch it" in str(said["detail"])


def test_without_kept_files_the_reason_is_said(repository: Shell) -> None:
    repository("capture", "--id", "clean", "--no-snapshot", "python", "app.py")
    assert str(replayed(repository, "clean")["files"]).startswith("commit ")
    (repository.cwd / "more").write_text("x")
    repository("capture", "--id", "dirty", "--no-snapshot", "python", "app.py")
    said = replayed(repository, "dirty")
    assert said["verdict"] == "cannot-run"
    assert "its files were not kept (nobody asked for them)" in str(said["detail"])


def test_outside_of_git(repotrace: Shell) -> None:
    (repotrace.cwd / "app.py").write_text(APP)
    repotrace("capture", "--id", "a", "python", "app.py")
    (repotrace.cwd / "app.py").write_text(NEW)
    assert verdict(repotrace, "a") == "same-after-normalising"
    shutil.rmtree(repotrace.cwd / ".repotrace/snapshots.git")
    said = replayed(repotrace, "a")
    assert said["verdict"] == "cannot-run"
    assert "no git repository is known that it ran in" in str(said["detail"])


def test_a_folder_that_is_not_among_the_files(repository: Shell) -> None:
    (repository.cwd / "build").mkdir()
    (repository.cwd / "build/made").write_text("x")
    repository("capture", "--id", "a", "--cwd", "build", "false")
    said = replayed(repository, "a")
    assert said["verdict"] == "cannot-run"
    assert "the folder build is not among the recorded files" in str(said["detail"])


def test_what_was_not_captured_is_named_and_can_be_linked(repository: Shell) -> None:
    for name in (".env", "node_modules/x/index", "debug.log"):
        (repository.cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (repository.cwd / name).write_text(f"{name}\n")
    repository("capture", "--id", "a", "--shell", "cat .env node_modules/x/index || exit 1; exit 7")
    said = replayed(repository, "a")
    assert said["verdict"] == "different-failure"
    assert str(said["detail"]).endswith("; not captured: .env, debug.log, node_modules/")
    before = without_ours(repository.cwd)
    links = ["--link", "node_modules/", "--link", ".env"]
    said = replayed(repository, "a", *links, "--repeat", "2")
    assert said["verdict"] == "same"
    assert said["not_captured"] == ["debug.log"]
    assert without_ours(repository.cwd) == before


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("app.py", "app.py is among the files, it needs no link"),
        ("gone", "gone is not in "),
        ("../tmp", "../tmp is no path inside of "),
        ("/etc/passwd", "/etc/passwd is no path inside of "),
        (".", ". is no path inside of "),
    ],
)
def test_links_that_make_no_sense(repository: Shell, link: str, reason: str) -> None:
    repository("capture", "--id", "a", "false")
    said = replayed(repository, "a", "--link", link)
    assert said["verdict"] == "cannot-run"
    assert reason in str(said["detail"])


@pytest.mark.parametrize(
    "more", [["--cwd", "."], ["--accept"], ["--bisect"]], ids=lambda more: str(more[0])
)
def test_options_that_exclude_each_other(repository: Shell, more: list[str]) -> None:
    repository("capture", "--id", "a", "false")
    done = repository("replay", "a", "--at-capture", *more)
    assert done.returncode == (125 if "--bisect" in more else 2)
    assert more[0].encode() in done.stderr
    assert b"--link is for --at-capture" in repository("replay", "a", "--link", "x").stderr


def test_a_dry_run_makes_no_copy_and_knows_whether_it_could(repository: Shell) -> None:
    (repository.cwd / "more").write_text("x")
    repository("capture", "--id", "a", "python", "app.py")
    done = repository("replay", "a", "--at-capture", "--dry-run")
    assert done.stdout.decode().splitlines()[-1] == "python app.py"
    assert b"temporary copy" in done.stdout
    shutil.rmtree(repository.cwd / ".git/repotrace/snapshots.git")
    done = repository("replay", "a", "--at-capture", "--dry-run")
    assert done.returncode == 2
    assert b"cannot run here" in done.stderr


def test_a_sweep_gives_each_report_its_own_files(repository: Shell) -> None:
    for number in range(1, 7):
        (repository.cwd / "code.txt").write_text(str(number))
        script = "read code < code.txt; rm code.txt; exit $code"
        repository("capture", "--id", f"r{number}", "--shell", script)
        (repository.cwd / "code.txt").write_text("0")
    env = {"TMPDIR": str(temporary(repository))}
    assert b"reproduced 0" in repository("replay-all", env=env).stdout
    (repository.cwd / "code.txt").write_text("0")
    done = repository("replay-all", "--at-capture", "--jobs", "3", env=env)
    assert b"replayed 6 \xc2\xb7 reproduced 6" in done.stdout, done.stdout.decode()
    assert list(temporary(repository).iterdir()) == []
    assert (repository.cwd / "code.txt").read_text() == "0"


def test_an_interrupt_removes_the_copy(repository: Shell) -> None:
    # A shell may miss an interrupt while it starts the next command; one that becomes it does not.
    command = "echo ready > up; exec sleep 60"
    repository("capture", "--id", "a", "--timeout", "0.3", "--shell", command)
    env = clean_environment(repository.home, {"TMPDIR": str(temporary(repository))})
    process = subprocess.Popen(
        [sys.executable, "-m", "repotrace", "replay", "a", "--at-capture", "--timeout", "60"],
        cwd=repository.cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while process.poll() is None and not list(temporary(repository).glob("*/work/up")):
        pass
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert list(temporary(repository).iterdir()) == []


def test_the_library(repository: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    repository("capture", "--id", "a", "python", "app.py")
    (repository.cwd / "app.py").write_text(NEW)
    monkeypatch.chdir(repository.cwd)
    for name, value in clean_environment(repository.home).items():
        monkeypatch.setenv(name, value)
    store = ReportStore(repository.cwd / ".repotrace/reports")
    assert replay_from_store("a", store).verdict == Verdict.FIXED
    result = replay_from_store("a", store, at_capture=True)
    assert result.verdict == Verdict.SAME_AFTER_NORMALISING
    assert result.files.startswith("state ")
    home = Store(repository.cwd / ".git/repotrace", reports=store.root)
    assert home.history.verdicts(store.root, "a")[0].verdict == "same-after-normalising"
    with pytest.raises(Exception, match="ran in a copy that is gone"):
        accepted(store.load("a"), result, ReplayOptions())


@pytest.mark.parametrize(
    ("workspace", "cwd", "inside"),
    [("/a/b/..", "/a/c", "c"), ("/w", "/w/./x/../y", "y"), ("relative", "/relative", ".")],
)
def test_a_report_of_a_stranger_cannot_name_a_place_outside(
    workspace: str, cwd: str, inside: str, repository: Shell
) -> None:
    repository("capture", "--id", "a", "true")
    snapshots = Store(repository.cwd / ".git/repotrace").snapshots
    state = snapshots.history("reports/a")[0].state_id
    files = FileState(state_id=state, quality="exact", workspace=workspace)
    run = CommandRun(argv=("x",), cwd=cwd, files=files, places=Places(cwd=cwd))
    source = source_of(run, snapshots, environ={})
    assert source.inside == inside
    assert source.workspace == os.path.normpath(os.path.join("/", workspace))  # noqa: PTH118
    outside = run.model_copy(update={"places": Places(cwd="/elsewhere/entirely")})
    with pytest.raises(Missing, match="not inside of"):
        source_of(outside, snapshots, environ={})


@pytest.mark.parametrize("commit_id", ["--upload-pack=x", "HEAD", "f" * 40, "main; rm -rf x"])
def test_a_commit_of_a_stranger_is_only_an_id(commit_id: str, repository: Shell) -> None:
    run = CommandRun(
        argv=("x",),
        cwd=str(repository.cwd),
        places=Places(cwd=str(repository.cwd), repository=str(repository.cwd)),
        repository=RepositoryState(commit=commit_id, dirty=False),
    )
    with pytest.raises(Missing, match=r"is not here; fetch it|there was no commit yet"):
        source_of(run, None, environ={})
