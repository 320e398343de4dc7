"""Differences of the states of a run, judged by plain git."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from recording import event
from states import STEPS, Edits, play
from stepping import Recorded, call, git_view

from repotrace.errors import RepoTraceError, RunNotFound
from repotrace.read.lines import StepLines
from repotrace.runs.diff import DiffSummary, diff_run
from repotrace.runs.paths import PathFilter
from repotrace.runs.restore import restore_into
from repotrace.runs.states import StatesOfRun, state_after


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """Four steps: an edit, a model call, a rename with a new file, a deletion."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("1\n2\n3\n")
    (work / "sub").mkdir()
    (work / "sub" / "b.py").write_text("b = 1\n" * 5)
    run = Recorded(work, tmp_path / "home")
    run.step("printf '1\n2b\n3\n4\n' > a.txt")
    run.step(keep=False, step_type="llm")
    run.step("mv sub/b.py sub/c.py; printf new > 'odd \"name'")
    run.step("rm a.txt")
    run.end()
    return run


def apply(folder: Path, patch: bytes) -> None:
    options = ["-c", "core.protectNTFS=false", "-c", "core.protectHFS=false"]
    subprocess.run(
        ["git", *options, "apply", "--whitespace=nowarn", "-"],
        cwd=folder,
        input=patch,
        check=True,
        env={"PATH": "/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": str(folder.parent)},
    )


def without_what_git_does_not_know(folder: Path) -> None:
    """Pipes and empty folders would be in the way of files that take their place."""
    for top, folders, files in os.walk(os.fsencode(folder), topdown=False):
        for name in [*files, *folders]:
            path = os.path.join(top, name)  # noqa: PTH118 - names that are no text
            mode = os.lstat(path).st_mode
            if stat.S_ISFIFO(mode):
                os.unlink(path)  # noqa: PTH108
            elif stat.S_ISDIR(mode) and not os.listdir(path):  # noqa: PTH208
                os.rmdir(path)  # noqa: PTH106


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
# A link that becomes a folder, while another link looks like it.
@example([[("link", b"l", b"a")], [("link", b"m", b"a"), ("write", b"l/a", b"")]])
def test_git_makes_each_state_of_the_one_before_by_the_printed_diff(steps: Edits) -> None:
    # `git apply` fails on a link to itself that becomes a folder.
    assume(not any(k == "link" and p.endswith(to) for step in steps for k, p, to in step))
    with TemporaryDirectory() as folder:
        top = Path(folder).resolve()
        work, home = top / "work", top / "home"
        run = Recorded(work, home)
        work.rmdir()
        for _ in play(work, steps):
            run.step()
        run.end()
        pairs = [(number, number + 1) for number in range(len(steps))]
        for before, after in [*pairs, (len(steps), 0)]:
            told = ["--from-step", str(before), "--to-step", str(after)]
            patch = call(work, home, "runs", "diff", *told).stdout
            there, goal = top / f"from-{before}", top / f"to-{after}-{before}"
            for step, into in ((before, there), (after, goal)):
                state = state_after(run.store, run.run, step).state_id
                assert state is not None
                restore_into(run.store, state, into)
            without_what_git_does_not_know(there)
            if patch:
                apply(there, patch)
            assert git_view(there) == git_view(goal)
        run.store.close()


def test_what_a_run_changed_is_summed_up(recorded: Recorded) -> None:
    found = diff_run(recorded.store, recorded.run)
    names = {operation.path: operation.op for operation in found.operations}
    assert names == {"a.txt": "delete", 'odd "name': "create", "sub/c.py": "rename"}
    # a.txt had three lines, the new file has one.
    assert found.summary == DiffSummary(1, 0, 1, 1, lines_added=1, lines_removed=3)
    assert found.names == ("before the first step", "after step 4")


def test_what_one_step_changed(recorded: Recorded) -> None:
    found = diff_run(recorded.store, recorded.run, step=1)
    assert b"".join(found.patch()).splitlines()[4:] == [
        b"@@ -1,3 +1,4 @@",
        b" 1",
        b"-2",
        b"+2b",
        b" 3",
        b"+4",
    ]
    assert diff_run(recorded.store, recorded.run, step=2).operations == ()


def test_two_steps_are_compared_in_either_direction(recorded: Recorded) -> None:
    there = diff_run(recorded.store, recorded.run, from_step=1, to_step=4)
    back = diff_run(recorded.store, recorded.run, from_step=4, to_step=1)
    assert (there.summary.created, there.summary.deleted) == (1, 1)
    assert (back.summary.created, back.summary.deleted) == (1, 1)
    assert there.summary.lines_removed == back.summary.lines_added == 4


def test_only_some_paths(recorded: Recorded) -> None:
    found = diff_run(recorded.store, recorded.run, paths=["sub"])
    assert [operation.path for operation in found.operations] == ["sub/c.py"]
    patch = b"".join(found.patch())
    assert b"rename from sub/b.py" in patch
    assert b"a.txt" not in patch


