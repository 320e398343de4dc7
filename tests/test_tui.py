"""The terminal screen of `play`: what it shows of a recorded run, and where keys lead."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading import BROKEN, FIXED, LEAP, REASON, SIMPLE, TASK, Recorded, project, record
from recording import NOON, RUN, event, traces
from rich.segment import Segment
from rich.style import Style
from running import plain_git
from screens import NARROW, WIDE, Screen, play, rows

from repotrace.records.blame import Blame, BlamedStep
from repotrace.records.events import Event
from repotrace.records.run import ExecutionTrace
from repotrace.render.greys import in_greys
from repotrace.storage import Store
from repotrace.storage.memo import KeptVerdict
from repotrace.tui.bars import TabBar
from repotrace.tui.file_tree import FileTree
from repotrace.tui.lines_view import LinesView
from repotrace.tui.looks import theme_for


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Read only, by all tests of this module."""
    return record(project(tmp_path_factory.mktemp("a project") / "invoice"))


# --- Steps ----------------------------------------------------------------------------------


def test_it_begins_with_the_first_step_and_lists_all(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        rows = screen.steps.splitlines()
        assert [row.strip(" ▌") for row in rows[::2]] == [
            "1 ✓ Plan",
            "2 ✓ Search",
            "3 ✓ Write the patch",
            "4 ✗ Check",
            "5 ✓ ↻2 Retry",
            "6 ✓ Check again",
        ]
        assert rows[0].startswith("▌")
        assert rows[5].split(" · ") == ["      edit", "1.00 s", "+1 -1"]
        assert rows[7].split(" · ") == ["      test", "1.00 s", "1 failed, 1 passed"]
        assert "Step 1 of 6 · planning · ok" in screen.view
        assert TASK.splitlines()[1] in screen.view
        assert RUN in screen.all

    play(recorded.store, script)


def test_keys_step_jump_and_stop_at_the_ends(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        await screen.press("p")
        assert (screen.number, screen.foot) == (1, "this is the first step")
        await screen.press("n", "down", "n")
        assert screen.number == 4
        await screen.press("up")
        assert screen.number == 3
        await screen.press("end")
        assert screen.number == 6
        await screen.press("n")
        assert (screen.number, screen.foot) == (6, "this is the last step")
        await screen.press("home")
        assert screen.number == 1
        await screen.press("j")
        assert screen.asks
        await screen.type("5")
        assert (screen.number, screen.asks) == (5, False)
        assert "Step 5 of 6" in screen.view
        for wrong in ("7", "x", "0"):
            await screen.press("j")
            await screen.type(wrong)
            assert screen.number == 5
            assert screen.foot == f"there is no step {wrong}; they go from 1 to 6"
        await screen.press("j", "2", "escape")
        assert (screen.number, screen.asks) == (5, False)

    play(recorded.store, script)


def test_it_begins_with_the_step_that_is_asked_for(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        assert screen.number == 4
        assert "▌ 4 ✗ Check" in screen.steps

    play(recorded.store, script, step=4)


def test_failures_and_test_runs_are_found_in_a_circle(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        await screen.press("e")
        assert screen.number == 4
        await screen.press("e")
        assert (screen.number, screen.foot) == (4, "there is no other")
        await screen.press("t")
        assert screen.number == 6
        await screen.press("t")
        assert screen.number == 4
        await screen.press("T")
        assert screen.number == 6
        await screen.press("E")
        assert screen.number == 4

    play(recorded.store, script)


def test_words_are_searched_in_all_that_was_recorded(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        await screen.press("slash")
        await screen.type("leap")
        assert screen.number == 3
        assert screen.foot.startswith(" 2 of 4 steps with leap ")
        await screen.press("full_stop")
        assert screen.number == 4
        await screen.press("slash", "enter")
        assert (screen.number, screen.foot[:12]) == (6, " 4 of 4 step")
        await screen.press("full_stop")
        assert screen.number == 1
        await screen.press("comma", "comma")
        assert screen.number == 4
        await screen.press("p", "p")
        assert screen.foot.startswith(" 4 steps with leap ")
        await screen.press("slash")
        await screen.type("no such words")
        assert (screen.number, screen.foot[:30]) == (2, " nothing found: no such words ")
        await screen.press("full_stop", "slash")
        await screen.type('"[')
        assert screen.number == 2
        await screen.press("slash")
        await screen.type("leap cost:much")
        assert "no comparison" in screen.foot
        await screen.press("full_stop")
        assert screen.foot.startswith("nothing was searched")

    play(recorded.store, script)


def standing_out(view: LinesView) -> list[str]:
    """The pieces in sight that are shown in reverse."""
    strips = (view.render_line(y) for y in range(view.size.height))
    return [part.text for strip in strips for part in strip if part.style and part.style.reverse]


def test_what_was_found_stands_out_in_the_tab_that_has_it_until_the_search_ends(
    recorded: Recorded,
) -> None:
    async def script(screen: Screen) -> None:
        await screen.press("slash")
        await screen.type("LEAP")
        assert screen.app.tab == "Overview"
        assert set(standing_out(screen.app.view)) == {"leap"}
        await screen.press("slash")
        await screen.type("bold")
        assert (screen.number, screen.app.tab) == (5, "Messages")
        assert standing_out(screen.app.view) == ["bold"]
        await screen.press("p", "3", "escape")
        assert standing_out(screen.app.content) == []
        await screen.press("1", "escape", "slash")
        await screen.type("leap")
        assert (screen.number, screen.app.tab) == (6, "Tests")
        assert "leap" in standing_out(screen.app.view)
        await screen.press("escape", "escape")
        assert "leap" not in standing_out(screen.app.view)
        assert "n/p step" in screen.foot

    play(recorded.store, script)


def test_what_was_found_is_unfolded_and_brought_into_sight(tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    text = "\n".join(f"line {number}" for number in range(400))
    store.runs.add_events(
        [
            event("run_started", 0),
            event("step_started", 1, id="a", description="nothing here"),
            event("step_ended", 2, id="a"),
            event("step_started", 3, id="b", reason=f"{text}\nthe needle\n{text}"),
            event("step_ended", 4, id="b"),
        ]
    )

    async def script(screen: Screen) -> None:
        await screen.press("slash")
        await screen.type("needle")
        assert (screen.number, standing_out(screen.app.view)) == (2, ["needle"])
        rows = screen.view.splitlines()
        at = next(n for n, row in enumerate(rows) if row.strip() == "the needle")
        assert [row.strip() for row in rows[at - 1 : at + 2 : 2]] == ["line 399", "line 0"]

    play(store, script, size=NARROW)


def test_the_list_has_one_row_for_a_step_where_there_is_room(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        await screen.press("l")
        rows = screen.steps.splitlines()
        assert len(rows) == 6
        assert re.search(r"4 ✗ Check +test +1\.00 s +1 failed, 1 passed", rows[3])
        assert not screen.app.query_one("#right").display or not screen.view
        await screen.press("down", "down", "enter")
        assert "Step 3 of 6" in screen.view
        await screen.press("l", "escape")
        assert "Step 3 of 6" in screen.view

    play(recorded.store, script, size=(130, 30))


# --- Tabs -----------------------------------------------------------------------------------


def test_an_overview_tells_why_and_what_came_of_it(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        assert REASON in screen.view
        assert "M app/export.py  +1 -1" in screen.view
        assert recorded.states[1] in screen.view
        await screen.press("n")
        assert "1 failed, 1 passed on the files of step 3" in screen.view
        assert f"FAILED {LEAP}" in screen.view
        assert "→ exit code 1" in screen.view
        await screen.press("p", "p")
        assert "warning: two files match" in screen.view
        assert "app/export.py:1-9" in screen.view

    play(recorded.store, script, step=3)


def test_messages_that_repeat_are_one_line_until_they_are_opened(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        await screen.press("2")
        assert "m-1 · 2.0k tokens (2.0k in, 20 out) · $0.010" in screen.view
        assert "▸ 1 message as in the call before" in screen.view
        assert "E [bold]x" in screen.view
        assert "Fix the date bug" not in screen.view
        await screen.press("tab", "enter")
        assert "Fix the date bug" in screen.view
        await screen.press("enter")
        assert "Fix the date bug" not in screen.view
        await screen.press("x")
        assert "Fix the date bug" in screen.view
        await screen.press("n")
        assert screen.view.startswith("step 6 called no model; the call before it was in step 5")
        assert "One year." in screen.view
        await screen.press("escape", "home", "n")
        assert "Look at the export." in screen.view

    play(recorded.store, script, step=5)


def test_it_begins_with_the_conversation_where_that_is_asked_for(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        assert "Look at the export." in screen.view

    play(recorded.store, script, show_llm=True)


def test_files_are_a_tree_and_one_stays_open_from_step_to_step(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        await screen.press("f")
        assert screen.tree == " ▾ app/\n   M export.py"
        assert "app/export.py  after step 3" in screen.content
        for row in BROKEN.decode().splitlines():
            assert row in screen.content
        await screen.press("n", "n")
        assert screen.tree.splitlines()[1:] == ["   M export.py", " A logo.bin"]
        assert FIXED.decode().splitlines()[1] in screen.content
        await screen.press("down", "enter")
        assert screen.content.splitlines()[-1] == "binary, 3 bytes"
        await screen.press("n")
        assert screen.tree.splitlines()[1:] == ["   · export.py", " · logo.bin"]
        await screen.press("escape", "up", "up", "enter")
        assert screen.tree == " ▸ app/\n · logo.bin"
        await screen.press("p", "p", "p", "p", "p")
        assert screen.tree == " ▸ app/"

    play(recorded.store, script, step=3, size=WIDE)


def test_on_a_narrow_terminal_a_file_takes_the_place_of_the_tree(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        await screen.press("f")
        assert "M export.py" in screen.all
        assert "return year + 2" not in screen.all
        await screen.press("enter")
        assert "return year + 2" in screen.all
        assert "M export.py" not in screen.all
        await screen.press("escape")
        assert "M export.py" in screen.all

    play(recorded.store, script, step=3, size=NARROW)


def changed_lines(text: str) -> list[str]:
    """The lines that a diff takes away and adds, whatever stands around them."""
    marks = (re.match(r" *\d* *([-+]) *(\S.*?) *$", row) for row in text.splitlines())
    return sorted(
        f"{mark[1]}{mark[2]}" for mark in marks if mark and mark[2][:2] not in ("--", "++")
    )


def git_says(recorded: Recorded, one: int, other: int) -> list[str]:
    """The same by plain git, of two of the states, text files alone."""
    folder = recorded.store.snapshots.path
    names = [f"{recorded.states[at]}:root/app/export.py" for at in (one, other)]
    trees = [plain_git(folder, "rev-parse", name) for name in names]
    shown = plain_git(folder, "diff", *trees)
    return sorted(f"{row[0]}{row[1:].strip()}" for row in shown.splitlines()
                  if row[:1] in "-+" and row[:3] not in ("---", "+++"))  # fmt: skip


def test_a_diff_is_what_git_says_one_side_below_the_other(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        await screen.press("4")
        assert screen.view.startswith("what step 3 changed")
        assert changed_lines(screen.view) == git_says(recorded, 0, 1)
        await screen.press("p")
        assert screen.view == "what step 2 changed\n\nit changed no files"

    play(recorded.store, script, step=3, size=NARROW)


def test_a_wide_terminal_has_both_sides_of_a_diff_beside_each_other(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        await screen.press("4")
        pattern = r"2 - +return year +│ +2 \+ +return year \+ 2"
        assert re.search(pattern, screen.view)
        await screen.resize(*NARROW)
        assert not re.search(pattern, screen.view)
        assert changed_lines(screen.view) == git_says(recorded, 0, 1)
        await screen.resize(*WIDE)
        assert re.search(pattern, screen.view)

    play(recorded.store, script, step=3, size=WIDE)


def test_a_mark_makes_a_diff_between_two_steps(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        await screen.press("d")
        assert "m marks a step" in screen.foot
        await screen.press("m")
        assert "◆" in screen.steps
        await screen.press("j", "6", "enter")
        assert screen.view.startswith("what step 6 changed")
        await screen.press("d")
        assert screen.view.startswith("from after step 2 to after step 6")
        assert changed_lines(screen.view) == git_says(recorded, 0, 2)
        await screen.press("d")
        assert screen.view.startswith("what step 6 changed")
        await screen.press("d", "j", "2", "enter", "m")
        assert "◆" not in screen.steps

    play(recorded.store, script, step=2, size=NARROW)


def test_output_keeps_its_colours_and_nothing_else(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        await screen.press("5")
        assert "$ pytest -q\n→ exit code 1 after 0.50 s" in screen.view
        number = screen.view.splitlines().index("E assert 2026 == 2025")
        strip = screen.app.view.render_line(number)
        (piece,) = (part for part in strip if part.text.startswith("E assert"))
        assert piece.style is not None
        assert piece.style.color is not None
        assert piece.style.color.name == "red"

    play(recorded.store, script, step=4)


def test_tests_are_a_grid_with_the_step_marked(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        await screen.press("6")
        assert screen.view.startswith("1 failed, 1 passed on the files of step 3")
        assert re.search(rf"step +4 +6\non the files of step +3 +5\n{LEAP} +F +\.", screen.view)
        assert f"failed  {LEAP}" in screen.view
        assert SIMPLE not in screen.view
        await screen.press("tab", "enter")
        assert f"passed  {SIMPLE}" in screen.view
        await screen.press("p")
        assert screen.view.startswith("step 3 ran no tests")

    play(recorded.store, script, step=4)


def test_tabs_are_reached_by_arrows_and_numbers(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        assert screen.tabs.split() == ["Overview", "Messages", "Files", "Diff", "Output", "Tests"]
        await screen.press("right")
        assert screen.app.tab == "Messages"
        await screen.press("left", "left")
        assert screen.app.tab == "Tests"
        await screen.press("7")
        assert screen.app.tab == "Tests"
        assert screen.foot == f" which step broke a test is told by repotrace blame {RUN}"

    play(recorded.store, script)


def test_a_mouse_does_what_keys_do(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        await screen.click(screen.app.steps, 5, 9)
        assert screen.number == 5
        await screen.click(screen.app.query_one(TabBar), screen.tabs.index("Messages") + 2, 0)
        folded = next(n for n, row in enumerate(screen.view.splitlines()) if "▸" in row)
        await screen.click(screen.app.view, 5, folded)
        assert "Fix the date bug" in screen.view
        await screen.click(screen.app.query_one(TabBar), screen.tabs.index("Files") + 2, 0)
        await screen.click(screen.app.query_one(FileTree), 5, 1)
        assert "app/export.py" in screen.content

    play(recorded.store, script, size=WIDE)


def test_without_files_there_are_no_tabs_of_them(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        assert screen.tabs.split() == ["Overview", "Messages", "Output", "Tests"]
        await screen.press("f", "d")
        assert screen.app.tab == "Overview"

    play(recorded.store, script, show_files=False)


def test_blame_has_a_tab_once_it_was_asked(tmp_path: Path) -> None:
    recorded = record(project(tmp_path / "invoice"))
    blame = Blame(
        id="b1", run_id=RUN, test=LEAP, command="pytest -q", verdict="proven", named=True,
        reason="step 3 broke it", until=6, created_at=NOON + timedelta(hours=1),
        steps=(BlamedStep(number=3, step_type="edit", description="Write the patch"),),
    )  # fmt: skip
    kept = KeptVerdict("b1", RUN, LEAP, "proven", NOON, blame.model_dump(mode="json"))
    recorded.store.memo.keep_verdict(kept)

    async def script(screen: Screen) -> None:
        assert "3 ✓ ⚑ Write the patch" in screen.steps
        assert f"⚑ proven: {LEAP}" in screen.view
        await screen.press("7")
        assert "broken by  step 3 · Write the patch" in screen.view

    play(recorded.store, script, step=3)


@pytest.mark.parametrize("size", [NARROW, WIDE])
def test_all_that_is_laid_out_is_painted(recorded: Recorded, size: tuple[int, int]) -> None:
    def seen(screen: Screen, shown: str) -> None:
        painted = "\n".join(screen.painted)
        for row in shown.splitlines():
            assert row.strip() in painted

    async def script(screen: Screen) -> None:
        seen(screen, screen.steps)
        for key in "123456":
            await screen.press(key)
            await screen.press("n", "p")
            seen(screen, screen.tree if key == "3" else screen.view)
        await screen.press("escape", "l")
        seen(screen, screen.steps)
        await screen.press("question_mark")
        seen(screen, rows(screen.app.screen.query_one(LinesView)))
        await screen.press("q", "l", "1")
        await screen.resize(*WIDE)
        seen(screen, screen.view)
        await screen.resize(*NARROW)
        seen(screen, screen.view)

    play(recorded.store, script, step=4, size=size)


def test_runs_that_went_on_from_a_step_are_named_there(tmp_path: Path) -> None:
    recorded = record(project(tmp_path / "invoice"))
    branch = {"parent_run_id": RUN, "branched_from_step": 2}
    events = [event("run_started", -9, run="rbbb", **branch), event("run_ended", -8, run="rbbb")]
    recorded.store.runs.add_events(events)

    async def script(screen: Screen) -> None:
        assert "2 ✓ ┬ Search" in screen.steps
        assert re.search("Went on from here\n +step 2 └─ rbbb  completed", screen.view)
        await screen.press("n")
        assert "Went on" not in screen.view

    play(recorded.store, script, step=2)


# --- Doing ----------------------------------------------------------------------------------


def test_the_files_after_a_step_are_written_where_one_says(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")

    async def script(screen: Screen) -> None:
        await screen.press("r")
        assert screen.asks
        assert any("write the files after step 3 into /" in row for row in screen.painted)
        await screen.press("enter")
        beside = recorded.workspace.with_name(f"{recorded.workspace.name}-{RUN}-step-3")
        assert screen.foot.startswith(f"wrote {beside}  1 file")
        assert (beside / "app" / "export.py").read_bytes() == BROKEN
        await screen.press("r", "ctrl+u")
        await screen.type("full")
        assert "full is not empty" in screen.foot
        assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]
        await screen.press("r", "escape")
        assert not screen.asks

    play(recorded.store, script, step=3)


@pytest.mark.parametrize(
    ("keys", "command"),
    [
        ("1", "play {run} --step 3"),
        ("2", "play {run} --step 3 --show-llm"),
        ("4", "runs diff {run} --step 3"),
        ("m4nndd", "runs diff {run} --step 5"),
        ("mnnd", "runs diff {run} --from-step 3 --to-step 5"),
        ("6", "runs show {run}"),
        ("f\n", "runs restore {run} --step 3 --path app/export.py"),
    ],
)
def test_the_command_for_what_is_shown_is_copied(
    recorded: Recorded, keys: str, command: str
) -> None:
    expected = f"repotrace --home 'a b' {command.format(run=RUN)}"

    async def script(screen: Screen) -> None:
        await screen.press(*(key.replace("\n", "enter") for key in keys), "y")
        assert screen.foot == f"copied: {expected}"

    app = play(recorded.store, script, step=3, command="repotrace --home 'a b'")
    assert app.clipboard == expected


def test_a_command_that_is_copied_cannot_act_when_it_is_pasted(tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    path = "a'b\x1b[201~\r\x03\n$(c)"
    store.runs.add_events(
        [
            event("run_started", 0),
            event("step_started", 1, id="s"),
            event("file_operation", 1, step_id="s", operation_type="edit", file_path=path),
        ]
    )

    async def script(screen: Screen) -> None:
        await screen.press("f", "enter", "y")

    copied = play(store, script).clipboard
    assert copied.isprintable()
    words = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {copied}"], capture_output=True, check=True
    ).stdout.split(b"\0")
    assert words[-2] == path.encode()


def test_help_tells_of_every_key(recorded: Recorded) -> None:
    async def script(screen: Screen) -> None:
        await screen.press("question_mark")
        for word in ("next step", "jump", "search", "failed", "mark", "folder", "copy", "quit"):
            assert word in screen.all
        await screen.press("n")
        assert screen.number == 1
        await screen.press("n")
        assert screen.number == 2

    play(recorded.store, script, size=NARROW)


@pytest.mark.parametrize(
    ("environ", "dark"),
    [
        ({}, True),
        ({"COLORFGBG": "15;0"}, True),
        ({"COLORFGBG": "0;15"}, False),
        ({"COLORFGBG": "0;default;7"}, False),
        ({"COLORFGBG": ""}, True),
        ({"COLORFGBG": "0;15", "TEXTUAL_THEME": "textual-dark"}, True),
    ],
)
def test_colours_follow_the_terminal_and_a_key_turns_them(
    recorded: Recorded, environ: dict[str, str], dark: bool
) -> None:
    def brightness(screen: Screen) -> int:
        strip = screen.app.view.render_line(1)
        colour = next(part.style.bgcolor for part in strip if part.style and part.style.bgcolor)
        return sum(colour.get_truecolor())

    async def script(screen: Screen) -> None:
        before = brightness(screen)
        assert (before < 3 * 128) is dark
        await screen.press("c")
        assert (brightness(screen) < 3 * 128) is not dark
        await screen.press("c")
        assert brightness(screen) == before

    play(recorded.store, script, theme=theme_for(environ))


@given(st.integers(0, 0xFFFFFF), st.integers(0, 0xFFFFFF))
def test_what_has_no_colours_can_be_read(front: int, back: int) -> None:
    style = Style(color=f"#{front:06x}", bgcolor=f"#{back:06x}", bold=True)
    ((_, found, _),) = in_greys([Segment("x", style)])
    assert found is not None
    assert found.color is not None
    assert found.bgcolor is not None
    (red, green, blue), (dark, *others) = found.color.get_truecolor(), found.bgcolor.get_truecolor()
    assert red == green == blue
    assert others == [dark, dark]
    assert abs(red - dark) > 100
    assert found.bold


@pytest.mark.parametrize(("width", "words"), [(100, 9), (80, 9), (60, 5), (30, 2), (8, 2)])
def test_the_foot_tells_of_help_and_the_way_out_however_narrow_it_is(
    recorded: Recorded, width: int, words: int
) -> None:
    async def script(screen: Screen) -> None:
        assert screen.foot.endswith(" ? help  q quit ")
        assert len(screen.foot.split("  ")) >= words

    play(recorded.store, script, size=(width, 20))


def test_a_long_path_keeps_its_end_in_the_list_and_few_columns_leave_room(tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    name = "Read src/a/very/long/way/down/to/some_module_of_note.py"
    done = [event("step_started", 1, id="a", description=name), event("step_ended", 2, id="a")]
    store.runs.add_events([event("run_started", 0), *done])

    async def script(screen: Screen) -> None:
        assert re.search(r"1 ✓ Read …\S*some_module_of_note.py$", screen.steps.splitlines()[0])
        await screen.press("l")
        assert re.search(rf"1 ✓ {name} +unknown +1\.00 s$", screen.steps)

    play(store, script, size=(100, 20))


# --- Runs of other kinds --------------------------------------------------------------------


def test_a_run_is_followed_until_it_ends(tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    store.runs.add_events(
        [event("run_started", 0, task="x"), event("step_started", 1, id="a", description="one")]
    )

    async def script(screen: Screen) -> None:
        assert "1 … one" in screen.steps
        more = [event("step_ended", 2, id="a"), event("step_started", 3, id="b", description="two")]
        store.runs.add_events(more)
        await screen.until(lambda: screen.number == 2)
        await screen.settle()
        assert "1 ✓ one" in screen.steps
        assert "Step 2 of 2" in screen.view
        await screen.press("p")
        store.runs.add_events([event("step_started", 4, id="c", description="three")])
        await screen.until(lambda: "three" in screen.steps)
        assert screen.number == 1
        store.runs.add_events([event("run_ended", 5)])
        await screen.until(lambda: "the run has ended: completed" in screen.foot)

    play(store, script, follow=True)


def test_a_run_without_steps_can_be_looked_at(tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    store.runs.add_events([event("run_started", 0, task="x")])

    async def script(screen: Screen) -> None:
        await screen.press(*"npjeEtTmdryfl1234567", "escape", "escape")
        await screen.press("1")
        assert screen.view == "the run has no steps yet"
        store.runs.add_events([event("step_started", 1, id="a", description="one")])
        await screen.until(lambda: "1 … one" in screen.steps)
        await screen.settle()
        assert "Step 1 of 1" in screen.view

    play(store, script, follow=True)


def test_a_run_that_is_deleted_meanwhile_is_said_to_be_gone(tmp_path: Path) -> None:
    recorded = record(project(tmp_path / "invoice"))

    async def script(screen: Screen) -> None:
        recorded.store.runs.delete(RUN)
        await screen.press("n")
        assert f"Step 2 of run {RUN} is no longer there." in screen.view.replace("\n", " ")
        await screen.press("e", "t", "slash")
        await screen.type("leap")

    play(recorded.store, script)


def test_a_damaged_store_of_states_is_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    recorded = record(project(tmp_path / "invoice"))
    recorded.store.close()
    shutil.rmtree(recorded.store.snapshots.path / "objects")

    async def script(screen: Screen) -> None:
        await screen.press("f")
        assert "could not be read" in screen.content
        await screen.press("r")
        if screen.asks:
            await screen.press("enter")
        assert "could not be read" in screen.foot or "not all there" in screen.foot
        assert "4 ✗ Check" in screen.steps

    play(recorded.store, script, step=3, size=WIDE)


HOSTILE = (
    "gone\r\x1b]0;owned\x07\x1b[2J\x1b[8mhidden\x1b[0m \u202e[bold red]x[/] [/]\x9b5n\ud800\n\n"
    "[@click=app.quit]State[/]\x1b[5;5H\n"
)


def hostile_run(where: str) -> list[Event]:
    """A step whose every text is hostile."""
    names = ("description", "input_context", "reason", "step_type", "label")
    facts: dict[str, Any] = dict.fromkeys(names, HOSTILE)
    call: dict[str, Any] = dict.fromkeys(("model", "response", "purpose", "error"), HOSTILE)
    call["messages"] = [{"role": HOSTILE, "content": HOSTILE, HOSTILE: 1}]
    call["tools"] = [{"name": HOSTILE}]
    return [
        event("run_started", 0, task=HOSTILE, agent=HOSTILE, workspace=where),
        event("step_started", 1, id="s", metadata={"tool": HOSTILE}, **facts),
        event("llm", 1, id="l", step_id="s", **call),
        event("log", 1, step_id="s", level=HOSTILE, message=HOSTILE, data={HOSTILE: HOSTILE}),
        event("file_read", 1, step_id="s", file_path=HOSTILE),
        event("file_operation", 1, step_id="s", operation_type="edit", file_path=HOSTILE),
        event("command", 1, step_id="s", command={"argv": [HOSTILE], "stdout": HOSTILE}),
        event("test", 1, step_id="s", node_id=HOSTILE, outcome="failed", details=HOSTILE),
        event("step_ended", 2, id="s", output_result=HOSTILE * 2, error=HOSTILE),
    ]  # fmt: skip


@pytest.mark.parametrize("size", [NARROW, WIDE])
def test_tabs_are_columns_and_never_reach_the_terminal(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    text = "\ta\tb\n\x1b[31mred\tx\x1b[0m\ty\nabcd\te\n"
    recorded = record(project(tmp_path / "invoice"))
    (recorded.workspace / "t.go").write_text(text)
    state = recorded.store.snapshots.take(recorded.workspace, ref=f"runs/{RUN}").state_id
    facts = {"step_type": "command", "description": "a\tb", "input_context": text}
    command = {"argv": ["a\tb"], "stdout": text, "exit_code": 0}
    recorded.store.runs.add_events(
        [
            event("step_started", 20, id="t", **facts),
            event("state", 20, step_id="t", when="start", state_id=recorded.states[2]),
            event("command", 21, step_id="t", command=command),
            event("state", 22, step_id="t", state_id=state),
            event("step_ended", 22, id="t", output_result=text),
        ]
    )

    async def script(screen: Screen) -> None:
        for key in "1234561":
            await screen.press(key, "tab")
            assert "\t" not in screen.all
            assert "\t" not in "\n".join(screen.painted)
            if key == "5":
                assert "\n    a   b\nred x   y\nabcd    e" in screen.view

    play(recorded.store, script, size=size, step=7)


@pytest.mark.parametrize("size", [NARROW, WIDE])
def test_nothing_that_was_captured_can_act(tmp_path: Path, size: tuple[int, int]) -> None:
    store = Store(tmp_path / "home")
    store.runs.add_events(hostile_run(os.fspath(tmp_path)))

    async def script(screen: Screen) -> None:
        seen = set()
        for key in "123456":
            await screen.press(key, "tab", "x")
            for _ in range(3):
                shown = screen.all
                assert not set(shown) & {"\x1b", "\r", "\x07", "\x9b", "\u202e", "\ud800"}, key
                seen.add(key * ("[bold red]x[/]" in shown))
                await screen.press("pagedown")
        assert seen >= set("1256")
        await screen.press("y", "l", "question_mark", "q")
        assert not set(screen.all) & {"\x1b", "\r", "\x07", "\x9b", "\u202e"}

    play(store, script, size=size)


def test_a_long_output_is_read_as_one_scrolls(tmp_path: Path) -> None:
    lines = [f"line {number} " + "x" * (number % 150) for number in range(100_000)]
    store = Store(tmp_path / "home")
    command = {"argv": ["make"], "stdout": "\n".join(lines), "exit_code": 0}
    store.runs.add_events(
        [
            event("run_started", 0),
            event("step_started", 1, id="s", step_type="command"),
            event("command", 1, step_id="s", command=command),
            event("step_ended", 2, id="s"),
        ]
    )

    async def script(screen: Screen) -> None:
        await screen.press("5", "tab")
        assert lines[0].rstrip() in screen.view
        await screen.press("pagedown")
        assert lines[40] in screen.view
        await screen.press("end")
        tail = screen.view.replace("\n", "")
        assert tail.endswith("".join(lines[-3:]))
        await screen.press("home")
        assert screen.view.startswith("$ make")

    play(store, script)


def many_tests(store: Store, failing: range, steps: int = 3) -> None:
    """Steps that run 1,000 tests each, in the second of which some fail."""
    events = [event("run_started", 0)]
    for number in range(1, steps + 1):
        events.append(event("step_started", number, id=f"s{number}", step_type="test"))
        for test in range(1_000):
            bad = number == 2 and test in failing
            outcome = {"outcome": "failed", "message": f"no {test}"} if bad else {}
            facts = {"step_id": f"s{number}", "node_id": f"t.py::test_{test}", "outcome": "passed"}
            events.append(event("test", number + 0.1, **(facts | outcome)))
        events.append(event("step_ended", number + 0.5, id=f"s{number}"))
    store.runs.add_events(events)


def test_of_very_many_tests_those_that_failed_are_read_and_the_others_asked_for(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "home")
    many_tests(store, range(300, 900))

    async def script(screen: Screen) -> None:
        await screen.press("6")
        assert screen.view.startswith("600 failed, 400 passed")
        await screen.press("tab", "end")
        assert screen.view.splitlines()[-1].startswith("▸ 400 tests passed")
        assert "▸ 400 more tests did not pass" in screen.view
        await screen.press("enter")
        await screen.press("end")
        assert screen.view.splitlines()[-1].startswith("▸ 400 tests passed")
        assert "failed  t.py::test_899" in screen.view
        await screen.press("enter", "end")
        assert "passed  t.py::test_999" in screen.view
        await screen.press("n")
        assert screen.view.startswith("1000 passed")
        assert re.search(r"step +1 +2 +3\nt.py::test_300 +\. +F +\.\n", screen.view)

    play(store, script, step=2, size=(120, 60))


def test_a_database_that_is_locked_is_said_in_what_is_opened(tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    many_tests(store, range(1), steps=2)

    async def script(screen: Screen) -> None:
        await screen.press("6", "tab", "end")
        store.close()
        (tmp_path / "home" / "runs.db").write_bytes(b"no database at all, " * 1_000)
        await screen.press("enter")
        assert "runs.db" in screen.view
        assert screen.app.is_running

    play(store, script, step=2, size=(120, 60))


def test_a_message_of_one_long_line_is_folded_and_what_is_sought_in_it_is_found(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "home")
    text = "word " * 6_000 + "needle " + "more " * 3_000
    call: dict[str, Any] = {"messages": [{"role": "user", "content": text}], "response": "done"}
    store.runs.add_events(
        [
            event("run_started", 0),
            event("step_started", 1, id="s"),
            event("llm", 1, id="l", step_id="s", **call),
            event("step_ended", 2, id="s"),
        ]
    )

    async def script(screen: Screen) -> None:
        await screen.press("2")
        assert "▸ more of this line" in screen.view
        assert "done" in screen.view
        await screen.press("slash")
        await screen.type("needle")
        assert standing_out(screen.app.view) == ["needle"]

    play(store, script, size=(100, 30))


def test_ten_thousand_steps_are_listed_and_reached(tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    events = [event("run_started", 0)]
    for number in range(1, 10_001):
        name = f"s{number}"
        events.append(event("step_started", number, id=name, description=f"do {number}"))
        status = {"status": "failed"} if number == 7_777 else {}
        events.append(event("step_ended", number + 0.5, id=name, **status))
    store.runs.add_events(events)

    async def script(screen: Screen) -> None:
        assert screen.steps.splitlines()[0].strip() == "▌     1 ✓ do 1"
        await screen.press("end")
        assert "10000 ✓ do 10000" in screen.steps
        assert "Step 10000 of 10000" in screen.view
        await screen.press("e")
        assert screen.number == 7_777
        await screen.press("j")
        await screen.type("5000")
        assert "5000 ✓ do 5000" in screen.steps

    play(store, script, size=NARROW)


KEYS = (
    *"npjlfdetETm/yrx1234567?",
    *("enter", "tab", "escape", "up", "down", "left", "right", "pageup", "pagedown", "home", "end"),
    *("space", "shift+tab", "backspace"),
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    traces(),
    st.lists(st.sampled_from(KEYS), max_size=40),
    st.sampled_from([NARROW, WIDE, (20, 5), (3, 2)]),
)
def test_no_run_and_no_keys_break_it(
    trace: ExecutionTrace, keys: list[str], size: tuple[int, int]
) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        store = Store(Path(folder) / "home")
        store.runs.save(trace)

        async def script(screen: Screen) -> None:
            for key in keys:
                await screen.press(key)
                assert not set(screen.all) & {"\x1b", "\r", "\x07", "\x9b", "\u202e"}

        play(store, script, size=size)
