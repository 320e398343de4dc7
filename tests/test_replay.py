"""Replay: every verdict, by changing what the command meets."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from running import BOOM, python

from repotrace.capture import Trace, build_report, capture_command, run_capture
from repotrace.errors import NoCommand, ReportNotFound
from repotrace.generator import Reproduction
from repotrace.records.bug import BugReport
from repotrace.replay import (
    Outcome,
    ReplayOptions,
    Verdict,
    accepted,
    diff,
    replay,
    replay_all,
    replay_from_store,
    replay_report,
)
from repotrace.storage import ReportStore


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReportStore:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REPOTRACE_HOME", raising=False)
    return ReportStore(tmp_path / ".repotrace" / "reports")


def captured(command: list[str], cwd: Path, timeout: float | None = None) -> BugReport:
    return build_report(run_capture(command, cwd=cwd, timeout=timeout))


def script(folder: Path, code: str) -> list[str]:
    (folder / "script.py").write_text(code)
    return [sys.executable, "script.py"]


def test_the_same_again(tmp_path: Path) -> None:
    result = replay(captured(python("print('x'); raise SystemExit(3)"), tmp_path))
    assert result.verdict == Verdict.SAME
    assert result.outcome is Outcome.MATCHED
    assert result.matched
    assert result.differences == []
    assert result.detail == "no differences"


def test_the_same_after_normalising_names_the_rule(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd()); sys.exit(1)"
    here, there = tmp_path / "here", tmp_path / "there-and-longer"
    here.mkdir()
    there.mkdir()
    result = replay(captured(python(code), here), cwd=there)
    assert result.verdict == Verdict.SAME_AFTER_NORMALISING
    assert result.matched
    assert "cwd" in result.rules
    assert "no differences" not in result.detail


def test_the_same_failure_with_other_output(tmp_path: Path) -> None:
    command = script(tmp_path, "print(input_text := 'one')\n{}['key']\n")
    report = captured(command, tmp_path)
    script(tmp_path, "print(input_text := 'two')\n{}['key']\n")
    result = replay(report)
    assert result.verdict == Verdict.SAME_FAILURE
    assert result.matched
    assert "same failure, output differs" in result.detail


def test_another_failure(tmp_path: Path) -> None:
    command = script(tmp_path, "{}['key']\n")
    report = captured(command, tmp_path)
    script(tmp_path, "raise ValueError('other')\n")
    result = replay(report)
    assert result.verdict == Verdict.DIFFERENT_FAILURE
    assert result.outcome is Outcome.DIFFERS
    assert "stderr differs" in result.differences


def test_fixed(tmp_path: Path) -> None:
    command = script(tmp_path, "raise SystemExit(7)\n")
    report = captured(command, tmp_path)
    script(tmp_path, "print('fine')\n")
    result = replay(report)
    assert result.verdict == Verdict.FIXED
    assert result.differences[0] == "exit code 7 -> 0"


def test_partly_fixed_names_the_tests(tmp_path: Path) -> None:
    body = "def test_x():\n    assert {x}\n"
    body += "".join(f"\ndef test_{name}():\n    assert 0\n" for name in "yz")
    (tmp_path / "test_it.py").write_text(body.format(x=0))
    report = captured([sys.executable, "-m", "pytest", "-q", "test_it.py"], tmp_path)
    (tmp_path / "test_it.py").write_text(body.format(x=1))
    result = replay(report)
    assert result.verdict == Verdict.PARTLY_FIXED
    assert result.fixed_tests == ["test_it.py::test_x"]
    assert len(result.still_failing) == 2
    assert result.detail.startswith("2 of 3 still fail; fixed: ")
    assert not result.matched


def test_row_49_flaky_and_never_fixed_after_one_pass(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys\n"
        "count = pathlib.Path('count')\n"
        "n = int(count.read_text()) if count.exists() else 0\n"
        "count.write_text(str(n + 1))\n"
        "sys.exit(n % 2)\n"
    )
    report = captured(script(tmp_path, code), tmp_path)
    (tmp_path / "count").write_text("0")
    result = replay(report, options=ReplayOptions(repeat=5))
    assert result.verdict == Verdict.FLAKY
    assert (result.reproduced, result.repeats) == (3, 5)
    assert "flaky 3/5" in result.detail
    assert not result.matched


def test_row_50_a_hang_that_still_hangs_is_reproduced(tmp_path: Path) -> None:
    report = captured(python("import time; time.sleep(60)"), tmp_path, timeout=0.4)
    result = replay(report)
    assert result.matched
    assert result.timeout == 0.4


def test_a_hang_that_ends_is_no_longer_reproduced(tmp_path: Path) -> None:
    command = script(tmp_path, "import time; time.sleep(60)\n")
    report = captured(command, tmp_path, timeout=0.4)
    script(tmp_path, "pass\n")
    assert replay(report).verdict == Verdict.FIXED


def test_row_51_a_bug_whose_exit_code_is_0(tmp_path: Path) -> None:
    command = script(tmp_path, "print('wrong answer')\n")
    report = captured(command, tmp_path)
    assert replay(report).verdict == Verdict.SAME
    script(tmp_path, "print('right answer')\n")
    assert not replay(report).matched


def test_row_40_a_folder_that_is_gone_cannot_run(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    report = captured(python("raise SystemExit(1)"), here)
    here.rmdir()
    result = replay(report)
    assert result.verdict == Verdict.CANNOT_RUN
    assert str(here) in result.detail
    assert result.outcome is Outcome.DIFFERS


def test_a_command_that_is_gone_cannot_run(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\nexit 5\n")
    tool.chmod(0o755)
    report = captured([str(tool)], tmp_path)
    tool.unlink()
    assert replay(report).verdict == Verdict.CANNOT_RUN


def test_a_command_that_was_never_there_is_reproduced(tmp_path: Path) -> None:
    assert replay(captured(["no-such-command-here"], tmp_path)).matched


def test_row_33_a_redacted_variable_comes_from_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "Zq7" + "kfT2mWx9Lp4Rv8"
    monkeypatch.setenv("SERVICE_TOKEN", secret)
    code = "import os, sys; sys.exit('using ' + os.environ['SERVICE_TOKEN'])"
    report = captured(python(code), tmp_path)
    assert replay(report).matched
    monkeypatch.delenv("SERVICE_TOKEN")
    result = replay(report)
    assert result.verdict == Verdict.CANNOT_RUN
    assert result.missing == ["SERVICE_TOKEN"]
    other = ReplayOptions(env={"SERVICE_TOKEN": "Yw3" + "another9Secret1Value"})
    assert replay(report, options=other).matched


def test_a_redacted_argument_comes_from_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "Zq7" + "kfT2mWx9Lp4Rv8"
    monkeypatch.setenv("SERVICE_TOKEN", secret)
    report = captured(
        [*python("import sys; print(len(sys.argv[1])); sys.exit(1)"), secret], tmp_path
    )
    assert replay(report).verdict == Verdict.SAME
    monkeypatch.delenv("SERVICE_TOKEN")
    assert replay(report).verdict == Verdict.CANNOT_RUN


def test_a_redacted_part_of_an_argument_comes_from_the_replay(tmp_path: Path) -> None:
    secret = "Xk29v" + "Q81zzQw7"
    code = "import sys; print(sys.argv[1], sys.argv[1][15:28]); sys.exit(3)"
    report = captured([*python(code), f"postgres://app:{secret}@db.example.org/x"], tmp_path)
    lacking = replay(report)
    assert lacking.verdict == Verdict.CANNOT_RUN
    (name,) = lacking.missing
    assert replay(report, options=ReplayOptions(env={name: secret})).verdict == Verdict.SAME


def test_row_35_recorded_variables_are_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.delenv("COLUMNS", raising=False)
    code = "import os, sys; print(os.environ.get('TZ'), os.environ.get('COLUMNS')); sys.exit(1)"
    report = captured(python(code), tmp_path)
    monkeypatch.setenv("TZ", "Europe/Rome")
    monkeypatch.setenv("COLUMNS", "33")
    assert replay(report).verdict == Verdict.SAME


def test_row_30_another_path_does_not_change_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "tool").write_text("#!/bin/sh\necho recorded\nexit 2\n")
    (tools / "tool").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    report = captured(["tool"], tmp_path)
    monkeypatch.setenv("PATH", os.environ["PATH"].split(os.pathsep, 1)[1])
    assert replay(report).verdict == Verdict.SAME


def test_exit_code_only_ignores_output(tmp_path: Path) -> None:
    command = script(tmp_path, "print('a'); raise SystemExit(1)\n")
    report = captured(command, tmp_path)
    script(tmp_path, "print('b'); raise SystemExit(1)\n")
    assert replay(report, match_output=False).matched
    assert not replay(report).matched


def test_exact_demands_every_byte(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd()); sys.exit(1)"
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    report = captured(python(code), here)
    assert replay(report, options=ReplayOptions(match="exact")).matched
    assert not replay(report, options=ReplayOptions(match="exact", cwd=there)).matched


def test_sources_of_every_kind(tmp_path: Path) -> None:
    trace = run_capture(python("print('x'); raise SystemExit(3)"), cwd=tmp_path)
    report = build_report(trace)
    for source in (trace, report, Reproduction.from_trace(trace), Reproduction.from_report(report)):
        assert replay(source).verdict == Verdict.SAME
    by_hand = Reproduction(
        command=python("print('x'); raise SystemExit(3)"),
        cwd=str(tmp_path),
        exit_code=3,
        stdout="x\n",
    )
    assert replay(by_hand).verdict == Verdict.SAME
    assert replay_report(report).report_id == report.id
    with pytest.raises(TypeError):
        replay("5303b4f97c12")  # type: ignore[arg-type]


def test_a_report_without_a_command_is_refused() -> None:
    with pytest.raises(NoCommand):
        replay(BugReport(id="x", title="by hand"))


def test_diff_is_ready_for_json(tmp_path: Path) -> None:
    result = replay(build_report(run_capture(python("raise SystemExit(3)"), cwd=tmp_path)))
    assert diff(result)["exit_code"] == {"expected": 3, "observed": 3}
    assert diff(result)["outcome"] == "matched"


def test_from_the_store_the_verdict_is_remembered(store: ReportStore, tmp_path: Path) -> None:
    from repotrace.storage import Store

    _, report = capture_command(python("raise SystemExit(1)"), store=store)
    assert replay_from_store(report.id, store).matched
    history = Store(tmp_path / ".repotrace", reports=store.root).history
    assert [item.verdict for item in history.verdicts(store.root, report.id, limit=5)] == ["same"]
    with pytest.raises(ReportNotFound):
        replay_from_store("nothing", store)


def test_accepting_records_what_happens_now(store: ReportStore, tmp_path: Path) -> None:
    command = script(tmp_path, "raise SystemExit(1)\n")
    _, report = capture_command(command, store=store, title="Mine")
    script(tmp_path, "raise SystemExit(2)\n")
    result = replay(report)
    store.save(accepted(report, result))
    loaded = store.load(report.id)
    assert (loaded.title, loaded.metadata["exit_code"]) == ("Mine", 2)
    assert replay(loaded).verdict == Verdict.SAME


def test_a_sweep_counts_and_keeps_its_order(store: ReportStore, tmp_path: Path) -> None:
    codes = {f"r{n}": f"raise SystemExit({n})" for n in range(1, 6)}
    for name, code in codes.items():
        capture_command(python(code), store=store, report_id=name)
    changing = script(tmp_path, "raise SystemExit(1)\n")
    capture_command(changing, store=store, report_id="changed")
    script(tmp_path, "pass\n")
    store.save(BugReport(id="empty", title="by hand"))
    store.path("broken").write_text("{")
    seen: list[str] = []
    summary = replay_all(store, jobs=3, on_result=seen.append)
    assert (summary.total, summary.matched, summary.differed, summary.failed) == (8, 5, 1, 2)
    assert [result.report_id for result in summary.results] == sorted([*codes, "changed", "empty"])
    assert [name for name, _ in summary.unreadable] == ["broken"]
    assert sorted(seen) == sorted([*codes, "changed", "empty"])
    assert summary.reproducible == 5 / 8


def test_a_report_that_differs_beside_others_is_replayed_alone(
    store: ReportStore, tmp_path: Path
) -> None:
    code = (
        "import os, sys, time\n"
        "try:\n"
        "    os.mkdir('lock')\n"
        "except FileExistsError:\n"
        "    sys.exit(9)\n"
        "time.sleep(0.3)\n"
        "os.rmdir('lock')\n"
        "sys.exit(1)\n"
    )
    (tmp_path / "locked.py").write_text(code)
    for name in ("a", "b", "c"):
        capture_command([sys.executable, "locked.py", name], store=store, report_id=name)
    summary = replay_all(store, jobs=3)
    assert summary.matched == 3


def test_an_old_report_replays(tmp_path: Path) -> None:
    """A report as 0.1.0 wrote it: events only."""
    report = BugReport(
        id="5303b4f97c12",
        title="Command failed: …",
        metadata={
            "exit_code": 7,
            "cwd": str(tmp_path),
            "environment": {},
            "events": [
                {"index": 0, "kind": "command", "message": " ".join(BOOM),
                 "timestamp": "2026-10-18T04:05:48Z",
                 "data": {"argv": [sys.executable, *BOOM[1:]]}},
                {"index": 1, "kind": "stdout", "message": "boom\n",
                 "timestamp": "2026-10-18T04:05:48Z", "data": {}},
                {"index": 2, "kind": "exit", "message": "exit code 7",
                 "timestamp": "2026-10-18T04:05:48Z", "data": {"exit_code": 7}},
            ],
        },
    )  # fmt: skip
    assert replay(report).verdict == Verdict.SAME
    assert isinstance(Trace.start(BOOM), Trace)
