"""File operations derived from states: the right step gets each change, as git sees it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recording import RUN, event, step

from repotrace.storage import Store


class Recorder:
    """Takes states of a folder and tells of them, as a recording program does."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.events: list[Any] = [event("run_started", 0)]

    def state(self, seconds: float, step_id: str | None = None, when: str = "end") -> str:
        taken = self.store.snapshots.take(self.folder, ref=f"runs/{RUN}")
        assert taken.state_id
        facts = {"step_id": step_id} if step_id else {}
        self.events.append(event("state", seconds, state_id=taken.state_id, when=when, **facts))
        return taken.state_id

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def changes(self) -> dict[str, list[tuple[str, str]]]:
        """What each step did, after all was taken in."""
        self.store.runs.add_events(self.events)
        self.events.clear()
        found: dict[str, list[tuple[str, str]]] = {}
        for item in self.store.runs.operations(RUN):
            found.setdefault(item.step_id, []).append((item.operation_type, item.file_path))
        return {name: sorted(changes) for name, changes in found.items()}


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    folder = tmp_path / "work"
    folder.mkdir()
    store = Store(tmp_path / "home")
    yield Recorder(store, folder)
    store.close()


def test_each_step_gets_what_it_changed(recorder: Recorder) -> None:
    recorder.write(a="1\n", b="1\n")
    recorder.state(0.5)
    recorder.events += step("s1", 1, 2)
    recorder.write(a="1\n2\n", c="new\n")
    recorder.state(2, "s1")
    recorder.events += step("s2", 3, 4)
    (recorder.folder / "b").unlink()
    recorder.state(4, "s2")
    assert recorder.changes() == {
        "s1": [("create", "c"), ("edit", "a")],
        "s2": [("delete", "b")],
    }
    edit = recorder.store.runs.operations(RUN, "s1", path="a")[0]
    assert (edit.content_before, edit.content_after) == ("1\n", "1\n2\n")
    assert (edit.lines_added, edit.lines_removed, edit.origin) == (1, 0, "observed")
    assert recorder.store.runs.get(RUN).totals.files_modified == 3


def test_a_rename_is_a_linked_delete_and_create(recorder: Recorder) -> None:
    recorder.write(old="1\n2\n3\n4\n")
    recorder.state(0.5)
    recorder.events += step("s1", 1, 2)
    (recorder.folder / "old").rename(recorder.folder / "new")
    recorder.write(new="1\n2\n3\n4\n5\n")
    recorder.state(2, "s1")
    assert recorder.changes() == {"s1": [("create", "new"), ("delete", "old")]}
    created = recorder.store.runs.operations(RUN, path="new")[0]
    assert created.renamed_from == "old"
    assert created.content_after == "1\n2\n3\n4\n5\n"
    assert recorder.store.runs.operations(RUN, path="old")[0].content_before == "1\n2\n3\n4\n"


def test_a_parent_owns_what_its_children_did_not_do(recorder: Recorder) -> None:
    recorder.state(0.5, "parent", "start")
    recorder.events += step("parent", 0.4, 9)
    recorder.write(before="x")
    recorder.state(2, "child", "start")
    recorder.events += step("child", 2, 4, parent_id="parent")
    recorder.write(inside="x")
    recorder.state(4, "child")
    recorder.write(after="x")
    recorder.state(9, "parent")
    assert recorder.changes() == {
        "parent": [("create", "after"), ("create", "before")],
        "child": [("create", "inside")],
    }
    assert not any(step.ambiguous for step in recorder.store.runs.steps(RUN))


def test_steps_that_overlap_are_ambiguous(recorder: Recorder) -> None:
    recorder.state(1, "one", "start")
    recorder.state(2, "two", "start")
    recorder.events += [*step("one", 1, 5), *step("two", 2, 6)]
    recorder.write(a="x")
    recorder.state(5, "one")
    recorder.write(b="x")
    recorder.state(6, "two")
    recorder.events += step("three", 7, 8)
    recorder.write(c="x")
    recorder.state(8, "three")
    assert recorder.changes() == {
        "one": [("create", "a")],
        "two": [("create", "b")],
        "three": [("create", "c")],
    }
    marked = {item.id for item in recorder.store.runs.steps(RUN) if item.ambiguous}
    assert marked == {"one", "two"}


