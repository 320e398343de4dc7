"""Reports and sweeps as Markdown."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from reporting import BOOM, cannot_run, command_run, report_of, result_of

from repotrace.errors import ReportExists, RepoTraceError
from repotrace.facts import facts_of, failure
from repotrace.records.bug import BugReport
from repotrace.records.command import (
    Output,
    RepositoryState,
    Signature,
    Termination,
)
from repotrace.records.replay import Outcome, ReplayResult, ReplaySummary
from repotrace.report import (
    ReportSection,
    build_summary,
    escape_cell,
    format_datetime,
    format_exit_code,
    format_replays,
    format_report,
    outcome_label,
    render_result_line,
    truncate,
    write_replays,
    write_report,
)

PYTEST = ("python", "-m", "pytest", "-q")
TWO_FAIL = """FF.                                    [100%]
=========================== short test summary info ============================
FAILED t.py::test_a - assert 1 == 2
FAILED t.py::test_b - assert 3 == 4
2 failed, 1 passed in 0.13s
"""
ONE_FAILS = """.F.                                    [100%]
=========================== short test summary info ============================
FAILED t.py::test_b - assert 3 == 4
1 failed, 2 passed in 0.11s
"""


def headings(text: str) -> list[str]:
    """The headings of a document as a CommonMark parser sees them."""
    tokens = MarkdownIt("commonmark").parse(text)
    return [
        f"{tokens[i].markup} {tokens[i + 1].content}"
        for i, token in enumerate(tokens)
        if token.type == "heading_open"
    ]


def stripped(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_a_capture_report_as_specified() -> None:
    report = report_of(command_run())
    text = format_report(report)
    assert headings(text) == [
        "# Capture report: Command failed: python -c import sys; print('boom'); sys.exit(7)",
        "## Summary",
        "## Metadata",
        "## Events",
    ]
    assert stripped(text)[:8] == [
        "# Capture report: Command failed: python -c import sys; print('boom'); sys.exit(7)",
        "",
        "## Summary",
        "**ID:** `5303b4f97c12`",
        "**Status:** open",
        "**Severity:** —",
        "**Tags:** capture",
        "**Created:** 2026-10-18 04:05:48 UTC",
    ]
    assert stripped(text)[-4:] == [
        "## Events",
        "- 0. `command`: python -c import sys; print('boom'); sys.exit(7)",
        "- 1. `stdout`: boom",
        "- 2. `exit`: exit code 7",
    ]
    assert text.endswith("exit code 7\n")


def test_a_replay_report_as_specified() -> None:
    run = command_run()
    text = format_report(report_of(run), result=result_of(run, run))
    assert headings(text) == [
        "# Replay report — reproduced",
        "## Summary",
        "## Replay outcome",
        "## Metadata",
        "## Events",
    ]
    lines = stripped(text)
    start = lines.index("## Replay outcome")
    assert lines[start : lines.index("## Metadata")] == [
        "## Replay outcome",
        "**Outcome:** `matched` (reproduced)",
        "**Exit code:** 7 (recorded 7)",
        "**Working directory:** `/tmp/demo`",
        "**Command:** `python -c import sys; print('boom'); sys.exit(7)`",
        "",
        "Differences: none",
        "",
    ]


def test_the_first_screen_says_what_happened() -> None:
    first = "\n".join(stripped(format_report(report_of(command_run(stderr="Oops\n"))))[:25])
    assert "**Ended:** exit code 7 after 0.03 s" in first
    assert "```sh\npython -c \"import sys; print('boom'); sys.exit(7)\"\n```" in first
    assert "stderr:\n\n```text\nOops\n```" in first


def test_summary_lines_stay_apart_when_rendered() -> None:
    rendered = MarkdownIt("commonmark").render(format_report(report_of(command_run())))
    assert "<code>5303b4f97c12</code><br />" in rendered
    assert "<strong>Status:</strong> open<br />" in rendered


def test_metadata_by_value() -> None:
    run = command_run(
        cpu_time=0.02,
        max_rss=12_500_000,
        resolved="/usr/bin/python",
        repository=RepositoryState(commit="1234567890abcdef" * 2, branch="main", dirty=True),
        cwd_in_repository="sub",
        timeout=5,
        pipe_held_open=True,
        leftovers=(12, 13),
        stderr=Output(head=b"a\n", tail=b"z\n", omitted=2_000_000, length=2_000_004),
        argv=("curl", "[REDACTED:github-token:01234567]"),
        env_redacted=("API_KEY",),
    )
    report = report_of(run)
    report.metadata.update(flags=["a", "b"], nested={"x": {"y": 1}, "z": None}, count=0, empty=[])
    text = format_report(report, include_events=False)
    body = text.partition("## Metadata\n")[2]
    assert body.splitlines() == [
        "- **cwd:** /tmp/demo",
        "- **exit_code:** 7",
        "- **duration:** 0.03 s; CPU 0.02 s; at most 12.5 MB of memory",
        "- **program:** /usr/bin/python",
        "- **repository:** commit 1234567890ab on main in sub, with uncommitted changes",
        "- **time limit:** 5 s",
        "- **stderr cut:** 2.0 MB in the middle of 2.0 MB not kept",
        "- **redacted:** github-token, env-API_KEY",
        "- **left behind:** 2 processes; a process that held the output open",
        "- **count:** 0",
        "- **flags:** a, b",
        "- **nested:**",
        "  - **x:**",
        "    - **y:** 1",
        "- **events:** 6",
        "- **environment:**",
        "  - **python_version:** 3.12.1",
        "  - **platform:** Linux-6.1-x86_64",
    ]


def test_long_metadata_is_folded_away() -> None:
    report = report_of(command_run())
    report.metadata["environment"]["packages"] = [f"package-{n}" for n in range(50)]
    report.metadata["environment"]["variables"] = {"LANG": "C", "X": "</details>"}
    text = format_report(report, include_events=False)
    assert "  <summary>packages: 50 entries</summary>" in text
    assert "\n    package-49\n" in text
    assert "\n    X=</details>\n" in text
    assert MarkdownIt("commonmark").render(text).count("</details>") == 2


def test_sections_can_be_left_out() -> None:
    report = report_of(command_run())
    assert headings(format_report(report, include_metadata=False, include_events=False))[1:] == [
        "## Summary"
    ]
    assert headings(format_report(report, include_metadata=False))[1:] == [
        "## Summary", "## Events"
    ]  # fmt: skip


def test_what_people_wrote_is_shown_and_does_not_act() -> None:
    report = report_of(
        command_run(),
        title="Fix @alice's #12",
        description="See #12.\n\n## Events\n<script>",
        severity="high",
        reporter="@bob",
        assignee="carol",
        tags=["a|b", "#3"],
        updated_at=datetime(2026, 10, 19, tzinfo=UTC),
    )
    text = format_report(report, include_metadata=False)
    assert headings(text) == ["# Capture report: `Fix @alice's #12`", "## Summary", "## Events"]
    assert "**Severity:** high" in text
    assert "**Reporter:** `@bob`" in text
    assert "**Assignee:** carol" in text
    assert "**Tags:** a|b, `#3`" in text
    assert "**Updated:** 2026-10-19 00:00:00 UTC" in text
    assert "\nSee `#12.`\n\n`##` Events  \n`<script>`\n" in text


def test_output_that_tries_to_break_out() -> None:
    evil = "```\n</details>\n## Events\n# Replay report — reproduced\n<script>alert(1)</script>\n"
    run = command_run(stdout=evil * 20, stderr="\x1b[31mred\x1b[0m 1%\r2%\n\x07| `x` |\n")
    text = format_report(report_of(run), result=result_of(run, command_run(stdout=evil * 9)))
    assert [heading.partition(" ")[2] for heading in headings(text)][1:] == [
        "Summary", "Replay outcome", "Metadata", "Events"
    ]  # fmt: skip
    rendered = MarkdownIt("commonmark").render(text)
    assert "<script>" not in rendered
    assert rendered.count("<details>") == rendered.count("</details>")
    assert "\x1b" not in text
    assert "2%" in text
    assert "1%" not in text
    assert "␇| `x` |" in text


def test_events_of_one_stream_that_follow_each_other_are_one() -> None:
    kinds = [("command", "x"), ("stdout", "bo"), ("stdout", "om\n"), ("stderr", "a\nb\n"),
             ("stdout", "end\n"), ("exit", "exit code 1")]  # fmt: skip
    events = [{"index": i, "kind": k, "message": m} for i, (k, m) in enumerate(kinds)]
    report = BugReport(id="a", title="t", metadata={"events": events})
    body = format_report(report, include_metadata=False).partition("## Events\n")[2]
    assert body.splitlines() == [
        "- 0. `command`: x",
        "- 1. `stdout`: boom",
        "- 3. `stderr`:",
        "",
        "     ```text",
        "     a",
        "     b",
        "     ```",
        "",
        "- 4. `stdout`: end",
        "- 5. `exit`: exit code 1",
    ]


def test_streams_that_alternate_a_lot_are_shown_whole() -> None:
    events = [
        {"index": n, "kind": ("stdout", "stderr")[n % 2], "message": f"{n}\n"} for n in range(100)
    ]
    report = BugReport(id="a", title="t", metadata={"events": events})
    body = format_report(report, include_metadata=False).partition("## Events\n")[2]
    assert [line for line in body.splitlines() if line.startswith("-")] == [
        "- 0. `stdout`:", "- 1. `stderr`:"
    ]  # fmt: skip
    assert "<summary>stdout: 50 lines</summary>" in body


@pytest.mark.parametrize(
    ("fields", "ended"),
    [
        ({"termination": Termination.TIMEOUT, "exit_code": None, "timeout": 5.0},
         "timed out after 5 s"),
        ({"termination": Termination.SIGNALED, "exit_code": None, "signal": 11},
         "killed by SIGSEGV (signal 11) after 0.03 s"),
        ({"termination": Termination.SPAWN_ERROR, "exit_code": None, "error": "command not found"},
         "not started: command not found"),
        ({"termination": Termination.INTERRUPTED, "exit_code": None}, "interrupted after 0.03 s"),
        ({"exit_code": 0}, "exit code 0 after 0.03 s"),
    ],
)  # fmt: skip
def test_every_way_of_ending(fields: dict[str, Any], ended: str) -> None:
    assert f"**Ended:** {ended}\n" in format_report(report_of(command_run(**fields)))


def test_a_silent_command() -> None:
    assert "It printed nothing." in format_report(report_of(command_run(stdout="")))


def test_the_failure_is_named() -> None:
    signature = Signature(
        kind="python", exception="ValueError", message="too big", frame="app.py::load"
    )
    text = format_report(report_of(command_run(signature=signature)))
    assert "**Failure:** ValueError: too big in app.py::load\n" in text
    assert failure(Signature(kind="last-line", message="x")) == ""
    many = Signature(kind="pytest", failing_tests=tuple(f"t{n}" for n in range(7)))
    assert failure(many) == "failing: t0, t1, t2, t3, t4 and 2 more"


def test_the_excerpt_is_of_the_stream_that_tells_of_the_tests() -> None:
    signature = Signature(kind="pytest", failing_tests=("t.py::test_a",))
    run = command_run(stdout=TWO_FAIL, stderr="a warning\n", signature=signature)
    text = format_report(report_of(run), include_events=False)
    assert "FAILED t.py::test_a" in text
    assert "a warning" not in text


def test_stdin_terminal_and_variables_are_facts() -> None:
    run = command_run(stdin=b"abc", stdin_kind="recorded", pty=True, env_added=("FORCE_COLOR",))
    assert facts_of(run) == [
        ("duration", "0.03 s"),
        ("standard input", "3 bytes, recorded"),
        ("terminal", "yes"),
        ("set by RepoTrace", "FORCE_COLOR"),
    ]


def test_a_partly_fixed_replay() -> None:
    before = command_run(argv=PYTEST, stdout=TWO_FAIL, exit_code=1)
    after = command_run(argv=PYTEST, stdout=ONE_FAILS, exit_code=1)
    result = result_of(before, after)
    assert result.verdict == "partly-fixed"
    text = format_report(report_of(before), result=result, include_events=False)
    assert text.startswith("# Replay report — no longer reproduces (partly fixed)\n")
    assert "**Verdict:** 1 of 2 still fail; fixed: test_a" in text
    assert "- fixed: `t.py::test_a`\n- fails as before: `t.py::test_b`\n" in text
    assert "```diff\n@@ stdout: expected (-) and observed (+) @@\n" in text
    assert "\n-FAILED t.py::test_a - assert 1 == 2\n" in text
    assert "\n+1 failed, 2 passed in <duration>\n" in text


def test_a_fixed_replay() -> None:
    run = command_run()
    result = result_of(run, command_run(exit_code=0, stdout="fine\n"))
    text = format_report(report_of(run), result=result)
    assert text.startswith("# Replay report — no longer reproduces\n")
    assert "**Recorded:** exit code 7 after 0.03 s\n" in text
    assert "**Outcome:** `differs` (no longer reproduces)" in text
    assert "**Exit code:** 0 (success) (recorded 7)" in text
    assert "Differences: exit code 7 -> 0, stdout differs\n" in text
    assert "\n-boom\n+fine\n" in text


def test_a_replay_that_ended_otherwise() -> None:
    run = command_run()
    late = command_run(termination=Termination.TIMEOUT, exit_code=None, timeout=2.0)
    text = format_report(report_of(run), result=result_of(run, late))
    assert "**Ended:** timed out after 2 s (recorded: exit code 7)" in text


def test_a_replay_that_could_not_be_run_is_no_verdict_on_the_failure() -> None:
    text = format_report(report_of(command_run()), result=cannot_run())
    assert text.startswith("# Replay report — could not be run\n")
    assert "**Outcome:** `cannot-run` (could not be run)" in text
    assert "no longer reproduces" not in text
    assert "OPENAI_API_KEY" in text


def test_a_flaky_replay() -> None:
    run = command_run()
    result = result_of(
        run, command_run(exit_code=0), verdict="flaky", detail="flaky 3/10", reproduced=3,
        repeats=10,
    )  # fmt: skip
    text = format_report(report_of(run), result=result)
    assert text.startswith("# Replay report — flaky, reproduced 3 of 10 times\n")
    assert "**Runs:** reproduced 3 of 10 times" in text


def test_a_result_of_plain_values() -> None:
    """As a caller of 0.1.0 makes one."""
    report = BugReport(id="abc", title="Broken", metadata={"command": ["ls", "x"], "exit_code": 2})
    result = ReplayResult(report_id="abc", outcome=Outcome.DIFFERS, exit_code=0,
                          expected_exit_code=2, differences=["exit code 2 -> 0"])  # fmt: skip
    text = format_report(report, result=result)
    assert "# Replay report — no longer reproduces" in text
    assert "**Exit code:** 0 (success) (recorded 2)" in text
    assert "**Working directory:** —" in text
    assert "**Command:** `ls x`" in text
    assert "Differences: exit code 2 -> 0" in text


def test_a_report_of_0_1_0() -> None:
    report = BugReport(
        id="5303b4f97c12",
        title="Command failed: python",
        metadata={
            "exit_code": 7,
            "cwd": "/tmp/demo",
            "events": [
                {
                    "index": 0,
                    "kind": "command",
                    "message": "python x",
                    "data": {"argv": list(BOOM)},
                },
                {"index": 1, "kind": "stdout", "message": "boom\n"},
                {"index": 2, "kind": "exit", "message": "exit code 7"},
            ],
            "environment": {"python_version": "3.12.1", "extra": ["a", "b"]},
        },
    )
    text = format_report(report)
    assert "**Ended:** exit code 7\n" in text
    assert "- **cwd:** /tmp/demo\n- **exit_code:** 7\n- **events:** 3\n" in text
    assert "  - **extra:** a, b\n" in text
    assert "- 1. `stdout`: boom\n" in text


def test_a_report_without_anything() -> None:
    text = format_report(BugReport(id="a", title=""))
    assert "_No metadata._" in text
    assert "_No events recorded._" in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["kind", "message", "index", "data", "argv", "stdout", "x|`_"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            ["events", "environment", "command_run", "cwd", "exit_code", "command", "note"]
        ),
        JSON,
    ),
    st.text(max_size=20),
)
def test_any_metadata_can_be_rendered(metadata: dict[str, Any], title: str) -> None:
    report = BugReport(id="a", title=title, description=title, metadata=metadata)
    text = format_report(report)
    text.encode("utf-8")
    assert [heading[:11] for heading in headings(text)[1:]] == [
        "## Summary", "## Metadata", "## Events"
    ]  # fmt: skip


def test_the_result_line_as_specified() -> None:
    run = command_run()
    assert render_result_line(result_of(run, run)) == "5303b4f97c12 `matched` — no differences"
    fixed = result_of(run, command_run(exit_code=0))
    assert render_result_line(fixed) == "5303b4f97c12 `differs` — fixed: exit code 7 -> 0"


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (cannot_run(), "0123456789ab `cannot-run` — needs OPENAI_API_KEY"),
        (ReplayResult(report_id="", outcome=Outcome.MATCHED), "(no id) `matched` — no differences"),
        (ReplayResult(report_id="a", outcome=Outcome.DIFFERS, differences=["x", "y"]),
         "a `differs` — x, y"),
        (ReplayResult(report_id="a", outcome=Outcome.MATCHED, verdict="same-failure"),
         "a `matched` — same failure"),
        (ReplayResult(report_id="a", outcome=Outcome.DIFFERS, detail="\x1b[31m[red]x\n[/red]"),
         "a `differs` — [red]x [/red]"),
    ],
)  # fmt: skip
def test_result_lines(result: ReplayResult, line: str) -> None:
    assert render_result_line(result) == line


def test_a_sweep_as_specified() -> None:
    run = command_run()
    text = format_replays(ReplaySummary.of([result_of(run, run)]))
    assert stripped(text) == [
        "# Replay summary",
        "",
        "**Reports replayed:** 1",
        "**Reproduced:** 1",
        "**No longer reproduce:** 0",
        "**Failed to run:** 0",
        "**Reproducibility:** 100%",
        "",
        "| Report | Outcome | Exit code | Differences |",
        "| --- | --- | --- | --- |",
        "| `5303b4f97c12` | `matched` | 7 | none |",
    ]
    rendered = MarkdownIt("commonmark").enable("table").render(text)
    assert "<strong>Reproduced:</strong> 1<br />" in rendered
    assert "<td><code>5303b4f97c12</code></td>" in rendered


def test_a_sweep_has_a_row_for_everything() -> None:
    run = command_run()
    killed = command_run(termination=Termination.SIGNALED, exit_code=None, signal=11)
    summary = ReplaySummary.of(
        [result_of(run, command_run(exit_code=0)), cannot_run(), result_of(killed, killed)],
        [("bro|ken", "not valid JSON: `{|`")],
    )
    assert (summary.total, summary.matched, summary.differed, summary.failed) == (4, 1, 1, 2)
    lines = format_replays(summary).splitlines()
    assert lines[-4:] == [
        "| `5303b4f97c12` | `differs` | 0 (success) | fixed: exit code 7 -> 0 |",
        "| `0123456789ab` | `cannot-run` | — | needs OPENAI_API_KEY |",
        "| `5303b4f97c12` | `matched` | -11 (SIGSEGV) | none |",
        "| bro\\|ken | `unreadable` | — |"
        " <code>not valid JSON&#58; &#96;&#123;&#124;&#96;</code> |",
    ]
    short = format_replays(summary, max_rows=1).splitlines()
    assert short[-2:] == [lines[-4], "| … | … | … | 3 more not shown |"]
    assert "not shown" not in format_replays(summary, max_rows=4)


@pytest.mark.parametrize(
    ("matched", "total", "shown"),
    [(0, 0, "0%"), (1, 1, "100%"), (2, 3, "67%"), (999, 1000, "99.9%"), (1, 1000, "0.1%"),
     (9999, 10000, "99.9%")],
)  # fmt: skip
def test_a_share_is_never_rounded_to_all_or_nothing(matched: int, total: int, shown: str) -> None:
    summary = build_summary(total=total, matched=matched, differed=total - matched)
    assert f"**Reproducibility:** {shown}" in format_replays(summary)


def test_writing(tmp_path: Path) -> None:
    report = report_of(command_run())
    path = write_report(report, tmp_path / "new" / "report.md")
    assert path == tmp_path / "new" / "report.md"
    assert path.read_text(encoding="utf-8") == format_report(report)
    with pytest.raises(ReportExists, match=r"report\.md"):
        write_report(report, path)
    with pytest.raises(FileExistsError):
        write_replays(ReplaySummary(), str(path))
    assert path.read_text(encoding="utf-8") == format_report(report)
    assert write_report(report, path, overwrite=True, include_events=False) == path
    assert path.read_text(encoding="utf-8") == format_report(report, include_events=False)
    assert write_replays(ReplaySummary(), tmp_path / "sweep.md").read_text(
        encoding="utf-8"
    ) == format_replays(ReplaySummary())


def test_writing_where_one_cannot(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RepoTraceError, match="Cannot write"):
        write_replays(ReplaySummary(), tmp_path / "file" / "sweep.md")
    with pytest.raises(RepoTraceError, match="Cannot write"):
        write_replays(ReplaySummary(), tmp_path, overwrite=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_writing_where_one_may_not(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(RepoTraceError, match="Permission denied"):
        write_replays(ReplaySummary(), tmp_path / "sweep.md")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "—"),
        ("2026-10-18T04:05:48Z", "2026-10-18 04:05:48 UTC"),
        ("soon", "soon"),
        (datetime(2026, 1, 2, 3, 4, 5), "2026-01-02 03:04:05 UTC"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=5))),
         "2026-01-01 22:04:05 UTC"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))), "0001-01-01T00:00:00+05:00"),
    ],
)  # fmt: skip
def test_times(value: datetime | str | None, shown: str) -> None:
    assert format_datetime(value) == shown


def test_small_promises() -> None:
    assert [format_exit_code(code) for code in (None, 0, 7, -11, -99)] == [
        "—", "0 (success)", "7", "-11 (SIGSEGV)", "-99 (signal 99)"
    ]  # fmt: skip
    assert outcome_label(Outcome.MATCHED) == "reproduced"
    assert outcome_label(Outcome.DIFFERS) == "no longer reproduces"
    assert escape_cell("a|b") == "a\\|b"
    assert truncate("abc", 2) == "a…"
    assert ReportSection(title="T", lines=["a", ""]).render() == ["## T", "a", ""]
    assert build_summary(3, 1, 1, 1).reproducible == pytest.approx(1 / 3)
    assert ReplaySummary().reproducible == 0.0
