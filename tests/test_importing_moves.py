"""Files that an agent moves by a patch, in the ways in which transcripts tell it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from importing import BEFORE, calc_repository, imported_runs

from repotrace.storage import Store

MOVED = BEFORE.replace("return a", "return a + b")
ENVELOPE = """*** Begin Patch
*** Update File: calc.py
*** Move to: sum.py
@@
-    return a
+    return a + b
*** End Patch"""
DIFF = "@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a\n+    return a + b\n"


def rollout(cwd: Path, *events: dict[str, Any]) -> str:
    """A session of Codex that applies `ENVELOPE`."""
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "?"}]}
    call = {"type": "custom_tool_call", "name": "apply_patch", "call_id": "c", "input": ENVELOPE}
    answer = {"output": "Success.", "metadata": {"exit_code": 0}}
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": json.dumps(answer)}
    records: list[tuple[str, dict[str, Any]]] = [
        ("session_meta", {"id": "1", "cwd": str(cwd), "cli_version": "0.53.0"}),
        *(("response_item", item) for item in (asked, call)),
        *(("event_msg", event) for event in events),
        ("response_item", output),
    ]
    return "".join(
        json.dumps({"timestamp": f"2026-03-01T12:00:0{number}Z", "type": kind, "payload": payload})
        + "\n"
        for number, (kind, payload) in enumerate(records)
    )


def trajectory(cwd: Path) -> str:
    """The same as ATIF."""
    call = {"tool_call_id": "c", "function_name": "apply_patch", "arguments": {"input": ENVELOPE}}
    observation = {"results": [{"source_call_id": "c", "content": "Success."}]}
    step = {"step_id": 1, "source": "agent", "message": "", "tool_calls": [call]}
    step |= {"observation": observation, "timestamp": "2026-03-01T12:00:00Z"}
    agent = {"name": "codex", "version": "0.53.0", "extra": {"cwds": [str(cwd)]}}
    return json.dumps({"schema_version": "ATIF-v1.7", "agent": agent, "steps": [step]})


def ended(**change: Any) -> dict[str, Any]:
    """The event that tells what became of a patch."""
    return {"type": "patch_apply_end", "call_id": "c", "success": True, "changes": change}


@pytest.mark.parametrize("way", ["asked", "told", "atif"])
def test_a_moved_file_keeps_what_it_held(store: Store, tmp_path: Path, way: str) -> None:
    repository = calc_repository(tmp_path / "calc")
    path = tmp_path / "transcript.jsonl"
    update = {"type": "update", "unified_diff": DIFF, "move_path": str(repository / "sum.py")}
    changes = {str(repository / "calc.py"): update}
    texts = {
        "asked": rollout(repository),
        "told": rollout(repository, ended(**changes)),
        "atif": trajectory(repository),
    }
    path.write_text(texts[way])
    ((summary, run, steps),) = imported_runs(store, path)
    state = [step.state_id for step in steps if step.state_id][-1]
    paths = [entry.path for entry in store.snapshots.list(state)]
    assert paths == ["other", "sum.py", "test_calc.py"]
    assert store.snapshots.read(state, "sum.py") == MOVED.encode()
    found = {o.file_path: (o.operation_type, o.renamed_from) for o in store.runs.operations(run.id)}
    assert found == {"sum.py": ("create", "calc.py"), "calc.py": ("delete", None)}
    assert summary.end.quality == "inferred"
