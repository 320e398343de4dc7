"""From a command to its generated test and back: nothing is lost, and nothing escapes.

Any argv, output, input and ending survive; any damage to a report file is told in words.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from running import BOOM, BOOM_ID, Shell

from repotrace.capture import build_report, record_command
from repotrace.errors import RepoTraceError
from repotrace.generator import generate_test
from repotrace.records.bug import BugReport
from repotrace.records.command import CommandSpec
from repotrace.records.trace import command_run_of
from repotrace.redact import Redactor
from repotrace.render.reports import report_view
from repotrace.replay import ReplayOptions, plan, replay
from repotrace.report import format_report
from repotrace.storage import ReportStore

CHILD = """
import os, signal, sys
from pathlib import Path
os.write(1, Path("out").read_bytes())
os.write(2, Path("err").read_bytes())
if Path("in").read_bytes() != sys.stdin.buffer.read():
    os._exit(99)
code = int(Path("code").read_text())
if code < 0:
    if code != -9:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""

ENDINGS = st.one_of(st.integers(0, 98), st.integers(100, 255), st.sampled_from([-1, -2, -9, -11]))
ARGUMENTS = st.lists(
    st.binary(max_size=12).filter(lambda data: b"\0" not in data).map(os.fsdecode), max_size=4
)
BYTES = st.one_of(
    st.binary(max_size=120),
    st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from(
        [b"", b'"""', b"'''\\", b"\r\n\r", b"in 0.12s\n", b"\x1b[31m\n", b"{}%s\n" * 9]
    ),
)
KEY = b"k" * 32


def survives(
    folder: Path, argv: list[str], out: bytes, err: bytes, given_in: bytes, code: int
) -> None:
    for name, data in {"out": out, "err": err, "in": given_in}.items():
        (folder / name).write_bytes(data)
    (folder / "code").write_text(str(code))
    (folder / "child.py").write_text(CHILD)
    spec = CommandSpec(
        argv=(sys.executable, "child.py", *argv),
        cwd=str(folder),
        env=dict(os.environ),
        stdin=given_in,
    )
    redactor = Redactor(key=KEY)
    trace = record_command(spec, redactor=redactor)
    store = ReportStore(folder / "reports")
    store.save(build_report(trace, report_id="one"))
    report = store.load("one")
    run = command_run_of(report)
    if redactor.count:
        return
    assert list(run.argv[2:]) == argv
    assert (run.stdout.head, run.stderr.head) == (out, err)
    assert run.stdin == given_in
    assert run.returncode == code
    assert replay(report, options=ReplayOptions(key=KEY)).verdict == "same"
    passes(generate_test(report), folder)


def passes(source: str, folder: Path) -> None:
    """Run the generated test function right here; what it needs of pytest is an exception."""
    path = folder / "test_generated.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("test_generated", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.test_regression_one()


CASE = given(ARGUMENTS, BYTES, BYTES, BYTES, ENDINGS)
FIXTURES_ARE_FINE = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@CASE
@settings(max_examples=25, deadline=None, suppress_health_check=FIXTURES_ARE_FINE)
def test_anything_survives(
    tmp_path: Path, argv: list[str], out: bytes, err: bytes, given_in: bytes, code: int
) -> None:
    survives(tmp_path, argv, out, err, given_in, code)


@pytest.mark.slow
@CASE
@settings(max_examples=400, deadline=None, suppress_health_check=FIXTURES_ARE_FINE)
def test_anything_survives_often(
    tmp_path: Path, argv: list[str], out: bytes, err: bytes, given_in: bytes, code: int
) -> None:
    survives(tmp_path, argv, out, err, given_in, code)


# --- damaged reports ----------------------------------------------------------------------

ODD: list[Any] = [
    *(None, True, -1, 0, 10**400, 1e308, "", "x", "\ud800", "\x00", [], {}, [[[]]], {"a": {}}),
    *([None], {"base64": "!"}, {"base64": "/w=="}, "2026-13-45T99:00:00Z", ["a"] * 50, -(2**70)),
]

