"""Run a test command and learn the outcome of each test: here, or on a state of a run.

`replay`, `check` and `blame` share this. The outcomes are those that the plug-in of pytest told;
where it was not loaded, those that the output tells.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from repotrace.config import DEFAULT_OUTPUT_LIMIT
from repotrace.errors import RepoTraceError
from repotrace.journal import new_id, redacted
from repotrace.outcomes import outcomes_from_output, verdicts
from repotrace.records.command import CommandRun, CommandSpec, Termination
from repotrace.records.events import JOURNAL_SUFFIX, Kind, OutcomeData
from repotrace.records.run import OutcomeOrigin, TestOutcome, TestResult
from repotrace.redact import Redactor
from repotrace.runs.testing.moving import Moving, environments_of, git_ceiling
from repotrace.system.execution import OnOutput, execute
from repotrace.system.plugin_environment import with_plugin, without_plugin
from repotrace.system.process import NoSuchFolder
from repotrace.system.scratch import Scratch
from repotrace.system.snapshots import SnapshotStore

__all__ = ["TestRun", "TestRunner", "outcomes_from_output", "run_tests_here", "verdicts"]

_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_ENDED = (0, 1, 5)
"""Exit codes of a pytest that came to its end: all passed, some failed, there were none."""


@dataclass(frozen=True, slots=True)
class TestRun:
    """One execution of a test command."""

    __test__ = False

    command: CommandRun
    outcomes: tuple[TestOutcome, ...]
    """In order of time. They belong to no step: `run_id` and `step_id` are empty."""
    origin: OutcomeOrigin | None
    """Where the outcomes were learnt; None if nothing was learnt of any test."""
    complete: bool
    """Whether the command ended by itself and, as far as can be told, after all its tests: not if
    a session of pytest was stopped, crashed, or could not collect."""
    state_id: str | None = None
    """The state that it ran on; None: the work tree as it was."""

    @property
    def verdicts(self) -> dict[str, TestResult]:
        """One result for each test; see `outcomes.verdicts`."""
        return verdicts(self.outcomes)


def run_tests_here(
    spec: CommandSpec,
    *,
    redactor: Redactor,
    limit: int = DEFAULT_OUTPUT_LIMIT,
    on_output: OnOutput | None = None,
    kept: Collection[str] = (),
) -> TestRun:
    """Run `spec` as it is and return its outcomes, redacted like the command.

    The arguments are those of `execute`. Raises RepoTraceError if an argument cannot be passed.
    A folder that is not there is a command that could not be started.
    """
    return _run(spec, redactor=redactor, limit=limit, on_output=on_output, kept=kept)


class TestRunner:
    """Runs commands of `workspace` on its states, in one folder that goes from state to state.

    Nothing in the workspace is written by us; what a test writes is cleaned away, and what it
    left running is ended.
    """

    __test__ = False

    def __init__(
        self,
        snapshots: SnapshotStore,
        folder: Path,
        *,
        workspace: Path,
        redactor: Redactor,
        limit: int = DEFAULT_OUTPUT_LIMIT,
        kept: Collection[str] = (),
        links: Collection[str] | None = None,
    ) -> None:
        """`folder` is new or an earlier runner's, outside of the workspace: tools look upward
        for their configuration. `links` are names at the top of the workspace that are linked
        into it; by default its environments, see `environments_of`.

        Raises RepoTraceError for a folder in the workspace or one that is somebody else's.
        """
        if Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(workspace)):
            raise RepoTraceError(
                f"Tests cannot run in {folder}: it lies in the workspace itself.",
                hint="Name a folder elsewhere.",
            )
        self.workspace = workspace
        self.links = tuple(environments_of(workspace) if links is None else links)
        self.scratch = Scratch(snapshots, folder, keep=self.links)
        self._redactor = redactor
        self._limit = limit
        self._kept = kept

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the folder; it stays, with the state that it holds."""
        self.scratch.close()

    def run(
        self,
        state_id: str,
        command: CommandSpec,
        *,
        timeout: float | None = None,
        on_output: OnOutput | None = None,
        prepare: Callable[[Path], None] | None = None,
    ) -> TestRun:
        """Run a command of the workspace on a state.

        Paths of the workspace in its cwd, arguments and environment mean those of the state,
        but for what no state holds: `.venv/bin/python` is the workspace's own. `timeout`:
        seconds, in place of the command's. `prepare` may change the folder first.
        """
        self.scratch.goto(state_id)
        try:
            self._link()
            if prepare is not None:
                prepare(self.scratch.folder)
            spec = self.spec(command)
            if timeout is not None:
                spec = spec.model_copy(update={"timeout": timeout})
            return _run(
                spec,
                redactor=self._redactor,
                limit=self._limit,
                on_output=on_output,
                kept=self._kept,
                state_id=state_id,
            )
        finally:
            self.scratch.restore()

    def spec(self, command: CommandSpec) -> CommandSpec:
        """`command` as it runs in the folder, with the state that this holds now."""
        moving = Moving(self.workspace, self.scratch.folder, linked=self.links)
        spec = moving.spec(command)
        env = git_ceiling(spec.env, self.scratch.folder)
        # Two states may differ within a second by nothing that a stale .pyc would notice.
        env[_NO_BYTECODE] = "1"
        env.pop("PYTHONPYCACHEPREFIX", None)
        return spec.model_copy(update={"env": env})

    def _link(self) -> None:
        for name in self.links:
            link, target = self.scratch.folder / name, self.workspace / name
            if not os.path.lexists(link) and target.exists():
                link.symlink_to(os.path.abspath(target))  # noqa: PTH100 - links stay links


