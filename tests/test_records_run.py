"""Records of runs: fields that load when they are read, and what the records say."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
import typing
from datetime import timedelta

import pytest
from pydantic import Field, ValidationError
from recording import NOON, RUN

from repotrace.records import events
from repotrace.records.base import Record
from repotrace.records.events import Kind, derived_id, derived_run_id
from repotrace.records.lazy import LazyRecord
from repotrace.records.run import (
    ExecutionStep,
    ExecutionTrace,
    FileOperation,
    LLMInteraction,
    Run,
    same_type,
)


class Counted:
    """A loader that counts how often it was asked."""

    def __init__(self, value: object) -> None:
        self.value = value
        self.calls = 0

    def __call__(self) -> object:
        self.calls += 1
        return self.value


class Letter(LazyRecord):
    """A record with one field that may be pending."""

    sender: str
    text: str
    tags: list[str] = Field(default_factory=list)


def letter(text: object = "hello") -> tuple[Letter, Counted]:
    loader = Counted(text)
    return Letter.pending({"sender": "me", "tags": ["a"]}, {"text": loader}), loader


WHOLE = Letter(sender="me", text="hello", tags=["a"])


def test_a_pending_field_is_loaded_once_and_only_when_read() -> None:
    record, loader = letter()
    assert (record.sender, repr(record), loader.calls) == (
        "me",
        "Letter(sender='me', tags=['a'])",
        0,
    )
    assert (record.text, record.text, loader.calls) == ("hello", "hello", 1)


def test_a_pending_record_is_like_any_other() -> None:
    assert letter()[0] == WHOLE
    assert letter("other")[0] != WHOLE
    assert letter()[0] != "hello"
    assert letter()[0].model_dump() == WHOLE.model_dump()
    assert letter()[0].model_dump_json() == WHOLE.model_dump_json()
    assert list(letter()[0].load().model_dump()) == ["sender", "text", "tags"]
    assert pickle.loads(pickle.dumps(letter()[0])) == WHOLE
    assert copy.deepcopy(letter()[0]) == WHOLE
    with pytest.raises(ValidationError):
        letter()[0].sender = "you"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        letter()[0].nothing  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(TypeError):
        hash(letter()[0])


def test_copies_share_what_is_pending() -> None:
    record, loader = letter()
    other = record.model_copy(update={"sender": "you"})
    assert (record.text, other.text, other.sender) == ("hello", "hello", "you")
    assert record.model_copy(update={"text": "mine"}).text == "mine"
    assert loader.calls == 2


def test_a_failing_loader_fails_where_it_is_read() -> None:
    def fail() -> object:
        raise OSError("gone")

    record = Letter.pending({"sender": "me", "tags": []}, {"text": fail})
    assert record.sender == "me"
    with pytest.raises(OSError, match="gone"):
        record.text  # noqa: B018


def test_the_specified_fields_make_the_records() -> None:
    step = ExecutionStep(
        id="s", run_id=RUN, step_number=1, step_type="tool_call", description="d", started_at=NOON
    )
    assert (step.status, step.completed_at, step.input_context, step.metadata) == (
        "started",
        None,
        None,
        {},
    )
    call = LLMInteraction(
        id="l",
        run_id=RUN,
        step_id="s",
        prompt="p",
        response="r",
        model="m",
        tokens_used=7,
        timestamp=NOON,
        purpose="planning",
    )
    change = FileOperation(
        id="f",
        run_id=RUN,
        step_id="s",
        operation_type="create",
        file_path="a.py",
        content_before=None,
        content_after="x",
        timestamp=NOON,
    )
    trace = ExecutionTrace(
        run_id=RUN,
        task_id="t",
        started_at=NOON,
        status="completed",
        steps=[step],
        llm_interactions=[call, call],
        file_operations=[change, change.model_copy(update={"file_path": "b.py"}), change],
        completed_at=NOON + timedelta(seconds=1),
    )
    assert trace.summary() == {
        "total_steps": 1,
        "llm_calls": 2,
        "total_tokens": 14,
        "files_modified": 2,
    }
    assert ExecutionTrace.model_validate_json(trace.model_dump_json()) == trace


def test_synonyms_of_step_types() -> None:
    assert same_type("tool_call", "tool")
    assert same_type("odd", "odd")
    assert not same_type("edit", "tool")


def test_a_run_is_json() -> None:
    run = Run(id=RUN, started_at=NOON, attributes={"a": [1, None]})
    assert Run.model_validate_json(run.model_dump_json()) == run


def test_derived_ids_are_the_same_everywhere_and_sort_by_time() -> None:
    ids = [derived_id(time * 1000, "claude-code", "uuid") for time in (1, 2, 10**15)]
    assert ids == sorted(ids)
    assert {len(name) for name in ids} == {32}
    assert derived_id(5, "a", "bc") != derived_id(5, "ab", "c")
    assert derived_run_id("codex", "019a") == "r" + derived_run_id("codex", "019a")[1:]
    code = "from repotrace.records.events import *; print(derived_id(7000, 'x', '\\udcff'))"
    again = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert again.strip() == derived_id(7000, "x", "\udcff")


def test_the_vocabulary_needs_no_pydantic() -> None:
    code = "import sys, repotrace.records.events; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_data_has_the_names_of_the_records() -> None:
    """What an event says under a name of its own, rather than a field's, is listed here."""
    pairs: list[tuple[type, type[Record], set[str]]] = [
        (events.StepData, ExecutionStep, set()),
        (events.LLMData, LLMInteraction, {"previous_id", "kept"}),
        (events.FileOperationData, FileOperation, {"edits", "patch"}),
        (events.RunData, Run, set()),
    ]
    for data, record, own in pairs:
        assert set(typing.get_type_hints(data)) - set(record.model_fields) == own
    assert json.dumps(Kind.LLM) == '"llm"'
