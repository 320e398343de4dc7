"""What the tools of Cline were given and answered, in its three ways to write them down."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from repotrace.agents import Action, Tool
from repotrace.agents.cline import TOOLS
from repotrace.importers.building import (
    Call,
    Data,
    Result,
    operation,
    parts_text,
    script_of,
    text_of,
)
from repotrace.importers.claims import claimed, inserted
from repotrace.importers.effects import normalised
from repotrace.records.run import OperationType

_EXIT = re.compile(r"(?:[Ee]xited with code|[Ee]xit code:?|exit code) (-?\d+)")
_PREFIX = re.compile(r"\A(?:Command failed: )?Command exited with code -?\d+\n?")
_TIMED_OUT = re.compile(r"timed out after", re.IGNORECASE)
_FINAL = re.compile(r'<final_file_content path="([^"]*)">\n(.*?)\n</final_file_content>', re.DOTALL)
_OUTPUT = re.compile(r"(?:^|\n)Output:\n(.*)\Z", re.DOTALL)
_PARAMETER = re.compile(r"<(\w+)>(.*?)</\1>", re.DOTALL)
_TOOL = re.compile(
    rf"<({'|'.join(sorted(TOOLS, key=len, reverse=True))})>(.*?)(?:</\1>|\Z)", re.DOTALL
)
_BLOCK = re.compile(
    r"^(?:-{3,} SEARCH|<{5,} SEARCH)>?\n(.*?)^={5,}\n(.*?)^(?:\+{3,} REPLACE|>{5,} REPLACE)",
    re.DOTALL | re.MULTILINE,
)
_REFUSED = ("The user denied this operation", "The user provided the following feedback")
_FAILED = re.compile(r"(?:\A|\n)(?:Error|The tool execution failed)", re.IGNORECASE)


class Asked(NamedTuple):
    """A call of a tool."""

    id: str
    name: str
    arguments: Any


def calls_of(call_id: str, name: str, given: Any) -> list[Asked]:
    """The calls that one of Cline's is: commands are run apart from each other."""
    if name == "run_commands":
        commands = _commands(given)
        if len(commands) == 1:
            return [Asked(call_id, name, {"command": commands[0]})]
        return [
            Asked(f"{call_id} {number}", name, {"command": command})
            for number, command in enumerate(commands)
        ]
    if name == "read_files":
        wanted = _wanted(given)
        if len(wanted) == 1:
            return [Asked(call_id, name, wanted[0])]
        return [Asked(call_id, name, {"files": wanted})]
    return [Asked(call_id, name, given)]


def _commands(given: Any) -> list[str]:
    if isinstance(given, dict):
        if "args" in given:
            return [_command(given)]
        given = given.get("commands", given.get("command", given.get("cmd")))
    listed = given if isinstance(given, list) else [given]
    return [_command(one) for one in listed] or [""]


def _command(given: Any) -> str:
    if isinstance(given, dict):
        args = given.get("args")
        words = args if isinstance(args, list) else []
        return script_of([given.get("command"), *words]) if words else text_of(given.get("command"))
    return text_of(given)


def _wanted(given: Any) -> list[Data]:
    """The files that are to be read, each with `path` and lines."""
    if isinstance(given, dict):
        for name in ("files", "file_paths", "paths"):
            if name in given:
                given = given[name]
                break
    listed = given if isinstance(given, list) else [given]
    found = [one if isinstance(one, dict) else {"path": one} for one in listed]
    return [one for one in found if isinstance(one.get("path"), str)]


def results_of(part: Data, calls: Sequence[Call | None]) -> Iterator[Result]:
    """The results of the calls that one `tool_result` answers."""
    content = part.get("content")
    if isinstance(content, str) and content.startswith(("{", "[")):
        content = _decoded(content)
    if isinstance(content, dict):
        content = [content]
    told: list[Any] = content if isinstance(content, list) else []
    answers = [one for one in told if isinstance(one, dict) and ("query" in one or "result" in one)]
    whole = part.get("is_error") is True
    for number, call in enumerate(calls):
        if not answers:
            text = parts_text(part.get("content")) or text_of(part.get("content"))
            yield _result(call, text, text, failed=whole)
        elif len(calls) > 1:
            answer = answers[number] if number < len(answers) else {}
            yield _answered(call, [answer], whole=whole)
        else:
            yield _answered(call, answers, whole=whole)


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _answered(call: Call | None, answers: list[Data], *, whole: bool) -> Result:
    bad = any(answer.get("success") is False and answer.get("error") for answer in answers)
    texts = []
    for answer in answers:
        parts = (_shown(answer.get("result")), text_of(answer.get("error")))
        texts.append("\n".join(text for text in parts if text))
    text = "\n\n".join(texts)
    output = _shown(answers[0].get("result")) or text if len(answers) == 1 else text
    return _result(call, text, output, failed=bad or whole)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else parts_text(value) or text_of(value)


