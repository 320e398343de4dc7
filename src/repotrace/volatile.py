r"""What is volatile in the output of commands: the table of rules behind `normalize`.

Each rule is a regular expression that means the same on text and on its UTF-8 bytes: ASCII
classes only, other characters as literals. Group `a` is kept, group `v` is what varies. Where a
pattern could begin with a lookbehind, a literal or class comes first and the lookbehind follows
it: such patterns are searched several times faster.

Facts must survive: `timed out after 0.5 seconds` names a configured limit and `2 failed in 0.5s`
a measured time, so durations, ports and pids are taken from clear context only.
"""

# ruff: noqa: E501, RUF001 - tables of patterns and words read best unbroken

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

PLACE_NAMES = ("cwd", "repository", "venv", "python", "tmp", "home")
"""Fields of `Places`; of equal folders the first named wins."""


class VolatileRule(NamedTuple):
    """One pattern of a rule; rules of one name count as one to people."""

    name: str
    pattern: str
    placeholder: str
    numbered: bool = False
    """Equal values get equal numbers: `<pid1>`. Times and durations get none: whether two
    moments are equal depends on the speed of the machine."""
    needles: tuple[bytes, ...] = ()
    """A match holds one of these literals; none given: no such literal exists."""

    @property
    def regex(self) -> str:
        return f"(?am){self.pattern}"

    @property
    def template(self) -> str:
        """The replacement without numbers, for `re.sub`."""
        return (r"\g<a>" if "(?P<a>" in self.pattern else "") + self.placeholder


_NO_WORD_AFTER = r"(?![A-Za-z0-9_])"


def _terminal_rules() -> Iterator[VolatileRule]:
    # A lone escape goes too, so no new sequence can form from what is left.
    sequence = (
        r"(?:\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)"
        r"|[PX^_][^\x1b\n]*\x1b\\|[ -/]*[0-~])?){1,1000}"
    )
    yield VolatileRule("ansi", sequence, "", needles=(b"\x1b",))
    yield VolatileRule("progress", r"^[^\n]*\r(?=[^\r\n])", "", needles=(b"\r",))
    yield VolatileRule("crlf", r"\r+", "", needles=(b"\r",))


def _identity_rules() -> Iterator[VolatileRule]:
    # Addresses in use have at most 48 bits, or all upper ones set; 0x80070005 is an error code.
    address = r"(?:(?:0000)?[0-9a-fA-F]{9,12}|ffff[0-9a-f]{12})"
    needles = (b"0x",)
    yield VolatileRule(
        "address",
        rf"0x(?<![A-Za-z0-9_]0x)(?P<v>{address}){_NO_WORD_AFTER}",
        "0xADDR",
        numbered=True,
        needles=needles,
    )
    yield VolatileRule(
        "address",
        rf"(?P<a> at )0x(?P<v>[0-9a-fA-F]{{5,8}}){_NO_WORD_AFTER}",
        "0xADDR",
        numbered=True,
        needles=needles,
    )
    yield VolatileRule(
        "address",
        r"(?P<a> id=')(?P<v>[0-9]{9,15})(?='>)",
        "0xADDR",
        numbered=True,
        needles=(b" id='",),
    )
    four = "[0-9a-fA-F]{4}"
    yield VolatileRule(
        "uuid",
        rf"(?!0{{8}}-0000-0000)(?P<v>[0-9a-fA-F]{{8}}(?<![A-Za-z0-9_].{{8}})-{four}-{four}-{four}"
        rf"-[0-9a-fA-F]{{12}}){_NO_WORD_AFTER}",
        "<uuid>",
        numbered=True,
        needles=(b"-",),
    )


_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_CLOCK = "[0-2][0-9]:[0-5][0-9]:[0-6][0-9]"


