"""`runs search`: its language, and what it finds against a plain reading of everything."""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recording import NOON, event

from repotrace.errors import RepoTraceError
from repotrace.records.events import Event
from repotrace.storage import Store
from repotrace.storage.query import Filter, Query, compared, moment, path_patterns
from repotrace.storage.words import excerpt

# --- The language ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted", "filters"),
    [
        ("leap day", ("leap", "day"), (), ()),
        ('"leap day" -march', ("leap day",), ("march",), ()),
        ("agent:codex leap", ("leap",), (), (Filter("agent", "codex"),)),
        ("-Outcome:passed", (), (), (Filter("outcome", "passed", negated=True),)),
        ('file:"a b.py"', (), (), (Filter("file", "a b.py"),)),
        ("tests/test_a.py::test_b", ("tests/test_a.py::test_b",), (), ()),
        ("http://example.org", ("http://example.org",), (), ()),
        ('"agent:codex"', ("agent:codex",), (), ()),
        ("KeyError: 'due'", ("KeyError:", "'due'"), (), ()),
        ("agent:", ("agent:",), (), ()),
        ("-- --- :", (), (), ()),
        ("--json", ("--json",), (), ()),
    ],
)
def test_a_query_is_words_phrases_and_filters(
    text: str, wanted: tuple[str, ...], unwanted: tuple[str, ...], filters: tuple[Filter, ...]
) -> None:
    assert Query.of(text) == Query(wanted, unwanted, filters)


def test_what_is_said_twice_is_asked_once() -> None:
    assert Query.of("a a* -b -b a a* file:x file:x") == Query(
        ("a", "a*"), ("b",), (Filter("file", "x"),)
    )
    assert len(Query.of(" ".join(f"file:{n}" for n in range(100))).filters) == 100
    with pytest.raises(RepoTraceError, match="101 filters"):
        Query.of(" ".join(f"-file:{n}" for n in range(101)))


def test_as_many_filters_as_are_allowed_can_be_asked(tmp_path: Path) -> None:
    store = one_text(tmp_path, "alpha")
    for key in ("file", "-test", "agent", "type", "tokens"):
        value = ">1" if key == "tokens" else "x"
        query = " ".join(f"{key}:{value}{n}" for n in range(100))
        assert isinstance(store.runs.search(query, now=NOON), list)


@given(st.text())
def test_any_text_is_a_query(text: str) -> None:
    query = Query.of(text)
    assert all(any(c.isalnum() for c in word) for word in (*query.wanted, *query.unwanted))


@pytest.mark.parametrize(
    ("value", "fits", "fails"),
    [
        (">0.5", "0.51", "0.5"),
        (">=0.5", "0.5", "0.49"),
        ("<2k", "1999", "2000"),
        ("<=1M", "1000000", "1000001"),
        ("3", "3", "4"),
        ("=$3", "3.0", "3.1"),
        ("1..2k", "2000", "2001"),
    ],
)
def test_a_comparison(value: str, fits: str, fails: str) -> None:
    test = compared(value, "cost")
    assert test(Decimal(fits))
    assert not test(Decimal(fails))


@pytest.mark.parametrize("value", ["", ">", "many", ">1x", "1..", "..", "--1", "1e5"])
def test_what_is_no_comparison_is_said(value: str) -> None:
    with pytest.raises(RepoTraceError, match="no comparison"):
        compared(value, "tokens")


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("90s", timedelta(seconds=90)),
        ("2h", timedelta(hours=2)),
        ("1.5d", timedelta(hours=36)),
        ("2 w", timedelta(weeks=2)),
        ("2026-02-28T12:00:00+00:00", timedelta(days=1)),
    ],
)
def test_a_moment(text: str, before: timedelta) -> None:
    assert moment(text, NOON) == NOON - before


def test_what_is_no_moment_is_said() -> None:
    for text in ("yesterday", "9999999999999w", "2026-13-01", ""):
        with pytest.raises(RepoTraceError, match="no time"):
            moment(text, NOON)


def test_a_path_means_itself_what_is_below_and_its_end() -> None:
    paths = ["app/export.py", "export.py", "app/sub/x.py", "app/reexport.py", "old/app/y.py"]

    def matching(value: str) -> list[str]:
        patterns = path_patterns(value)
        return [p for p in paths if any(fnmatch.fnmatchcase(p, pattern) for pattern in patterns)]

    assert matching("export.py") == ["app/export.py", "export.py"]
    assert matching("./app/") == [
        "app/export.py",
        "app/sub/x.py",
        "app/reexport.py",
        "old/app/y.py",
    ]
    assert matching("app/*.py") == [p for p in paths if "app/" in p]


