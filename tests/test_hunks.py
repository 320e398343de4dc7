"""Hunks against git: what is applied, what is undone, and what conflicts."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stepping import Recorded

from repotrace.blame import Subject
from repotrace.runs.testing.hunks import (
    Unfitting,
    hunks_between,
    merged,
    split_lines,
    with_hunks,
)
from repotrace.runs.testing.subjects import Subjects, is_lock_file, is_test_file, shown_hunk

LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n"]), max_size=12)


@given(old=LINES, new=LINES)
def test_all_hunks_make_the_new_text(old: list[bytes], new: list[bytes]) -> None:
    hunks = hunks_between(old, new)
    assert with_hunks(old, hunks) == new
    assert with_hunks(old, []) == old
    ends = [(one.start, one.end) for one in hunks]
    assert all(left[1] < right[0] for left, right in pairwise(ends))


@given(data=st.binary(max_size=60))
def test_lines_join_to_what_they_were(data: bytes) -> None:
    assert b"".join(split_lines(data)) == data


@given(base=LINES, ours=LINES, theirs=LINES)
def test_what_a_merge_must_be(base: list[bytes], ours: list[bytes], theirs: list[bytes]) -> None:
    assert merged(base, ours, base) == ours
    assert merged(base, base, theirs) == theirs
    assert merged(base, theirs, theirs) == theirs
    try:
        there = merged(base, ours, theirs)
    except Unfitting:
        with pytest.raises(Unfitting):
            merged(base, theirs, ours)
    else:
        assert merged(base, theirs, ours) == there


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    base=st.integers(6, 30),
    ours=st.sets(st.integers(0, 29), max_size=4),
    theirs=st.sets(st.integers(0, 29), max_size=4),
)
def test_merges_as_git_does(tmp_path: Path, base: int, ours: set[int], theirs: set[int]) -> None:
    """Lines that all differ, so that there is one way to compare them."""
    texts = {
        name: [
            f"{name if number in changed else 'line'} {number}\n".encode() for number in range(base)
        ]
        for name, changed in (("base", set[int]()), ("ours", ours), ("theirs", theirs))
    }
    for name, lines in texts.items():
        (tmp_path / name).write_bytes(b"".join(lines))
    done = subprocess.run(
        ["git", "merge-file", "-p", "ours", "base", "theirs"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    if done.returncode == 0:
        assert b"".join(merged(texts["base"], texts["ours"], texts["theirs"])) == done.stdout
    else:
        with pytest.raises(Unfitting):
            merged(texts["base"], texts["ours"], texts["theirs"])


def test_long_texts_are_one_hunk() -> None:
    old = [b"%d\n" % number for number in range(30_000)]
    (hunk,) = hunks_between(old, [b"x\n", *old[1:-1], b"y\n"])
    assert (hunk.start, hunk.end) == (0, 30_000)


# --- States ---------------------------------------------------------------------------------

FIRST = "".join(f"{number}\n" for number in range(20))
SECOND = FIRST.replace("3\n", "three\n", 1).replace("15\n", "fifteen\n")


@pytest.fixture
def states(tmp_path: Path) -> tuple[Recorded, Subjects, list[str]]:
    """Before; two hunks, a new file, a mode, a binary file and tests; and then more."""
    work = tmp_path / "work"
    (work / "tests").mkdir(parents=True)
    (work / "empty").mkdir()
    (work / "text").write_text(FIRST)
    (work / "data").write_bytes(b"\0one")
    (work / "run").write_text("#!/bin/sh\n")
    (work / "tests" / "test_a.py").write_text("1\n")
    run = Recorded(work, tmp_path / "home")
    found = [run.state()]
    (work / "text").write_text(SECOND)
    (work / "new").write_text("new\n")
    (work / "data").write_bytes(b"\0two")
    (work / "run").chmod(0o755)
    (work / "tests" / "test_a.py").write_text("2\n")
    (work / "tests" / "extra.txt").write_text("x\n")
    found.append(run.state())
    (work / "text").write_text(SECOND.replace("10\n", "ten\n"))
    found.append(run.state())
    return run, Subjects(run.store.snapshots), found


def test_hunks_of_a_step_on_states(states: tuple[Recorded, Subjects, list[str]]) -> None:
    run, subjects, (before, after, end) = states
    read = run.store.snapshots.read
    changes = subjects.changes(before, after, tests=False)
    assert [(one.path, one.number) for one in changes] == [
        ("data", None),
        ("new", None),
        ("run", None),
        ("text", 0),
        ("text", 1),
    ]
    by_name = {f"{one.path}{one.number}": one.id for one in changes}
    second = by_name["text1"]
    made = subjects.state_of(Subject(before, "", (second,)))
    assert read(made, "text") == FIRST.replace("15\n", "fifteen\n").encode()
    assert read(made, "new") is None
    assert "empty" in {entry.path for entry in run.store.snapshots.list(made)}
    undone = subjects.state_of(Subject(end, "", (), (second, by_name["newNone"])))
    expected = FIRST.replace("3\n", "three\n", 1).replace("10\n", "ten\n")
    assert read(undone, "text") == expected.encode()
    assert read(undone, "new") is None
    assert subjects.state_of(Subject(before, "", tuple(one.id for one in changes))) != after
    everything = tuple(one.id for one in subjects.changes(before, after))
    made = subjects.state_of(Subject(before, "", everything))
    assert not run.store.snapshots.operations(made, after)
    lines = shown_hunk(subjects.change(second), split_lines(FIRST.encode()))
    assert lines == ["@@ -16,1 +16,1 @@", "-15", "+fifteen"]


def test_tests_of_another_state(states: tuple[Recorded, Subjects, list[str]]) -> None:
    run, subjects, (before, after, end) = states
    made = subjects.state_of(Subject(before, after))
    assert run.store.snapshots.read(made, "tests/test_a.py") == b"2\n"
    assert run.store.snapshots.read(made, "tests/extra.txt") == b"x\n"
    assert run.store.snapshots.read(made, "text") == FIRST.encode()
    made = subjects.state_of(Subject(end, before))
    assert run.store.snapshots.read(made, "tests/extra.txt") is None
    assert subjects.overlay(before, after) == ["tests/extra.txt", "tests/test_a.py"]
    assert subjects.tests_of(after) == subjects.tests_of(end) != subjects.tests_of(before)
    assert subjects.state_of(Subject(end, after)) == end


def test_what_changed_again_cannot_be_undone(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "text").write_text(FIRST)
    run = Recorded(work, tmp_path / "home")
    before = run.state()
    (work / "text").write_text(SECOND)
    after = run.state()
    (work / "text").write_text(SECOND.replace("fifteen\n", "XV\n"))
    end = run.state()
    subjects = Subjects(run.store.snapshots)
    first, second = subjects.changes(before, after)
    with pytest.raises(Unfitting):
        subjects.state_of(Subject(end, "", (), (second.id,)))
    made = subjects.state_of(Subject(end, "", (), (first.id,)))
    assert run.store.snapshots.read(made, "text") == FIRST.replace("15\n", "XV\n").encode()


@pytest.mark.parametrize(
    ("path", "belongs"),
    [
        ("tests/data/x.json", True),
        ("conftest.py", True),
        ("src/test_a.py", True),
        ("pkg/a_test.go", True),
        ("web/a.spec.ts", True),
        ("src/a.py", False),
        ("src/contest.py", False),
        ("latest/a.py", False),
    ],
)
def test_files_of_tests(path: str, belongs: bool) -> None:
    assert is_test_file(path) is belongs


def test_files_that_lock_packages() -> None:
    assert is_lock_file("uv.lock")
    assert is_lock_file("deep/dev-requirements.txt")
    assert is_lock_file("requirements/requirements-test.txt")
    assert not is_lock_file("requirements.md")
