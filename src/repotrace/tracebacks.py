"""What was raised and where, read from what interpreters and runtimes print.

The texts are as printed, nothing is normalised here.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Frame:
    """One place of a stack, without its line number."""

    path: str
    function: str | None = None


@dataclass(frozen=True, slots=True)
class Raised:
    """An error that ended a program or a test."""

    kind: str
    """`python`, `node`, `rust` or `go`."""
    exception: str | None
    """Its qualified name as printed; `panic` for Rust and Go."""
    message: str | None = None
    frames: tuple[Frame, ...] = ()
    """The innermost last."""


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last of all matches, None without any."""
    found = deque(pattern.finditer(text), maxlen=1)
    return found[0] if found else None


@cache
def _pattern(regex: str) -> re.Pattern[str]:
    return re.compile(regex, re.MULTILINE)


# --- Python

_HEADER = (
    r"^(?P<before>[^\n]{0,200}?)(?P<group>\+ )?(?:Exception Group )?"
    r"Traceback \(most recent call last\):[ \r]*$"
)
_FRAME = r'^  File "(?P<path>[^"\n]+)", line \d+(?:, in (?P<name>.+))?$'
_EXCEPTION = r"^(?P<type>[A-Za-z_][\w.<>]*)(?:: ?(?P<message>.*))?$"
_SYNTAX_ERROR = r"^(?P<type>SyntaxError|IndentationError|TabError): (?P<message>.*)$"
_MOST_HEADERS = 20


def python_error(text: str) -> Raised | None:
    """The error of the last traceback: of chained exceptions the one that ended the program.

    Of an exception group it is the group itself, its message with those of its members. Lines
    may all carry a prefix, as pytest's `INTERNALERROR> `.
    """
    if "Traceback (most recent call last):" in text:
        headers = list(deque(_pattern(_HEADER).finditer(text), maxlen=_MOST_HEADERS))
        for header in _by_weight(headers, text):
            found = _read_traceback(header, text)
            if found is not None:
                return found
    return _syntax_error(text)


def _by_weight(headers: Sequence[re.Match[str]], text: str) -> list[re.Match[str]]:
    """The last first; members of a group and what was raised while tidying up after all others."""
    in_group = any(header["group"] for header in headers)

    def weight(header: re.Match[str]) -> tuple[bool, int]:
        before = text[max(0, header.start() - 300) : header.start()].rstrip("\n")
        member = in_group and re.fullmatch(r" +\| +", header["before"])
        ignored = before.rpartition("\n")[2].startswith("Exception ignored ")
        return bool(member) or ignored, -header.start()

    return sorted(headers, key=weight)


def _read_traceback(header: re.Match[str], text: str) -> Raised | None:
    prefix = header["before"] + ("| " if header["group"] else "")
    frames: list[Frame] = []
    lines = (_without(prefix, line) for line in _lines_from(text, header.end() + 1))
    for line in lines:
        if line is None:
            return None
        frame = _pattern(_FRAME).match(line)
        if frame is not None:
            frames.append(Frame(frame["path"], frame["name"]))
        elif line and not line.startswith(" "):
            found = _pattern(_EXCEPTION).match(line)
            if found is None:
                return None
            message = (found["message"] or "").strip()
            if not message and found["message"] is not None:
                message = (next(lines, None) or "").strip()
            if header["group"]:
                message = "; ".join([message, *_members(text, header.end())])
            return Raised("python", found["type"], message or None, tuple(frames))
    return None


def _without(prefix: str, line: str) -> str | None:
    """`line` without `prefix`; None if it has another one."""
    line = line.rstrip("\r")
    if line.startswith(prefix):
        return line[len(prefix) :]
    return "" if line == prefix.rstrip() else None


def _members(text: str, start: int) -> list[str]:
    """Of an exception group the last line of each member's traceback."""
    found = re.compile(r"^ +\| (?P<error>[A-Za-z_][\w.]*(?:: .*)?)$", re.M).finditer(text, start)
    lines = [match["error"] for match in found]
    return [line for line in lines if not line.endswith("most recent call last):")][1:]


def _syntax_error(text: str) -> Raised | None:
    """Of the main file it is printed without a traceback's header."""
    last = last_match(_pattern(_SYNTAX_ERROR), text)
    if last is None:
        return None
    before = text[max(0, last.start() - 2_000) : last.start()].split("\n")[-12:]
    frames = [match for line in before if (match := _pattern(_FRAME).match(line))]
    if not frames:
        return None
    return Raised("python", last["type"], last["message"], (Frame(frames[-1]["path"]),))


def _lines_from(text: str, start: int, most: int = 100_000) -> Iterable[str]:
    """The lines of `text` from offset `start` on, lazily."""
    for _ in range(most):
        end = text.find("\n", start)
        if end < 0:
            yield text[start:]
            return
        yield text[start:end]
        start = end + 1


# --- JavaScript