def test_hundreds_of_chosen_paths_are_all_in_the_diff(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "work", tmp_path / "home")
    run.step("for n in $(seq 650); do echo $n > $n.txt; done; echo x > x.bin")
    found = diff_run(run.store, run.run, paths=["*.txt"])
    assert b"".join(found.patch()).count(b"diff --git") == 650


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("src", "src/a/b.py", True),
        ("./src/", "src/a.py", True),
        ("src", "srcs/a.py", False),
        ("*.py", "src/a.py", True),
        ("src/*.py", "src/deep/a.py", True),
        ("conftest.py", "tests/conftest.py", True),
        ("tests/unit", "more/tests/unit/x", False),
        ("a[1].py", "a[1].py", True),
        ("/work/src", "src/a.py", True),
        ("/elsewhere", "elsewhere", False),
        (".", "anything", True),
    ],
)
def test_patterns_of_paths(pattern: str, path: str, fits: bool) -> None:
    assert PathFilter([pattern], root="/work")(path) is fits


def test_permissions_that_a_diff_cannot_say_are_told(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "work", tmp_path / "home")
    run.step("echo x > x; chmod 644 x")
    run.step("chmod 600 x")
    run.step("chmod 755 x")
    run.step("mkdir empty")
    complete = [diff_run(run.store, run.run, step=step).complete for step in (1, 2, 3, 4)]
    assert complete == [True, False, True, False]


# --- Which state is meant -----------------------------------------------------------------


def test_a_part_that_ends_before_its_whole_belongs_to_it(tmp_path: Path) -> None:
    """Step 1 lasts from 1 to 9 s and has two parts; only those have states."""
    run = Recorded(tmp_path / "work", tmp_path / "home")
    states = []
    for name in "ab":
        (run.workspace / name).write_text(name)
        states.append(run.state())
    store = run.store
    store.runs.add_events(
        [
            event("step_started", 10, id="whole"),
            event("step_started", 11, id="one", parent_id="whole"),
            event("state", 12, step_id="one", state_id=states[0]),
            event("step_ended", 12, id="one"),
            event("step_started", 13, id="two", parent_id="whole"),
            event("state", 14, step_id="two", state_id=states[1]),
            event("step_ended", 14, id="two"),
            event("step_ended", 19, id="whole"),
        ]
    )
    known = StatesOfRun.of(store, run.run)
    assert [known.after(step).state_id for step in (1, 2, 3)] == [states[1], states[0], states[1]]
    assert known.after(1).step_number == 3
    assert known.before(1).state_id == run.run.base_state
    assert known.before(3).state_id == states[0]


def test_an_unfinished_step_has_the_files_that_were_known_at_its_end(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "work", tmp_path / "home")
    run.step("echo x > x")
    run.tell("step_started", id="unfinished")
    assert state_after(run.store, run.run, 2).step_number == 1


def test_what_is_shown_is_what_would_be_restored(tmp_path: Path) -> None:
    """A look that failed leaves nothing known, and a step that goes on has what its parts left."""
    run = Recorded(tmp_path / "work", tmp_path / "home")
    run.step("echo a > a")
    run.tell("step_started", id="dark")
    run.tell("state", step_id="dark", state_quality="missing", state_reason="too slow")
    run.tell("step_ended", id="dark")
    run.tell("step_started", id="whole")
    run.step("echo b > b", parent_id="whole")
    run.tell("step_started", id="after")
    known = StatesOfRun.of(run.store, run.run)
    with run.store.runs.overview() as overview:
        assert overview is not None
        lines = StepLines(overview, run.run)
        steps = {step.number: step for step in lines.outline}
        shown = [(lines.states.before(steps[n]), lines.states.after(steps[n])) for n in steps]
    restored = [(known.before(number), known.after(number)) for number in steps]
    for views, states in zip(shown, restored, strict=True):
        assert [(one.state_id, one.quality, one.step_number) for one in views] == [
            tuple(one[:3]) for one in states
        ]
    (first, _), (_, dark), (whole, went_on), (_, part), (after, _) = shown
    assert first.state_id == run.run.base_state
    assert (dark.state_id, whole.state_id, whole.quality) == (None, None, "missing")
    assert went_on == part == after


def test_a_state_of_the_start_counts_for_what_another_changed(tmp_path: Path) -> None:
    """Between the steps somebody wrote a file: it is no change of step 2."""
    run = Recorded(tmp_path / "work", tmp_path / "home")
    run.step("echo x > x")
    (run.workspace / "foreign").write_text("f")
    run.tell("step_started", id="second")
    run.tell("state", step_id="second", when="start", state_id=run.state())
    (run.workspace / "own").write_text("o")
    run.tell("state", step_id="second", state_id=run.state())
    run.tell("step_ended", id="second")
    found = diff_run(run.store, run.run, step=2)
    assert [operation.path for operation in found.operations] == ["own"]


def test_missing_states_are_told(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "work", tmp_path / "home")
    run.step("echo x > x")
    run.tell("step_started", id="hasty")
    run.tell("state", step_id="hasty", state_quality="missing", state_reason="not done within 2 s")
    run.tell("step_ended", id="hasty")
    with pytest.raises(RepoTraceError, match=r"after step 2 .* not kept: not done within 2 s"):
        diff_run(run.store, run.run, to_step=2)
    found = diff_run(run.store, run.run)
    assert found.names[1] == "after step 1"
    assert found.cut_short is not None
    assert found.cut_short.reason == "not done within 2 s"


def test_a_run_without_states_says_so(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "work", tmp_path / "home", base=False)
    run.step(keep=False)
    with pytest.raises(RepoTraceError, match=r"before the first step .* not kept") as caught:
        diff_run(run.store, run.run)
    assert "repotrace runs show" in (caught.value.hint or "")
    with pytest.raises(RunNotFound, match="no step 5; it has the steps 1 to 1"):
        diff_run(run.store, run.run, step=5)
