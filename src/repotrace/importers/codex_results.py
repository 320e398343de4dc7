"""What the tools of Codex were given and answered."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from repotrace.agents import Action
from repotrace.importers.building import (
    Builder,
    Call,
    Data,
    Result,
    operation,
    parts_text,
    script_of,
    text_of,
)
from repotrace.importers.claims import patch_operations
from repotrace.importers.wire_answers import decoded
from repotrace.records.run import OperationType

__all__ = [
    "ITEMS",
    "SILENT",
    "SILENT_RECORDS",
    "End",
    "Result",
    "end_of",
    "implied_call",
    "output_text",
    "result_of",
    "spawned_by",
    "still_running",
]

ITEMS = frozenset(
    [
        *("message", "reasoning", "function_call", "function_call_output", "custom_tool_call"),
        *("custom_tool_call_output", "local_shell_call", "web_search_call", "tool_search_call"),
        *("tool_search_output", "ghost_snapshot", "compaction", "compaction_summary", "other"),
        *("context_compaction", "image_generation_call", "agent_message", "additional_tools"),
        *("compaction_trigger",),
    ]
)
"""Kinds of items of the conversation."""

SILENT = frozenset(
    [
        *("task_started", "turn_started", "task_complete", "turn_complete", "agent_reasoning"),
        *("agent_reasoning_raw_content", "agent_reasoning_section_break", "agent_message"),
        *("thread_settings_applied", "web_search_end", "web_search_begin", "mcp_tool_call_end"),
        *("mcp_tool_call_begin", "exec_command_begin", "patch_apply_begin", "turn_diff"),
        *("context_compacted", "background_event", "sub_agent_activity", "plan_update"),
        *("undo_completed", "undo_started", "view_image_tool_call", "image_generation_end"),
        *("item_started", "thread_rolled_back", "thread_name_updated", "thread_goal_updated"),
        *("account/rateLimits/updated", "session_configured", "entered_review_mode"),
        *("exited_review_mode", "agent_message_delta", "exec_command_output_delta"),
        *("terminal_interaction", "hook_started", "hook_completed", "token_usage_updated"),
        *("user_message", "dynamic_tool_call_request", "dynamic_tool_call_response"),
    ]
)
"""Kinds of events that say nothing which others do not say."""

SILENT_RECORDS = frozenset(
    ["world_state", "inter_agent_communication_metadata", "inter_agent_communication", "state"]
)


class End(NamedTuple):
    """What the events of a call tell of its end."""

    script: str | None = None
    cwd: str | None = None
    exit_code: int | None = None
    stdout: str | None = None
    stderr: str = ""
    duration: float | None = None
    changes: Data | None = None
    """By path, as Codex names them."""
    failed: bool = False

    def joined(self, later: End) -> End:
        """What two events of one call tell together."""
        facts = {
            name: value for name, value in later._asdict().items() if value not in (None, "", False)
        }
        return self._replace(**facts)


def spawned_by(meta: Data) -> str | None:
    """The thread that started this one as a sub-agent, from the first record of a rollout."""
    source = meta.get("source")
    spawn = source.get("subagent") if isinstance(source, dict) else None
    if spawn is None:
        return None
    told = spawn.get("thread_spawn", spawn) if isinstance(spawn, dict) else {}
    found = told.get("parent_thread_id") if isinstance(told, dict) else None
    found = found or meta.get("parent_thread_id")
    return found if isinstance(found, str) and found else None


def output_text(output: Any) -> str:
    """The output of a call as the model is shown it."""
    if isinstance(output, str):
        return output
    found = parts_text(output, ("input_text", "text", "output_text"))
    if found or output in (None, [], {}):
        return found
    if isinstance(output, dict) and isinstance(output.get("content"), str):
        return str(output["content"])
    return text_of(output)


_RUNNING = re.compile(r"^Process running with session ID \d+", re.MULTILINE)
_HEADER = re.compile(
    r"\A(?:Chunk ID: .*\n)?(?:Exit code: (?P<code>-?\d+)\n)?Wall time: (?P<wall>[\d.]+) seconds\n"
    r"(?:Process exited with code (?P<other>-?\d+)\n)?(?:Original token count: \d+\n)?"
    r"(?:Total output lines: \d+\n)?Output:\n"
)


def still_running(text: str) -> bool:
    """Whether a command had not ended when its output was asked for."""
    return _RUNNING.search(text[:500]) is not None


def end_of(kind: str, payload: Data) -> End:
    """What an event of the end of a command or patch says."""
    if kind in ("FileChange", "patch_apply_end"):
        changes = payload.get("changes")
        failed = payload.get("success") is False or payload.get("status") in ("failed", "declined")
        return End(changes=changes if isinstance(changes, dict) else {}, failed=failed)
    output = payload.get("aggregated_output")
    stdout = output if isinstance(output, str) else payload.get("stdout")
    duration = payload.get("duration")
    seconds = None
    if isinstance(duration, dict):
        parts = [duration.get(name) for name in ("secs", "nanos")]
        if all(isinstance(part, int) for part in parts):
            seconds = parts[0] + parts[1] / 1e9  # type: ignore[operator]
    code = payload.get("exit_code")
    cwd = payload.get("cwd")
    return End(
        script=script_of(payload.get("command")),
        cwd=cwd.removeprefix("file://") if isinstance(cwd, str) else None,
        exit_code=code if isinstance(code, int) else None,
        stdout=stdout if isinstance(stdout, str) else None,
        stderr="" if isinstance(output, str) else text_of(payload.get("stderr")),
        duration=seconds,
        failed=payload.get("status") in ("failed", "declined") and code is None,
    )


def implied_call(end: End) -> tuple[str, Data]:
    """Name and arguments of a call of which only the end was written."""
    if end.changes is not None:
        return "apply_patch", {"input": ", ".join(map(str, end.changes))}
    return "exec_command", {"cmd": end.script or "", **({"workdir": end.cwd} if end.cwd else {})}


def result_of(builder: Builder, call: Call | None, text: str, end: End | None) -> Result:
    """The result of a call, from the output that was shown and what events tell."""
    code, wall, body = _shown(text)
    if end is None:
        end = End(exit_code=code, stdout=body, duration=wall)
    failed = end.failed or (end.exit_code is None and _refused(text))
    operations: list[Data] = []
    exit_code = code if end.exit_code is None else end.exit_code
    if not failed and exit_code in (None, 0):
        if end.changes is not None:
            operations = _changes(builder, end.changes)
        elif call is not None and call.tool.action is Action.PATCH:
            # As it was asked for; no event tells of it.
            patch = text_of(call.arguments.get(call.tool.content))
            operations = list(patch_operations(patch, call.cwd))
    patched = call is not None and call.tool.action is Action.PATCH
    return Result(
        text,
        refused=end.exit_code is None and _refused(text),
        failed=failed or (patched and exit_code not in (None, 0)),
        exit_code=exit_code,
        stdout=body if end.stdout is None else end.stdout,
        stderr=end.stderr,
        exact=end.stdout is not None and "tokens truncated…" not in end.stdout,
        duration=wall if end.duration is None else end.duration,
        operations=operations,
    )


def _shown(text: str) -> tuple[int | None, float | None, str]:
    """Exit code, seconds and output within what the model was shown."""
    match = _HEADER.match(text)
    if match is not None:
        inner = _shown(text[match.end() :])
        code = match["code"] or match["other"]
        own = int(code) if code is not None else inner[0]
        return own, float(match["wall"]), inner[2]
    if text.startswith("{"):
        value = decoded(text)
        facts = value.get("metadata") if isinstance(value, dict) else None
        if isinstance(facts, dict) and isinstance(value.get("output"), str):
            code, wall = facts.get("exit_code"), facts.get("duration_seconds")
            return (
                code if isinstance(code, int) else None,
                float(wall) if isinstance(wall, int | float) else None,
                value["output"],
            )
    match = re.match(r"Exit code: (-?\d+)\nWall time: ([\d.]+) seconds\nOutput:\n", text)
    if match is not None:
        return int(match[1]), float(match[2]), text[match.end() :]
    return None, None, text


def _refused(text: str) -> bool:
    marks = ("failed in sandbox", "exec_command failed", "apply_patch verification failed")
    return text.startswith(("rejected by user", "exec error", *marks)) or "\nrejected" in text[:200]


def _changes(builder: Builder, changes: Data) -> list[Data]:
    found: list[Data] = []
    for name, change in changes.items():
        if not isinstance(change, dict):
            continue
        path = builder.path(name)
        kind = change.get("type") or next(iter(change), None)
        facts = change if "type" in change else change.get(str(kind), {})
        facts = facts if isinstance(facts, dict) else {}
        moved = facts.get("move_path")
        if kind == "add" and isinstance(facts.get("content"), str):
            found.append(operation(path, OperationType.CREATE, content_after=facts["content"]))
        elif kind == "delete":
            found.append(operation(path, OperationType.DELETE))
        elif kind == "update" and isinstance(facts.get("unified_diff"), str):
            diff = facts["unified_diff"]
            if isinstance(moved, str) and moved:
                target = builder.path(moved)
                made = operation(target, OperationType.CREATE, patch=diff, renamed_from=path)
                found += [made, operation(path, OperationType.DELETE)]
            else:
                found.append(operation(path, OperationType.EDIT, patch=diff))
    return found
