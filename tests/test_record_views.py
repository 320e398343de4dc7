"""What several views of one run have in common: the moments of what tells none, and model calls
that the wire and a transcript tell of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from importing import AIDER

from repotrace.agents import agent
from repotrace.importers import importer
from repotrace.records.events import Event, Kind
from repotrace.runs.transcripts.growing import spans
from repotrace.runs.transcripts.wire_matching import WireCalls
from repotrace.storage import Store

RUN = "rabc"
SECOND = 10**9


def event(kind: str, time: int, **data: Any) -> Event:
    return {
        "id": f"{kind} {time} {data.get('id')}",
        "run": RUN,
        "kind": kind,
        "time": time * SECOND,
        "data": data,
    }


# --- A transcript without moments -----------------------------------------------------------


def test_what_a_transcript_tells_happened_while_it_grew(tmp_path: Path) -> None:
    data = AIDER.read_bytes()
    # As if it had been written line by line, one a second.
    ends = [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]
    growths = [((number + 1) * SECOND, size) for number, size in enumerate(ends)]
    found = spans(AIDER, "aider", growths)
    told = list(importer("aider").read(AIDER))
    moved = [found[e["id"]].moved(e) for e in told if e["id"] in found]
    operations = [e["time"] for e in moved if e["kind"] == Kind.FILE_OPERATION]
    # Aider says `Applied edit to` once it has written the file.
    applied = [
        (number + 1) * SECOND
        for number, line in enumerate(data.splitlines())
        if line.startswith(b"> Applied edit to")
    ]
    assert applied
    # An importer may look a line or two ahead.
    assert all(any(line <= t <= line + 2 * SECOND for t in operations) for line in applied)
    begun = {e["data"]["id"]: e["time"] for e in moved if e["kind"] == Kind.STEP_STARTED}
    ended = {e["data"]["id"]: e["time"] for e in moved if e["kind"] == Kind.STEP_ENDED}
    assert all(begun[name] <= time for name, time in ended.items() if name in begun)


def test_a_transcript_that_did_not_grow_says_nothing(tmp_path: Path) -> None:
    assert spans(AIDER, "aider", []) == {}
    assert spans(AIDER, "aider", [(SECOND, 0)]) == {}


# --- The wire -------------------------------------------------------------------------------


def wire(store: Store, *calls: dict[str, Any]) -> WireCalls:
    """What was seen of model calls, in the store."""
    begun = event(Kind.RUN_STARTED, 1, source="codex", attributes={"wire": True})
    facts = {"step_type": "llm", "metadata": {"thread": "a"}}
    steps = [event(Kind.STEP_STARTED, 2, id=call["step_id"], **facts) for call in calls]
    seen = [event(Kind.LLM, 2 + number, **call) for number, call in enumerate(calls)]
    store.runs.add_events([begun, *steps, *seen])
    return WireCalls.of(store, RUN)


def answer(*tools: str, text: str = "") -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    parts += [{"type": "tool_call", "id": name, "name": "t", "arguments": {}} for name in tools]
    return {"role": "assistant", "content": parts}


def test_a_call_that_both_tell_of_is_one(store: Store) -> None:
    calls = wire(
        store,
        {"id": "w1", "step_id": "s1", "external_id": "resp_1", "response": "By its id."},
        {"id": "w2", "step_id": "s2", "response_message": answer("call_1", text="x")},
        {"id": "w3", "step_id": "s3", "response": "By its words.", "response_message": answer()},
        {"id": "w4", "step_id": "s4", "output_tokens": 17, "response": "cut", "duration": 1.0},
    )
    told = [
        event(Kind.STEP_STARTED, 2, id="t1", step_type="llm"),
        event(Kind.LLM, 2, id="m1", step_id="t1", external_id="resp_1", response="Other words."),
        event(Kind.LLM, 3, id="m2", step_id="t2", response_message=answer("call_1")),
        event(Kind.LLM, 4, id="m3", step_id="t3", response=" By its words. "),
        event(Kind.LLM, 5, id="m4", step_id="t4", output_tokens=17, previous_id="m3", kept=2),
        event(Kind.LLM, 6, id="m5", step_id="t5", response="Nobody saw this."),
        event(Kind.STEP_ENDED, 6, id="t5"),
    ]
    found = list(calls.compared(told))
    models = [e for e in found if e["kind"] == Kind.LLM]
    assert [e["data"]["id"] for e in models] == ["w1", "w2", "w3", "w4", "m5"]
    assert [e.get("weak", False) for e in models] == [True, True, True, True, False]
    assert [e["data"].get("step_id") for e in models] == [None, None, None, None, "t5"]
    assert "previous_id" not in models[3]["data"]
    # The step of an answer is the wire's; that of a call which nobody saw stays.
    steps = [e["data"]["id"] for e in found if e["kind"].startswith("step_")]
    assert steps == ["t5"]


def test_without_a_wire_a_transcript_stays_as_it_is(store: Store) -> None:
    store.runs.add_events([event(Kind.RUN_STARTED, 1, source="codex")])
    told = [event(Kind.LLM, 2, id="m1", step_id="t1", response="x")]
    assert list(WireCalls.of(store, RUN).compared(told)) == told


def test_the_provider_that_codex_was_set_to_is_asked_through_the_relay(tmp_path: Path) -> None:
    told = agent("codex").proxy.upstream
    assert told is not None
    environ = {"CODEX_HOME": str(tmp_path)}
    assert told(environ) is None
    config = tmp_path / "config.toml"
    config.write_text('model = "x"\nopenai_base_url = "http://127.0.0.1:1/v1"\n')
    assert told(environ) == "openai=http://127.0.0.1:1/v1"
    for other in ('model = "x"\n', "openai_base_url = 5\n", "= broken"):
        config.write_text(other)
        assert told(environ) is None
