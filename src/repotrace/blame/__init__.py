"""Which step of a run broke a test: what decides. It runs nothing, reads nothing, knows no clock.

`candidates_of` lists the states of a run. A `Searcher` says which of them to run the test on, takes
what came of it, and ends with a `Finding`.
"""

from repotrace.blame.candidates import Candidate, candidates_of
from repotrace.blame.evidence import (
    Failure,
    Kind,
    Memo,
    MemoKey,
    Observation,
    Probe,
    Purpose,
    Subject,
)
from repotrace.blame.finding import (
    NAMING,
    Boundary,
    Break,
    Finding,
    Flakiness,
    Progress,
    Rate,
    Verdict,
)
from repotrace.blame.odds import chance_words
from repotrace.blame.plan import Plan, executions_at_most
from repotrace.blame.reduction import ddmin
from repotrace.blame.searcher import Searcher

__all__ = [
    "NAMING",
    "Boundary",
    "Break",
    "Candidate",
    "Failure",
    "Finding",
    "Flakiness",
    "Kind",
    "Memo",
    "MemoKey",
    "Observation",
    "Plan",
    "Probe",
    "Progress",
    "Purpose",
    "Rate",
    "Searcher",
    "Subject",
    "Verdict",
    "candidates_of",
    "chance_words",
    "ddmin",
    "executions_at_most",
]
