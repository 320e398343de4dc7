"""Rollouts of Codex: `<home>/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, also packed as `.zst`.

Each thread has a file of its own. What the sub-agents of a session did comes with it: in the steps
that started them, or as runs that name its run where no step tells of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from repotrace.importers import codex_threads as threads
from repotrace.importers.building import below, moment_of, tolerant
from repotrace.importers.codex_session import NAME, Rollout
from repotrace.importers.codex_threads import main
from repotrace.importers.lines import Damage, Progress, first_objects, ignore, json_lines
from repotrace.records.events import Event

__all__ = ["NAME", "main", "read", "sniff"]

type Record = dict[str, Any]


def sniff(head: bytes, path: Path) -> bool:
    """Whether the first records are those of a rollout, of whichever age."""
    del path
    for number_, record in enumerate(first_objects(head, 5)):
        payload = record.get("payload")
        if record.get("type") == "session_meta" and isinstance(payload, dict):
            return "id" in payload or "session_id" in payload
        flat = "type" not in record and ("instructions" in record or "git" in record)
        if number_ == 0 and flat and "id" in record and "timestamp" in record:
            return True
    # The first record may be longer than what is looked at.
    start = head.lstrip()[:400]
    return start.startswith(b"{") and b'"type":"session_meta"' in start.replace(b'": "', b'":"')


def read(path: Path, *, progress: Progress = ignore) -> Iterator[Event]:
    """The events of a rollout, and of the sub-agents that it started."""
    for group in threads.groups(main(path)):
        yield from _run(group, progress)


def _run(group: threads.Group, progress: Progress) -> Iterator[Event]:
    """The events of one run: a rollout with those of the sub-agents that it tells of."""
    damage = Damage()
    session = Rollout(group.path, damage)
    if not group.parts:
        for number_, record in enumerate(json_lines(group.path, damage, progress=progress)):
            kind = str(record.get("type"))
            yield from tolerant(session.builder, str(number_), kind, record, session.take(record))
        yield from session.end()
        return
    known = {group.id: session}
    for head in group.parts:
        known[head.id] = Rollout(head.path, damage, within=known[head.parent], name=head.id)
    for name, calls in group.calls.items():
        known[name].parts = {call: known[part] for call, part in calls.items()}
    own = _records(session, 0, damage, progress)
    parts = [_records(known[head.id], head.time, damage, progress) for head in group.parts]
    # Its beginning is that of the run, whatever the clock said.
    first = list(islice(own, 2))
    merged = heapq.merge(own, *parts, key=lambda item: item[0])
    for number_, (_, told, rollout) in enumerate(chain(first, merged)):
        if told is not None:
            step_id = rollout.turn(told)
            made = rollout.take(told)
            made = tolerant(session.builder, str(number_), str(told.get("type")), told, made)
            yield from below(step_id, made) if step_id else made
    yield from session.end(list(known.values())[1:])


def _records(
    rollout: Rollout, begin: int, damage: Damage, progress: Progress
) -> Iterator[tuple[int, Record | None, Rollout]]:
    """The records of a file with times that never go back; it is opened when its time comes."""
    yield begin, None, rollout
    time = begin
    for record in json_lines(rollout.path, damage, progress=progress):
        time = max(time, moment_of(record.get("timestamp")) or 0)
        yield time, record, rollout
