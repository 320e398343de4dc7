"""What kind of failure it was, read from the way a command ended and from what it printed.

A signature is typed if it names the exception, the failing tests or the signal; only a typed one
lets a replay call a failure the same although the output differs.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Sequence
from functools import cache
from signal import SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV

from repotrace.normalize import normalize
from repotrace.records.command import CommandRun, Output, Places, Signature, Termination
from repotrace.testlogs import TestLog, parse
from repotrace.tracebacks import (
    Frame,
    Raised,
    go_panic,
    node_error,
    python_error,
    rust_compile_error,
    rust_panic,
)

_ENOUGH = 400_000
"""Bytes at each end of a stream that are looked at."""
_LONGEST_MESSAGE = 1_000

_READERS: tuple[Callable[[str], Raised | None], ...] = (
    python_error,
    node_error,
    rust_panic,
    go_panic,
    rust_compile_error,
)


def signature_of(run: CommandRun) -> Signature | None:
    """The signature of a failed `run`; None for one that succeeded or was interrupted."""
    match run.termination:
        case Termination.TIMEOUT:
            return Signature(kind="timeout")
        case Termination.SPAWN_ERROR:
            name = errno.errorcode.get(run.spawn_errno or 0)
            return Signature(kind="spawn_error", exception=name)
        case Termination.INTERRUPTED:
            return None
    if not run.failed:
        return None
    texts = [_text(run.stderr), _text(run.stdout)]
    return (
        _of_tests(run, texts) or _of_signal(run) or _of_error(run, texts) or _last_line(run, texts)
    )


def runner_log(run: CommandRun) -> TestLog | None:
    """What the test runner in `run` reports, of failures and of successes; None without one."""
    texts = [_text(run.stdout), _text(run.stderr)]
    logs = [log for text in (*texts, "\n".join(texts)) if (log := parse(text)) is not None]
    return next((log for log in logs if log.failed), logs[0] if logs else None)


def message_shape(message: str) -> str:
    """`message` with every number, address and numbered placeholder as `#`.

    `0.7 != 0.5` and `1 != -3` have one shape; digits inside a word, as in `int64`, stay.
    """
    return _shape().sub("#", message)


@cache
def _shape() -> re.Pattern[str]:
    return re.compile(
        r"(?<![A-Za-z0-9_])(?:"
        r"0x(?:ADDR\d*|[0-9a-fA-F]{1,16})(?![A-Za-z0-9_])"
        r"|[-+]?\d+(?:[.,_]\d+)*(?:[eE][-+]?\d+)?%?(?![A-Za-z0-9_])"
        r"|<(?:uuid|port|pid|temp)\d*>"
        r")"
    )


def _text(output: Output) -> str:
    """One stream, both ends of it if it is long."""
    data = output.data
    if len(data) > 2 * _ENOUGH:
        data = data[:_ENOUGH] + b"\n" + data[-_ENOUGH:]
    return data.decode("utf-8", "surrogateescape")


def _of_tests(run: CommandRun, texts: Sequence[str]) -> Signature | None:
    log = runner_log(run)
    if log is None or not log.failed:
        return None
    error = next((failure.error for failure in log.failures if failure.error), None)
    return Signature(
        kind=log.framework,
        exception=error.exception if error else None,
        message=_message(error, run.places) if error else None,
        frame=_frame(error.frames, run.places) if error else None,
        failing_tests=tuple(sorted({_normalized(name, run.places) for name in log.failed})),
        signal=run.signal,
    )


_CRASHES = (SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV)


def _of_signal(run: CommandRun) -> Signature | None:
    if run.termination is Termination.SIGNALED:
        return Signature(kind="signal", signal=run.signal)
    # A shell reports that what it ran has crashed as 128 + N.
    crashed = next((number for number in _CRASHES if run.exit_code == 128 + number), None)
    if run.script is None or crashed is None:
        return None
    return Signature(kind="signal", signal=int(crashed))


def _of_error(run: CommandRun, texts: Sequence[str]) -> Signature | None:
    for read in _READERS:
        for text in texts:
            error = read(_plain(text))
            if error is not None:
                return Signature(
                    kind=error.kind,
                    exception=error.exception,
                    message=_message(error, run.places),
                    frame=_frame(error.frames, run.places),
                )
    return None


def _last_line(run: CommandRun, texts: Sequence[str]) -> Signature | None:
    for text in texts:
        lines = _normalized(text[-4_000:], run.places).split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), None)
        if last is not None:
            return Signature(kind="last-line", message=last[:_LONGEST_MESSAGE])
    return None


def _message(error: Raised, places: Places) -> str | None:
    if not error.message:
        return None
    return _normalized(error.message, places)[:_LONGEST_MESSAGE]


def _normalized(text: str, places: Places) -> str:
    data = normalize(text.encode("utf-8", "surrogateescape"), places).data
    return data.decode("utf-8", "replace")


@cache
def _escapes() -> re.Pattern[str]:
    return re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\r(?=\n)")


def _plain(text: str) -> str:
    return _escapes().sub("", text) if "\x1b" in text or "\r" in text else text


_ELSEWHERE = ("site-packages/", "dist-packages/", "node_modules/", "/lib/python", "/.cargo/")


def _frame(frames: Sequence[Frame], places: Places) -> str | None:
    """The innermost frame inside the project, else the innermost of all."""
    named = [(_normalized(frame.path, places), frame.function) for frame in frames]
    if not named:
        return None
    ours = [frame for frame in named if _in_project(frame[0])]
    path, function = (ours or named)[-1]
    return f"{path}::{function}" if function else path


def _in_project(path: str) -> bool:
    if any(part in path for part in _ELSEWHERE):
        return False
    if path.startswith(("<cwd>", "<repository>")):
        return True
    return not path.startswith(("/", "<", "node:", "internal/"))