def _timestamp_rules() -> Iterator[VolatileRule]:
    needles: tuple[bytes, ...]
    date = r"[12][0-9]{3}(?<![A-Za-z0-9.].{4})[-/](?:0[1-9]|1[0-2])[-/](?:0[1-9]|[12][0-9]|3[01])"
    time = (
        rf"(?:{_CLOCK}(?:[.,][0-9]{{1,9}})?|[0-2][0-9]:[0-5][0-9]|[0-2][0-9]-[0-5][0-9]-[0-6][0-9])"
    )
    zone = r"(?:Z| ?[+-][0-9]{2}:?[0-9]{2}| UTC| GMT)?"
    compact = r"[12][0-9]{3}(?<![A-Za-z0-9.].{4})(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])"
    forms = (
        (rf"{date}[T _]{time}{zone}{_NO_WORD_AFTER}", (b"-", b"/")),
        (rf"{compact}[T_-][0-2][0-9][0-5][0-9][0-6][0-9](?:[.,][0-9]{{1,9}})?Z?{_NO_WORD_AFTER}", ()),
        (rf"{_DAY}, [0-9]{{1,2}} {_MONTH} [0-9]{{4}} {_CLOCK}(?: (?:[+-][0-9]{{4}}|[A-Z]{{3,4}}))?", (b", ",)),
        (rf"{_DAY} {_MONTH} [ 0-9][0-9] {_CLOCK}(?: [A-Z]{{3,5}})? [0-9]{{4}}{_NO_WORD_AFTER}", (b":",)),
        (rf"[0-9]{{2}}/{_MONTH}/[0-9]{{4}}[: ]{_CLOCK}(?: [+-][0-9]{{4}})?", (b"/",)),
        (rf"^{_MONTH} [ 0-9][0-9] {_CLOCK}(?= )", (b":",)),
        (
            rf"{_CLOCK}(?:(?<=\n.{{8}})|(?<=\[.{{8}})|(?<=\A.{{8}}))(?:[.,][0-9]{{1,9}})?(?=[\] ])",
            (b":",),
        ),
    )  # fmt: skip
    for pattern, needles in forms:
        yield VolatileRule("timestamp", pattern, "<time>", needles=needles)
    yield VolatileRule(
        "timestamp", rf"(?P<a>[Ss]tart(?:ed)? at:? {{1,4}}){_CLOCK}", "<time>", needles=(b"tart",)
    )
    # An epoch is ten digits only from 2001 on, and named as one.
    yield VolatileRule(
        "timestamp",
        r"(?P<a>(?:[Tt]ime(?:[Ss]tamp)?|TIMESTAMP|epoch|EPOCH|ts|[acm]time|(?:created|updated)(?:_at)?|now)"
        r"['\"]?(?: ?[:=] ?| ))(?:1[0-9]{9}(?:\.[0-9]{1,9})?|1[0-9]{12}|1[0-9]{18})(?![0-9A-Za-z_.])",
        "<time>",
        needles=(b":", b"=", b" "),
    )


def _process_rules() -> Iterator[VolatileRule]:
    needles: tuple[bytes, ...]
    # Only ephemeral ports (from 32768 on): 8080 and 5432 were chosen by somebody.
    port = (
        r"(?P<v>3276[89]|327[7-9][0-9]|32[89][0-9]{2}|3[3-9][0-9]{3}|[45][0-9]{4}|6[0-4][0-9]{3}"
        r"|65[0-5][0-9]{2})(?![0-9A-Za-z_])"
    )
    hosts = r"(?:127\.0\.0\.1|localhost|\[::1\]|::1|0\.0\.0\.0)"
    for pattern, needles in (
        (rf"(?P<a>{hosts}(?::|['\"], ?)){port}", (b"127.0.0.1", b"localhost", b"::1", b"0.0.0.0")),
        (rf"(?P<a>[Pp]ort(?<![A-Za-z]port)(?<![A-Za-z]Port)['\"]?(?:=|: ?| )){port}", (b"ort",)),
    ):
        yield VolatileRule("port", pattern, "<port>", numbered=True, needles=needles)

    pid = rf"(?P<v>[0-9]{{1,7}}){_NO_WORD_AFTER}"
    crashes = "Segmentation|Abort|Killed|Terminated|Bus error|Illegal|Floating|Trace|Hangup|Quit"
    for pattern, needles in (
        (rf"(?P<a>(?:pid|PID|Pid)(?<![A-Za-z0-9].{{3}})['\"]?(?: ?[=:] ?| )){pid}", (b"pid", b"PID", b"Pid")),
        (rf"(?P<a>[Pp]rocess (?:\[|id[:= ]{{1,2}}|with (?:id|pid) )){pid}", (b"rocess ",)),
        (r"^(?P<a>==)(?P<v>[0-9]{1,7})(?===)", (b"==",)),
        (r"(?P<a>/proc/)(?P<v>[0-9]{1,7})(?=/)", (b"/proc/",)),
        (r"(?P<a>\((?:node|electron):)(?P<v>[0-9]{1,7})(?=\))", (b"(node:", b"(electron:")),
        (r"(?P<a><time>(?: [+-][0-9]{4})?\]? \[)(?P<v>[0-9]{1,7})(?=\])", (b"<time>",)),
        (r"^(?P<a><time> [^ \n]{1,64} [^ \[\n]{1,64}\[)(?P<v>[0-9]{1,7})(?=\]:)", (b"<time>",)),
        (r"^(?P<a>\[)(?P<v>[0-9]{1,7})(?=:0xADDR)", (b":0xADDR",)),
        (rf"(?P<a>line [0-9]{{1,9}}: )(?P<v> *[0-9]{{1,7}})(?= (?:{crashes}))", (b"line ",)),
        (r"(?P<a>^thread '[^'\n]{0,200}' \()(?P<v>[0-9]{1,9})(?=\) panicked)", (b") panicked",)),
    ):  # fmt: skip
        yield VolatileRule("pid", pattern, "<pid>", numbered=True, needles=needles)


