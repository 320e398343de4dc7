"""The library half of capture: traces, reports, and what the store keeps of them."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from running import BOOM, BOOM_ID, python

from repotrace.capture import (
    Trace,
    build_report,
    capture_command,
    collect_environment,
    run_capture,
)
from repotrace.errors import NoCommand, RepoTraceError
from repotrace.records.command import Termination
from repotrace.records.trace import command_run_of
from repotrace.storage import ReportStore


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReportStore:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REPOTRACE_HOME", raising=False)
    return ReportStore(tmp_path / ".repotrace" / "reports")


def test_events_hold_the_command_its_output_and_its_end() -> None:
    trace = run_capture(python("print('out'); import sys; sys.stderr.write('err'); sys.exit(4)"))
    assert trace.exit_code == 4
    assert trace.of_kind("command")[0].data["argv"] == trace.command
    assert "".join(event.message for event in trace.of_kind("stdout")) == "out\n"
    assert "".join(event.message for event in trace.of_kind("stderr")) == "err"
    assert trace.events[-1].kind == "exit"
    assert trace.events[-1].message == "exit code 4"
    assert [event.index for event in trace.events] == list(range(len(trace.events)))


def test_start_and_add_build_a_trace_by_hand() -> None:
    trace = Trace.start(["make", "all"], "/somewhere").add("stdout", "done\n")
    assert [(event.index, event.kind) for event in trace.events] == [(0, "command"), (1, "stdout")]
    assert trace.events[0].message == "make all"


def test_the_default_id_is_the_one_of_the_specification() -> None:
    report = build_report(Trace.start(BOOM))
    assert report.id == BOOM_ID


def test_titles_and_default_tag() -> None:
    failed = build_report(run_capture(python("raise SystemExit(1)")))
    passed = build_report(run_capture(python("pass")))
    assert failed.title.startswith("Command failed: ")
    assert passed.title.startswith("Command captured: ")
    assert failed.tags == ["capture"]
    assert build_report(run_capture(python("pass")), tags=["a"]).tags == ["a"]


def test_an_empty_command_is_refused() -> None:
    with pytest.raises(NoCommand):
        run_capture([])


def test_row_4_a_missing_cwd_is_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(RepoTraceError, match="gone"):
        run_capture(python("pass"), cwd=tmp_path / "gone")


def test_row_1_and_2_what_cannot_be_started_is_stored(tmp_path: Path) -> None:
    missing = run_capture(["no-such-command-here"]).run
    assert missing is not None
    assert (missing.termination, missing.shell_code) == (Termination.SPAWN_ERROR, 127)
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    refused = run_capture([str(script)]).run
    assert refused is not None
    assert (refused.termination, refused.shell_code) == (Termination.SPAWN_ERROR, 126)


def test_row_5_a_signal_is_stored_as_such() -> None:
    trace = run_capture(python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"))
    assert trace.run is not None
    assert trace.run.signal == signal.SIGSEGV
    assert trace.exit_code == -signal.SIGSEGV
    assert trace.run.shell_code == 139


def test_row_13_and_14_bytes_survive_the_report(store: ReportStore) -> None:
    code = r"import sys; sys.stdout.buffer.write(b'a\r\nb\rc\x00\xff\xfe')"
    _, report = capture_command(python(code), store=store)
    run = command_run_of(store.load(report.id))
    assert run.stdout.head == b"a\r\nb\rc\x00\xff\xfe"


def test_row_15_long_output_is_cut_in_the_middle(store: ReportStore) -> None:
    code = "import sys; sys.stdout.write('A' * 3_000_000 + 'Z' * 3_000_000)"
    _, report = capture_command(python(code), store=store)
    out = command_run_of(store.load(report.id)).stdout
    assert out.length == 6_000_000
    assert out.omitted == 6_000_000 - len(out.head) - len(out.tail)
    assert set(out.head) == {ord("A")}
    assert set(out.tail) == {ord("Z")}
    assert len(out.sha256) == 64


def test_row_17_a_timeout_keeps_what_came_before(store: ReportStore) -> None:
    code = "import time; print('early', flush=True); time.sleep(60)"
    _, report = capture_command(python(code), store=store, timeout=0.7)
    run = command_run_of(store.load(report.id))
    assert run.termination is Termination.TIMEOUT
    assert run.shell_code == 124
    assert run.stdout.head == b"early\n"
    assert report.metadata["exit_code"] is None


def test_row_23_the_order_of_the_streams_is_kept_approximately(store: ReportStore) -> None:
    code = (
        "import sys, time\n"
        "for n in range(3):\n"
        "    print('out', n, flush=True); time.sleep(0.1)\n"
        "    print('err', n, file=sys.stderr, flush=True); time.sleep(0.1)\n"
    )
    _, report = capture_command(python(code), store=store)
    loaded = store.load(report.id)
    kinds = [event["kind"] for event in loaded.metadata["events"]]
    assert kinds == ["command", *["stdout", "stderr"] * 3, "exit"]
    assert command_run_of(loaded) == command_run_of(report)
    assert len(command_run_of(loaded).chunks) == 6


def test_row_12_colliding_ids_are_told_apart(store: ReportStore) -> None:
    _, first = capture_command(["sh", "-c", "exit 3"], store=store)
    _, second = capture_command(["sh", "-c exit 3"], store=store)
    assert second.id == f"{first.id}-2"
    assert command_run_of(store.load(first.id)).argv == ("sh", "-c", "exit 3")
    assert command_run_of(store.load(second.id)).argv == ("sh", "-c exit 3")


def test_row_11_the_same_failure_again_leaves_the_file_alone(store: ReportStore) -> None:
    command = python("raise KeyError('x')")
    _, first = capture_command(command, store=store)
    before = store.path(first.id).read_bytes()
    _, again = capture_command(command, store=store)
    assert again.id == first.id
    assert store.path(first.id).read_bytes() == before
    assert store.list_ids() == [first.id]


def test_another_failure_under_the_same_id_is_kept_beside_it(
    store: ReportStore, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    command = python(
        f"import os; raise KeyError if os.path.exists({str(flag)!r}) else ValueError('v')"
    )
    _, first = capture_command(command, store=store)
    flag.touch()
    _, second = capture_command(command, store=store)
    assert store.list_ids() == sorted([first.id, f"{first.id}-2"])
    assert second.id == f"{first.id}-2"


def test_row_36_an_unset_hash_seed_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    trace = run_capture(python("pass"))
    assert trace.run is not None
    assert "PYTHONHASHSEED" in trace.run.env_unset


def test_row_35_what_shapes_output_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    monkeypatch.setenv("COLUMNS", "77")
    monkeypatch.setenv("SHELL_HISTORY_OF_MINE", "private")
    trace = run_capture(python("pass"))
    assert trace.run is not None
    assert trace.run.env["TZ"] == "Pacific/Auckland"
    assert trace.run.env["COLUMNS"] == "77"
    assert "SHELL_HISTORY_OF_MINE" not in trace.run.env


def test_row_32_secrets_reach_no_report(
    store: ReportStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "Zq7" + "kfT2mWx9Lp4Rv8"
    token = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    monkeypatch.setenv("DEPLOY_TOKEN", secret)
    code = f"import os, sys; print(os.environ['DEPLOY_TOKEN']); sys.exit('{token}')"
    _, report = capture_command(python(code), store=store, title=f"with {secret}"[:4])
    text = store.path(report.id).read_text()
    assert secret not in text
    assert token not in text
    run = command_run_of(report)
    assert "DEPLOY_TOKEN" in run.env_redacted
    assert "[REDACTED:env-DEPLOY_TOKEN:" in run.stdout.text


def test_row_32_an_option_tells_that_its_value_is_a_secret() -> None:
    secret = "Zx9Kq2" + "LmP0vRtt4"
    command = python("import sys; sys.exit(3)")
    trace = run_capture([*command, "--password", secret, "--name", "anna-and-the-others"])
    assert trace.run is not None
    assert secret not in str(trace.model_dump())
    assert trace.run.argv[:4] == (*command, "--password")
    assert trace.run.argv[-2:] == ("--name", "anna-and-the-others")


def test_row_32_a_secret_of_the_arguments_is_one_in_the_output_too() -> None:
    secret = "Xk29v" + "Q81zzQw7"
    code = "import sys; print(sys.argv[1][15:28]); sys.exit(3)"
    trace = run_capture([*python(code), f"postgres://app:{secret}@db.example.org/x"])
    assert trace.run is not None
    assert secret not in str(trace.model_dump())
    assert trace.run.stdout.text.startswith("[REDACTED:url-password:")


def test_row_6_exit_codes_are_what_the_system_reports() -> None:
    assert run_capture(["sh", "-c", "exit 300"]).exit_code == 44
    assert run_capture(python("import sys; sys.exit(-1)")).exit_code == 255


def test_row_30_argv0_and_what_it_resolved_to() -> None:
    trace = run_capture(["sh", "-c", "exit 1"])
    assert trace.run is not None
    assert trace.run.argv[0] == "sh"
    assert trace.run.resolved is not None
    assert os.access(trace.run.resolved, os.X_OK)


def test_version_and_executable_are_of_one_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = tmp_path / "python"
    shim.write_text("#!/bin/sh\n")
    shim.chmod(0o755)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = collect_environment(tmp_path)
    assert facts["executable"] == sys.executable
    assert facts["python_version"] == ".".join(map(str, sys.version_info[:3]))


def test_collect_environment_tells_the_host(tmp_path: Path) -> None:
    facts = collect_environment(tmp_path)
    assert facts["cwd"] == str(tmp_path)
    for name in ("python_version", "executable", "platform", "machine"):
        assert facts[name]
