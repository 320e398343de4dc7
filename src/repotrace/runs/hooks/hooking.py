"""A hook of an agent: a process of a few milliseconds that writes down what it was told.

It says nothing, and ends well whatever happens: the agent waits for it, and reads what is printed,
or a failure, as an order. What it writes is the files before and after each tool, with the ids
that the agent's session has for them; the session itself tells the rest, see
`runs/transcripts/joining.py`.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from repotrace import hook
from repotrace.hook import Heard
from repotrace.journal import Journal, new_id, writer_facts
from repotrace.locations import (
    find_repository,
    find_store,
    head_of,
    home_for,
    workspace_for,
)
from repotrace.records.events import (
    JOURNAL_VARIABLE,
    RUN_VARIABLE,
    STEP_VARIABLE,
    WORKSPACE_VARIABLE,
    Kind,
    derived_id,
    derived_run_id,
)
from repotrace.runs import ended

AGENTS = ("claude-code", "codex", "gemini-cli")
"""Agents whose hooks are understood; the names are those of their importers."""

PATIENCE = 25.0
"""Seconds after which a hook ends, whatever it waits for."""

DEADLINE = 10.0
"""Seconds that a state may take; a later one is `missing`."""

PAUSE = 60.0
"""Seconds for which no state is taken after one that came too late."""

_LATE = "the files could not be looked at in time"
_RECENT = 1 << 16
"""Bytes of the journal in which the last state is looked for."""

_FOLDERS = ("CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR")
"""Variables by which agents tell hooks where a session began; it may wander."""

_SHELLS = frozenset({"ash", "bash", "busybox", "dash", "fish", "ksh", "mksh", "sh", "zsh"})
_GENERATIONS = 6
"""Shells and the like that may stand between an agent and its hook."""

_TAIL = 4 << 20
"""Bytes of the journal in which the beginning of a call is looked for."""


class _Place(NamedTuple):
    """Where a session is recorded."""

    home: Path
    workspace: Path
    run_id: str
    journal: Path
    own: bool
    """Whether no other process of ours has begun the run, and will end it."""


def answer(arguments: Sequence[str]) -> None:
    """Record what standard input tells of the agent named first. Never raises, prints nothing."""
    try:
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        if arguments[:1] == ["--ended"]:
            signal.setitimer(signal.ITIMER_REAL, 0)
            from repotrace.runs.follow_up import finish

            finish(*arguments[1:])
        elif arguments and arguments[0] in AGENTS and not os.isatty(0):
            told = hook.heard(*hook.read(0))
            if told is not None and os.environ.get("REPOTRACE_RECORD") != "0":
                _record(arguments[0], told)
    except BaseException:  # the agent goes on, unrecorded
        return


def _record(agent: str, told: Heard) -> None:
    place = _place(agent, told, os.environ)
    if place is None:
        return
    from repotrace.redact import Redactor
    from repotrace.storage.keys import key

    speaker = _speaker()
    name = f"hook-{place.run_id}-{speaker.get('pid')}-{speaker.get('pid_started', 0)}"
    redactor = Redactor(key=key(place.home), variables=os.environ)
    journal = Journal(place.journal, redact=redactor.redact, name=name, writer=speaker)
    journal.open()
    session = _Session(agent, told, place, journal, place.journal / f"{name}.jsonl")
    if journal.began:
        session.begin()
    session.record()
    journal.close()


def _place(agent: str, told: Heard, environ: Mapping[str, str]) -> _Place | None:
    """Where the session is recorded; None if it is not.

    Outside of git that is so where a folder `.repotrace` asks for it.
    """
    run_id, inbox = environ.get(RUN_VARIABLE), environ.get(JOURNAL_VARIABLE)
    start = next((path for name in _FOLDERS if (path := environ.get(name))), told.cwd)
    if not os.path.isabs(start) or not os.path.isdir(start):  # noqa: PTH112, PTH117 - a text
        return None
    folder = Path(start)
    workspace = workspace_for(folder, environ)
    home = home_for(find_store(folder, environ), folder, environ)
    if run_id and inbox:
        given = environ.get(WORKSPACE_VARIABLE)
        return _Place(home, Path(given) if given else workspace, run_id, Path(inbox), own=False)
    asked = environ.get("REPOTRACE_HOME") or find_repository(folder)
    if not asked and not (workspace / ".repotrace").is_dir():
        return None
    own_id = derived_run_id(agent, told.session)
    return _Place(home, workspace, own_id, home / "journal", own=True)


def _speaker() -> dict[str, Any]:
    """What tells the agent's process: the nearest above us that is no shell."""
    pid = os.getppid()
    for _ in range(_GENERATIONS):
        try:
            name, above = _process(pid)
        except (OSError, ValueError, IndexError):
            break
        if name not in _SHELLS or above <= 1:
            break
        pid = above
    return writer_facts(pid)


