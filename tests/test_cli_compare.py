"""Two runs side by side, on examples worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import project, record
from recording import event
from running import Shell, plain_git
from states import exact

from repotrace.read.views import RunComparison
from repotrace.records.events import Event
from repotrace.runs.compare import alignment, compare_runs
from repotrace.storage import Store


class Did(NamedTuple):
    """One step of a run that is made for these tests."""

    type: str
    what: str
    path: str | None = None
    after: str | None = None
    """Id of the content that it left in `path`."""
    command: str | None = None
    exit_code: int | None = 0
    tests: dict[str, str] = {}  # noqa: RUF012
    read: str | None = None


def told(run: str, *steps: Did, workspace: str = "/w") -> Iterator[Event]:
    yield event("run_started", 0, run=run, agent="a", workspace=workspace)
    for number, step in enumerate(steps, 1):
        own: dict[str, Any] = {"id": f"s{number}", "step_type": step.type, "description": step.what}
        here: dict[str, Any] = {"run": run, "step_id": f"s{number}"}
        yield event("step_started", number, run=run, **own)
        if step.path:
            change: dict[str, Any] = {
                "operation_type": "edit",
                "after_id": step.after,
                "lines_added": 1,
            }
            yield event("file_operation", number, **here, file_path=step.path, **change)
        if step.read:
            yield event("file_read", number, **here, file_path=step.read)
        if step.command:
            command: dict[str, Any] = {"argv": step.command.split()}
            if step.exit_code is not None:
                command["exit_code"] = step.exit_code
            yield event("command", number, **here, command=command)
        for node_id, outcome in step.tests.items():
            yield event("test", number, **here, node_id=node_id, outcome=outcome)
        yield event("step_ended", number + 0.5, run=run, id=f"s{number}")
    yield event("run_ended", 90, run=run)


def compared(store: Store, *runs: tuple[Did, ...], workspaces: str = "/w /w") -> RunComparison:
    for name, steps, folder in zip("ab", runs, workspaces.split(), strict=True):
        store.runs.add_events(told(f"r{name}", *steps, workspace=folder))
    return compare_runs(store, store.runs.get("ra"), store.runs.get("rb"))


def rows(found: RunComparison) -> list[tuple[int | None, int | None, tuple[str, ...]]]:
    return [
        (step.a.number if step.a else None, step.b.number if step.b else None, step.differs)
        for step in found.steps
    ]


LOOK = Did("tool", "read app/export.py")
GREP = Did("tool", "search leap")
CALL = Did("llm", "m: asks")


def edit(content: str, path: str = "app/export.py") -> Did:
    return Did("edit", f"edit {path}", path, content * 40)


def run_tests(**outcomes: str) -> Did:
    failed = int("failed" in outcomes.values())
    return Did("test", "run the tests", command="pytest -q", exit_code=failed, tests=outcomes)


def test_the_same_steps_are_the_same(store: Store) -> None:
    steps = (CALL, LOOK, edit("1"), run_tests(a="passed"))
    found = compared(store, steps, steps)
    assert rows(found) == [(2, 2, ()), (3, 3, ()), (4, 4, ())]
    assert (found.divergence, found.verdict) == (None, "same")


def test_model_calls_do_not_part_them(store: Store) -> None:
    found = compared(store, (CALL, LOOK, CALL, CALL, GREP), (LOOK, CALL, GREP))
    assert rows(found) == [(2, 1, ()), (5, 3, ())]
    assert found.divergence is None


def test_the_first_step_that_differs_is_named(store: Store) -> None:
    a = (
        LOOK,
        edit("1"),
        run_tests(x="failed", y="passed"),
        edit("2"),
        run_tests(x="passed", y="passed"),
    )
    b = (LOOK, edit("2"), run_tests(x="passed", y="passed"))
    found = compared(store, a, b)
    assert rows(found) == [
        (1, 1, ()),
        (2, 2, ("content",)),
        (3, 3, ("exit code", "tests")),
        (4, None, ()),
        (5, None, ()),
    ]
    assert found.divergence == 1


def test_what_is_not_known_is_no_difference(store: Store) -> None:
    told_nothing = Did("test", "run the tests", command="pytest -q", exit_code=None)
    found = compared(store, (run_tests(x="failed"),), (told_nothing,))
    assert rows(found) == [(1, 1, ())]


def test_a_branch_is_compared_from_its_step_on(store: Store) -> None:
    store.runs.add_events(told("ra", LOOK, GREP, edit("1"), run_tests(x="failed")))
    branch = [*told("rb", edit("2"), run_tests(x="passed"))]
    branch[0]["data"] |= {"parent_run_id": "ra", "branched_from_step": 2}
    store.runs.add_events(branch)
    a, b = store.runs.get("ra"), store.runs.get("rb")
    found = compare_runs(store, a, b)
    assert (found.branch, found.branched_from_step, found.verdict) == ("b", 2, "better")
    assert rows(found) == [(3, 1, ("content",)), (4, 2, ("exit code", "tests"))]
    back = compare_runs(store, b, a)
    assert (back.branch, back.branched_from_step, back.verdict) == ("a", 2, "worse")
    assert rows(back) == [(1, 3, ("content",)), (2, 4, ("exit code", "tests"))]


@given(
    st.lists(st.sampled_from("abcd"), max_size=30), st.lists(st.sampled_from("abcd"), max_size=30)
)
def test_as_many_steps_as_can_be_are_aligned(old: list[str], new: list[str]) -> None:
    found = alignment(old, new)
    assert all(old[a] == new[b] for a, b in found)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(found))
    table = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for a, one in enumerate(old):
        for b, other in enumerate(new):
            longest = table[a][b] + 1 if one == other else max(table[a][b + 1], table[a + 1][b])
            table[a + 1][b + 1] = longest
    assert len(found) == table[-1][-1]


def test_many_steps_that_repeat_are_aligned_soon() -> None:
    old, new = "tse" * 2000, "tes" * 2000
    assert len(alignment(old, new)) == 4000  # two of each three


def test_another_target_is_another_deed(store: Store) -> None:
    found = compared(store, (LOOK, edit("1")), (GREP, edit("1"), edit("1", "app/other.py")))
    assert rows(found) == [(1, None, ()), (None, 1, ()), (2, 2, ()), (None, 3, ())]
    assert found.divergence == 0


def test_reading_is_reading_by_whatever_tool(store: Store) -> None:
    one = Did("tool", "Read", read="app/export.py")
    other = Did("command", "look", command="cat app/export.py", read="app/export.py")
    assert rows(compared(store, (one,), (other,))) == [(1, 1, ())]


def test_folders_of_the_runs_do_not_count(store: Store) -> None:
    def ran(folder: str) -> Did:
        return Did("command", "build", command=f"make -C {folder}/app")

    found = compared(store, (ran("/one"),), (ran("/two/deep"),), workspaces="/one /two/deep")
    assert rows(found) == [(1, 1, ())]


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ({"x": "failed", "y": "passed"}, {"x": "passed", "y": "passed"}, "better"),
        ({"x": "passed"}, {"x": "failed"}, "worse"),
        ({"x": "passed", "y": "error"}, {"x": "failed", "y": "skipped"}, "mixed"),
        ({"x": "failed"}, {"x": "error"}, "same"),
        ({"x": "passed"}, {"x": "xfailed"}, "same"),
        ({"x": "failed"}, {"y": "passed"}, "unknown"),
        ({}, {"y": "passed"}, "unknown"),
    ],
)
def test_the_tests_decide(store: Store, a: dict[str, str], b: dict[str, str], verdict: str) -> None:
    assert compared(store, (run_tests(**a),), (run_tests(**b),)).verdict == verdict


def test_the_last_outcome_of_a_test_counts(store: Store) -> None:
    a = (run_tests(x="passed", y="failed", old="passed"), run_tests(x="failed"))
    b = (run_tests(x="failed", new="passed"), run_tests(x="passed", y="passed"))
    found = compared(store, a, b)

    def named(*tests: Any) -> list[str]:
        return [test.node_id for test in tests]

    assert named(*found.fixed) == ["x", "y"]
    assert (named(*found.only_a), named(*found.only_b)) == (["old"], ["new"])
    assert (found.broken, found.failing) == ((), ())


def test_the_final_files_are_compared_by_git(tmp_path: Path) -> None:
    work = project(tmp_path / "invoice")
    one = record(work, run="raaaaaaaaaaaa")
    (work / "app" / "export.py").write_bytes(b"def due(year):\n    return year + 3\n")
    (work / "logo.bin").unlink()
    end = exact(one.store.snapshots.take(work, ref="runs/rbbbbbbbbbbbb"))
    say = {"run": "rbbbbbbbbbbbb"}
    one.store.runs.add_events(
        [
            event("run_started", 0, **say, workspace=str(work)),
            event("state", 0, **say, state_id=one.states[0], state_quality="exact"),
            event("step_started", 1, **say, id="s", step_type="edit"),
            event("state", 2, **say, state_id=end, state_quality="exact", step_id="s"),
            event("step_ended", 2, **say, id="s"),
        ]
    )
    runs = one.store.runs
    found = compare_runs(one.store, runs.get("raaaaaaaaaaaa"), runs.get("rbbbbbbbbbbbb"))
    assert (found.same_start, found.same_end) == (True, False)
    assert {(file.path, file.operation) for file in found.files} == {
        ("app/export.py", "edit"),
        ("logo.bin", "delete"),
    }
    left, right = tmp_path / "left", tmp_path / "right"
    one.store.snapshots.materialise(one.states[2], left)
    one.store.snapshots.materialise(end, right)
    plain_git(left, "init", "-q")
    assert found.diff is not None
    (tmp_path / "diff").write_text(found.diff)
    plain_git(left, "apply", str(tmp_path / "diff"))
    assert (left / "app" / "export.py").read_bytes() == (right / "app" / "export.py").read_bytes()
    assert not (left / "logo.bin").exists()

    same = compare_runs(one.store, runs.get("raaaaaaaaaaaa"), runs.get("raaaaaaaaaaaa"))
    assert (same.same_end, same.files, same.divergence) == (True, (), None)


def test_states_that_were_not_kept_are_no_difference(store: Store) -> None:
    found = compared(store, (LOOK,), (LOOK,))
    assert (found.same_start, found.same_end, found.diff) == (None, None, None)


# --- The command ----------------------------------------------------------------------------


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.cwd = project(shell.cwd / "invoice")
    return shell


def test_the_command_says_where_they_part(repotrace: Shell) -> None:
    store = Store(repotrace.cwd / ".git" / "repotrace")
    compared(
        store,
        (LOOK, edit("1"), run_tests(x="failed")),
        (LOOK, edit("2"), run_tests(x="passed")),
    )
    out = repotrace("runs", "compare", "ra", "rb").stdout.decode()
    assert "B is better: 1 test fixed\n" in out
    assert "fixed      x  failed → passed" in out
    assert "They part at step 2 of A and step 2 of B: the same was done, with other content." in out
    found = json.loads(repotrace("runs", "compare", "ra", "rb", "--json").stdout)
    assert (found["schema_version"], found["divergence"]) == (1, 1)


def test_hostile_text_cannot_act(repotrace: Shell) -> None:
    store = Store(repotrace.cwd / ".git" / "repotrace")
    bad = "\x1b[31m[bold]\r\u202eevil"
    compared(store, (Did("tool", bad),), (run_tests(**{bad: "failed"}),))
    for colour in ("always", "never"):
        out = repotrace("--color", colour, "runs", "compare", "ra", "rb").stdout.decode()
        assert "\x1b[31m[bold]" not in out
        assert "\r" not in out
        assert "\u202e" not in out


def test_a_run_that_is_not_there(repotrace: Shell) -> None:
    done = repotrace("runs", "compare", "ra", "rb")
    assert done.returncode == 2
    assert b"No run matches 'ra'" in done.stderr
