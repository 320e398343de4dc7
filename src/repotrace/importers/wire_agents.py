"""Whose traffic it is, and what its tools were given and answered, as far as a model is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from repotrace import testlogs
from repotrace.agents import AGENTS, OTHER, Action, Agent, Tool, agent
from repotrace.importers import claude_code_results, codex_results, gemini_cli_results, programs
from repotrace.importers.building import Builder, Call, Data, Result
from repotrace.importers.claims import claimed, spoken
from repotrace.importers.values import script_of, text_of
from repotrace.importers.wire_requests import Ask, Told

_PROGRAMS = (
    (re.compile(r"^claude-cli/"), "claude-code"),
    (re.compile(r"^codex[-_]"), "codex"),
    (re.compile(r"^GeminiCLI"), "gemini-cli"),
    (re.compile(r"^opencode/"), "opencode"),
    (re.compile(r"^(?:cline|roo)", re.IGNORECASE), "cline"),
)
"""Agents by the name that they give to themselves."""

_WORDS = (
    (re.compile(r"\bYou are OpenHands\b"), "openhands"),
    (re.compile(r"SEARCH/REPLACE\W+block"), "aider"),
    (re.compile(r"COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"), "mini-swe-agent"),
    (re.compile(r"attempting to submit the best possible answer"), "inspect"),
    (re.compile(r"\bYou are Codex\b"), "codex"),
    (re.compile(r"\byou are Cline\b", re.IGNORECASE), "cline"),
)
"""Agents by what they tell their model."""

_TASKS = {
    "mini-swe-agent": re.compile(
        r"Please solve this issue: (.*?)\n\s*You can execute bash commands", re.DOTALL
    )
}

UNKNOWN = "unknown"
"""The name of an agent that does not tell it."""

_FOLDER = re.compile(
    r"(?:<cwd>|[Ww]orking directory(?: is)?:\s*|working in the directory:\s*|"
    r"Workspace Directories:\**\n\s*- )(/[^\n<]*?)\]?(?=\n|<|$)"
)


def named(headers: Mapping[str, str]) -> str | None:
    """The agent that a request comes from, by what it calls itself."""
    told = headers.get("user-agent", "")
    return next((name for pattern, name in _PROGRAMS if pattern.search(told)), None)


def version_of(headers: Mapping[str, str]) -> str | None:
    """The version of the agent, where the request names it."""
    if named(headers) is None:
        return None
    return headers.get("user-agent", "").partition("/")[2].split(" ")[0].split("/")[0] or None


def described(ask: Ask) -> str | None:
    """The agent that a request comes from, by the words that it gives to its model."""
    words = "\n".join(_texts(message) for message in ask.messages[:6])
    return next((name for pattern, name in _WORDS if pattern.search(words)), None)


def task_of(name: str, text: str) -> str:
    """The task within the words that an agent puts around it."""
    pattern = _TASKS.get(name)
    match = pattern.match(text) if pattern else None
    return match[1].strip() if match else text


def folder_of(ask: Ask) -> str:
    """The folder that an agent works in, where it tells its model."""
    for message in ask.messages[:6]:
        match = _FOLDER.search(_texts(message))
        if match and message["role"] != "assistant":
            return match[1].strip()
    return ""


def _texts(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(text_of(part.get("text")) for part in content or ())


# --- Tools ----------------------------------------------------------------------------------


def speaking(name: str | None) -> Agent:
    """The agent of a name. Of one that is not known, tools are understood by their arguments: see
    `understood`."""
    if name in AGENTS:
        return agent(str(name))
    return Agent(name or UNKNOWN, name or "Unknown", "wire", {}, lambda _environ, _folder: ())


def understood(speaker: Agent, name: str, arguments: Any) -> tuple[Agent, str]:
    """The agent with a vocabulary that has the tool, and the tool's name in it."""
    known = spoken(name, arguments, speaker.tools)
    if known in speaker.tools:
        return speaker, known
    for tools in _vocabularies():
        other = spoken(name, arguments, tools)
        tool = tools.get(other, OTHER)
        if tool is not OTHER and _fits(tool, arguments):
            return speaker._replace(tools={**speaker.tools, other: tool}), other
    return speaker, name


