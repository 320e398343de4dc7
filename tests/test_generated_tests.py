"""Generated tests run by real pytest: elsewhere, and after the behaviour has changed."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from generating import (
    ARGUMENT,
    OUTPUT,
    Scenario,
    boom,
    capture,
    environment,
    make_venv,
    outcome,
    outcomes,
    reproduction,
    ruff_complaints,
)
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from repotrace.config import UserRule
from repotrace.generator import Reproduction, generate_test, write_test
from repotrace.records.bug import BugReport
from repotrace.records.command import CommandRun, Signature, Termination

# --- behaviour that stays, and behaviour that changes


VOLATILE = """\
import os, random, tempfile, time, uuid
print("cwd", os.getcwd(), "home", os.environ["HOME"])
print("object at 0x7f%010x" % random.randrange(1 << 40), uuid.uuid4())
print("%s took %.2fs" % (time.strftime("%Y-%m-%d %H:%M:%S"), random.random()))
print("temporary", tempfile.mkdtemp())
print("== 1 failed in %.2fs ==" % (random.random() * 100))
"""

SCENARIOS = {
    "traceback": Scenario(
        "import json\njson.loads('{')\n",
        "import json\njson.loads('[')\n",
    ),
    "volatile": Scenario(VOLATILE, VOLATILE.replace("temporary", "permanent")),
    "binary": Scenario(
        "import sys; sys.stdout.buffer.write(b'\\xff\\x00\\n\\xfe'); sys.exit(2)",
        "import sys; sys.stdout.buffer.write(b'\\xff\\x00\\n\\xfd'); sys.exit(2)",
    ),
    "binary_with_folder": Scenario(
        "import os, sys; sys.stdout.buffer.write(b'\\xff ' + os.getcwdb())",
        "import os, sys; sys.stdout.buffer.write(b'\\xfe ' + os.getcwdb())",
    ),
    "colours": Scenario(
        "import os; print('\\x1b[31m' + os.getcwd() + '\\x1b[0m\\r')",
        "import os; print('\\x1b[31m' + os.getcwd() + '/x\\x1b[0m\\r')",
    ),
    "character_across_colour": Scenario(
        "import os; os.write(1, b'\\xc9\\x1b[m\\x8a \\xff')",
        "import os; os.write(1, b'\\xc9\\x1b[m\\x8b \\xff')",
    ),
    "progress": Scenario(
        "print('1%\\r50%\\r100%\\ndone')",
        "print('1%\\r50%\\r99%\\ndone')",
    ),
    "unicode": Scenario("print('größer 大きい 🐍')", "print('größer 大きい 🐛')"),
    "signal": Scenario(
        "import os; os.kill(os.getpid(), 11)",
        "import os; os.kill(os.getpid(), 6)",
    ),
    "success": Scenario("print('wrong')", "print('right')"),
    "hang": Scenario(
        "import time; print('working', flush=True); time.sleep(60)",
        "print('working', flush=True)",
        options={"timeout": 0.6},
    ),
    "stdin": Scenario(
        "import sys; print(sys.stdin.read().upper())",
        "import sys; print(sys.stdin.read())",
        options={"stdin": b"some text\n"},
    ),
    "binary_stdin": Scenario(
        "import sys; print(sys.stdin.buffer.read()[::-1])",
        "import sys; print(sys.stdin.buffer.read())",
        options={"stdin": b"\xff\x00\r\n"},
    ),
    "script": Scenario(
        "import sys; sys.exit(4)",
        "import sys; sys.exit(5)",
        argv=(),
        options={"script": 'python app.py || echo "status $?" | tr a-z A-Z\n'},
    ),
    "merged": Scenario(
        "import os; [os.write(n, b'%d' % n) for n in (1, 2, 1, 2)]",
        "import os; [os.write(n, b'%d' % n) for n in (1, 1, 2, 2)]",
        options={"merge": True},
    ),
    "terminal": Scenario(
        "import os, sys; print(sys.stdin.isatty(), os.get_terminal_size()); sys.exit(3)",
        "import os, sys; print(sys.stdin.isatty(), os.get_terminal_size(), 1); sys.exit(3)",
        options={"pty": True},
        env={"COLUMNS": "97", "LINES": "31"},
    ),
    "terminal_input": Scenario(
        "import sys; print(sys.stdin.read(), sys.stdout.isatty())",
        "import sys; print(sys.stdin.read(), 1)",
        options={"pty": True, "stdin": b"some text"},
    ),
    "terminal_hang": Scenario(
        "import time; print('working', flush=True); time.sleep(60)",
        "print('working', flush=True)",
        options={"pty": True, "timeout": 0.6},
    ),
    "hang_after_input": Scenario(
        "import sys, time; print(sys.stdin.read(), flush=True); time.sleep(60)",
        "import sys, time; print(sys.stdin.read(2), flush=True); time.sleep(60)",
        options={"stdin": b"some text", "timeout": 0.6},
    ),
    "variables": Scenario(
        "import os; print([os.environ.get(n) for n in ('TZ', 'CI', 'NO_COLOR', 'LC_ALL')])",
        "import os; print([os.environ.get(n) for n in ('TZ', 'CI', 'NO_COLOR')])",
        env={"TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8"},
    ),
    "interpreter": Scenario(
        "import os, sys; print(sys.prefix, sys.executable, os.__file__)",
        "import os, sys; print(sys.executable, sys.prefix, os.__file__)",
    ),
    "leftover": Scenario(
        "import subprocess; subprocess.Popen(['sleep', '33'], start_new_session=True); print(1)",
        "print(2)",
    ),
    "long": Scenario(
        "for n in range(20000): print('line', n)",
        "for n in range(20000): print('line', n if n != 10000 else 'x')",
        options={"limit": 1000},
    ),
    "long_with_folder": Scenario(
        "import os\nfor n in range(20000): print('line', n, os.getcwd())",
        "import os\nfor n in range(20001): print('line', n, os.getcwd())",
        options={"limit": 1000},
    ),
    "argument": Scenario(
        "import sys; print(sys.argv)",
        "import sys; print(sys.argv[1:])",
        argv=("python", "{project}/argument/app.py", "--root={project}/argument/x"),
    ),
    "exit_code": Scenario(
        "import sys, time; print(time.time_ns()); sys.exit(9)",
        "import sys, time; print(time.time_ns()); sys.exit(8)",
        generate={"match_output": False},
    ),
    "exact": Scenario(
        "print('a\\r\\nb\\x1b[0m', end='')",
        "print('a\\nb\\x1b[0m', end='')",
        generate={"exact": True},
    ),
    "box": Scenario(
        "import os; p = os.getcwd(); print('│ ' + p + ' │'); raise KeyError(1)",
        "import os; p = os.getcwd(); print('│ ' + p + ' │'); raise IndexError(1)",
    ),
}


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which each scenario was captured and has its test."""
    project = tmp_path_factory.mktemp("here") / "project"
    subprocess.run(["git", "init", "-q", project], check=True)

    def record(name: str) -> None:
        scenario, folder = SCENARIOS[name], project / name
        folder.mkdir()
        Path(folder, "app.py").write_text(scenario.app)
        run = capture(
            [part.format(project=project) for part in scenario.argv],
            folder,
            env=environment(**scenario.env),
            **scenario.options,
        )
        path = project / "tests" / f"test_{name}.py"
        write_test(reproduction(run, name), path, **scenario.generate)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(record, SCENARIOS))
    return project


