"""Play a generated run through the SDK, as an agent would be recorded."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from benchmarks.blame.scenarios import Action, Making
from benchmarks.blame.work import Work
from repotrace import record_decision, span, trace_agent
from repotrace.runs.traces import store_of
from repotrace.sdk.commands import run_command, run_tests
from repotrace.storage import Store

THINKING = 0.15
"""The share of steps that change nothing."""


@contextmanager
def environ(variables: dict[str, str]) -> Iterator[None]:
    """With just these variables."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def record(making: Making) -> tuple[Store, str]:
    """Make the run; the store and the id of the run."""
    work = making.work
    work.commit()
    with environ(work.environ), chdir(work.folder):
        trace_agent(_work, name="generated", task="improve it", workspace=work.folder)(making)
        store = store_of(work.folder)
        store.runs.ingest()
        run = store.runs.get("latest")
        steps = store.runs.steps(run.id)
    numbers = [step.step_number for step in steps]
    if numbers != list(range(1, making.size + 1)):
        raise AssertionError(f"{len(numbers)} steps were recorded, not {making.size}")
    return store, run.id


def _work(making: Making) -> None:
    for number in range(1, making.size + 1):
        action = making.actions.get(number)
        if action is None and making.chance.random() < THINKING:
            record_decision(f"think about {number}")
        elif action is None:
            words = making.work.harmless(making.chance, number)
            with span(words, type="edit"):
                making.work.write()
        else:
            _perform(making, action)


def _perform(making: Making, action: Action) -> None:
    work = making.work
    if action.tests:
        words = [str(work.python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        run_tests([*words, *action.tests], name=action.what)
    elif action.line:
        done = run_command(action.line, name=action.what)
        if not done.passed:
            raise AssertionError(f"{action.line}: {done}")
    else:
        assert action.change is not None
        action.change(work)
        if action.shell:
            done = run_command(_shell_line(work), name=action.what)
            assert done.passed, done.errors
            work.written()
        else:
            with span(action.what, type="edit"):
                work.write()


def _shell_line(work: Work) -> str:
    """A command that changes the one line that is to be changed."""
    (path,) = work.changed()
    old = (work.folder / path).read_text().split("\n")
    new = work.rendered(path).decode().split("\n")
    places = [number for number, line in enumerate(old) if line != new[number]]
    if len(old) != len(new) or len(places) != 1:
        file = work.ground.work / "by-shell"
        file.write_bytes(work.rendered(path))
        return f"cp {shlex.quote(str(file))} {shlex.quote(path)}"
    (place,) = places
    text = new[place].replace("\\", "\\\\")
    return f"sed -i {shlex.quote(f'{place + 1}c\\{chr(10)}{text}')} {shlex.quote(path)}"


def home_of(store: Store) -> Path:
    """Where the states are."""
    return store.snapshots.path
