"""The logs of Inspect as runs."""

from __future__ import annotations

import json
import sys
import zipfile as plain_zip
from pathlib import Path
from typing import Any

import pytest
from importing import (
    FAILING,
    INSPECT,
    INSPECT_JSON,
    RIGHT,
    SHARED,
    WRONG,
    calc_repository,
    check_end,
    imported_runs,
    invoice_repository,
)

from repotrace.errors import ImportFailed
from repotrace.importers import importer
from repotrace.importers.inspect_ai_messages import tokens_of
from repotrace.records.events import Event, Kind
from repotrace.storage import Store


def events_of(path: Path) -> list[Event]:
    return list(importer("inspect").read(path))


def test_each_sample_is_a_run(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    (summary, one, steps), (_, other, others) = imported_runs(store, INSPECT, repository)
    assert one.task is not None
    assert one.task.startswith("add() in calc.py forgets its second argument.")
    assert (one.task_id, one.agent_version, one.outcome) == ("calc/1", "0.3.285", "passed")
    assert one.attributes["scores"] == {"suite": "C"}
    assert [(step.step_type, step.status) for step in steps] == [
        ("edit", "completed"),  # the set-up writes a file
        ("command", "completed"),  # cat
        ("edit", "completed"),
        ("test", "failed"),
        ("command", "completed"),  # Python
        ("test", "completed"),
        ("command", "failed"),  # refused
        ("decision", "completed"),
        ("unknown", "completed"),
        ("tool", "completed"),  # submit
        ("test", "completed"),  # by the scorer
    ]
    assert steps[7].parent_id == steps[6].id
    assert steps[5].retry_of == steps[3].id
    assert steps[10].metadata["by"] == "suite"
    assert [c.exit_code for c in store.runs.commands(one.id)] == [0, 1, 0, 0, 0]
    assert summary.damage == {"unknown": {"telepathy": 1}}
    assert (other.status, other.error) == ("failed", "RuntimeError: the sandbox is gone")
    assert [step.output_result for step in others] == ["Yes."]


def test_tokens_of_a_sample(store: Store) -> None:
    (_, run, _), _ = imported_runs(store, INSPECT)
    # By hand; in one answer the total says that cached tokens are among those of the input.
    cached = 150 + 160 + 200 + 220
    assert run.totals.input_tokens == 100 + 50 + 10 + 12 + 200 + 20 + 20 + cached
    assert run.totals.output_tokens == 20 + 30 + 15 + 50 + 10 + 10
    assert run.totals.cache_read_tokens == cached + 120
    assert run.totals.cache_write_tokens == 50
    calls = store.runs.interactions(run.id)
    assert [call.attempts for call in calls] == [1, 1, 3, 1, 1, 1]
    roles = [[message["role"] for message in call.messages] for call in calls]
    assert roles[0] == ["system", "user"]
    assert roles[2] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert "add() in calc.py" in json.dumps(calls[0].messages[1])


@pytest.mark.parametrize(
    ("usage", "sent"),
    [
        ({"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}, 10),
        (
            {
                "input_tokens": 10,
                "output_tokens": 2,
                "total_tokens": 42,
                "input_tokens_cache_read": 20,
                "input_tokens_cache_write": 10,
            },
            40,
        ),
        (
            {
                "input_tokens": 30,
                "output_tokens": 2,
                "total_tokens": 32,
                "input_tokens_cache_read": 20,
            },
            30,
        ),
        ({}, None),
        (None, None),
    ],
)
def test_cached_tokens_are_counted_once(usage: Any, sent: int | None) -> None:
    assert tokens_of(usage)["input_tokens"] == sent


def test_the_files_of_a_sample_are_rebuilt(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    (summary, run, steps), _ = imported_runs(store, INSPECT_JSON, repository)
    states = [step.state_id for step in steps if step.state_id]
    found = [store.snapshots.read(state, "calc.py") for state in states]
    assert found[1:] == [WRONG.encode(), RIGHT.encode()]
    assert store.snapshots.read(states[0], "SETUP") == b"ready\n"
    assert summary.end.quality == "inferred"
    assert summary.read_first == ()  # the set-up wrote before the agent read
    outcomes = [(t.node_id, t.outcome) for t in store.runs.tests(run.id)]
    assert outcomes == [(FAILING, "failed"), (FAILING, "passed")]


def test_both_kinds_of_log_tell_the_same() -> None:
    assert events_of(INSPECT) == events_of(INSPECT_JSON)


def test_a_log_packed_as_before_reads_the_same(tmp_path: Path) -> None:
    log = json.loads(INSPECT_JSON.read_bytes())
    samples = log.pop("samples")
    path = tmp_path / "old.eval"
    with plain_zip.ZipFile(path, "w", plain_zip.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", json.dumps(log))
        for sample in samples:
            archive.writestr(f"samples/{sample['id']}_epoch_1.json", json.dumps(sample))
        archive.writestr("samples/broken_epoch_1.json", "{")
    events = events_of(path)
    assert events[:-3] == events_of(INSPECT_JSON)[:-3]


def test_a_cut_log_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "cut.eval"
    path.write_bytes(INSPECT.read_bytes()[:-60])
    with pytest.raises(ImportFailed, match="cannot be unpacked"):
        events_of(path)
    path.write_text(json.dumps({"eval": {"task_id": "1", "run_id": "1"}, "samples": []}))
    with pytest.raises(ImportFailed, match="holds no samples"):
        events_of(path)


FIXTURES = sorted((SHARED / "agents" / "fixtures" / "inspect-ai").glob("*/session/logs/*"))
LOGS = [*FIXTURES, *(SHARED / "samples" / "inspect").glob("*.eval")]


@pytest.mark.skipif(not LOGS, reason="no logs of real agents beside the checkout")
def test_tokens_of_real_logs_are_those_of_the_raw_log() -> None:
    for path in LOGS:
        head = raw_head(path)
        usages = head["stats"]["model_usage"].values()
        calls = [event["data"] for event in events_of(path) if event["kind"] == Kind.LLM]
        names = ("input_tokens", "output_tokens")
        ours = [sum(call.get(name) or 0 for call in calls) for name in names]
        # The total of Inspect is that of the provider, cached tokens included.
        assert sum(ours) == sum(usage["total_tokens"] for usage in usages), path
        assert ours[1] == sum(usage["output_tokens"] for usage in usages), path


def raw_head(path: Path) -> Any:
    if path.suffix == ".json":
        return json.loads(path.read_bytes())
    if sys.version_info >= (3, 14):
        zipfile = plain_zip
    else:
        from backports.zstd import zipfile
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("header.json"))


@pytest.mark.skipif(not FIXTURES, reason="no logs of real agents beside the checkout")
def test_real_logs_end_with_the_real_diff(store: Store, tmp_path: Path) -> None:
    repository = invoice_repository(tmp_path / "invoice")
    for path in FIXTURES:
        ((summary, run, steps),) = imported_runs(store, path, repository)
        final = next(parent for parent in path.parents if parent.name == "session").parent
        check_end(store, steps, repository, final / "final.diff")
        assert (summary.failing_test_runs, run.totals.retries) == (1, 1)
        assert summary.end.quality == "inferred"
        assert sorted(summary.read_first) == [
            *("src/invoice_export/duedate.py", "tests/test_duedate.py"),
        ]
