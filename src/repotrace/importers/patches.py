"""Patches applied in memory: unified diffs, and the envelope that `apply_patch` takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

type Files = Callable[[str], str | None]
"""The text of a path; None if there is no such file."""


class Unfitting(ValueError):
    """A patch that the files do not fit, or that is no patch."""


class Hunk(NamedTuple):
    """Lines to look for, with what takes their place. All lines end as in the file."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    line: int | None = None
    """From 1: where the old lines are said to begin."""
    context: tuple[str, ...] = ()
    """Lines that come somewhere before, in order."""
    at_end: bool = False


class Change(NamedTuple):
    """What a patch does to one path."""

    path: str
    after: str | None
    """None: deleted."""
    renamed_from: str | None = None


_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def apply_hunks(text: str, hunks: Sequence[Hunk]) -> str:
    """The text with the hunks applied in order. Raises Unfitting."""
    lines = _lines(text)
    done: list[str] = []
    at = shift = 0
    for hunk in hunks:
        for line in hunk.context:
            found = _find(lines, (line,), at)
            if found is None:
                raise Unfitting(f"no line {line.strip()!r}")
            done += lines[at : found + 1]
            at = found + 1
        place = _place(lines, hunk, at, shift)
        if place is None:
            raise Unfitting("the lines to replace are not there")
        if hunk.line is not None and hunk.old:
            shift = place - (hunk.line - 1)
        done += lines[at:place]
        done += _with_ends(hunk, lines, place)
        at = place + len(hunk.old)
    done += lines[at:]
    return "".join(done)


def _lines(text: str) -> list[str]:
    return [line for line in re.split(r"(?<=\n)", text) if line]


def _with_ends(hunk: Hunk, lines: list[str], place: int) -> Iterator[str]:
    """The new lines; an unchanged one is taken from the file, where space may differ."""
    kept = {line: lines[place + number] for number, line in enumerate(hunk.old)}
    for line in hunk.new:
        yield kept.get(line, line)


def _place(lines: list[str], hunk: Hunk, at: int, shift: int) -> int | None:
    if not hunk.old:
        if hunk.line is None:
            return len(lines)
        return min(max(hunk.line + shift, at), len(lines))
    if hunk.at_end:
        end = len(lines) - len(hunk.old)
        if end >= at and _fits(lines, hunk.old, end) is not None:
            return end
    if hunk.line is None:
        return _find(lines, hunk.old, at)
    wanted = hunk.line - 1 + shift
    if wanted >= at and _fits(lines, hunk.old, wanted) == 0:
        return wanted
    places = range(at, len(lines) - len(hunk.old) + 1)
    exact = [n for n in places if _fits(lines, hunk.old, n) == 0]
    return min(exact, key=lambda n: abs(n - wanted), default=None)


def _find(lines: list[str], old: Sequence[str], at: int) -> int | None:
    """The first place from `at`, the more exact kinds of equality first."""
    best: dict[int, int] = {}
    for place in range(at, len(lines) - len(old) + 1):
        quality = _fits(lines, old, place)
        if quality == 0:
            return place
        if quality is not None:
            best.setdefault(quality, place)
    return best[min(best)] if best else None


def _fits(lines: list[str], old: Sequence[str], place: int) -> int | None:
    """0 if the lines are equal there, 1 but for space at their ends, 2 but for indentation."""
    if place < 0 or place + len(old) > len(lines):
        return None
    quality = 0
    for number, line in enumerate(old):
        found = lines[place + number]
        if found == line:
            continue
        if found.rstrip() == line.rstrip():
            quality = max(quality, 1)
        elif found.strip() == line.strip():
            quality = 2
        else:
            return None
    return quality


# --- Unified diffs --------------------------------------------------------------------------


