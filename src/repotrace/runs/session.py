"""Stepping through a recorded run, by program or on a plain console. Nothing is executed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TextIO

from repotrace.readable import one_line, visible
from repotrace.records.run import (
    ExecutionStep,
    ExecutionTrace,
    FileOperation,
    LLMInteraction,
    LogEntry,
)
from repotrace.runs.step_text import (
    by_step,
    call_line,
    change_line,
    diff_lines,
    hint,
    print_lines,
    prompt_lines,
    response_lines,
    step_head,
    step_line,
    titled,
)

_DIFF_SHOWN = 40
"""Lines of a file's diff that are shown with its step; `f` shows all."""
_DIGITS = 12
"""Of the longest number that is looked for."""

_HELP = (
    ("n", "next step; so does an empty line"),
    ("p", "previous step"),
    ("j N", "jump to step N"),
    ("l", "list all steps"),
    ("f [PATH]", "what this step changed in files, or in one, whole"),
    ("c", "what went into this step and what came out, whole"),
    ("m", "prompts and responses of this step's model calls, whole"),
    ("h", "this list"),
    ("q", "quit"),
)


class ReplaySession:
    """Steps forward and back through a trace. It begins at the first step."""

    def __init__(self, trace: ExecutionTrace) -> None:
        self.trace = trace
        self.ops_by_step: dict[str, list[FileOperation]] = by_step(trace.file_operations)
        """File operations by the id of their step."""
        self.llm_by_step: dict[str, list[LLMInteraction]] = by_step(trace.llm_interactions)
        """Model calls by the id of their step."""
        self.logs_by_step: dict[str, list[LogEntry]] = by_step(trace.logs)
        """Log entries by the id of their step."""
        self._steps = list(trace.steps)
        self._index = 0

    # --- Where we are -----------------------------------------------------------------------

    @property
    def current_step(self) -> ExecutionStep | None:
        """None for a trace without steps."""
        return self._steps[self._index] if self._steps else None

    @property
    def current_position(self) -> int:
        """Counted from 1."""
        return self._index + 1

    @property
    def total_steps(self) -> int:
        return len(self._steps)

    def next(self) -> ExecutionStep | None:
        """One step forward; the last step stays. The step that is current then."""
        self._index = max(min(self._index + 1, len(self._steps) - 1), 0)
        return self.current_step

    def previous(self) -> ExecutionStep | None:
        """One step back; the first step stays. The step that is current then."""
        self._index = max(self._index - 1, 0)
        return self.current_step

    def jump(self, step_number: int) -> ExecutionStep | None:
        """To the step of this number. None if there is none; nothing changes then."""
        for index, step in enumerate(self._steps):
            if step.step_number == step_number:
                self._index = index
                return step
        return None

    # --- What is there ----------------------------------------------------------------------

    def get_step_file_ops(self, step: ExecutionStep) -> list[FileOperation]:
        """What the step did to files, in order of time."""
        return self.ops_by_step.get(step.id, [])

    def get_step_llm_calls(self, step: ExecutionStep) -> list[LLMInteraction]:
        """The model calls of the step, in order of time."""
        return self.llm_by_step.get(step.id, [])

    def get_step_logs(self, step: ExecutionStep) -> list[LogEntry]:
        """What was logged during the step, in order of time."""
        return self.logs_by_step.get(step.id, [])

    def list_steps(self) -> list[ExecutionStep]:
        """All steps, by number."""
        return list(self._steps)

    # --- For people -------------------------------------------------------------------------

    def show_step_context(self, step: ExecutionStep, stdout: TextIO | None = None) -> None:
        """Print all that went into the step: its input, and the reason for it."""
        texts = [*titled("input", step.input_context), *titled("reason", step.reason)]
        print_lines(stdout or sys.stdout, texts or ["no context was recorded"])

    def show_llm_prompt(self, step: ExecutionStep, stdout: TextIO | None = None) -> None:
        """Print what was sent to the model, for each call of the step."""
        self._show_calls(step, stdout, prompt_lines)

    def show_llm_response(self, step: ExecutionStep, stdout: TextIO | None = None) -> None:
        """Print what the model answered, for each call of the step."""
        self._show_calls(step, stdout, response_lines)

    def show_file_diff(
        self, step: ExecutionStep, file_path: str, stdout: TextIO | None = None
    ) -> None:
        """Print what the step changed in a file, as a unified diff."""
        found = [item for item in self.get_step_file_ops(step) if item.file_path == file_path]
        lines = [line for operation in found for line in diff_lines(operation)]
        nothing = f"step {step.step_number} did not change {visible(file_path)}"
        print_lines(stdout or sys.stdout, lines or [nothing])

    def _show_calls(
        self,
        step: ExecutionStep,
        stdout: TextIO | None,
        shown: Callable[[LLMInteraction], Iterator[str]],
    ) -> None:
        calls = self.get_step_llm_calls(step)
        out = stdout or sys.stdout
        if not calls:
            print_lines(out, [f"step {step.step_number} called no model"])
        for number, call in enumerate(calls, start=1):
            if len(calls) > 1:
                print_lines(out, [f"call {number} of {len(calls)}: {call_line(call)}"])
            print_lines(out, shown(call))

    def interactive_mode(
        self,
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
        *,
        show_llm: bool = False,
        show_files: bool = True,
    ) -> None:
        """Show the current step, then do what is typed, until `q` or the end of the input.

        `n`, `p`, `j N`, `l`, `f`, `c`, `m`, `q`; `h` and any other word bring up what they mean.
        Steps are shown with the prompts and responses of their model calls only with `show_llm`,
        without the diffs of their files if not `show_files`. stdin and stdout unless given.
        """
        out = stdout or sys.stdout
        if not self._steps:
            print_lines(out, ["the run has no steps"])
            return
        console = _Console(self, out, show_llm=show_llm, show_files=show_files)
        console.show()
        while (line := _read(stdin or sys.stdin, console.ask)) is not None:
            word, _, rest = line.strip().partition(" ")
            if word.lower() in ("q", "quit", "exit"):
                return
            console.answer(word.lower(), rest.strip())
        print_lines(out, [""])


