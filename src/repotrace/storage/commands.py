"""A command of a step, in the columns of its row and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from repotrace.readable import shell_line
from repotrace.records.command import CommandRun, Output
from repotrace.records.trace import STREAMS
from repotrace.storage.rows import Unusable, integer
from repotrace.storage.texts import Cell, read, read_json, to_json

if TYPE_CHECKING:
    import sqlite3

_ENDINGS = frozenset({"exit_code", "signal", "termination", "spawn_errno"})


def command_facts(data: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a `command` event sets. Raises Unusable for one that tells of none."""
    given = data.get("command")
    if not isinstance(given, dict):
        raise Unusable("no command")
    fields = dict(given)
    for stream in STREAMS:
        if isinstance(fields.get(stream), str):
            head = fields[stream].encode("utf-8", "surrogatepass")
            fields[stream] = Output.of(head)
    try:
        run = CommandRun.model_validate(fields)
    except (ValidationError, ValueError) as error:
        raise Unusable("an unreadable command") from error
    kept = run.model_dump(mode="json", exclude_defaults=True)
    facts: dict[str, Any] = {"command_line": shell_line(run), "duration": run.duration}
    for stream in STREAMS:
        output: Output = getattr(run, stream)
        for end in ("head", "tail"):
            data_of_end: bytes = getattr(output, end)
            facts[f"{stream}_{end}"] = data_of_end or None
            kept.get(stream, {}).pop(end, None)
    facts["record"] = to_json(kept)
    if integer(data.get("exit_code")) is None and not _ENDINGS.isdisjoint(given):
        facts["exit_code"] = run.shell_code
    return facts


def load_command(
    connection: sqlite3.Connection, record: Cell, ends: Mapping[str, Cell]
) -> CommandRun:
    """The command whose row holds `record` and, by column, the ends of its streams."""
    fields = read_json(connection, record, {})
    for stream in STREAMS:
        parts = {end: read(connection, ends[f"{stream}_{end}"]) for end in ("head", "tail")}
        kept = {end: part for end, part in parts.items() if part}
        if kept or stream in fields:
            fields[stream] = {**fields.get(stream, {}), **kept}
    return CommandRun.model_validate(fields)
