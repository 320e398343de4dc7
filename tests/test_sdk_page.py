"""docs/sdk.md: its code runs as it stands, and it names what there is."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tracing import Project, make_project

import repotrace
from repotrace import trace_agent

PAGE = (Path(__file__).parents[1] / "docs" / "sdk.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return make_project(tmp_path, monkeypatch)


def names() -> dict[str, Any]:
    return {name: getattr(repotrace, name) for name in repotrace.__all__}


def test_the_first_example_is_a_run_with_a_retry(project: Project) -> None:
    tries = iter([False, True])

    async def write_patch(task: str, errors: str | None = None) -> str:
        return f"patch for {errors or task}"

    async def run_tests(patch: str) -> SimpleNamespace:
        return SimpleNamespace(passed=next(tries), errors="AssertionError")

    space = {"write_patch": write_patch, "run_tests": run_tests}
    exec(BLOCKS[0], space)
    fix_bug: Any = space["fix_bug"]
    assert asyncio.run(fix_bug("the date bug")) == "patch for AssertionError"
    assert project.run.environment == "production"
    assert [(s.description, s.status, s.attempt) for s in project.steps()] == [
        ("write-patch", "completed", 1),
        ("run-tests", "failed", 1),
        ("retry", "completed", 2),
    ]


def test_the_other_examples_run(project: Project) -> None:
    message = {
        "type": "message",
        "model": "claude-opus-4-5",
        "content": [{"type": "text", "text": "Yes."}],
        "usage": {"input_tokens": 10, "output_tokens": 2},
    }
    client = SimpleNamespace(messages=SimpleNamespace(create=lambda **_: message))
    space: dict[str, Any] = {
        **names(),
        "plan": SimpleNamespace(why="it is misspelt"),
        "rename": lambda old, new: None,
        "old": "a",
        "new": "b",
        "client": client,
        "messages": [{"role": "user", "content": "?"}],
        "ask_again": lambda errors: None,
    }
    project.write("test_red.py", "def test_red(): assert False\n")

    @trace_agent
    def agent() -> None:
        for block in BLOCKS[1:]:
            exec(block.replace('["pytest", "-q"]', '["python", "-m", "pytest", "-q"]'), space)
        space["search"]("x")

    try:
        agent()
    finally:
        repotrace.uninstrument()
    steps = {step.description: step for step in project.steps()}
    assert steps["rename the field"].output_result == "3 places"
    assert steps["search"].input_context == "x"
    calls = project.store.runs.interactions(project.run.id)
    assert [(call.model, call.tokens_used, call.cost_source) for call in calls] == [
        ("claude-opus-4-5", 12, "computed"),
        ("my-model", 940, None),
    ]
    (outcome,) = project.store.runs.tests(project.run.id)
    assert outcome.outcome == "failed"


def test_the_page_names_every_public_name() -> None:
    unnamed = {"Span", "__version__", "current_span"}
    assert {name for name in repotrace.__all__ if f"{name}" not in PAGE} <= unnamed
