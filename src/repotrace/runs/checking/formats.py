"""A check in the formats that other programs read: JUnit, GitHub, Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

from repotrace.markdown import annotation, code_span, details, fence, inline
from repotrace.readable import one_line, visible
from repotrace.records.blame import (
    COUNTS_AS_BROKEN,
    COUNTS_AS_UNDECIDED,
    Blame,
    Change,
    Check,
    CheckedTest,
)

WORDS = {
    Change.BROKEN: "passed before and fails now",
    Change.HIDDEN: "fails now as it was",
    Change.NEW_FAILING: "is new and fails",
    Change.NOT_COLLECTED: "cannot be collected any more",
    Change.FLAKY: "comes and goes",
    Change.UNDECIDED: "could not be checked",
    Change.DELETED: "was deleted",
    Change.GONE: "is no longer collected",
    Change.SKIPPED: "is skipped now",
    Change.XFAILED: "is expected to fail now",
    Change.WEAKENED: "asserts something else now",
    Change.FIXED: "failed before and passes now",
    Change.NEW: "is new",
    Change.FAILED_BEFORE: "failed before too",
}
"""What is said of a test, after its name."""

_HOW = {
    Change.DELETED: "was deleted",
    Change.GONE: "is no longer collected",
    Change.SKIPPED: "was skipped",
    Change.XFAILED: "is expected to fail",
}
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no way to write."""


def words_of(entry: CheckedTest) -> str:
    """What became of the test, as the rest of a sentence."""
    change = Change(entry.change)
    if change is Change.HIDDEN:
        return f"{_HOW.get(Change(entry.how), 'changed')}, and {WORDS[change]}"
    words = WORDS[Change(entry.how) if entry.how else change]
    if entry.original is not None:
        verb = {"passed": "passes", "failed": "fails", "error": "fails"}
        told = verb.get(entry.original, entry.original)
        words += f"; as it was it {told} on the final code"
    return words


def agent_words(entry: CheckedTest) -> str:
    """`run by the agent: yes, step 9: passed`."""
    if entry.by_agent == "unknown":
        return ""
    if entry.agent_step is None:
        return f"run by the agent: {entry.by_agent}"
    result = f": {entry.agent_result}" if entry.agent_result else ""
    return f"run by the agent: {entry.by_agent}, last in step {entry.agent_step}{result}"


def step_words(entry: CheckedTest) -> str:
    """The step that did it, with the verdict of blame; empty if nothing is known."""
    if entry.blame is not None:
        return blame_words(entry.blame)
    return f"step {entry.step}" if entry.step is not None else ""


def blame_words(blame: Blame) -> str:
    """`step 7 (edit src/a.py), proven`, or why no step is named."""
    if blame.named and not blame.steps and not blame.run_id and blame.breaks:
        found = blame.breaks[0]
        passed, failed = found.passed + found.given_passed, found.failed + found.given_failed
        proof = f"passes on the base ({passed}/{passed}), fails on the final state"
        return f"{blame.verdict}: {proof} ({failed}/{failed}); by chance {found.chance}"
    if not blame.named or not blame.steps:
        return f"{blame.verdict}: {blame.reason}"
    named = [f"step {step.number} ({step.description or step.step_type})" for step in blame.steps]
    return f"{', '.join(named)}, {blame.verdict}"


def check_text(check: Check, format: str) -> str:  # noqa: A002 - the option's name
    """The check as `json`, `junit`, `github` or `markdown`; KeyError for another format."""
    return FORMATS[format](check)


def check_json(check: Check) -> dict[str, Any]:
    """The check as one JSON object."""
    found = check.model_dump(mode="json")
    found |= {"broken": check.broken, "undecided": check.undecided}
    return found | {"exit_code": check.exit_code, "summary": check.summary}