def _process(pid: int) -> tuple[str, int]:
    """The name of a process, and the id of its parent."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        if Path("/proc/self/stat").exists():
            raise
        from repotrace.system.ancestry import name_and_parent

        return name_and_parent(pid)
    head, _, rest = stat.rpartition(")")
    return head.partition("(")[2], int(rest.split()[1])


class _Session:
    """One session, as one hook tells of it."""

    def __init__(
        self, agent: str, told: Heard, place: _Place, journal: Journal, file: Path
    ) -> None:
        self._agent, self._told, self._place = agent, told, place
        self._journal, self._file = journal, file
        self._arrived = time.time_ns()
        self._state: dict[str, Any] | None = None

    def begin(self) -> None:
        """The first that is heard of the session, or of its being taken up by another process."""
        told, place = self._told, self._place
        facts: dict[str, Any] = {"source": self._agent, "source_id": told.session}
        if told.model:
            facts["models"] = [told.model]
        if place.own:
            repository = find_repository(place.workspace)
            commit = head_of(repository.git_dir) if repository else None
            facts |= {"agent": self._agent, "workspace": os.fspath(place.workspace)}
            facts |= {"base_commit": commit} if commit else {}
        self._write(Kind.RUN_STARTED if place.own else Kind.RUN_UPDATED, facts)
        if told.transcript:
            followed = {"path": told.transcript, "format": self._agent}
            since = {"since": self._arrived} if told.resumed else {}
            self._write(Kind.FOLLOWED, followed | since)
        if place.own and told.moment in (hook.BEGIN, hook.PROMPT, hook.BEFORE):
            self._write(Kind.STATE, self._taken("before the first step"))

    def record(self) -> None:
        """What this hook was started for."""
        act = {
            hook.PROMPT: self._prompt,
            hook.BEFORE: self._before,
            hook.AFTER: self._after,
            hook.END: self._end,
        }.get(self._told.moment)
        if act is not None:
            act()

    def _prompt(self) -> None:
        if self._told.prompt and self._place.own:
            self._write(Kind.RUN_UPDATED, {"task": self._told.prompt})

    def _before(self) -> None:
        told = self._told
        step_id = self._id_of_call() if told.call_id else new_id(self._arrived)
        facts = {"id": step_id, **hook.step_facts(told)}
        outer = os.environ.get(STEP_VARIABLE)
        if outer:
            facts["parent_id"] = outer
        self._write(Kind.STEP_STARTED, facts, self._arrived)
        state = self._taken(f"before {told.tool}")
        self._write(Kind.STATE, {"step_id": step_id, "when": "start", **state})

    def _after(self) -> None:
        told = self._told
        state = self._taken(f"after {told.tool}")
        step_id = self._id_of_call() if told.call_id else self._open_call()
        if step_id is None:
            self._look(state)
            return
        self._write(Kind.STATE, {"step_id": step_id, **state})
        facts: dict[str, Any] = {"id": step_id}
        if told.call_id:
            facts["external_id"] = told.call_id
        if told.failure is not None:
            facts |= {"status": "failed", "error": told.failure}
        self._write(Kind.STEP_ENDED, facts, self._arrived)

    def _end(self) -> None:
        self._look(self._taken("at the end"))
        if not self._place.own:
            return
        self._write(Kind.RUN_ENDED, {"status": "completed"})
        place = self._place
        is_told = os.path.isfile(self._told.transcript)  # noqa: PTH113 - a text
        if is_told or ended.is_posting_wanted(place.workspace, os.environ):
            # The transcript is not complete while the agent waits for us.
            speaker = json.dumps(_speaker())
            ended.start(place.home, [place.run_id], os.environ, speaker=speaker)

    # --- Parts ------------------------------------------------------------------------------

    def _write(self, kind: str, data: dict[str, Any], now: int | None = None) -> None:
        # Weak: the session itself knows better, whichever of us is heard first.
        self._journal.write(kind, self._place.run_id, data, now=now, weak=kind != Kind.STATE)

    def _look(self, state: dict[str, Any]) -> None:
        """Tell of files that belong to no step."""
        if state.get("state_id"):
            facts = {"state_id": state["state_id"], "until": time.time_ns()}
            self._write(Kind.LOOK, facts, self._arrived)

    def _id_of_call(self) -> str:
        return derived_id(0, self._place.run_id, "hook", self._told.call_id)

    def _open_call(self) -> str | None:
        """The step of the call that has now ended, where calls have no ids."""
        digest = hook.call_digest(self._told.tool, self._told.arguments).encode()
        lines = self._lines(_TAIL)
        begun: list[str] = []
        for line in lines:
            if digest in line:
                begun.append(json.loads(line)["data"]["id"])
        for line in lines:
            ended = next((step_id for step_id in begun if step_id.encode() in line), None)
            if ended is not None and b'"step_ended"' in line:
                begun.remove(ended)
        return begun[0] if begun else None

    def _taken(self, message: str) -> dict[str, Any]:
        """The facts of the files as they are now, looked at once."""
        if self._state is None:
            late = not self._journal.began and self._was_late()
            self._state = _missing(_LATE) if late else _state(self._place, message)
        return self._state

    def _was_late(self) -> bool:
        """Whether the last look took too long, not long ago: the agent is not to wait each time."""
        for line in reversed(self._lines(_RECENT)):
            if b'"kind":"state"' not in line:
                continue
            told = json.loads(line)
            facts = told["data"]
            if facts.get("state_reason") != _LATE:
                age = (self._arrived - told["time"]) / 1e9
                return bool(facts.get("duration", 0.0) >= DEADLINE and age < PAUSE)
        return False

    def _lines(self, size: int) -> list[bytes]:
        """The last whole lines of the journal."""
        with self._file.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - size)
            file.seek(start)
            lines = file.read().split(b"\n")
        return lines[1:-1] if start else lines[:-1]


def _missing(reason: str) -> dict[str, Any]:
    return {"state_quality": "missing", "state_reason": reason}


def _state(place: _Place, message: str) -> dict[str, Any]:
    from repotrace.errors import RepoTraceError
    from repotrace.system.snapshots import SnapshotStore

    try:
        with SnapshotStore(place.home / "snapshots.git") as store:
            taken = store.take(
                place.workspace, ref=f"runs/{place.run_id}", deadline=DEADLINE, message=message
            )
    except (RepoTraceError, OSError) as error:
        return _missing(str(error))
    facts: dict[str, Any] = {"duration": taken.duration}
    if taken.state_id is None:
        return facts | _missing(taken.reason or "it was not taken")
    return facts | {"state_id": taken.state_id, "state_quality": "exact"}
