"""`ReplayResult` and `ReplaySummary`: what came of running recorded commands again."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from pydantic import Field

from repotrace.records.base import OsText, Record
from repotrace.records.command import CommandRun
from repotrace.records.trace import Trace

CANNOT_RUN = "cannot-run"
"""The verdict of a replay whose command could not be run here."""


class Outcome(StrEnum):
    """Whether a replay showed the recorded failure again."""

    MATCHED = "matched"
    DIFFERS = "differs"


class ReplayResult(Record):
    """What came of running the command of one report again."""

    report_id: str = Field(description="Id of the report; empty for a trace of no report")
    outcome: Outcome = Field(description="Whether the run matched the record")
    exit_code: int | None = Field(
        default=None, description="Observed, as subprocess has it: -N for signal N"
    )
    expected_exit_code: int | None = Field(
        default=None, description="Recorded, as subprocess has it"
    )
    stdout: str = Field(default="", description="Observed, as text for people")
    stderr: str = Field(default="", description="Observed, as text for people")
    expected_stdout: str = Field(default="", description="Recorded, as text for people")
    expected_stderr: str = Field(default="", description="Recorded, as text for people")
    cwd: OsText = Field(default="", description="Working directory of the replay")
    timeout: float | None = Field(default=None, description="Limit of the replay, in seconds")
    differences: list[str] = Field(
        default_factory=list, description="What changed, one short phrase each"
    )
    trace: Trace | None = Field(default=None, description="The replay as a trace")

    verdict: str = Field(
        default="",
        description="same, same-after-normalising, same-failure, partly-fixed,"
        " different-failure, fixed, flaky or cannot-run; empty if nobody judged",
    )
    detail: str = Field(default="", description="The verdict as one line for people")
    rules: list[str] = Field(
        default_factory=list, description="Normalisers that the verdict rests on"
    )
    fixed_tests: list[str] = Field(default_factory=list)
    still_failing: list[str] = Field(default_factory=list)
    new_failing: list[str] = Field(default_factory=list)
    reproduced: int = Field(default=0, description="How many of `repeats` runs matched")
    repeats: int = Field(default=1, description="How often the command was run")
    missing: list[str] = Field(
        default_factory=list, description="What the command needs and did not find here"
    )
    files: str = Field(
        default="",
        description="Whose files it ran on: `state 86616b506069`, `commit c07e3dcd4a4a`;"
        " empty for the present ones",
    )
    not_captured: list[OsText] = Field(
        default_factory=list, description="What those files lack of the recorded work tree"
    )
    title: str = Field(default="", description="Title of the report")
    status: str = Field(default="", description="Status of the report")
    duration: float | None = Field(default=None, description="Seconds")
    expected: CommandRun | None = Field(default=None, description="The recorded run")
    observed: CommandRun | None = Field(default=None, description="The run of the replay")

    @property
    def matched(self) -> bool:
        """Whether the replay showed the recorded failure again."""
        return self.outcome is Outcome.MATCHED

    @property
    def reproducible(self) -> bool:
        """The same as `matched`."""
        return self.matched

    @property
    def ran(self) -> bool:
        """Whether the command could be run at all."""
        return self.verdict != CANNOT_RUN


class ReplaySummary(Record):
    """Several replays, as of a whole store."""

    total: int = Field(default=0, description="Reports that a replay was tried for")
    matched: int = Field(default=0, description="Replays that matched the record")
    differed: int = Field(default=0, description="Replays that ran and did not match")
    failed: int = Field(default=0, description="Reports that cannot be read or cannot run here")
    results: list[ReplayResult] = Field(default_factory=list)
    unreadable: list[tuple[str, str]] = Field(
        default_factory=list, description="Name and reason of each report that cannot be read"
    )

    @classmethod
    def of(
        cls, results: Iterable[ReplayResult], unreadable: Iterable[tuple[str, str]] = ()
    ) -> ReplaySummary:
        """The summary of `results` and of the reports that could not even be read."""
        rows, broken = list(results), list(unreadable)
        matched = sum(row.matched for row in rows)
        idle = sum(not row.matched and not row.ran for row in rows)
        return cls(
            total=len(rows) + len(broken),
            matched=matched,
            differed=len(rows) - matched - idle,
            failed=idle + len(broken),
            results=rows,
            unreadable=broken,
        )

    @property
    def reproducible(self) -> float:
        """Share of the tried replays that reproduced, from 0.0 to 1.0."""
        return self.matched / self.total if self.total else 0.0


def diff(result: ReplayResult) -> dict[str, Any]:
    """Recorded and observed values of what is compared, ready for JSON."""
    return {
        "report_id": result.report_id,
        "outcome": result.outcome.value,
        "verdict": result.verdict,
        "exit_code": {"expected": result.expected_exit_code, "observed": result.exit_code},
        "stdout": {"expected": result.expected_stdout, "observed": result.stdout},
        "stderr": {"expected": result.expected_stderr, "observed": result.stderr},
        "differences": list(result.differences),
    }
