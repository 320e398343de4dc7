"""One run out of several views: what its agent writes down, how the files were seen to be, what
hooks, the wire and pytest told.

Calls of tools and models are the same in all views, for they carry the ids that the provider gave
them; looks at the files fit steps by time. Joining may be done at any moment and again: it takes
in what there is by then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repotrace.errors import RepoTraceError
from repotrace.importers import importer
from repotrace.records.events import Event, Kind
from repotrace.records.run import Run, RunStatus, StateQuality, StepStatus, StepType
from repotrace.runs.transcripts.binding import bind
from repotrace.runs.transcripts.changes import derived, facts_of, without_content
from repotrace.runs.transcripts.growing import spans
from repotrace.runs.transcripts.naming_calls import nameless, naming
from repotrace.runs.transcripts.rebuilding import NOWHERE, Base, Rebuilding
from repotrace.runs.transcripts.sessions import written
from repotrace.runs.transcripts.wire_matching import WireCalls
from repotrace.storage import Store
from repotrace.storage.files import held_alone
from repotrace.storage.joins import Look, Transcript
from repotrace.system.snapshots.rebuild import Rebuilder

_SOON_READ = 8 << 20
"""Bytes of transcripts that may be read again whenever a run that goes on is looked at."""
_SLACK = 2 * 10**9
"""Nanoseconds by which a transcript may round the moment of its beginning down."""
_STATEFUL = frozenset({StepType.EDIT, StepType.COMMAND, StepType.TEST, StepType.TOOL})


def complete(store: Store) -> None:
    """Join the runs that are over and were not joined since, as after the recorder was killed, and
    those that nobody but hooks records as far as they are.

    What cannot be read stays for the next time; nothing is raised for it.
    """
    try:
        names = store.joins.unfinished()
        going_on = store.joins.going_on()
    except RepoTraceError:
        return
    for name in [*names, *going_on]:
        with suppress(RepoTraceError, OSError):
            run = store.runs.named(name)
            if run is None or not _has_news(store, run):
                continue
            if name not in going_on or _is_to_be_followed(store, run):
                join(store, run)


def _is_to_be_followed(store: Store, run: Run) -> bool:
    """Whether a run that goes on is joined when it is read: no recorder does it, and it is soon
    done."""
    if "recorder" in run.attributes:
        return False
    found = [written(t.format, Path(t.path)) for t in store.joins.transcripts(run.id)]
    return sum(facts[1] for facts in found if facts is not None) < _SOON_READ


def _has_news(store: Store, run: Run) -> bool:
    followed = store.joins.transcripts(run.id)
    news = [t for t in followed if not t.final and _seen(t) not in (None, t.seen)]
    return bool(news) or store.joins.has_new_looks(run.id)


def join(store: Store, run: Run, *, wait: bool = False) -> bool:
    """Make one run of all that is known of `run` by now; False if another process joins runs and
    is not waited for."""
    with _alone(store.home, wait=wait) as alone:
        if not alone:
            return False
        running = run.status == RunStatus.RUNNING
        looks = store.joins.looks(run.id)
        followed = store.joins.transcripts(run.id)
        store.joins.undo(run.id)
        wire = WireCalls.of(store, run.id)
        for transcript in followed:
            before = _seen(transcript)
            try:
                _name_calls(store, run, transcript)
                view = _View(store, run, transcript, looks, wire, running=running)
                store.joins.add(view.events())
                store.joins.drop_calls(run.id, wire.outdated, wire.forsaken)
                view.keep()
            except (RepoTraceError, OSError):
                # What was read of it stands; it may be torn just now, or gone.
                pass
            over = run.status in (RunStatus.COMPLETED, RunStatus.FAILED)
            store.joins.joined(run.id, transcript.path, before, final=over)
        states = store.joins.states(run.id)
        steps = store.joins.moments(run.id)
        files = _Files(store)
        touching = any(store.joins.growths(run.id, t.path) for t in followed)
        found = bind(run.id, steps, looks, states, running=running, touching=touching, files=files)
        store.joins.add(found)
        store.joins.finish(run.id)
        return True


def _alone(home: Path, *, wait: bool) -> AbstractContextManager[bool]:
    """Whether no other process joins runs of this home."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    return held_alone(os.open(home / "joining.lock", flags, 0o600), wait=wait)