def _result(call: Call | None, text: str, output: str, *, failed: bool) -> Result:
    if call is None:
        return Result(text, failed=failed)
    refused = text.startswith(_REFUSED)
    if call.tool.action is Action.RUN:
        match = _EXIT.search(text[:400]) or _EXIT.search(text[-400:]) if failed else None
        late = failed and _TIMED_OUT.search(text[:400]) is not None
        return Result(
            text,
            failed=failed or refused,
            exit_code=int(match[1]) if match else None if failed or refused else 0,
            stdout=_PREFIX.sub("", output),
            termination="timeout" if late else None,
            refused=refused,
        )
    if failed or refused:
        return Result(text, failed=True, refused=refused)
    reads = [_read(one, call.cwd) for one in call.arguments.get("files") or ()]
    if call.name == "read_files" and not reads and call.arguments.get("end_line"):
        reads = [_read(call.arguments, call.cwd)]
    return Result(text, operations=_operations(call, text), reads=reads)


def _read(wanted: Data, cwd: str) -> Data:
    read: Data = {"file_path": normalised(cwd, text_of(wanted.get("path"))), "kind": "read"}
    first, last = wanted.get("start_line"), wanted.get("end_line")
    if isinstance(first, int) and first > 0:
        read["first_line"] = first
    if isinstance(last, int) and last > 0:
        read["last_line"] = last
    return read


def _operations(call: Call, text: str) -> list[Data]:
    given = call.arguments
    if call.name == "editor":
        return _edited(call.tool, given, call.cwd, text)
    if call.tool.action not in (Action.EDIT, Action.WRITE, Action.PATCH):
        return []
    path = normalised(call.cwd, text_of(given.get("path")))
    final = _FINAL.search(text)
    if final is not None:
        # What the user changed before saving is in it as well; the line end at the end is not.
        kind = OperationType.EDIT
        return [operation(path, kind, content_after=_ended(final[2]))]
    if call.name == "replace_in_file":
        blocks = _BLOCK.findall(text_of(given.get("diff")))
        edits = [{"old": old, "new": new, "all": False} for old, new in blocks]
        return [operation(path, OperationType.EDIT, edits=edits or None)]
    if call.tool.action is Action.WRITE:
        content = _ended(text_of(given.get(call.tool.content)))
        return [operation(path, OperationType.EDIT, content_after=content)]
    return claimed(call.tool, given, call.cwd)


def _edited(tool: Tool, given: Data, cwd: str, text: str) -> list[Data]:
    path = normalised(cwd, text_of(given.get("path")))
    line = given.get("insert_line")
    new = text_of(given.get("new_text"))
    if isinstance(line, int) and not isinstance(line, bool):
        return [inserted(path, line - 1, new)]
    if text.startswith("File created") or not isinstance(given.get("old_text"), str):
        return [operation(path, OperationType.CREATE, content_after=new)]
    return claimed(tool, given, cwd)


def _ended(content: str) -> str:
    return content if content.endswith("\n") or not content else content + "\n"


# --- Tools in the text of an answer ---------------------------------------------------------


def spoken_calls(text: str, prefix: str) -> tuple[str, list[Asked]]:
    """The words of an answer, and the calls that are written into it."""
    calls: list[Asked] = []
    for match in _TOOL.finditer(text):
        name, body = match[1], match[2]
        calls.append(Asked(f"{prefix} {len(calls)}", name, _arguments(name, body)))
    words = _TOOL.sub("", text)
    return re.sub(r"</?thinking>", "", words).strip(), calls


def _arguments(name: str, body: str) -> Data:
    longest = {"write_to_file": "content", "replace_in_file": "diff"}.get(name)
    found: Data = {}
    if longest:
        # The content may hold tags itself.
        match = re.search(rf"<{longest}>\n?(.*)</{longest}>", body, re.DOTALL)
        if match is not None:
            found[longest] = match[1]
            body = body[: match.start()] + body[match.end() :]
    for match in _PARAMETER.finditer(body):
        found[match[1]] = match[2].strip()
    return found


def told_result(call: Call, text: str) -> Result:
    """The result of a call that was written into an answer, from the user's next message."""
    refused = text.startswith(_REFUSED)
    if call.tool.action is not Action.RUN:
        failed = refused or _FAILED.match(text) is not None
        return _result(call, text, text, failed=failed)
    match = _EXIT.search(text[:400])
    output = _OUTPUT.search(text)
    code = int(match[1]) if match else None
    return Result(
        text,
        failed=refused or "not successful" in text[:200],
        exit_code=code,
        stdout=output[1] if output else text,
        termination="timeout" if _TIMED_OUT.search(text[:200]) else None,
        refused=refused,
    )
