"""`repotrace runs search`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from repotrace.cli.options import JsonOption, note, open_runs, print_json, say, the_run
from repotrace.readable import one_line

LIMIT = 20


def runs_search(
    ctx: typer.Context,
    query: Annotated[
        list[str], typer.Argument(metavar="QUERY...", help="Words, phrases and filters")
    ],
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Search this run only")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="At most so many results")
    ] = LIMIT,
    as_json: JsonOption = False,
) -> None:
    """Find steps by words, files, tests, status, cost, …

    All words must occur in one text: a task, a message, an output, a path, a test id, a reason. A
    phrase is in quotes; -word must not occur. Filters: status: outcome: agent: model: tag: run:
    source: since: until: cost:>0.5 tokens:>10k retries:>2 steps: files: choose runs, and so do
    file: read: test:; type: and step:failed choose steps. -filter: the others.
    """
    now = datetime.now(UTC)
    opened = open_runs(ctx)
    from repotrace.read.search import search_runs

    run_id = None if run is None else the_run(opened, run).id
    text = _joined(query)
    found = search_runs(opened.store, text, now=now, run_id=run_id, limit=limit)
    if as_json:
        print_json(found.json_object())
        return
    if not found.hits:
        say("nothing found")
        for sentence in found.advice:
            note(one_line(sentence, 500))
        return
    from repotrace.render.runs_layout import Page
    from repotrace.render.search import search_results

    page = Page(opened.color)
    page.print(search_results(found, now=now, width=page.width))
    if found.more:
        note(f"the newest {limit} are shown; more with: --limit {limit * 5}")


def _joined(words: list[str]) -> str:
    """The query as typed: an argument with spaces was quoted in the shell, so it is a phrase.

    One argument alone is a whole query.
    """
    if len(words) == 1:
        return words[0]
    return " ".join(_phrase(word) for word in words)


def _phrase(word: str) -> str:
    if not any(c.isspace() for c in word) or '"' in word:
        return word
    minus, rest = ("-", word[1:]) if word.startswith("-") else ("", word)
    key, colon, value = rest.partition(":")
    if colon and key.isalpha() and not value.startswith(" "):
        return f'{minus}{key}:"{value}"'
    return f'{minus}"{rest}"'