# --- One execution --------------------------------------------------------------------------


def _run(
    spec: CommandSpec,
    *,
    redactor: Redactor,
    limit: int,
    on_output: OnOutput | None,
    kept: Collection[str],
    state_id: str | None = None,
) -> TestRun:
    with TemporaryDirectory(prefix="repotrace-tests-", ignore_cleanup_errors=True) as folder:
        journal = Path(folder)
        env = with_plugin(spec.env, journal=journal, run_id="r0", step_id=None, command_id=None)
        try:
            command = execute(
                spec.model_copy(update={"env": env}),
                redactor=redactor,
                limit=limit,
                on_output=on_output,
                kept=kept,
            )
        except NoSuchFolder as error:
            command = _not_started(spec, redactor, error)
        told = _Told.read(journal, redactor.knowing([*spec.argv, spec.script or ""]))
    command = command.model_copy(update={"env": without_plugin(command.env)})
    ended = command.termination is Termination.EXITED
    if told.sessions:
        outcomes = [_outcome(data, when, name, state_id) for name, when, data in told.outcomes]
        complete = ended and told.complete
        return TestRun(command, tuple(outcomes), OutcomeOrigin.PLUGIN, complete, state_id)
    when = datetime.now(UTC)
    parsed = [_outcome(data, when, new_id(), state_id) for data in outcomes_from_output(command)]
    origin = OutcomeOrigin.PARSED if parsed else None
    if any(outcome.runner == "pytest" for outcome in parsed):
        ended = ended and command.exit_code in _ENDED
    return TestRun(command, tuple(parsed), origin, ended, state_id)


def _not_started(spec: CommandSpec, redactor: Redactor, error: Exception) -> CommandRun:
    return CommandRun(
        argv=tuple(redactor.redact(part) for part in spec.argv),
        script=None if spec.script is None else redactor.redact(spec.script),
        cwd=redactor.redact(spec.cwd),
        termination=Termination.SPAWN_ERROR,
        error=redactor.redact(str(error)),
        spawn_errno=errno.ENOENT,
        started_at=datetime.now(UTC),
        duration=0.0,
    )


@dataclass(slots=True)
class _Told:
    """What the sessions of pytest wrote to a journal of ours."""

    outcomes: list[tuple[str, datetime, OutcomeData]]
    sessions: int = 0
    complete: bool = True

    @classmethod
    def read(cls, folder: Path, redactor: Redactor) -> _Told:
        told = cls([])
        for path in sorted(folder.glob(f"*{JOURNAL_SUFFIX}")):
            told.sessions += 1
            closed = False
            for event in _events(path):
                closed = closed or event.get("kind") == Kind.CLOSED
                told._take(event, redactor)
            told.complete = told.complete and closed
        told.outcomes.sort(key=lambda outcome: (outcome[1], outcome[0]))
        return told

    def _take(self, event: dict[str, Any], redactor: Redactor) -> None:
        data = event.get("data")
        if not isinstance(data, dict):
            return
        match event.get("kind"):
            case Kind.TEST:
                when = datetime.fromtimestamp(event["time"] / 1e9, UTC)
                self.outcomes.append((event["id"], when, redacted(data, redactor.redact)))
            case Kind.CLOSED:
                ended = data.get("exit_status") in _ENDED and not data.get("stopped")
                self.complete = self.complete and ended
            case Kind.LOST:
                self.complete = False


def _events(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a file; one that was cut off by a crash is left out."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError:
        return
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


def _outcome(data: OutcomeData, when: datetime, name: str, state_id: str | None) -> TestOutcome:
    fields = {name: value for name, value in data.items() if name in TestOutcome.model_fields}
    about = {"id": name, "run_id": "", "step_id": "", "timestamp": when, "state_id": state_id}
    return TestOutcome.model_validate({**fields, **about})
