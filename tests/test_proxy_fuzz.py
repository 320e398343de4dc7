"""Whatever a provider sends, in whatever pieces: the same bytes arrive, and the record is that of
the whole, or says that it is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from proxying import SSE, Kept, Provider, Reply, anthropic_pieces, chat_pieces, events, provider

from repotrace.importers.wire import got_of, sent_of
from repotrace.importers.wire_streams import payloads
from repotrace.importers.wire_traffic import Got, Sent, Traffic
from repotrace.proxy import Relay, Upstreams
from repotrace.records.events import Event, Kind

CALLS = [("call_1", "run", {"command": "é\u2028\n\r x"}), ("call_2", "read", {"path": "a.py"})]


def _responses() -> list[bytes]:
    item: dict[str, Any] = {
        "type": "function_call",
        "call_id": "call_1",
        "id": "fc_1",
        "name": "run",
        "arguments": json.dumps({"command": "é\u2028"}),
    }
    said: dict[str, Any] = {"type": "message", "role": "assistant"}
    said |= {"content": [{"type": "output_text", "text": "Größe: 日本"}]}
    usage = {"input_tokens": 4, "output_tokens": 2, "output_tokens_details": {}}
    whole = {"id": "resp_1", "object": "response", "status": "completed", "model": "m"}
    told = [
        {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": said},
        {"type": "response.output_item.done", "output_index": 1, "item": item},
        {"type": "response.completed", "response": {**whole, "output": [], "usage": usage}},
    ]
    return events(*told)


def _gemini() -> list[bytes]:
    used = {"promptTokenCount": 4, "candidatesTokenCount": 2}
    parts: list[list[dict[str, Any]]] = [
        [{"text": "Größe: "}],
        [{"text": "日本"}, {"functionCall": {"name": "run", "args": {"command": "é"}}}],
    ]
    told = []
    for place, found in enumerate(parts):
        candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": found}}
        if place:
            candidate["finishReason"] = "STOP"
        told.append({"candidates": [candidate], "usageMetadata": used, "responseId": "r-1"})
    return events(*told)


STREAMS = {
    "/v1/chat/completions": b"".join(chat_pieces("Größe: 日本\n\nx", *CALLS)),
    "/v1/messages": b"".join(anthropic_pieces("Größe: 日本\n\nx", *CALLS)),
    "/v1/responses": b"".join(_responses()),
    "/v1beta/models/g:streamGenerateContent": b"".join(_gemini()),
}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "do"}]},
    "/v1/messages": {"model": "m", "messages": [{"role": "user", "content": "do"}]},
    "/v1/responses": {"model": "m", "input": "do"},
    "/v1beta/models/g:streamGenerateContent": {
        "contents": [{"role": "user", "parts": [{"text": "do"}]}]
    },
}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Provider, Relay, Kept, httpx2.Client]]:
    kept = Kept()
    with (
        provider(Reply()) as found,
        Relay(Upstreams({"any": found.address}), on_request=kept.begun, on_exchange=kept) as relay,
        httpx2.Client(trust_env=False, timeout=20) as client,
    ):
        yield found, relay, kept, client


def _told(exchange_events: list[Event]) -> list[tuple[str, dict[str, Any]]]:
    """What events say, without what depends on the moment."""
    own = ("id", "step_id", "parent_id", "duration", "first_token", "source_id")
    return [
        (event["kind"], {k: v for k, v in event["data"].items() if k not in own})
        for event in exchange_events
    ]


def _by_hand(path: str, stream: bytes) -> list[Event]:
    """The events of a stream that came whole."""
    traffic = Traffic(agent="codex")
    sent = Sent("1", 10**18, "POST", path, {}, BODIES[path])
    got = Got("1", 10**18 + 5, 200, payloads(stream, SSE), complete=True, raw=stream.decode())
    return [*traffic.asked(sent), *traffic.answered(got), *traffic.ended()]


def _pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % len(stream) for cut in cuts} | {0, len(stream)})
    return [stream[a:b] for a, b in pairwise(places)]


def _relayed(
    served: tuple[Provider, Relay, Kept, httpx2.Client], path: str, pieces: list[bytes], **how: Any
) -> tuple[bytes, bool, list[Event]]:
    """What the agent got, whether the answer came to its end, and the events of the exchange."""
    upstream, relay, kept, client = served
    kept.forget()
    upstream.replies = [Reply(pieces, kind=SSE, **how)]
    got, whole = b"", True
    with client.stream("POST", relay.address("any") + path, json=BODIES[path]) as response:
        try:
            for chunk in response.iter_raw():
                got += chunk
        except httpx2.RemoteProtocolError:
            whole = False
    (exchange,) = kept.wait()
    traffic = Traffic(agent="codex")
    found = [*traffic.asked(sent_of(exchange)), *traffic.answered(got_of(exchange))]
    return got, whole, [*found, *traffic.ended()]


FUZZ = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize("path", list(STREAMS))
@FUZZ
@given(cuts=st.lists(st.integers(0, 1 << 20), max_size=25))
def test_pieces_of_any_size_give_the_same_bytes_and_the_same_record(
    served: tuple[Provider, Relay, Kept, httpx2.Client], path: str, cuts: list[int]
) -> None:
    stream = STREAMS[path]
    got, whole, told = _relayed(served, path, _pieces(stream, cuts))
    assert whole
    assert got == stream
    assert _told(told) == _told(_by_hand(path, stream))
    calls = [event["data"] for event in told if event["kind"] == Kind.STEP_STARTED]
    assert len(calls) > 1  # the answer, and what it calls


@pytest.mark.parametrize("path", list(STREAMS))
@FUZZ
@given(data=st.data())
def test_a_stream_that_is_damaged_passes_and_is_recorded_honestly(
    served: tuple[Provider, Relay, Kept, httpx2.Client], path: str, data: st.DataObject
) -> None:
    stream = bytearray(STREAMS[path])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(stream)))
        until = at + data.draw(st.integers(0, 40))
        stream[at:until] = data.draw(st.binary(max_size=12))
    pieces = _pieces(bytes(stream), data.draw(st.lists(st.integers(0, 1 << 20), max_size=5)))
    drops = data.draw(st.booleans())
    got, whole, told = _relayed(served, path, pieces, drops=drops)
    assert got == bytes(stream)
    assert whole is not drops
    (answer,) = (e for e in told if e["kind"] == Kind.LLM)
    steps = [event["data"] for event in told if event["kind"] == Kind.STEP_STARTED]
    ends = [event["data"] for event in told if event["kind"] == Kind.STEP_ENDED]
    assert {step["id"] for step in steps} == {end["id"] for end in ends}
    # Without an error there is an answer that was read to its end.
    if "error" not in answer["data"]:
        said = answer["data"]["response_message"]["content"]
        assert said or ends[0]["description"] == "(no words)"
    else:
        assert not any("tool" in step.get("metadata", {}) for step in steps)


@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=300), kind=st.sampled_from([SSE, "application/json", ""]))
def test_any_bytes_are_read_without_an_error(body: bytes, kind: str) -> None:
    found = payloads(body, kind)
    for path, asked in BODIES.items():
        traffic = Traffic()
        told = [*traffic.asked(Sent("1", 10**18, "POST", path, {}, asked))]
        told += traffic.answered(Got("1", 10**18, 200, found, complete=True, raw=repr(body)))
        told += traffic.ended()
        assert told[-1]["kind"] == Kind.RUN_ENDED


_NAMES = (
    *("messages", "input", "contents", "role", "content", "type", "tools", "parts", "text"),
    *("tool_calls", "function", "id", "name", "arguments", "output", "system", "choices"),
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(_NAMES),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(path=st.sampled_from(list(BODIES)), body=_JSON, answer=_JSON)
def test_any_json_is_a_request_or_unknown(path: str, body: Any, answer: Any) -> None:
    traffic = Traffic()
    told = [*traffic.asked(Sent("1", 10**18, "POST", path, {}, body))]
    found = payloads(json.dumps(answer).encode())
    told += traffic.answered(Got("1", 10**18, 200, found, complete=True))
    told += traffic.ended()
    assert told[0]["kind"] == Kind.RUN_STARTED
    assert told[-1]["kind"] == Kind.RUN_ENDED
