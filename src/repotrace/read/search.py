"""`runs search`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from difflib import get_close_matches

from repotrace.read.runs import run_line
from repotrace.read.views import Found, FoundIn, SearchView
from repotrace.storage import Store
from repotrace.storage.documents import MESSAGE
from repotrace.storage.overview import Heads, Overview
from repotrace.storage.query import KEYS, Query, unknown_keys
from repotrace.storage.search import Hit

_NAMED = 12
"""Values that an advice names."""

_VALUED = ("status", "outcome", "agent", "source", "model", "tag", "type", "step")


def search_runs(
    store: Store, query: str, *, now: datetime, run_id: str | None = None, limit: int = 20
) -> SearchView:
    """What `query` finds, the newest first, with the steps and the runs that it lies in.

    A description that repeats another field of its step, and a message that repeats what an
    earlier step brought, are left out. Where nothing is found, the view says what may be wrong
    with the query. Raises RepoTraceError for a filter whose value makes no sense.
    """
    hits = store.runs.search(query, run_id=run_id, limit=2 * limit + 1, now=now)
    once = list(_once(hits))
    shown = once[:limit]
    steps = _steps(store, shown)
    names = dict.fromkeys(hit.run_id for hit in shown)
    return SearchView(
        query=query,
        hits=tuple(_found(hit, steps) for hit in shown),
        runs=tuple(run_line(store.runs.get(name)) for name in names),
        more=len(once) > limit or len(hits) > 2 * limit,
        advice=() if hits else tuple(_advice(store, query)),
    )


def _once(hits: Sequence[Hit]) -> Iterator[Hit]:
    """All but the messages that show the same piece of text as another field of their run, and
    the descriptions that show that of their step."""
    own: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for hit in hits:
        if hit.field not in (_MESSAGE, _DESCRIPTION):
            own[hit.run_id].append((hit.step_number or 0, hit.snippet.strip("…")))
    for hit in hits:
        text, step = hit.snippet.strip("…"), hit.step_number or 0
        if hit.field == _MESSAGE:
            others = [other for number, other in own[hit.run_id] if number <= step]
        elif hit.field == _DESCRIPTION:
            others = [other for number, other in own[hit.run_id] if number == step]
        else:
            others = []
        if not any(text in other or other in text for other in others):
            yield hit


_DESCRIPTION = "description"
_MESSAGE = MESSAGE.rstrip(":")


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


# --- Nothing found --------------------------------------------------------------------------


def _advice(store: Store, text: str) -> Iterator[str]:
    """What may be wrong with a query that finds nothing."""
    query = Query.of(text)
    if not query.wanted and not query.filters:
        yield (
            "Say a word or a filter to be found, besides what must not occur."
            if query.unwanted
            else "There is no word in the query: letters and digits are searched for."
        )
    for key in unknown_keys(text):
        near = get_close_matches(key.lower(), sorted(KEYS), n=1, cutoff=0.75)
        meant = f"did you mean {near[0]}: ?" if near else f"filters are {_list(sorted(KEYS))}"
        yield f"{key}: is no filter and was searched for as a word; {meant}"
    with store.runs.overview() as overview:
        if overview is not None:
            yield from _unknown_values(overview, query)


def _unknown_values(overview: Overview, query: Query) -> Iterator[str]:
    for item in query.named(*_VALUED):
        known = overview.values(item.key)
        wanted = item.value.lower()
        is_there = any(
            wanted in value.lower() if item.key == "model" else wanted == value.lower()
            for value in known
        )
        if known and not item.negated and not is_there:
            what = "step" if item.key in ("type", "step") else "run"
            shown = known[:_NAMED]
            more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
            yield f"No {what} has {item.key}:{item.value}; there are {_list(shown)}{more}."


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
