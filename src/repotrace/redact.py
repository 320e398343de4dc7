"""Text in, text without secrets out: provider patterns, assignments, values of variables.

Every secret becomes `[REDACTED:rule:hmac8]`. The digest is keyed, so that equal secrets are
recognisable as equal by whoever holds the text, and guessable by nobody. Only the standard
library is used, and patterns are compiled at their first hit: this module is loaded by code that
has a few milliseconds. Literals are searched before any pattern runs, which makes a megabyte of
ordinary log a matter of milliseconds.

No rule crosses a line end, save private keys and values that hold a line end themselves. That is
what makes a stream in chunks and the whole text come out the same.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache

from repotrace.secret_rules import (
    ASSIGNED,
    FOLDED,
    KEY_LIMIT,
    PROVIDERS,
    RUN,
    TOKENS,
    Found,
    assignment,
    key_block,
    provider,
)
from repotrace.secret_words import is_secret_name, is_secret_value

__all__ = [
    "PLACEHOLDER",
    "PLACEHOLDER_BYTES",
    "Offsets",
    "RedactingStream",
    "Redactor",
    "is_secret_name",
    "restore",
    "strip_digests",
]

_PLACEHOLDER = r"\[REDACTED:([A-Za-z0-9_-]{1,200}):([0-9a-f]{8})\]"
PLACEHOLDER = re.compile(_PLACEHOLDER)
PLACEHOLDER_BYTES = re.compile(_PLACEHOLDER.encode())

WINDOW = 65536
"""A line as long as this is masked in pieces; a stream holds back no more of one line."""
_MARGIN = 8192
_SEPARATORS = b" \t,;{}()[]<>\"'"
_WALL = re.compile(rb"\[REDACTED:([A-Za-z0-9_-]{1,200})(?::[0-9a-f]{8})?\]")
_REST = re.compile(rb"[^\s\"'`,;<>]+")
_RULES = frozenset(rule[0] for rule in PROVIDERS) | {"assigned", "aws-secret-key", "fault"}
_TOKEN_TABLE = bytes(
    0x61 if (chr(code).isalnum() and code < 128) or code in b"_-" else 0x20 for code in range(256)
)

# Start and end of what is masked, start of the match with its context, the rule, the secret that
# the digest is of (None: what stands there).
type _Span = tuple[int, int, int, str, bytes | None]


class Offsets:
    """Where the bytes of a text went when it was redacted."""

    def __init__(self, edits: Iterable[tuple[int, int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._shifted: list[int] = []
        shift = 0
        for start, end, size in edits:
            shift += size - (end - start)
            self._starts.append(start)
            self._ends.append(end)
            self._shifted.append(end + shift)

    def map(self, raw_offset: int) -> int:
        """The offset in the redacted text; an offset inside a secret maps to its mask's end."""
        index = bisect_left(self._starts, raw_offset) - 1
        if index < 0:
            return raw_offset
        return self._shifted[index] + max(0, raw_offset - self._ends[index])


