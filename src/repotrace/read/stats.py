"""`runs stats`: what runs come to, by agent, model, task or tag."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from datetime import datetime
from decimal import Decimal
from statistics import median, quantiles

from repotrace.read.runs import duration_of
from repotrace.read.views import BrokenFile, FailingKind, Spread, StatsGroup, StatsView
from repotrace.records.run import Run, RunOutcome, RunStatus
from repotrace.storage import Store

MOST = 10
"""Tools and files that are named."""

GROUPS: dict[str, Callable[[Run], Sequence[str | None]]] = {
    "agent": lambda run: (run.agent,),
    "model": lambda run: (" + ".join(run.models) or None,),
    "task": lambda run: (run.task_id or _first_line(run.task),),
    "tag": lambda run: run.tags or (None,),
}
"""What runs are grouped by, and the groups of a run: several for one with several tags."""


def run_stats(store: Store, *, group_by: str = "agent", since: datetime | None = None) -> StatsView:
    """Figures of all runs that began since then. `group_by` is one of `GROUPS`."""
    runs = store.runs.list(since=since)
    if not runs:
        return StatsView(group_by=group_by)
    groups: dict[str | None, list[Run]] = defaultdict(list)
    for run in runs:
        for name in GROUPS[group_by](run):
            groups[name].append(run)
    tested = {_task(run) for run in runs if _has_tests(run)}
    found = [_group(name, members, tested) for name, members in groups.items()]
    found.sort(key=lambda group: (-group.runs, group.name is None, group.name or ""))
    failing, broken = _trouble(store, runs)
    return StatsView(
        group_by=group_by,
        whole=_group(None, runs, tested),
        groups=tuple(found),
        failing=failing,
        broken_files=broken,
    )


def _group(name: str | None, runs: Sequence[Run], tested: Set[str]) -> StatsGroup:
    """The figures of some runs; `tested`: the tasks on which some run has run tests."""
    outcomes = Counter(run.outcome for run in runs)
    passed, failed = outcomes[RunOutcome.PASSED], outcomes[RunOutcome.FAILED]
    tokens = sum(run.totals.tokens_used for run in runs)
    cost = sum((run.totals.cost_usd for run in runs), Decimal(0))
    tried = [run for run in runs if _task(run) in tested]
    paid = sum((run.totals.cost_usd for run in tried), Decimal(0))
    unpriced = sum(run.totals.unpriced_calls for run in tried)
    used = sum(run.totals.tokens_used for run in tried)
    untold = sum(map(_is_untold, tried))
    told = [run.totals.tokens_used for run in runs if not _is_untold(run)]
    durations = [seconds for run in runs if (seconds := duration_of(run)) is not None]
    return StatsGroup(
        name=name,
        runs=len(runs),
        passed=passed,
        failed=failed,
        unfinished=sum(run.status != RunStatus.COMPLETED for run in runs),
        success_rate=passed / (passed + failed) if passed + failed else None,
        steps=_spread(run.totals.steps for run in runs),
        retries=_spread(run.totals.retries for run in runs),
        tokens=_spread(told) if told else None,
        untold_runs=len(runs) - len(told),
        duration=_spread(durations) if durations else None,
        total_tokens=tokens,
        total_cost_usd=cost,
        unpriced_calls=sum(run.totals.unpriced_calls for run in runs),
        tokens_per_fix=used / passed if passed and (used or not untold) else None,
        untold_per_fix=untold,
        cost_per_fix_usd=paid / passed if passed and (paid or not unpriced) else None,
        unpriced_per_fix=unpriced,
    )


def _task(run: Run) -> str:
    """What the run was about: a run without a task is about itself."""
    return run.task_id or _first_line(run.task) or f"run {run.id}"


def _is_untold(run: Run) -> bool:
    """Whether models were asked, and nobody tells of tokens: no answer takes none."""
    return bool(run.totals.llm_calls) and not run.totals.tokens_used


def _has_tests(run: Run) -> bool:
    return run.outcome in (RunOutcome.PASSED, RunOutcome.FAILED)


def _spread(figures: Iterable[float]) -> Spread:
    """Quartiles as in `statistics.quantiles` with the ends included."""
    values = list(figures)
    if len(values) == 1:
        return Spread(median=values[0], low=values[0], high=values[0])
    low, _, high = quantiles(values, n=4, method="inclusive")
    return Spread(median=median(values), low=low, high=high)


def _trouble(
    store: Store, runs: Sequence[Run]
) -> tuple[tuple[FailingKind, ...], tuple[BrokenFile, ...]]:
    files: Counter[str] = Counter()
    with store.runs.overview() as overview:
        if overview is None:
            return (), ()
        kinds = overview.failing_kinds([run.id for run in runs])
        for run in runs:
            files.update(overview.red_files(run.id))
    failing = [
        FailingKind(name=name, steps=steps, failed=failed)
        for name, (steps, failed) in kinds.items()
        if failed
    ]
    failing.sort(key=lambda kind: (-kind.failed, kind.steps, kind.name))
    most = sorted(files.items(), key=lambda item: (-item[1], item[0]))[:MOST]
    return tuple(failing[:MOST]), tuple(BrokenFile(path=path, runs=n) for path, n in most)


def _first_line(text: str | None) -> str | None:
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), None)