def foreign_environment(folder: Path) -> dict[str, str]:
    """Another HOME, another TMPDIR, another virtual environment, and CI's own ideas."""
    for name in ("home", "tmp"):
        Path(folder, name).mkdir()
    venv = make_venv(folder / "another venv")
    return {
        "PATH": "/usr/bin:/bin",
        "VIRTUAL_ENV": str(venv),
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "CI": "1",
        "TZ": "Europe/Berlin",
        "NO_COLOR": "1",
        "FORCE_COLOR": "1",
        "COLUMNS": "47",
        "PYTHONHASHSEED": "7",
    }


def test_each_test_passes_right_after_generating(captured: Path, tmp_path: Path) -> None:
    found = outcomes(captured / "tests", cwd=tmp_path)
    assert found == dict.fromkeys(SCENARIOS, "passed")


def test_each_test_passes_in_a_copy_with_other_surroundings(captured: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(captured, tmp_path / "a much longer name (with spaces)" / "c")
    found = outcomes(copy / "tests", cwd=tmp_path, env=foreign_environment(tmp_path))
    assert found == dict.fromkeys(SCENARIOS, "passed")


def test_each_test_fails_when_the_behaviour_changes(captured: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(captured, tmp_path / "copy")
    shutil.rmtree(copy / ".git")
    for name, scenario in SCENARIOS.items():
        Path(copy, name, "app.py").write_text(scenario.changed)
    found = outcomes(copy / "tests", cwd=tmp_path)
    expected = dict.fromkeys(SCENARIOS, "failed")
    assert found == expected


def test_generated_tests_are_clean_and_old_python_reads_them(captured: Path) -> None:
    for path in Path(captured, "tests").glob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    assert ruff_complaints(captured / "tests") == ""


def test_generated_tests_hold_no_folder_of_this_machine(captured: Path) -> None:
    for name in SCENARIOS:
        text = Path(captured, "tests", f"test_{name}.py").read_text(encoding="utf-8")
        if name not in ("argument", "box", "exit_code"):
            assert str(captured) not in text, name


# --- tests of a fix


FIXES = {
    "code": Scenario("import sys; print(1); sys.exit(3)", "print(2)"),
    "success": Scenario("import os; print('wrong', os.getcwd())", "print('right')"),
    "hang": Scenario("import time; time.sleep(60)", "pass", options={"timeout": 0.5}),
    "signal": Scenario("import os; os.kill(os.getpid(), 9)", "pass"),
    "missing": Scenario("", "#!/bin/sh\n", argv=("./tool",)),
}


def test_a_test_of_the_fix_is_red_until_the_failure_is_gone(tmp_path: Path) -> None:
    for name, scenario in FIXES.items():
        folder = tmp_path / "project" / name
        folder.mkdir(parents=True)
        Path(folder, "app.py").write_text(scenario.app)
        run = capture(scenario.argv, folder, **scenario.options)
        write_test(
            reproduction(run, name), tmp_path / "project" / f"test_{name}.py", expect="fixed"
        )
    found = outcomes(tmp_path / "project", cwd=tmp_path)
    assert found == dict.fromkeys(FIXES, "failed")

    for name, scenario in FIXES.items():
        path = tmp_path / "project" / name / ("tool" if name == "missing" else "app.py")
        path.write_text(scenario.changed)
        path.chmod(0o755)
    found = outcomes(tmp_path / "project", cwd=tmp_path)
    assert found == dict.fromkeys(FIXES, "passed")
    assert ruff_complaints(tmp_path / "project") == ""


# --- commands that cannot be run


def test_a_command_that_could_not_be_started_still_cannot(tmp_path: Path) -> None:
    Path(tmp_path, "plain").write_text("text")
    names = {"missing": "./tool", "plain": "./plain", "folder": "./"}
    for name, command in names.items():
        run = capture([command], tmp_path)
        assert run.termination is Termination.SPAWN_ERROR
        write_test(reproduction(run, name), tmp_path / "tests" / f"test_{name}.py")
    assert outcomes(tmp_path / "tests", cwd=tmp_path) == dict.fromkeys(names, "passed")
    assert ruff_complaints(tmp_path / "tests") == ""

    for name in ("tool", "plain"):
        Path(tmp_path, name).write_text("#!/bin/sh\nexit 0\n")
        Path(tmp_path, name).chmod(0o755)
    found = outcomes(tmp_path / "tests", cwd=tmp_path)
    assert found == {"missing": "failed", "plain": "failed", "folder": "passed"}


def test_a_test_that_cannot_run_is_skipped_with_a_reason(tmp_path: Path) -> None:
    project = tmp_path / "project"
    Path(project, "gone").mkdir(parents=True)
    Path(project, "tool").write_text("#!/bin/sh\necho hi\nexit 3\n")
    Path(project, "tool").chmod(0o755)
    Path(project, "app.py").write_text("import os; print(os.environ['SERVICE_TOKEN'])")
    token = environment(SERVICE_TOKEN="gr7x" + "kq2vw9zt")
    secret = ["python", "-c", "print(1)", "gr7x" + "kq2vw9zt"]
    sources = {
        "tool": reproduction(capture(["./tool"], project)),
        "folder": reproduction(capture(["true"], project / "gone")),
        "platform": boom().model_copy(update={"platform": "sunos5"}),
        "variable": reproduction(capture(["python", "app.py"], project, env=token)),
        "secret": reproduction(capture(secret, project, env=token)),
        "input": reproduction(CommandRun(argv=("cat",), exit_code=0, stdin_kind="cut")),
    }
    for name, source in sources.items():
        write_test(source, project / "tests" / f"test_{name}.py")
        assert "gr7x" + "kq2vw9zt" not in Path(project, "tests", f"test_{name}.py").read_text()
    Path(project, "tool").unlink()
    Path(project, "gone").rmdir()

    assert outcomes(project / "tests", cwd=tmp_path) == dict.fromkeys(sources, "skipped")
    text = Path(tmp_path, "junit.xml").read_text(encoding="utf-8")
    for reason in (
        "cannot run: [Errno 2] No such file or directory: './tool'",
        f"there is no folder {project}/gone",
        "recorded on sunos5",
        "needs SERVICE_TOKEN",
        "its standard input was too long to be recorded",
    ):
        assert reason.replace("'", "&apos;") in text or reason in text, reason
    assert ruff_complaints(project / "tests") == ""

    # Another value of the same variable, as somebody else has it.
    other = environment(SERVICE_TOKEN="another" + "4711value")
    found = outcomes(project / "tests", cwd=tmp_path, env=other)
    assert found["variable"] == found["secret"] == "passed"


# --- folders


def test_a_printed_test_finds_its_folder_from_where_it_is_put(tmp_path: Path) -> None:
    project = tmp_path / "project"
    Path(project, "sub").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", project], check=True)
    Path(project, "sub", "data").write_text("1")
    run = capture(["cat", "data"], project / "sub")
    source = generate_test(reproduction(run))
    copy = shutil.copytree(project, tmp_path / "copy")
    Path(copy, "sub", "data").write_text("2")
    for folder in (project / "deep" / "down", copy, tmp_path / "outside"):
        folder.mkdir(parents=True, exist_ok=True)
        Path(folder, "test_it.py").write_text(source)

    def found(folder: Path) -> str:
        return outcome(folder / "test_it.py", cwd=tmp_path)[0]

    assert found(project / "deep" / "down") == "passed"
    assert found(copy) == "failed"
    assert found(tmp_path / "outside") == "passed"
    shutil.rmtree(project)
    assert found(tmp_path / "outside") == "skipped"


def test_a_test_outside_of_the_project_runs_where_the_command_ran(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    Path(project, "data").write_text("1")
    run = capture(["cat", "data"], project)
    path = write_test(reproduction(run), tmp_path / "other" / "test_it.py")
    assert outcome(path, cwd=tmp_path)[0] == "passed"
    Path(project, "data").write_text("2")
    assert outcome(path, cwd=tmp_path)[0] == "failed"


def test_the_virtual_environment_of_the_project_goes_with_it(tmp_path: Path) -> None:
    project = tmp_path / "project"
    venv = make_venv(project / "env")
    env = environment(PATH=f"{venv}/bin:/usr/bin:/bin")
    run = capture(["python", "-c", "import sys; print(sys.prefix); sys.exit(1)"], project, env=env)
    assert run.stdout.text == f"{venv}\n"
    path = write_test(reproduction(run), project / "test_it.py")
    copy = shutil.copytree(project, tmp_path / "copy", symlinks=True)
    # Not activated, and pytest belongs to another environment.
    found = outcome(copy / path.name, cwd=tmp_path, env=environment(PATH="/usr/bin:/bin"))
    assert found[0] == "passed"
    shutil.rmtree(project)
    assert outcome(copy / path.name, cwd=tmp_path)[0] == "passed"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems allow no such names")
def test_a_folder_may_have_a_name_that_is_no_text(tmp_path: Path) -> None:
    project = tmp_path / "caf\udce9 \u202e"
    project.mkdir()
    run = capture(["python", "-c", "import os; os.write(1, os.getcwdb()); exit(1)"], project)
    for path in (project / "test_it.py", tmp_path / "elsewhere" / "test_it.py"):
        write_test(reproduction(run), path)
        assert outcome(path, cwd=tmp_path)[0] == "passed"


def test_a_command_that_runs_all_tests_does_not_run_its_own(tmp_path: Path) -> None:
    tmp_path.joinpath("test_money.py").write_text("def test_sum():\n    assert 1 + 1 == 3\n")
    argv = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"]
    run = capture(argv, tmp_path)
    assert run.returncode == 1
    for name in ("test_whole.py", "test_whole_again.py"):
        write_test(reproduction(run), tmp_path / name)
    by_hand = Reproduction(command=[*argv, "-q"], exit_code=1, cwd=str(tmp_path))
    write_test(by_hand, tmp_path / "test_by_hand.py", match_output=False)

    assert outcomes(tmp_path, cwd=tmp_path) == {
        "money": "failed",
        "whole": "passed",
        "whole_again": "passed",
        "by_hand": "passed",
    }


def test_what_the_settings_call_volatile_may_differ(tmp_path: Path) -> None:
    source = 'import random\nprint("order #%d" % random.randrange(10**9))\nprint("{}")\n1 / 0\n'
    tmp_path.joinpath("app.py").write_text(source.format("one"))
    run = capture(["python", "app.py"], tmp_path)
    rules = [UserRule("order", r"^ORDER #\d+$", r"\g<0>"), UserRule("order", r"order #\d+$", "#N")]
    test = write_test(reproduction(run), tmp_path / "test_order.py", user_rules=rules)
    assert outcome(test, cwd=tmp_path)[0] == "passed"
    tmp_path.joinpath("app.py").write_text(source.format("two"))
    assert outcome(test, cwd=tmp_path)[0] == "failed"


def test_where_the_layout_depends_on_a_path_the_signature_counts(tmp_path: Path) -> None:
    app = """\
import os, textwrap
path = os.getcwd()
print("╭" + "─" * (len(path) + 2) + "╮")
print("│ " + path + " │")
print("╰" + "─" * (len(path) + 2) + "╯")
print("KeyError: 'x'")
raise SystemExit(1)
"""
    project = tmp_path / "project"
    project.mkdir()
    Path(project, "app.py").write_text(app)
    signature = Signature(kind="python", exception="KeyError")
    run = capture(["python", "app.py"], project).model_copy(update={"signature": signature})
    path = write_test(reproduction(run), project / "test_it.py")

    assert "only its signature counts" in path.read_text(encoding="utf-8")
    assert ruff_complaints(project) == ""
    copy = shutil.copytree(project, tmp_path / "a longer name")
    assert outcome(copy / "test_it.py", cwd=tmp_path)[0] == "passed"
    Path(copy, "app.py").write_text(app.replace("KeyError", "IndexError"))
    assert outcome(copy / "test_it.py", cwd=tmp_path)[0] == "failed"


def test_a_report_of_the_first_version_runs_in_its_folder(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    Path(project, "data.txt").write_text("42\n")
    argv = ["python", "-c", "print(open('data.txt').read()); raise SystemExit(3)"]
    metadata = {
        "exit_code": 3,
        "cwd": str(project),
        "environment": {"platform": "Linux-6.1-x86_64-with-glibc2.36"},
        "events": [
            {"index": 0, "kind": "command", "message": "python", "data": {"argv": argv}},
            {"index": 1, "kind": "stdout", "message": "42\n\n", "data": {}},
            {"index": 2, "kind": "exit", "message": "exit code 3", "data": {}},
        ],
    }
    report = BugReport(id="old", title="old", metadata=metadata)
    path = write_test(report, project / "tests" / "test_old.py")

    assert 'skipif(sys.platform != "linux"' in path.read_text()
    if sys.platform == "linux":
        assert outcome(path, cwd=tmp_path)[0] == "passed"
        moved = shutil.copytree(project, tmp_path / "moved")
        Path(moved, "data.txt").write_text("43\n")
        assert outcome(moved / "tests" / "test_old.py", cwd=tmp_path)[0] == "failed"


# --- anything


ECHO = """\
import os, sys
out, err, code = sys.argv[1:4]
os.write(1, bytes.fromhex(out))
os.write(2, bytes.fromhex(err))
if int(code) < 0:
    os.kill(os.getpid(), -int(code))
sys.exit(int(code))
"""


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.lists(ARGUMENT, max_size=3), OUTPUT, OUTPUT, st.sampled_from([0, 1, 2, 255, -9, -15])
        ),
        min_size=25,
        max_size=25,
    )
)
@settings(max_examples=4, deadline=None, phases=[Phase.generate])
def test_any_command_and_any_output_survive_being_run(
    examples: list[tuple[list[str], bytes, bytes, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "project")
        Path(project, "tests").mkdir(parents=True)
        Path(project, "echo.py").write_text(ECHO)
        for number, (argv, stdout, stderr, code) in enumerate(examples):
            command = ["python", "echo.py", stdout.hex(), stderr.hex(), str(code), *argv]
            source = reproduction(capture(command, project))
            write_test(source, project / "tests" / f"test_{number}.py", exact=number % 2 == 0)
        found = outcomes(project / "tests", cwd=Path(folder))
        assert found == {str(number): "passed" for number in range(len(examples))}
        assert ruff_complaints(project / "tests") == ""