def test_a_change_that_shows_at_a_start_belongs_to_the_step_that_was_going_on(
    recorder: Recorder,
) -> None:
    recorder.state(1, "one", "start")
    recorder.write(a="x")
    recorder.state(2, "two", "start")
    recorder.state(3, "two")
    recorder.state(5, "one")
    recorder.events += [*step("one", 1, 5), *step("two", 2, 3)]
    assert recorder.changes() == {"one": [("create", "a")]}


def test_what_no_step_did_is_an_external_step(recorder: Recorder) -> None:
    recorder.state(0.5)
    recorder.events += step("s1", 1, 2)
    recorder.state(2, "s1")
    recorder.write(a="x")
    recorder.state(5, "s2", "start")
    recorder.events += step("s2", 5, 6)
    recorder.state(6, "s2")
    changes = recorder.changes()
    (outsider,) = changes
    assert changes[outsider] == [("create", "a")]
    found = recorder.store.runs.step(RUN, outsider)
    assert (found.step_type, found.status) == ("external", "completed")


def test_a_step_that_was_broken_off_made_the_next_change(recorder: Recorder) -> None:
    recorder.state(1, "dead", "start")
    recorder.events += [
        *step("dead", 1),
        event("step_updated", 1.5, id="dead", status="interrupted"),
    ]
    recorder.write(a="x")
    recorder.state(4, "next", "start")
    recorder.write(b="x")
    recorder.state(6, "next")
    recorder.events += step("next", 4, 6)
    assert recorder.changes() == {"dead": [("create", "a")], "next": [("create", "b")]}


def test_what_was_seen_replaces_what_was_told(recorder: Recorder) -> None:
    recorder.state(0.5)
    recorder.events += step("s1", 1, 3)
    told = {"operation_type": "create", "origin": "claimed"}
    recorder.events.append(event("file_operation", 2, step_id="s1", file_path="a", **told))
    recorder.events.append(event("file_operation", 2, step_id="s1", file_path="/out", **told))
    recorder.write(a="x")
    recorder.state(3, "s1")
    assert recorder.changes() == {"s1": [("create", "/out"), ("create", "a")]}
    origins = {item.file_path: item.origin for item in recorder.store.runs.operations(RUN)}
    assert origins == {"a": "observed", "/out": "claimed"}
    assert {hit.field for hit in recorder.store.runs.search("out")} == {"file_path"}


def test_reading_in_pieces_gives_the_same(recorder: Recorder, tmp_path: Path) -> None:
    """A run that is watched while it goes on."""
    recorder.state(0.5)
    pieces = []
    for number in range(1, 6):
        name = f"s{number}"
        recorder.events += step(name, number, number + 0.5)
        recorder.write(**{f"file{number}": "x", "same": str(number)})
        recorder.state(number + 0.5, name)
        pieces.append(list(recorder.events))
        recorder.changes()
    expected = {
        f"s{n}": sorted([("create", f"file{n}"), ("create" if n == 1 else "edit", "same")])
        for n in range(1, 6)
    }
    assert recorder.changes() == expected

    again = Store(tmp_path / "other")
    states = recorder.store.snapshots
    again.__dict__["snapshots"] = states
    again.runs.add_events(item for piece in pieces for item in piece)
    assert len(again.runs.operations(RUN)) == 10


def test_many_states_are_derived_in_several_transactions(recorder: Recorder) -> None:
    recorder.state(0.5)
    for number in range(1, 131):
        recorder.events += step(f"s{number}", number, number + 0.5)
        recorder.write(same=str(number))
        recorder.state(number + 0.5, f"s{number}")
    changes = recorder.changes()
    assert len(changes) == 130
    assert all(len(found) == 1 for found in changes.values())


def test_states_that_are_not_there_cost_only_their_own_changes(recorder: Recorder) -> None:
    recorder.state(0.5)
    recorder.events += step("s1", 1, 2)
    recorder.events.append(event("state", 2, step_id="s1", state_id="0" * 40))
    recorder.events += step("s2", 3, 4)
    recorder.write(a="x")
    recorder.state(3, "s2", "start")
    recorder.write(a="y")
    recorder.state(4, "s2")
    assert recorder.changes() == {"s2": [("edit", "a")]}
