"""A check on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from repotrace.readable import one_line, seconds, visible
from repotrace.records.blame import (
    COUNTS_AS_BROKEN,
    COUNTS_AS_UNDECIDED,
    Change,
    Check,
    CheckedTest,
    Suite,
)
from repotrace.render.blame import Facts, Row, blame_facts
from repotrace.render.runs_layout import count
from repotrace.runs.checking.formats import agent_words, words_of

MANY = 40
"""Tests of one kind that are listed; the rest is counted."""

_STYLES = {
    **dict.fromkeys(COUNTS_AS_BROKEN, "bold red"),
    **dict.fromkeys(COUNTS_AS_UNDECIDED, "yellow"),
    Change.FIXED: "green",
    Change.NEW: "green",
    Change.FAILED_BEFORE: "dim",
}
_TERSE = (Change.FIXED, Change.NEW, Change.FAILED_BEFORE)


def check_view(check: Check) -> RenderableType:
    """All of it but the last line."""
    rows = [_suite(check.base), _suite(check.final)]
    rows += [(Text("  note", "dim"), Text(visible(note), "dim")) for note in check.notes]
    parts: list[RenderableType] = [Facts(rows, column=9)]
    for change in Change:
        entries = check.having(change)
        if entries:
            parts += [Text(), *_kind(change, entries, check)]
    if check.unchecked:
        text = f"not checked: {count(len(check.unchecked), 'test')}, farther from what changed"
        parts += [Text(), Text(text, style="yellow")]
        parts += _listed(check.unchecked)
    return Group(*parts, Text())


def summary_line(check: Check) -> Text:
    """The last line."""
    style = {0: "green", 1: "bold red"}.get(check.exit_code, "yellow")
    return Text(check.summary, style=style)


def _suite(suite: Suite) -> Row:
    text = Text(f"{visible(suite.about)}: ")
    text.append(f"{count(suite.tests, 'test')}, {suite.passed} passed, {suite.failed} failed")
    if suite.duration is not None:
        text.append(f"  ({seconds(suite.duration)})", style="dim")
    if not suite.complete:
        text.append(f"  did not run to its end: {visible(suite.problem or '')}", style="yellow")
    return Text(f"  {suite.name}"), text


def _kind(change: Change, entries: list[CheckedTest], check: Check) -> Iterator[RenderableType]:
    if change in _TERSE:
        titles = {Change.FIXED: "fixed", Change.NEW: "new", Change.FAILED_BEFORE: "failed before"}
        yield Text(f"{titles[change]}: {len(entries)}", style=_STYLES[change])
        yield from _listed([entry.test for entry in entries])
        return
    shown = entries[:MANY]
    for entry, following in zip(shown, [*shown[1:], None], strict=True):
        if following is not None and _says_the_same(entry, following):
            yield _head(entry)
        else:
            yield from _entry(entry, check)
    if len(entries) > MANY:
        yield Text(f"  … and {len(entries) - MANY} more like that", style="dim")


def _says_the_same(one: CheckedTest, other: CheckedTest) -> bool:
    """Whether all that there is to say of two tests is the same: their file cannot be imported."""
    if one.blame is None or other.blame is None or one.blame.id != other.blame.id:
        return False
    return (words_of(one), agent_words(one)) == (words_of(other), agent_words(other))


def _head(entry: CheckedTest) -> Text:
    head = Text(visible(entry.test), style=_STYLES.get(Change(entry.change), "bold"))
    return head.append(f"  {words_of(entry)}", style="not bold default")


def _entry(entry: CheckedTest, check: Check) -> Iterator[RenderableType]:
    yield _head(entry)
    told = entry.blame is not None and entry.blame.breaks
    if entry.message and (not told or entry.change == Change.NOT_COLLECTED):
        yield Text(f"  message    {one_line(entry.message, 200)}")
    for sign, texts, style in (("-", entry.lost, "red"), ("+", entry.gained, "green")):
        for text in texts[:5]:
            yield Text(f"  {sign} {one_line(text, 200)}", style=style)
    if entry.step is not None and (entry.blame is None or not entry.blame.named):
        yield Text(f"  changed in step {entry.step}")
    agent = agent_words(entry)
    if agent:
        style = "dim" if entry.by_agent == "yes" else ""
        yield Facts([(Text(), Text(agent, style))], column=2)
    if entry.blame is not None:
        yield blame_facts(entry.blame)
    elif (entry.change in COUNTS_AS_BROKEN or entry.stuck) and check.run_id is not None:
        yield Text(f"  next       repotrace blame {check.run_id} '{visible(entry.test)}'")


def _listed(names: list[str] | tuple[str, ...]) -> Iterator[Text]:
    for name in names[:10]:
        yield Text(f"  {visible(name)}", style="dim")
    if len(names) > 10:
        yield Text(f"  … and {len(names) - 10} more", style="dim")