class Redactor:
    """Masks secrets in texts.

    `key` keys the digests. `variables` is an environment: the values of its secret-looking
    variables are masked wherever they appear, also percent-encoded, in base64, and escaped as in
    JSON. `allow` holds what is innocent after all: names of variables, rules, or exact values.
    """

    def __init__(
        self, *, key: bytes, variables: Mapping[str, str] = {}, allow: Collection[str] = ()
    ) -> None:
        self.count = 0
        self._key = key
        self._allowed_rules = frozenset(allow)
        self._allowed = frozenset(_encode(value) for value in allow)
        known: dict[bytes, tuple[str, bytes]] = {}
        for name in sorted(variables):
            value = variables[name].strip()
            if name in allow or value in allow:
                continue
            if is_secret_name(name) and is_secret_value(value):
                rule = "env-" + re.sub(r"[^A-Za-z0-9_]", "_", name)[:190]
                secret = _encode(value)
                for form in _forms(value):
                    known.setdefault(form, (rule, secret))
        order = sorted(known, key=lambda form: (-len(form), form))
        self.values = [(form, *known[form]) for form in order if b"\n" not in form]
        self.blocks = [(form, *known[form]) for form in order if b"\n" in form]

    def redact(self, text: str) -> str:
        """The text with every secret masked."""
        data = _encode(text)
        masked, _offsets = self.redact_bytes(data)
        return _decode(masked) if masked != data else text

    def redact_bytes(self, data: bytes) -> tuple[bytes, Offsets]:
        """The bytes with every secret masked, and where each offset went."""
        edits: list[tuple[int, int, int]] = []
        stream = RedactingStream(self, edits)
        masked = stream.feed(data) + stream.close()
        return masked, Offsets(edits)

    def digest(self, secret: bytes) -> str:
        """The eight hex digits by which equal secrets are known."""
        import hmac  # a millisecond that a text without secrets need not pay

        return hmac.digest(self._key, secret, "sha256")[:4].hex()

    def placeholder(self, rule: str, secret: bytes) -> bytes:
        """What stands for a secret."""
        self.count += 1
        return f"[REDACTED:{rule}:{self.digest(secret)}]".encode()

    def spans(self, data: bytes, blocks: Iterable[_Span] = ()) -> list[_Span]:
        """All that must be masked in these lines, in order and without overlap.

        Masks that are in the text already are walls: nothing matches into or across them. So are
        the masks found here, and what they split is looked at again, until nothing is found.
        """
        walls = _Walls(match.span() for match in _WALL.finditer(data) if _is_ours(match[1]))
        found = _merged(part for span in blocks for part in walls.free(span))
        search = _Search(self, data)
        regions: list[tuple[int, int]] = [(0, len(data))]
        for span in found:
            walls.add(span[0], span[1])
        while regions:
            new = _merged([span for low, high in regions for span in search.run(low, high, walls)])
            for span in new:
                walls.add(span[0], span[1])
            found += new
            regions = _lines(data, new)
        return sorted(found)

    def _is_allowed(self, rule: str, secret: bytes) -> bool:
        return rule in self._allowed_rules or secret in self._allowed


