"""Traces of runs, read and saved by program: steps, model calls, file operations."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from repotrace.config import find_store, home_for, workspace_for
from repotrace.errors import RepoTraceError
from repotrace.records.run import (
    ExecutionStep,
    ExecutionTrace,
    FileOperation,
    LLMInteraction,
    OperationType,
    Origin,
    Run,
    RunStatus,
)
from repotrace.runs.contents import bytes_of
from repotrace.storage import LATEST, Store

_EMPTY = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
"""Git's id of the empty content."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")

type Workspace = Store | str | os.PathLike[str]
"""A folder of a project, or the `Store` that keeps its runs."""


class OpenedRun(NamedTuple):
    """A run, and the store that it was found in."""

    store: Store
    run: Run


def store_of(workspace: Workspace) -> Store:
    """The store that keeps the runs of `workspace`. Raises RepoTraceError if it is no folder."""
    if isinstance(workspace, Store):
        return workspace
    folder = Path(workspace)
    if not folder.is_dir():
        raise RepoTraceError(
            f"{folder} is not a folder.", hint="A workspace is the folder of a project."
        )
    reports = find_store(folder, os.environ)
    return Store(home_for(reports, folder, os.environ), reports)


def find_run(workspace: Workspace, run_id: str) -> OpenedRun | None:
    """The run with this very id, or `latest`, the newest of the work tree, else of all; None if
    there is none.

    What programs have written by now is taken in first.
    """
    store = store_of(workspace)
    store.runs.ingest()
    if run_id == LATEST:
        own = store.runs.list(workspace=_folder_of(workspace), limit=1)
        run = next(iter(own or store.runs.list(limit=1)), None)
    else:
        run = store.runs.named(run_id)
    return None if run is None else OpenedRun(store, run)


# --- Steps ----------------------------------------------------------------------------------


def save_execution_step(workspace: Workspace, step: ExecutionStep) -> None:
    """Keep a step; one of the same id is replaced.

    It gets the number it gives. A number that another step of the run has, or one below 1, gives
    way to the next free one and stays in `metadata["step_number"]`. Secrets in texts are masked.
    """
    _put(workspace, step, store_of(workspace))


def get_execution_steps(workspace: Workspace, run_id: str) -> list[ExecutionStep]:
    """The steps of a run by number; none for a run that is not known."""
    found = find_run(workspace, run_id)
    return [] if found is None else found.store.runs.steps(found.run.id)


# --- Model calls ----------------------------------------------------------------------------


def save_llm_interaction(workspace: Workspace, interaction: LLMInteraction) -> None:
    """Keep a model call, with its texts whole; one of the same id is replaced.

    Secrets in texts are masked.
    """
    _put(workspace, interaction, store_of(workspace))


def get_llm_interactions(
    workspace: Workspace, run_id: str, step_id: str | None = None
) -> list[LLMInteraction]:
    """The model calls of a run, or of one of its steps, in order of time."""
    found = find_run(workspace, run_id)
    return [] if found is None else found.store.runs.interactions(found.run.id, step_id or None)


# --- File operations ------------------------------------------------------------------------


def save_file_operation(workspace: Workspace, op: FileOperation) -> None:
    """Keep a change of a file; one of the same id is replaced.

    The contents go to the snapshot store, byte for byte, and are kept as long as the run. Changed
    lines are counted unless `op` counts them. Unless it says where it is known from, it counts as
    `claimed`.
    """
    refuse_odd_name(op.run_id)
    store = store_of(workspace)
    told: dict[str, Any] = {}
    if "origin" not in op.model_fields_set:
        told["origin"] = Origin.CLAIMED.value
    contents = _contents(store, op)
    kept = op.model_copy(update=told | contents)
    if contents and op.lines_added is None and op.lines_removed is None:
        kept = kept.model_copy(update=_counts(store, kept))
    _put(workspace, kept, store)


def get_file_operations(
    workspace: Workspace, run_id: str, step_id: str | None = None
) -> list[FileOperation]:
    """The changes of files in a run, or in one of its steps, in order of time.

    Contents are loaded when they are read.
    """
    found = find_run(workspace, run_id)
    return [] if found is None else found.store.runs.operations(found.run.id, step_id or None)


# --- Whole ----------------------------------------------------------------------------------


def load_execution_trace(workspace: Workspace, run_id: str) -> ExecutionTrace | None:
    """A run with all that belongs to it; None if it has no steps, or is not known.

    Of a run that is known by saved records alone the task is `unknown`, the status `UNKNOWN`,
    and it started with its first step. Lists are loaded when they are read.
    """
    found = find_run(workspace, run_id)
    first = found and found.store.runs.steps(found.run.id, limit=1)
    if not found or not first:
        return None
    trace = found.store.runs.trace(found.run.id)
    if trace.status != RunStatus.UNKNOWN:
        return trace
    return trace.model_copy(update={"started_at": first[0].started_at})


def _folder_of(workspace: Workspace) -> str | None:
    """The folder whose files the runs of a workspace keep; None where only the store is known."""
    if isinstance(workspace, Store):
        return None
    return os.fspath(workspace_for(Path(workspace), os.environ))


def refuse_odd_name(run_id: str) -> None:
    """Raises RepoTraceError for what cannot be the id of a run.

    Ids name what the snapshot store keeps, and are typed on command lines.
    """
    odd = ".." in run_id or run_id.endswith((".", ".lock"))
    if odd or run_id == LATEST or not _NAME.fullmatch(run_id):
        raise RepoTraceError(
            f"{run_id!r} cannot be the id of a run.",
            hint="Use letters, digits, `.`, `_` and `-`, a letter or digit first.",
        )


def _put(
    workspace: Workspace, record: ExecutionStep | LLMInteraction | FileOperation, store: Store
) -> None:
    refuse_odd_name(record.run_id)
    store.runs.ingest()
    store.runs.put(record, workspace=_folder_of(workspace))


def _contents(store: Store, op: FileOperation) -> dict[str, str]:
    """The fields that name the contents of `op`; they are in the snapshot store then."""
    named = {"before_id": op.before_id, "after_id": op.after_id}
    texts = {"before_id": op.content_before, "after_id": op.content_after}
    given = {
        name: bytes_of(text)
        for name, text in texts.items()
        if text is not None and named[name] is None
    }
    if not given:
        return {}
    # With the empty content, which what is created or deleted is compared with.
    ids = store.snapshots.keep(f"runs/{op.run_id}", *given.values(), b"")
    return dict(zip(given, ids, strict=False))


def _counts(store: Store, op: FileOperation) -> dict[str, Any]:
    """How many lines differ between the contents, as git counts them."""
    before = _EMPTY if op.operation_type == OperationType.CREATE else op.before_id
    after = _EMPTY if op.operation_type == OperationType.DELETE else op.after_id
    if before is None or after is None:
        return {}
    line = store.snapshots.git(["diff", "--numstat", before, after]).decode()
    added, removed, *_ = line.split("\t") if line else ("0", "0")
    if added == "-":
        return {"is_binary": True}
    return {"lines_added": int(added), "lines_removed": int(removed)}