@cache
def _vocabularies() -> tuple[Mapping[str, Tool], ...]:
    return tuple(agent(name).tools for name in AGENTS)


def _fits(tool: Tool, arguments: Any) -> bool:
    if not isinstance(arguments, dict):
        return False
    told = [name for name in (tool.path, tool.command, tool.content) if name]
    return all(name in arguments for name in told)


# --- Results --------------------------------------------------------------------------------

_CODES = (
    re.compile(r"\A(?:Error: )?[Ee]xit code:? (-?\d+)\b"),
    re.compile(r"\[The command completed with exit code (-?\d+)\.\]"),
    re.compile(
        r"(?:[Pp]rocess|[Cc]ommand) (?:exited|finished|failed) with (?:exit )?code:? (-?\d+)"
    ),
    re.compile(r"(?:^|\n)\(?[Ee]xit (?:code|status):? (-?\d+)\)?\s*\Z"),
)
_LOG = 1 << 20
"""Characters at the end of an output that are looked at for failing tests."""
_RETURNED = re.compile(
    r"<returncode>(-?\d+)</returncode>\s*<output>\n?(.*?)\n?</output>", re.DOTALL
)


def result_of(builder: Builder, call: Call, told: Told) -> Result:
    """What came back from a tool."""
    name = builder.agent.name
    # What an agent was given from outside answers in its own way.
    read = _READERS.get(name) if name in AGENTS and call.name in agent(name).tools else None
    result = read(builder, call, told) if read else _generic(call, told)
    if call.tool.action is Action.SUBMIT:
        return result._replace(operations=())
    return result


def _claude(builder: Builder, call: Call, told: Told) -> Result:
    part: Data = {"content": told.text, "is_error": told.failed}
    # The files that long outputs lie in are the agent's own.
    return claude_code_results.result_of(builder, call, part, None, Path("/dev/null"))


def _codex(builder: Builder, call: Call, told: Told) -> Result:
    if codex_results.still_running(told.text):
        return Result(told.text, background=True)
    return codex_results.result_of(builder, call, told.text, None)


def _gemini(builder: Builder, call: Call, told: Told) -> Result:
    del builder
    status = "error" if told.failed else "success"
    shown = {"result": [{"functionResponse": told.raw}], "status": status}
    return gemini_cli_results.result_of(shown, call)


def _generic(call: Call, told: Told) -> Result:
    text = told.text
    code, output, failed = _ended(text)
    failed = failed or told.failed
    if call.tool.action is Action.RUN:
        # Many agents do not show the exit code. That tests failed is said by their output, too.
        tests = code is None and not failed and _tests_failed(call, output)
        told_by = {"tests": "failed"} if tests else {}
        return Result(text, failed=failed or tests, exit_code=code, stdout=output, metadata=told_by)
    # A text that begins so is what most tools say instead of raising.
    failed = failed or text.startswith(("Error: ", "ERROR:", "error: "))
    if failed:
        return Result(text, failed=True)
    return Result(text, operations=claimed(call.tool, call.arguments, call.cwd))


def _tests_failed(call: Call, output: str) -> bool:
    if not programs.is_test_command(script_of(call.arguments.get(call.tool.command))):
        return False
    log = testlogs.parse(output[-_LOG:])
    return log is not None and bool(log.failures)


def _ended(text: str) -> tuple[int | None, str, bool]:
    """Exit code and output of a command, and whether something kept it from ending."""
    if text.startswith("{"):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        facts = value if isinstance(value, dict) else {}
        code, output = facts.get("returncode", facts.get("exit_code")), facts.get("output")
        if isinstance(code, int) and not isinstance(code, bool) and isinstance(output, str):
            problem = bool(facts.get("exception_info"))
            return (None if problem and code == -1 else code), output, problem
    match = _RETURNED.search(text)
    if match:
        return int(match[1]), match[2], False
    for pattern in _CODES:
        found = pattern.search(text)
        if found:
            return int(found[1]), text, False
    return None, text, False


_READERS: dict[str, Callable[[Builder, Call, Told], Result]] = {
    "claude-code": _claude,
    "codex": _codex,
    "gemini-cli": _gemini,
}
