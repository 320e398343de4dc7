"""How thorough a search is."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """The measures of a search. The defaults are those that the figures in the docs are about."""

    reproduce: int = 3
    """Executions on the final state before anything else."""
    recheck: int = 8
    """Executions there that must pass before it is said that the failure is not reproducible:
    after eight, a rate of failing above 0.32 is excluded with 95 %."""
    likely: int = 3
    """Results on each side of a flip for `likely`."""
    confirmations: int = 7
    """Results on each side of a flip for `proven`, at least."""
    chance: float = 0.001
    """A flip is proven if a test with a constant rate looks so less often than this."""
    confidence: float = 0.95
    """Posterior probability at which a step is named for a flaky test."""
    budget: int = 150
    """Executions for finding and confirming the breaks of one test."""
    reduce: bool = True
    """Whether the hunks of the change are reduced."""
    undo: bool = True
    """Whether the change is undone on the final state, and further breaks are searched for."""
    reduce_budget: int = 150
    """Executions on states with changed hunks, apart from `budget`."""
    breaks: int = 5
    """The most breaks that are searched for in turn."""
    skips: int = 20
    """Executions between the last pass and the first failure that may say nothing, before the
    answer is a range; and so many states, or more among many, before it passes on none."""
    scan: bool = False
    """Run all different states first."""


def executions_at_most(states: int, *, plan: Plan | None = None) -> tuple[int, int]:
    """Executions of a search for a deterministic break among so many states.

    Until `likely`, and until `proven`. Skipped states and breaks that are hidden by others cost
    more, reduction and undoing are counted apart.
    """
    plan = plan or Plan()
    search = 2 * math.ceil(math.log2(states)) if states > 1 else 0
    likely = search + plan.reproduce + 2 * (plan.likely - 1)
    return likely, likely + 2 * (plan.confirmations - plan.likely)
