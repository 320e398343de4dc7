"""Sessions of agents become runs: events of an importer, with the files of each step rebuilt."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from repotrace.errors import ImportFailed, RepoTraceError, RunNotFound
from repotrace.importers import Importer, detect, importer
from repotrace.importers.lines import Progress, ignore
from repotrace.records.events import Event, Kind, derived_run_id
from repotrace.records.run import FAILING, StateQuality, StepStatus, StepType
from repotrace.runs.cleaning import delete_run
from repotrace.runs.transcripts import placing
from repotrace.runs.transcripts.changes import derived, facts_of, without_content
from repotrace.runs.transcripts.rebuilding import Base, Rebuilding, base_of, with_contents
from repotrace.runs.transcripts.rereading import Reading
from repotrace.runs.transcripts.wire_matching import completing_wire
from repotrace.storage import Store
from repotrace.system.commits import differing
from repotrace.system.git import GitError
from repotrace.system.snapshots.rebuild import Rebuilder

_SESSION_TOKENS = ("total_prompt_tokens", "total_completion_tokens")
"""Attributes of runs whose transcripts tell what all calls took together."""


class EndState(NamedTuple):
    """How the rebuilt files at the end of a run compare with what is known of them."""

    quality: str
    """A `StateQuality`."""
    against: str | None = None
    """What it was compared with: `work tree`, `submitted patch`; None: with nothing."""
    differing: tuple[str, ...] = ()
    """Paths that differ."""
    reason: str | None = None
    """Why it is missing or not sure."""

    @property
    def equal(self) -> bool | None:
        """Whether nothing differs; None if nothing could be compared."""
        return None if self.against is None else not self.differing


NO_STATE = EndState(StateQuality.MISSING)
"""Of a run whose files are not known."""


@dataclass(slots=True)
class Summary:
    """What one run of a transcript holds."""

    run_id: str
    source: str = ""
    source_id: str = ""
    task: str | None = None
    workspace: str | None = None
    base_commit: str | None = None
    steps: int = 0
    llm_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    reads: int = 0
    """Different paths that were read."""
    read_first: tuple[str, ...] = ()
    """Paths that were read before the first change, in order."""
    edits: int = 0
    """Changes of one path each."""
    files_changed: int = 0
    commands: int = 0
    test_runs: int = 0
    failing_test_runs: int = 0
    retries: int = 0
    unknown: int = 0
    """Records that could not be read; each is a step of its own."""
    damage: Mapping[str, Any] = field(default_factory=dict)
    """What could not be read, as importers count it."""
    end: EndState = NO_STATE
    is_new: bool = True


class Options(NamedTuple):
    """How a transcript is to be imported."""

    format: str | None = None
    """None: by its content."""
    repository: Path | None = None
    """The repository that the run worked on; None: the one at the session's folder."""
    fallback: Path | None = None
    """A repository that is tried where the session's folder is not here."""
    base: str | None = None
    """The commit before the first step; None: found."""
    dry_run: bool = False
    """Tell what there is, and keep nothing."""


_USUAL = Options()


def import_session(
    store: Store, path: Path, options: Options = _USUAL, *, progress: Progress = ignore
) -> list[Summary]:
    """Take the runs of a transcript into the store. Doing it again updates them.

    Raises ImportFailed if it is no transcript, RepoTraceError if `base` means no commit; what was
    read before an error stays.
    """
    found = importer(options.format) if options.format else detect(path)
    flow = _Flow(store, found, path, options)
    events = flow.events(progress)
    if options.dry_run:
        for _ in events:
            pass
    else:
        store.runs.add_events(events)
        flow.keep()
        flow.join()
    if not flow.runs:
        raise ImportFailed(f"{path} holds no session.")
    return [run.summary for run in flow.runs.values()]


def peek(path: Path, form: str | None = None) -> Summary | None:
    """What the beginning of a transcript tells of its run; None if it is none."""
    try:
        found = importer(form) if form else detect(path)
        summary: Summary | None = None
        for number, event in enumerate(found.read(path)):
            if event["kind"] in (Kind.RUN_STARTED, Kind.RUN_UPDATED):
                data = event["data"]
                if summary is None:
                    summary = Summary(str(event.get("run")), found.NAME)
                _tell(summary, data)
            if number > 40 or (summary is not None and summary.task is not None):
                break
        return summary
    except RepoTraceError:
        return None


