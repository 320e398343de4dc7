"""Commands and test runs of a traced agent, with all that a report has of a command."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from repotrace.journal import new_id
from repotrace.sdk.children import child_environment
from repotrace.sdk.spans import Span

if TYPE_CHECKING:
    from repotrace.records.command import CommandRun, CommandSpec


_MARGIN = 128
"""Characters that the line about left out output may take."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command printed, as it was, and how it ended."""

    stdout: str
    stderr: str
    returncode: int
    """As a shell has it: 124 timed out, 127 not found, 128+N signal N."""
    run: CommandRun
    """What is recorded of it, without secrets."""

    @property
    def passed(self) -> bool:
        return self.returncode == 0

    @property
    def errors(self) -> str:
        """All that it printed, for the next attempt; empty if it passed."""
        return "" if self.passed else self.stdout + self.stderr

    def __str__(self) -> str:
        return self.stdout + self.stderr


def run_command(
    command: Sequence[str] | str,
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    input: bytes | str | None = None,  # noqa: A002 - as in `subprocess`
    name: str | None = None,
    reason: str | None = None,
    retry_of: object = None,
) -> CommandResult:
    """Run a command as a step, and wait for it; text goes to `/bin/sh`.

    It never raises for what the command does: a failure is an exit code. `env` is the whole
    environment (default: ours), `timeout` in seconds. In a coroutine call it by
    `await asyncio.to_thread(run_command, …)`. Raises RepoTraceError if `cwd` is no folder.
    """
    return _run(command, "command", cwd, env, timeout, input, name, reason, retry_of)


def run_tests(
    command: Sequence[str] | str,
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    name: str | None = None,
    reason: str | None = None,
    retry_of: object = None,
) -> CommandResult:
    """Run a test command as a step; the outcome of each test is kept with the files it ran on.

    pytest tells its outcomes itself, in whatever environment it runs; those of other runners are
    read out of their output. Otherwise as `run_command`.
    """
    return _run(command, "test", cwd, env, timeout, None, name, reason, retry_of)


def _run(
    command: Sequence[str] | str,
    kind: str,
    cwd: Path | str | None,
    env: Mapping[str, str] | None,
    timeout: float | None,
    given: bytes | str | None,
    name: str | None,
    reason: str | None,
    retry_of: object,
) -> CommandResult:
    from repotrace.readable import shell_line, shell_word
    from repotrace.records.command import CommandSpec

    command_id = new_id()
    line = command if isinstance(command, str) else " ".join(map(shell_word, command))
    span = Span(name or line, kind, line, reason, retry_of)
    with span:
        spec = CommandSpec(
            argv=() if isinstance(command, str) else tuple(command),
            script=command if isinstance(command, str) else None,
            cwd=_folder(cwd),
            env=child_environment(env, command_id=command_id),
            stdin=given.encode() if isinstance(given, str) else given,
            timeout=timeout,
        )
        result = _execute(spec, span)
        if result.run.failed:
            span.error(result.run.ending)
        span.output = result.run.stdout.text + result.run.stderr.text
        _record(span, result.run, command_id, is_test=kind == "test")
        if name is None:
            span.set(command=shell_line(result.run))
        return result


def _folder(cwd: Path | str | None) -> str:
    try:
        return os.path.abspath(cwd) if cwd else os.getcwd()  # noqa: PTH100, PTH109 - links kept
    except FileNotFoundError:  # it was removed below us
        return os.environ.get("PWD", os.curdir)


def _execute(spec: CommandSpec, span: Span) -> CommandResult:
    from repotrace.config import DEFAULT_OUTPUT_LIMIT
    from repotrace.redact import Redactor
    from repotrace.system.execution import execute
    from repotrace.system.plugin_environment import without_plugin

    seen: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    recorder = span._run.recorder if span._run else None
    redactor = recorder.redactor if recorder else None
    # With room for the line that says what was left out: nothing is cut twice.
    limit = recorder.text_limit - _MARGIN if recorder else DEFAULT_OUTPUT_LIMIT
    run = execute(
        spec,
        redactor=redactor or Redactor(key=os.urandom(32), variables=os.environ),
        limit=limit,
        on_output=lambda stream, data: seen[stream].append(data),
    )
    run = run.model_copy(update={"env": without_plugin(run.env)})
    stdout, stderr = (b"".join(seen[name]).decode("utf-8", "replace") for name in seen)
    return CommandResult(stdout, stderr, run.shell_code, run)


def _record(span: Span, run: CommandRun, command_id: str, *, is_test: bool) -> None:
    if span._run is None or span.id is None:
        return
    from repotrace.outcomes import outcomes_from_output

    recorder = span._run.recorder
    outcomes = outcomes_from_output(run)
    recorder.record_command(span.id, run, command_id=command_id, is_test=is_test or bool(outcomes))
    recorder.record_test_outcomes(span.id, outcomes, command_id=command_id, origin="parsed")