class _Walls:
    """The masked stretches of a text, ordered and disjoint."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._spans = sorted(spans)

    def add(self, start: int, end: int) -> None:
        insort(self._spans, (start, end))

    def free(self, span: _Span) -> Iterator[_Span]:
        """The parts of a span that are not masked yet."""
        start, end, _begin, rule, _secret = span
        inner = [wall for wall in self._spans if wall[0] < end and wall[1] > start]
        if not inner:
            yield span
            return
        bounds = [start, *(bound for wall in inner for bound in wall), end]
        for low, high in zip(bounds[::2], bounds[1::2], strict=True):
            if high - low >= RUN:
                yield low, high, low, rule, None

    def gap(self, start: int, end: int, size: int = 1 << 62) -> tuple[int, int] | None:
        """The bounds of the free stretch that holds all of [start, end), if there is one."""
        index = bisect_right(self._spans, (start, size))
        low = self._spans[index - 1][1] if index else 0
        high = self._spans[index][0] if index < len(self._spans) else size
        return (low, high) if low <= start and end <= high else None


@cache
def _literals() -> list[tuple[str, int, str, bytes]]:
    """Every literal that a secret begins with: where to look for it, its rule by number and name.

    The number -1 stands for names to which a secret is assigned.
    """
    found: list[tuple[str, int, str, bytes]] = []
    for index, (rule, literals, _) in enumerate(PROVIDERS):
        folded = index >= len(PROVIDERS) - len(FOLDED)
        where = "tokens" if index < len(TOKENS) else "folded" if folded else "text"
        found += [(where, index, rule, literal) for literal in literals.encode().split()]
    return found + [("folded", -1, "assigned", word.encode()) for word in ASSIGNED]


class _Search:
    """One text, and the literals that occur in it at all."""

    def __init__(self, redactor: Redactor, data: bytes) -> None:
        self._redactor = redactor
        self._data = data
        self._lower = data.lower()
        self._live: list[tuple[int, bytes, bytes]] = []
        allowed = redactor._allowed_rules
        texts = {"tokens": _long_runs(data), "text": data, "folded": self._lower}
        for where, index, rule, literal in _literals():
            if literal in texts[where] and rule not in allowed:
                text = self._lower if where == "folded" else data
                self._live.append((index, literal, text))
        self._values = [value for value in redactor.values if value[0] in data]

    def run(self, low: int, high: int, walls: _Walls) -> Iterator[_Span]:
        """Every match within data[low:high], which are whole lines; they may overlap."""
        data, allowed = self._data, self._redactor._is_allowed
        for form, rule, secret in self._values:
            at = data.find(form, low, high)
            while at >= 0:
                if walls.gap(at, at + len(form)):
                    yield at, at + len(form), at, rule, secret
                at = data.find(form, at + 1, high)
        for index, literal, text in self._live:
            at = text.find(literal, low, high)
            while at >= 0:
                span = self._match(index, at, len(literal), low, high, walls)
                after = at + 1
                if span is not None:
                    start, end, begin, rule = span
                    after = max(after, end)
                    if not allowed(rule, data[start:end]):
                        yield start, end, begin, rule, None
                at = text.find(literal, after, high)

    def _match(
        self, index: int, at: int, size: int, low: int, high: int, walls: _Walls
    ) -> Found | None:
        gap = walls.gap(at, at + size)
        if gap is None:
            return None
        low, high = max(low, gap[0]), min(high, gap[1])
        if index < 0:
            return assignment(self._data, low, at, high)
        return provider(index, self._data, low, at, high)


class RedactingStream:
    """Masks secrets in a stream of chunks, wherever the chunks are cut.

    What `feed` and `close` return is, joined, what `redact_bytes` makes of the whole. At most the
    last line (up to WINDOW bytes of it) and an unfinished private key are held back.
    """

    def __init__(self, redactor: Redactor, edits: list[tuple[int, int, int]] | None = None) -> None:
        self._redactor = redactor
        self._edits = edits
        self._pending = bytearray()
        self._done = 0
        self._in_key = False
        self._in_token = False

    def feed(self, data: bytes) -> bytes:
        """Take a chunk; give what is certain by now."""
        self._pending += data
        if b"\n" not in data and len(self._pending) < WINDOW:
            return b""
        return self._drain(final=False)

    def close(self) -> bytes:
        """Give the rest."""
        return self._drain(final=True)

    def _drain(self, *, final: bool) -> bytes:
        data, at, out = bytes(self._pending), 0, []
        while at < len(data):
            if self._in_token:
                at = self._skip_token(data, at)
                continue
            end = _complete_lines(data, at)
            is_long = len(data) - end >= WINDOW
            if final and not is_long:
                end = len(data)
            limit, blocks, self._in_key = self._blocks(data, at, end, closed=final or is_long)
            if limit > at:
                out.append(self._mask(data[at:limit], [_moved(span, -at) for span in blocks]))
            at = limit
            if limit < end or not is_long:
                break
            piece, self._in_token = self._piece(data[at : at + WINDOW])
            out.append(self._mask(piece, []))
            at += len(piece)
        del self._pending[:at]
        return b"".join(out)

    def _mask(self, data: bytes, blocks: list[_Span]) -> bytes:
        """These lines, masked; a fault of the masker must not let them through."""
        try:
            spans = self._redactor.spans(data, blocks)
        except Exception:
            spans = [(0, len(data), 0, "fault", None)]
        out, at = [], 0
        for start, end, _, rule, secret in spans:
            mask = self._redactor.placeholder(rule, data[start:end] if secret is None else secret)
            out += [data[at:start], mask]
            at = end
            if self._edits is not None:
                self._edits.append((self._done + start, self._done + end, len(mask)))
        self._done += len(data)
        return b"".join((*out, data[at:]))

    def _skip_token(self, data: bytes, at: int) -> int:
        """Pass over the rest of a secret that was longer than a piece."""
        match = _REST.match(data, at)
        end = match.end() if match else at
        self._in_token = end == len(data)
        if self._edits is not None and end > at:
            self._edits.append((self._done, self._done + end - at, 0))
        self._done += end - at
        return end

    def _piece(self, window: bytes) -> tuple[bytes, bool]:
        """The first piece of a line that is longer than the window; whether it ends in a secret."""
        cut = len(window) - _MARGIN
        cut = max(window.rfind(bytes((code,)), len(window) // 2, cut) for code in _SEPARATORS) + 1
        cut = cut or len(window) - _MARGIN
        try:
            spans = sorted(self._redactor.spans(window), key=lambda span: span[2])
        except Exception:
            spans = []
        for _, end, begin, _, _ in reversed(spans):
            if begin < cut < end:
                if begin == 0:
                    return window[:end], end == len(window)
                cut = begin
        return window[:cut], False

    def _blocks(
        self, data: bytes, low: int, high: int, *, closed: bool
    ) -> tuple[int, list[_Span], bool]:
        """The secrets over several lines in data[low:high], and how far these lines are certain.

        The last item: whether the uncertain rest begins in the middle of a private key.
        """
        found: list[_Span] = []
        limit, at, inside = high, low, self._in_key
        resumed = {low} if inside else set()
        while at < high:
            begin = at if inside else data.find(b"-----BEGIN ", at, high)
            if begin < 0:
                break
            end, is_over = key_block(data, begin, high, inside=inside) or (begin, True)
            if not is_over and not closed:
                limit = begin if inside else _line_start(data, low, begin)
                break
            if end > begin:
                found.append((begin, end, begin, "private-key", None))
            inside = is_over and end - begin >= KEY_LIMIT
            at = max(begin + (not inside and end == begin), end + inside)
            if inside:
                resumed.add(at)
        for form, rule, secret in self._redactor.blocks:
            at = data.find(form, low, high)
            while at >= 0:
                found.append((at, at + len(form), at, rule, secret))
                at = data.find(form, at + 1, high)
            if not closed:
                limit = min(limit, _cut_off(data, low, high, form))
        for start, end, *_ in sorted(found, reverse=True):
            if start < limit < end:
                limit = _line_start(data, low, start) if start not in resumed else start
        return limit, [span for span in found if span[1] <= limit], limit in resumed


def _is_ours(rule: bytes) -> bool:
    return rule.startswith(b"env-") or rule.decode() in _RULES


def _moved(span: _Span, by: int) -> _Span:
    start, end, begin, rule, secret = span
    return start + by, end + by, begin + by, rule, secret


def _line_start(data: bytes, low: int, at: int) -> int:
    return data.rfind(b"\n", low, at) + 1 or low


def _cut_off(data: bytes, low: int, high: int, form: bytes) -> int:
    """The start of the line in which the text's end cuts `form` short; `high` if none does."""
    first = form[: form.index(b"\n") + 1]
    at = data.find(first, max(low, high - len(form) + 1), high)
    while at >= 0:
        if form.startswith(data[at:high]):
            return _line_start(data, low, at)
        at = data.find(first, at + 1, high)
    return high


