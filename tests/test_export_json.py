"""A run as JSON: whole, described by its schema, and the same again after an import."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import export_schema
import pytest
from hypothesis import HealthCheck, given, settings
from importing import ALL, CLAUDE, CODEX, MINI, OPENHANDS_V0
from jsonschema import Draft202012Validator
from reading import BROKEN, FIXED, LEAP, TASK, project, record
from recording import NOON, RUN, event, traces

from repotrace.errors import ImportFailed, NewerSchema, RepoTraceError
from repotrace.records.blame import Blame, BlamedStep
from repotrace.records.command import Chunk, CommandRun, Output
from repotrace.records.run import ExecutionTrace
from repotrace.runs.export.exporting import Format, export_run
from repotrace.runs.export.selection import ExportOptions
from repotrace.runs.receiving import is_ours, receive
from repotrace.runs.transcripts.importing import Options, import_session
from repotrace.storage import Store
from repotrace.storage.memo import KeptVerdict

WHOLE = ExportOptions()
GITHUB_TOKEN = "ghp_" + "A1b2C3d4E5f6G7h8I9j0" + "K1l2M3n4O5p6Q7r8"
SCHEMA = Draft202012Validator(json.loads(export_schema.PAGE.read_text()))


def exported(store: Store, options: ExportOptions = WHOLE, run_id: str = RUN) -> Any:
    return json.loads(export_run(store, store.runs.get(run_id), "json", options))


def again(store: Store, folder: Path, run_id: str = RUN, options: ExportOptions = WHOLE) -> bytes:
    """The run exported, imported into another home, and exported there."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "run.json"
    file.write_bytes(export_run(store, store.runs.get(run_id), "json", options))
    other = Store(folder / "elsewhere")
    got = receive(other, file, now=NOON)
    assert (got.kind, got.id, got.is_new) == ("run", run_id, True)
    found = export_run(other, other.runs.get(run_id), "json", WHOLE)
    other.close()
    return found


@pytest.fixture
def recorded(tmp_path: Path) -> Store:
    store = record(project(tmp_path / "invoice")).store
    store.memo.keep_verdict(blamed())
    store.runs.add_events([event("lost", 20, count=3, reason="disk full")])
    return store


def blamed() -> KeptVerdict:
    blame = Blame(
        id="b1", run_id=RUN, test=LEAP, command="pytest -q", verdict="blamed", reason="step 3",
        named=True, until=6, created_at=NOON,
    )  # fmt: skip
    return KeptVerdict("b1", RUN, LEAP, "blamed", NOON, blame.model_dump(mode="json"))


def test_the_schema_is_current() -> None:
    """If this fails, write it anew: .venv/bin/python tests/export_schema.py"""
    assert export_schema.PAGE.read_text() == export_schema.page()


def test_it_has_what_was_specified_and_what_is_known_beyond(recorded: Store) -> None:
    found = exported(recorded)
    SCHEMA.validate(found)
    assert found["summary"] == {
        "total_steps": 6, "llm_calls": 2, "total_tokens": 3300, "files_modified": 2,
    }  # fmt: skip
    plan, _, patch, check, retry, _ = found["steps"]
    assert (plan["type"], plan["description"], plan["step_number"]) == ("planning", "Plan", 1)
    assert plan["llm_interactions"][0]["messages"] == [{"role": "user", "content": TASK}]
    (change,) = patch["file_operations"]
    assert change["content_after"] == BROKEN.decode()
    assert [one["file_path"] for one in retry["file_changes"]] == ["app/export.py", "logo.bin"]
    assert retry["file_operations"][1]["content_after"] == "\0\1\2"
    assert [one["outcome"] for one in check["test_outcomes"]] == ["failed", "passed"]
    (call,) = retry["llm_interactions"]
    assert (call["kept"], call["kept_from"], len(call["messages"])) == (1, "call1", 1)
    assert (found["lost"], found["blames"][0]["test"]) == (3, LEAP)


def test_the_schema_refuses_what_is_no_export(recorded: Store) -> None:
    whole = exported(recorded)
    without = {name: value for name, value in whole.items() if name != "summary"}
    odd_step = whole | {"steps": [whole["steps"][0] | {"step_number": "one"}]}
    for spoiled in (without, odd_step, whole | {"format": "other"}):
        assert not SCHEMA.is_valid(spoiled)


def test_importing_gives_the_same_run(recorded: Store, tmp_path: Path) -> None:
    first = export_run(recorded, recorded.runs.get(RUN), "json", WHOLE)
    assert again(recorded, tmp_path) == first
    other = Store(tmp_path / "elsewhere")
    assert other.runs.trace(RUN) == recorded.runs.trace(RUN)
    assert other.runs.operations(RUN)[1].content_after == FIXED.decode()


SOME = {CLAUDE, CODEX, MINI, OPENHANDS_V0}


