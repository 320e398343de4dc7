"""A coding agent of one page, recorded by RepoTrace. It needs no network and no key.

    python examples/invoice_agent.py [FOLDER]

It works on a copy of `examples/invoice`, where invoices with yearly terms crash when they are sent
on 29 February. Its first patch breaks a test that passed; it sees that, and repairs it. What makes
it recorded are the import, the decorator, and a span around what it does. The model is a class that
plays back what a real one might say, so every run is the same.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repotrace import record_llm, record_read, run_tests, span, trace_agent

TASK = "Yearly invoices crash when they are sent on 29 February. Fix it; all tests have to pass."


class ScriptedModel:
    """Answers in the shape of a provider's API, whatever it is shown."""

    NAME = "scripted"
    PRICE = (3e-6, 15e-6)
    """Dollars for a token read, and for one written."""

    SCRIPT: tuple[tuple[str, str | None, dict[str, str]], ...] = (
        ("Which code knows about terms?", "search", {"pattern": "yearly"}),
        ("`last_day` decides it. I'll read it.", "read", {"path": "billing/terms.py"}),
        ("And what is expected of it.", "read", {"path": "tests/test_terms.py"}),
        (
            "29 February does not exist in the next year. I'll add 365 days instead.",
            "edit",
            {
                "path": "billing/terms.py",
                "old": "sent.replace(year=sent.year + 1)",
                "new": "sent + timedelta(days=365)",
            },
        ),
        ("Now the tests.", "test", {}),
        (
            "365 days are a day short over a leap day. I'll replace the year again, and treat"
            " 29 February on its own.",
            "edit",
            {
                "path": "billing/terms.py",
                "old": "        return sent + timedelta(days=365)\n",
                "new": "        day = 28 if (sent.month, sent.day) == (2, 29) else sent.day\n"
                "        return sent.replace(year=sent.year + 1, day=day)\n",
            },
        ),
        ("Again.", "test", {}),
        ("Fixed: from 29 February it is 28 February; all tests pass.", None, {}),
    )

    def __init__(self) -> None:
        self.turn = 0

    def answer(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """The next answer. Its token counts grow as those of a real conversation do."""
        words, tool, arguments = self.SCRIPT[self.turn]
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


def edit(path: str, old: str, new: str) -> str:
    """Replace a text that the file holds once."""
    content = Path(path).read_text()
    assert content.count(old) == 1
    Path(path).write_text(content.replace(old, new))
    return f"changed {path}"


TOOLS: dict[str, Callable[..., str]] = {"search": search, "read": read, "edit": edit}


def use(tool: str, arguments: dict[str, Any], reason: str) -> str:
    """What the tool gives, as a step beside the words that led to it."""
    if tool == "test":
        command = [sys.executable, "-m", "pytest", "-q"]
        return str(run_tests(command, name="run the tests", reason=reason))
    path = arguments.get("path", "")
    kind = "edit" if tool == "edit" else "tool"
    with span(f"{tool} {path}".strip(), type=kind, input=arguments, reason=reason) as step:
        result = TOOLS[tool](**arguments)
        step.output = result
    return result


# --- The agent ------------------------------------------------------------------------------


@trace_agent(environment="example")
def invoice_agent(task: str) -> str:
    """Ask the model, do what it says, show it what came of it, until it asks for no tool."""
    model = ScriptedModel()
    messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
    while True:
        answer = model.answer(messages)
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


def copy_project(folder: Path) -> None:
    """The invoice project as a git repository with one commit."""
    shutil.copytree(
        Path(__file__).parent / "invoice",
        folder,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    who = ("-c", "user.name=Example", "-c", "user.email=example@localhost")
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "Invoices"]):
        subprocess.run(["git", *command], cwd=folder, check=True)


def main() -> None:
    """Work on a copy of the project, in the given folder or a new one."""
    given = sys.argv[1:]
    folder = Path(given[0] if given else tempfile.mkdtemp(prefix="invoice-"))
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"{folder} is not empty")
    folder.mkdir(parents=True, exist_ok=True)
    copy_project(folder)
    os.chdir(folder)
    print(invoice_agent(TASK))
    print(f"\nLook at it:\n  cd {folder}\n  repotrace runs show\n  repotrace play --step 7")


if __name__ == "__main__":
    main()
