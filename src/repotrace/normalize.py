"""Volatile text becomes placeholders, so that two runs of one failure read the same.

Works on bytes and to a fixed point: normalising twice changes nothing more. Everything that a
person would call a fact (counts, line numbers, exit codes, versions, configured limits) stays.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

from repotrace.config import UserRule
from repotrace.errors import RepoTraceError
from repotrace.records.command import Places
from repotrace.redact import PLACEHOLDER, strip_digests
from repotrace.volatile import PLACE_NAMES, VOLATILE_RULES, VolatileRule

__all__ = ["Normalized", "UserRule", "masks_for", "normalize"]

_MAX_PASSES = 30
# One-component folders of the system; masking them would rewrite half of any output.
_SYSTEM_ROOTS = frozenset(
    b"/Applications /Library /System /Users /Volumes /bin /boot /dev /etc /home /lib /lib32 /lib64"
    b" /media /mnt /nix /opt /private /proc /run /sbin /snap /srv /sys /tmp /usr /var".split()
)


@dataclass(frozen=True, slots=True)
class Normalized:
    """Normalised text, and which rules made it so."""

    data: bytes
    rules: frozenset[str]
    """All that touched something: `ansi`, `cwd`, `duration`, `user:NAME`, …"""
    by_line: dict[int, frozenset[str]]
    """Zero-based line of `data` → the rules that touched it."""


def normalize(data: bytes, places: Places, user_rules: Sequence[UserRule] = ()) -> Normalized:
    """`data` with all that is volatile replaced by placeholders. Idempotent.

    A user rule whose own result matches it again is applied once. Raises RepoTraceError for a
    user rule that is no regular expression.
    """
    text = _Text(data)
    numbers = _Numbers(data)
    once: set[str] = set()
    for _ in range(_MAX_PASSES):
        before = text.data
        text.strip_digests()
        for rule in user_rules:
            if rule.name not in once and not _apply_user_rule(text, rule):
                once.add(rule.name)
        _apply_built_in(text, places, numbers)
        text.strip_digests()
        if text.data == before:
            break
        if not user_rules:
            # Built-in rules look at one line at a time, so only changed lines can change again.
            text.narrow()
    text.widen()
    rules = frozenset(name for names in text.touched.values() for name in names)
    return Normalized(data=text.data, rules=rules, by_line=text.touched)


def masks_for(rules: Collection[str]) -> list[tuple[str, str]]:
    """(regex, replacement) pairs for `re.sub` on text, in the order to apply them.

    Two outputs that `normalize` makes equal by these rules are equal after the masks. Folders
    (`cwd`, `tmp`, …) and user rules are not among them: replace a folder by its placeholder,
    such as `<cwd>`, before masking. Placeholders carry no numbers here.
    """
    masks = [
        (rule.regex, rule.template)
        for rule in VOLATILE_RULES
        if rule.name in rules or (rule.name == "timestamp" and "pid" in rules)
    ]
    if "redaction" in rules:
        masks.insert(0, (PLACEHOLDER.pattern, r"[REDACTED:\1]"))
    return masks


@dataclass
class _Text:
    """Text under normalising, with the rules that touched each of its lines."""

    data: bytes
    touched: dict[int, frozenset[str]] = field(default_factory=dict)
    _changed: set[int] = field(default_factory=set)
    _lines: list[bytes] | None = None
    """All lines, while `data` is only some of them."""
    _shown: list[int] | None = None
    """For each line of `data` its number among `_lines`."""

    def mark(self, line: int, rule: str) -> None:
        number = line if self._shown is None else self._shown[line]
        self._changed.add(number)
        self.touched[number] = _with_rule(self.touched.get(number, frozenset()), rule)

    def substitute(
        self,
        rule: str | None,
        pattern: re.Pattern[bytes],
        replace: Callable[[re.Match[bytes]], bytes],
    ) -> None:
        """Replaces every match, none of which may hold a newline.

        Without a `rule` the named group that matched is the rule.
        """
        data, pieces, position, line, counted = self.data, list[bytes](), 0, 0, 0
        for match in pattern.finditer(data):
            new = replace(match)
            start, end = match.span()
            if new == data[start:end]:
                continue
            line += data.count(b"\n", counted, start)
            counted = start
            self.mark(line, rule or match.lastgroup or "")
            pieces += (data[position:start], new)
            position = end
        if pieces:
            pieces.append(data[position:])
            self.data = b"".join(pieces)

    def strip_digests(self) -> None:
        if b"[REDACTED:" not in self.data:
            return
        stripped = strip_digests(self.data)
        if stripped == self.data:
            return
        for number, (old, new) in enumerate(
            zip(self.data.split(b"\n"), stripped.split(b"\n"), strict=True)
        ):
            if old != new:
                self.mark(number, "redaction")
        self.data = stripped

    def narrow(self) -> None:
        """Goes on with the lines that changed since the last call."""
        changed, self._changed = sorted(self._changed), set()
        self.widen()
        self._lines = self.data.split(b"\n")
        self._shown = changed
        self.data = b"\n".join(self._lines[number] for number in changed)

    def widen(self) -> None:
        """Makes `data` the whole text again."""
        if self._lines is None or self._shown is None:
            return
        for number, line in zip(self._shown, self.data.split(b"\n"), strict=bool(self._shown)):
            self._lines[number] = line
        self.data = b"\n".join(self._lines)
        self._lines = self._shown = None


@cache
def _with_rule(rules: frozenset[str], rule: str) -> frozenset[str]:
    return rules | {rule}


class _Numbers:
    """Numbers for equal values: the first address is 1, wherever it comes again too."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._known: dict[str, dict[bytes, int]] = {}
        self._last: dict[str, int] = {}

    def number(self, placeholder: str, value: bytes) -> int:
        known = self._known.setdefault(placeholder, {})
        if value not in known:
            if placeholder not in self._last:
                self._last[placeholder] = self._highest(placeholder)
            self._last[placeholder] += 1
            known[value] = self._last[placeholder]
        return known[value]

    def _highest(self, placeholder: str) -> int:
        """The highest number that the text already uses: it must not stand for two values."""
        pattern = re.escape(placeholder.rstrip(">")).encode() + rb"([0-9]{1,9})(?![0-9])"
        return max((int(found) for found in re.findall(pattern, self._data)), default=0)