def _tell(summary: Summary, data: Mapping[str, Any]) -> None:
    for name in ("source_id", "task", "workspace", "base_commit"):
        value = data.get(name)
        if isinstance(value, str) and value:
            setattr(summary, name, value)


@dataclass(slots=True)
class _Run:
    """A run on its way into the store."""

    summary: Summary
    files: Rebuilding | None
    place: placing.Place
    weak: bool = False
    """States that were taken live are better than ours."""
    reads: dict[str, None] = field(default_factory=dict)
    test_steps: dict[str, bool] = field(default_factory=dict)
    """Whether the tests that a step ran failed."""
    submission: str | None = None
    session_tokens: tuple[int, int] | None = None
    sub_sessions: tuple[str, ...] = ()
    """Sessions of sub-agents whose steps are part of it."""
    last: int = 0
    """Time of the newest event."""


class _Flow:
    """The events of one transcript, on their way from the importer to the store."""

    def __init__(self, store: Store, found: Importer, path: Path, options: Options) -> None:
        self._store, self._importer, self._path, self._options = store, found, path, options
        self.runs: dict[str, _Run] = {}
        self._places: dict[str, placing.Place] = {}
        self._rebuilder: Rebuilder | None = None
        self._bases: dict[tuple[Path, str], Base] = {}

    def events(self, progress: Progress) -> Iterator[Event]:
        """What the store is to take in."""
        read = Reading(self._importer, self._path, progress)
        if not self._options.dry_run:
            told = read.first()
            self._places = placing.places(told, self._options.repository, self._options.fallback)
            self._rebuilder = Rebuilder(self._store.snapshots)
        for event in completing_wire(self._store, read.again()):
            yield from self._take(event)
        for run in self.runs.values():
            _fall_back_on_session(run)
        if not self._options.dry_run:
            for run in self.runs.values():
                run.summary.end = self._compared(run)
                yield self._told_end(run)

    def keep(self) -> None:
        """Keep the states of the runs that were read."""
        for run in self.runs.values():
            if not run.summary.is_new:
                self._store.joins.tidy(self._store.runs.get(run.summary.run_id).id)
        rebuilder = self._rebuilder
        if rebuilder is None:
            return
        for run in self.runs.values():
            if run.files is not None:
                run.files.flush()
            if run.files is not None and run.files.states:
                ref = f"runs/{run.summary.run_id}"
                rebuilder.keep(ref, run.files.states, "rebuilt from a transcript")
        if rebuilder.borrows:
            self._store.snapshots.finish()

    def join(self) -> None:
        """Delete what was imported by itself of a sub-agent whose steps are part of a run now."""
        for run in self.runs.values():
            for name in run.sub_sessions:
                part = derived_run_id(self._importer.NAME, name)
                if part in self.runs:
                    continue
                with suppress(RunNotFound):
                    known = self._store.runs.get(part)
                    same = (known.source, known.source_id) == (self._importer.NAME, name)
                    # One that was watched live knows more than its transcript.
                    if same and known.base_quality != StateQuality.EXACT:
                        delete_run(self._store, known, force=True)

    # --- Events -----------------------------------------------------------------------------

    def _take(self, event: Event) -> Iterator[Event]:
        run = self._run(event)
        data, kind = event["data"], event["kind"]
        run.last = max(run.last, event["time"])
        _count(run, kind, data)
        if kind == Kind.RUN_STARTED:
            yield self._started(run, event)
            return
        if run.files is None:
            if kind != Kind.FILE_OPERATION:
                yield event
            else:
                yield {**event, "data": without_content(data)}
            return
        if kind == Kind.STEP_STARTED and data.get("step_type") == StepType.EXTERNAL:
            run.files.external(str(data.get("id")), data.get("metadata"))
        if kind == Kind.FILE_READ:
            yield {**event, "data": self._read(run.files, data)}
        elif kind == Kind.FILE_OPERATION:
            change = run.files.operation(data)
            facts = without_content(data)
            if change is not None:
                facts |= facts_of(change)
                run.summary.files_changed = len(run.files.touched)
            else:
                facts["file_path"] = run.files.relative(data.get("file_path"))
            yield {**event, "data": facts}
        elif kind == Kind.COMMAND:
            yield event
            yield from self._of_command(run, event)
        elif kind == Kind.STEP_ENDED:
            state = run.files.ended(str(data.get("id")))
            if state is not None:
                yield derived(event, Kind.STATE, state, "state", weak=run.weak)
            yield event
        else:
            yield event

    def _of_command(self, run: _Run, event: Event) -> Iterator[Event]:
        assert run.files is not None
        for number, change in enumerate(run.files.command(event["data"])):
            facts = {"step_id": event["data"].get("step_id"), **facts_of(change)}
            _count(run, Kind.FILE_OPERATION, facts)
            run.summary.files_changed = len(run.files.touched)
            yield derived(event, Kind.FILE_OPERATION, facts, f"change {number}")

    def _read(self, files: Rebuilding, data: Mapping[str, Any]) -> dict[str, Any]:
        path = files.relative(data.get("file_path"))
        facts = {**data, "file_path": path}
        # Only a content that a state holds can be shown again.
        if facts.get("object_id") and facts["object_id"] != files.object_id(str(path)):
            del facts["object_id"]
        return facts

    def _run(self, event: Event) -> _Run:
        name = str(event.get("run"))
        run = self.runs.get(name)
        if run is None:
            place = self._places.get(name, placing.NOWHERE)
            run = self.runs[name] = _Run(Summary(name, self._importer.NAME), None, place)
            self._known(run, event["data"])
            if self._rebuilder is not None:
                base = self._base(place, self._rebuilder)
                run.files = Rebuilding(self._rebuilder, f"runs/{name}", base, place.root)
        return run

    def _known(self, run: _Run, told: Mapping[str, Any]) -> None:
        """Look whether the run is there already, be it as another view has named it."""
        names = str(told.get("source")), str(told.get("source_id"))
        with suppress(RunNotFound, RepoTraceError):
            joined = self._store.joins.run_of(*names)
            known = self._store.runs.get(joined or run.summary.run_id)
            run.summary.is_new = False
            run.weak = known.base_quality == StateQuality.EXACT

    def _base(self, place: placing.Place, rebuilder: Rebuilder) -> Base:
        wanted = self._options.base
        repository = place.repository
        if repository is None:
            if wanted:
                raise RepoTraceError(
                    "No repository to look for the commit in.",
                    hint="Name the repository that the session worked on with --repo.",
                )
            return Base(None, place.commit, place.reason)
        commit = place.commit
        if wanted:
            commit = placing.commit_named(repository, wanted)
        if commit is None:
            return Base(None, None, place.reason)
        key = (repository, commit)
        if key not in self._bases:
            self._bases[key] = base_of(rebuilder, repository, commit)
        if place.doubt is None or wanted:
            return self._bases[key]
        return with_contents(rebuilder, self._bases[key], place.seen, place.doubt)

    def _started(self, run: _Run, event: Event) -> Event:
        """The beginning, with the workspace that it is here."""
        data = dict(event["data"])
        attributes = dict(data.get("attributes") or {})
        attributes["transcript"] = self._path.name
        cwd = data.get("workspace")
        if run.place.repository is not None:
            data["workspace"] = os.fspath(run.place.repository)
            if cwd and cwd != data["workspace"]:
                attributes["session_folder"] = cwd
        files = run.files
        if files is not None:
            told = files.base_state()
            data["base_quality"] = told["state_quality"]
            if "state_id" in told:
                data["base_state"] = told["state_id"]
            if files.base.commit:
                data["base_commit"] = files.base.commit
        if run.weak:
            for name in ("base_quality", "base_state"):
                data.pop(name, None)
        data["attributes"] = attributes
        _tell(run.summary, data)
        changed: Event = {**event, "data": data}
        return changed

    # --- The end ----------------------------------------------------------------------------

    def _compared(self, run: _Run) -> EndState:
        files = run.files
        if files is None or files.base.tree is None:
            reason = files.base.reason if files is not None else None
            return EndState(StateQuality.MISSING, reason=reason)
        reason = "; ".join(files.doubts[:3]) or None
        if run.submission:
            differs = files.differing_from_patch(run.submission)
            if differs is not None:
                return EndState(files.quality, "submitted patch", tuple(differs), reason)
        differs = self._differing_from_work_tree(run, files)
        if differs is None:
            return EndState(files.quality, None, (), reason)
        return EndState(files.quality, "work tree", tuple(differs), reason)

    def _differing_from_work_tree(self, run: _Run, files: Rebuilding) -> list[str] | None:
        repository, commit = run.place.repository, files.base.commit
        if repository is None or commit is None:
            return None
        try:
            others = set(differing(repository, commit)) - files.touched
        except GitError:
            return None
        own = [path for path in files.touched if files.read(path) != _on_disk(repository / path)]
        return sorted({*own, *others})

    def _told_end(self, run: _Run) -> Event:
        end, summary = run.summary.end, run.summary
        facts: dict[str, Any] = {"quality": end.quality}
        if end.against is not None:
            facts |= {"against": end.against, "equal": end.equal}
            facts["differing"] = list(end.differing[:100])
        if end.reason:
            facts["reason"] = end.reason
        last: Event = {
            "id": f"end-{summary.run_id}",
            "run": summary.run_id,
            "kind": Kind.RUN_UPDATED,
            "time": run.last,
            "data": {"attributes": {"end_state": facts}},
            "raw": True,
        }
        return last