def _complete_lines(data: bytes, at: int) -> int:
    """The end of the last complete line before the end, or before a line of WINDOW bytes."""
    while (line_end := data.rfind(b"\n", at, at + WINDOW)) >= 0:
        at = line_end + 1
    return at


def _lines(data: bytes, spans: Iterable[_Span]) -> list[tuple[int, int]]:
    """The stretches of whole lines that these spans touch."""
    regions: list[tuple[int, int]] = []
    for start, end, *_ in sorted(spans):
        low, high = _line_start(data, 0, start), data.find(b"\n", end) + 1 or len(data)
        if regions and low <= regions[-1][1]:
            regions[-1] = (regions[-1][0], max(high, regions[-1][1]))
        else:
            regions.append((low, high))
    return regions


def _merged(spans: Iterable[_Span]) -> list[_Span]:
    """The union of overlapping spans, each named after its longest part."""
    groups: list[list[_Span]] = []
    high = -1
    for span in sorted(spans, key=lambda span: (span[0], -span[1], not span[3].startswith("env-"))):
        if span[0] < high:
            groups[-1].append(span)
        else:
            groups.append([span])
        high = max(high, span[1])
    return [_union(group) for group in groups]


def _union(group: list[_Span]) -> _Span:
    # Of equal length, the first: a variable's value can be put back, so it goes before a rule.
    best = max(group, key=lambda span: span[1] - span[0])
    start, end = group[0][0], max(span[1] for span in group)
    secret = best[4] if (start, end) == best[:2] else None
    return start, end, min(span[2] for span in group), best[3], secret