def _apply_built_in(text: _Text, places: Places, numbers: _Numbers) -> None:
    for rule in VOLATILE_RULES:
        if rule.name == "address":
            _apply_places(text, places)
        if rule.needles and not any(needle in text.data for needle in rule.needles):
            continue
        text.substitute(rule.name, _compiled(rule.regex), _replacer(rule, numbers))


@cache
def _compiled(regex: str) -> re.Pattern[bytes]:
    return re.compile(regex.encode())


def _replacer(rule: VolatileRule, numbers: _Numbers) -> Callable[[re.Match[bytes]], bytes]:
    template = rule.template.encode()
    if rule.numbered:
        before, closing = template.rstrip(b">"), b">" if template.endswith(b">") else b""
        prefix = before.removeprefix(rb"\g<a>")
        keeps = prefix != before

        def numbered(match: re.Match[bytes]) -> bytes:
            number = numbers.number(rule.placeholder, match["v"].strip())
            return b"%b%b%d%b" % (match["a"] if keeps else b"", prefix, number, closing)

        return numbered
    if b"\\" not in template:
        return lambda match: template
    return lambda match: match.expand(template)


# --- folders


def _apply_places(text: _Text, places: Places) -> None:
    known = tuple((name, getattr(places, name)) for name in PLACE_NAMES)
    for needle, pattern in _place_patterns(known):
        if needle in text.data:
            text.substitute(None, pattern, lambda match: b"<%b>" % (match.lastgroup or "").encode())


@lru_cache(maxsize=32)
def _place_patterns(
    known: tuple[tuple[str, str | None], ...],
) -> tuple[tuple[bytes, re.Pattern[bytes]], ...]:
    """A literal that each form of writing a path needs, and the pattern for the form."""
    folders = _maskable(known)
    if not folders:
        return ()
    after = rb"(?![A-Za-z0-9_+@~%\-]|\.[A-Za-z0-9_]|(?!\xe3\x80|\xef\xbc)[\xc3-\xdf\xe3-\xf4])"
    # Lookbehinds stand after the slash: a pattern that begins with a literal is searched faster.
    plain = (
        rb"/(?:(?<![A-Za-z0-9_.+~%/\-]/)|(?<=file:///)|(?<=\\[nrt]/)|(?<=-[IL]/))"
        rb"(?<![\xc3-\xdf][\x80-\xbf]/)" + b"".join(b"(?<!<%b>/)" % n.encode() for n in PLACE_NAMES)
    )
    escaped = rb"\\/(?<![A-Za-z0-9_.+~%\-]\\/)"
    percent = rb"%2[Ff](?<![A-Za-z0-9_.+~\-]%2[Ff])"
    not_on = rb"(?![A-Za-z0-9_.~\-]|%(?!2[Ff]))"
    return (
        (b"/", _alternatives(plain, folders, _plain_forms, after)),
        (rb"\/", _alternatives(escaped, folders, _json_forms, after)),
        (b"%2", _alternatives(percent, folders, _percent_forms, not_on)),
    )