def hunks_of(diff: str) -> list[Hunk]:
    """The hunks of a unified diff of one file. Raises Unfitting if it is none."""
    hunks: list[Hunk] = []
    old: list[str] = []
    new: list[str] = []
    start: int | None = None
    last: list[list[str]] = []
    for line in _lines(diff if diff.endswith("\n") else diff + "\n"):
        match = _HUNK.match(line)
        if match is not None:
            if start is not None:
                hunks.append(Hunk(tuple(old), tuple(new), start))
            old, new, last = [], [], []
            start = int(match[1])
        elif start is None:
            continue
        elif line.startswith("\\"):
            for side in last:
                side[-1] = side[-1].removesuffix("\n")
        elif line[0] in " -+":
            last = {" ": [old, new], "-": [old], "+": [new]}[line[0]]
            for side in last:
                side.append(line[1:])
        elif line == "\n":
            last = [old, new]
            old.append(line)
            new.append(line)
        else:
            break
    if start is None:
        raise Unfitting("no hunk")
    return [*hunks, Hunk(tuple(old), tuple(new), start)]


def apply_diff(text: str, diff: str) -> str:
    """The text with a unified diff of one file applied. Raises Unfitting."""
    return apply_hunks(text, hunks_of(diff))


_FILE = re.compile(r"^(?:diff --git .*|--- .*)$", re.MULTILINE)


def apply_multi(diff: str, files: Files, *, strip: int = 1) -> list[Change]:
    """What a unified diff of several files does to them. Raises Unfitting."""
    changes: list[Change] = []
    for section in _sections(diff):
        old = _name(section, "--- ", strip) or _header(section, "rename from ")
        new = _name(section, "+++ ", strip) or _header(section, "rename to ")
        has_hunks = _HUNK.search(section) is not None
        if old is None and new is None:
            if not has_hunks and "new file mode" in section:
                match = re.search(r"^diff --git \S+ (\S+)$", section, re.MULTILINE)
                if match is not None:
                    changes.append(Change(_stripped(match[1], strip), ""))
            continue
        before = files(old) if old is not None else ""
        if before is None:
            raise Unfitting(f"{old} does not exist")
        body = section[section.index("@@ ") :] if has_hunks else ""
        after = apply_diff(before, body) if has_hunks else before
        if new is None:
            assert old is not None
            changes.append(Change(old, None))
        elif old is not None and old != new and _header(section, "rename from "):
            changes += [Change(old, None), Change(new, after, old)]
        else:
            changes.append(Change(new, after))
    if not changes:
        raise Unfitting("no file in the diff")
    return changes


def _sections(diff: str) -> Iterator[str]:
    """The part of each file."""
    starts: list[int] = []
    in_git = False
    for match in _FILE.finditer(diff):
        is_git = match[0].startswith("diff ")
        following = diff[match.end() : match.end() + 5]
        if is_git or (not in_git and following.startswith("\n+++ ")):
            starts.append(match.start())
        in_git = in_git or is_git
    for number, start in enumerate(starts):
        yield diff[start : starts[number + 1] if number + 1 < len(starts) else len(diff)]


def _name(section: str, mark: str, strip: int) -> str | None:
    match = re.search(rf"^{re.escape(mark)}([^\t\n]+)", section, re.MULTILINE)
    if match is None or match[1].strip() == "/dev/null":
        return None
    return _stripped(match[1].strip().strip('"'), strip)


def _header(section: str, mark: str) -> str | None:
    match = re.search(rf"^{re.escape(mark)}(.+)$", section, re.MULTILINE)
    return match[1] if match else None


def _stripped(path: str, strip: int) -> str:
    parts = path.split("/")
    return "/".join(parts[strip:]) if len(parts) > strip else parts[-1]


# --- The envelope ---------------------------------------------------------------------------

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_MARKS = {"*** Add File: ": "add", "*** Delete File: ": "delete", "*** Update File: ": "update"}


def is_envelope(text: str) -> bool:
    """Whether the text looks like what `apply_patch` takes."""
    return _BEGIN in text


