"""Two sections of a report in Markdown: the metadata as values, the events with their output."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from repotrace.markdown import code_span, details, fence, inline, list_item, output
from repotrace.readable import one_line, readable, truncate
from repotrace.records.trace import STREAMS

_INLINE = 200
"""Characters that a value or an output may have and still stand in its line."""
_FEW = 20
"""Entries of a nested value above which it is folded away."""
_STRETCHES = 20
"""Changes between stdout and stderr above which each of them is shown whole."""
_DEEPEST = 4
_FIRST = ("cwd", "exit_code")
_LAST = ("events", "environment")
_ELSEWHERE = ("command_run", "schema_version")


def metadata_lines(metadata: Mapping[str, Any], facts: Iterable[tuple[str, str]]) -> list[str]:
    """A list of `metadata` by value, and of the `facts` of its command run among it."""
    others = sorted(set(metadata) - {*_FIRST, *_LAST, *_ELSEWHERE})
    lines: list[str] = []
    for key in _FIRST:
        lines += _value_lines(key, metadata.get(key))
    lines += [list_item(name, inline(value)) for name, value in facts]
    for key in others:
        lines += _value_lines(key, metadata[key])
    for key in _LAST:
        value = metadata.get(key)
        if key == "environment" and isinstance(value, dict) and "cwd" in value:
            same = value["cwd"] == metadata.get("cwd")
            value = {name: item for name, item in value.items() if name != "cwd" or not same}
        counted = key == "events" and isinstance(value, list) and value
        lines += _value_lines(key, len(value) if counted and value else value)
    return lines or ["_No metadata._"]


def _value_lines(key: str, value: object, depth: int = 0) -> list[str]:
    """One list item for `value`, with its own list where it is nested; none for nothing."""
    if value is None or value in ("", [], {}):
        return []
    if isinstance(value, dict) and depth < _DEEPEST:
        return _mapping_lines(key, value, depth)
    if isinstance(value, list):
        return _sequence_lines(key, value)
    text = value if isinstance(value, str) else _as_json(value)
    return [list_item(key, inline(truncate(one_line(text), 5 * _INLINE)))]


def _mapping_lines(key: str, value: Mapping[str, Any], depth: int) -> list[str]:
    if len(value) > _FEW or key == "variables":
        text = "\n".join(f"{name}={_plain(item)}" for name, item in value.items())
        return _folded(key, len(value), text)
    nested = [
        line for name, item in value.items() for line in _value_lines(str(name), item, depth + 1)
    ]
    return [f"- **{inline(key)}:**", *_indented(nested, 2)] if nested else []


def _sequence_lines(key: str, value: Sequence[Any]) -> list[str]:
    texts = [one_line(_plain(item)) for item in value]
    line = ", ".join(texts)
    if len(texts) <= _FEW and len(line) <= _INLINE:
        return [list_item(key, inline(line))]
    return _folded(key, len(texts), "\n".join(texts))


def _folded(key: str, count: int, text: str) -> list[str]:
    block = details(f"{key}: {count} entries", fence(readable(text), "text"))
    return [list_item(key, str(count)), "", *_indented(block, 2), ""]


def _plain(item: object) -> str:
    return item if isinstance(item, str) else _as_json(item)


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _indented(lines: Iterable[str], width: int) -> list[str]:
    return [f"{' ' * width}{line}" if line else "" for line in lines]


@dataclass(frozen=True, slots=True)
class _Event:
    index: object
    kind: str
    message: str


def event_lines(events: object) -> list[str]:
    """A numbered list of `events`; stretches of one stream that follow each other are one."""
    found = [_event(item) for item in events] if isinstance(events, list | tuple) else []
    merged = _merged(found)
    if sum(event.kind in STREAMS for event in merged) > _STRETCHES:
        merged = _by_stream(merged)
    lines: list[str] = []
    for event in merged:
        lines += _lines_of(event)
    return lines or ["_No events recorded._"]


def _event(item: object) -> _Event:
    """An event from a mapping or from a record."""
    fields = item if isinstance(item, dict) else getattr(item, "__dict__", {})
    return _Event(fields.get("index"), str(fields.get("kind", "?")), str(fields.get("message", "")))


def _merged(events: Iterable[_Event]) -> list[_Event]:
    merged: list[_Event] = []
    for event in events:
        if merged and event.kind in STREAMS and merged[-1].kind == event.kind:
            last = merged.pop()
            event = _Event(last.index, last.kind, last.message + event.message)
        merged.append(event)
    return merged


def _by_stream(events: Sequence[_Event]) -> list[_Event]:
    """`events` with all of a stream up to a cut at the place of its first part."""
    result: list[_Event] = []
    places: dict[str, int] = {}
    for event in events:
        if event.kind in STREAMS and event.kind in places:
            first = result[places[event.kind]]
            whole = _Event(first.index, first.kind, first.message + event.message)
            result[places[event.kind]] = whole
            continue
        if event.kind in STREAMS:
            places[event.kind] = len(result)
        elif event.kind == "cut":
            places.clear()
        result.append(event)
    return result


def _lines_of(event: _Event) -> list[str]:
    number = "" if event.index is None else f"{one_line(str(event.index))}. "
    head = f"- {number}{code_span(event.kind)}:"
    text = readable(event.message).strip("\n")
    if "\n" not in text and len(text) <= _INLINE and not text.startswith((" ", "\t")):
        return [f"{head} {inline(text)}".rstrip()]
    if event.kind not in STREAMS:
        return [head, "", *_indented(fence(text), 2 + len(number)), ""]
    return [head, "", *_indented(output(text, event.kind), 2 + len(number)), ""]
