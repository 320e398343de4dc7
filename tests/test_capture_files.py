"""What `capture` keeps of the files, under which name, and that it disturbs nothing."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest
from running import BOOM, BOOM_ID, Shell, plain_git
from states import fingerprint, picture
from storing import in_processes

from repotrace.capture import capture_command
from repotrace.filestate import abandoned, forget_files, keep_files, ref_of_report
from repotrace.records.command import FileState
from repotrace.records.trace import command_run_of
from repotrace.redact import Redactor
from repotrace.storage import ReportStore, Store

OURS = (b".git", b".repotrace")


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def repository(repotrace: Shell) -> Shell:
    """A work tree with everything that a git commit does not hold."""
    work = repotrace.cwd
    (work / "sub").mkdir()
    (work / "sub" / "app.py").write_text("print('old')\n")
    (work / ".gitignore").write_text("*.log\n.env\nnode_modules/\n__pycache__/\n")
    repotrace.git("init", "-q")
    repotrace.git("add", ".")
    repotrace.git("commit", "-q", "-m", "one")
    (work / "sub" / "app.py").write_bytes(b"print('changed')\r\n")
    (work / "untracked.bin").write_bytes(b"\0\xff")
    (work / "link").symlink_to("sub/app.py")
    (work / "run").write_text("#!/bin/sh\nexit 3\n")
    (work / "run").chmod(0o750)
    (work / "empty").mkdir()
    return repotrace


def facts(shell: Shell, report_id: str = "latest") -> dict[str, object] | None:
    shown = json.loads(shell("show", report_id, "--json").stdout)
    found = shown["report"]["metadata"]["command_run"].get("files")
    assert found is None or isinstance(found, dict)
    return found


def home(shell: Shell) -> Path:
    inside = shell.cwd / ".git"
    return inside / "repotrace" if inside.is_dir() else shell.cwd / ".repotrace"


def refs(shell: Shell) -> dict[str, str]:
    """The names of kept states and their ids, as git itself lists them."""
    store = home(shell) / "snapshots.git"
    if not store.exists():
        return {}
    listed = plain_git(store, "for-each-ref", "--format=%(refname) %(tree)", "refs/repotrace/")
    pairs = dict(line.split(" ") for line in listed.splitlines() if "/workspaces/" not in line)
    return {name.removeprefix("refs/repotrace/"): state for name, state in pairs.items()}


def test_the_files_are_kept_byte_for_byte_as_they_were_before(
    repository: Shell, tmp_path: Path
) -> None:
    before = picture(repository.cwd, but=OURS)
    done = repository("capture", "sh", "-c", "echo new > sub/app.py; rm run; exit 3", cwd=None)
    assert done.returncode == 3
    assert picture(repository.cwd, but=OURS) != before

    kept = facts(repository)
    assert kept is not None
    assert kept["quality"] == "exact"
    assert kept["workspace"] == os.path.realpath(repository.cwd)
    Store(home(repository)).snapshots.materialise(str(kept["state_id"]), tmp_path / "again")
    assert picture(tmp_path / "again", but=OURS) == before
    assert list(refs(repository).values()) == [kept["state_id"]]


def test_the_whole_work_tree_is_kept_wherever_the_command_runs(
    repository: Shell, tmp_path: Path
) -> None:
    before = picture(repository.cwd, but=OURS)
    repository("capture", "--cwd", "sub", "false")
    kept = facts(repository)
    assert kept is not None
    Store(home(repository)).snapshots.materialise(str(kept["state_id"]), tmp_path / "again")
    assert picture(tmp_path / "again", but=OURS) == before


def test_the_repository_of_the_user_is_left_as_it_is(repository: Shell) -> None:
    def own() -> dict[bytes, tuple[int, bytes]]:
        found = fingerprint(repository.cwd / ".git")
        return {path: seen for path, seen in found.items() if not path.startswith(b"repotrace")}

    before, status = own(), plain_git(repository.cwd, "status", "--porcelain")
    repository("capture", "false")
    assert own() == before
    assert plain_git(repository.cwd, "status", "--porcelain", "--", ":!.repotrace") == status
    # And the store stands on its own: no clean-up of the user's takes an object away.
    store = home(repository) / "snapshots.git"
    assert not (store / "objects/info/alternates").exists()
    plain_git(store, "fsck", "--full", "--strict")


def test_what_is_not_captured_is_named(repository: Shell) -> None:
    for name in (".env", "debug.log", "node_modules/x/index.js", "sub/__pycache__/app.pyc"):
        path = repository.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    repository("capture", "false")
    kept = facts(repository)
    assert kept is not None
    assert kept["not_captured"] == [
        {"path": ".env", "reason": "secret"},
        {"path": "debug.log", "reason": "ignored"},
        {"path": "node_modules/", "reason": "regenerable"},
    ]
    for command in (["show"], ["report"]):
        said = repository(*command).stdout.decode()
        assert str(kept["state_id"])[:12] in said
        assert "without .env (secret), debug.log (ignored), node_modules/ (regenerable)" in said


def test_many_names_are_cut(repository: Shell) -> None:
    for number in range(80):
        (repository.cwd / f"{number}.log").touch()
    repository("capture", "false")
    kept = facts(repository)
    assert kept is not None
    assert isinstance(kept["not_captured"], list)
    assert (len(kept["not_captured"]), kept["not_captured_count"]) == (50, 80)
    assert "and 75 more" in repository("show").stdout.decode()


def test_secrets_in_names_are_masked(repository: Shell) -> None:
    token = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1bC3dE5"
    (repository.cwd / f"{token}.log").touch()
    repository("capture", "false")
    text = (repository.cwd / ".repotrace/reports").glob("*.json")
    assert token not in "".join(path.read_text() for path in text)


def test_each_report_has_the_state_it_failed_on(repository: Shell) -> None:
    app = repository.cwd / "sub" / "app.py"
    command = ["python", "sub/app.py"]
    app.write_text("raise SystemExit(1)\n")
    repository("capture", *command)
    repository("capture", *command)  # another occurrence keeps the first state
    (first,) = refs(repository)
    first_state = refs(repository)[first]
    app.write_text("raise SystemExit(2)\n")
    repository("capture", *command)

    found = refs(repository)
    assert set(found) == {first, f"{first}-2"}
    assert found[first] == first_state != found[f"{first}-2"]
    second = facts(repository, "latest")
    assert second is not None
    assert second["state_id"] == found[f"{first}-2"]


def test_another_occurrence_on_other_files_leaves_nothing_behind(repository: Shell) -> None:
    repository("capture", *BOOM)
    before = refs(repository)
    (repository.cwd / "more").write_text("more")
    done = repository("capture", *BOOM)
    assert b"seen 2 times" in done.stderr
    assert refs(repository) == before == {f"reports/{BOOM_ID}": next(iter(before.values()))}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--only-failures", "true"],
        ["--cwd", "gone", "true"],
        ["--no-snapshot", "false"],
    ],
)
def test_where_nothing_is_stored_no_state_stays(repository: Shell, arguments: list[str]) -> None:
    repository("capture", *arguments)
    assert refs(repository) == {}


def test_a_setting_and_a_variable_turn_it_off_and_a_flag_on_again(repository: Shell) -> None:
    (repository.cwd / "repotrace.toml").write_text("snapshot = false\n")
    repository("capture", "sh", "-c", "exit 1")
    assert facts(repository) is None
    assert not (home(repository) / "snapshots.git").exists()
    repository("capture", "--snapshot", "sh", "-c", "exit 2")
    assert facts(repository) is not None
    repository("capture", "sh", "-c", "exit 3", env={"REPOTRACE_SNAPSHOT": "yes"})
    assert facts(repository) is not None

    (repository.cwd / "repotrace.toml").unlink()
    repository("capture", "sh", "-c", "exit 4", env={"REPOTRACE_SNAPSHOT": "0"})
    assert facts(repository) is None
    done = repository("capture", "sh", "-c", "exit 5", env={"REPOTRACE_SNAPSHOT": "perhaps"})
    assert done.returncode == 125
    assert b"must be true or false" in done.stderr


def test_outside_of_git_the_folder_itself_is_kept(repotrace: Shell, tmp_path: Path) -> None:
    (repotrace.cwd / "a").write_text("a")
    before = picture(repotrace.cwd, but=OURS)
    repotrace("capture", "false")
    kept = facts(repotrace)
    assert kept is not None
    Store(home(repotrace)).snapshots.materialise(str(kept["state_id"]), tmp_path / "again")
    assert picture(tmp_path / "again", but=OURS) == before


@pytest.mark.parametrize("place", ["home", "root", "public"])
def test_what_is_too_wide_is_missed_without_a_word(repotrace: Shell, place: str) -> None:
    public = repotrace.cwd / "public"
    public.mkdir()
    public.chmod(0o1777)
    cwd = {"home": repotrace.home, "root": Path("/"), "public": public}[place]
    store = repotrace.cwd / "store"
    env = {"REPOTRACE_HOME": str(repotrace.cwd / "ours")}
    done = repotrace("capture", "--store", store, "false", cwd=cwd, env=env)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[1:] == ["exit code 1"]
    shown = json.loads(repotrace("show", "--store", store, "--json", env=env).stdout)
    kept = shown["report"]["metadata"]["command_run"]["files"]
    assert "state_id" not in kept
    assert kept["reason"]
    assert b"not kept: " in repotrace("show", "--store", store, env=env).stdout


def test_a_store_of_states_that_cannot_be_written_breaks_nothing(repository: Shell) -> None:
    home(repository).mkdir()
    (home(repository) / "snapshots.git").write_text("in the way")
    done = repository("capture", *BOOM)
    assert (done.returncode, done.stdout) == (7, b"boom\n")
    assert done.stderr.decode().count("the files were not kept: ") == 1
    kept = facts(repository)
    assert kept is not None
    assert kept["reason"]


def test_a_home_that_takes_nothing_is_said_in_words(repository: Shell) -> None:
    home = repository.cwd / ".git" / "repotrace"
    home.write_text("")
    told = repository("capture", "false").stderr.decode().splitlines()[-1]
    place = re.escape(str(home))
    assert re.fullmatch(rf"the files were not kept: [A-Z][a-z ]+: {place}\S*; see \S+", told)


def test_a_home_that_is_none_is_no_bug_of_ours(repository: Shell) -> None:
    home = repository.cwd / ".git" / "repotrace"
    home.write_text("")
    done = repository("runs", "gc")
    assert done.returncode == 2
    assert done.stderr.decode().startswith(f"repotrace: Cannot use {home}")


def test_without_git_the_command_runs_all_the_same(repository: Shell) -> None:
    bare = repository.home / "bin"
    bare.mkdir()
    (bare / "fail").write_text("#!/bin/sh\nexit 9\n")
    (bare / "fail").chmod(0o755)
    done = repository("capture", "fail", env={"PATH": str(bare)})
    assert done.returncode == 9
    assert b"not kept: git could not be started; see --no-snapshot" in done.stderr
    kept = facts(repository)
    assert kept is not None
    assert "state_id" not in kept


def test_a_report_that_cannot_be_stored_leaves_no_state(repository: Shell) -> None:
    (repository.cwd / "store").write_text("no folder")
    done = repository("capture", "--store", "store", *BOOM)
    assert done.returncode == 7
    assert b"the report was saved as" in done.stderr
    assert refs(repository) == {}


def test_ids_that_git_takes_for_no_name(repository: Shell) -> None:
    for report_id in ("a..b", "a.lock", "a."):
        repository("capture", "--id", report_id, "false")
        assert ref_of_report(report_id) in refs(repository)
    store = Store(home(repository), reports=repository.cwd / ".repotrace/reports")
    assert abandoned(store, now=0) == []


def test_captures_at_once_do_not_mix_up(repository: Shell, tmp_path: Path) -> None:
    """The same command in two work trees that share a home, four times each."""
    other = Shell(tmp_path / "other")
    other.cwd.rmdir()
    repository.git("worktree", "add", "-q", str(other.cwd))
    (other.cwd / "only here").write_text("x")

    def capture(number: int) -> bytes:
        shell = (repository, other)[number % 2]
        return shell("capture", *BOOM).stderr

    outputs = in_processes(8, capture)
    assert all(b"captured " + BOOM_ID.encode() in output for output in outputs), outputs
    states = []
    for shell in (repository, other):
        kept = facts(shell)
        assert kept is not None
        if kept.get("quality") != "exact":  # the machine was too busy
            pytest.skip(f"missed: {kept}")
        states.append(kept["state_id"])
    assert states[0] != states[1]
    found = refs(repository)
    assert sorted(found.values()) == sorted(map(str, states))
    assert f"reports/{BOOM_ID}" in found
    store = Store(home(repository), reports=repository.cwd / ".repotrace/reports")
    assert abandoned(store, now=0) == []

    # What becomes of one report does not touch the other's files.
    forget_files(store, BOOM_ID)
    assert list(refs(repository).values()) == [states[1]]


def test_what_no_report_needs_is_told(repository: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    repository("capture", "--id", "stays", "false")
    repository("capture", "--id", "goes", "true")
    root = repository.cwd / ".repotrace/reports"
    (root / "goes.json").unlink()
    monkeypatch.setenv("HOME", str(repository.home))
    store = Store(home(repository), reports=root)
    going_on = keep_files(store, repository.cwd, os.environ, Redactor(key=b"k" * 32))
    (pending,) = [ref for ref in store.snapshots.refs() if "CAPTURING" in ref]
    now = store.snapshots.history(pending)[0].taken_at
    assert abandoned(store, now=now) == ["reports/goes"]
    assert abandoned(store, now=now + 90_000) == [pending, "reports/goes"]
    going_on.discard()
    assert sorted(store.snapshots.refs()) == ["reports/goes", "reports/stays"]


def test_old_reports_load_and_old_readers_find_what_they_know(repository: Shell) -> None:
    repository("capture", *BOOM)
    path = repository.cwd / ".repotrace/reports" / f"{BOOM_ID}.json"
    document = json.loads(path.read_text())
    assert document["metadata"]["schema_version"] == 2
    store = ReportStore(path.parent)
    run = command_run_of(store.load(BOOM_ID))
    assert isinstance(run.files, FileState)
    del document["metadata"]["command_run"]["files"]
    path.write_text(json.dumps(document))
    assert command_run_of(store.load(BOOM_ID)) == run.model_copy(update={"files": None})


def test_the_library_keeps_files_with_a_store_unless_told_not_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("REPOTRACE_HOME", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (work / "a").write_text("a")
    store = ReportStore(work / ".repotrace/reports")
    kept = capture_command(["sh", "-c", "exit 1"], store=store)[0].run
    none = capture_command(["sh", "-c", "exit 2"], store=store, snapshot=False)[0].run
    unstored = capture_command(["sh", "-c", "exit 3"])[0].run
    assert kept is not None
    assert kept.files is not None
    assert kept.files.state_id is not None
    assert Store(work / ".repotrace").snapshots.read(kept.files.state_id, "a") == b"a"
    for run in (none, unstored):
        assert run is not None
        assert run.files is None


@pytest.mark.parametrize("accept", [True, False])
def test_accepting_keeps_the_files_that_it_ran_on(
    repository: Shell, tmp_path: Path, *, accept: bool
) -> None:
    app = repository.cwd / "sub" / "app.py"
    app.write_text("raise SystemExit(1)\n")
    repository("capture", "--id", "a", "python", "sub/app.py")
    before = facts(repository)
    app.write_text("raise SystemExit(2)\n")
    repository("replay", "a", *(["--accept"] if accept else []))
    after = facts(repository)
    assert before is not None
    assert after is not None
    assert (before["state_id"] != after["state_id"]) is accept
    assert refs(repository) == {"reports/a": after["state_id"]}


def test_an_interrupt_leaves_the_state_with_its_report(repository: Shell) -> None:
    # A shell that is about to start another program may keep an interrupt from it.
    process = repository.start("capture", "sh", "-c", "echo ready; exec sleep 60")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    (pending,) = refs(repository)
    assert "CAPTURING" in pending
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    (kept,) = refs(repository)
    assert "CAPTURING" not in kept
