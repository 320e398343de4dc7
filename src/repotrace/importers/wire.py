"""Traffic between agents and their providers: `Exchange` records as they come, or a log of them.

A log has one JSON object a line: `time` in seconds, `method`, `path`, `request_headers`, `request`,
`status`, and the response as `response`, as `response_text`, or as `events` of a stream, each with
the seconds at which it came; `complete` is false where the connection broke.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from repotrace.errors import ImportFailed
from repotrace.importers.building import Builder, moment_of, tolerant
from repotrace.importers.lines import Damage, Progress, first_objects, ignore, json_lines
from repotrace.importers.wire_requests import api_of
from repotrace.importers.wire_streams import Payloads, payloads
from repotrace.importers.wire_traffic import SOURCE, Got, Sent, Traffic
from repotrace.proxy.exchange import Exchange
from repotrace.records.events import Event

NAME = SOURCE

type Record = dict[str, Any]


def sniff(head: bytes, path: Path) -> bool:
    """Whether the first lines are exchanges, at least one of them with a model."""
    del path
    for record in first_objects(head):
        if not {"method", "path", "status"} <= record.keys():
            return False
        if api_of(str(record["method"]), str(record["path"])) is not None:
            return True
    # The first request may be longer than what is looked at.
    start = head.lstrip()[:2000]
    return start.startswith(b'{"time"') and b'"method"' in start and b'"request_headers"' in start


def read(path: Path, *, progress: Progress = ignore) -> Iterator[Event]:
    """The events of a log."""
    damage = Damage()
    traffic = Traffic()
    for number, record in enumerate(json_lines(path, damage, progress=progress)):
        if not {"method", "path"} <= record.keys():
            damage.count("line")
            continue
        builder = traffic.runs[-1].builder if traffic.runs else None
        yield from tolerant(
            builder, str(number), "exchange", record, exchanged(traffic, number, record)
        )
    if not traffic.runs:
        raise ImportFailed(f"{path} holds no request to a model.")
    _add(traffic.runs[0].builder, damage)
    yield from traffic.ended()


def _add(builder: Builder, damage: Damage) -> None:
    own = builder.damage
    own.broken, own.torn = damage.broken, damage.torn
    for kind, count in damage.unknown.items():
        own.unknown[kind] = own.unknown.get(kind, 0) + count


def exchanged(traffic: Traffic, number: int, record: Record) -> Iterator[Event]:
    """The events of a line of a log."""
    time = moment_of(record.get("time")) or 0
    heads = record.get("request_headers")
    headers = {str(k).lower(): str(v) for k, v in heads.items()} if isinstance(heads, dict) else {}
    name = str(number)
    yield from traffic.asked(
        Sent(
            name,
            time,
            str(record["method"]),
            str(record["path"]),
            headers,
            record.get("request"),
        )
    )
    yield from traffic.answered(_logged(name, time, record))


def _logged(name: str, time: int, record: Record) -> Got:
    seconds, status = record.get("seconds"), record.get("status")
    seconds = float(seconds) if isinstance(seconds, int | float) else 0.0
    events, first = record.get("events"), None
    if isinstance(events, list):
        values = [e[1] if isinstance(e, list) and len(e) == 2 else e for e in events]
        if events and isinstance(events[0], list) and isinstance(events[0][0], int | float):
            first = float(events[0][0])
        found = Payloads([value for value in values if value != "[DONE]"], streamed=True)
    elif "response_text" in record:
        found = payloads(str(record["response_text"]).encode("utf-8", "replace"))
    else:
        found = Payloads([record["response"]] if record.get("response") is not None else [])
    return Got(
        name,
        time + int(seconds * 1e6) * 1000,
        status if isinstance(status, int) else None,
        found,
        complete=record.get("complete") is not False,
        raw=json.dumps(found.values, ensure_ascii=False, default=str) if found.values else "",
        first_byte=first,
        duration=seconds,
    )


def sent_of(exchange: Exchange) -> Sent:
    """The request of an exchange."""
    try:
        body: Any = json.loads(exchange.request)
    except (ValueError, RecursionError):
        body = exchange.request.decode("utf-8", "replace")
    heads = exchange.request_headers
    return Sent(exchange.id, exchange.time, exchange.method, exchange.path, heads, body)


def got_of(exchange: Exchange) -> Got:
    """The response of an exchange that has ended."""
    heads = exchange.response_headers
    seconds = exchange.duration or 0.0
    return Got(
        exchange.id,
        exchange.time + int(seconds * 1e9),
        exchange.status,
        payloads(exchange.response, heads.get("content-type", "")),
        complete=exchange.complete,
        raw=exchange.response.decode("utf-8", "replace"),
        error=exchange.error,
        headers=heads,
        first_byte=exchange.first_byte,
        duration=exchange.duration,
    )
