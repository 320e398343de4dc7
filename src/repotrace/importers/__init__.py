"""Transcripts of agents become events: one module per format, found by content.

An importer reads its transcript and nothing else: no clock, no environment, no other file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Protocol

from repotrace.errors import ImportFailed
from repotrace.importers.lines import Progress, opened
from repotrace.records.events import Event

__all__ = [
    "ENTRY_POINTS",
    "FORMATS",
    "HEAD",
    "Importer",
    "Progress",
    "detect",
    "file_of",
    "importer",
    "is_transcript",
    "names",
]

HEAD = 64 << 10
"""Bytes of a file that `sniff` gets to see."""

ENTRY_POINTS = "repotrace.importers"
"""Entry points of this group add importers; each names a module, or an object like one."""

FORMATS = {
    "claude-code": "repotrace.importers.claude_code",
    "codex": "repotrace.importers.codex",
    "mini-swe-agent": "repotrace.importers.mini_swe_agent",
    "swe-agent": "repotrace.importers.swe_agent",
    "gemini-cli": "repotrace.importers.gemini_cli",
    "aider": "repotrace.importers.aider",
    "opencode": "repotrace.importers.opencode",
    "cline": "repotrace.importers.cline",
    "inspect": "repotrace.importers.inspect_ai",
    "atif": "repotrace.importers.atif",
    "openhands": "repotrace.importers.openhands",
    "wire": "repotrace.importers.wire",
}
"""Where each format lives, in the order in which they are asked."""


class Importer(Protocol):
    """What the module of a format offers.

    It may have `main(path)` besides, which gives the path that stands for the session of a path,
    where a session has several files. Where a file has several sessions, a path below it may name
    one of them. `written(path)` tells when a session was changed last, in seconds since 1970, and
    its bytes; None where the file system tells that of the path.
    """

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of the module
        """The format; the `source` of its runs."""
        ...

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether this is a transcript of the format. `head` is its beginning, empty for a
        folder."""
        ...

    def read(self, path: Path, *, progress: Progress = ...) -> Iterator[Event]:
        """The events of the transcript, nearly in the order of time.

        Raises ImportFailed, at once or later, if it is not what it seems. Damage that can be
        passed over is counted in `attributes.import` of the run, see `building.Builder`.
        """
        ...


def names() -> list[str]:
    """All formats, those of entry points behind our own."""
    return [*FORMATS, *(name for name in _others() if name not in FORMATS)]


def importer(name: str) -> Importer:
    """The importer of a format. Raises ImportFailed if there is none."""
    if name in FORMATS:
        module: Importer = import_module(FORMATS[name])
        return module
    others = _others()
    if name not in others:
        raise ImportFailed(
            f"No importer is called {name!r}.", hint=f"There are: {', '.join(names())}"
        )
    found: Importer = others[name]()
    return found


def detect(path: Path) -> Importer:
    """The importer that knows the transcript by its content. Raises ImportFailed for none."""
    head = head_of(path)
    for name in names():
        found = importer(name)
        if found.sniff(head, path):
            return found
    raise ImportFailed(
        f"{path} is no transcript that we know.",
        hint=f"Say what it is with --format; known are: {', '.join(names())}",
    )


def is_transcript(path: Path) -> bool:
    """Whether a format knows the file or folder."""
    try:
        detect(path)
    except ImportFailed:
        return False
    return True


def file_of(path: Path) -> Path:
    """The file or folder that holds what `path` names: `path`, or the file above it that has
    several sessions."""
    return path.parent if not path.exists() and path.parent.is_file() else path


def head_of(path: Path) -> bytes:
    """The beginning of a file, unpacked; empty for a folder. Raises ImportFailed."""
    if path.is_dir():
        return b""
    with opened(file_of(path)) as stream:
        try:
            return stream.read(HEAD)
        except (OSError, EOFError, ValueError) as error:
            raise ImportFailed(f"{path} cannot be read: {error}.") from error


def _others() -> dict[str, Callable[[], Importer]]:
    from importlib.metadata import entry_points

    return {point.name: point.load for point in entry_points(group=ENTRY_POINTS)}