_NODE_FRAME = (
    r"^ +at (?:async )?(?:(?P<name>[^(\n]+?) (?:\[as [^]\n]*\] )?\()?(?:file://)?"
    r"(?P<path>[^()\n]+?):\d+:\d+\)?$"
)
_NODE_ERROR = (
    r"^(?:error: )?(?:Uncaught )?(?:\(in promise\) )?"
    r"(?P<type>[A-Za-z_$][\w$.]*(?:Error|Exception)|Error)(?: \[\w+\])?(?:: (?P<message>.*))?$"
)
_CLASS_ERROR = r"^(?P<type>[A-Za-z_$][\w$.]*): (?P<message>.*)$"
# Of an error with a cause, Node leaves the frames out that both share.
_STACK = re.compile(r" +(?:at |\.\.\. \d+ lines matching cause stack trace)")
_MESSAGE_LINES = 60


def node_error(text: str) -> Raised | None:
    """The last error with a stack in the manner of V8; not the causes indented below it."""
    if "\n    at " not in text:
        return None
    lines = text.split("\n")
    for number in range(len(lines) - 1, 0, -1):
        starts = lines[number].startswith("    at ") and not _STACK.match(lines[number - 1])
        if starts and (found := _node_headline(lines, number)) is not None:
            frames = node_frames(lines[number:])
            return Raised("node", found["type"], (found["message"] or "").strip() or None, frames)
    return None


def _node_headline(lines: Sequence[str], stack: int) -> re.Match[str] | None:
    """The line that names the error: above the stack, and above a message of several lines."""
    for number in range(stack - 1, max(-1, stack - _MESSAGE_LINES), -1):
        line = lines[number].rstrip("\r")
        found = _pattern(_NODE_ERROR).match(line)
        if found is not None:
            return found
        # Node prints the source line, a caret, an empty line, then the error of whatever class.
        below_caret = number > 1 and not lines[number - 1] and lines[number - 2].strip(" ^") == ""
        if below_caret and "^" in lines[number - 2]:
            return _pattern(_CLASS_ERROR).match(line)
    return None


def node_frames(lines: Iterable[str]) -> tuple[Frame, ...]:
    """The frames at the beginning of `lines`, reversed: V8 prints the innermost first."""
    frames: list[Frame] = []
    for line in lines:
        if not _STACK.match(line):
            break
        match = _pattern(_NODE_FRAME).match(line.rstrip("\r").removesuffix(" {"))
        if match is not None:
            frames.append(Frame(match["path"], match["name"]))
    return tuple(reversed(frames))


# --- Rust

_PANIC = (
    r"^thread '(?P<thread>[^'\n]*)'(?: \(\d+\))? panicked at "
    r"(?:'(?P<old>(?:[^\n]|\n(?!thread '|note: )){0,2000}?)', )?(?P<path>[^:\n]+):\d+(?::\d+)?:?$"
)
_RUSTC = r"^error(?:\[(?P<code>E\d+)\])?: (?P<message>.*)\n +--> (?P<path>[^:\n]+):"
_AFTER_MESSAGE = ("note: ", "stack backtrace:", "thread '", "----")


def rust_panic(text: str) -> Raised | None:
    """The first panic of the main thread, else of any; new and old format."""
    panics = list(_pattern(_PANIC).finditer(text)) if "panicked at " in text else []
    if not panics:
        return None
    panic = next((panic for panic in panics if panic["thread"] == "main"), panics[0])
    message = panic["old"]
    if message is None:
        kept: list[str] = []
        for line in _lines_from(text, panic.end() + 1, most=10):
            if line.startswith(_AFTER_MESSAGE) or not line.strip():
                break
            kept.append(line.rstrip("\r"))
        message = "\n".join(kept)
    return Raised("rust", "panic", message or None, (Frame(panic["path"]),))


def rust_compile_error(text: str) -> Raised | None:
    """The first error of rustc."""
    error = _pattern(_RUSTC).search(text)
    if error is None:
        return None
    name = f"error[{error['code']}]" if error["code"] else "error"
    return Raised("rust", name, error["message"], (Frame(error["path"]),))


# --- Go

_GO_PANIC = r"^(?P<type>panic|fatal error): (?P<message>.*)$"
_GO_FRAME = r"^(?P<name>\S+)\(.*\)\n\t(?P<path>[^\n]+?\.(?:go|s)):\d+"


def go_panic(text: str) -> Raised | None:
    """The first panic or fatal error, with the goroutine that is printed first."""
    panic = _pattern(_GO_PANIC).search(text)
    if panic is None:
        return None
    start = text.find("\ngoroutine ", panic.end())
    if start < 0:
        return None
    end = text.find("\n\n", start)
    matches = _pattern(_GO_FRAME).finditer(text, start, end if end >= 0 else len(text))
    frames = [Frame(match["path"], match["name"]) for match in matches if match["name"] != "panic"]
    message = re.sub(r" \[recovered.*$", "", panic["message"])
    return Raised("go", panic["type"], message or None, tuple(reversed(frames)))
