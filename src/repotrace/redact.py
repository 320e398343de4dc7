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
from collections.abc import Collection, Iterable, Mapping

from repotrace.secret_forms import encode, forms_of
from repotrace.secret_rules import ENDED, FULL, OPEN, PROVIDERS, key_block
from repotrace.secret_search import QuickLook, Search, thorough
from repotrace.secret_spans import Offsets, Span, Walls, line_start, lines_of, merged, moved
from repotrace.secret_words import is_secret_name, is_secret_value, is_secret_variable

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
_SHORT = 1024
_REMEMBERED = 4096
_FEW = 64
"""Texts after which it pays to prepare for a quick look at those that follow."""
_SEPARATORS = b" \t,;{}()[]<>\"'"
_WALL = re.compile(rb"\[REDACTED:([A-Za-z0-9_-]{1,200})(?::[0-9a-f]{8})?\]")
_REST = re.compile(rb"[^\s\"'`,;<>]+")
_RULES = frozenset(rule[0] for rule in PROVIDERS) | {"assigned", "aws-secret-key", "fault"}


class Redactor:
    """Masks secrets in texts.

    `key` keys the digests. `variables` is an environment: the values of its secret-looking
    variables are masked wherever they appear, also percent-encoded, in base64, and escaped as in
    JSON. `allow` holds what is innocent after all: names of variables, rules, or exact values.
    `known` are secrets found elsewhere and the rules that found them; see `knowing`.
    """

    def __init__(
        self,
        *,
        key: bytes,
        variables: Mapping[str, str] = {},
        allow: Collection[str] = (),
        known: Mapping[str, str] = {},
    ) -> None:
        self._counts = [0]
        self._innocent: set[str] = set()
        """Short texts without a secret: paths and names come again and again."""
        self._key = key
        self._variables = variables
        self._allow = allow
        self._known = known
        self._allowed_rules = frozenset(allow)
        self._allowed = frozenset(encode(value) for value in allow)
        values: dict[bytes, tuple[str, bytes]] = {}
        for name in sorted(variables):
            value = variables[name].strip()
            if name in allow or value in allow:
                continue
            if is_secret_variable(name, value):
                rule = "env-" + re.sub(r"[^A-Za-z0-9_]", "_", name)[:190]
                for form in forms_of(value):
                    values.setdefault(form, (rule, encode(value)))
        for value, rule in known.items():
            for form in forms_of(value):
                values.setdefault(form, (rule, encode(value)))
        order = sorted(values, key=lambda form: (-len(form), form))
        self.values = [(form, *values[form]) for form in order if b"\n" not in form]
        self.blocks = [(form, *values[form]) for form in order if b"\n" in form]
        self._quick = QuickLook(values)
        self._seen = 0

    @property
    def count(self) -> int:
        """How many secrets were masked so far, here and in what `knowing` made of this."""
        return self._counts[0]

    def knowing(self, texts: Iterable[str]) -> Redactor:
        """A redactor that masks everywhere what a rule finds to be a secret in one of `texts`.

        A password in a URL is told by its place; where it stands alone nobody could tell.
        """
        found: dict[str, str] = {}
        for text in texts:
            data = encode(text)
            for start, end, _, rule, secret in self.spans(data):
                value = _decode(data[start:end])
                if secret is None and is_secret_value(value):
                    found.setdefault(value, rule)
        if not found:
            return self
        more = Redactor(
            key=self._key,
            variables=self._variables,
            allow=self._allow,
            known={**self._known, **found},
        )
        more._counts = self._counts
        return more

    def redact(self, text: str) -> str:
        """The text with every secret masked."""
        if text in self._innocent:
            return text
        data = encode(text)
        if not self._is_innocent(data):
            masked, _offsets = self.redact_bytes(data)
            if masked != data:
                return _decode(masked)
        if len(text) <= _SHORT and len(self._innocent) < _REMEMBERED:
            self._innocent.add(text)
        return text

    def _is_innocent(self, data: bytes) -> bool:
        """Whether a quick look proves that nothing is to be masked."""
        self._seen += 1
        if self._seen <= _FEW or len(data) >= WINDOW:
            return False
        try:
            suspects = self._quick.suspects(data)
            if not suspects:
                return suspects is not None
            search = Search(data, suspects, (), self._is_allowed)
            return not any(search.run(0, len(data), Walls(())))
        except Exception:
            return False

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
        self._counts[0] += 1
        return f"[REDACTED:{rule}:{self.digest(secret)}]".encode()

    def spans(self, data: bytes, blocks: Iterable[Span] = ()) -> list[Span]:
        """All that must be masked in these lines, in order and without overlap.

        Masks that are in the text already are walls: nothing matches into or across them. So are
        the masks found here, and what they split is looked at again, until nothing is found.
        """
        walls = Walls(match.span() for match in _WALL.finditer(data) if _is_ours(match[1]))
        found = merged(part for span in blocks for part in walls.free(span))
        search = thorough(data, self.values, self._allowed_rules, self._is_allowed)
        regions: list[tuple[int, int]] = [(0, len(data))]
        for span in found:
            walls.add(span[0], span[1])
        while regions:
            new = merged([span for low, high in regions for span in search.run(low, high, walls)])
            for span in new:
                walls.add(span[0], span[1])
            found += new
            regions = lines_of(data, new)
        return sorted(found)

    def _is_allowed(self, rule: str, secret: bytes) -> bool:
        return rule in self._allowed_rules or secret in self._allowed


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
            try:
                limit, blocks, self._in_key = self._blocks(data, at, end, closed=final or is_long)
            except Exception:
                limit, blocks = end, [(at, end, at, "fault", None)]
            if limit > at:
                out.append(self._mask(data[at:limit], [moved(span, -at) for span in blocks]))
            at = limit
            if limit < end or not is_long:
                break
            piece, self._in_token, is_clean = self._piece(data[at : at + WINDOW])
            if is_clean:
                out.append(piece)
                self._done += len(piece)
            else:
                out.append(self._mask(piece, []))
            at += len(piece)
        del self._pending[:at]
        return b"".join(out)

    def _mask(self, data: bytes, blocks: list[Span]) -> bytes:
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

    def _piece(self, window: bytes) -> tuple[bytes, bool, bool]:
        """The first piece of a line that is longer than the window.

        Also whether it ends in a secret that goes on, and whether there is no secret at all.
        """
        cut = len(window) - _MARGIN
        cut = max(window.rfind(bytes((code,)), len(window) // 2, cut) for code in _SEPARATORS) + 1
        cut = cut or len(window) - _MARGIN
        try:
            spans = self._redactor.spans(window)
        except Exception:
            return window[:cut], False, False
        uncut = [(begin, end) for _, end, begin, _, _ in spans]
        uncut += [match.span() for match in _WALL.finditer(window)]
        for begin, end in sorted(uncut, reverse=True):
            if begin < cut < end:
                if begin == 0:
                    return window[:end], end == len(window), not spans
                cut = begin
        return window[:cut], False, not spans

    def _blocks(
        self, data: bytes, low: int, high: int, *, closed: bool
    ) -> tuple[int, list[Span], bool]:
        """The secrets over several lines in data[low:high], and how far these lines are certain.

        The last item: whether the uncertain rest begins in the middle of a private key.
        """
        found: list[Span] = []
        limit, at, inside = high, low, self._in_key
        resumed = {low} if inside else set()
        while at < high:
            begin = at if inside else data.find(b"-----BEGIN ", at, high)
            if begin < 0:
                break
            end, state = key_block(data, begin, high, inside=inside) or (begin, ENDED)
            if state == OPEN and not closed:
                limit = begin if inside else line_start(data, low, begin)
                break
            if end > begin:
                found.append((begin, end, begin, "private-key", None))
            inside = state == FULL
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
                limit = line_start(data, low, start) if start not in resumed else start
        return limit, [span for span in found if span[1] <= limit], limit in resumed


def _is_ours(rule: bytes) -> bool:
    return rule.startswith(b"env-") or rule.decode() in _RULES


def _cut_off(data: bytes, low: int, high: int, form: bytes) -> int:
    """The start of the line in which the text's end cuts `form` short; `high` if none does."""
    first = form[: form.index(b"\n") + 1]
    at = data.find(first, max(low, high - len(form) + 1), high)
    while at >= 0:
        if form.startswith(data[at:high]):
            return line_start(data, low, at)
        at = data.find(first, at + 1, high)
    return high


def _complete_lines(data: bytes, at: int) -> int:
    """The end of the last complete line before the end, or before a line of WINDOW bytes."""
    while (line_end := data.rfind(b"\n", at, at + WINDOW)) >= 0:
        at = line_end + 1
    return at


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