UNTOUCHED = ("argv", "script", "command", "resolved")
"""What says which program runs: it stays, so that no mutation starts another one."""


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON document."""
    if at:
        yield at
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if key not in UNTOUCHED:
                yield from paths(inner, (*at, key))


def mutate(text: str, chance: random.Random) -> bytes:
    """One damage of many kinds, in the text or in the structure."""
    if chance.random() < 0.3:
        data = bytearray(text.encode())
        match chance.randrange(4):
            case 0:
                del data[chance.randrange(len(data)) :]
            case 1:
                position = chance.randrange(len(data))
                data[position:position] = chance.randbytes(3)
            case 2:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            case _:
                data = bytearray(b"[" * 3000 + data)
        return bytes(data)
    document = json.loads(text)
    for _ in range(chance.randint(1, 3)):
        place = chance.choice(list(paths(document)))
        holder = document
        for key in place[:-1]:
            holder = holder[key]
        if chance.random() < 0.15:
            del holder[place[-1]]
        else:
            holder[place[-1]] = chance.choice(ODD)
    return json.dumps(document).encode("utf-8", "surrogatepass")


def runs_the_same(report: BugReport, argv: tuple[str, ...]) -> bool:
    try:
        run = command_run_of(report)
    except RepoTraceError:
        return False
    return run.argv == argv and run.script is None


def every_entry(report: BugReport, argv: tuple[str, ...]) -> list[Callable[[], object]]:
    console = Console(file=open(os.devnull, "w"), width=80)  # noqa: SIM115
    entries: list[Callable[[], object]] = [
        lambda: format_report(report),
        lambda: generate_test(report),
        lambda: generate_test(report, match_output=False),
        lambda: console.print(report_view(report, None, [], now=datetime.now(UTC))),
        lambda: plan(report, ReplayOptions(key=KEY)),
    ]
    if runs_the_same(report, argv):
        entries.append(lambda: replay(report, options=ReplayOptions(key=KEY, timeout=20)))
    return entries


def captured_text(folder: Path) -> tuple[ReportStore, str, tuple[str, ...]]:
    spec = CommandSpec(
        argv=(sys.executable, "-c", "import sys; print('a'); sys.exit('b')"),
        cwd=str(folder),
        env=dict(os.environ),
        stdin=b"input\xff",
        timeout=20,
    )
    store = ReportStore(folder / "reports")
    path = store.save(build_report(record_command(spec, redactor=Redactor(key=KEY)), report_id="m"))
    return store, path.read_text(), spec.argv


def survive_damage(folder: Path, rounds: int, seed: int) -> int:
    """Returns how many of the damaged reports could still be loaded."""
    store, text, argv = captured_text(folder)
    chance = random.Random(seed)
    loaded = 0
    for _ in range(rounds):
        damaged = mutate(text, chance)
        store.path("m").write_bytes(damaged)
        try:
            report = store.load("m")
        except RepoTraceError:
            continue
        loaded += 1
        for entry in every_entry(report, argv):
            try:
                entry()
            except RepoTraceError:
                continue
            except Exception as error:
                error.add_note(f"report: {damaged[:4000]!r}")
                raise
    return loaded


def test_damaged_reports_are_told_in_words(tmp_path: Path) -> None:
    assert survive_damage(tmp_path, 60, seed=1) > 15


@pytest.mark.slow
def test_five_hundred_damaged_reports_are_told_in_words(tmp_path: Path) -> None:
    assert survive_damage(tmp_path, 500, seed=2) > 100


def test_damaged_reports_never_give_a_traceback(tmp_path: Path) -> None:
    """The same through the real command line."""
    repotrace = Shell(tmp_path)
    store, text, _ = captured_text(repotrace.cwd)
    chance = random.Random(3)
    commands = [
        *(["show", "m"], ["show", "m", "--markdown"], ["show", "m", "--json"], ["report", "m"]),
        *(["generate", "m"], ["replay", "m", "--dry-run"], ["list", "--long"], ["list", "--json"]),
    ]
    for number in range(24):
        store.path("m").write_bytes(mutate(text, chance))
        command = commands[number % len(commands)]
        done = repotrace(command[0], "-s", store.root, *command[1:])
        assert done.returncode in (0, 1, 2), (command, done.stderr)
        assert b"Traceback" not in done.stderr


# --- other versions -----------------------------------------------------------------------


def test_what_0_1_0_reads_of_a_report_is_true(tmp_path: Path) -> None:
    """Its rules: output is the messages joined by kind, argv that of the first command event."""
    repotrace = Shell(tmp_path)
    code = "import sys; print('ä'); sys.stderr.write('e'); print('b'); sys.exit(7)"
    argv = ["python", "-c", code]
    assert repotrace("capture", "--id", "mine", *argv).returncode == 7
    path = repotrace.cwd / ".repotrace" / "reports" / "mine.json"
    metadata = json.loads(path.read_text())["metadata"]
    events = metadata["events"]
    joined = {
        kind: "".join(event["message"] for event in events if event["kind"] == kind)
        for kind in ("stdout", "stderr")
    }
    assert joined == {"stdout": "ä\nb\n", "stderr": "e"}
    assert metadata["exit_code"] == 7
    assert metadata["cwd"] == str(repotrace.cwd)
    assert next(e for e in events if e["kind"] == "command")["data"]["argv"] == argv
    assert "command" not in metadata


def test_a_report_of_0_1_0_goes_all_the_way(tmp_path: Path) -> None:
    repotrace = Shell(tmp_path)
    old = Path(__file__).parent / "data" / "reports" / "old-0.1.0.json"
    text = old.read_text().replace("/work/project", str(repotrace.cwd))
    store = repotrace.cwd / ".repotrace" / "reports"
    store.mkdir(parents=True)
    (store / f"{BOOM_ID}.json").write_text(text)
    assert repotrace("list", "-q").stdout.decode() == f"{BOOM_ID}\n"
    assert repotrace("show", BOOM_ID).returncode == 0
    assert repotrace("report", BOOM_ID).returncode == 0
    done = repotrace("replay", BOOM_ID)
    assert done.stdout.decode() == "5303b4f97c12 `matched` — no differences\n"
    assert repotrace("generate", BOOM_ID, "-o", "test_old.py").returncode == 0
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_old.py"], cwd=repotrace.cwd, check=False
    )
    assert ran.returncode == 0
    assert repotrace("capture", *BOOM).stderr.endswith(b"seen 2 times\n")
