"""What kind of failure it was, read from the way a command ended and from what it printed.

A signature is typed if it names the exception, the failing tests or the signal; only a typed one
lets a replay call a failure the same although the output differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

from repotrace.normalize import normalize
from repotrace.records.command import CommandRun, Signature, Termination
from repotrace.testlogs import last_match, parse

_ENOUGH = 400_000
"""Bytes at each end of a stream that are looked at."""


def signature_of(run: CommandRun) -> Signature | None:
    """The signature of a failed `run`; None for one that succeeded or was interrupted."""
    match run.termination:
        case Termination.TIMEOUT:
            return Signature(kind="timeout")
        case Termination.SPAWN_ERROR:
            return Signature(kind="spawn_error", message=run.error)
        case Termination.INTERRUPTED:
            return None
    if not run.failed:
        return None
    texts = [_text(run, "stderr"), _text(run, "stdout")]
    return (
        _of_tests(texts)
        or _of_signal(run)
        or _first(_python, texts)
        or _first(_node, texts)
        or _first(_rust, texts)
        or _first(_go_panic, texts)
        or _last_line(texts)
    )


def _text(run: CommandRun, stream: str) -> str:
    """One stream, normalised, both ends of it if it is long."""
    output = run.stdout if stream == "stdout" else run.stderr
    data = output.data
    if len(data) > 2 * _ENOUGH:
        data = data[:_ENOUGH] + b"\n" + data[-_ENOUGH:]
    return normalize(data, run.places).data.decode("utf-8", "replace")


def _first(read: Callable[[str], Signature | None], texts: Sequence[str]) -> Signature | None:
    for text in texts:
        found = read(text)
        if found is not None:
            return found
    return None


def _of_signal(run: CommandRun) -> Signature | None:
    if run.termination is not Termination.SIGNALED:
        return None
    return Signature(kind="signal", signal=run.signal)


def _of_tests(texts: Sequence[str]) -> Signature | None:
    for text in (*reversed(texts), "\n".join(texts)):
        log = parse(text)
        if log is not None:
            exception, message = _split_error(log.first_error or "")
            return Signature(
                kind=log.framework,
                exception=exception,
                message=message,
                failing_tests=log.failed,
            )
    return None


def _split_error(line: str) -> tuple[str | None, str | None]:
    """`KeyError: 'x'` as exception and message; a bare message has no exception."""
    match = _patterns()["error"].match(line)
    if match is None:
        return None, line or None
    return match["type"], (match["message"] or "").strip() or None


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    return {
        "error": re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*))?$"),
        "traceback": re.compile(
            r"^(?P<prefix>(?:INTERNALERROR> |[ |+]*)?)(?:\+ Exception Group )?"
            r"Traceback \(most recent call last\):$",
            re.M,
        ),
        "frame": re.compile(r'^ *File "(?P<path>[^"\n]+)", line \d+(?:, in (?P<name>.+))?$'),
        "lone": re.compile(r'^ +File "(?P<path>[^"\n]+)", line \d+$', re.M),
        "exception": re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*)|:)?$"),
        "node": re.compile(
            r"^(?:Uncaught )?(?P<type>[A-Z][\w.]*(?:Error|Exception)|Error)(?: \[(?P<code>\w+)\])?"
            r": (?P<message>.*)\n(?P<frames>(?:.*\n){0,8}?(?: +at .*(?:\n|\Z))+)",
            re.M,
        ),
        "node_frame": re.compile(
            r"^ +at (?:(?P<name>[^(\n]+?) \()?(?:file://)?(?P<path>[^()\n]+?):\d+:\d+\)?$", re.M
        ),
        "rust": re.compile(
            r"^thread '(?P<thread>[^'\n]*)'(?: \([^)\n]*\))? panicked at "
            r"(?:'(?P<old>.*)', )?(?P<path>[^:\n]+):\d+(?::\d+)?(?::\n(?P<new>.*))?$",
            re.M,
        ),
        "rustc": re.compile(
            r"^error(?:\[(?P<code>E\d+)\])?: (?P<message>.*)\n +--> (?P<path>[^:\n]+):", re.M
        ),
        "go": re.compile(r"^panic: (?P<message>.*)$", re.M),
        "go_frame": re.compile(r"^(?P<name>[\w./*()]+)\(.*\)\n\t(?P<path>[^:\n]+):\d+", re.M),
    }


_ELSEWHERE = (
    "site-packages",
    "dist-packages",
    "<frozen",
    "<python>",
    "node:",
    "/lib/python",
    "/rustc/",
)


def _frame(frames: Sequence[tuple[str, str | None]]) -> str | None:
    """The innermost frame (the last) inside the project, else the innermost of all."""
    if not frames:
        return None
    ours = [frame for frame in frames if not any(mark in frame[0] for mark in _ELSEWHERE)]
    path, name = (ours or frames)[-1]
    return f"{path}::{name}" if name else path


def _python(text: str) -> Signature | None:
    """The last traceback: of chained exceptions that is the one that ended the program."""
    last = last_match(_patterns()["traceback"], text)
    if last is None:
        return _syntax_error(text)
    prefix = last["prefix"]
    frames: list[tuple[str, str | None]] = []
    for line in text[last.end() + 1 :].split("\n"):
        if prefix and not line.startswith(prefix.rstrip() or prefix):
            break
        bare = line[len(prefix) :] if prefix else line
        frame = _patterns()["frame"].match(bare)
        if frame is not None and bare.startswith("  "):
            frames.append((frame["path"], frame["name"]))
            continue
        if not bare or bare.startswith((" ", "|", "+")):
            continue
        found = _patterns()["exception"].match(bare)
        if found is None:
            continue
        return _python_signature(found, frames)
    return None


def _python_signature(found: re.Match[str], frames: Sequence[tuple[str, str | None]]) -> Signature:
    return Signature(
        kind="python",
        exception=found["type"],
        message=(found["message"] or "").strip() or None,
        frame=_frame(frames),
    )


def _syntax_error(text: str) -> Signature | None:
    """A SyntaxError of the main file comes without the heading of a traceback."""
    for frame in _patterns()["lone"].finditer(text):
        rest = text[frame.end() : frame.end() + 2_000]
        found = re.search(
            r"^(?P<type>\w*(?:SyntaxError|IndentationError|TabError)): (?P<message>.*)$", rest, re.M
        )
        if found is not None:
            return _python_signature(found, [(frame["path"], None)])
    return None


def _node(text: str) -> Signature | None:
    last = last_match(_patterns()["node"], text)
    if last is None:
        return None
    matches = _patterns()["node_frame"].finditer(last["frames"])
    # Node prints the innermost first.
    frames = [(match["path"], match["name"]) for match in matches][::-1]
    return Signature(
        kind="node",
        exception=last["type"],
        message=last["message"].strip() or None,
        frame=_frame(frames),
    )


def _rust(text: str) -> Signature | None:
    panic = _patterns()["rust"].search(text)
    if panic is not None:
        message = panic["old"] if panic["old"] is not None else panic["new"]
        return Signature(kind="rust", exception="panic", message=message, frame=panic["path"])
    error = _patterns()["rustc"].search(text)
    if error is None:
        return None
    return Signature(
        kind="rust",
        exception=f"error[{error['code']}]" if error["code"] else "error",
        message=error["message"],
        frame=error["path"],
    )


def _go_panic(text: str) -> Signature | None:
    panic = _patterns()["go"].search(text)
    if panic is None or "goroutine " not in text:
        return None
    matches = _patterns()["go_frame"].finditer(text, panic.end())
    frames = [(match["path"], match["name"]) for match in matches][::-1]
    return Signature(kind="go", exception="panic", message=panic["message"], frame=_frame(frames))


def _last_line(texts: Sequence[str]) -> Signature | None:
    for text in texts:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if lines:
            return Signature(kind="last-line", message=lines[-1][:300])
    return None


@cache
def _shapes() -> list[tuple[re.Pattern[str], str]]:
    return [
        (re.compile(r"0x[0-9a-fA-F]+"), "#"),
        (re.compile(r"[-+]?\d+(?:[.,_]\d+)*(?:[eE][-+]?\d+)?"), "#"),
        (re.compile(r"#+(?:[.:/-]#+)*"), "#"),
    ]


def message_shape(message: str) -> str:
    """`message` with every number as `#`: `0.7 != 0.5` and `1 != 0` have one shape."""
    for pattern, mark in _shapes():
        message = pattern.sub(mark, message)
    return message