def _read(stdin: TextIO, ask: Callable[[], None]) -> str | None:
    """The next line; None at the end of the input, and for ^C."""
    ask()
    try:
        return stdin.readline() or None
    except KeyboardInterrupt:
        return None


class _Console:
    """What a console says to each command."""

    def __init__(
        self, session: ReplaySession, stdout: TextIO, *, show_llm: bool, show_files: bool
    ) -> None:
        self._session = session
        self._stdout = stdout
        self._show_llm = show_llm
        self._show_files = show_files

    @property
    def _step(self) -> ExecutionStep:
        step = self._session.current_step
        assert step is not None
        return step

    def ask(self) -> None:
        """Write the prompt."""
        session = self._session
        at = f"[{session.current_position}/{session.total_steps}]"
        self._stdout.write(f"{at} n p j l f c m h q> ")
        self._stdout.flush()

    def answer(self, word: str, rest: str) -> None:
        """Do one command."""
        match word:
            case "" | "n" | "next":
                self._move(self._session.next, "this is the last step")
            case "p" | "prev" | "previous":
                self._move(self._session.previous, "this is the first step")
            case "j" | "jump":
                self._jump(rest)
            case "l" | "list":
                self._list()
            case "f" | "files":
                self._files(rest)
            case "c" | "context":
                self._session.show_step_context(self._step, self._stdout)
                self._say(titled("output", self._step.output_result))
                self._say(titled("error", self._step.error))
            case "m" | "model":
                self._calls()
            case "h" | "help" | "?":
                self._help()
            case _:
                self._say([f"{one_line(word, 30)} is none of these:"])
                self._help()

    def _help(self) -> None:
        self._say(f"  {command:<9} {meaning}" for command, meaning in _HELP)

    def show(self) -> None:
        """The current step."""
        session, step = self._session, self._step
        self._say([step_head(step)])
        if step.description:
            self._say([f"  {one_line(step.description)}"])
        for title, text in (
            ("reason", step.reason),
            ("input", step.input_context),
            ("output", step.output_result),
            ("error", step.error),
        ):
            self._say(hint(title, text))
        for operation in session.get_step_file_ops(step):
            self._say([f"  {change_line(operation)}"])
            if self._show_files:
                self._say(_head(diff_lines(operation)))
        for call in session.get_step_llm_calls(step):
            self._say([f"  model call: {call_line(call)}"])
        if self._show_llm and session.get_step_llm_calls(step):
            self._calls()
        for entry in session.get_step_logs(step):
            self._say([f"  {one_line(entry.level)}: {one_line(entry.message)}"])

    def _move(self, step: Callable[[], object], at_end: str) -> None:
        before = self._session.current_position
        step()
        if self._session.current_position == before:
            self._say([at_end])
        else:
            self.show()

    def _jump(self, rest: str) -> None:
        if not rest.isdecimal():
            self._say(["say a number: j 3"])
        elif len(rest) > _DIGITS or self._session.jump(int(rest)) is None:
            numbers = [step.step_number for step in self._session.list_steps()]
            ends = f"they go from {numbers[0]} to {numbers[-1]}"
            self._say([f"there is no step {one_line(rest, 20)}; {ends}"])
        else:
            self.show()

    def _list(self) -> None:
        here = self._session.current_position
        for position, step in enumerate(self._session.list_steps(), start=1):
            self._say([f"{'>' if position == here else ' '}{step_line(step)}"])

    def _files(self, path: str) -> None:
        step = self._step
        if path:
            self._session.show_file_diff(step, path, self._stdout)
            return
        operations = self._session.get_step_file_ops(step)
        for operation in operations:
            self._say([change_line(operation)], diff_lines(operation))
        if not operations:
            self._say([f"step {step.step_number} changed no files"])

    def _calls(self) -> None:
        calls = self._session.get_step_llm_calls(self._step)
        self._session.show_llm_prompt(self._step, self._stdout)
        if calls:
            self._session.show_llm_response(self._step, self._stdout)

    def _say(self, *texts: Iterable[str]) -> None:
        print_lines(self._stdout, *texts)


def _head(diff: Iterator[str]) -> Iterator[str]:
    """The first lines of a diff, set in, and how many more there are."""
    yield from (f"    {line}" for line in islice(diff, _DIFF_SHOWN))
    more = sum(1 for _ in diff)
    if more:
        yield f"    … {more} more; f shows all"