def _on_disk(path: Path) -> bytes | None:
    try:
        return os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
    except OSError:
        return None


def _count(run: _Run, kind: str, data: Mapping[str, Any]) -> None:
    act = _COUNTS.get(kind)
    if act is not None:
        act(run, data)


def _count_step(run: _Run, data: Mapping[str, Any]) -> None:
    run.summary.steps += 1
    run.summary.retries += "retry_of" in data
    run.summary.unknown += data.get("step_type") == StepType.UNKNOWN


def _count_call(run: _Run, data: Mapping[str, Any]) -> None:
    if data.keys() <= {"id", "purpose"}:
        return  # more of a call that was counted
    run.summary.llm_calls += 1
    run.summary.input_tokens += data.get("input_tokens") or 0
    run.summary.output_tokens += data.get("output_tokens") or 0


def _count_read(run: _Run, data: Mapping[str, Any]) -> None:
    if data.get("kind", "read") != "read":
        return
    path = str(data.get("file_path"))
    run.reads[path] = None
    run.summary.reads = len(run.reads)
    if not run.summary.edits:
        shown = path if run.files is None else str(run.files.relative(path))
        run.summary.read_first = tuple(dict.fromkeys([*run.summary.read_first, shown]))


def _count_edit(run: _Run, data: Mapping[str, Any]) -> None:
    del data
    run.summary.edits += 1


