"""A coding agent of one page, recorded by RepoTrace. It needs no network and no key.

What makes it recorded are the import, the decorator, and a span around what it does. Its model is a
class that plays back what a real one might say, so every run is the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from repotrace.demo.project import ENVIRONMENT, suite_argv
from repotrace.sdk import record_llm, record_read, run_tests, span, trace_agent

type Turn = tuple[str, str | None, dict[str, Any]]
"""What the model says, and the tool that it wants to use, with its arguments."""


class ScriptedModel:
    """Answers in the shape of a provider's API, whatever it is shown."""

    NAME = "scripted-model"
    PRICE = (3e-6, 15e-6)
    """Made-up dollars for a token read, and for one written."""

    def __init__(self, script: Sequence[Turn]) -> None:
        self.script = script
        self.turn = 0

    def answer(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """The next answer. Its token counts grow as those of a real conversation do."""
        words, tool, arguments = self.script[self.turn]
        self.turn += 1
        content: list[dict[str, Any]] = [{"type": "text", "text": words}]
        if tool:
            call = {"type": "tool_use", "id": f"call-{self.turn}", "name": tool}
            content.append(call | {"input": arguments})
        read = sum(len(str(message["content"])) for message in messages) // 4
        written = len(str(content)) // 4
        return {
            "type": "message",
            "id": f"answer-{self.turn}",
            "model": self.NAME,
            "content": content,
            "stop_reason": "tool_use" if tool else "end_turn",
            "usage": {"input_tokens": read, "output_tokens": written},
            "cost": f"{read * self.PRICE[0] + written * self.PRICE[1]:.6f}",
        }


# --- Tools ----------------------------------------------------------------------------------


def search(pattern: str) -> str:
    """The files that hold `pattern`."""
    found = sorted(path for path in Path().rglob("*.py") if re.search(pattern, path.read_text()))
    for path in found:
        record_read(path, kind="search")
    return "\n".join(map(str, found))


def read(path: str) -> str:
    """A file's content."""
    record_read(path)
    return Path(path).read_text()


def edit(path: str, changes: Sequence[tuple[str, str]]) -> str:
    """Replace texts that the file holds once each."""
    content = Path(path).read_text()
    for old, new in changes:
        assert content.count(old) == 1, old
        content = content.replace(old, new)
    Path(path).write_text(content)
    return f"changed {path}"


TOOLS: dict[str, Callable[..., str]] = {"search": search, "read": read, "edit": edit}


def use(tool: str, arguments: dict[str, Any], reason: str) -> str:
    """What the tool gives, as a step beside the words that led to it."""
    if tool == "test":
        paths = arguments.get("paths", ())
        name = f"run {', '.join(paths) or 'the tests'}"
        env = {**os.environ, **ENVIRONMENT}
        return str(run_tests(suite_argv(*paths), env=env, name=name, reason=reason))
    path = arguments.get("path", "")
    kind = "edit" if tool == "edit" else "tool"
    with span(f"{tool} {path}".strip(), type=kind, input=arguments, reason=reason) as step:
        result = TOOLS[tool](**arguments)
        step.output = result
    return result


# --- The agent ------------------------------------------------------------------------------


class InvoiceAgent:
    """Asks a model, does what it says, and shows it what came of it, until it asks for no tool."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model

    @trace_agent(name="invoice_agent", environment="example")
    def work(self, task: str) -> str:
        """What the model says in the end. Works in the current folder."""
        messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
        while True:
            answer = self.model.answer(messages)
            record_llm(answer, messages=messages, cost_usd=answer["cost"])
            messages.append({"role": "assistant", "content": answer["content"]})
            words = answer["content"][0]["text"]
            calls = [part for part in answer["content"] if part["type"] == "tool_use"]
            if not calls:
                return str(words)
            for call in calls:
                result = use(call["name"], call["input"], reason=words)
                said = {"type": "tool_result", "tool_use_id": call["id"], "content": result}
                messages.append({"role": "user", "content": [said]})
