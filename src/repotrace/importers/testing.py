"""The outcomes of tests, read from what the commands of an agent printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from repotrace import testlogs
from repotrace.importers import programs
from repotrace.records.run import OutcomeOrigin, TestResult

_PASSED = re.compile(r"^(\S+::\S.*?) PASSED(?: +\[ *\d+%\])?$", re.MULTILINE)
_SUSPECT = re.compile(
    r"\b(?:passed|failed|FAILED|FAIL|PASS|ok|tests?|Tests|specs?|examples?|errors?)\b"
)
_LONGEST = 4 << 20
"""Characters at the end of an output that are looked at."""


class Tests:
    """What is known of the tests of a run so far."""

    def __init__(self) -> None:
        self.outcome: bool | None = None
        """Whether the newest run of tests passed; None before any."""
        self._failing: dict[str, set[str]] = {}

    def read(self, script: str, output: str, exit_code: int | None) -> list[dict[str, Any]] | None:
        """What a command tells of tests, as `OutcomeData`; None if it ran none."""
        meant = programs.is_test_command(script)
        if not meant and not (_may_test(script) and _SUSPECT.search(output)):
            return None
        log = testlogs.parse(output[-_LONGEST:])
        if log is None or (not meant and not log.failures and not log.total_count):
            if meant and exit_code not in (None, 0):
                self.outcome = False
            return [] if meant else None
        key = programs.command_key(script)
        if log.failures or log.total_count or log.passed_count:
            self.outcome = not log.failures and exit_code in (None, 0)
        return list(self._outcomes(key, log, output))

    def _outcomes(self, key: str, log: testlogs.TestLog, output: str) -> Iterator[dict[str, Any]]:
        common = {"runner": log.framework, "origin": OutcomeOrigin.PARSED}
        failed = set(log.failed)
        for failure in log.failures:
            error = failure.error
            words = [error.exception, error.message] if error else []
            message = ": ".join(word for word in words if word)
            told = {"message": message} if message else {}
            yield {"node_id": failure.test, "outcome": TestResult.FAILED, **common, **told}
        passed = set(_PASSED.findall(output)) if log.framework == "pytest" else set()
        # The same command ran all of its tests again: what it does not call failing passed.
        if log.passed_count or log.total_count:
            passed |= self._failing.get(key, set())
        for test in sorted(passed - failed):
            yield {"node_id": test, "outcome": TestResult.PASSED, **common}
        self._failing[key] = failed


def _may_test(script: str) -> bool:
    return re.search(r"\b(?:test|check|spec|tox|nox|make|gradle|mvn|run)\b", script) is not None
