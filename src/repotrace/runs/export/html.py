"""A run as one page of HTML: no script, nothing loaded, nothing that was recorded acts."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from hashlib import sha256

from repotrace._version import __version__
from repotrace.read.views import Alert
from repotrace.readable import one_line, seconds
from repotrace.records.blame import Blame
from repotrace.records.run import FAILING
from repotrace.runs.export.account import Account, Failing, lines_of
from repotrace.runs.export.blamed import evidence, headline, hunks
from repotrace.runs.export.cutting import cut
from repotrace.runs.export.elements import Html, element, join, output
from repotrace.runs.export.selection import Selection
from repotrace.runs.export.step_html import StepPages
from repotrace.runs.export.style import STYLE
from repotrace.runs.export.timeline import timeline

_MARKS = {
    "passed": "✓",
    "failed": "✗",
    "error": "!",
    "skipped": "-",
    "xfailed": "-",
    "xpassed": "✓",
}


def run_page(selection: Selection) -> str:
    """The whole page."""
    account = Account(selection)
    head = _head(account)
    sections = (
        _stats(account),
        _blame(selection.blames),
        _alerts(account),
        _outcome(account),
        _timeline(account),
        _grid(account),
        _steps(account),
        _about(account),
    )
    return document(account.title, join(head, element("main", *sections)))


def document(title: str, body: Html) -> str:
    """A page around its content. It may load nothing, run nothing and send nothing."""
    digest = base64.b64encode(sha256(STYLE.encode()).digest()).decode()
    policy = (
        "default-src 'none'; script-src 'none'; base-uri 'none'; form-action 'none';"
        f" style-src 'sha256-{digest}'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="generator", content=f"repotrace {__version__}"),
        element("title", one_line(title, 120)),
        Html(f"<style>{STYLE}</style>"),
    )
    foot = element("footer", f"Written by RepoTrace {__version__}. This page runs no script.")
    skip = element("a", "Skip to the steps", href="#steps", class_="skip")
    whole = element("html", head, element("body", skip, body, foot), lang="en")
    return f"<!doctype html>\n{whole}\n"


def chip(text: str, kind: str = "") -> Html:
    """A short fact in a frame."""
    return element("span", one_line(text, 120), class_=f"chip {kind}".strip())


# --- The top --------------------------------------------------------------------------------


def _head(account: Account) -> Html:
    run = account.run
    who = " · ".join(
        one_line(part, 80)
        for part in ("Run " + run.id, run.agent or "", ", ".join(run.models))
        if part.strip()
    )
    kind = {True: "good", False: "bad", None: ""}[account.is_good]
    chips = [chip(account.outcome, kind)]
    chips += [chip(account.broken, "bad")] if account.broken else []
    chips += [chip(run.status)]
    chips += [chip(f"#{tag}") for tag in run.tags]
    task = (run.task or "").strip()
    title = element("h1", one_line(account.title, 300))
    asked = None
    if "\n" in task or len(task) > 300:
        asked = element(
            "details",
            element("summary", "What was asked"),
            element("pre", cut(task, account.limit)),
            class_="fold",
        )
    return element(
        "header",
        element("p", who, class_="over"),
        title,
        element("div", *chips, class_="chips"),
        asked,
    )


def _stats(account: Account) -> Html:
    totals, view = account.run.totals, account.selection.view
    cards = [
        (f"{totals.steps:,}", f"steps, {totals.failed_steps} failed"),
        (f"{view.retries.count:,}", "retries"),
        (f"{totals.files_modified:,}", f"files changed{lines_of(totals)}"),
        (f"{totals.tests - totals.tests_failing:,} / {totals.tests:,}", "tests pass at the end"),
        (_short(totals.tokens_used), f"tokens, {totals.llm_calls} model calls"),
        (f"${totals.cost_usd:.2f}" if totals.cost_usd else "—", "model cost"),
        (seconds(view.duration) if view.duration is not None else "—", "from start to end"),
    ]
    if not totals.tests:
        del cards[3]
    items = (element("li", element("b", big), element("span", small)) for big, small in cards)
    return element("ul", *items, class_="stats")


def _short(count: int) -> str:
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


# --- What broke -----------------------------------------------------------------------------


def _blame(blames: list[Blame]) -> Html | None:
    if not blames:
        return None
    return element("section", element("h2", "What broke it"), *map(_verdict, blames), id="blame")


def _verdict(blame: Blame) -> Html:
    parts: list[Html] = [
        element("p", element("code", one_line(blame.test or blame.command, 300))),
        element("p", element("b", _linked(blame))),
    ]
    told = [element("li", one_line(sentence, 400)) for sentence in evidence(blame)]
    if told:
        parts.append(element("ul", *told))
    for hunk in hunks(blame):
        rows = [
            element("tr", element("td", line), class_={"+": "add", "-": "del"}.get(line[:1]))
            for line in hunk.lines
        ]
        name = element("div", element("b", one_line(hunk.path, 300)), class_="file")
        table = element("table", element("tbody", *rows))
        parts.append(element("div", name, table, class_="diff", tabindex=0, role="group"))
    return element("div", *parts, class_="card verdict" + ("" if blame.named else " unsure"))


def _linked(blame: Blame) -> Html:
    text = headline(blame)
    if not blame.named or len(blame.steps) != 1:
        return join(text)
    number = blame.steps[0].number
    return join("broken by ", _to_step(number), text.removeprefix(f"broken by step {number}"))


def _to_step(number: int, text: str = "") -> Html:
    return element("a", text or f"step {number}", href=f"#step-{number}")


def _alerts(account: Account) -> Html | None:
    if not account.alerts:
        return None
    items = (_alert(alert) for alert in account.alerts[:200])
    listed = element("div", element("ul", *items), class_="card verdict unsure")
    return element("section", element("h2", "Worth a look"), listed, id="alerts")


def _alert(alert: Alert) -> Html:
    where = join(" in ", _to_step(alert.step)) if alert.step else None
    proofs = [element("li", element("code", one_line(proof, 300))) for proof in alert.evidence]
    return element(
        "li",
        element("b", alert.rule),
        where,
        f": {one_line(alert.message, 400)}",
        element("ul", *proofs) if proofs else None,
    )


def _outcome(account: Account) -> Html | None:
    failing, repaired = account.failing, account.repaired
    if not failing and not repaired:
        return None
    parts = [_failing(one, account) for one in failing[:200]]
    if repaired:
        items = (
            element(
                "li",
                element("code", one_line(one.outcome.node_id, 300)),
                " failed in ",
                _to_step(one.step_number),
                ", repaired in ",
                _to_step(one.repaired_in or 0),
            )
            for one in repaired[:200]
        )
        parts.append(element("ul", *items, class_="tests"))
    title = (
        f"{len(failing)} failed when last seen" if failing else "Failed on the way, and repaired"
    )
    return element("section", element("h2", title), element("div", *parts, class_="card"))


def _failing(one: Failing, account: Account) -> Html:
    name = join(
        element("code", one_line(one.outcome.node_id, 300)), " in ", _to_step(one.step_number)
    )
    text = (one.outcome.details or one.outcome.message or "").strip("\n")
    if not text:
        return element("p", name, class_="fold plain")
    return element(
        "details",
        element("summary", name),
        element("pre", output(cut(text, account.limit)), tabindex=0),
        class_="fold",
        open=True,
    )


# --- Overviews ------------------------------------------------------------------------------


def _timeline(account: Account) -> Html | None:
    drawn = timeline(account)
    if drawn is None:
        return None
    return element(
        "section", element("h2", "Timeline"), element("div", drawn, class_="card timeline")
    )


def _grid(account: Account) -> Html | None:
    grid = account.selection.view.grid
    shown = {step.step_number for step in account.selection.steps}
    columns = [place for place, run in enumerate(grid.runs) if run.step_number in shown]
    if not columns or not grid.tests:
        return None
    head = element(
        "tr",
        element("th", "test", scope="col"),
        *(
            element(
                "th",
                _to_step(grid.runs[at].step_number, str(grid.runs[at].step_number)),
                scope="col",
            )
            for at in columns
        ),
    )
    rows = (
        element(
            "tr",
            element("th", one_line(row.node_id, 200), scope="row"),
            *(_cell(row.outcomes[at]) for at in columns),
        )
        for row in grid.tests[:500]
    )
    table = element("table", element("thead", head), element("tbody", *rows), class_="grid")
    noun = "other test" if grid.never_failed == 1 else "other tests"
    others = f"{grid.never_failed} {noun} never failed." if grid.never_failed else None
    title = "Tests by step"
    return element(
        "section",
        element("h2", title),
        element(
            "div",
            element(
                "div", table, class_="scroll", tabindex=0, role="group", aria_label="Tests by step"
            ),
            element("p", others, class_="quiet") if others else None,
            class_="card",
        ),
    )


def _cell(outcome: str | None) -> Html:
    if outcome is None:
        return element("td", "", aria_label="not run")
    kind = "bad" if outcome in FAILING else "good" if outcome in ("passed", "xpassed") else "warn"
    mark = _MARKS.get(outcome, one_line(outcome, 12))
    return element("td", mark, class_=kind, title=outcome, aria_label=outcome)


def _about(account: Account) -> Html:
    facts = [
        item
        for name, text in account.facts.items()
        for item in (element("dt", name), element("dd", one_line(text, 600)))
    ]
    return element(
        "section",
        element("h2", "About the run"),
        element("dl", *facts, class_="facts card"),
    )


# --- Steps ----------------------------------------------------------------------------------


def _steps(account: Account) -> Html:
    pages = StepPages(account)
    return element(
        "section",
        element("h2", "Steps", id="steps"),
        element("fieldset", *_filters(account, pages), class_="filter", aria_label="Which steps"),
        *(pages.step(step) for step in account.selection.steps),
    )


def _filters(account: Account, pages: StepPages) -> Iterator[Html]:
    kinds = [pages.kinds(step) for step in account.selection.steps]
    for name, kind, word in (
        ("all", "", "All"),
        ("failures", "is-failure", "Failures"),
        ("changes", "is-change", "Changes"),
        ("tests", "is-test", "Test runs"),
    ):
        count = sum(kind in found for found in kinds) if kind else len(kinds)
        yield element("input", type="radio", name="only", id=f"only-{name}", checked=not kind)
        yield element("label", f"{word} {count}", for_=f"only-{name}")