# --- Against a plain reading ----------------------------------------------------------------

WORDS = ("alpha", "beta", "gamma", "delta")
PATHS = ("src/a.py", "src/b.py", "tests/test_a.py")
TYPES = ("edit", "test", "llm")


@dataclass(frozen=True)
class Step:
    type: str
    status: str
    text: str
    path: str | None
    read: str | None
    tested: str | None


@dataclass(frozen=True)
class Recorded:
    agent: str
    status: str
    tokens: int
    hours_ago: int
    tag: str | None
    steps: tuple[Step, ...]

    def events(self, name: str) -> Iterator[Event]:
        start = -3600.0 * self.hours_ago
        tags = [self.tag] if self.tag else []
        yield event("run_started", start, run=name, agent=self.agent, tags=tags)
        for number, step in enumerate(self.steps, 1):
            at = start + number
            own = {"id": f"s{number}", "step_type": step.type, "description": step.text}
            yield event("step_started", at, run=name, **own)
            here = {"step_id": f"s{number}"}
            if step.path:
                change: dict[str, Any] = {"file_path": step.path, "operation_type": "edit"}
                yield event("file_operation", at, run=name, **here, **change)
            if step.read:
                yield event("file_read", at, run=name, **here, file_path=step.read)
            if step.tested:
                outcome = {"node_id": step.tested, "outcome": "passed"}
                yield event("test", at, run=name, **here, **outcome)
            yield event("step_ended", at, run=name, id=f"s{number}", status=step.status)
        if self.steps:
            usage = {"input_tokens": self.tokens, "output_tokens": 0, "model": "m"}
            yield event("llm", start, run=name, step_id="s1", **usage)
        yield event("run_ended", start + 99, run=name, status=self.status)


steps = st.builds(
    Step,
    type=st.sampled_from(TYPES),
    status=st.sampled_from(["completed", "failed"]),
    text=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join),
    path=st.none() | st.sampled_from(PATHS),
    read=st.none() | st.sampled_from(PATHS),
    tested=st.none() | st.sampled_from(["tests/test_a.py::test_x", "tests/test_a.py::test_y[1]"]),
)
corpora = st.lists(
    st.builds(
        Recorded,
        agent=st.sampled_from(["codex", "aider"]),
        status=st.sampled_from(["completed", "failed"]),
        tokens=st.integers(0, 3),
        hours_ago=st.integers(1, 5),
        tag=st.none() | st.just("night"),
        steps=st.lists(steps, max_size=4).map(tuple),
    ),
    max_size=3,
)
terms = st.sampled_from(
    [
        *WORDS,
        '"alpha beta"',
        "agent:codex",
        "status:failed",
        "tag:night",
        "tokens:>1",
        "since:3h",
        "until:2h",
        "file:a.py",
        "file:src",
        "read:src/*.py",
        "test:test_x",
        "test:y[1]",
        "type:edit",
        "type:llm",
        "step:failed",
    ]
)
queries = st.lists(st.tuples(st.booleans(), terms), min_size=1, max_size=3)


def has(text: str, term: str) -> bool:
    words = r"\W+".join(re.findall(r"\w+", term))
    return re.search(rf"(?<!\w){words}(?!\w)", text) is not None


def is_path(path: str | None, value: str) -> bool:
    """By hand for the three values above."""
    means = {"a.py": PATHS[:1], "src": PATHS[:2], "src/*.py": PATHS[:2]}
    return path in means[value]


def run_fits(run: Recorded, key: str, value: str) -> bool:
    match key:
        case "agent" | "status" | "tag":
            return bool(getattr(run, key) == value)
        case "tokens":
            return bool(run.steps) and run.tokens > 1
        case "since":
            return run.hours_ago <= 3
        case "until":
            return run.hours_ago > 2
        case "file":
            return any(is_path(step.path, value) for step in run.steps)
        case "read":
            return any(is_path(step.read, value) for step in run.steps)
        case "test":
            return any(step.tested and value in step.tested for step in run.steps)
    return True


