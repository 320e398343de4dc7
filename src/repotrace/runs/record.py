"""`record`: a run of any agent, seen from outside while it works.

The command gets the terminal and runs as it would without us. Threads of ours look at the files
when something has changed, and at what the agent writes down itself; all that is seen is in the
journal at once. `joining` makes one run of it, now and then while the command runs and at its end;
if we are killed, whoever reads the run next does it.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, chdir, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from repotrace import config
from repotrace.agents import agent
from repotrace.errors import RepoTraceError
from repotrace.journal import Journal, message_of
from repotrace.records.command import CommandSpec
from repotrace.records.events import (
    RECORDER_VARIABLE,
    RUN_VARIABLE,
    WORKSPACE_VARIABLE,
    Kind,
)
from repotrace.records.run import OutcomeOrigin, Run, RunStatus
from repotrace.runs.recording.following import Found, Sessions
from repotrace.runs.recording.recorder import ExecutionRecorder
from repotrace.runs.recording.watching import Looker, Watch
from repotrace.runs.transcripts import joining
from repotrace.runs.transcripts.growing import UNTIMED
from repotrace.runs.transcripts.sessions import written
from repotrace.runs.transcripts.wire_matching import WIRE
from repotrace.storage import Store
from repotrace.system.descendants import descendants
from repotrace.system.foreground import run_in_foreground, shell_code, signals_held
from repotrace.system.lookup import candidates, command_line, resolve, spawn_failure
from repotrace.system.plugin_environment import with_plugin

if TYPE_CHECKING:
    from repotrace.runs.recording.wire_recording import WireRecording

SOURCE = "record"
"""The source of runs of commands that are no agents we know."""

_PACE = 0.004
"""Seconds between two looks at whether a transcript has grown."""
_SHORT = 0.05
"""Seconds that a look may take without a pause after it."""
_SEARCH = (0.1, 1.0)
"""Seconds between two searches for transcripts: at first, and once one is found or is late."""
_EARLY = 10.0
_JOIN = 2.0
"""Seconds between two joinings, at least."""
_SHARE = 10
"""A joining, or a search, may take one part in so many of the time."""
_NOT_RUN = frozenset({126, 127})
"""Exit codes of a shell that could not start a command."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be recorded."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    cwd: Path
    agent: str | None = None
    """None: found out."""
    task: str | None = None
    tags: tuple[str, ...] = ()
    proxy: bool = False
    upstream: str | None = None
    workspace: Path | None = None
    """The folder whose files are kept; None: that of `cwd`."""
    facts: Mapping[str, Any] = MappingProxyType({})
    """More of what is known of the run, as `branched_from_step`; see `records.events.RunData`."""


@dataclass(slots=True)
class Recorded:
    """What became of the command."""

    run_id: str
    code: int
    """Its exit code, as a shell has it."""
    run: Run | None = None
    """As it is stored; None where it could not be read."""
    problem: str | None = None
    """Why what was recorded could not be joined."""