def _count_command(run: _Run, data: Mapping[str, Any]) -> None:
    run.summary.commands += 1
    if data.get("is_test"):
        run.summary.test_runs += 1
        command = data.get("command")
        code = command.get("exit_code") if isinstance(command, dict) else None
        _note_tests(run, data.get("step_id"), failed=code not in (None, 0))


def _count_test(run: _Run, data: Mapping[str, Any]) -> None:
    _note_tests(run, data.get("step_id"), failed=data.get("outcome") in FAILING)


def _count_failure(run: _Run, data: Mapping[str, Any]) -> None:
    if data.get("id") in run.test_steps and data.get("status") == StepStatus.FAILED:
        _note_tests(run, data.get("id"), failed=True)


def _note_tests(run: _Run, step_id: Any, *, failed: bool) -> None:
    run.test_steps[str(step_id)] = failed or run.test_steps.get(str(step_id), False)
    run.summary.failing_test_runs = sum(run.test_steps.values())


def _count_facts(run: _Run, data: Mapping[str, Any]) -> None:
    _tell(run.summary, data)
    attributes = data.get("attributes")
    if not isinstance(attributes, dict):
        return
    told = attributes.get("import")
    if isinstance(told, dict):
        run.summary.damage = {name: value for name, value in told.items() if name != "format"}
    submission = attributes.get("submission")
    if isinstance(submission, str) and submission.strip():
        run.submission = submission
    joined = attributes.get("sub_sessions")
    if isinstance(joined, list):
        run.sub_sessions = tuple(name for name in joined if isinstance(name, str))
    sent, received = (attributes.get(name) for name in _SESSION_TOKENS)
    if isinstance(sent, int) and isinstance(received, int):
        run.session_tokens = sent, received


def _fall_back_on_session(run: _Run) -> None:
    """Tokens of the session stand in where no call tells its own."""
    summary = run.summary
    if run.session_tokens and not summary.input_tokens and not summary.output_tokens:
        summary.input_tokens, summary.output_tokens = run.session_tokens


_COUNTS: dict[str, Callable[[_Run, Mapping[str, Any]], None]] = {
    Kind.RUN_UPDATED: _count_facts,
    Kind.STEP_STARTED: _count_step,
    Kind.STEP_ENDED: _count_failure,
    Kind.LLM: _count_call,
    Kind.FILE_READ: _count_read,
    Kind.FILE_OPERATION: _count_edit,
    Kind.COMMAND: _count_command,
    Kind.TEST: _count_test,
}