def _temp_name_rules() -> Iterator[VolatileRule]:
    needles: tuple[bytes, ...]
    folder = r"(?P<a>(?:<tmp>|/tmp|/T)/"
    # Eight random characters hold a digit nine times in ten; a word of eight letters never does.
    random = r"(?=[a-z_]{0,7}[0-9])[a-z0-9_]{8}"
    for pattern, needles in (
        (r"(?P<v>pytest-of-[A-Za-z0-9_.-]{1,64}/pytest-[0-9]{1,9})", (b"pytest-of-",)),
        (rf"{folder})(?P<v>tmp[a-z0-9_]{{8}}|tmp\.[A-Za-z0-9]{{6,12}}){_NO_WORD_AFTER}", (b"/tmp",)),
        (rf"{folder})(?P<v>(?:cc|rustc)[A-Za-z0-9]{{6}}|go-build[0-9]{{5,20}}){_NO_WORD_AFTER}", (b"/cc", b"/rustc", b"/go-build")),
        (rf"{folder}[A-Za-z0-9_.-]{{0,60}}[-.])(?P<v>{random}){_NO_WORD_AFTER}", (b"<tmp>/", b"/tmp/", b"/T/")),
        (rf"{folder}[A-Za-z0-9_.-]{{0,60}}_)(?P<v>(?=[a-z]{{0,7}}[0-9])[a-z0-9]{{8}}){_NO_WORD_AFTER}", (b"<tmp>/", b"/tmp/", b"/T/")),
        (rf"(?P<v>tmp(?<![A-Za-z0-9_]tmp)(?!_){random}){_NO_WORD_AFTER}", (b"tmp",)),
        (rf"(?P<a>/deps/[A-Za-z0-9_]{{1,80}}-)(?P<v>[0-9a-f]{{16}}){_NO_WORD_AFTER}", (b"/deps/",)),
    ):  # fmt: skip
        yield VolatileRule("temp-name", pattern, "<temp>", numbered=True, needles=needles)


