"""What a generated test compares, and what it must mask to compare it anywhere."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from repotrace.config import UserRule
from repotrace.generator.embedded import replaced
from repotrace.normalize import masks_for, normalize
from repotrace.records.command import CommandRun, Output, Places, Termination
from repotrace.records.trace import STREAMS
from repotrace.redact import PLACEHOLDER_BYTES, strip_digests
from repotrace.signatures import signature_of

type Pairs = Sequence[tuple[str, str]]

PLACE_NAMES = ("cwd", "repository", "venv", "python", "tmp", "home")
_TERMINAL_RULES = frozenset({"ansi", "progress", "crlf"})
_KEPT_LINES = 20
_OPTIONAL_MARKS = re.compile("[\u2713\u2714\u221a\u2715\u2717\u2716\u00d7\u276f\u2193\u25cb]")
_BARS = "│┃║╎┆┊"
_ALL_BARS = re.compile(r"[\s│┃║╎┆┊|╭╮╰╯┌┐└┘├┤┏┓┗┛─━═]+")
_TABLE_ROW = re.compile(r"\s*\|.*\|\s*")
_TERMINAL_WIDTH = 80


class Check(StrEnum):
    """How one stream is compared."""

    EQUAL = "equal"
    BEGINNING = "beginning"
    """One is the beginning of the other: how far a hanging command gets depends on the machine."""
    LAYOUT = "layout"
    """Not at all: where its lines break depends on how long a path is."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Stream:
    """What is expected of one stream."""

    name: str
    """`stdout` or `stderr`."""
    expected: str | bytes
    check: Check
    redacted: bool = False
    """Some of it is redacted, and anything may stand there."""
    lines: tuple[int, int] | None = None
    """How many lines of the beginning and the end are kept; None: all of them."""
    digest: bool = False
    """Of a shortened stream: the digest of the whole stands between its parts."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is expected of both streams."""

    stdout: Stream
    stderr: Stream
    places: tuple[str, ...] = ()
    """The folders, by field of `Places`, that are masked in the output."""
    terminal: Pairs = ()
    """Masks to apply before the folders'."""
    own: Pairs = ()
    """Masks of the project's own, to apply between these two."""
    masks: Pairs = ()
    """Masks to apply after them."""
    traits: tuple[str, ...] = ()
    """Of the failure, where a stream is not compared: texts that the output holds."""

    @property
    def streams(self) -> tuple[Stream, Stream]:
        return self.stdout, self.stderr

    @property
    def masked(self) -> bool:
        return bool(self.places or self.terminal or self.own or self.masks)

    @property
    def shortened(self) -> bool:
        return any(stream.lines is not None for stream in self.streams)


def expectation_of(
    run: CommandRun, *, match_output: bool, exact: bool, user_rules: Sequence[UserRule] = ()
) -> Expectation:
    """What a test of `run` compares. `exact`: every byte, nothing masked."""
    if not match_output:
        stdout, stderr = (_verbatim(run, name, Check.NONE) for name in STREAMS)
        return Expectation(stdout, stderr)
    check = Check.BEGINNING if is_hang(run) else Check.EQUAL
    masking = _Masking(run, user_rules)
    if exact or not masking.needed:
        streams = [_verbatim(run, name, check) for name in STREAMS]
        return Expectation(*_merged(run, streams))
    streams = [masking.stream(name, check) for name in STREAMS]
    traits: tuple[str, ...] = ()
    if any(stream.check is Check.LAYOUT for stream in streams):
        traits = _traits(run)
    stdout, stderr = _merged(run, streams)
    return Expectation(
        stdout,
        stderr,
        places=tuple(masking.places) if _any_compared(streams) else (),
        terminal=tuple(masking.terminal) if _any_compared(streams) else (),
        own=tuple(masking.own) if _any_compared(streams) else (),
        masks=tuple(masking.masks) if _any_compared(streams) else (),
        traits=traits,
    )


def is_hang(run: CommandRun) -> bool:
    """Whether the record says that it was still running when somebody lost patience."""
    if run.termination is Termination.TIMEOUT:
        return run.timeout is not None
    return run.termination is Termination.INTERRUPTED


def places_of(run: CommandRun) -> Places:
    """The folders of the run, its cwd at least."""
    if run.places.cwd or not run.cwd:
        return run.places
    return run.places.model_copy(update={"cwd": run.cwd})


def recorded_folders(run: CommandRun, names: Iterable[str]) -> list[tuple[str, str]]:
    """Path and placeholder of each of these folders, as they were."""
    places = places_of(run)
    pairs: dict[str, str] = {}
    for name in PLACE_NAMES:
        if name not in names:
            continue
        for path in (getattr(places, name), run.cwd if name == "cwd" else None):
            if path and path.strip("/"):
                pairs.setdefault(path.rstrip("/"), f"<{name}>")
    return list(pairs.items())


def as_text(data: bytes) -> str:
    """`data` as the generated tests decode it: without loss."""
    return data.decode("utf-8", "surrogateescape")


def as_literal_value(text: str) -> str | bytes:
    """`text` if UTF-8 can express it, else its bytes."""
    data = text.encode("utf-8", "surrogateescape")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