def expected(runs: list[Recorded], query: list[tuple[bool, str]]) -> set[tuple[int, int | None]]:
    """The runs and steps that a plain reading finds."""
    filters = [(n, *term.partition(":")[::2]) for n, term in query if ":" in term]
    words = [term for negated, term in query if ":" not in term and not negated]
    not_words = [term for negated, term in query if ":" not in term and negated]
    if not words and not filters:
        return set()
    found: set[tuple[int, int | None]] = set()
    for place, run in enumerate(runs):
        if not all(run_fits(run, key, value) is not negated for negated, key, value in filters
                   if key not in ("type", "step")):  # fmt: skip
            continue
        for number, step in enumerate(run.steps, 1):
            if not step_fits(step, filters):
                continue
            texts = [step.text, *filter(None, (step.path, step.read, step.tested))]
            if words:
                wanted = any(
                    all(has(text, word) for word in words)
                    and not any(has(text, word) for word in not_words)
                    for text in texts
                )
            else:
                traces = [(k, v) for negated, k, v in filters if k in TRACED and not negated]
                wanted = not any(has(text, word) for text in texts for word in not_words)
                wanted = wanted and (not traces or any(did(step, k, v) for k, v in traces))
            if wanted:
                found.add((place, number))
        if not words and not any(key in (*TRACED, "type", "step") for _, key, _ in filters):
            found -= {(place, number) for number in range(1, 9)}
            texts = [step.text for step in run.steps]
            if not any(has(text, word) for text in texts for word in not_words):
                found.add((place, None))
    return found


TRACED = ("file", "read", "test")


def did(step: Step, key: str, value: str) -> bool:
    return run_fits(Recorded("", "", 0, 1, None, (step,)), key, value)


def step_fits(step: Step, filters: list[tuple[bool, str, str]]) -> bool:
    for key, own in (("type", step.type), ("step", step.status)):
        for negated in (False, True):
            given = {value for n, k, value in filters if k == key and n is negated}
            if given and (own in given) is negated:
                return False
    return True


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(runs=corpora, query=queries)
def test_a_search_finds_what_a_plain_reading_finds(
    tmp_path_factory: pytest.TempPathFactory, runs: list[Recorded], query: list[tuple[bool, str]]
) -> None:
    store = Store(tmp_path_factory.mktemp("home"))
    for place, run in enumerate(runs):
        store.runs.add_events(run.events(f"r{place}"))
    text = " ".join(f"-{term}" if negated else term for negated, term in query)
    hits = store.runs.search(text, now=NOON, limit=1000)
    found = {(int(hit.run_id[1:]), hit.step_number) for hit in hits}
    assert found == expected(runs, query), text
    assert store.runs.search(text, now=NOON, limit=1) == hits[:1]


def test_the_newest_comes_first(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for place, hours in enumerate((5, 1, 3)):
        run = Recorded(
            "codex", "completed", 0, hours, None, (Step("edit", "failed", "a", *[None] * 3),)
        )
        store.runs.add_events(run.events(f"r{place}"))
    for query in ("agent:codex", "type:edit", "a"):
        assert [hit.run_id for hit in store.runs.search(query, now=NOON)] == ["r1", "r2", "r0"]


def test_a_time_is_counted_from_the_moment_that_is_given(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.runs.add_events(Recorded("codex", "completed", 0, 1, None, ()).events("r0"))
    assert store.runs.search("since:2h", now=NOON)
    later: datetime = NOON + timedelta(hours=2)
    assert store.runs.search("since:2h", now=later) == []


# --- Words ----------------------------------------------------------------------------------


def one_text(folder: Path, *texts: str) -> Store:
    """A store with a run of a step for each text."""
    store = Store(folder)
    steps = tuple(Step("edit", "completed", text, *[None] * 3) for text in texts)
    store.runs.add_events(Recorded("codex", "completed", 0, 1, None, steps).events("r0"))
    return store


@pytest.mark.parametrize(
    ("query", "text", "found"),
    [
        ("due", "the due_date of it", ["due"]),
        ("due", "overdue, duedate", None),
        ("a", "An a-b", ["a"]),
        ('"29 February"', "test_issued_on_29_february", ["29_february"]),
        ("Assert*", "AssertionError: no", ["AssertionError"]),
        ('"Assert*"', "AssertionError: no", None),
        ("*args", "f(*args)", ["args"]),
        ("cafe", "Un café noir", ["café"]),
        ("CAFÉ", "a cafe\u0301 here", ["cafe\u0301"]),
        ("失敗", "テストが失敗しました。", ["失敗"]),
        ("失 敗", "テストが失敗しました。", ["失", "敗"]),
        ("敗失", "テストが失敗しました。", None),
        ("테스트", "테스트가 실패했다", ["테스트"]),
        ("测试failed", "两个测试 failed", ["测试 failed"]),
        ("🎉 done", "all done 🎉", ["done"]),
        ("NEAR(alpha)", "near (Alpha)", ["near (Alpha"]),
        ("x' OR 1=1 --", "x or '1=1", ["x", "or", "1=1"]),
        ("\0due\0", "the due\0date", ["due"]),
    ],
)
def test_a_word_is_found_whole(
    tmp_path: Path, query: str, text: str, found: list[str] | None
) -> None:
    hits = one_text(tmp_path, text, "something else").runs.search(query, now=NOON)
    marked = [[hit.snippet[a:b] for a, b in hit.marks] for hit in hits]
    assert marked == ([] if found is None else [found])


def tokens(text: str) -> list[str]:
    """What the index takes for words, worked out from the tables of Unicode."""
    plain = "".join(c for c in unicodedata.normalize("NFD", text) if not "\u0300" <= c <= "\u036f")
    spaced = "".join(f" {c} " if c in DENSE else c for c in unicodedata.normalize("NFC", plain))
    letters = (c if unicodedata.category(c)[0] in "LN" else " " for c in spaced.lower())
    return "".join(letters).split()


DENSE = "試験失敗テ가나"
letters = st.sampled_from([*"aAbB1é_-. \n", *DENSE, "\u0301", "É", "🎉", "—"])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    texts=st.lists(st.text(letters, min_size=1, max_size=12), min_size=1, max_size=12),
    terms=st.lists(st.text(letters.filter(lambda c: c not in '"\n- '), min_size=1, max_size=4),
                   min_size=1, max_size=2),
)  # fmt: skip
def test_words_are_those_of_unicode(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], terms: list[str]
) -> None:
    store = one_text(tmp_path_factory.mktemp("home"), *texts)
    hits = store.runs.search(" ".join(terms), now=NOON, limit=100)
    wanted = [own for term in terms if (own := tokens(term)) and any(map(str.isalnum, term))]

    def has_all(text: str) -> bool:
        words = tokens(text)
        return all(
            any(words[n : n + len(term)] == term for n in range(len(words))) for term in wanted
        )

    expected = {n for n, text in enumerate(texts, 1) if wanted and has_all(text)}
    assert {hit.step_number for hit in hits} == expected
    for hit in hits:
        marked = [tokens(hit.snippet[a:b]) for a, b in hit.marks]
        assert set(map(tuple, marked)) <= set(map(tuple, wanted))
        assert marked


