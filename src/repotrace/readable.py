"""Captured text made readable: what a person would have seen, and nothing that acts.

Standard library only. The result is for people; comparing is the business of `normalize`.
"""

from __future__ import annotations

import re
import shlex
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING

from repotrace.records.base import printable
from repotrace.records.command import CommandRun

if TYPE_CHECKING:
    from datetime import datetime

_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A)}
_PICTURES[0x7F] = "\u2421"
_INVISIBLE = (
    *range(0x80, 0xA0),  # C1 controls
    0x00AD, 0x061C, 0x180E, *range(0x200B, 0x2010), *range(0x2028, 0x202F),
    *range(0x2060, 0x2070), 0xFEFF, *range(0xFFF9, 0xFFFC), 0xFFFE, 0xFFFF,
)  # fmt: skip
_VISIBLE = _PICTURES | {code: f"\\u{code:04x}" for code in _INVISIBLE}
_KEPT_INSIDE_EMOJI = "\u200d"
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


@cache
def _sequences() -> re.Pattern[str]:
    return re.compile(
        "\x1b\\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement
        "|\x9b[0-?]*[ -/]*[@-~]"
        "|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)"  # OSC: links, titles
        "|\x1b[PX^_][^\x1b]*\x1b\\\\"  # DCS, SOS, PM, APC
        "|\x1b[ -/]*[0-Z\\\\^-~]"  # two characters: charsets, reset
    )


def without_escapes(text: str) -> str:
    """`text` without terminal escape sequences, also those that removing another one makes."""
    while "\x1b" in text or "\x9b" in text:
        stripped = _sequences().sub("", text)
        if stripped == text:
            break
        text = stripped
    return text


def folded(text: str) -> str:
    """`text` with `\\n` line ends, each line as its last carriage return left it."""
    if "\r" not in text:
        return text
    text = re.sub("\r+\n", "\n", text)
    return "\n".join(_last_state(line) if "\r" in line else line for line in text.split("\n"))


def _last_state(line: str) -> str:
    states = [state for state in line.split("\r") if state]
    return states[-1] if states else ""


def visible(text: str) -> str:
    """`text` with its control, direction and invisible characters as something one can see.

    Line ends and tabs stay.
    """
    text = printable(text)
    if _KEPT_INSIDE_EMOJI in text:
        parts = re.split("(?<=[^\x00-\u2fff])\u200d(?=[^\x00-\u1fff])", text)
        return _KEPT_INSIDE_EMOJI.join(part.translate(_VISIBLE) for part in parts)
    return text.translate(_VISIBLE)


def readable(text: str) -> str:
    """Output of a command as a person would have seen it."""
    return visible(folded(without_escapes(text)))


def one_line(text: str, limit: int | None = None) -> str:
    """`text` on one readable line of at most `limit` characters."""
    line = " ".join(readable(text).split())
    return line if limit is None else truncate(line, limit)


def truncate(text: str, limit: int = 120) -> str:
    """`text`, or its first `limit` - 1 characters and `…` where it is longer."""
    return text if len(text) <= limit else f"{text[: max(limit - 1, 0)]}…"


def shell_line(run: CommandRun) -> str:
    """The command of `run` for pasting into a POSIX shell (bash or zsh where bytes need it)."""
    if run.script is not None:
        script = printable(run.script)
        return script if visible(script) == script else f"/bin/sh -c {shell_word(run.script)}"
    return " ".join(shell_word(word) for word in run.argv)


def shell_word(word: str) -> str:
    """A word as a POSIX shell reads it, in characters that cannot act when they are pasted."""
    raw = word.encode("utf-8", "surrogateescape" if _is_encodable(word) else "backslashreplace")
    if visible(word) == word and raw.decode("utf-8", "replace") == word:
        # Python within quotes is common, and nobody can read '"'"'.
        plain = "'" in word and not set(word) & set('"$`\\!')
        return f'"{word}"' if plain else shlex.quote(word)
    return "$'" + "".join(_ansi_c(byte) for byte in raw) + "'"


def _is_encodable(word: str) -> bool:
    try:
        word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _ansi_c(byte: int) -> str:
    character = chr(byte)
    if character in "'\\":
        return "\\" + character
    return character if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"


def seconds(value: float) -> str:
    """A duration for people: `4 ms`, `0.03 s`, `12.4 s`, `3 min 20 s`, `23 h 57 min`."""
    if not isfinite(value):
        return f"{value} s"
    if value < 0.01:
        return f"{value * 1000:.0f} ms"
    if value < 10:
        return f"{value:.2f} s"
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(int(value), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def age(then: datetime, now: datetime) -> str:
    """How long ago, in the largest unit that fits: `3 h`, `12 min`, `0 s`."""
    past = max(0, int((now - then).total_seconds()))
    for length, unit in _UNITS:
        if past >= length:
            return f"{past // length} {unit}"
    return "0 s"


def size(count: int) -> str:
    """A number of bytes for people: `1 byte`, `340 bytes`, `12.5 kB`, `3.2 MB`."""
    if count < 1000:
        return f"{count} byte" if count == 1 else f"{count} bytes"
    if count < 1_000_000:
        return f"{count / 1000:.1f} kB"
    return f"{count / 1_000_000:.1f} MB"


def reached_words(steps: int, files_modified: int) -> str:
    """How far a run had come, in words."""
    of_steps = "1 step" if steps == 1 else f"{steps} steps"
    of_files = "1 file" if files_modified == 1 else f"{files_modified} files"
    return f"{of_steps}, {of_files} modified"
