"""Programs made at random: what they did is known, and the record has to say the same."""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from tracing import Project, make_project

from repotrace import TracingExecutor, propagate, record_log, span, trace_agent

type Fact = tuple[str, str | None, str]
"""Of a step: its name, that of its parent, its status."""

TYPES = ("tool", "llm", "planning", "edit", "gate")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return make_project(tmp_path, monkeypatch)


class Wrong(Exception):
    """What the programs raise."""


class Program:
    """A tree of steps, made as it runs; `facts` is what must have been recorded."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.facts: list[Fact] = []
        self.logged = 0
        self._count = 0
        self._lock = threading.Lock()
        self._prefix = ""

    def _name(self) -> str:
        with self._lock:
            self._count += 1
            return f"{self._prefix}{self._count}"

    def _told(self, name: str, parent: str | None, status: str = "completed") -> None:
        with self._lock:
            self.facts.append((name, parent, status))

    def run(self, parent: str | None, depth: int) -> None:
        """Some things, one after another, within the step `parent`."""
        ways: list[Callable[[str | None, int], None]] = [
            *(self.plain, self.called, self.decorated, self.failing, self.dropped, self.nested),
            *(self.threads, self.pool, self.tasks, self.forked, self.message),
        ]
        for _ in range(self.chance.randint(1, 3)):
            self.chance.choice(ways if depth else [self.message, self.plain])(parent, depth - 1)

    def message(self, parent: str | None, depth: int) -> None:
        record_log(f"in {parent}")
        with self._lock:
            self.logged += 1

    def plain(self, parent: str | None, depth: int) -> None:
        name = self._name()
        with span(name, type=self.chance.choice(TYPES), input=parent):
            if depth > 0:
                self.run(name, depth)
        self._told(name, parent)

    def called(self, parent: str | None, depth: int) -> None:
        name = self._name()

        def work() -> int:
            self.run(name, depth)
            return depth

        assert span(name, work, type="tool") == depth
        self._told(name, parent)

    def decorated(self, parent: str | None, depth: int) -> None:
        name = self._name()

        @span(name, type="planning")
        def work(within: int) -> str:
            self.run(name, within)
            return name

        assert work(depth) == name
        self._told(name, parent)

    def failing(self, parent: str | None, depth: int) -> None:
        name = self._name()
        with suppress(Wrong), span(name, type=self.chance.choice(TYPES)):
            self.run(name, depth)
            raise Wrong(name)
        self._told(name, parent, "failed")

    def nested(self, parent: str | None, depth: int) -> None:
        name = self._name()
        trace_agent(lambda: self.run(name, depth), name=name)()
        self._told(name, parent)

    def dropped(self, parent: str | None, depth: int) -> None:
        name, inner = self._name(), self._name()

        @span(name)
        def steps() -> Iterator[int]:
            with span(inner, type="tool"):
                self.run(inner, depth)
                yield 1
                yield 2

        going = steps()
        next(going)
        self.plain(parent, 0)
        del going
        self._told(inner, name)
        self._told(name, parent)

    def threads(self, parent: str | None, depth: int) -> None:
        threads = [
            threading.Thread(target=propagate(self.plain), args=(parent, depth)) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def pool(self, parent: str | None, depth: int) -> None:
        kind = self.chance.choice([TracingExecutor, ThreadPoolExecutor])
        with kind(2) as pool:
            work = self.plain if kind is TracingExecutor else propagate(self.plain)
            for done in [pool.submit(work, parent, depth) for _ in range(3)]:
                done.result()

    def tasks(self, parent: str | None, depth: int) -> None:
        async def work(name: str, seconds: float) -> None:
            async with span(name, type=self.chance.choice(TYPES)):
                inner = self._name()
                await span(inner, lambda: asyncio.sleep(seconds), type="tool")
                self._told(inner, name)
                await asyncio.to_thread(self.run, name, 0)
            self._told(name, parent)

        async def main() -> None:
            await asyncio.gather(*(work(self._name(), self.chance.random() / 100) for _ in "abc"))

        with ThreadPoolExecutor(1) as pool:  # there may be a loop in this thread already
            pool.submit(propagate(lambda: asyncio.run(main()))).result()

    def forked(self, parent: str | None, depth: int) -> None:
        if threading.active_count() > 1:  # what threads hold is nothing that we could keep
            return
        self._count += 1
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                self._prefix, self.facts, self.logged = f"{self._prefix}{self._count}.", [], 0
                self.run(parent, min(depth, 1))
                os.write(writing, json.dumps([self.facts, self.logged]).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with open(reading) as answer:
            facts, logged = json.loads(answer.read())
        os.waitpid(child, 0)
        self.facts += [(name, above, status) for name, above, status in facts]
        self.logged += logged


def check(project: Project, seed: int, states: bool) -> None:
    program = Program(seed)

    @trace_agent(name=f"seed {seed}", states=states)
    def agent() -> None:
        program.run(None, 3)

    agent()
    run = project.run
    assert (run.status, run.totals.lost) == ("completed", 0)
    steps = project.store.runs.steps(run.id)
    names = {step.id: step.description for step in steps}
    found = [(s.description, names.get(s.parent_id or ""), s.status) for s in steps]
    assert sorted(found) == sorted(program.facts, key=lambda fact: (fact[0], fact[1] or ""))
    assert [step.step_number for step in steps] == list(range(1, len(steps) + 1))
    assert len(project.store.runs.logs(run.id)) == program.logged
    assert not any(step.started_at > (step.completed_at or step.started_at) for step in steps)


@pytest.mark.parametrize("seed", range(8))
def test_a_random_program(project: Project, seed: int) -> None:
    check(project, seed, states=seed % 4 == 0)


@pytest.mark.slow
def test_many_random_programs(project: Project) -> None:
    for seed in range(1_000, 1_500):
        check(project, seed, states=seed % 10 == 0)
