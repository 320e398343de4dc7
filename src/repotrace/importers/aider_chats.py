"""The history of Aider's chats as text: where a chat begins, who said which lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from repotrace.errors import ImportFailed
from repotrace.importers.lines import LINE_LIMIT, Progress, opened

START = re.compile(rb"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
_MAY_START = b"# aider"
_CHUNK = 1 << 20
_LONGEST_QUOTE = 5_000
"""Lines of an output that Aider quoted as one text, so that only the first is marked."""
_CHAT_LIMIT = LINE_LIMIT
"""Bytes of a chat above which the rest of it is left out."""

TOKENS = re.compile(
    r"Tokens: (?P<sent>[\d.,kM]+) sent"
    r"(?:, (?P<write>[\d.,kM]+) cache write)?(?:, (?P<hit>[\d.,kM]+) cache hit)?"
    r"(?:, (?P<received>[\d.,kM]+) received)?\.?"
    r"(?: Cost: \$(?P<cost>[\d.,]+) (?:message|request|send))?"
)
RUNNING = ("/run ", "/test", "/git ", "!")
"""What the user says to have something run."""


_MARKS = ("####", ">")
"""How lines begin that may be the user's or Aider's own."""


class Block(NamedTuple):
    """A part of a chat."""

    kind: str
    """user, tool or text."""
    lines: list[str]

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines).strip("\n")


def chats(path: Path, progress: Progress) -> Iterator[tuple[str, list[str], int]]:
    """When each chat started, its lines, and how many were left out as too many."""
    started: str | None = None
    lines: list[str] = []
    size = left = 0
    with opened(path) as stream:
        try:
            for part in _parts(stream, progress):
                match = START.fullmatch(part) if part.startswith(b"# aider") else None
                if match is not None:
                    if started is not None:
                        yield started, lines, left
                    started, lines, size, left = match[1].decode(), [], 0, 0
                elif size < _CHAT_LIMIT:
                    size += len(part)
                    lines += part.decode(errors="replace").removesuffix("\n").split("\n")
                else:
                    left += part.count(b"\n") + (not part.endswith(b"\n"))
        except (OSError, EOFError, ValueError) as error:
            raise ImportFailed(f"{path} cannot be read further: {error}.") from error
    if started is not None:
        yield started, lines, left


def _parts(stream: IO[bytes], progress: Progress) -> Iterator[bytes]:
    """The lines of a history: those that may begin a chat alone, what is between them as one."""
    while chunk := stream.read(_CHUNK):
        chunk += stream.readline(LINE_LIMIT)
        progress(len(chunk))
        at = 0
        while at < len(chunk):
            begins = chunk.startswith(_MAY_START, at)
            if begins:
                end = chunk.find(b"\n", at) + 1 or len(chunk)
            else:
                end = chunk.find(b"\n" + _MAY_START, at) + 1 or len(chunk)
            yield chunk[at:end]
            at = end


def blocks_of(lines: Sequence[str]) -> list[Block]:
    """The parts of a chat, the output of a command that the user asked for as one of Aider's."""
    return list(_joined(list(_blocks(lines))))


def _blocks(lines: Sequence[str]) -> Iterator[Block]:
    """The parts of a chat. Whatever is marked neither as the user's nor as Aider's own is the
    model's."""
    block: Block | None = None
    at, end = 0, len(lines)
    while at < end:
        if block is not None and block.kind == "text":
            begin = at
            while at < end and not lines[at].startswith(_MARKS):
                at += 1
            if begin < at:
                block.lines.extend(lines[begin:at])
                continue
        kind, shown = _kind(lines, at, block)
        length = _quoted(lines, at) if kind == "tool" and not lines[at].endswith("  ") else 1
        if not (kind == "text" and not shown.strip() and (block is None or block.kind != "text")):
            if block is None or block.kind != kind:
                if block is not None:
                    yield block
                block = Block(kind, [])
            block.lines.append(shown)
            block.lines.extend(line.rstrip() for line in lines[at + 1 : at + length])
        at += length
    if block is not None:
        yield block


def _joined(blocks: Sequence[Block]) -> Iterator[Block]:
    """The blocks, the output of each command of the user as one of Aider's own."""
    output: Block | None = None
    for place, block in enumerate(blocks):
        following = blocks[place + 1].lines if place + 1 < len(blocks) else []
        is_answer = block.kind == "text" and any(TOKENS.match(line) for line in following)
        if output is not None and block.kind != "user" and not is_answer:
            output.lines.extend(block.lines)
            continue
        if output is not None and output.lines:
            yield output
        runs = block.kind == "user" and block.text.startswith(RUNNING)
        output = Block("tool", []) if runs else None
        yield block
    if output is not None and output.lines:
        yield output


def _kind(lines: Sequence[str], at: int, block: Block | None) -> tuple[str, str]:
    """What a line belongs to, and the line without its mark."""
    line = lines[at]
    marked = line.endswith("  ")
    if line.startswith("####") and marked:
        return "user", line[4:].strip()
    if line.startswith(">") and (marked or line == ">"):
        return "tool", line[1:].rstrip().removeprefix(" ")
    # The mark may be missing where Aider wrote several lines as one; a model quotes as well.
    if line.startswith("> ") and (block is None or block.kind != "text") and _quoted(lines, at) > 1:
        return "tool", line[2:].rstrip()
    return "text", line


def _quoted(lines: Sequence[str], at: int) -> int:
    """How many lines belong to a text that Aider quoted as one; they end with a marked one."""
    for place in range(at + 1, min(len(lines), at + _LONGEST_QUOTE)):
        if lines[place].startswith(("#### ", "> ")) and lines[place].endswith("  "):
            return place - at
        if lines[place].endswith("  "):
            return place - at + 1
    return 1