def _long_runs(data: bytes) -> bytes:
    """The stretches that are long enough to hold a provider's token, one a line."""
    marks = data.translate(_TOKEN_TABLE)
    needle, runs, at = b"a" * RUN, [], 0
    while (at := marks.find(needle, at)) >= 0:
        end = marks.find(b" ", at + RUN)
        end = len(data) if end < 0 else end
        runs.append(data[at:end])
        at = end
    return b"\n".join(runs)


def _forms(value: str) -> Iterator[bytes]:
    """The ways in which a value may stand in a text."""
    raw = _encode(value)
    yield raw
    if "\n" in value:
        lines = (line.strip() for line in value.splitlines())
        yield from (_encode(line) for line in lines if len(line) >= RUN and line[:5] != "-----")
    for offset, skipped in ((0, 0), (1, 2), (2, 3)):
        text = b2a_base64(bytes(offset) + raw, newline=False)
        core = text[skipped : (offset + len(raw)) * 8 // 6]
        for form in (core, text) if not offset else (core,):
            if len(form) >= 10:
                yield from (form, form.replace(b"+", b"-").replace(b"/", b"_"))
    if value.isalnum() and value.isascii():
        return
    if any("\udc80" <= character <= "\udcff" for character in value):
        yield value.encode("utf-8", "surrogateescape" if _is_escaped(value) else "surrogatepass")
    for safe in (b"-_.~", b"-_.~/", b"-_.~!*'()"):
        percent = b"".join(
            bytes((code,)) if _TOKEN_TABLE[code] == 0x61 or code in safe else b"%%%02X" % code
            for code in raw
        )
        yield from (percent, percent.replace(b"%20", b"+"))
        yield re.sub(rb"%..", lambda match: match[0].lower(), percent)
    import json  # only for the values that it would change

    escaped = [json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]]
    escaped += [repr(value)[1:-1], repr(raw)[2:-1], value.replace("'", "'\"'\"'")]
    escaped += [value.replace("'", "'\\''"), json.dumps(escaped[0])[1:-1]]
    yield from map(_encode, escaped)


def _is_escaped(value: str) -> bool:
    return not any("\ud800" <= c < "\udc80" or "\udcff" < c <= "\udfff" for c in value)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # a value of odd bytes was found inside a character
        return data.decode("utf-8", "replace")


def strip_digests(data: bytes) -> bytes:
    """The data with `[REDACTED:rule]` for `[REDACTED:rule:1234abcd]`: another machine's key
    makes other digests of the same secret."""
    return PLACEHOLDER_BYTES.sub(rb"[REDACTED:\1]", data)


def restore(text: str, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """The text with its secrets put back, and the names of the variables that are missing.

    `env-NAME` comes from the variable NAME, any other rule from `REPOTRACE_SECRET_<DIGEST>`.
    What is missing stays masked.
    """
    missing: list[str] = []

    def value(match: re.Match[str]) -> str:
        rule, digest = match.groups()
        name = rule[4:] if rule.startswith("env-") else f"REPOTRACE_SECRET_{digest.upper()}"
        if name in environ:
            return environ[name]
        if name not in missing:
            missing.append(name)
        return match[0]

    return PLACEHOLDER.sub(value, text), missing
