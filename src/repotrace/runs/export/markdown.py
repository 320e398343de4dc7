"""A run as a page of Markdown for an issue or a pull request.

Nothing that was recorded can act in it: see `repotrace.markdown`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from repotrace import markdown as md
from repotrace.markdown import escape_cell, fence
from repotrace.readable import one_line, readable, seconds
from repotrace.records.blame import Blame
from repotrace.records.run import ExecutionStep, StepStatus
from repotrace.runs.export.account import Account, Failing, is_failed, lines_of, tests_of
from repotrace.runs.export.blamed import evidence, headline, hunks
from repotrace.runs.export.changes import LARGEST, Change, change_of
from repotrace.runs.export.cutting import cut
from repotrace.runs.export.selection import Selection
from repotrace.runs.trace_export import redactor

BRIEF = 65_536
"""Characters that an issue takes."""

_PROOFS = 5
"""Paths or words of an alert that are shown."""

_MARKS = {
    StepStatus.COMPLETED: "✅",
    StepStatus.FAILED: "❌",
    StepStatus.STARTED: "⏳",
    StepStatus.INTERRUPTED: "⚠️",
}


class _Room(NamedTuple):
    """How much of everything there is room for."""

    rows: int
    """Steps in the timeline."""
    cell: int
    """Characters of a cell."""
    text: int
    """Characters of a text."""
    items: int
    """Reasons, retries, tests, verdicts each."""
    diff: int
    """Lines of a diff."""
    diffs: int
    """Steps whose diffs are shown."""
    output: int
    """Characters of an output."""


_PLENTY = _Room(100_000, 300, 20_000, 100_000, 2_000, 100_000, 20_000)
_BRIEF = (
    _Room(400, 160, 2_000, 40, 120, 40, 8_000),
    _Room(200, 120, 800, 25, 60, 20, 5_000),
    _Room(100, 100, 400, 15, 30, 10, 3_000),
    _Room(60, 80, 250, 8, 15, 5, 1_500),
    _Room(30, 60, 150, 4, 8, 2, 600),
    _Room(10, 40, 80, 2, 0, 0, 200),
)


def run_page(selection: Selection) -> str:
    """The run for people. With `brief` of at most 65,536 characters."""
    account = Account(selection)
    masked = None if selection.options.allow_secrets else redactor().redact
    page = _Page(account, masked)
    if not selection.options.brief:
        return page.text(_PLENTY)
    for room in _BRIEF:
        text = page.text(room)
        if len(text) <= BRIEF:
            return text
    raise AssertionError("the least room is always enough")


class _Page:
    def __init__(self, account: Account, redact: Callable[[str], str] | None) -> None:
        self._account = account
        self._selection = account.selection
        self._redact = redact
        self._changes: dict[str, list[Change]] | None = None

    def text(self, room: _Room) -> str:
        """The page, with so much of everything."""
        limit = self._selection.options.max_bytes
        if limit is not None:
            room = room._replace(text=min(room.text, limit), output=min(room.output, limit))
        sections = (
            self._head(),
            self._task(room),
            self._summary(room),
            self._blame(room),
            self._alerts(room),
            self._outcome(room),
            self._timeline(room),
            self._decisions(room),
            self._retries(room),
            self._diffs(room),
        )
        return "\n".join(line for section in sections for line in section).rstrip("\n") + "\n"

    # --- Sections ---------------------------------------------------------------------------

    def _head(self) -> Iterator[str]:
        account = self._account
        mark = {True: "✅ ", False: "❌ ", None: ""}[account.is_good]
        yield f"# {md.inline(one_line(account.title, 120))}"
        yield ""
        totals = account.run.totals
        facts = [f"{mark}**{md.inline(account.outcome)}**"]
        if account.broken:
            facts.append(f"❌ **{account.broken}**")
        facts.append(_many(totals.steps, "step"))
        if totals.retries:
            facts.append(_many(totals.retries, "retry", "retries"))
        facts.append(f"{totals.tokens_used:,} tokens")
        if totals.cost_usd:
            facts.append(f"\\${totals.cost_usd:.2f}")
        duration = self._selection.view.duration
        if duration is not None:
            facts.append(seconds(duration))
        yield " · ".join(facts)
        yield ""

    def _task(self, room: _Room) -> Iterator[str]:
        task = (self._account.run.task or "").strip()
        if not task or ("\n" not in task and len(task) <= 120):
            return
        lines = fence(readable(cut(task, room.text)))
        yield from _folded("What was asked", lines)
        yield ""

    def _summary(self, room: _Room) -> Iterator[str]:
        yield "| | |"
        yield "| --- | --- |"
        for name, text in self._account.facts.items():
            yield f"| {name} | {_cell(text, max(room.cell, 120))} |"
        yield ""

    def _blame(self, room: _Room) -> Iterator[str]:
        blames = self._selection.blames
        if not blames:
            return
        yield "## What broke it"
        yield ""
        for blame in blames[: room.items]:
            yield from self._verdict(blame, room)
        yield from _more(len(blames) - room.items, "verdict")

    def _verdict(self, blame: Blame, room: _Room) -> Iterator[str]:
        about = md.code_span(one_line(blame.test or blame.command, room.cell * 2))
        yield f"- {about} — {md.inline(one_line(headline(blame), room.cell * 3))}"
        for sentence in islice(evidence(blame), room.items * 4):
            yield f"  - {md.inline(one_line(sentence, room.cell * 3))}"
        lines: list[str] = []
        for hunk in hunks(blame):
            lines += [f"# {hunk.path}", *hunk.lines]
        if lines and room.diff:
            yield ""
            shown = _first_lines(lines, room.diff, room.text)
            yield from (f"  {line}" for line in fence("\n".join(shown), "diff"))
        yield ""

    def _alerts(self, room: _Room) -> Iterator[str]:
        alerts = self._account.alerts
        if not alerts:
            return
        yield "## Worth a look"
        yield ""
        for alert in alerts[: room.items]:
            where = f", step {alert.step}" if alert.step else ""
            message = md.inline(one_line(alert.message, room.cell * 3))
            yield f"- **{md.inline(alert.rule)}**{where}: {message}"
            for proof in alert.evidence[: _PROOFS if room.items > _PROOFS else 1]:
                yield f"  - {md.code_span(one_line(proof, room.cell * 2))}"
        yield from _more(len(alerts) - room.items, "alert")
        yield ""

    def _outcome(self, room: _Room) -> Iterator[str]:
        account = self._account
        failing = account.failing
        yield "## Outcome"
        yield ""
        if failing:
            yield f"{_many(len(failing), 'test')} failed when last seen:"
            yield ""
            for one in failing[: room.items]:
                yield from self._failing(one, room)
            yield from _more(len(failing) - room.items, "failing test")
        elif account.failed_command is not None and account.is_good is not True:
            command = account.failed_command
            line = md.code_span(one_line(command.command_line, room.cell * 2))
            number = account.numbers.get(command.step_id, 0)
            yield f"The last command that failed, in step {number} with {command.exit_code}: {line}"
            yield ""
            text = (command.command.stdout.text + command.command.stderr.text)[-room.output :]
            yield from md.output(text, "The output") if text.strip() else ()
            yield ""
        else:
            yield f"{md.inline(account.outcome.capitalize())}, as the run saw it."
            yield ""
        repaired = account.repaired
        for one in repaired[: room.items]:
            name = md.code_span(one_line(one.outcome.node_id, room.cell * 2))
            yield f"- {name} failed in step {one.step_number}, repaired in step {one.repaired_in}"
        yield from _more(len(repaired) - room.items, "repaired test")
        yield ""

    def _failing(self, one: Failing, room: _Room) -> Iterator[str]:
        name = one_line(one.outcome.node_id, room.cell * 2)
        text = one.outcome.details or one.outcome.message or ""
        where = f" (step {one.step_number})"
        if not text.strip():
            yield f"- {md.code_span(name)}{where}"
            yield ""
            return
        lines = fence(readable(text[-room.output :]).strip("\n"), "text")
        yield from _folded(f"{name}{where}", lines)
        yield ""

    def _timeline(self, room: _Room) -> Iterator[str]:
        steps = self._selection.steps
        places = {step.id: place for place, step in enumerate(steps)}
        yield "## Timeline"
        yield ""
        yield "| | # | step | files | tests | time |"
        yield "| --- | --- | --- | --- | --- | --- |"
        shown = _ends(steps, room.rows)
        for before, step in zip([None, *shown], shown, strict=False):
            gap = 0 if before is None else places[step.id] - places[before.id] - 1
            if gap:
                yield f"| | | … {_many(gap, 'step')} left out | | | |"
            yield self._row(step, room)
        yield ""

    def _row(self, step: ExecutionStep, room: _Room) -> str:
        line = self._account.line(step)
        failed = line.tests is not None and line.tests.failing
        status = StepStatus.FAILED if failed else step.status
        mark = _MARKS.get(status, "") or _cell(status, 20)  # type: ignore[call-overload]
        what = f"{step.step_type}: {step.description}" if step.description else step.step_type
        notes = [f"attempt {step.attempt}"] if step.attempt > 1 else []
        notes += [f"label {step.label}"] if step.label else []
        what += f" ({', '.join(notes)})" if notes else ""
        depth = "· " * min(line.depth, 4)
        files = ", ".join(line.files[:2])
        files += f" and {len(line.files) - 2} more" if len(line.files) > 2 else ""
        files += lines_of(line) if files else ""
        cells = (
            mark,
            str(step.step_number),
            depth + _cell(what, room.cell),
            _cell(files, room.cell),
            _cell(tests_of(line), 40),
            self._account.took(step),
        )
        return f"| {' | '.join(cells)} |"

    def _decisions(self, room: _Room) -> Iterator[str]:
        reasons = list(self._account.reasons())
        if not reasons or not self._selection.options.llm:
            return
        yield "## Decisions"
        yield ""
        for first, last, reason in reasons[: room.items]:
            words = one_line(reason, min(room.text, 600))
            numbers = f"Step {first}" if first == last else f"Steps {first} to {last}"
            yield f"- **{numbers}**: {md.inline(words)}"
        yield from _more(len(reasons) - room.items, "reason")
        yield ""

    def _retries(self, room: _Room) -> Iterator[str]:
        retries = list(self._account.retries())
        if not retries:
            return
        yield "## Retries"
        yield ""
        for step, earlier in retries[: room.items]:
            again = f"step {earlier} again" if earlier else "again"
            end = "failed" if is_failed(step) else "succeeded"
            error = f": {md.inline(one_line(step.error, room.cell * 2))}" if step.error else ""
            tried = f"tries {again}, attempt {step.attempt}, and {end}{error}"
            yield f"- **Step {step.step_number}** {tried}"
        yield from _more(len(retries) - room.items, "retry", "retries")
        yield ""

    def _diffs(self, room: _Room) -> Iterator[str]:
        if not self._selection.options.files or not room.diff:
            return
        changes = self._changed()
        if not changes:
            return
        yield "## Changes"
        yield ""
        steps = [step for step in self._selection.steps if step.id in changes]
        for step in steps[: room.diffs]:
            own = changes[step.id]
            names = ", ".join(f"{one.operation.file_path} {one.counts}".strip() for one in own[:3])
            names += f" and {len(own) - 3} more" if len(own) > 3 else ""
            lines = [line for one in own for line in one.diff]
            shown = _first_lines(lines, room.diff, room.text)
            title = f"Step {step.step_number}: {names}"
            yield from _folded(one_line(title, 200), fence("\n".join(shown), "diff"))
            yield ""
        yield from _more(len(steps) - room.diffs, "step with changes", "steps with changes")

    def _changed(self) -> dict[str, list[Change]]:
        if self._changes is None:
            found: dict[str, list[Change]] = {}
            limit = self._selection.options.max_bytes or LARGEST
            for operation in self._selection.trace.file_operations:
                change = change_of(operation, self._redact, limit)
                found.setdefault(operation.step_id, []).append(change)
            self._changes = found
        return self._changes


def _ends(steps: list[ExecutionStep], most: int) -> list[ExecutionStep]:
    """The steps, or the first and the last ones and failures between them."""
    if len(steps) <= most:
        return steps
    third = max(1, most // 3)
    middle = [step for step in steps[third:-third] if is_failed(step)][: most - 2 * third]
    return [*steps[:third], *middle, *steps[-third:]]


def _cell(text: str, limit: int) -> str:
    return escape_cell(one_line(text, limit))


def _folded(summary: str, lines: list[str]) -> list[str]:
    return ["<details>", f"<summary>{escape_cell(summary)}</summary>", "", *lines, "", "</details>"]


def _first_lines(lines: list[str], most: int, characters: int) -> list[str]:
    """The lines, each and all of them within bounds."""
    shown: list[str] = []
    left = max(characters, 400) * 4
    for line in lines[:most]:
        line = line if len(line) <= 400 else line[:400] + "…"
        left -= len(line)
        if left < 0:
            break
        shown.append(line)
    missing = len(lines) - len(shown)
    return [*shown, f"[… {_many(missing, 'more line')} …]"] if missing else shown


def _more(count: int, noun: str, plural: str = "") -> Iterator[str]:
    if count > 0:
        yield f"- … and {_many(count, f'more {noun}', f'more {plural or noun + "s"}')}"
        yield ""


def _many(count: int, noun: str, plural: str = "") -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
