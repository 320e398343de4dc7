"""Records on the terminal: what is printed, line by line."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from reporting import STARTED, cannot_run, command_run, report_of, result_of
from rich.console import Console, RenderableType

from repotrace.readable import age
from repotrace.records.bug import BugReport
from repotrace.records.command import Termination
from repotrace.records.replay import ReplaySummary
from repotrace.render.replays import differences_view, replay_table, result_line, sweep_line
from repotrace.render.reports import report_list_table, report_view
from repotrace.storage import Occurrences, RecordedVerdict

RUN = command_run()
NOW = STARTED + timedelta(hours=3)


def lines_of(renderable: RenderableType, width: int = 200, color: bool = False) -> list[str]:
    """What a console of `width` columns shows."""
    file = io.StringIO()
    console = Console(
        file=file, width=width, height=50, force_terminal=color, markup=False, highlight=False,
        emoji=False, color_system="standard" if color else None,
    )  # fmt: skip
    console.print(renderable)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_a_report_as_specified() -> None:
    shown = lines_of(report_view(report_of(RUN), None, [], now=NOW))
    assert shown[0].strip() == "Report 5303b4f97c12"
    rows = [[cell.strip() for cell in line.strip("│┃").split("│")] for line in shown if "│" in line]
    assert rows == [
        ["id", "5303b4f97c12"],
        ["title", "Command failed: python -c import sys; print('boom'); sys.exit(7)"],
        ["status", "open"],
        ["severity", "—"],
        ["tags", "capture"],
        ["created_at", "2026-10-18 04:05:48.298051+00:00"],
    ]
    start = shown.index("metadata")
    assert shown[start - 1 :] == [
        "",
        "metadata",
        "  cwd: '/tmp/demo'",
        "  exit_code: 7",
        "  events: [...] (3)",
        "  python: 3.12.1",
        "  platform: Linux-6.1-x86_64",
        "  command: python -c \"import sys; print('boom'); sys.exit(7)\"",
        "  duration: 0.03 s",
        "  stdout: 1 line, the last: boom",
    ]


def test_a_report_with_all_its_fields_and_its_history() -> None:
    report = report_of(
        RUN, severity="high", reporter="ann", assignee="bob", description="first\nsecond",
        updated_at=STARTED + timedelta(days=1),
    )  # fmt: skip
    seen = Occurrences(3, STARTED, STARTED + timedelta(hours=2))
    verdicts = [
        RecordedVerdict("fixed", "fixed: exit code 7 -> 0", NOW, commit="a" * 40),
        RecordedVerdict("same", "no differences", NOW - timedelta(minutes=90)),
    ]
    shown = lines_of(report_view(report, seen, verdicts, now=NOW))
    values = [line.split("│")[2].strip() for line in shown if "│" in line]
    assert values[2:8] == ["first", "second", "open", "high", "ann", "bob"]
    assert values[-1] == "2026-10-19 04:05:48.298051+00:00"
    assert shown[-7:] == [
        "",
        "seen 3 times",
        "  last 1 h ago",
        "",
        "replays",
        "     0 s ago  fixed — fixed: exit code 7 -> 0  at aaaaaaaaaaaa",
        "     1 h ago  same — no differences",
    ]


def test_captured_text_is_no_markup_and_moves_no_cursor() -> None:
    nasty = "[red]x[/red] [link=a]b[/] :tada: \x1b[2J\x1b[31m\x07"
    run = command_run(argv=("echo", nasty), stdout=nasty + "\n")
    report = report_of(run, title=nasty, tags=[nasty], description=nasty)
    report.metadata["note"] = nasty
    text = "\n".join(lines_of(report_view(report, None, [], now=NOW), color=True))
    assert text.count("[red]x[/red] [link=a]b[/] :tada: ") == 6
    assert "\x1b[2J" not in text
    assert "\x07" not in text
    row = row_of(report, status=nasty)
    for renderable in (
        report_list_table([row], now=NOW),
        replay_table(ReplaySummary.of([cannot_run(nasty)], [(nasty, nasty)])),
        result_line(cannot_run(nasty)),
        differences_view(result_of(RUN, command_run(stdout=nasty)), ()) or "",
    ):
        text = "\n".join(lines_of(renderable, color=True))
        assert "[red]x[/red]" in text
        assert "\x1b[2J" not in text
        assert "\x07" not in text


def row_of(report: BugReport, **fields: Any) -> Mapping[str, Any]:
    """A row of `list --json`."""
    known = {
        "id": report.id, "title": report.title, "status": report.status, "severity": None,
        "tags": report.tags, "created_at": report.created_at.isoformat(),
        "last_seen": report.created_at.isoformat(), "occurrences": 1,
        "exit_code": report.metadata.get("exit_code"), "ending": "exit code 7",
        "last_verdict": None, "last_replayed": None,
    }  # fmt: skip
    return known | fields


def test_a_list_of_reports() -> None:
    report = report_of(RUN)
    rows = [
        row_of(report),
        row_of(report, id="b", title="Mine", exit_code=-11, occurrences=12, status="closed",
               last_verdict="same-after-normalising", last_seen="2026-10-18T07:05:00"),
        row_of(report, id="c", exit_code=None, ending="timed out after 5 s"),
        row_of(report, id="d", exit_code=None, ending="not started: command not found: x"),
        row_of(report, id="e", exit_code=None, ending=None),
    ]  # fmt: skip
    shown = [line.split() for line in lines_of(report_list_table(rows, now=NOW))]
    assert shown[0] == ["Report", "Title", "Exit", "Seen", "Last", "Status", "Verdict"]
    assert shown[1][:5] == ["5303b4f97c12", "Command", "failed:", "python", "-c"]
    assert shown[1][-6:] == ["7", "1x", "3", "h", "open", "—"]
    assert shown[2] == ["b", "Mine", "SIGSEGV", "12x", "48", "s", "closed", "same", "(normalised)"]
    assert shown[3][-7:-2] == ["timed", "out", "1x", "3", "h"]
    assert shown[4][-7:-2] == ["not", "started", "1x", "3", "h"]
    assert shown[5][-6:-2] == ["—", "1x", "3", "h"]


@pytest.mark.parametrize("width", [80, 100])
def test_narrow_lists_keep_ids_whole(width: int) -> None:
    report = report_of(RUN)
    rows = [row_of(report, last_verdict="same-after-normalising"), row_of(report, title="x" * 300)]
    shown = lines_of(report_list_table(rows, now=NOW), width=width)
    assert len(shown) == 3
    assert [line.split()[0] for line in shown[1:]] == ["5303b4f97c12"] * 2
    assert max(map(len, shown)) <= width
    assert shown[1].split()[1:3] == ["python", "-c"]
    assert "…" in shown[2]


def test_a_sweep_as_specified() -> None:
    shown = lines_of(replay_table(ReplaySummary.of([result_of(RUN, RUN)])))
    assert shown == [
        "                    Replay summary",
        "┏━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━━━━┓",
        "┃ Report       ┃ Outcome    ┃ Exit code ┃ Differences ┃",
        "┡━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━━━━┩",
        "│ 5303b4f97c12 │ reproduced │         7 │ none        │",
        "└──────────────┴────────────┴───────────┴─────────────┘",
    ]
    assert sweep_line(ReplaySummary.of([result_of(RUN, RUN)])) == (
        "replayed 1 · reproduced 1 · differs 0 · failed 0 · reproducibility 100%"
    )


def test_a_sweep_of_everything() -> None:
    late = command_run(termination=Termination.TIMEOUT, exit_code=None, timeout=5.0)
    absent = command_run(termination=Termination.SPAWN_ERROR, exit_code=None, error="gone")
    summary = ReplaySummary.of(
        [result_of(RUN, command_run(exit_code=0)), result_of(late, late),
         result_of(absent, absent), cannot_run()],
        [("broken", "not valid JSON")],
    )  # fmt: skip
    shown = lines_of(replay_table(summary))
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in shown if "│" in line]
    assert rows == [
        ["5303b4f97c12", "differs", "0 (success)", "fixed: exit code 7 -> 0"],
        ["5303b4f97c12", "reproduced", "timed out after 5 s", "none"],
        ["5303b4f97c12", "reproduced", "not started", "none"],
        ["0123456789ab", "cannot run", "—", "needs OPENAI_API_KEY"],
        ["broken", "unreadable", "—", "not valid JSON"],
    ]
    assert sweep_line(summary) == (
        "replayed 5 · reproduced 2 · differs 1 · failed 2 · reproducibility 40%"
    )


def test_a_result_and_its_differences() -> None:
    result = result_of(RUN, command_run(exit_code=1, stdout="bang\n"))
    assert lines_of(result_line(result)) == [
        "5303b4f97c12 `differs` — different failure: exit code 7 -> 1, stdout differs"
    ]
    view = differences_view(result, ())
    assert view is not None
    assert lines_of(view) == [
        "  exit code 7 -> 1",
        "  stdout: expected (-) and observed (+)",
        "  -boom",
        "  +bang",
    ]
    assert differences_view(cannot_run(), ()) is None
    assert differences_view(result_of(RUN, RUN), ()) is None


def test_a_differing_line_names_its_normaliser() -> None:
    before = command_run(stdout="1 failed in 0.10s at 0x7f0011223344\nx\n")
    after = command_run(stdout="2 failed in 0.20s at 0x7f5566778899\nx\n")
    view = differences_view(result_of(before, after), ())
    assert view is not None
    changed = [line for line in lines_of(view) if line.startswith(("  -", "  +"))]
    assert [line.split()[0] for line in changed] == ["-1", "+2"]
    assert all("duration" in line.rpartition("[")[2] for line in changed)


def test_long_differences_are_cut() -> None:
    result = result_of(RUN, command_run(stdout="".join(f"{n}\n" for n in range(200))))
    view = differences_view(result, ())
    assert view is not None
    shown = lines_of(view)
    assert shown[-1].endswith("more lines")
    assert len(shown) < 70


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "0 s"), (0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (3 * 3600, "3 h"),
     (86_399, "23 h"), (86_400 * 400, "400 d")],
)  # fmt: skip
def test_ages(seconds: float, shown: str) -> None:
    then = datetime(2026, 1, 1, tzinfo=UTC)
    assert age(then, then + timedelta(seconds=seconds)) == shown


PRINTING = """
import sys
from rich.text import Text
from repotrace.render.console import console
out = console(stderr=sys.argv[1] == "stderr", color=sys.argv[2])
out.print(Text("x" * 300, style="red"), soft_wrap=False)
"""


def printed(stream: str, color: str, **env: str) -> bytes:
    """What a console writes to a pipe in a process of its own."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", PRINTING, stream, color],
        env={**kept, "TERM": "xterm", **env},
        capture_output=True,
        check=True,
    )
    assert bool(done.stdout) is (stream == "stdout")
    return done.stdout or done.stderr


