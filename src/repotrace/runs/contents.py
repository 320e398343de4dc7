"""Contents of files that a program gives as text."""

from __future__ import annotations

import os

_COMPARABLE = 25_000_000
"""Product of the numbers of lines up to which two texts are compared in a moment."""


def bytes_of(text: str) -> bytes:
    """The bytes that `text` stands for; half characters that stand for no byte are kept as well."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def line_counts(before: str, after: str) -> dict[str, int]:
    """Lines added and removed, as a diff counts them; nothing for texts too long to compare."""
    old, new = _lines(before), _lines(after)
    kept = 0
    if old and new:
        if len(old) * len(new) > _COMPARABLE:
            return {}
        from difflib import SequenceMatcher

        same = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        kept = sum(block.size for block in same)
    return {"lines_added": len(new) - kept, "lines_removed": len(old) - kept}


def _lines(text: str) -> list[str]:
    """Lines as git has them: only a line feed ends one."""
    lines = text.split("\n")
    last = lines.pop()
    return [*(f"{line}\n" for line in lines), *([last] if last else [])]
