"""Model traffic into the journal while it passes: as part of a run that somebody else records, or
as runs of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from repotrace.agents import AGENTS, agent
from repotrace.importers.wire import got_of, sent_of
from repotrace.importers.wire_traffic import Run, Traffic
from repotrace.journal import TEXT_LIMIT, Journal, new_id
from repotrace.proxy import Exchange, Relay, Upstreams
from repotrace.proxy.relay import PATIENCE
from repotrace.records.events import Event, Kind
from repotrace.runs.recording.state_taker import DEADLINE
from repotrace.runs.recording.surroundings import (
    place_of,
    release_journal,
    shared_journal,
    shared_redactor,
)
from repotrace.runs.transcripts.wire_matching import WIRE
from repotrace.system.snapshots import SnapshotStore

_CONTENT = ("content_before", "content_after", "edits", "patch")
_BEFORE = 1_000
"""Nanoseconds by which the files that a request found are older than the request."""
_MISSED = "missed: the agent went on before it was taken"


class WireRecording:
    """The model traffic of one run that somebody else begins and ends.

    `look` takes a look at the files; it is called while a request is on its way. Serves from
    `__enter__` to `__exit__`. Raises RepoTraceError for an `upstream` that is none.
    """

    def __init__(
        self,
        *,
        run_id: str,
        journal: Journal,
        environ: Mapping[str, str],
        agent: str | None = None,
        upstream: str | None = None,
        look: Callable[[], object] | None = None,
        folder: Path | None = None,
    ) -> None:
        """`folder` is where the agent works; the current one if it is not given."""
        self.added: list[str] = []
        """What was put into the environment and the command line of the agent."""
        self.exchanges = 0
        """How often the agent asked something through the relay and was answered."""
        self._run_id, self._journal, self._look = run_id, journal, look
        self._agent = agent if agent in AGENTS else None
        cwd = folder or Path.cwd()
        self._traffic = Traffic(agent=self._agent, folder=str(cwd), single=True)
        self._folder = str(place_of(cwd, None).workspace)
        self._named = False
        self.relay = Relay(
            Upstreams.found(environ, [upstream] if upstream else []),
            on_request=self._asked,
            on_exchange=self._answered,
        )

    @property
    def problem(self) -> str | None:
        """Why not all could be recorded."""
        return self.relay.problem

    def __enter__(self) -> Self:
        self.relay.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.relay.__exit__(kind, error, trace)
        self._write(self._traffic.ended())

    def for_child(
        self, env: Mapping[str, str], argv: Sequence[str]
    ) -> tuple[dict[str, str], list[str]]:
        """Environment and command line of the agent, led through the relay."""
        known = agent(self._agent) if self._agent else None
        found = self.relay.environment(env, known)
        command = self.relay.command(argv, known)
        more = command[1 : 1 + len(command) - len(argv)]
        names = [name for name in found if found[name] != env.get(name)]
        self.added = [*sorted(names), *(self.relay.shown(argument) for argument in more)]
        return found, command

    def _asked(self, exchange: Exchange, is_late: Callable[[], bool]) -> None:
        del is_late  # the look says when it was done
        self._write(self._traffic.asked(sent_of(exchange)))
        if self._look is not None and self._traffic.moment is not None:
            self._look()

    def _answered(self, exchange: Exchange) -> None:
        self.exchanges += 1
        self._write(self._traffic.answered(got_of(exchange)))

    def _write(self, events: Iterable[Event]) -> None:
        for event in events:
            data, kind = event["data"], event["kind"]
            if kind in (Kind.RUN_ENDED, Kind.RUN_STARTED):
                self._name(event["time"])
                continue
            weak = kind == Kind.RUN_UPDATED  # whoever began the run knows better
            _put(self._journal, event, self._run_id, _inside(kind, data, self._folder), weak=weak)

    def _name(self, time: int) -> None:
        """Tell the run whose it is, once that is known."""
        runs = self._traffic.runs
        if (
            self._named
            or not runs
            or not runs[0].session
            or runs[0].builder.agent.name not in AGENTS
        ):
            return
        self._named = True
        facts = {"source": runs[0].builder.agent.format, "source_id": runs[0].session}
        self._journal.write(Kind.RUN_UPDATED, self._run_id, facts, now=time, weak=True)


class Recorded(NamedTuple):
    """A run that was recorded."""

    run_id: str
    agent: str
    calls: int
    """How often a model answered."""
    steps: int


class ProxyRecording:
    """All model traffic of whoever is led here, as runs: one for each session of an agent, one for
    each conversation of what names no sessions. Serves from `__enter__` to `__exit__`.
    """

    def __init__(
        self,
        folder: Path,
        environ: Mapping[str, str],
        *,
        upstreams: Sequence[str] = (),
        port: int = 0,
        patience: float = PATIENCE,
        task: str | None = None,
        home: Path | None = None,
        on_run: Callable[[str, str], object] | None = None,
    ) -> None:
        """`folder` is where the agents work. `patience`: seconds that an answer waits at most for
        the state that its request found. `on_run` is told of each run that begins, and of its
        agent. Raises RepoTraceError."""
        place = place_of(folder, None)
        self.home, self.workspace = home or place.home, place.workspace
        self._task, self._on_run = task, on_run
        self._traffic = Traffic(folder=str(folder), joins=True)
        self._states: dict[str, _States] = {}
        self._counts: dict[str, Recorded] = {}
        self._redactor = shared_redactor(self.home)
        self._journal = shared_journal(self.home / "journal", self._redactor, TEXT_LIMIT)
        self.relay = Relay(
            Upstreams.found(environ, upstreams),
            on_request=self._asked,
            on_exchange=self._answered,
            port=port,
            patience=patience,
        )

    @property
    def recorded(self) -> list[Recorded]:
        """What was recorded by now."""
        return list(self._counts.values())

    def __enter__(self) -> Self:
        self.relay.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.relay.__exit__(kind, error, trace)
        for run in self._traffic.runs:
            self._states_of(run.builder.run_id).last(self._traffic.at_work(run))
        self._write(self._traffic.ended())
        for states in self._states.values():
            states.close()
        release_journal(self._journal)
        self._journal.close()

    def _asked(self, exchange: Exchange, is_late: Callable[[], bool]) -> None:
        self._write(self._traffic.asked(sent_of(exchange)))
        moment = self._traffic.moment
        if moment is not None:
            states = self._states_of(moment.run_id)
            states.found(moment.begun, moment.changing, exchange.time - _BEFORE, is_late)

    def _answered(self, exchange: Exchange) -> None:
        self._write(self._traffic.answered(got_of(exchange)))

    def _write(self, events: Iterable[Event]) -> None:
        for event in events:
            run_id, kind = str(event.get("run")), event["kind"]
            self._count(run_id, kind, event["data"])
            data = _inside(kind, event["data"], str(self.workspace))
            if kind == Kind.RUN_STARTED:
                data = {**data, "workspace": str(self.workspace)}
            if kind == Kind.RUN_UPDATED and self._task is not None:
                data = {**data, **({"task": self._task} if "task" in data else {})}
            _put(self._journal, event, run_id, data)
            if kind == Kind.RUN_STARTED:
                self._begin(run_id, event["time"])
            elif kind == Kind.STEP_STARTED:
                run = self._run(run_id)
                if run is not None and data["id"] in self._traffic.at_work(run):
                    self._states_of(run_id).before(data["id"], event["time"])

    def _begin(self, run_id: str, time: int) -> None:
        run = self._run(run_id)
        name = run.builder.agent.name if run else ""
        facts: dict[str, Any] = {"attributes": {WIRE: True}}
        if self._task is not None:
            facts["task"] = self._task
        self._journal.write(Kind.RUN_UPDATED, run_id, facts, now=time)
        if self._on_run is not None:
            self._on_run(run_id, name)

    def _run(self, run_id: str) -> Run | None:
        return next((run for run in self._traffic.runs if run.builder.run_id == run_id), None)

    def _count(self, run_id: str, kind: str, data: Mapping[str, Any]) -> None:
        run = self._run(run_id)
        known = self._counts.get(run_id) or Recorded(run_id, "", 0, 0)
        calls = known.calls + (kind == Kind.LLM and "step_id" in data)
        steps = known.steps + (kind == Kind.STEP_STARTED)
        self._counts[run_id] = Recorded(
            run_id, run.builder.agent.name if run else known.agent, calls, steps
        )

    def _states_of(self, run_id: str) -> _States:
        states = self._states.get(run_id)
        if states is None:
            path = self.home / "snapshots.git"
            states = self._states[run_id] = _States(path, self.workspace, run_id, self._journal)
        return states


class _States:
    """The states of one run, taken when its agent waits for an answer."""

    def __init__(self, store: Path, workspace: Path, run_id: str, journal: Journal) -> None:
        self._store = SnapshotStore(store)
        self._workspace, self._run_id, self._journal = workspace, run_id, journal
        self._last: str | None = None
        self._begun = False

    def found(self, begun: str, over: Sequence[str], at: int, is_late: Callable[[], bool]) -> None:
        """Take the state that a request found: the one at the end of the steps `over`, or else at
        the start of the step that it begins."""
        facts = self._take()
        if is_late() and "state_id" in facts:
            facts = {"state_quality": "missing", "state_reason": _MISSED}
        if not self._begun:
            self._begun = True
            self._tell(facts, at)
        for step_id in over:
            self._tell({"step_id": step_id, "when": "end", **facts}, at)
        if not over:
            self._tell({"step_id": begun, "when": "start", **facts}, at)
        self._last = facts.get("state_id", self._last)

    def before(self, step_id: str, at: int) -> None:
        """A step begins that may change files; the agent has done nothing since it asked."""
        if self._last is not None:
            facts = {"state_id": self._last, "state_quality": "exact"}
            self._tell({"step_id": step_id, "when": "start", **facts}, at)

    def last(self, at_work: Sequence[str]) -> None:
        """Look once more: what changed since is the work of these steps, or nobody's."""
        before, facts = self._last, self._take()
        for step_id in at_work:
            self._tell({"step_id": step_id, "when": "end", **facts}, None)
        if at_work or "state_id" not in facts or before in (None, facts["state_id"]):
            return
        name = new_id()
        words = "Files changed after the last request"
        step = {"id": name, "step_type": "external", "description": words}
        self._journal.write(Kind.STEP_STARTED, self._run_id, step)
        self._tell({"step_id": name, **facts}, None)
        self._journal.write(Kind.STEP_ENDED, self._run_id, {"id": name})

    def close(self) -> None:
        """Pack what was taken, and copy what is still borrowed from the user's repository."""
        try:
            self._store.settle()
            self._store.close()
        except Exception as error:  # the states are there; they only lie less well
            self._journal.write(
                Kind.LOG, self._run_id, {"level": "warning", "message": f"states: {error}"}
            )

    def _take(self) -> dict[str, Any]:
        try:
            taken = self._store.take(
                self._workspace,
                ref=f"runs/{self._run_id}",
                deadline=DEADLINE,
                message="while a model was asked",
            )
        except Exception as error:  # of whatever kind: the traffic goes on
            return {"state_quality": "missing", "state_reason": str(error) or type(error).__name__}
        if taken.state_id is None:
            return {"state_quality": "missing", "state_reason": taken.reason}
        return {
            "state_id": taken.state_id,
            "state_quality": "exact",
            "duration": taken.duration,
        }

    def _tell(self, facts: Mapping[str, Any], at: int | None) -> None:
        self._journal.write(Kind.STATE, self._run_id, dict(facts), now=at)


def _put(
    journal: Journal, event: Event, run_id: str, data: dict[str, Any], *, weak: bool = False
) -> None:
    journal.write(event["kind"], run_id, data, now=event["time"], event_id=event["id"], weak=weak)


def _inside(kind: str, data: dict[str, Any], workspace: str) -> dict[str, Any]:
    """The data of an event as a journal takes it: no contents, and paths as the workspace sees
    them."""
    attributes = data.get("attributes")
    if kind == Kind.RUN_UPDATED and isinstance(attributes, dict) and "import" in attributes:
        # It was no file that was imported.
        told = {name: value for name, value in attributes["import"].items() if name != "format"}
        return {**data, "attributes": {WIRE: told} if told else {}}
    if kind not in (Kind.FILE_OPERATION, Kind.FILE_READ):
        return data
    # An id of what was shown to the model need not be one of the store.
    found = {key: value for key, value in data.items() if key not in (*_CONTENT, "object_id")}
    for name in ("file_path", "renamed_from"):
        path = found.get(name)
        if isinstance(path, str) and workspace and path.startswith(workspace.rstrip("/") + "/"):
            found[name] = os.path.relpath(path, workspace)
    return found