def test_what_is_shown_has_as_many_of_the_words_as_stand_together() -> None:
    far = " ".join(["filler"] * 60)
    text = f"alpha {far} alpha and beta\n  {far} gamma {far}"
    line, marks = excerpt(text, ("alpha", "beta", "gamma"))
    assert [line[a:b] for a, b in marks] == ["alpha", "beta", "gamma"]
    assert line.startswith("…filler")
    assert line.endswith("filler…")
    assert " … filler" in line
    assert "\n" not in line
    assert len(line) < 400


@given(
    text=st.text(st.sampled_from([*"ab_ \n.", "é", "試", "\u0301"]), max_size=600),
    terms=st.lists(st.text(st.sampled_from([*"ab.é試*"]), max_size=5), max_size=4),
)
def test_any_text_has_an_excerpt(text: str, terms: list[str]) -> None:
    line, marks = excerpt(text, terms)
    assert "\n" not in line
    assert all(0 <= a < b <= len(line) for a, b in marks)
    assert all(b <= c for (_, b), (c, _) in pairwise(marks))


def test_many_texts_come_in_the_order_of_their_runs(tmp_path: Path) -> None:
    """More than are sorted; noted in another order than the runs began."""
    store = Store(tmp_path)
    for place, hours in enumerate((5, 1, 3)):
        steps = tuple(Step("edit", "failed", f"alpha {n}", *[None] * 3) for n in range(750))
        store.runs.add_events(
            Recorded("codex", "completed", 0, hours, None, steps).events(f"r{place}")
        )
    for query in ("alpha", "alpha agent:codex"):
        hits = store.runs.search(query, now=NOON, limit=2000)
        wanted = [(f"r{place}", number) for place in (1, 2, 0) for number in range(750, 0, -1)]
        assert [(hit.run_id, hit.step_number) for hit in hits] == wanted[:2000]
        few = store.runs.search(f"{query} 7", now=NOON)
        assert [(hit.run_id, hit.step_number) for hit in few] == [("r1", 8), ("r2", 8), ("r0", 8)]


def test_what_was_indexed_before_is_found_as_what_is_new(tmp_path: Path) -> None:
    """Texts that are taken out again leave no word behind."""
    store = one_text(tmp_path, "テストが失敗 é", "other")
    assert store.runs.search("失敗", now=NOON)
    store.runs.add_events([event("step_ended", 9, run="r0", id="s1", output_result="失敗")])
    assert {hit.field for hit in store.runs.search("失敗")} == {"description", "output_result"}
    store.runs.delete("r0")
    assert store.runs.search("失敗", now=NOON) == []