def _maskable(known: Iterable[tuple[str, str | None]]) -> list[tuple[str, bytes]]:
    """Folders worth masking, longest first; of equal ones the first named."""
    folders: dict[bytes, str] = {}
    for name, value in known:
        path = (value or "").encode("utf-8", "surrogateescape").rstrip(b"/")
        allowed = path not in _SYSTEM_ROOTS or (name == "tmp" and path == b"/tmp")
        if path.startswith(b"/") and b"\n" not in path and allowed:
            folders.setdefault(path, name)
    ordered = sorted(folders, key=len, reverse=True)
    return [(folders[path], path) for path in ordered]


def _alternatives(
    before: bytes,
    folders: list[tuple[str, bytes]],
    forms: Callable[[bytes], Iterator[bytes]],
    after: bytes,
) -> re.Pattern[bytes]:
    """One pattern for all folders. Its groups are named as they are, so a name occurs once."""
    options = [
        b"(?P<%b>%b)%b" % (name.encode(), b"|".join(forms(path)), after) for name, path in folders
    ]
    return re.compile(before + b"(?:%b)" % b"|".join(options))


def _plain_forms(path: bytes) -> Iterator[bytes]:
    # Late, since a capture that has nothing to normalise should not pay for it.
    from urllib.parse import quote

    yield re.escape(path[1:])
    quoted = quote(path).encode()
    if quoted != path:
        yield re.escape(quoted[1:])


def _json_forms(path: bytes) -> Iterator[bytes]:
    yield re.escape(path[1:].replace(b"/", rb"\/"))


def _percent_forms(path: bytes) -> Iterator[bytes]:
    from urllib.parse import quote

    parts = (re.escape(quote(part, safe="").encode()) for part in path[1:].split(b"/"))
    yield b"%2[Ff]".join(parts)


# --- user rules


def _apply_user_rule(text: _Text, rule: UserRule) -> bool:
    """Applies it; False if it would change its own result again."""
    pattern = _user_pattern(rule)
    source = text.data.decode("utf-8", "surrogateescape")
    pieces: list[str] = []
    moves: list[tuple[int, int, int, int]] = []
    position = line = shift = 0
    touched: list[int] = []
    for match in pattern.finditer(source):
        new = match.expand(rule.replacement)
        line += source.count("\n", position, match.start())
        pieces += (source[position : match.start()], new)
        position = match.end()
        first, line = line, line + match[0].count("\n")
        if new != match[0]:
            touched.append(first + shift)
            shift += new.count("\n") - match[0].count("\n")
            moves.append((first, line, touched[-1], shift))
    if not touched:
        return True
    result = "".join((*pieces, source[position:]))
    if source.count("\n") != result.count("\n"):
        text.touched = _moved(text.touched, moves, result.count("\n"))
    for number in touched:
        text.mark(number, f"user:{rule.name}")
    text.data = result.encode("utf-8", "surrogateescape")
    return pattern.sub(rule.replacement, result) == result


def _moved(
    touched: dict[int, frozenset[str]], moves: list[tuple[int, int, int, int]], last_line: int
) -> dict[int, frozenset[str]]:
    """`touched` by the line numbers that hold after edits which removed or added lines.

    Of each edit: its first and last line before, its first line after, the shift from there on.
    """
    starts = [move[0] for move in moves]
    result: dict[int, frozenset[str]] = {}
    for number, rules in touched.items():
        index = bisect_right(starts, number) - 1
        new = number
        if index >= 0:
            _, last, moved, shift = moves[index]
            new = moved if number <= last else number + shift
        new = max(0, min(new, last_line))
        result[new] = result.get(new, frozenset()) | rules
    return result


@lru_cache(maxsize=64)
def _user_pattern(rule: UserRule) -> re.Pattern[str]:
    try:
        pattern = re.compile(rule.pattern, re.MULTILINE)
        pattern.sub(rule.replacement, "")
        re.compile(f"(?:{rule.pattern})|", re.MULTILINE).sub(rule.replacement, "")
    except (re.error, IndexError) as error:
        raise RepoTraceError(
            f"The rule {rule.name!r} is no valid regular expression: {error}.",
            hint="Correct it in [tool.repotrace] of pyproject.toml.",
        ) from error
    return pattern
