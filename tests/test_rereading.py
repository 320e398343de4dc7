"""A transcript is gone through twice: from memory, or where it is too long for that, again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from importing import ALL, CLAUDE

from repotrace.errors import ImportFailed
from repotrace.importers import detect
from repotrace.records.events import Event
from repotrace.runs.transcripts.rereading import Reading


def gone_through(path: Path) -> tuple[list[Event], list[Event], int]:
    """The events of both readings, and all bytes that were told of."""
    told: list[int] = []
    read = Reading(detect(path), path, told.append)
    return list(read.first()), list(read.again()), sum(told)


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name[:20])
def test_what_was_said_is_not_changed_by_what_follows(path: Path) -> None:
    events, when_said = [], []
    for event in detect(path).read(path):
        events.append(event)
        when_said.append(json.dumps(event))
    assert [json.dumps(event) for event in events] == when_said


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name[:20])
def test_both_times_the_same_is_told(path: Path) -> None:
    first, again, _ = gone_through(path)
    assert first
    assert again == first


def test_a_usual_session_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(CLAUDE.read_bytes())
    read = Reading(detect(path), path, lambda _size: None)
    first = list(read.first())
    path.unlink()
    assert list(read.again()) == first


def test_a_very_long_session_is_not_kept_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    filling = json.dumps({"type": "summary", "summary": "x" * 999_000}).encode()
    path.write_bytes(CLAUDE.read_bytes().rstrip() + b"\n" + b"\n".join([filling] * 40) + b"\n")
    with path.open("ab") as lines:
        prompt = json.loads(CLAUDE.read_bytes().splitlines()[1])
        lines.write(json.dumps(prompt | {"uuid": "said after it"}).encode() + b"\n")
    first, again, told = gone_through(path)
    assert again == first
    assert told == 2 * path.stat().st_size

    read = Reading(detect(path), path, lambda _size: None)
    list(read.first())
    path.unlink()
    with pytest.raises(ImportFailed):
        list(read.again())