def _name_calls(store: Store, run: Run, transcript: Transcript) -> None:
    """Give what hooks have heard the ids that the session has for it, where they had none."""
    steps = store.runs.steps(run.id)
    if nameless(steps):
        session = importer(transcript.format).read(Path(transcript.path))
        store.joins.add(naming(run.id, steps, session))


def _seen(transcript: Transcript) -> str | None:
    """How the transcript is now; None if it is gone."""
    facts = written(transcript.format, Path(transcript.path))
    return None if facts is None else f"{facts[0]!r} {facts[1]}"


class _Files:
    """The files of states; see `binding.Files`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def described(self, before: str, after: str) -> str:
        """In one line for people, what differs."""
        try:
            found = self._store.snapshots.operations(before, after)
        except (RepoTraceError, OSError):
            found = []
        paths = [operation.path for operation in found]
        more = f" and {len(paths) - 2} more" if len(paths) > 2 else ""
        return f"Changed {', '.join(paths[:2])}{more}" if paths else "Files changed"

    def equal(self, one: str, other: str) -> bool:
        """Whether two states have the same files; a transcript tells of no permissions."""
        states = self._store.snapshots
        try:
            return states.state(one).tree == states.state(other).tree
        except (RepoTraceError, OSError):
            return False


@dataclass(slots=True)
class _View:
    """What one transcript tells of a run, on its way into the store."""

    store: Store
    run: Run
    transcript: Transcript
    looks: list[Look]
    wire: WireCalls
    running: bool
    _files: Rebuilding | None = None
    _rebuilder: Rebuilder | None = None
    _older: set[str] = field(default_factory=set)
    """Ids of steps from before the run."""
    _messages: dict[str, list[Any]] = field(default_factory=dict)
    """What models were shown in calls from before the run, by their ids."""
    _begun: dict[str, Event] = field(default_factory=dict)
    """How those runs of the transcript began that nothing new was told of yet."""
    _open: dict[str, int] = field(default_factory=dict)
    """Steps that may change files and have not ended, with their start."""
    _quiet_since: int = 0
    """When the last of such steps ended."""

    def events(self) -> Iterator[Event]:
        """What is new in it, or told again, as events of the run."""
        for event in self.wire.compared(self._told()):
            yield from self._with_files(event)

    def _told(self) -> Iterator[Event]:
        since = self.transcript.since
        limit = None if since is None else since - _SLACK
        path, form = Path(self.transcript.path), self.transcript.format
        moments = spans(path, form, self.store.joins.growths(self.run.id, self.transcript.path))
        for event in importer(form).read(path):
            name = str(event.get("run"))
            if limit is not None and event["kind"] == Kind.RUN_STARTED and event["time"] < limit:
                self._begun[name] = event
                continue
            if limit is not None and self._is_older(event, limit):
                continue
            begun = self._begun.pop(name, None)
            for each in (begun, event):
                if each is not None:
                    span = moments.get(each["id"])
                    yield from self._of_run(each if span is None else span.moved(each))

    def keep(self) -> None:
        """Keep the states that were rebuilt."""
        files, rebuilder = self._files, self._rebuilder
        if files is None or rebuilder is None:
            return
        files.flush()
        if files.states[1:]:
            rebuilder.keep(f"runs/{self.run.id}", files.states[1:], "rebuilt from a transcript")

    # --- Which events -----------------------------------------------------------------------

    def _is_older(self, event: Event, since: int) -> bool:
        """Whether the event is of the time before the run: its session was taken up again."""
        data, kind = event["data"], event["kind"]
        if kind in (Kind.RUN_STARTED, Kind.RUN_UPDATED, Kind.RUN_ENDED, Kind.LOST):
            return event["time"] < since
        step = str(data.get("id") if kind.startswith("step_") else data.get("step_id") or "")
        if kind == Kind.STEP_STARTED and event["time"] < since:
            self._older.add(step)
        older = step in self._older or (not step and event["time"] < since)
        if kind == Kind.LLM:
            self._shown(data, older=older)
        return older

    def _shown(self, data: dict[str, Any], *, older: bool) -> None:
        """Keep the conversation of a call that is left out for the first that is not."""
        before = self._messages.get(str(data.get("previous_id")))
        if before is not None:
            kept = data.get("kept")
            data["messages"] = [
                *before[: kept if isinstance(kept, int) else len(before)],
                *(data.get("messages") or ()),
            ]
            for name in ("previous_id", "kept"):
                data.pop(name, None)
        if older:
            self._messages = {str(data.get("id")): list(data.get("messages") or ())}

    def _of_run(self, event: Event) -> Iterator[Event]:
        """The event as one of this run, without what the recorder knows better."""
        kind, data = event["kind"], event["data"]
        changed: Event = {**event, "run": self.run.id}
        if kind == Kind.RUN_ENDED:
            return
        if kind == Kind.STEP_ENDED and data.get("status") == StepStatus.INTERRUPTED:
            # It says no more than that the transcript ends here.
            if not self.running:
                yield changed
            return
        if kind not in (Kind.RUN_STARTED, Kind.RUN_UPDATED):
            yield changed
            return
        facts = {**data, "attributes": dict(data.get("attributes") or {})}
        if kind == Kind.RUN_STARTED:
            facts["attributes"]["transcript"] = Path(self.transcript.path).name
            self._begin_files(str(facts.pop("workspace", None) or ""))
        if isinstance(told := facts["attributes"].get("import"), dict):
            # Those of the recorder are.
            told = {name: fact for name, fact in told.items() if name != "times"}
            facts["attributes"]["import"] = told
        outcome = facts.pop("outcome", None)
        if outcome is not None:  # it may be another one each time
            yield derived(changed, Kind.RUN_UPDATED, {"outcome": outcome}, "outcome")
        yield {**changed, "kind": Kind.RUN_UPDATED, "data": facts, "weak": True}

    # --- Their files ------------------------------------------------------------------------

    def _begin_files(self, folder: str) -> None:
        if self._files is not None:
            return
        rebuilder = Rebuilder(self.store.snapshots)
        base = Base(None, self.run.base_commit, "no state was taken before the first step")
        if self.run.base_state is not None:
            with suppress(RepoTraceError):
                tree = self.store.snapshots.state(self.run.base_state).tree
                base = Base(tree, self.run.base_commit)
        root = self.run.workspace or folder or NOWHERE
        self._rebuilder = rebuilder
        self._files = Rebuilding(rebuilder, f"runs/{self.run.id}", base, root)

    def _with_files(self, event: Event) -> Iterator[Event]:
        data, kind, files = event["data"], event["kind"], self._files
        if files is None:
            yield {**event, "data": without_content(data)}
            return
        if kind == Kind.STEP_STARTED and data.get("step_type") in _STATEFUL:
            self._catch_up(files, event["time"])
            self._open[str(data.get("id"))] = event["time"]
        if kind == Kind.FILE_READ:
            yield {**event, "data": _read(files, data)}
        elif kind == Kind.FILE_OPERATION:
            change = files.operation(data)
            facts = without_content(data)
            if change is not None:
                facts |= facts_of(change)
            else:
                facts["file_path"] = files.relative(data.get("file_path"))
            yield {**event, "data": facts}
        elif kind == Kind.COMMAND:
            yield event
            for number, change in enumerate(files.command(data)):
                facts = {"step_id": data.get("step_id"), **facts_of(change)}
                yield derived(event, Kind.FILE_OPERATION, facts, f"change {number}")
        elif kind == Kind.STEP_ENDED:
            name = str(data.get("id"))
            state = files.ended(name)
            if state is not None and state.get("state_quality") != StateQuality.MISSING:
                yield {**derived(event, Kind.STATE, state, "state"), "weak": True}
            if self._open.pop(name, None) is not None:
                self._quiet_since = max(self._quiet_since, event["time"])
            yield event
        else:
            yield event

    def _catch_up(self, files: Rebuilding, time: int) -> None:
        """Go on from the files as they were seen since the last step, if they were."""
        if self._open:
            return
        seen = None
        for look in self.looks:
            if look.until * 1000 > time:
                break
            if look.at * 1000 >= self._quiet_since:
                seen = look
        if seen is not None:
            with suppress(RepoTraceError):
                files.saw(self.store.snapshots.state(seen.state_id).tree)


def _read(files: Rebuilding, data: Mapping[str, Any]) -> dict[str, Any]:
    path = files.relative(data.get("file_path"))
    facts = {**data, "file_path": path}
    # Only a content that a state holds can be shown again.
    if facts.get("object_id") and facts["object_id"] != files.object_id(str(path)):
        del facts["object_id"]
    return facts
