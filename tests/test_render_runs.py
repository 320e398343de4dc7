"""What runs look like: diffs, captured output, tables."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recording import NOON, RUN, traces
from rich.cells import cell_len
from running import plain_git

from repotrace.read.diffs import step_diff
from repotrace.read.runs import list_runs, show_run
from repotrace.read.steps import call_before, play_step, repeated_messages
from repotrace.read.views import GridRow, Patch, StepLine, TestCounts, TestGrid, TestRun
from repotrace.records.run import ExecutionTrace
from repotrace.render.console import WIDE, console
from repotrace.render.diffs import SYNTAX_LIMIT, Span, diff_lines, diff_view, style_of
from repotrace.render.runs import (
    grid_lines,
    patch_of,
    run_head,
    run_list,
    step_lines,
    step_table,
)
from repotrace.render.runs_layout import captured, cost_of, eased, fold, indented, tokens_of
from repotrace.render.runs_step import step_view
from repotrace.storage import Store


def shown(diff: bytes) -> str:
    """The text of a diff without its colours."""
    return "".join("".join(span.text for span in line) + "\n" for line in diff_lines(diff))


def git_diff(folder: Path, before: dict[str, bytes], after: dict[str, bytes]) -> bytes:
    """What git says of two pictures of a folder."""
    plain_git(folder, "init", "-q")
    for contents in (before, after):
        for path in folder.iterdir():
            if path.is_file():
                path.unlink()
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        plain_git(folder, "add", "-A")
        if contents is before:
            plain_git(folder, "commit", "-qm", "x")
    return plain_git(folder, "diff", "--binary", "HEAD").encode() + b"\n"


def test_a_diff_is_shown_word_for_word(tmp_path: Path) -> None:
    code = Path(diff_lines.__code__.co_filename).read_bytes()
    after = code.replace(b"def ", b"async def ").replace(b"\n\n\n", b"\n\n\n# --- x\n")
    tricky = b"-- a\n++ b\n@@ -1 +1 @@\n\\ x\nlast"
    diff = git_diff(
        tmp_path,
        {"code.py": code, "tricky.txt": tricky, "gone.rs": b"fn main() {}\n"},
        {"code.py": after, "tricky.txt": tricky.replace(b"a", b"b").replace(b"last", b"end")},
    )
    assert len(diff) < SYNTAX_LIMIT
    assert shown(diff) == diff.decode()


def test_a_diff_is_coloured_by_line_and_by_syntax(tmp_path: Path) -> None:
    diff = git_diff(
        tmp_path, {"a.py": b"import os\nx = 1\n"}, {"a.py": b'import os\ndef f(): return "s"\n'}
    )
    lines = list(diff_lines(diff))[-3:]
    assert lines == [
        [Span(" "), Span("import", "magenta"), Span(" os")],
        [Span("-x = ", "red"), Span("1", "cyan")],
        [
            *(Span("+", "green"), Span("def", "magenta"), Span(" ", "green"), Span("f", "blue")),
            *(Span("(): ", "green"), Span("return", "magenta"), Span(" ", "green")),
            Span('"s"', "yellow"),
        ],
    ]
    plain = list(diff_lines(diff, syntax=False))[-3:]
    assert plain == [[Span(" import os")], [Span("-x = 1", "red")], [lines[2][0]._replace(
        text='+def f(): return "s"'
    )]]  # fmt: skip


def test_a_string_over_several_lines_stays_a_string(tmp_path: Path) -> None:
    before = b'"""\nfor\n"""\n'
    diff = git_diff(tmp_path, {"a.py": before}, {"a.py": before.replace(b"for", b"if")})
    lines = [line for line in diff_lines(diff) if line[-1].text in ("for", "if")]
    assert [line[-1].style for line in lines] == ["yellow", "yellow"]


def test_what_could_act_in_a_diff_is_made_visible(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J \u202e\r[bold red]x[/]\n".encode() + b"\xff\n"
    diff = git_diff(tmp_path, {"a.txt": b"x\n"}, {"a.txt": b"x\n"}) + (
        b"--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,2 @@\n x\n+" + evil.replace(b"\n", b"\n+", 1)
    )
    text = shown(diff)
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\u202e" not in text
    assert "+\u241b]0;owned\u2407\u241b[2J \\u202e\u240d[bold red]x[/]\n+\\xff\n" in text


def test_binary_contents_are_summed_up(tmp_path: Path) -> None:
    diff = git_diff(tmp_path, {"a": b"\0" * 10, "b": b"1"}, {"a": b"\0\1\2\3\4", "b": b"2"})
    lines = shown(diff).splitlines()
    assert lines[2] == "binary: 10 bytes → 5 bytes"
    assert lines[3] == "diff --git a/b b/b"


@pytest.mark.parametrize(
    "garbage", [b"", b"\n", b"@@ -1,9 +1,9 @@", b"\xff\n@@ -x", b"GIT binary patch"]
)
def test_what_is_no_diff_is_shown_too(garbage: bytes) -> None:
    shown(garbage)


def test_printing_a_diff_cuts_and_wraps_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    diff = git_diff(tmp_path, {"a.py": b"x\n"}, {"a.py": b"y = 'long " + b"z" * 90 + b"'\n"})
    console(color="never").print(diff_view(diff), soft_wrap=True)
    assert capsys.readouterr().out == diff.decode()


# --- Captured text --------------------------------------------------------------------------


def spans_of(text: str) -> list[list[Span]]:
    return [[span for span in line if span.text] for line in captured(text)]


def test_colours_of_captured_text_are_kept_as_styles() -> None:
    text = "\x1b[1;31mbad\x1b[0m \x1b[38;5;208mx\x1b[48;2;1;2;3my\x1b[39;49mz\x1b[92m\ngood\x1b[m."
    assert spans_of(text) == [
        [
            *(Span("bad", "bold red"), Span(" "), Span("x", "color(208)")),
            *(Span("y", "color(208) on rgb(1,2,3)"), Span("z")),
        ],
        [Span("good", "bright_green"), Span(".")],
    ]


@pytest.mark.parametrize(
    "codes", ["8", "5", "38", "38;5", "38;2;1", "48;9;9", "999999", ";", "38;5;999999", "1;1;1"]
)
def test_odd_codes_conceal_nothing_and_end_nothing(codes: str) -> None:
    for line in captured(f"\x1b[{codes}mtext\x1b[0m"):
        for span in line:
            style_of(span.style)
        assert "".join(span.text for span in line) == "text"
        assert not {"conceal", "blink"} & set(" ".join(span.style for span in line).split())


@given(text=st.text(st.sampled_from("a\x1b[]0;:m8\x07\\\r\n\t\x9b\u202e\ud800é中 38")))
def test_no_captured_text_acts(text: str) -> None:
    shown = "\n".join("".join(span.text for span in line) for line in captured(text))
    assert not set(shown) & set("\x1b\x9b\x07\r\u202e\ud800")
    for line in captured(text):
        for span in line:
            style_of(span.style)


@given(text=st.text(st.sampled_from("ab 中é\u0301👩"), max_size=60), width=st.integers(4, 20))
def test_folded_lines_fit_and_lose_nothing(text: str, width: int) -> None:
    parts = list(fold([Span("  "), Span(text, "red")], width))
    assert all(sum(cell_len(span.text) for span in part) <= width for part in parts)
    texts = ["".join(span.text for span in part) for part in parts]
    indent = min(len(text) + 2 - len(text.lstrip(" ")), width // 2)
    assert "".join([texts[0], *(part[indent:] for part in texts[1:])]) == f"  {text}"


def test_a_rule_made_for_a_wider_terminal_becomes_shorter() -> None:
    rule, passed = f"{'=' * 30} FAILURES {'=' * 30}", f"..F{' ' * 60}[100%]"
    lines = list(indented(captured(f"{rule}\n{passed}\n{'x' * 69}")))
    shown = ["".join(span.text for span in eased(line, 66)) for line in lines]
    assert shown == [
        f"  {'=' * 24} FAILURES {'=' * 30}",
        f"  ..F{' ' * 55}[100%]",
        f"  {'x' * 69}",
    ]


# --- Figures ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (9949, "9.9k"), (9951, "10k"), (999_499, "999k"),
     (1_250_000, "1.2M"), (45_000_000, "45M")],
)  # fmt: skip
def test_tokens_are_short(number: int, text: str) -> None:
    assert tokens_of(number) == text


@pytest.mark.parametrize(
    ("cost", "unpriced", "text"),
    [("0", 0, "$0"), ("0", 2, "$?"), ("0.00001", 0, "<$0.0001"), ("0.0042", 0, "$0.0042"),
     ("0.03125", 1, "$0.031 + ?"), ("12.5", 0, "$12.50")],
)  # fmt: skip
def test_a_cost_says_what_is_not_known(cost: str, unpriced: int, text: str) -> None:
    assert cost_of(Decimal(cost), unpriced) == text


def test_a_patch_says_what_is_doubtful() -> None:
    assert patch_of(None) == ""
    assert patch_of(Patch(state_id="s", unchanged=True)) == "on files that no step had changed"
    assert patch_of(Patch(state_id="s", steps=(3,))) == "on the files of step 3"
    doubtful = Patch(state_id="s", steps=(3, 4), quality="inferred", ambiguous=True)
    assert patch_of(doubtful) == (
        "on the files of steps 3 and 4 (state inferred, or of one at work meanwhile)"
    )


# --- Everything ------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(trace=traces(), width=st.sampled_from([20, 80, 120, 160, WIDE]))
def test_whatever_was_recorded_can_be_shown(trace: ExecutionTrace, width: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.runs.save(trace)
        run = store.runs.get(RUN)
        view = show_run(store, run)
        lines = [
            *run_list(list_runs(store).runs, width=width, now=NOON),
            *run_head(view, width=width, now=NOON),
            *step_table(view, width=width),
            *grid_lines(view.grid, width=width),
        ]
        for step in trace.steps:
            one = play_step(store, run, step.step_number)
            calls = repeated_messages(one, call_before(store, run, one))
            lines += step_view(one, diff=step_diff(store, one), messages=calls)
        text = "\n".join("".join(span.text for span in line) for line in lines)
        assert not set(text) & set("\x1b\x9b\x07\r\u202e")
        text.encode()


def test_a_grid_that_is_too_wide_shows_the_newest_runs() -> None:
    runs = tuple(TestRun(step_number=n, started_at=NOON, tests=TestCounts()) for n in range(1, 91))
    row = GridRow(node_id="tests/" + "x" * 90 + "::test_a", outcomes=("failed",) * 89 + ("passed",))
    grid = TestGrid(runs=runs, tests=(row,), never_failed=3)
    lines = ["".join(span.text for span in line) for line in grid_lines(grid, width=80)]
    assert all(cell_len(line) <= 80 for line in lines)
    assert lines[0].startswith("Tests that failed at some time, by step, ")
    assert lines[1].endswith(" 89 90")
    assert lines[2].endswith("  F  .")
    assert "::test_a" in lines[2]
    shown = len(lines[2].split()) - 1
    assert f"{90 - shown} other test runs not shown" in lines[0]


def test_the_first_failing_tests_of_a_step_are_named() -> None:
    line = StepLine(
        number=7, id="s", step_type="test", status="failed", started_at=NOON,
        tests=TestCounts(failed=9, errors=1), failing_tests=tuple(f"t{n}" for n in range(9)),
        patch=Patch(state_id="x", steps=(5,)),
    )  # fmt: skip
    shown = ["".join(span.text for span in row).strip() for row in step_lines(line, width=80)]
    assert shown[1:] == [
        *("9 failed, 1 error on the files of step 5", "FAILED t0", "FAILED t1", "FAILED t2"),
        "… 7 more",
    ]
