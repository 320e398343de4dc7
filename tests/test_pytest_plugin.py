"""The plug-in of pytest, in real runs of pytest."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from plugged import Said, plugged, read_journal, run_pytest, write_files
from running import clean_environment

from repotrace import journal, pytest_plugin
from repotrace.records import events
from repotrace.records.run import TestResult
from repotrace.storage import Store
from repotrace.system import plugin_environment
from repotrace.system.plugin_environment import MODULE, wheel, with_plugin, without_plugin

SOURCE = Path(pytest_plugin.__file__)

KINDS = """
import pytest, unittest

@pytest.fixture
def bad():
    raise RuntimeError("setup broke")

@pytest.fixture
def late():
    yield
    raise RuntimeError("teardown broke")

def test_passes(): pass
def test_fails():
    print("words of the test")
    assert {"a": 1} == {"a": 2}
def test_setup(bad): pass
def test_teardown(late): pass
def test_both(late): assert 0
@pytest.mark.skip(reason="not now")
def test_skipped(): pass
def test_skips(): pytest.skip("after all not")
@pytest.mark.xfail(reason="known")
def test_xfails(): assert 0
@pytest.mark.xfail(reason="known", run=False)
def test_not_run(): assert 0
@pytest.mark.xfail(reason="known")
def test_xpasses(): pass
@pytest.mark.xfail(strict=True, reason="must fail")
def test_strict(): pass
@pytest.mark.parametrize("x", ["a b", "\\xe9", "[z] - FAILED", "::"])
def test_texts(x): pass

class TestGroup:
    def test_inside(self): pass

class Old(unittest.TestCase):
    def test_method(self): pass
    @unittest.skip("unit skip")
    def test_skipped(self): pass
    @unittest.expectedFailure
    def test_expected(self): self.fail("x")
"""
EXPECTED = [
    ("test_kinds.py::test_passes", "call", "passed"),
    ("test_kinds.py::test_fails", "call", "failed"),
    ("test_kinds.py::test_setup", "setup", "error"),
    ("test_kinds.py::test_teardown", "call", "passed"),
    ("test_kinds.py::test_teardown", "teardown", "error"),
    ("test_kinds.py::test_both", "call", "failed"),
    ("test_kinds.py::test_both", "teardown", "error"),
    ("test_kinds.py::test_skipped", "setup", "skipped"),
    ("test_kinds.py::test_skips", "call", "skipped"),
    ("test_kinds.py::test_xfails", "call", "xfailed"),
    ("test_kinds.py::test_not_run", "setup", "xfailed"),
    ("test_kinds.py::test_xpasses", "call", "xpassed"),
    ("test_kinds.py::test_strict", "call", "failed"),
    ("test_kinds.py::test_texts[a b]", "call", "passed"),
    ("test_kinds.py::test_texts[\\xe9]", "call", "passed"),
    ("test_kinds.py::test_texts[[z] - FAILED]", "call", "passed"),
    ("test_kinds.py::test_texts[::]", "call", "passed"),
    ("test_kinds.py::TestGroup::test_inside", "call", "passed"),
    ("test_kinds.py::Old::test_expected", "call", "xfailed"),
    ("test_kinds.py::Old::test_method", "call", "passed"),
    ("test_kinds.py::Old::test_skipped", "call", "skipped"),
]
SUBTESTS = """
import unittest

def test_fixture(subtests):
    for number in range(2):
        with subtests.test("named", number=number, who="x"):
            assert number == 0
    with subtests.test(msg="same"): pass
    with subtests.test(msg="same"): assert 0
    with subtests.test(): pass

