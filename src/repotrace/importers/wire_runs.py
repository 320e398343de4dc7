"""What is kept of traffic while it goes on: requests, responses, runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from repotrace.importers.building import Builder, one_line
from repotrace.importers.wire_answers import Answer, called, error_of
from repotrace.importers.wire_requests import Ask, prefixed, unnamed
from repotrace.importers.wire_streams import Payloads
from repotrace.importers.wire_talks import Talk


class Sent(NamedTuple):
    """A request on its way."""

    id: str
    time: int
    """Nanoseconds since 1970."""
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    """Decoded, or the text where it is no JSON."""


class Got(NamedTuple):
    """What came back for a request."""

    id: str
    time: int
    """When it had ended."""
    status: int | None
    payloads: Payloads
    complete: bool
    raw: str = ""
    error: str | None = None
    headers: Mapping[str, str] = {}
    first_byte: float | None = None
    duration: float | None = None


class Moment(NamedTuple):
    """What the files as a request found them tell of."""

    run_id: str
    begun: str
    """The step of the turn that begins with the request."""
    changing: tuple[str, ...]
    """The steps before it that may have changed files, and are over now."""


@dataclass(slots=True)
class Run:
    """A run as it grows."""

    builder: Builder
    session: str = ""
    root: Talk | None = None
    """The conversation that is the work itself."""
    talks: list[Talk] = field(default_factory=list)
    spawning: list[tuple[str, str]] = field(default_factory=list)
    """Steps that may have started another agent, each with a text that it was given."""
    others: int = 0
    """Requests that were to no model."""


def own_name(talk: Talk, name: str) -> str:
    """The id of a call in its run; one that was given none is unique in its conversation only."""
    return f"{talk.name}{name}" if name.startswith("#") else name


def with_names(answer: Answer, ask: Ask) -> Answer:
    """The answer with the ids of calls as the next request will have them: some agents have own
    ones, and calls that have none are counted."""
    if all(call.id for call in answer.calls) and not ask.prefixes:
        return answer
    place = ask.unnamed
    calls = []
    for call in answer.calls:
        if not call.id:
            call = call._replace(id=unnamed(place))
            place += 1
        elif ask.prefixes:
            call = call._replace(id=prefixed(call.id, call.name))
        calls.append(call)
    others = [part for part in answer.parts if part["type"] != "tool_call"]
    return answer._replace(calls=calls, parts=[*others, *map(called, calls)])


def line_of(answer: Answer) -> str:
    """What an answer is called in lists."""
    words = one_line(answer.text)
    if words:
        return words
    names = ", ".join(dict.fromkeys(call.name for call in answer.calls))
    return f"calls {names}" if names else one_line(answer.thoughts) or "(no words)"


def refusal(got: Got) -> str:
    """Why a request was not answered."""
    if got.status is None:
        return got.error or "no response"
    found = got.payloads.values[0] if got.payloads.values else None
    words = error_of(found) or got.error or one_line(got.raw)
    return f"HTTP {got.status}: {words}" if words else f"HTTP {got.status}"
