"""Checkpoints: states with a name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from repotrace.errors import RepoTraceError, RunNotFound
from repotrace.journal import new_id, new_run_id
from repotrace.records.events import Kind
from repotrace.records.run import CHECKPOINT_SOURCE, Run, RunStatus, StepType
from repotrace.runs.states import KnownState, StatesOfRun
from repotrace.storage import Store
from repotrace.storage.consent import is_being_recorded
from repotrace.storage.labels import Reached, labelled, labels, reached

_LONGEST = 100
"""Characters: such a name always stands in its row, where it is looked for."""


class Checkpoint(NamedTuple):
    """A step with a name."""

    run: Run
    step_number: int
    known: KnownState
    label: str
    reached: Reached
    """How far the run had come then."""


def label_step(store: Store, run: Run, label: str, *, step: int | None = None) -> Checkpoint:
    """Name a step of a run, by default its last one that has a state.

    A name that the step had is replaced. Raises RunNotFound if there is no such step.
    """
    _check(label)
    states = StatesOfRun.of(store, run)
    number = step if step is not None else states.last().step_number or states.last_step
    if number == 0:
        raise RunNotFound(f"Run {run.id} has no step that could be named.")
    known = states.after(number)
    found = store.runs.step(run.id, number)
    time = int((found.completed_at or found.started_at).timestamp() * 1_000_000) * 1000
    _tell(store, run.id, time, (Kind.STEP_UPDATED, {"id": found.id, "label": label}))
    return Checkpoint(run, number, known, label, reached(store.home, run.id, number))


def take_checkpoint(store: Store, workspace: Path, label: str, *, now: int) -> Checkpoint:
    """Keep the files of `workspace` as they are under a name.

    It is a step of the run that is being recorded there; if none is, of a run of its own.
    `now` is in nanoseconds since 1970. Raises RepoTraceError if the files cannot be kept.
    """
    _check(label)
    going = store.runs.list(status=RunStatus.RUNNING, workspace=str(workspace))
    running = [run for run in going if is_being_recorded(store, run)]
    run_id = running[0].id if running else new_run_id()
    taken = store.snapshots.take(workspace, ref=f"runs/{run_id}", message=f"checkpoint {label}")
    if taken.state_id is None:
        raise RepoTraceError(f"The files could not be kept: {taken.reason}")
    step_id = new_id(now)
    summary: dict[str, Any] = {}
    if running:
        totals = running[0].totals
        summary = {"steps": totals.steps, "files_modified": totals.files_modified}
    started = {
        "id": step_id,
        "step_type": StepType.NOTE,
        "description": f"checkpoint {label}",
        "label": label,
        "metadata": {"checkpoint": summary},
    }
    state = {"step_id": step_id, "state_id": taken.state_id, "state_quality": taken.quality}
    facts: list[tuple[Kind, dict[str, Any]]] = [
        (Kind.STEP_STARTED, started),
        (Kind.STATE, state),
        (Kind.STEP_ENDED, {"id": step_id}),
    ]
    if not running:
        about = {
            "source": CHECKPOINT_SOURCE,
            "task": f"checkpoint {label}",
            "workspace": str(workspace),
        }
        before = {name: value for name, value in state.items() if name != "step_id"}
        facts = [(Kind.RUN_STARTED, about), (Kind.STATE, before), *facts, (Kind.RUN_ENDED, {})]
    _tell(store, run_id, now, *facts)
    run = store.runs.get(run_id)
    number = store.runs.step(run_id, step_id).step_number
    return _checkpoint(store, run, number, label)


def find_checkpoint(
    store: Store, label: str, *, run: Run | None = None, workspace: Path | None = None
) -> Checkpoint:
    """The newest step of this name: of the run, else of the workspace, else of all.

    Raises RunNotFound if there is none.
    """
    found = None
    if run is not None:
        found = labelled(store.home, label, run_id=run.id)
    else:
        if workspace is not None:
            found = labelled(store.home, label, workspace=str(workspace))
        found = found or labelled(store.home, label)
    if found is None:
        where = f" in run {run.id}" if run is not None else ""
        raise RunNotFound(
            f"No checkpoint {label!r} is known{where}.",
            hint="Make one with: repotrace runs checkpoint NAME",
        )
    return _checkpoint(store, store.runs.get(found[0]), found[1], label)


def checkpoints(store: Store, run: Run | None = None) -> list[Checkpoint]:
    """All steps with a name, the newest first: of a run, or of all."""
    found = labels(store.home, run_id=None if run is None else run.id)
    whole = {name: store.runs.get(name) for name in {name for _, name, _ in found}}
    return [_checkpoint(store, whole[name], number, label) for label, name, number in found]


def _checkpoint(store: Store, run: Run, number: int, label: str) -> Checkpoint:
    known = StatesOfRun.of(store, run).after(number)
    return Checkpoint(run, number, known, label, reached(store.home, run.id, number))


def _check(label: str) -> None:
    if not label.strip() or not label.isprintable() or len(label) > _LONGEST:
        raise RepoTraceError(
            f"{label!r:.60} is no name for a checkpoint.",
            hint=f"Write one line of 1 to {_LONGEST} characters.",
        )


def _tell(store: Store, run_id: str, time: int, *facts: tuple[Kind, dict[str, Any]]) -> None:
    store.runs.add_events(
        {"id": new_id(time), "run": run_id, "kind": kind, "time": time + number, "data": data}
        for number, (kind, data) in enumerate(facts)
    )