def apply_envelope(text: str, files: Files) -> list[Change]:
    """What `apply_patch` would do. Raises Unfitting."""
    lines = text[max(text.find(_BEGIN), 0) :].strip("\n").split("\n")
    if not lines or lines[0].strip() != _BEGIN:
        raise Unfitting("no patch")
    changes: list[Change] = []
    at = 1
    while at < len(lines) and lines[at].strip() != _END:
        kind, path = _marked(lines[at])
        at += 1
        stop = at
        while stop < len(lines) and not _starts(lines[stop]):
            stop += 1
        body = lines[at:stop]
        at = stop
        if kind == "add":
            content = "".join(f"{line[1:]}\n" for line in body if line.startswith("+"))
            changes.append(Change(path, content))
        elif kind == "delete":
            changes.append(Change(path, None))
        else:
            changes += _updated(path, body, _seen(files, changes))
    if not changes:
        raise Unfitting("an empty patch")
    return changes


def _starts(line: str) -> bool:
    return line.strip() == _END or line.startswith(tuple(_MARKS))


def _marked(line: str) -> tuple[str, str]:
    for mark, kind in _MARKS.items():
        if line.startswith(mark):
            return kind, line[len(mark) :].strip()
    raise Unfitting(f"an unknown line {line[:60]!r}")


def _seen(files: Files, changes: list[Change]) -> Files:
    earlier = {change.path: change.after for change in changes}
    return lambda path: earlier[path] if path in earlier else files(path)


def _updated(path: str, body: list[str], files: Files) -> Iterator[Change]:
    target = path
    if body and body[0].startswith("*** Move to: "):
        target = body[0].removeprefix("*** Move to: ").strip()
        body = body[1:]
    before = files(path)
    if before is None:
        raise Unfitting(f"{path} does not exist")
    ending = "" if before.endswith("\n") or not before else "\n"
    after = apply_hunks(before + ending, list(_chunks(body)))
    if target != path:
        yield Change(path, None)
        yield Change(target, after, path)
    else:
        yield Change(path, after)


def _chunks(body: list[str]) -> Iterator[Hunk]:
    old: list[str] = []
    new: list[str] = []
    context: list[str] = []
    at_end = False
    for line in body:
        if line.startswith("@@"):
            if old or new:
                yield Hunk(tuple(old), tuple(new), None, tuple(context), at_end)
                old, new, context, at_end = [], [], [], False
            words = line[2:].removeprefix(" ")
            if words.strip():
                context.append(words + "\n")
        elif line.strip() == "*** End of File":
            at_end = True
        elif line.startswith("-"):
            old.append(line[1:] + "\n")
        elif line.startswith("+"):
            new.append(line[1:] + "\n")
        else:
            # Models leave the blank out in front of an empty line.
            kept = line.removeprefix(" ") + "\n"
            old.append(kept)
            new.append(kept)
    if old or new:
        yield Hunk(tuple(old), tuple(new), None, tuple(context), at_end)


def envelope_files(text: str) -> Iterator[tuple[str, str, str | None, str]]:
    """Kind (add, delete, update), path, new path, and a patch of that file alone, for each file."""
    lines = text[max(text.find(_BEGIN), 0) :].strip("\n").split("\n")
    at = 1
    while at < len(lines):
        mark = next((mark for mark in _MARKS if lines[at].startswith(mark)), None)
        stop = at + 1
        while stop < len(lines) and not _starts(lines[stop]):
            stop += 1
        if mark is not None:
            path = lines[at][len(mark) :].strip()
            body = lines[at + 1 : stop]
            moved = body[0] if body and body[0].startswith("*** Move to: ") else None
            target = moved.removeprefix("*** Move to: ").strip() if moved else None
            section = "\n".join([_BEGIN, *lines[at:stop], _END])
            yield _MARKS[mark], path, target, section
        at = stop


def apply_to_one(patch: str, before: str | None) -> str | None:
    """The text of a file after a patch of that file alone, of either kind. Raises Unfitting."""
    if is_envelope(patch):
        return apply_envelope(patch, lambda _path: before)[-1].after
    return apply_diff(before or "", patch)