def _json(check: Check) -> str:
    import json

    text = json.dumps(check_json(check), indent=2, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n"


# --- JUnit ----------------------------------------------------------------------------------


def _junit(check: Check) -> str:
    suite = ElementTree.Element(
        "testsuite",
        name="repotrace check",
        tests=str(check.total),
        failures=str(check.broken),
        errors=str(check.undecided + sum(not side.complete for side in (check.base, check.final))),
        skipped=str(len(check.unchecked)),
    )
    for entry in check.tests:
        case = _case(suite, entry.test)
        if entry.change in COUNTS_AS_BROKEN:
            kind = "failure"
        elif entry.change in COUNTS_AS_UNDECIDED:
            kind = "error"
        else:
            told = [words_of(entry), *(f"- {text}" for text in entry.lost), step_words(entry)]
            output = ElementTree.SubElement(case, "system-out")
            output.text = _xml("\n".join(line for line in told if line) + "\n")
            continue
        problem = ElementTree.SubElement(case, kind, message=_xml(words_of(entry)))
        problem.set("type", entry.change)
        lines = [entry.message, step_words(entry), agent_words(entry)]
        problem.text = _xml("\n".join(line for line in lines if line) + "\n")
    for test in check.unchecked:
        ElementTree.SubElement(_case(suite, test), "skipped", message="not checked: budget")
    for side in (check.base, check.final):
        if not side.complete:
            case = _case(suite, f"the suite on {side.about}")
            message = _xml(side.problem or "it did not run to its end")
            ElementTree.SubElement(case, "error", message=message, type="incomplete")
    rest = check.total - len(check.tests) - len(check.unchecked)
    if rest > 0:
        _case(suite, f"{rest} other {'test' if rest == 1 else 'tests'}")
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    head = '<?xml version="1.0" encoding="utf-8"?>\n'
    return head + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, test: str) -> ElementTree.Element:
    file, _, name = test.partition("::")
    place = file.removesuffix(".py").replace("/", ".") if name else "repotrace"
    return ElementTree.SubElement(
        suite, "testcase", classname=_xml(place), name=_xml(name or file), time="0.000"
    )


def _xml(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", visible(text))


# --- GitHub ---------------------------------------------------------------------------------


def _github(check: Check) -> str:
    lines = []
    for entry in check.tests:
        level = "error" if entry.change in COUNTS_AS_BROKEN else "warning"
        quiet = (Change.FIXED, Change.NEW, Change.FAILED_BEFORE)
        if entry.change in quiet:
            continue
        parts = [words_of(entry), entry.message, step_words(entry), agent_words(entry)]
        text = "; ".join(one_line(part) for part in parts if part)
        file = entry.test.partition("::")[0]
        lines.append(annotation(level, text, title=entry.test, file=file))
    for side in (check.base, check.final):
        if not side.complete:
            text = f"the suite on {side.about} did not run to its end: {side.problem}"
            lines.append(annotation("warning", one_line(text), title="repotrace check"))
    return "\n".join([*lines, check.summary]) + "\n"


# --- Markdown -------------------------------------------------------------------------------

_TITLES = {
    "Broken": COUNTS_AS_BROKEN,
    "Undecided": COUNTS_AS_UNDECIDED,
    "Deleted, skipped or changed": (
        *(Change.DELETED, Change.GONE, Change.SKIPPED, Change.XFAILED, Change.WEAKENED),
    ),
    "Fixed": (Change.FIXED,),
    "New": (Change.NEW,),
    "Failed before too": (Change.FAILED_BEFORE,),
}


def _markdown(check: Check) -> str:
    lines = ["## repotrace check", "", inline(check.summary), ""]
    for side in (check.base, check.final):
        told = f"{side.tests} tests, {side.failed} failing"
        if not side.complete:
            told += f"; it did not run to its end: {side.problem}"
        lines.append(f"- {side.name}: {inline(side.about)}: {inline(told)}")
    lines += [f"- command: {code_span(check.command)}", ""]
    for title, changes in _TITLES.items():
        entries = check.having(*changes)
        if not entries:
            continue
        body = [line for entry in entries for line in _markdown_entry(entry)]
        if title in ("Fixed", "New", "Failed before too"):
            lines += [*details(f"{title} ({len(entries)})", body), ""]
        else:
            lines += [f"### {title}", "", *body, ""]
    if check.unchecked:
        body = [f"- {code_span(test)}" for test in check.unchecked]
        lines += [*details(f"Not checked ({len(body)})", body), ""]
    lines += [f"> {inline(note)}" for note in check.notes]
    return "\n".join(lines).rstrip("\n") + "\n"


def _markdown_entry(entry: CheckedTest) -> Iterator[str]:
    yield f"- {code_span(entry.test)} {inline(words_of(entry))}"
    for text in (step_words(entry), agent_words(entry)):
        if text:
            yield f"  - {inline(text)}"
    if entry.message:
        yield f"  - {code_span(one_line(entry.message, 300))}"
    for sign, texts in (("-", entry.lost), ("+", entry.gained)):
        for text in texts:
            yield f"  - {code_span(f'{sign} {text}')}"
    if entry.blame is not None:
        for found in entry.blame.breaks:
            for hunk in found.hunks or ():
                shown = fence("\n".join([f"{hunk.path} {hunk.what}".strip(), *hunk.lines]), "diff")
                yield from ("", *(f"  {line}" for line in shown), "")


FORMATS: dict[str, Callable[[Check], str]] = {
    "json": _json,
    "junit": _junit,
    "github": _github,
    "markdown": _markdown,
}
"""How a check is written for other programs."""
