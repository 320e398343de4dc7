"""Importers by themselves: detection, damage, and bytes that are no transcript."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from importing import ALL, CLAUDE, CODEX, SHARED, format_named

from repotrace.errors import ImportFailed
from repotrace.importers import FORMATS, detect, importer, is_transcript, names
from repotrace.importers.lines import Damage, json_lines
from repotrace.records.events import Event, Kind

KINDS = {kind.value for kind in Kind}


def events_of(path: Path, form: str | None = None) -> list[Event]:
    return list((importer(form) if form else detect(path)).read(path))


def format_of(path: Path) -> str:
    return detect(path).NAME


def check_events(events: list[Event]) -> None:
    """That these are events which a store can take."""
    for event in events:
        assert event["kind"] in KINDS
        assert isinstance(event["id"], str)
        assert event["id"]
        assert event["run"].startswith("r")
        assert isinstance(event["time"], int)
        json.dumps(event)


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name[:20])
def test_a_format_is_known_by_its_content(path: Path, tmp_path: Path) -> None:
    assert format_of(path) == format_named(path)
    copy = tmp_path / "anything"
    copy.write_bytes(path.read_bytes())
    assert format_of(copy) == format_named(path)


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n\n", "hello", "[]", "{}", "[1, 2]", '{"messages": []}', "\x00\x01\x02"),
        '{"type": "user"}\n',
        '[{"role": "user", "content": "hello"}]',
    ],
)
def test_what_is_no_transcript_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    assert not is_transcript(path)
    with pytest.raises(ImportFailed, match="no transcript that we know"):
        detect(path)
    for form in FORMATS:
        with pytest.raises(ImportFailed):
            events_of(path, form)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ImportFailed, match="No importer is called 'sed'"):
        importer("sed")
    assert set(FORMATS) <= set(names())


def test_reading_twice_gives_the_same_events() -> None:
    for path in ALL:
        events = events_of(path)
        check_events(events)
        assert events == events_of(path)


def test_ids_of_events_differ() -> None:
    for path in ALL:
        ids = [(event["kind"], event["id"]) for event in events_of(path)]
        assert len(ids) == len(set(ids)), path


def test_a_packed_rollout_reads_like_the_plain_one(tmp_path: Path) -> None:
    from repotrace.storage.texts import compress

    packed = tmp_path / "rollout.jsonl.zst"
    packed.write_bytes(compress(CODEX.read_bytes()))
    assert format_of(packed) == "codex"
    assert events_of(packed) == events_of(CODEX)
    packed.write_bytes(packed.read_bytes()[:-40])
    with pytest.raises(ImportFailed):
        events_of(packed)


def test_lines_are_split_at_line_feeds_alone(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    odd = "\u2028\u2029\x85\x0b\x0c\x1c"
    path.write_text(json.dumps({"text": odd}, ensure_ascii=False) + "\r\n" + '{"b": 1}\n\n{"c"')
    damage = Damage()
    assert list(json_lines(path, damage)) == [{"text": odd}, {"b": 1}]
    assert (damage.torn, damage.broken) == (1, 0)


def test_an_answer_in_several_records_counts_once(tmp_path: Path) -> None:
    calls = [e["data"] for e in events_of(CLAUDE) if e["kind"] == Kind.LLM]
    names_ = [call["external_id"] for call in calls]
    assert len(names_) == len(set(names_)) == 9
    # The last record of the answer has the whole usage.
    assert next(c for c in calls if c["external_id"] == "msg_4")["output_tokens"] == 60


def test_the_oldest_rollouts_have_no_envelope(tmp_path: Path) -> None:
    """Their records are the items themselves, without times, behind a record of the session."""
    call = {"type": "function_call", "name": "shell", "call_id": "c1"}
    shown = {"output": "calc.py\n", "metadata": {"exit_code": 0, "duration_seconds": 0.2}}
    records: list[dict[str, Any]] = [
        {"id": "old", "timestamp": "2025-05-01T10:00:00Z", "instructions": None, "git": {}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look"}]},
        {**call, "arguments": json.dumps({"command": ["ls"]})},
        {"type": "function_call_output", "call_id": "c1", "output": json.dumps(shown)},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Ok"}],
        },
    ]
    path = tmp_path / "rollout.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert format_of(path) == "codex"
    events = events_of(path)
    facts = [event["data"] for event in events]
    assert {"task": "Look"} in facts
    (command,) = (event["data"] for event in events if event["kind"] == Kind.COMMAND)
    assert command["command"]["script"] == "ls"
    assert command["command"]["exit_code"] == 0
    assert sum(event["kind"] == Kind.LLM for event in events) == 2


def test_a_sub_agent_leaves_out_what_it_copied_of_its_parent(tmp_path: Path) -> None:
    records = [json.loads(line) for line in CODEX.read_text().splitlines()]
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": records[0]["payload"]["id"]}}}
    records[0]["payload"] |= {"id": "child", "source": spawn, "subagent_history_start_ordinal": 17}
    path = tmp_path / "rollout.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    events = events_of(path)
    (parent,) = (e["run"] for e in events_of(CODEX) if e["kind"] == Kind.RUN_STARTED)
    assert events[0]["data"]["parent_run_id"] == parent
    assert events[0]["run"] != parent
    used = [e["data"].get("input_tokens") for e in events if e["kind"] == Kind.LLM]
    assert used == [160, 190, 220, 240]


def test_the_file_of_a_sub_agent_stands_for_its_session() -> None:
    part = CLAUDE.with_suffix("") / "subagents" / "agent-abc123.jsonl"
    assert events_of(part) == events_of(CLAUDE)


# --- Any bytes ------------------------------------------------------------------------------


def survives(path: Path, form: str) -> None:
    with suppress(ImportFailed):
        check_events(events_of(path, form))


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300))
def test_random_bytes_give_events_or_import_failed(form: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "random"
    path.write_bytes(data)
    survives(path, form)
    is_transcript(path)


def mutated(data: bytes, seed: int) -> bytes:
    """The bytes with some of them changed, cut out, doubled or moved."""
    chance = random.Random(seed)
    found = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        start = chance.randrange(len(found) or 1)
        end = min(len(found), start + chance.choice([1, 5, 50, 500, 5000]))
        match chance.randrange(4):
            case 0:
                found[start:end] = bytes(chance.randrange(256) for _ in range(min(end - start, 20)))
            case 1:
                del found[start:end]
            case 2:
                found[start:start] = found[start:end]
            case _:
                found[start:end] = chance.choice([b"null", b"[]", b'{"type": 7}', b"-1", b'""'])
    return bytes(found)


def twisted(value: object, chance: random.Random) -> object:
    """A JSON value with some parts replaced by others of the wrong type."""
    if chance.random() < 0.02:
        odd: list[object] = [None, True, 7, -1, 1e300, "", "x", [], {}, [None], {"type": None}]
        return chance.choice(odd)
    if isinstance(value, dict):
        return {name: twisted(part, chance) for name, part in value.items()}
    if isinstance(value, list):
        return [twisted(part, chance) for part in value]
    return value


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name[:20])
def test_mutated_transcripts_give_events_or_import_failed(path: Path, tmp_path: Path) -> None:
    copy, form = tmp_path / "copy", format_named(path)
    for seed in range(60):
        copy.write_bytes(mutated(path.read_bytes(), seed))
        survives(copy, form)
    if path.suffix not in (".json", ".jsonl", ".traj"):
        return
    for seed in range(60):
        chance = random.Random(seed)
        if path.suffix != ".jsonl":
            copy.write_text(json.dumps(twisted(json.loads(path.read_bytes()), chance)))
        else:
            lines = [line for line in path.read_bytes().split(b"\n") if line.endswith(b"}")]
            records = [json.loads(line) for line in lines if not line.endswith(b"broken")]
            copy.write_text("".join(json.dumps(twisted(r, chance)) + "\n" for r in records))
        survives(copy, form)


SAMPLES = [
    path
    for name in FORMATS
    for path in (SHARED / "samples" / name).rglob("*")
    if path.is_file() and is_transcript(path)
]


@pytest.mark.skipif(not SAMPLES, reason="no transcripts of real agents beside the checkout")
def test_real_samples_are_read() -> None:
    for path in SAMPLES:
        assert format_of(path) == path.relative_to(SHARED / "samples").parts[0], path
        events = events_of(path)
        check_events(events)
        assert {Kind.LLM, Kind.STEP_STARTED} & {event["kind"] for event in events}, path


@pytest.mark.skipif(not SAMPLES, reason="no transcripts of real agents beside the checkout")
def test_tokens_of_real_samples_are_those_of_the_raw_file() -> None:
    for path in SAMPLES:
        if format_of(path) != "claude-code" or path.parent.name == "subagents":
            continue
        answers: dict[str, dict[str, int]] = {}
        for line in path.read_bytes().split(b"\n"):
            record = json.loads(line) if line.strip() else {}
            message = record.get("message") or {}
            if record.get("type") == "assistant" and message.get("model") != "<synthetic>":
                answers[str(message.get("id") or record.get("uuid"))] = message.get("usage") or {}
        calls = [e["data"] for e in events_of(path) if e["kind"] == Kind.LLM]
        out = sum(usage.get("output_tokens", 0) for usage in answers.values())
        assert sum(call.get("output_tokens") or 0 for call in calls) == out, path
        names_ = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        told = sum(usage.get(name, 0) for usage in answers.values() for name in names_)
        assert sum(call.get("input_tokens") or 0 for call in calls) == told, path