class Old(unittest.TestCase):
    def test_loop(self):
        for number in range(3):
            with self.subTest("m", number=number):
                self.assertNotEqual(number, 1)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def plain(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """pytest as the user runs it, without us."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", *args],
        cwd=folder,
        env=clean_environment(folder.parent, env),
        capture_output=True,
        text=True,
        check=False,
    )


def without_times(text: str) -> str:
    """`text` without what differs from run to run."""
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    return " ".join(word for word in text.split() if not word.endswith(("s", "=")) or "::" in word)


# --- What is told ---------------------------------------------------------------------------


def test_every_kind_of_outcome(project: Path) -> None:
    write_files(project, {"test_kinds.py": KINDS})
    said = run_pytest(project)
    assert said.tests == EXPECTED
    assert {outcome for _, _, outcome in said.tests} <= set(TestResult)
    failed = said.data("test_kinds.py::test_fails")
    assert failed["message"] == "AssertionError: assert {'a': 1} == {'a': 2}"
    assert "E       AssertionError: assert {'a': 1} == {'a': 2}" in failed["details"]
    assert "words of the test" in failed["details"]
    assert 0 <= failed["duration"] < 60
    assert said.data("test_kinds.py::test_setup", "setup")["message"] == "RuntimeError: setup broke"
    assert said.data("test_kinds.py::test_skipped", "setup")["message"] == "not now"
    assert said.data("test_kinds.py::test_xfails")["message"] == "known"
    assert said.data("test_kinds.py::test_strict")["message"] == "[XPASS(strict)] must fail"
    passed = said.data("test_kinds.py::test_passes")
    assert "details" not in passed
    assert "message" not in passed
    assert passed["step_id"] == "s1"
    assert passed["command_id"] == "c1"
    assert (passed["origin"], passed["runner"]) == ("plugin", "pytest")
    assert all(event["run"] == "r1" and event["raw"] is True for event in said.events)
    assert said.ends == [{"runner": "pytest", "exit_status": 1, "stopped": False, "collected": 19}]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_each_outcome_is_told_once_under_xdist(project: Path, workers: str) -> None:
    write_files(
        project,
        {
            "test_kinds.py": KINDS,
            "test_broken.py": "import nothing_of_this_name\n",
            "test_not.py": "import pytest\npytest.skip('whole', allow_module_level=True)\n",
        },
    )
    said = run_pytest(project, "-n", workers, "--continue-on-collection-errors")
    collected = [
        ("test_broken.py", "collect", "error"),
        ("test_not.py", "collect", "skipped"),
    ]
    assert sorted(said.tests) == sorted(EXPECTED + collected)
    broken = said.data("test_broken.py", "collect")
    assert broken["message"] == "ModuleNotFoundError: No module named 'nothing_of_this_name'"
    assert said.data("test_not.py", "collect")["message"] == "whole"
    assert said.data("test_kinds.py::test_strict")["message"] == "[XPASS(strict)] must fail"
    assert len(said.ends) == 1


@pytest.mark.parametrize("workers", ["0", "2"])
def test_subtests_have_ids_of_their_own(project: Path, workers: str) -> None:
    write_files(project, {"test_subs.py": SUBTESTS})
    said = run_pytest(project, "-n", workers)
    assert sorted(said.tests) == [
        ("test_subs.py::Old::test_loop", "call", "passed"),
        ("test_subs.py::Old::test_loop [m] (number=0)", "call", "passed"),
        ("test_subs.py::Old::test_loop [m] (number=1)", "call", "failed"),
        ("test_subs.py::Old::test_loop [m] (number=2)", "call", "passed"),
        ("test_subs.py::test_fixture", "call", "failed"),
        ("test_subs.py::test_fixture (<subtest>)", "call", "passed"),
        ("test_subs.py::test_fixture [named] (number=0, who='x')", "call", "passed"),
        ("test_subs.py::test_fixture [named] (number=1, who='x')", "call", "failed"),
        ("test_subs.py::test_fixture [same]", "call", "passed"),
        ("test_subs.py::test_fixture [same] #2", "call", "failed"),
    ]


def test_reruns_count_their_attempts(project: Path) -> None:
    pytest.importorskip("pytest_rerunfailures", reason="pytest-rerunfailures is not installed")
    code = """
    tried = []
    def test_flaky():
        tried.append(1)
        assert len(tried) == 3
    def test_hopeless(): assert 0
    """
    write_files(project, {"test_again.py": code.replace("\n    ", "\n")})
    said = run_pytest(project, "--reruns", "2")
    attempts = [
        (event["data"]["node_id"][15:], event["data"]["outcome"], event["data"].get("attempt", 1))
        for event in said.events
    ]
    assert attempts == [
        ("test_flaky", "rerun", 1),
        ("test_flaky", "rerun", 2),
        ("test_flaky", "passed", 3),
        ("test_hopeless", "rerun", 1),
        ("test_hopeless", "rerun", 2),
        ("test_hopeless", "failed", 3),
    ]


def test_an_aborted_session_says_so(project: Path) -> None:
    write_files(project, {"test_a.py": "def test_a(): assert 0\ndef test_b(): pass\n"})
    said = run_pytest(project, "-x")
    assert said.tests == [("test_a.py::test_a", "call", "failed")]
    assert said.ends[0]["stopped"] is True


def test_a_long_failure_is_cut_and_says_by_how_much(project: Path) -> None:
    write_files(
        project,
        {
            "test_long.py": """
def test_long():
    print("\\n".join(f"line {n} of many" for n in range(200_000)))
    assert 0
"""
        },
    )
    details = run_pytest(project).data("test_long.py::test_long")["details"]
    assert len(details) <= pytest_plugin.TEXT_LIMIT + 200
    head, mark, tail = details.partition("\n[... ")
    assert mark
    assert "def test_long():" in head
    assert tail.endswith("line 199999 of many")
    assert head.splitlines()[-1].endswith("of many"), "cut at the end of a line"
    assert tail.splitlines()[1].startswith("line "), "cut at the beginning of a line"


def test_the_reader_redacts(project: Path) -> None:
    secret = "ghp_" + "".join(chr(97 + n % 26) for n in range(36))
    write_files(
        project, {"test_s.py": f"def test_s():\n    token = {secret!r}\n    assert not token"}
    )
    home = project.parent / "home"
    said = run_pytest(project, journal=home / "journal")
    assert secret in said.data("test_s.py::test_s")["details"]
    with contextlib.closing(Store(home)) as store:
        done = store.runs.ingest()
        assert (done.unusable, done.problem) == (0, None)
        (outcome,) = store.runs.tests("r1")
    assert outcome.node_id == "test_s.py::test_s"
    assert outcome.details
    assert "assert not" in outcome.details
    assert secret not in f"{outcome.message}{outcome.details}"


# --- What kills it --------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_what_was_told_before_a_crash_is_kept(project: Path, end: str) -> None:
    code = f"import os, signal\ndef test_a(): pass\ndef test_b(): assert 0\ndef test_c(): {end}\n"
    write_files(project, {"test_x.py": code})
    said = run_pytest(project)
    assert said.tests == [
        ("test_x.py::test_a", "call", "passed"),
        ("test_x.py::test_b", "call", "failed"),
    ]
    assert said.ends == []


def test_the_test_of_a_crashed_worker_is_told(project: Path) -> None:
    code = "import os\ndef test_a(): pass\ndef test_b(): os._exit(3)\ndef test_c(): pass\n"
    write_files(project, {"test_x.py": code})
    said = run_pytest(project, "-n", "1")
    assert sorted(said.tests) == [
        ("test_x.py::test_a", "call", "passed"),
        ("test_x.py::test_b", "call", "failed"),
        ("test_x.py::test_c", "call", "passed"),
    ]
    assert "crashed" in said.data("test_x.py::test_b")["message"]


def test_a_killed_session_keeps_what_it_told(project: Path) -> None:
    code = """
import time
def test_a(): pass
def test_b():
    open("here", "w").close()
    time.sleep(60)
"""
    write_files(project, {"test_x.py": code})
    folder = project.parent / "journal"
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest"],
        cwd=project,
        env=plugged(clean_environment(project.parent), folder),
        stdout=subprocess.DEVNULL,
    )
    while not (project / "here").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    told, ends = read_journal(folder)
    assert [event["data"]["node_id"] for event in told] == ["test_x.py::test_a"]
    assert ends == []


def test_what_a_test_forks_neither_writes_nor_looks_like_the_writer(project: Path) -> None:
    code = """
import os, signal
def test_forks():
    child = os.fork()
    if not child:
        os.setsid()
        signal.pause()
    open("child", "w").write(str(child))
"""
    write_files(project, {"test_f.py": code})
    home = project.parent / "home"
    subprocess.run(
        [sys.executable, "-m", "pytest"],
        cwd=project,
        env=plugged(clean_environment(project.parent), home / "journal"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    child = int((project / "child").read_text())
    try:
        said = said_by(home / "journal")
        assert said.tests == [("test_f.py::test_forks", "call", "passed")]
        with contextlib.closing(Store(home)) as store:
            store.runs.ingest()
        assert list((home / "journal").glob("*.jsonl")) == [], "read to the end and removed"
    finally:
        os.kill(child, signal.SIGKILL)


# --- What it leaves alone -------------------------------------------------------------------


@pytest.mark.parametrize("args", [(), ("-v", "-rA"), ("-p", "no:cacheprovider", "-q"), ("-n", "2")])
def test_the_output_and_the_folder_are_as_without_it(project: Path, args: tuple[str, ...]) -> None:
    write_files(project, {"test_kinds.py": KINDS, "test_subs.py": SUBTESTS})
    args = (*args, "-W", "error", "-p", "no:randomly")
    if "-n" in args:
        args = (*args, "-q", "--tb=no", "-rN")
    before = plain(project, *args)
    files = sorted(path.name for path in project.rglob("*"))
    said = run_pytest(project, *args)
    assert said.tests
    assert said.done.returncode == before.returncode
    assert said.done.stderr == before.stderr
    if "-n" in args:  # dots come in any order
        assert sorted(said.done.stdout.splitlines()[0]) == sorted(before.stdout.splitlines()[0])
    else:
        assert without_times(said.done.stdout) == without_times(before.stdout)
    assert sorted(path.name for path in project.rglob("*")) == files


@pytest.mark.parametrize("missing", [events.RUN_VARIABLE, events.JOURNAL_VARIABLE])
def test_nothing_is_told_unless_a_run_is_recorded(project: Path, missing: str) -> None:
    write_files(project, {"test_a.py": "def test_a(): pass\n"})
    folder = project.parent / "journal"
    env = plugged(clean_environment(project.parent), folder)
    del env[missing]
    subprocess.run([sys.executable, "-m", "pytest"], cwd=project, env=env, check=True)
    assert list(folder.glob("*.jsonl")) == []


def test_the_installed_one_and_the_one_put_in_tell_once(project: Path) -> None:
    write_files(project, {"test_a.py": "def test_a(): pass\n"})
    both = run_pytest(project)
    assert both.tests == [("test_a.py::test_a", "call", "passed")]
    assert "plugins: repotrace-" in both.done.stdout, "RepoTrace is installed where the tests run"


def test_the_installed_one_alone(project: Path) -> None:
    write_files(project, {"test_a.py": "def test_a(): pass\n"})
    folder = project.parent / "journal"
    env = without_plugin(plugged(clean_environment(project.parent), folder))
    argv = [sys.executable, "-m", "pytest"]
    subprocess.run(argv, cwd=project, env=env, check=True, stdout=subprocess.DEVNULL)
    told, _ = read_journal(folder)
    assert [event["data"]["node_id"] for event in told] == ["test_a.py::test_a"]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("PYTHONPATH=src {python} -m pytest -p no:repotrace", False),
        ("{python} -I -m pytest -p no:repotrace", False),
        ("{python} -m pytest -p no:repotrace_outcomes -p no:repotrace", False),
        ("{python} -m pytest -p no:repotrace", True),
        ("PYTEST_ADDOPTS='-p no:cacheprovider' {python} -m pytest", True),
        ("cd sub && {python} -m pytest ..", True),
    ],
)
def test_commands_that_shake_it_off_run_as_ever(project: Path, command: str, told: bool) -> None:
    write_files(
        project, {"test_a.py": "def test_a(): pass\n", "sub/x": "", "pytest.ini": "[pytest]"}
    )
    folder = project.parent / "journal"
    done = subprocess.run(
        ["sh", "-c", command.format(python=shlex.quote(sys.executable))],
        cwd=project,
        env=plugged(clean_environment(project.parent), folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout
    assert done.returncode == 0
    found, _ = read_journal(folder)
    assert [event["data"]["node_id"] for event in found] == ["test_a.py::test_a"] * told


def test_it_is_loaded_where_plugins_are_not_looked_for(project: Path) -> None:
    write_files(project, {"test_a.py": "def test_a(): pass\n", "other.py": ""})
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "other", "PYTHONPATH": "."}
    said = run_pytest(project, env=env)
    assert said.tests == [("test_a.py::test_a", "call", "passed")]


def test_pytest_within_a_test_is_not_the_users(project: Path) -> None:
    """A test that runs pytest, in its own process or another, has one outcome: its own."""
    code = """
import os, subprocess, sys, pytest
def test_outer(tmp_path):
    file = tmp_path / "test_inner.py"
    file.write_text("def test_inner(): assert 0")
    assert pytest.main([str(file), "-q"]) == 1
    assert subprocess.run([sys.executable, "-m", "pytest", str(file)]).returncode == 1
    assert not [name for name in os.environ if name.startswith("REPOTRACE_")]
"""
    write_files(project, {"test_outer.py": code})
    said = run_pytest(project)
    assert said.tests == [("test_outer.py::test_outer", "call", "passed")]


def test_a_missing_folder_is_no_trouble(project: Path) -> None:
    write_files(project, {"test_a.py": "def test_a(): pass\n"})
    folder = project.parent / "journal"
    env = plugged(clean_environment(project.parent), folder)
    env[events.JOURNAL_VARIABLE] = str(project / "none" / "such")
    done = subprocess.run(
        [sys.executable, "-m", "pytest"], cwd=project, env=env, capture_output=True, check=True
    )
    assert done.stderr == b""
    assert not (project / "none").exists()


def test_a_full_disk_is_no_trouble_and_the_loss_is_counted(project: Path) -> None:
    """The disk is full for a while: no file may grow beyond a limit, which then is lifted."""
    code = """
import resource
def test_a(): pass
def test_full(): resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
def test_lost(): pass
def test_room():
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
def test_b(): pass
"""
    conftest = "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    write_files(project, {"test_d.py": code, "conftest.py": conftest})
    said = run_pytest(project, "-p", "no:cacheprovider")
    assert said.done.returncode == 0
    assert said.done.stderr == ""
    names = [name.partition("::")[2] for name, _, _ in said.tests]
    assert names == ["test_a", "test_room", "test_b"]
    (lost,) = (event["data"]["count"] for event in said.events if event["kind"] == "lost")
    assert lost == 2


def test_a_value_that_cannot_be_shown_costs_one_outcome(project: Path) -> None:
    code = """
class Odd:
    def __repr__(self): raise RuntimeError("no")
def test_odd(subtests):
    with subtests.test("x", odd=Odd()): pass
def test_surrogate(): assert "\\udcff" == "\\ud800"
"""
    write_files(project, {"test_odd.py": code})
    said = run_pytest(project)
    assert len(said.tests) == 3
    assert said.tests[-1] == ("test_odd.py::test_surrogate", "call", "failed")


# --- The environment of the child -----------------------------------------------------------


def test_the_environment_is_a_copy_with_what_the_child_needs(tmp_path: Path) -> None:
    env = {"PYTHONPATH": "src", "A": "b", "PYTEST_CURRENT_TEST": "x", "REPOTRACE_STEP": "old"}
    before = dict(env)
    result = with_plugin(env, journal=tmp_path / "j", run_id="r1", step_id=None, command_id="c")
    assert env == before
    assert result.pop("REPOTRACE_JOURNAL") == str(tmp_path / "j")
    assert result.pop("REPOTRACE_RUN") == "r1"
    assert result.pop("REPOTRACE_COMMAND") == "c"
    source, _, added = result.pop("PYTHONPATH").partition(os.pathsep)
    assert source == "src"
    assert result == {"A": "b"}
    (file,) = (tmp_path / "j" / "plugin").iterdir()
    assert added == str(file)
    assert file.read_bytes() == wheel()
    again = with_plugin(
        with_plugin(env, journal=tmp_path / "k", run_id="r2", step_id="s", command_id=None),
        journal=tmp_path / "j",
        run_id="r1",
        step_id=None,
        command_id="c",
    )
    assert again["PYTHONPATH"].split(os.pathsep) == ["src", str(file)]
    assert "REPOTRACE_STEP" not in again
    assert without_plugin(again)["PYTHONPATH"] == "src"
    assert "PYTHONPATH" not in without_plugin(with_plugin({}, journal=tmp_path, run_id="r", step_id=None, command_id=None))  # fmt: skip  # noqa: E501


def test_where_nothing_can_be_written_the_child_goes_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "journal", tmp_path / "a:b"):
        env = with_plugin({"A": "b"}, journal=folder, run_id="r", step_id=None, command_id=None)
        assert env == {"A": "b", "REPOTRACE_JOURNAL": str(folder), "REPOTRACE_RUN": "r"}


# --- The one module -------------------------------------------------------------------------


def test_the_words_are_those_of_the_journal() -> None:
    text = SOURCE.read_text()
    for name in ("RUN", "STEP", "COMMAND", "JOURNAL"):
        assert f'"{getattr(events, f"{name}_VARIABLE")}"' in text
    for kind in (events.Kind.TEST, events.Kind.WRITER, events.Kind.CLOSED, events.Kind.LOST):
        assert f'"{kind}"' in text
    assert f'{events.JOURNAL_SUFFIX}"' in text
    assert journal.TEXT_LIMIT == pytest_plugin.TEXT_LIMIT
    assert repr(journal.CUT.encode()) in repr(ast.literal_eval(
        text.partition("\n_CUT = ")[2].partition("\n")[0]).encode())  # fmt: skip
    assert f'"{MODULE}"' in text


def test_the_module_is_python_38_and_needs_only_the_standard_library() -> None:
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 8))
    named = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    named |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}  # noqa: E501  # fmt: skip
    assert {str(name) for name in named} <= sys.stdlib_module_names


def test_the_package_brings_nothing_along(tmp_path: Path) -> None:
    code = (
        "import sys; import repotrace.pytest_plugin\n"
        "print(sorted(name for name in sys.modules if name.startswith('repotrace')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "['repotrace', 'repotrace._version', 'repotrace.pytest_plugin']"


def test_the_wheel_is_the_same_each_time_and_named_by_its_content(tmp_path: Path) -> None:
    assert wheel() == wheel()
    with_plugin({}, journal=tmp_path, run_id="r", step_id=None, command_id=None)
    (file,) = (tmp_path / "plugin").iterdir()
    assert hashlib.sha256(file.read_bytes()).hexdigest()[:12] in file.name
    assert plugin_environment.ADDED[-1] == "PYTEST_PLUGINS"


def said_by(folder: Path) -> Said:
    return Said(subprocess.CompletedProcess([], 0, "", ""), *read_journal(folder))


def test_many_sessions_may_write_to_one_folder(project: Path) -> None:
    write_files(project, {"test_a.py": "def test_a(): pass\n"})
    folder = project.parent / "journal"
    env = plugged(clean_environment(project.parent), folder)
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
            cwd=project,
            env=env,
            stdout=subprocess.DEVNULL,
        )
        for _ in range(4)
    ]
    assert [process.wait() for process in started] == [0] * 4
    said = said_by(folder)
    assert said.tests == [("test_a.py::test_a", "call", "passed")] * 4
    assert len({event["id"] for event in said.events}) == 4
    assert json.loads(next(folder.glob("*.jsonl")).read_text().splitlines()[-1])["kind"] == "closed"