class _Masking:
    """The few masks that the output of one run needs, and the output behind them."""

    def __init__(self, run: CommandRun, user_rules: Sequence[UserRule]) -> None:
        self._run = run
        places = places_of(run)
        kept = {name: _kept(output) for name, output in _outputs(run)}
        rules: set[str] = set()
        for data, _ in kept.values():
            rules |= normalize(data, places, user_rules).rules
        rules.discard("redaction")
        self.needed = bool(rules)
        self.places = [name for name in PLACE_NAMES if name in rules]
        self._folders = recorded_folders(run, self.places)
        texts = [as_text(strip_digests(data)) for data, _ in kept.values()]
        self.terminal = _firing(masks_for(rules & _TERMINAL_RULES), texts)
        self._visible = [_applied(self.terminal, text) for text in texts]
        own = [(f"(?m){rule.pattern}", rule.replacement) for rule in user_rules]
        self.own = _firing(own, self._visible)
        bare = [replaced(_applied(self.own, text), self._folders) for text in self._visible]
        self.masks = _firing(masks_for(rules - _TERMINAL_RULES), bare)
        self._texts = {
            name: _applied(self.masks, text) for name, text in zip(kept, bare, strict=True)
        }
        self._kept_lines = {name: lines for name, (_, lines) in kept.items()}

    def stream(self, name: str, check: Check) -> Stream:
        visible = self._visible[0 if name == "stdout" else 1]
        if check is Check.EQUAL and depends_on_layout(visible, self._run):
            check = Check.LAYOUT
        output: Output = getattr(self._run, name)
        return Stream(
            name=name,
            expected=as_literal_value(self._texts[name]),
            check=check,
            redacted=bool(PLACEHOLDER_BYTES.search(output.data)),
            lines=self._kept_lines[name],
        )


def depends_on_layout(text: str, run: CommandRun) -> bool:
    """Whether the length of a folder's path moves what is around it: in a drawn box, in a row
    of a table, where a line is cut off, or where a path itself is broken over two lines."""
    folders = recorded_folders(run, PLACE_NAMES)
    for line in text.split("\n"):
        drawn = any(bar in line for bar in _BARS) or _TABLE_ROW.fullmatch(line)
        cut_off = line.endswith(("...", "…")) and len(line) >= _TERMINAL_WIDTH - 3
        if (drawn or cut_off) and replaced(line, folders) != line:
            return True
    joined = _ALL_BARS.sub("", text)
    deep = [path for path, _ in folders if path.count("/") > 1]
    return any(joined.count(_ALL_BARS.sub("", path)) > text.count(path) for path in deep)


def _traits(run: CommandRun) -> tuple[str, ...]:
    """Texts in the output that name the failure: the exception, the failing tests."""
    signature = run.signature or signature_of(run)
    if signature is None or not signature.typed:
        return ()
    output = as_text(run.stdout.data) + "\n" + as_text(run.stderr.data)
    names = [signature.exception, *signature.failing_tests]
    return tuple(name for name in names if name and name in output)


def _merged(run: CommandRun, streams: list[Stream]) -> tuple[Stream, Stream]:
    """Both streams; of one that went into the other nothing is compared."""
    stdout, stderr = streams
    if run.merge or run.pty:
        stderr = Stream("stderr", stderr.expected, Check.NONE)
    return stdout, stderr


def _any_compared(streams: Iterable[Stream]) -> bool:
    return any(stream.check in (Check.EQUAL, Check.BEGINNING) for stream in streams)


def _verbatim(run: CommandRun, name: str, check: Check) -> Stream:
    output: Output = getattr(run, name)
    data, lines = _kept(output)
    redacted = bool(PLACEHOLDER_BYTES.search(data))
    digest = lines is not None and bool(output.sha256) and not redacted
    if lines is not None:
        middle = f"[... SHA-256 of all: {output.sha256}]\n" if digest else "[...]\n"
        data = data.replace(_CUT, middle.encode())
    return Stream(
        name=name,
        expected=as_literal_value(as_text(strip_digests(data))),
        check=check,
        redacted=redacted,
        lines=lines,
        digest=digest,
    )


_CUT = b"[...]\n"


def _outputs(run: CommandRun) -> list[tuple[str, Output]]:
    return [("stdout", run.stdout), ("stderr", run.stderr)]


def _kept(output: Output) -> tuple[bytes, tuple[int, int] | None]:
    """A stream as the test sees it: of a cut one only whole lines, and how many of them."""
    if not output.cut:
        return output.head, None
    first = output.head.split(b"\n")[:-1][:_KEPT_LINES]
    last = io.BytesIO(output.tail.partition(b"\n")[2]).readlines()[-_KEPT_LINES:]
    start = b"".join(line + b"\n" for line in first)
    return start + _CUT + b"".join(last), (len(first), len(last))


def _applied(masks: Pairs, text: str) -> str:
    for pattern, replacement in masks:
        text = re.sub(pattern, replacement, text)
    return text


def _firing(masks: Pairs, texts: Sequence[str]) -> list[tuple[str, str]]:
    """Those of `masks` that change something, in the order and as often as they are needed."""
    found: list[tuple[str, str]] = []
    texts = list(texts)
    for turn in range(3):
        before = list(texts)
        for pattern, replacement in masks:
            changed = [re.sub(pattern, replacement, text) for text in texts]
            # A fast test shows no time, so this mask may be needed where it changes nothing.
            optional = turn == 0 and "✓" in pattern and any(map(_OPTIONAL_MARKS.search, texts))
            if changed != texts or optional:
                found.append((pattern, replacement))
            texts = changed
        if texts == before:
            break
    return found
