"""Check a run, or the work tree against a commit: what broke, and which step broke it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from repotrace.blame import NAMING, Verdict
from repotrace.config import workspace_for
from repotrace.errors import RepoTraceError
from repotrace.records.blame import (
    COUNTS_AS_BROKEN,
    COUNTS_AS_UNDECIDED,
    Blame,
    Change,
    Check,
    CheckedTest,
)
from repotrace.records.run import Run
from repotrace.runs.blame import BlameOptions, Blaming
from repotrace.runs.checking.comparing import Say, check_sides, order_of, quiet
from repotrace.runs.checking.sides import Sides, sides_of_commit, sides_of_run
from repotrace.runs.testing.executions import Bench
from repotrace.runs.testing.options import Testing, bench_for, named_run, workspace_of
from repotrace.runs.traces import Workspace, store_of
from repotrace.storage import Store

BLAMED = 20
"""Broken tests that are blamed at once; the others are named."""

_UNEXPLAINED = (Change.DELETED, Change.GONE, Change.SKIPPED, Change.XFAILED)
"""What is blamed only where the source of the test does not tell who did it."""

type OnBench = Callable[[Bench, Sides], None]

_SHORT = 20.0
"""Seconds that a test may be left to hang, several times."""
_NO_MODULE = re.compile(r"No module named '([^']+)'")

_NOT_BROKEN = {
    Verdict.FLAKY: (Change.FLAKY, "it comes and goes"),
    Verdict.NOT_REPRODUCIBLE: (Change.FLAKY, "it failed with the others and passes alone"),
    Verdict.BROKEN_BEFORE: (Change.UNDECIDED, "alone it fails on the base, too"),
    Verdict.ENVIRONMENT: (Change.UNDECIDED, "it fails on every state here"),
}
"""What blame may find out about a test that seemed to be broken."""


def check_run(
    workspace: Workspace,
    run: Run | str | None = None,
    *,
    base: str | None = None,
    folder: Path | None = None,
    tests: Sequence[str] = (),
    budget: int | None = None,
    testing: Testing | None = None,
    blame: BlameOptions | None = None,
    trusted: bool = False,
    say: Say = quiet,
    on_bench: OnBench | None = None,
) -> Check:
    """What `run` did to the tests of its work tree; without one, what differs between the commit
    `base` and the work tree, `folder` or `workspace` itself. Each break is blamed.

    `workspace`: the folder of a project, or its store. `tests`: node ids, files or folders; all by
    default. `budget`: so many tests at most, those nearest to what changed first. `on_bench` is
    called before anything is executed.

    Raises NotTrusted if the run came from elsewhere and is not `trusted`, RepoTraceError if files
    were not kept, there is no such commit, or nothing is known that runs the tests;
    KeyboardInterrupt when it is interrupted.
    """
    store = store_of(workspace)
    if folder is None and not isinstance(workspace, Store):
        folder = workspace_for(Path(workspace), os.environ)
    found = named_run(store, run) if isinstance(run, str) else run
    if found is not None:
        sides, place = sides_of_run(store, found), workspace_of(found, store)
    elif base is not None and folder is not None:
        sides, place = sides_of_commit(store, folder, base), folder
    else:
        raise RepoTraceError("Nothing to check.", hint="Name a run, or a commit with --base.")
    with closing(sides), bench_for(store, place, testing, run=found) as bench:
        if on_bench is not None:
            on_bench(bench, sides)
        bench.permit(trusted=trusted)
        options = blame or BlameOptions()
        check = check_sides(
            bench, sides, run=found, tests=tests, budget=budget, jobs=options.jobs, say=say
        )
        return _blamed(check, bench, sides, found, options, say)


def _blamed(
    check: Check, bench: Bench, sides: Sides, run: Run | None, options: BlameOptions, say: Say
) -> Check:
    """The check with what is blamed for each break."""
    blaming = Blaming(bench, sides, run, options)
    light = replace(options.plan, reduce=False, undo=False)
    entries: list[CheckedTest] = []
    by_file: dict[str, Blame] = {}
    known: set[tuple[int, ...]] = set()
    blamed = 0
    for entry in check.tests:
        broken = entry.change in COUNTS_AS_BROKEN
        file = entry.test.partition("::")[0]
        hidden = entry.change in _UNEXPLAINED and entry.step is None and run is not None
        stuck = entry.stuck and _is_quick(bench, entry)
        if not broken and entry.change != Change.NOT_COLLECTED and not hidden and not stuck:
            entries.append(entry)
        elif entry.change == Change.NOT_COLLECTED and file in by_file:
            entries.append(_with_blame(entry, by_file[file], bench, sides))
        elif blamed >= BLAMED:
            entries.append(entry)
        else:
            blamed += 1
            say(f"blaming {entry.test}")
            test = _subject(entry, bench)
            # Once a step is known, its other breaks need not be made minimal all over again.
            found = blaming.blame(test, light if known or hidden else None)
            if known and not hidden and _steps(found) not in known:
                found = blaming.blame(test)
            if found.named and broken:
                known.add(_steps(found))
            by_file.setdefault(file, found)
            entries.append(_with_blame(entry, found, bench, sides))
    notes = check.notes
    decided = sum(was.change in COUNTS_AS_UNDECIDED for was in check.tests) - sum(
        one.change in COUNTS_AS_UNDECIDED for one in entries
    )
    left = sum(one.blame is None for one in entries if one.change in COUNTS_AS_BROKEN)
    if left:
        notes = (*notes, f"{left} broken tests were not blamed; name them to repotrace blame")
    checked = check.checked + max(decided, 0)
    entries.sort(key=order_of)
    return check.model_copy(update={"tests": tuple(entries), "notes": notes, "checked": checked})


def _steps(blame: Blame) -> tuple[int, ...]:
    return tuple(step.number for step in blame.steps)


def _subject(entry: CheckedTest, bench: Bench) -> str:
    """The test for blame; of a command that names no tests, itself."""
    return "" if entry.test == bench.line() else entry.test


def _with_blame(entry: CheckedTest, blame: Blame, bench: Bench, sides: Sides) -> CheckedTest:
    update: dict[str, object] = {"blame": blame}
    other = _NOT_BROKEN.get(Verdict(blame.verdict)) if blame.verdict in _VERDICTS else None
    if other is not None and entry.change == Change.BROKEN:
        change, why = other
        update |= {"change": change, "message": f"{why}: {blame.reason}"}
    elif blame.verdict in NAMING and entry.stuck:
        update["change"] = Change.BROKEN
    elif blame.verdict in NAMING and entry.change == Change.NOT_COLLECTED:
        package = _not_installed(blame.message or entry.message, bench, sides)
        if package is None:
            update |= {"change": Change.BROKEN, "how": str(Change.NOT_COLLECTED)}
        else:
            update["message"] = f"{package} is not installed where the tests run"
    return entry.model_copy(update=update)


def _not_installed(message: str, bench: Bench, sides: Sides) -> str | None:
    """The package that an import failed for, if it is none of the project's own."""
    match = _NO_MODULE.search(message)
    if match is None:
        return None
    name = match[1].partition(".")[0]
    folders = dict.fromkeys(["", "src/", f"{bench.command.project}/".lstrip("/")])
    paths = [f"{folder}{path}" for folder in folders for path in (name, f"{name}.py")]
    states = (sides.base_state, sides.final_state)
    is_own = any(sides.has(state, path) for state in states for path in paths)
    return None if is_own else name


def _is_quick(bench: Bench, entry: CheckedTest) -> bool:
    """Whether to find out what a suite did not come past takes no longer than one would wait."""
    limit = bench.options.timeout
    return "timed out" not in entry.message or (limit is not None and limit <= _SHORT)


_VERDICTS = frozenset(Verdict)
