"""The contents of files at the steps of a run, as text."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repotrace.config import workspace_for
from repotrace.errors import RepoTraceError, RunNotFound
from repotrace.records.run import FileOperation, LogEntry, OperationType, Run
from repotrace.runs.restore import (
    Restored,
    folder_beside,
    refuse_busy,
    restore_in_place,
    restore_into,
    state_of_step,
)
from repotrace.runs.states import KnownState, StatesOfRun
from repotrace.runs.traces import OpenedRun, Workspace, find_run
from repotrace.storage import Store
from repotrace.storage.consent import workspace_here


@dataclass(frozen=True, slots=True)
class ExecutionSnapshot:
    """What is known at a step: of the files, of its context, of its log."""

    run_id: str
    step_number: int
    files: dict[str, str]
    """As `get_step_snapshot` gives them."""
    context: str | None
    """What went into the step."""
    logs: list[LogEntry]
    """Of the step, in order of time."""

    @classmethod
    def at(cls, workspace: Workspace, run_id: str, step_number: int) -> ExecutionSnapshot:
        """The snapshot after a step. Raises RunNotFound if there is no such run or step."""
        found = find_run(workspace, run_id)
        if found is None:
            raise _not_found(run_id)
        step = found.store.runs.step(found.run.id, step_number)
        return cls(
            run_id=found.run.id,
            step_number=step_number,
            files=_Files(found).touched(step_number),
            context=step.input_context,
            logs=found.store.runs.logs(found.run.id, step.id),
        )


def get_step_snapshot(workspace: Workspace, run_id: str, step_number: int) -> dict[str, str]:
    """The files that the steps up to `step_number` changed, with their contents after it.

    Deleted ones are left out, and so are those whose content is not known. Bytes that are no
    UTF-8 are surrogate escapes.
    """
    found = find_run(workspace, run_id)
    return {} if found is None else _Files(found).touched(step_number)


def get_file_state_at_step(
    workspace: Workspace, run_id: str, step_number: int, file_path: str | os.PathLike[str]
) -> str | None:
    """The content of a file after a step, 0 being before the first one.

    Of a file that no step has changed by then, too, where the run's states or a later change
    tell of it. None if it did not exist then, or if that is not known.
    """
    found = find_run(workspace, run_id)
    if found is None:
        return None
    return _Files(found).content(_relative(os.fspath(file_path), found.run), step_number)


def compare_steps(
    workspace: Workspace, run_id: str, step_a: int, step_b: int
) -> dict[str, dict[str, str | None]]:
    """The files that differ between two steps: `{path: {"before": content, "after": content}}`.

    None stands for a file that is not there. By path.
    """
    found = find_run(workspace, run_id)
    if found is None:
        return {}
    files = _Files(found)
    changes: dict[str, dict[str, str | None]] = {}
    for path in sorted(files.paths(max(step_a, step_b))):
        before, after = files.content(path, step_a), files.content(path, step_b)
        if before != after:
            changes[path] = {"before": before, "after": after}
    return changes


def prepare_rerun(workspace: Workspace, run_id: str, from_step: int) -> dict[str, Any]:
    """What is needed to go on from a step: `file_state` as `get_step_snapshot` gives it,
    `original_run_id`, `from_step`, `remaining_steps` (number and description each), `task_id`.

    Raises ValueError for a run without steps.
    """
    found = find_run(workspace, run_id)
    steps = [] if found is None else found.store.runs.steps(found.run.id)
    if found is None or not steps:
        raise ValueError(f"No trace found for run '{run_id}'")
    return {
        "file_state": _Files(found).touched(from_step),
        "original_run_id": found.run.id,
        "from_step": from_step,
        "remaining_steps": [
            {"step_number": step.step_number, "description": step.description}
            for step in steps
            if step.step_number > from_step
        ],
        "task_id": found.run.task_id or "unknown",
    }


def restore_to_step(
    workspace: Workspace,
    run_id: str,
    step_number: int,
    *,
    into: str | os.PathLike[str] | None = None,
    in_place: bool = False,
) -> Restored:
    """Write all files as they were after a step, 0 being before the first one.

    Into the folder `into`, new or empty; without one into a new one beside the work tree,
    `../<folder>-<run>-step-<N>`, whose tests and states it stays out of. With `in_place` into the
    workspace of the run instead (of one that was imported from elsewhere: into `workspace`), after
    its present files have been kept as `Restored.safety_state`.

    Raises RunNotFound if there is no such run or step, RepoTraceError if its files were not kept
    or cannot be written.
    """
    if in_place and into is not None:
        raise ValueError("into and in_place exclude each other")
    found = find_run(workspace, run_id)
    if found is None:
        raise _not_found(run_id)
    store, run = found
    state_id = state_of_step(store, run, step_number).state_id
    assert state_id is not None
    if not in_place:
        if into is not None:
            return restore_into(store, state_id, Path(into))
        here = Path.cwd() if isinstance(workspace, Store) else Path(workspace)
        beside = workspace_for(here, os.environ)
        return restore_into(store, state_id, folder_beside(beside, f"{run.id}-step-{step_number}"))
    root = _work_tree(store, workspace, run)
    refuse_busy(store, root)
    return restore_in_place(store, state_id, root)


def _work_tree(store: Store, workspace: Workspace, run: Run) -> Path:
    here = workspace_here(store, run)
    if here is not None:
        return here
    if isinstance(workspace, Store):
        raise RunNotFound(f"Run {run.id} worked in no folder here.", hint="Restore it into=…")
    return Path(workspace)


def _not_found(run_id: str) -> RunNotFound:
    return RunNotFound(f"No run matches {run_id!r}.", hint="List runs with: repotrace runs list")


def _relative(path: str, run: Run) -> str:
    """A path as file operations give it."""
    if run.workspace is not None and Path(path).is_absolute():
        for root in (run.workspace, os.path.realpath(run.workspace)):
            if Path(path).is_relative_to(root):
                return Path(path).relative_to(root).as_posix()
    return os.path.normpath(path)


class _Files:
    """The contents that the file operations and the states of a run tell of.

    A state that is exact decides, for it has seen the file itself. It says nothing of files that
    no state has (ignored ones, those outside of the workspace), and nothing of what was claimed
    after it.
    """

    def __init__(self, found: OpenedRun) -> None:
        self._store, self._run = found
        self._steps = self._store.runs.steps(self._run.id)
        self._numbers = {step.id: step.step_number for step in self._steps}
        operations = self._store.runs.operations(self._run.id)
        self._operations = [item for item in operations if item.step_id in self._numbers]
        self._states = StatesOfRun(self._run, self._steps)
        self._exact: dict[int, KnownState | None] = {}

    def paths(self, last: int) -> set[str]:
        """The files that the steps up to `last` changed."""
        return {item.file_path for item in self._upto(last)}

    def touched(self, last: int) -> dict[str, str]:
        """The files that the steps up to `last` changed, with what they hold after it."""
        state = self._state(last)
        newest = {item.file_path: item for item in self._upto(last)}
        contents = {path: self._decided(state, item) for path, item in newest.items()}
        return {path: text for path, text in contents.items() if text is not None}

    def content(self, path: str, last: int) -> str | None:
        """What a file holds after the step `last`; None if it is not there."""
        state = self._state(last)
        own = [item for item in self._operations if item.file_path == path]
        earlier = [item for item in own if self._number(item) <= last]
        if earlier:
            return self._decided(state, earlier[-1])
        seen = self._seen(state, path)
        if seen is not None or not own:
            return seen
        return own[0].content_before

    def _upto(self, last: int) -> Iterable[FileOperation]:
        return (item for item in self._operations if self._number(item) <= last)

    def _number(self, operation: FileOperation) -> int:
        return self._numbers[operation.step_id]

    def _state(self, last: int) -> KnownState | None:
        """The exact state after the step, or after the last one before it."""
        if last not in self._exact:
            numbers = [step.step_number for step in self._steps if step.step_number <= last]
            known = self._states.after(max(numbers, default=0))
            self._exact[last] = known if known.exact and known.state_id is not None else None
        return self._exact[last]

    def _decided(self, state: KnownState | None, newest: FileOperation) -> str | None:
        """What the file of `newest`, the last operation on it, holds."""
        if state is not None and self._number(newest) <= state.step_number:
            seen = self._seen(state, newest.file_path)
            if seen is not None:
                return seen
        return None if newest.operation_type == OperationType.DELETE else newest.content_after

    def _seen(self, state: KnownState | None, path: str) -> str | None:
        if state is None or state.state_id is None:
            return None
        try:
            data = self._store.snapshots.read(state.state_id, path)
        except RepoTraceError:  # the state is not there any more
            return None
        return None if data is None else os.fsdecode(data)
