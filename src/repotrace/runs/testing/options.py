"""With what tests are run on states: the command, the environment, the limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from repotrace.config import load_settings
from repotrace.errors import RepoTraceError
from repotrace.records.run import Run
from repotrace.redact import Redactor
from repotrace.runs.testing.commands import Detection
from repotrace.runs.testing.elsewhere import is_temporary, project_of_received
from repotrace.runs.testing.executions import Bench, BenchOptions, OnExecution
from repotrace.storage import Store


@dataclass(frozen=True, slots=True)
class Testing:
    """What a person may say about how tests are run."""

    __test__ = False

    command: str | None = None
    """A line of shell; None: that of the settings, else what the project has."""
    cwd: Path | None = None
    """The folder for `command`; None: the root of the workspace."""
    near: Path | None = None
    """A folder of the workspace: where that has several projects, its own is meant."""
    timeout: float | None = None
    """Seconds for one execution."""
    rerun: bool = False
    """Believe nothing that was executed before."""
    environ: Mapping[str, str] | None = None
    """None: that of this process."""
    on_execution: OnExecution | None = None


def workspace_of(run: Run, store: Store | None = None) -> Path:
    """The folder that a run worked in. Raises RepoTraceError if it is not here.

    Of one that `store` received from elsewhere: this project, or a copy of the run's own files.
    """
    origin = store.received.origin("run", run.id) if store is not None else None
    if store is not None and origin is not None and not origin.worked_on:
        return project_of_received(store, run, Path.cwd())
    if run.workspace is not None and Path(run.workspace).is_dir():
        return Path(run.workspace)
    where = run.workspace or "an unknown folder"
    raise RepoTraceError(
        f"Run {run.id} worked in {where}, which is not here.",
        hint="Its tests need the environment of the project; run this where the project is.",
    )


def named_run(store: Store, ref: str) -> Run:
    """The run of this id, prefix, or `latest`, with what programs have recorded by now.

    Raises RunNotFound.
    """
    store.runs.ingest()
    return store.runs.get(ref)


def _inside(folder: Path | None, workspace: Path) -> str:
    """The path of a folder in the workspace; empty if it lies elsewhere."""
    if folder is None:
        return ""
    path = Path(os.path.relpath(os.path.realpath(folder), os.path.realpath(workspace)))
    return "" if not path.parts or path.parts[0] == os.pardir else path.as_posix()


def _changed(store: Store, run: Run | None) -> tuple[str, ...]:
    """The files that a run changed."""
    if run is None:
        return ()
    return tuple({operation.file_path for operation in store.runs.operations(run.id)})


def bench_for(
    store: Store, workspace: Path, testing: Testing | None = None, *, run: Run | None
) -> Bench:
    """A bench that runs the tests of a workspace on states of the run, if that is what is looked
    into; to be closed. Of a run that came from elsewhere nothing is executed before the bench
    is permitted to.

    Raises RepoTraceError if nothing is known that runs them.
    """
    testing = testing or Testing()
    environ = dict(os.environ if testing.environ is None else testing.environ)
    redactor = Redactor(key=store.key, variables=environ)
    settings, _ = load_settings(workspace, environ)
    own = not is_temporary(workspace)
    here = _inside(testing.near, workspace)
    near = (here,) if here else _changed(store, run)
    detection = Detection(workspace, environ, redactor, settings.check, own=own, near=near)
    command = detection.command(testing.command, cwd=testing.cwd)
    options = BenchOptions(
        environ=environ,
        redactor=redactor,
        settings=settings.check,
        environment=detection.environment(command),
        run_id=run.id if run is not None else "",
        timeout=testing.timeout,
        rerun=testing.rerun,
        on_execution=testing.on_execution,
        owned=None if own else workspace,
    )
    return Bench(store, workspace, command, options)