def _duration_rules() -> Iterator[VolatileRule]:
    needles: tuple[bytes, ...]
    whole, decimal = "[0-9]{1,9}", r"[0-9]{1,9}\.[0-9]{1,9}"
    either = rf"{whole}(?:\.[0-9]{{1,9}})?"
    small = "(?:ms|us|ns|µs|μs|milliseconds?|microseconds?)"
    unit = rf"(?:{small}|s|secs?|seconds?|m|min|minutes?|h|hours?)"
    measured = (
        rf"(?:{decimal} ?{unit}(?: \([0-9]{{1,9}}:[0-9]{{2}}:[0-9]{{2}}\))?|{whole} ?{small}"
        rf"|{whole}h {whole}m(?: {whole}s)?|{whole}m ?{either}s|{whole}:[0-9]{{2}}:[0-9]{{2}})"
    )
    did = "(?:[Dd]one|[Ff]inished|[Cc]ompleted|[Bb]uilt|[Cc]ompiled|packages?|succeeded|passed|failed)"
    spent = "(?:[Tt]ook|[Ee]lapsed|[Dd]uration|[Rr]untime|[Tt]ime)"
    label = rf"{spent}(?: time| elapsed| taken)?(?:_ms|_s)?['\"]?(?: is| was)?[:=]? {{0,12}}"
    end = _NO_WORD_AFTER
    mark = "(?:✓|✔|√|✕|✗|✖|×|❯|↓|○)"
    for pattern, needles in (
        (rf"(?P<a>in (?<![A-Za-z0-9_]in )){measured}{end}", (b"in ",)),
        (rf"(?P<a>{did} in ){whole} ?s{end}", (b" in ",)),
        (rf"(?P<a>^ *){decimal}s(?= +(?:call|setup|teardown) )", (b"call ", b"setup ", b"teardown ")),
        (rf"(?P<a>^(?:real|user|sys)[ \t]+)(?:{whole}m)?{whole}[.,]{whole}s?$", (b"real", b"user", b"sys")),
        (rf"(?P<a>^(?:ok|FAIL|---)[ \t]+[^ \t\n]{{1,300}}[ \t]+){decimal}s{end}", (b"ok", b"FAIL")),
        (rf"(?P<a>\[)(?: *{decimal}s)(?=\])", (b"s]",)),
        (r"(?P<a>\[)[0-9:]{4,9}<[0-9:?]{1,9}, *[0-9.?]{1,12} ?[A-Za-z]{0,12}/[A-Za-z]{1,8}(?=\])", (b"<",)),
        (rf"(?P<a>Time: +)(?:{either} ?(?:ms|s|m)(?:, estimated {either} ?(?:ms|s|m))?|{whole}:[0-9]{{2}}\.{whole}){end}", (b"Time:",)),
        (rf"(?P<a>{label}){either} ?(?:{small}|s|secs?|seconds?|minutes?|hours?){end}", (b"ook", b"apsed", b"uration", b"untime", b"ime")),
        (rf"(?P<a>(?:[Tt]ook|[Ee]lapsed|[Dd]uration)(?:_ms|_s)?['\"]?[:=]? {{0,4}}){decimal}(?![0-9A-Za-z_.])", (b"ook", b"apsed", b"uration")),
        (rf"(?P<a>(?:Passed|Failed|\(real\) =) +){decimal} sec{end}", (b" sec",)),
        (rf"(?P<a>(?:passing|failing|pending) \(){whole}(?:ms|s|m|h)(?=\))", (b"ing (",)),
        (rf"(?P<a>(?:transform|setup|collect|import|tests|environment|prepare|typecheck) ){either} ?m?s(?=[,)])", (b"ms,", b"ms)", b"s,", b"s)")),
    ):  # fmt: skip
        yield VolatileRule("duration", pattern, "<duration>", needles=needles)
    # Test runners leave the time of a fast test out, so here nothing may stay in its place.
    timed = rf"(?: \({either} ?m?s\)| {either} ?m?s){{1,50}}$"
    marked = rf"(?P<a>^ *{mark} [^\n]{{1,400}}?){timed}"
    yield VolatileRule("duration", marked, "", needles=(b"ms", b"s)", b"s\n"))
    for pattern, needles in (
        (rf"(?P<a>\()(?:{decimal} ?(?:{small}|s|secs?|seconds?)|{whole} ?{small})(?=\))", (b"s)", b"sec)")),
        (rf"{decimal} ?{small}{end}", (b"ms", b"us", b"ns", b"\xb5s", b"\xbcs", b"seconds")),
    ):  # fmt: skip
        yield VolatileRule("duration", pattern, "<duration>", needles=needles)


def _rule_width_rules() -> Iterator[VolatileRule]:
    character = "(?P<c>=|-|_|!|\\*|~|#|─|━|═|⎯)"
    canonical = r"\g<c>" * 10
    placeholders = "(?:cwd|repository|venv|python|tmp|home|uuid|time|port|pid|temp|duration)[0-9]*>"
    # Looked for ahead: a second open-ended repeat beside the first would take quadratic time.
    volatile = rf"(?=[^\n]*(?:<{placeholders}|0xADDR))"
    for pattern, template in (
        # ======== 1 failed in <duration> ========, whatever the width of the terminal
        (rf"^{character}(?P=c){{9,}} (?P<t>[^\n]*[^ \n]) (?P=c){{10,}}$", rf"{canonical} \g<t> {canonical}"),
        (rf"^{character}{volatile}(?P=c)* (?P<t>[^\n]*) (?P=c)+$", rf"{canonical} \g<t> {canonical}"),
        (rf"^{character}{volatile}(?P=c){{9,}}(?P<t> )", rf"{canonical}\g<t>"),
        (rf"^{volatile}(?P<t>[^\n]*[^ \n] ){character}(?P=c){{9,}}$", rf"\g<t>{canonical}"),
    ):  # fmt: skip
        yield _WidthRule("rule-width", pattern, template)


class _WidthRule(VolatileRule):
    """A rule whose placeholder is a whole template."""

    __slots__ = ()

    @property
    def template(self) -> str:
        return self.placeholder


VOLATILE_RULES: tuple[VolatileRule, ...] = (
    *_terminal_rules(),
    *_identity_rules(),
    *_timestamp_rules(),
    *_process_rules(),
    *_temp_name_rules(),
    *_duration_rules(),
    *_rule_width_rules(),
)
"""In the order of application. Folders are replaced before the first `address`."""
