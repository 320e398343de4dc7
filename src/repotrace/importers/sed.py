"""`sed -i` programs of one substitution or deletion, applied in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from repotrace.importers.shell import Opaque


def words_of(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The programs and the files in the words of a `sed` command."""
    programs: list[str] = []
    words: list[str] = []
    rest = iter(argv[1:])
    for word in rest:
        if word in ("-e", "-ie"):
            programs.append(next(rest, ""))
        elif not word.startswith("-"):
            words.append(word)
    if not programs:
        programs, words = words[:1], words[1:]
    return programs, words


_SED = re.compile(
    r"\s*(?:(?P<from>\d+)(?:,(?P<to>\d+|\$))?)?\s*(?P<verb>[sd])(?P<rest>.*?)\s*;?\s*", re.S
)


def edited(script: str, text: str) -> str:
    """The text after a sed program of one `s` or `d`. Raises Opaque for others."""
    match = _SED.fullmatch(script)
    if match is None:
        raise Opaque("a sed program that is not followed")
    lines = [line for line in re.split(r"(?<=\n)", text) if line]
    first = int(match["from"]) if match["from"] else 1
    last = len(lines) if not match["from"] or match["to"] == "$" else int(match["to"] or first)
    chosen = range(first - 1, min(last, len(lines)))
    if match["verb"] == "d":
        if match["rest"] or not match["from"]:
            raise Opaque("a sed program that is not followed")
        return "".join(line for number, line in enumerate(lines) if number not in chosen)
    pattern, replacement, flags = _substitution(match["rest"])
    for number in chosen:
        line, end = lines[number].removesuffix("\n"), "\n" * lines[number].endswith("\n")
        lines[number] = pattern.sub(replacement, line, count=0 if "g" in flags else 1) + end
    return "".join(lines)


def _substitution(rest: str) -> tuple[re.Pattern[str], Callable[[re.Match[str]], str], str]:
    mark = rest[:1]
    parts = re.split(rf"(?<!\\){re.escape(mark)}", rest[1:]) if mark and mark not in "\\\n" else []
    if len(parts) != 3 or not re.fullmatch("g?", parts[2]):
        raise Opaque("a sed program that is not followed")
    old, new = (part.replace("\\" + mark, mark) for part in parts[:2])
    # A basic expression: `( ) { } + ? |` are themselves without a backslash.
    if re.search(r"\\[^./\[\]*^$\\&\"'#-]", old) or re.search(r"\[[^\]]*$|(?<!\\)\[", old):
        raise Opaque("an expression that is not followed")
    pattern = re.sub(r"(?<!\\)([(){}+?|])", r"\\\1", old)
    if re.search(r"(?<!\\)\\(?![&/\\n.\[\]*^$\"'#-])", new):
        raise Opaque("a replacement that is not followed")

    def replacement(match: re.Match[str]) -> str:
        return re.sub(
            r"\\(.)|&",
            lambda m: match[0] if m[0] == "&" else {"n": "\n"}.get(m[1], m[1]),
            new,
            flags=re.S,
        )

    try:
        return re.compile(pattern), replacement, parts[2]
    except re.error as error:
        raise Opaque("an expression that is not followed") from error