WHOLE = b"x" * 300 + b"\n"


@pytest.mark.parametrize(
    ("color", "env", "colored"),
    [
        ("auto", {}, False),
        ("auto", {"FORCE_COLOR": "1"}, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("always", {}, True),
        ("always", {"TERM": "dumb"}, True),
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {"FORCE_COLOR": "1"}, False),
    ],
)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_colours_and_width_of_a_pipe(
    stream: str, color: str, env: dict[str, str], colored: bool
) -> None:
    text = printed(stream, color, **env)
    assert (b"\x1b[31m" in text) is colored
    assert text.replace(b"\x1b[31m", b"").replace(b"\x1b[0m", b"") == WHOLE


def test_columns_are_heeded_in_a_pipe() -> None:
    assert printed("stdout", "auto", COLUMNS="100") == (b"x" * 100 + b"\n") * 3


@pytest.mark.parametrize(
    ("color", "env", "colored"),
    [
        ("auto", {"TERM": "xterm"}, True),
        ("auto", {"TERM": "dumb"}, False),
        ("auto", {"TERM": "xterm", "NO_COLOR": "1"}, False),
        ("never", {"TERM": "xterm"}, False),
    ],
)
def test_colours_of_a_terminal(color: str, env: dict[str, str], colored: bool) -> None:
    ours, theirs = pty.openpty()
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    subprocess.run(
        [sys.executable, "-c", PRINTING, "stdout", color],
        env={**kept, **env},
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        check=True,
    )
    os.close(theirs)
    text = os.read(ours, 65536)
    os.close(ours)
    assert (b"\x1b[31m" in text) is colored