class CannotStart(RepoTraceError):
    """The command cannot be started."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
        """The exit code that a shell has for it."""


class Recording:
    """One run while its command runs. Entering it takes the state before the first step."""

    def __init__(self, store: Store, wish: Wish) -> None:
        self._store, self._wish = store, wish
        self.workspace = wish.workspace or config.workspace_for(wish.cwd, wish.environ)
        self._recorder = ExecutionRecorder(
            store, folder=self.workspace, states=False, follow_up=False
        )
        self.run_id = self._recorder.run_id
        self._journal = Journal(
            self._recorder.journal_folder,
            redact=None if self._recorder.redactor is None else self._recorder.redactor.redact,
        )
        self._looker = Looker(
            store.home / "snapshots.git", self.workspace, self.run_id, self._journal
        )
        self._watch = Watch(self.workspace, self._changed)
        self._sessions = Sessions(
            self.workspace, wish.argv, wish.environ, time.time(), agent=wish.agent
        )
        self._since = time.time_ns()
        self._known_agent: str | None = None
        self._pid = 0
        self._stop = threading.Event()
        self._follower = threading.Thread(target=self._follow, name="repotrace-follow", daemon=True)
        self._joiner = threading.Thread(target=self._join_now_and_then, daemon=True)
        self._news = threading.Event()
        self._held = ExitStack()
        self._resources = ExitStack()
        self._wire: WireRecording | None = None
        self._env: dict[str, str] = {}
        self._argv: list[str] = []
        self.added: list[str] = []
        """What leads the agent to our relay: variables, and words of its command line."""
        self.problems: list[str] = []

    @property
    def agent(self) -> str | None:
        """The agent, as far as it is known by now."""
        return self._sessions.agent

    @property
    def unwritten(self) -> bool:
        """Whether even the beginning could not be written."""
        return self._recorder.lost > 0

    # --- Begin and end ----------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Begin the run. Raises CannotStart, and begins none, for what is no command here."""
        wish = self._wish
        spec = CommandSpec(argv=wish.argv, cwd=os.fspath(wish.cwd), env=dict(wish.environ))
        program = command_line(spec)[0]
        if resolve(program, spec) is None:
            exists = any(Path(wish.cwd, name).exists() for name in candidates(program, spec))
            number = errno.EACCES if exists else errno.ENOENT
            raise CannotStart(spawn_failure(number, program, spec), 126 if exists else 127)
        facts = dict(wish.facts)
        attributes = facts.pop("attributes", {})
        self._recorder.begin(
            source=self.agent or SOURCE,
            agent=self.agent,
            task=wish.task,
            tags=list(wish.tags) or None,
            **{"parent_run_id": wish.environ.get(RUN_VARIABLE), **facts},
            attributes={
                "command": list(wish.argv),
                **self._started_in(),
                "recorder": SOURCE,
                **attributes,
            },
        )
        self._known_agent = self.agent
        if self._looker.base() is None:
            self.problems.append(f"the files are not kept: {self._looker.problem}")
        self._env, self._argv = self._environment(), list(wish.argv)
        if wish.proxy:
            try:
                self._lead_through_relay()
            except RepoTraceError as error:
                self._end(RunStatus.FAILED, error.message)
                self.__exit__(None, None, None)
                raise
        return self

    def _started_in(self) -> dict[str, str]:
        """The folder of the work tree in which the command is started, unless it is its root."""
        own, root = (os.path.realpath(path) for path in (self._wish.cwd, self.workspace))
        if own == root or not Path(own).is_relative_to(root):
            return {}
        return {"started_in": os.path.relpath(own, root)}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._news.set()
        self._held.close()
        self._watch.stop()
        self._resources.close()
        self._journal.close()
        self._recorder.close()
        with suppress(KeyboardInterrupt):  # the command is over, and its exit code stands
            self._looker.close()

    def run(self, *, all_on_stderr: bool = False) -> Recorded:
        """Run the command to its end; its stdout may go to our stderr. Raises CannotStart."""
        try:
            with chdir(self._wish.cwd):
                status = run_in_foreground(
                    self._argv,
                    self._env,
                    before=self._watch.start,
                    started=self._started,
                    all_on_stderr=all_on_stderr,
                )
        except OSError as error:
            spec = CommandSpec(argv=self._wish.argv, cwd=os.fspath(self._wish.cwd), env=self._env)
            failure = spawn_failure(error.errno or 0, self._argv[0], spec)
            self._end(RunStatus.FAILED, failure)
            raise CannotStart(failure, 127 if error.errno == errno.ENOENT else 126) from error
        finally:
            self._held.close()
        return Recorded(self.run_id, shell_code(status))

    def conclude(self, recorded: Recorded) -> Recorded:
        """Take in what is left when the command has ended. What is not done when this is
        interrupted is done by whoever reads the run."""
        self._stop.set()
        self._news.set()
        self._resources.close()
        try:
            for thread in (self._follower, self._joiner):
                thread.join()
            self._watch.stop()
            self._search(last=True)
            self._looker.look()
        finally:
            code = recorded.code
            ended = RunStatus.COMPLETED if code == 0 else RunStatus.FAILED
            if code in (130, 143, 129, 137):
                ended = RunStatus.INTERRUPTED
            self._end(ended, None if code == 0 else f"exit code {code}")
        try:
            self._store.runs.ingest(wait=True)
            run = self._store.runs.named(self.run_id)
            if run is not None:
                joining.join(self._store, run, wait=True)
                recorded.run = self._store.runs.named(self.run_id)
                self._note_unheard()
        except Exception as error:  # the command is over, and its exit code stands
            recorded.problem = message_of(error)
        if self._wire is not None and self._wire.problem:
            self.problems.append(f"not all model calls are recorded: {self._wire.problem}")
        elif self._wire is not None and not self._wire.exchanges:
            self.problems.append(
                "nothing came through the relay; the agent may have settings of its own that name"
                " its provider"
            )
        return recorded

    def _note_unheard(self) -> None:
        """Say of which runs of pytest nothing but their output is known."""
        runs = self._store.runs
        told = {o.command_id for o in runs.tests(self.run_id) if o.origin == OutcomeOrigin.PLUGIN}
        unheard = [
            command
            for command in runs.commands(self.run_id)
            if command.is_test
            and "pytest" in command.command_line
            and command.id not in told
            and command.exit_code not in _NOT_RUN
        ]
        if unheard:
            self.problems.append(
                f"{_number(len(unheard), 'run')} of pytest could not tell outcomes, as in a sandbox"
                " that may not write there; what is known of them is what they printed"
            )

    def _end(self, status: str, error: str | None) -> None:
        self._recorder.end(status, error=error)
        self._journal.close()

    # --- The command ------------------------------------------------------------------------

    def _environment(self) -> dict[str, str]:
        """That of the command: its pytest tells outcomes, its traced programs join the run."""
        env = with_plugin(
            self._wish.environ,
            journal=self._recorder.journal_folder,
            run_id=self.run_id,
            step_id=None,
            command_id=None,
        )
        env["REPOTRACE_HOME"] = os.path.abspath(self._store.home)  # noqa: PTH100 - links kept
        env[WORKSPACE_VARIABLE] = os.fspath(self.workspace)
        env[RECORDER_VARIABLE] = SOURCE
        return env

    def _lead_through_relay(self) -> None:
        from repotrace.runs.recording.wire_recording import WireRecording

        # Its threads may take no signal that is meant for the command.
        self._held.enter_context(signals_held())
        self._wire = WireRecording(
            run_id=self.run_id,
            journal=self._journal,
            agent=self.agent,
            environ=self._wish.environ,
            upstream=self._wish.upstream or self._configured_upstream(),
            look=self._looker.look,
            folder=self._wish.cwd,
        )
        self._resources.enter_context(self._wire)
        self._env, self._argv = self._wire.for_child(self._env, self._argv)
        self.added = list(self._wire.added)
        self._recorder.update(attributes={WIRE: True})

    def _configured_upstream(self) -> str | None:
        """The provider that the agent's own settings name."""
        if self.agent is None:
            return None
        told = agent(self.agent).proxy.upstream
        return None if told is None else told(self._wish.environ)

    def _started(self, pid: int) -> None:
        self._pid = pid
        self._follower.start()
        self._joiner.start()

    # --- While it runs ----------------------------------------------------------------------

    def _changed(self) -> None:
        self._looker.look(always=False)
        self._news.set()

    def _follow(self) -> None:
        """Look at the files whenever a transcript has grown."""
        sizes: dict[Path, Any] = {}
        next_search, begun = 0.0, time.monotonic()
        while not self._stop.wait(_PACE):
            now = time.monotonic()
            if now >= next_search:
                with suppress(Exception):
                    self._search()
                took = time.monotonic() - now
                is_early = now - begun < _EARLY and not self._sessions.found
                usual = _SEARCH[0 if is_early else 1]
                next_search = time.monotonic() + max(usual, took * _SHARE)
            grown = False
            for found in list(self._sessions.found.values()):
                facts = written(found.format, found.path)
                if facts != sizes.get(found.path):
                    sizes[found.path], grown = facts, True
                    if found.format in UNTIMED and facts is not None:
                        self._tell(found, size=facts[1])
            if grown:
                self._looker.look()
                self._news.set()
                # A large work tree is not looked at all the time.
                self._stop.wait(max(0.0, self._looker.took - _SHORT))

    def _search(self, *, last: bool = False) -> None:
        processes = descendants(self._pid) if self._pid else []
        for found in self._sessions.look(processes, last=last):
            self._tell(found)
        if self.agent is not None and self.agent != self._known_agent:
            self._known_agent = self.agent
            self._recorder.update(agent=self.agent)

    def _tell(self, found: Found, **more: int) -> None:
        known = {"path": os.fspath(found.path), "format": found.format, "since": self._since}
        facts = known | more
        self._journal.write(Kind.FOLLOWED, self.run_id, facts)

    def _join_now_and_then(self) -> None:
        store = Store(self._store.home, self._store.reports.root)
        pause = _JOIN
        while not self._stop.wait(pause):
            if not self._news.is_set():
                continue
            self._news.clear()
            begun = time.monotonic()
            with suppress(Exception):
                store.runs.ingest()
                run = store.runs.named(self.run_id)
                if run is not None:
                    joining.join(store, run)
            pause = max(_JOIN, (time.monotonic() - begun) * _SHARE)
        store.close()


def _outer(environ: Mapping[str, str]) -> dict[str, str]:
    """The run that the command is a part of besides."""
    run_id = environ.get(RUN_VARIABLE)
    return {"inside_of": run_id} if run_id else {}


def counted(run: Run) -> list[str]:
    """What there is in a run, in short: `14 steps`, `2 files`, `tests passed`."""
    totals = run.totals
    facts = [_number(totals.steps, "step")]
    if totals.files_modified:
        facts.append(_number(totals.files_modified, "file"))
    if totals.tests_failing:
        facts.append(f"{_number(totals.tests_failing, 'test')} failed")
    elif totals.tests:
        facts.append("tests passed")
    return facts


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
