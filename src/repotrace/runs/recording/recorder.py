"""`ExecutionRecorder`: the typed way into the journal for a program that knows what it does.

    with ExecutionRecorder(".", task="fix the date bug") as recorder:
        step = recorder.record_iteration(1, ["edit_file"], "I'll change the leap year")
        recorder.record_llm_call(step, prompt, response, "some-model", 1200, "execution")

What a method was told is in the journal when it returns, and survives the death of the program.
No method raises for what happens to the recording: a full disk is said once on stderr, what is
lost is counted, and the program goes on.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from repotrace.journal import TEXT_LIMIT, message_of, new_id, new_run_id
from repotrace.records.events import Kind
from repotrace.runs import ended
from repotrace.runs.contents import bytes_of, line_counts
from repotrace.runs.recording.state_taker import DEADLINE, StateTaker
from repotrace.runs.recording.surroundings import (
    commit_of,
    places_of,
    release_journal,
    shared_journal,
    shared_redactor,
)

if TYPE_CHECKING:
    from repotrace.records.command import CommandRun
    from repotrace.storage import Store

LEAST_TEXT = 256
"""Characters of a text that are kept in any case: names and ids stay whole."""

type Facts = Mapping[str, Any]


class ExecutionRecorder:
    """Records one run. May be shared by threads, and used on in a child after a fork.

    `workspace` is the folder that the run works in, or a `Store` (then no states are taken unless
    `folder` is given). `run_id` continues or names a run; without it a new one is begun.
    `flush_interval` is accepted for compatibility: nothing is held back.

    With `states` the files are kept: before the first step, around each step that is logged with
    its start and end, and after each iteration. `redact=False` writes texts as they are.
    """

    def __init__(
        self,
        workspace: Path | str | Store,
        run_id: str | None = None,
        flush_interval: int = 10,
        *,
        folder: Path | str | None = None,
        states: bool = True,
        redact: bool = True,
        text_limit: int = TEXT_LIMIT,
        state_deadline: float = DEADLINE,
        journal: Path | str | None = None,
        follow_up: bool = True,
        **facts: Any,
    ) -> None:
        """`facts` are those of the run: `task`, `task_id`, `agent`, `environment`, `tags`, …; see
        `records.events.RunData`. `journal` is a folder to write to that is not the home's own.
        With `follow_up` a process of its own posts the alerts of the run when it has ended, where
        the project wants that."""
        del flush_interval
        self.run_id = run_id or new_run_id()
        self.home, root = places_of(workspace, folder)
        self.workspace = root
        self.redactor = shared_redactor(self.home) if redact else None
        """Masks the secrets of what is recorded; None where that was not wanted."""
        self.text_limit = max(text_limit, LEAST_TEXT)
        """Characters of one text that are kept, half of them from its end."""
        inbox = Path(os.path.abspath(journal)) if journal else self.home / "journal"  # noqa: PTH100
        self._journal = shared_journal(inbox, self.redactor, self.text_limit)
        self._released = False
        self._seen_sizes = {len(os.environ)}
        self._taker = None
        if states and root is not None:
            path = self.home / "snapshots.git"
            self._taker = StateTaker(
                path, root, self.run_id, self._journal, deadline=state_deadline
            )
        self._follow_up = follow_up
        self._facts = facts
        self._joined = run_id is not None
        self._begun = self._ended = False
        self._pid = 0
        self._numbers: dict[int, str] = {}
        self._iteration: str | None = None
        self._count = 0

    @property
    def journal_folder(self) -> Path:
        """Where this process writes to, and where its children shall."""
        return Path(self._journal.folder)

    @property
    def lost(self) -> int:
        """Events that could not be written."""
        return self._journal.lost

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._end_with(error)

    # --- The run ----------------------------------------------------------------------------

    def begin(self, **facts: Any) -> None:
        """Begin the run, unless that was done; the first record does it, too.

        The files as they are become the state before the first step.
        """
        if self._begun:
            return
        self._begun = True
        self._pid = os.getpid()
        known = {"source": "sdk", "workspace": _path(self.workspace), **self._facts, **facts}
        if self.workspace is not None:
            known.setdefault("base_commit", commit_of(self.workspace))
        self.write(Kind.RUN_STARTED, {k: v for k, v in known.items() if v is not None})
        atexit.register(self._at_exit)
        if self._taker is not None:
            self._taker.base()

    def join(self) -> None:
        """Write to a run that another process has begun, and will end."""
        self._begun = self._ended = True

    def update(self, **facts: Any) -> None:
        """Add to what is known of the run; see `records.events.RunData`."""
        self.begin()
        self.write(Kind.RUN_UPDATED, facts)

    def end(
        self,
        status: str = "completed",
        *,
        outcome: str | None = None,
        error: str | None = None,
        **facts: Any,
    ) -> None:
        """End the run. What has changed since its last step becomes a step `external`."""
        if self._ended:
            self.close()
            return
        self.begin()
        self._ended = True
        self._settle()
        if self._taker is not None:
            self._taker.last()
        self.write(Kind.RUN_ENDED, _given(status=status, outcome=outcome, error=error) | facts)
        self.close()
        if self._follow_up and ended.is_posting_wanted(self.workspace, os.environ):
            ended.follow_up(self.home, self.run_id, os.environ)

    def close(self) -> None:
        """Let go of what is open, without ending the run."""
        atexit.unregister(self._at_exit)
        if not self._released:
            self._released = True
            release_journal(self._journal)
        if self._taker is not None:
            self._taker.close()

    def flush(self) -> None:
        """Take what was recorded into the database.

        It is safe before that already, and every reader takes it in by itself.
        """
        from repotrace.storage import Store

        try:
            Store(self.home).runs.ingest(self.journal_folder, wait=True)
        except Exception as error:
            self._complain(error)

    def _at_exit(self) -> None:
        self._end_with(getattr(sys, "last_exc", None) or getattr(sys, "last_value", None))

    def _end_with(self, error: BaseException | None) -> None:
        """End the run as this process leaves it, unless a process began it that forked since."""
        if self._begun and self._pid not in (0, os.getpid()):
            return
        if error is None:
            self.end()
        else:
            self.end(status="failed", error=message_of(error))

    # --- Steps ------------------------------------------------------------------------------

    def start_step(
        self,
        step_type: str,
        description: str,
        *,
        step_id: str | None = None,
        parent_id: str | None = None,
        input_context: str | None = None,
        with_state: bool = False,
        metadata: dict[str, Any] | None = None,
        **facts: Any,
    ) -> str:
        """Begin a step; its id. With `with_state` the files before it are kept.

        `facts`: `reason`, `attempt`, `retry_of`, `external_id`, …; see `records.events.StepData`.
        """
        if not self._begun:
            self.begin()
        now = time.time_ns()
        name = step_id or new_id(now)
        data: dict[str, Any] = {"id": name, "step_type": step_type, "description": description}
        if parent_id is not None:
            data["parent_id"] = parent_id
        if input_context is not None:
            data["input_context"] = input_context
        if metadata:
            data["metadata"] = metadata
        if facts:
            data.update(facts)
        if with_state and self._taker is not None:
            self._taker.begin(name, lambda: self.write(Kind.STEP_STARTED, data))
        else:
            self.write(Kind.STEP_STARTED, data, now)
        return name

    def end_step(
        self,
        step_id: str,
        *,
        output_result: str | None = None,
        status: str | None = None,
        error: str | None = None,
        with_state: bool = False,
        metadata: dict[str, Any] | None = None,
        **facts: Any,
    ) -> None:
        """End a step. With `with_state` the files after it are kept."""
        if with_state:
            self.take_state(step_id)
        data: dict[str, Any] = {"id": step_id}
        if output_result is not None:
            data["output_result"] = output_result
        if status is not None:
            data["status"] = status
        if error is not None:
            data["error"] = error
        if metadata:
            data["metadata"] = metadata
        if facts:
            data.update(facts)
        self.write(Kind.STEP_ENDED, data)

    def take_state(self, step_id: str) -> str | None:
        """Keep the files as the step leaves them; the id of the state, None if there is none."""
        return None if self._taker is None else self._taker.end(step_id)

    def begin_state(self, step_id: str) -> str | None:
        """Keep the files before a step that was started without them; see `take_state`."""
        return None if self._taker is None else self._taker.begin(step_id, lambda: None)

    def update_step(self, step_id: str, **facts: Any) -> None:
        """Add to what is known of a step; see `records.events.StepData`."""
        self.write(Kind.STEP_UPDATED, {"id": step_id} | facts)

    def record_iteration(
        self, step_number: int, tool_names: list[str], llm_response_summary: str
    ) -> str:
        """Record one iteration of an agent's loop as a step; its id.

        Call it when the model has answered and before its tools run: the files as they are now
        are those after the iteration before, and those after this one are looked at when the
        next one, or the run's end, comes.
        """
        self._settle()
        named = f"Tools: {', '.join(tool_names)}" if tool_names else llm_response_summary
        metadata = {"tool_names": list(tool_names), "step_number": step_number}
        name = self.start_step("tool_call", named, metadata=metadata)
        self.end_step(name, output_result=llm_response_summary or None, status="completed")
        self._numbers[step_number] = self._iteration = name
        return name

    def _settle(self) -> None:
        """The files as they are now are what the last iteration made of them."""
        self.begin()
        last, self._iteration = self._iteration, None
        if last is not None and self._taker is not None:
            self._taker.end(last)

    def log_execution_step(
        self,
        step_number: int,
        step_type: str,
        description: str,
        input_context: str | None = None,
        *,
        parent_id: str | None = None,
    ) -> str:
        """Record the start of a step, and the files before it; its id."""
        self._settle()
        name = self.start_step(
            step_type,
            description,
            input_context=input_context,
            parent_id=parent_id,
            with_state=True,
            metadata={"step_number": step_number},
        )
        self._numbers[step_number] = name
        return name

    def complete_execution_step(
        self, step_number: int, status: str = "completed", output_result: str | None = None
    ) -> None:
        """Record the end of the step of that number, and the files after it.

        A number that was not logged is recorded as a step of its own.
        """
        name = self._numbers.get(step_number)
        if name is None:
            name = self.log_execution_step(step_number, "unknown", f"Step {step_number}")
        self.end_step(name, output_result=output_result, status=status, with_state=True)

    def record_decision(
        self,
        description: str,
        reason: str | None = None,
        *,
        kind: str | None = None,
        parent_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Record a choice as a step; its id. `kind`: choice, retry, blocker, branch."""
        more = dict(metadata or {}) | ({"kind": kind} if kind else {})
        name = self.start_step(
            "decision", description, parent_id=parent_id, metadata=more, **_given(reason=reason)
        )
        self.end_step(name)
        return name

    # --- Model calls ------------------------------------------------------------------------

    def record_llm_call(
        self,
        step_id: str,
        prompt_summary: str,
        response_summary: str,
        model: str,
        tokens_used: int,
        purpose: str,
        **facts: Any,
    ) -> str:
        """Record a model call of a step; its id.

        `facts`: `messages`, `input_tokens`, `cost_usd`, …; see `records.events.LLMData`.
        """
        return self.record_llm(
            step_id=step_id,
            prompt=prompt_summary,
            response=response_summary,
            model=model,
            tokens_used=tokens_used,
            purpose=purpose,
            **facts,
        )

    def log_llm_interaction(
        self, step_id: str, prompt: str, response: str, model: str, tokens: int, purpose: str
    ) -> str:
        """`record_llm_call` by its other name."""
        return self.record_llm_call(step_id, prompt, response, model, tokens, purpose)

    def record_llm(self, *, sent_at: int | None = None, **facts: Any) -> str:
        """Record a model call by the facts of `records.events.LLMData`; its id.

        `sent_at` is the moment of the request in nanoseconds, if it is not now.
        """
        return self._part(Kind.LLM, facts, sent_at)

    # --- Files ------------------------------------------------------------------------------

    def record_file_operation(
        self, step_id: str, op_type: str, path: str, before: str | None, after: str | None
    ) -> str:
        """Record that a step changed a file, with its content before and after; its id.

        Where states are taken the files themselves tell, and what they say replaces this.
        """
        facts: dict[str, Any] = {"operation_type": op_type, "file_path": self._inside(path)}
        contents = {"before_id": before, "after_id": after}
        given = {name: bytes_of(text) for name, text in contents.items() if text is not None}
        kept = self._keep(*given.values()) if given else []
        facts |= dict(zip(given, kept or (), strict=False))
        facts |= line_counts(before or "", after or "")
        return self._part(Kind.FILE_OPERATION, facts | {"step_id": step_id})

    def log_file_operation(
        self, step_id: str, operation: str, path: str, before: str | None, after: str | None
    ) -> str:
        """`record_file_operation` by its other name."""
        return self.record_file_operation(step_id, operation, path, before, after)

    def _keep(self, *contents: bytes) -> list[str] | None:
        taker = self._taker
        if taker is None:
            path, root = self.home / "snapshots.git", self.workspace or self.home
            taker = StateTaker(path, root, self.run_id, self._journal, deadline=DEADLINE)
        return taker.keep(*contents)

    def record_read(
        self,
        step_id: str,
        path: str,
        *,
        kind: str = "read",
        first_line: int | None = None,
        last_line: int | None = None,
    ) -> str:
        """Record that a step looked at a file; its id. `kind`: read, search, list."""
        facts = _given(kind=kind, first_line=first_line, last_line=last_line)
        return self._part(
            Kind.FILE_READ, facts | {"step_id": step_id, "file_path": self._inside(path)}
        )

    # --- Commands, tests, logs --------------------------------------------------------------

    def record_command(
        self,
        step_id: str,
        command: CommandRun | Facts,
        *,
        command_id: str | None = None,
        is_test: bool = False,
        **facts: Any,
    ) -> str:
        """Record that a step ran a command; its id.

        `command` is a `CommandRun`, or what is known of one: `argv` or `script`, `exit_code`,
        `stdout`, `stderr`, `duration`, …
        """
        known: Any = command
        started = None
        if not isinstance(command, Mapping):
            known = command.model_dump(mode="json", exclude_defaults=True)
            if command.started_at is not None:
                started = int(command.started_at.timestamp() * 1e9)
        data = {"step_id": step_id, "command": known, "is_test": is_test, **facts}
        if command_id is not None:
            data["id"] = command_id
        return self._part(Kind.COMMAND, data, started)

    def record_test_outcomes(
        self,
        step_id: str,
        outcomes: Iterable[Facts],
        *,
        command_id: str | None = None,
        origin: str = "given",
    ) -> list[str]:
        """Record what tests of a step gave; their ids.

        Each outcome: `node_id`, `outcome`, and what `records.events.OutcomeData` has besides.
        Those read out of output (`parsed`) give way to what the plugin tells of the command.
        """
        about = _given(step_id=step_id, command_id=command_id, origin=origin)
        weak = origin == "parsed"
        return [self._part(Kind.TEST, about | dict(each), weak=weak) for each in outcomes]

    def record_log(
        self,
        message: str,
        *,
        level: str = "info",
        step_id: str | None = None,
        logger: str | None = None,
        data: Facts | None = None,
    ) -> str:
        """Record a message; its id."""
        facts = _given(message=message, level=level, step_id=step_id, logger=logger, data=data)
        return self._part(Kind.LOG, facts)

    # --- Within -----------------------------------------------------------------------------

    def _part(self, kind: Kind, facts: Facts, at: int | None = None, *, weak: bool = False) -> str:
        if not self._begun:
            self.begin()
        data = dict(facts)
        name = data.setdefault("id", new_id(at))
        if len(os.environ) not in self._seen_sizes:
            self._heed_environment()
        self._journal.write(kind, self.run_id, data, now=at, weak=weak)
        return str(name)

    def write(self, kind: Kind, data: dict[str, Any], now: int | None = None) -> None:
        """Write one event of the run as it is; `now` is its time in nanoseconds."""
        if len(os.environ) not in self._seen_sizes:
            self._heed_environment()
        self._journal.write(kind, self.run_id, data, now=now)

    def _heed_environment(self) -> None:
        """Mask from now on what has become a secret: programs load settings when they run."""
        self._seen_sizes.add(len(os.environ))
        if self.redactor is None:
            return
        redactor = shared_redactor(self.home)
        if redactor is not self.redactor:
            self.redactor, before = redactor, self._journal
            self._journal = shared_journal(self.journal_folder, redactor, self.text_limit)
            release_journal(before)

    def lose(self, error: Exception) -> None:
        """Count an event that could not be made; the first time it is said on stderr."""
        self._journal.lose(error, self.run_id)

    def _inside(self, path: str) -> Any:
        """The path relative to the workspace where it lies inside."""
        name = os.fspath(path)
        if self.workspace is not None and os.path.isabs(name):  # noqa: PTH117 - a plain string
            relative = os.path.relpath(name, self.workspace)
            if not relative.startswith(".."):
                name = relative
        return name.replace(os.sep, "/")

    def _complain(self, error: Exception) -> None:
        sys.stderr.write(f"repotrace: {error}. The program goes on.\n")


def _path(folder: Path | None) -> str | None:
    return None if folder is None else os.fspath(folder)


def _given(**facts: Any) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value is not None}