@pytest.mark.parametrize(
    "path",
    [pytest.param(one, marks=[] if one in SOME else [pytest.mark.slow]) for one in ALL],
    ids=lambda path: f"{path.parent.name}-{path.name}",
)
def test_a_session_of_any_agent_comes_back(path: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    for summary in import_session(store, path, Options()):
        first = export_run(store, store.runs.get(summary.run_id), "json", WHOLE)
        SCHEMA.validate(json.loads(first))
        assert again(store, tmp_path / summary.run_id, summary.run_id) == first
    store.close()


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(traces())
def test_any_run_comes_back(trace: ExecutionTrace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "home")
        store.runs.save(trace)
        first = export_run(store, store.runs.get(RUN), "json", WHOLE)
        SCHEMA.validate(json.loads(first))
        assert again(store, Path(folder) / "b") == first
        store.close()


def test_secrets_are_masked_in_what_files_hold_too(tmp_path: Path) -> None:
    store = record(project(tmp_path / "invoice")).store
    made = event("file_operation", 6, step_id="patch", operation_type="create", file_path="a.txt")
    secret = b"caf\xe9 token=" + GITHUB_TOKEN.encode()
    (kept,) = store.snapshots.keep(f"runs/{RUN}", secret)
    made["data"]["after_id"] = kept
    store.runs.add_events([made])
    masked = export_run(store, store.runs.get(RUN), "json", WHOLE)
    assert GITHUB_TOKEN.encode() not in masked
    found = json.loads(masked)["steps"][2]["file_operations"]
    (change,) = [one for one in found if one["file_path"] == "a.txt"]
    assert set(change["content_after"]) == {"base64"}
    assert change["after_id"] != kept
    assert again(store, tmp_path) == (tmp_path / "run.json").read_bytes()
    plain = export_run(store, store.runs.get(RUN), "json", ExportOptions(allow_secrets=True))
    assert json.loads(plain) != json.loads(masked)
    again(store, tmp_path / "plain", options=ExportOptions(allow_secrets=True))
    other = Store(tmp_path / "plain" / "elsewhere")
    (back,) = [one for one in other.runs.operations(RUN) if one.file_path == "a.txt"]
    assert (back.after_id, other.snapshots.read_object(kept)) == (kept, secret)


def test_parts_of_a_run(recorded: Store) -> None:
    found = exported(recorded, ExportOptions(from_step=3, to_step=4))
    SCHEMA.validate(found)
    assert [step["step_number"] for step in found["steps"]] == [3, 4]
    assert "commands" not in found
    assert found["left_out"]["from_step"] == 3
    with pytest.raises(RepoTraceError, match="no step from 7 to 6"):
        exported(recorded, ExportOptions(from_step=7))


PARTS = {
    "steps": (ExportOptions(from_step=2, to_step=4), ["steps before 2", "steps after 4"]),
    "silent": (ExportOptions(llm=False), ["what models were asked and answered"]),
    "hollow": (ExportOptions(files=False), ["contents of files"]),
    "cut": (ExportOptions(max_bytes=9), ["the middle of texts over 9 bytes"]),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_is_never_taken_for_the_whole(recorded: Store, tmp_path: Path, name: str) -> None:
    """What never came with a run is known where it is, and said when it is passed on."""
    options, told = PARTS[name]
    part, passed_on = (
        exported(recorded, options),
        json.loads(again(recorded, tmp_path, options=options)),
    )
    del part["run"]["totals"], passed_on["run"]["totals"]  # there, of what is there
    assert passed_on == part
    other = Store(tmp_path / "elsewhere")
    run = other.runs.get(RUN)
    for page in (export_run(other, run, "markdown", WHOLE), export_run(other, run, "html", WHOLE)):
        assert all(words in page.decode() for words in told)
    further = exported(other, ExportOptions(from_step=3, max_bytes=20))["left_out"]
    assert further["from_step"] == 3
    assert further["max_bytes"] == (9 if name == "cut" else 20)
    file = tmp_path / "whole.json"
    file.write_bytes(export_run(recorded, recorded.runs.get(RUN), "json", WHOLE))
    got = receive(other, file, now=NOON)
    assert (got.is_new, got.left_out, got.file_has_more) == (False, "; ".join(told), True)
    assert not receive(recorded, file, now=NOON).file_has_more


def test_conversations_and_contents_can_be_left_out(recorded: Store) -> None:
    text = json.dumps(exported(recorded, ExportOptions(llm=False, files=False)))
    for said in ("Look at the export.", "The leap day does not", "return year", "1. look"):
        assert said not in text
    assert '"tokens_used": 1280' in text


def test_long_texts_can_be_cut(recorded: Store) -> None:
    recorded.runs.add_events([event("log", 3, step_id="search", message="é" * 600)])
    found = exported(recorded, ExportOptions(max_bytes=100))
    log = found["steps"][1]["logs"][0]
    assert "[… " in log["message"]
    assert len(log["message"].encode()) < 200
    assert found["steps"][2]["file_operations"][0]["content_after"] == BROKEN.decode()
    small = exported(recorded, ExportOptions(max_bytes=10))
    assert small["steps"][2]["file_operations"][0]["content_after"] is None


@pytest.mark.parametrize("path", [CLAUDE, CODEX, MINI, OPENHANDS_V0], ids=lambda path: path.name)
def test_no_words_are_left_where_they_are_not_wanted(store: Store, path: Path) -> None:
    """Descriptions of steps quote them, and so does what a person said on the way."""
    (summary, *_) = import_session(store, path, Options())
    run = store.runs.get(summary.run_id)
    calls = store.runs.interactions(run.id)
    words = {" ".join(call.response.split())[:30] for call in calls if len(call.response) > 12}
    steps = store.runs.steps(run.id)
    words |= {step.reason[:30] for step in steps if step.reason and len(step.reason) > 12}
    words |= {
        step.input_context[:30] for step in steps if step.step_type == "note" and step.input_context
    }
    printed = [f"{step.output_result}{step.error}" for step in steps if step.step_type != "llm"]
    words = {text for text in words if not any(text in one for one in printed)}
    assert words
    forms: list[Format] = ["json", "markdown", "html"]
    for form in forms:
        whole = unescape(export_run(store, run, form, WHOLE).decode())
        silent = unescape(export_run(store, run, form, ExportOptions(llm=False)).decode())
        assert [text for text in words if text in whole]
        assert [text for text in words if text in silent] == []


def test_a_verdict_keeps_to_itself_why_the_agent_did_it(recorded: Store) -> None:
    steps = (
        BlamedStep(number=1, step_type="planning", description="Thoughts", reason="PRIVATE"),
        BlamedStep(number=9, step_type="llm", description="PRIVATE words"),
        BlamedStep(number=3, step_type="edit", description="Write", reason="PRIVATE"),
    )
    record = Blame.model_validate(blamed().record).model_copy(update={"steps": steps})
    kept = blamed()._replace(id="b2", test="t.py::x", record=record.model_dump(mode="json"))
    recorded.memo.keep_verdict(kept)
    (found,) = [
        one
        for one in exported(recorded, ExportOptions(llm=False))["blames"]
        if len(one["steps"]) > 1
    ]
    assert [step["description"] for step in found["steps"]] == ["Plan", "", "Write the patch"]
    for form in ("json", "markdown", "html"):
        page = export_run(recorded, recorded.runs.get(RUN), form, ExportOptions(llm=False))
        assert b"PRIVATE" not in page


@pytest.mark.parametrize("limit", [1, 2, 7, 20, 100])
def test_what_is_cut_can_still_be_imported(recorded: Store, tmp_path: Path, limit: int) -> None:
    """Names, times and outputs stay what they are however short the texts have to be."""
    binary = bytes(range(128, 256)) * 20
    printed = {
        "argv": ["make"], "cwd": "/w/" + "d" * 200, "stdout": Output.of("é".encode() * 300),
        "stderr": Output.of(binary), "env": {"LONG": "v" * 300},
        "chunks": [Chunk(stream="stdout", start=0, end=600, seconds=0.5)],
    }  # fmt: skip
    command = CommandRun.model_validate(printed).model_dump(mode="json")
    recorded.runs.add_events([
        event("command", 3, step_id="search", command=command),
        event("test", 3, step_id="search", node_id="t" * 200, outcome="failed", details="x" * 200),
        event("file_read", 3, step_id="search", file_path="p" * 200),
    ])  # fmt: skip
    options = ExportOptions(max_bytes=limit)
    whole, found = exported(recorded), exported(recorded, options)
    SCHEMA.validate(found)
    step, full = found["steps"][1], whole["steps"][1]
    for name in ("id", "type", "started_at", "completed_at", "status"):
        assert step[name] == full[name]
    assert step["file_reads"][-1] == full["file_reads"][-1]
    assert step["test_outcomes"][-1]["node_id"] == "t" * 200
    assert step["test_outcomes"][-1]["details"] != "x" * 200
    assert again(recorded, tmp_path, options=options)
    commands = [one.command for one in Store(tmp_path / "elsewhere").runs.commands(RUN)]
    (run,) = [command for command in commands if command.argv == ("make",)]
    assert (run.cwd, run.env, run.chunks) == (printed["cwd"], printed["env"], ())
    for output, written in ((run.stdout, "é".encode() * 300), (run.stderr, binary)):
        assert len(output.head) + len(output.tail) <= limit
        assert output.omitted == len(written) - len(output.head) - len(output.tail)
        assert written.startswith(output.head)
        assert written.endswith(output.tail)
    assert run.stdout.head.decode() == "é" * (len(run.stdout.head) // 2)
    assert run.stdout.tail.decode() == "é" * (len(run.stdout.tail) // 2)


# --- What must not be believed --------------------------------------------------------------


def test_a_run_that_is_here_is_left_alone(recorded: Store, tmp_path: Path) -> None:
    found = exported(recorded)
    before = export_run(recorded, recorded.runs.get(RUN), "json", WHOLE)
    found["steps"] = []
    got = receive(recorded, written(tmp_path, found), now=NOON)
    assert (got.id, got.is_new) == (RUN, False)
    assert export_run(recorded, recorded.runs.get(RUN), "json", WHOLE) == before
    assert recorded.received.origin("run", RUN) is None


def test_a_session_that_is_here_is_not_added_to(store: Store, tmp_path: Path) -> None:
    (summary,) = import_session(store, ALL[0], Options())
    found = exported(store, run_id=summary.run_id)
    found["run_id"] = found["run"]["id"] = "rfeedfeedfeed"
    got = receive(store, written(tmp_path, found), now=NOON)
    assert (got.id, got.is_new) == (summary.run_id, False)
    assert store.runs.count() == 1


def test_where_it_came_from_is_known_in_the_home_alone(recorded: Store, tmp_path: Path) -> None:
    again(recorded, tmp_path)
    other = Store(tmp_path / "elsewhere")
    origin = other.received.origin("run", RUN)
    assert origin is not None
    assert (origin.file, origin.at) == ("run.json", NOON)
    assert other.received.origin("run", "r00") is None
    assert b"received" not in export_run(other, other.runs.get(RUN), "json", WHOLE)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda doc: doc.pop("steps"), "steps: Field required"),
        (lambda doc: doc["steps"][0].update(step_number="x"), "steps.0.step_number"),
        (lambda doc: doc["run"].update(id="rother"), "names two runs"),
        (lambda doc: doc.update(run_id="../../x") or doc["run"].update(id="../../x"),
         "cannot be the id"),
        (lambda doc: doc["steps"][4]["llm_interactions"][0].update(kept_from="nobody"),
         "goes on with one that is not in the file"),
        (lambda doc: doc.update(started_at="9" * 400), "started_at"),
        (lambda doc: doc["run"].update(models=["\ud800"]), "makes no sense"),
        (lambda doc: doc["steps"][5].update(state_id="\ud800"), "makes no sense"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused(
    recorded: Store, tmp_path: Path, spoil: Callable[[Any], Any], why: str
) -> None:
    found = exported(recorded)
    spoil(found)
    other = Store(tmp_path / "elsewhere")
    with pytest.raises(RepoTraceError, match=why):
        receive(other, written(tmp_path, found), now=NOON)
    assert other.runs.count() == 0


def test_odd_files_are_refused(recorded: Store, tmp_path: Path) -> None:
    found = exported(recorded)
    found["schema_version"] = 99
    with pytest.raises(NewerSchema, match="newer RepoTrace"):
        receive(recorded, written(tmp_path, found), now=NOON)
    torn = tmp_path / "torn.json"
    torn.write_bytes(written(tmp_path, found).read_bytes()[:-200])
    assert is_ours(torn)
    with pytest.raises(ImportFailed, match="not valid JSON"):
        receive(recorded, torn, now=NOON)
    deep = tmp_path / "deep.json"
    deep.write_text('{"run_id": ' + "[" * 100_000)
    with pytest.raises(ImportFailed, match="not valid JSON"):
        receive(recorded, deep, now=NOON)
    other = tmp_path / "other.json"
    other.write_text('{"hello": 1}')
    assert not is_ours(other)
    assert not is_ours(tmp_path)
    with pytest.raises(ImportFailed, match="no run or report"):
        receive(recorded, other, now=NOON)


def test_what_other_programs_wrote_of_a_trace_is_taken(store: Store, tmp_path: Path) -> None:
    later = (NOON + timedelta(seconds=5)).isoformat()
    step = {"id": "s1", "step_number": 1, "step_type": "edit", "description": "x",
            "started_at": NOON.isoformat()}  # fmt: skip
    document = {
        "run_id": "rabc", "task_id": "t", "started_at": NOON.isoformat(), "completed_at": later,
        "status": "completed", "steps": [step],
        "summary": {"total_steps": 1, "files_modified": 0, "llm_calls": 0, "total_tokens": 0},
    }  # fmt: skip
    receive(store, written(tmp_path, document), now=NOON)
    assert [one.description for one in store.runs.steps("rabc")] == ["x"]
    assert store.runs.get("rabc").task_id == "t"


def written(folder: Path, document: Any) -> Path:
    file = folder / "spoiled.json"
    file.write_text(json.dumps(document))
    return file
