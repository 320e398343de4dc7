"""`runs search`."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from repotrace.read.runs import run_line
from repotrace.read.views import Found, FoundIn, SearchView
from repotrace.storage import Store
from repotrace.storage.overview import Heads
from repotrace.storage.search import Hit


def search_runs(
    store: Store, query: str, *, now: datetime, run_id: str | None = None, limit: int = 20
) -> SearchView:
    """What `query` finds, the newest first, with the steps and the runs that it lies in.

    Raises RepoTraceError for a filter whose value makes no sense.
    """
    hits = store.runs.search(query, run_id=run_id, limit=limit + 1, now=now)
    shown = hits[:limit]
    steps = _steps(store, shown)
    names = dict.fromkeys(hit.run_id for hit in shown)
    return SearchView(
        query=query,
        hits=tuple(_found(hit, steps) for hit in shown),
        runs=tuple(run_line(store.runs.get(name)) for name in names),
        more=len(hits) > limit,
    )


def _steps(store: Store, hits: list[Hit]) -> dict[tuple[str, int], FoundIn]:
    """The steps of the hits, by run and number."""
    wanted: dict[str, set[int]] = defaultdict(set)
    for hit in hits:
        if hit.step_number is not None:
            wanted[hit.run_id].add(hit.step_number)
    found = {}
    with store.runs.overview() as overview:
        for run_id, numbers in wanted.items() if overview else ():
            assert overview is not None
            heads = overview.heads(run_id, sorted(numbers))
            kinds = overview.kinds(run_id, sorted(numbers))
            for number in numbers:
                step_type, status = kinds.get(number, ("", ""))
                head = heads.get(number, Heads("", None, None, None))
                found[run_id, number] = FoundIn(
                    number=number,
                    step_type=step_type,
                    status=status,
                    description=head.description,
                )
    return found


def _found(hit: Hit, steps: dict[tuple[str, int], FoundIn]) -> Found:
    number = hit.step_number
    return Found(
        run_id=hit.run_id,
        step=None if number is None else steps[hit.run_id, number],
        field=hit.field,
        snippet=hit.snippet,
        marks=hit.marks,
    )
