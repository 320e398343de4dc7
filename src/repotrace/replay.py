"""Replay: run a recorded command again, and say honestly whether it still fails the same way."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repotrace.capture import trace_on_host
from repotrace.comparison import Comparison, Match, Verdict, compare
from repotrace.config import Settings, find_repository, home_for
from repotrace.errors import NoCommand, NotTrusted, RepoTraceError
from repotrace.generator import Reproduction, as_reproduction
from repotrace.normalize import UserRule
from repotrace.readable import shell_line
from repotrace.records.bug import BugReport
from repotrace.records.command import CommandRun, CommandSpec, FileState, Termination
from repotrace.records.replay import Outcome, ReplayResult, ReplaySummary, diff
from repotrace.records.trace import Trace, command_run_of, metadata_of, trace_of
from repotrace.redact import Redactor
from repotrace.signatures import signature_of
from repotrace.storage import RecordedVerdict, ReportStore, Store
from repotrace.storage.consent import permit_report
from repotrace.system.execution import execute
from repotrace.system.git import GitError, git
from repotrace.system.process import interrupt_running
from repotrace.system.relocate import Missing, relocate
from repotrace.workcopy import Source, WorkCopy, source_of, work_copy

if TYPE_CHECKING:
    from repotrace.system.snapshots import SnapshotStore

__all__ = [
    "Outcome",
    "ReplayOptions",
    "ReplayResult",
    "ReplaySummary",
    "Reproduction",
    "Verdict",
    "accepted",
    "diff",
    "plan",
    "remember",
    "replay",
    "replay_all",
    "replay_from_store",
    "replay_report",
    "root_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How to replay; one value for a single replay and for each one of a sweep."""

    cwd: Path | str | None = None
    """Where to run; None: the recorded folder, or its place in `root`."""
    timeout: float | None = None
    """Seconds; None: the recorded limit."""
    match: Match = "normal"
    repeat: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables to set for the command, over all else."""
    environ: Mapping[str, str] | None = None
    """The environment of the replay; None: ours."""
    root: Path | None = None
    """The work tree that the reports belong to: a cwd inside the recorded repository means
    the same folder in this one."""
    settings: Settings = field(default_factory=Settings)
    key: bytes | None = None
    """Of redaction digests; None: one that only this replay knows."""
    redactor: Redactor | None = None
    """Made from `key` and the environment if None; a sweep shares one."""
    cancelled: threading.Event | None = None
    """Once set, no further command is started."""
    with_repository: bool = False
    """Ask git for the state of the work tree, before each run."""
    at_capture: bool = False
    """Run in a temporary copy of the files as they were at the capture."""
    snapshots: SnapshotStore | None = None
    """Where those files are; without it only commits can be had."""
    links: tuple[str, ...] = ()
    """Paths that were not captured, to be linked into the copy from the work tree."""
    trusted: bool | Container[str] = False
    """Whether reports that came from elsewhere are executed: all of them, or those with these
    ids."""

    @property
    def environment(self) -> dict[str, str]:
        return {**(os.environ if self.environ is None else self.environ), **self.env}

    @property
    def user_rules(self) -> tuple[UserRule, ...]:
        return self.settings.normalize


def _options(
    cwd: Path | str | None, timeout: float | None, *, match_output: bool, **more: Any
) -> ReplayOptions:
    """What the three arguments that every library call takes mean."""
    match: Match = "normal" if match_output else "exit-code"
    return ReplayOptions(cwd=cwd, timeout=timeout, match=match, **more)


def replay(
    source: Reproduction | Trace | BugReport,
    *,
    cwd: Path | str | None = None,
    timeout: float | None = None,
    match_output: bool = True,
    trusted: bool = False,
    options: ReplayOptions | None = None,
) -> ReplayResult:
    """Run the command of `source` again and compare with what was recorded.

    `cwd` defaults to the recorded folder, `timeout` (seconds) to the recorded limit. Without
    `match_output` only the way of ending counts. `options` says more, and says all if given.

    A command that cannot be run here gives the verdict `cannot-run` with what is missing.
    Raises NoCommand if `source` holds no command, TypeError if it is something else, and
    NotTrusted if it was read from a store that it was imported into, unless it is `trusted`.
    """
    options = options or _options(cwd, timeout, match_output=match_output, trusted=trusted)
    reproduction = as_reproduction(source)
    recorded = reproduction.recorded
    permit_report(reproduction.kept, shell_line(recorded), trusted=options.trusted)
    result = _replay_run(recorded, options)
    about = {"report_id": reproduction.report_id or "", "title": reproduction.title}
    if isinstance(source, BugReport):
        about["status"] = source.status
    return result.model_copy(update=about)


def replay_report(
    report: BugReport,
    *,
    cwd: Path | str | None = None,
    timeout: float | None = None,
    match_output: bool = True,
    trusted: bool = False,
) -> ReplayResult:
    """`replay` for a stored report. Raises NoCommand if it holds no command, or NotTrusted."""
    return replay(report, cwd=cwd, timeout=timeout, match_output=match_output, trusted=trusted)


def replay_from_store(
    report_id: str,
    store: ReportStore,
    *,
    cwd: Path | str | None = None,
    timeout: float | None = None,
    match_output: bool = True,
    at_capture: bool = False,
    trusted: bool = False,
) -> ReplayResult:
    """Load `report_id` from `store` and replay it; the verdict is kept in the store's home.

    With `at_capture` it runs in a temporary copy of the files as they were at the capture, and
    `cwd` has no meaning.

    Raises ReportNotFound, UnreadableReport, NoCommand, or NotTrusted if the report came from
    elsewhere and is not `trusted`.
    """
    home = Store(home_for(store.root, Path.cwd(), os.environ), reports=store.root)
    options = _options(
        cwd,
        timeout,
        match_output=match_output,
        root=root_of(store),
        key=home.key,
        at_capture=at_capture,
        snapshots=home.snapshots if at_capture else None,
        trusted=trusted,
    )
    result = replay(store.load(report_id), options=options)
    remember(home, [result])
    return result


def replay_all(
    store: ReportStore,
    *,
    cwd: Path | str | None = None,
    timeout: float | None = None,
    match_output: bool = True,
    jobs: int | None = None,
    trusted: bool = False,
    options: ReplayOptions | None = None,
    on_result: Callable[[str], None] | None = None,
) -> ReplaySummary:
    """Replay every report of `store`, `jobs` at a time (default: one for each processor).

    What came from elsewhere is a row that says so, and is executed only if `trusted`.

    A report that differs while others run is replayed once more alone, and that counts. A
    report that cannot be read or run is a row and never ends the sweep. `on_result` is called
    with the id of each report that is done. The order is that of the ids.

    An interrupt ends the commands that run and returns what was finished.
    """
    options = options or _options(
        cwd, timeout, match_output=match_output, root=root_of(store), trusted=trusted
    )
    reports: dict[str, BugReport] = {}
    unreadable: list[tuple[str, str]] = []
    for name, loaded in store.scan():
        if isinstance(loaded, BugReport):
            reports[name] = loaded
        else:
            unreadable.append((name, loaded.message))
    results = _sweep(reports, options, jobs or os.cpu_count() or 1, on_result)
    return ReplaySummary.of([results[name] for name in sorted(results)], unreadable)


def _sweep(
    reports: Mapping[str, BugReport],
    options: ReplayOptions,
    jobs: int,
    on_result: Callable[[str], None] | None,
) -> dict[str, ReplayResult]:
    cancelled = threading.Event()
    each = replace(options, cancelled=cancelled, redactor=options.redactor or _redactor(options))
    results: dict[str, ReplayResult] = {}
    jobs = min(jobs, max(1, len(reports)))
    pool = ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="replay")
    try:
        futures: dict[Future[ReplayResult], str] = {
            pool.submit(_replay_or_row, report, each): name for name, report in reports.items()
        }
        again: list[str] = []
        for future in as_completed(futures):
            name = futures[future]
            result = future.result()
            if jobs > 1 and result.ran and not result.matched:
                again.append(name)
                continue
            results[name] = result
            if on_result:
                on_result(name)
        for name in sorted(again):
            results[name] = _replay_or_row(reports[name], each)
            if on_result:
                on_result(name)
    except KeyboardInterrupt:
        cancelled.set()
        pool.shutdown(wait=False, cancel_futures=True)
        interrupt_running()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return results


def _replay_or_row(report: BugReport, options: ReplayOptions) -> ReplayResult:
    try:
        return replay(report, options=options)
    except NoCommand as error:
        recorded, why = CommandRun(), str(error)
    except NotTrusted as error:
        recorded, why = command_run_of(report), f"it came from elsewhere ({error.file})"
    return _cannot_run(recorded, why, [], options).model_copy(
        update={"report_id": report.id, "title": report.title, "status": report.status}
    )


def root_of(store: ReportStore) -> Path | None:
    """The git work tree that the reports of `store` lie in; None outside of any."""
    repository = find_repository(store.root)
    return repository.root if repository else None


def _replay_run(expected: CommandRun, options: ReplayOptions) -> ReplayResult:
    """The result of one replay, without the facts of its report."""
    if not options.at_capture:
        return _run_and_compare(expected, options, None)
    try:
        source = _source(expected, options)
        with work_copy(source, options.snapshots, options.links) as copy:
            result = _run_and_compare(expected, options, copy)
    except Missing as missing:
        return _cannot_run(expected, missing.message, missing.names, options)
    except RepoTraceError as error:
        return _cannot_run(expected, error.message, [], options)
    update: dict[str, object] = {"files": source.name, "not_captured": copy.missed()}
    if not result.matched and copy.missed():
        update["detail"] = f"{result.detail}; not captured: {_listed(copy.missed())}"
    return result.model_copy(update=update)


def _listed(paths: list[str], most: int = 5) -> str:
    shown = ", ".join(paths[:most])
    return shown if len(paths) <= most else f"{shown} and {len(paths) - most} more"


def _source(expected: CommandRun, options: ReplayOptions) -> Source:
    """Where the files of the capture are. Raises Missing if they are nowhere."""
    here = [options.root, Path.cwd()]
    environ = options.environment
    return source_of(expected, options.snapshots, environ=environ, repositories=here)


def _run_and_compare(
    expected: CommandRun, options: ReplayOptions, copy: WorkCopy | None
) -> ReplayResult:
    try:
        spec = _spec(expected, options, copy)
    except Missing as missing:
        return _cannot_run(expected, missing.message, missing.names, options)
    runs: list[tuple[CommandRun, Comparison]] = []
    for number in range(max(1, options.repeat)):
        if options.cancelled is not None and options.cancelled.is_set():
            raise KeyboardInterrupt
        if copy is not None and number:
            copy.reset()
        try:
            observed = _execute(spec, options, kept=expected.env)
        except RepoTraceError as error:
            return _cannot_run(expected, error.message, [], options)
        if observed.termination is Termination.INTERRUPTED:
            if runs:  # what has ended says something
                break
            raise KeyboardInterrupt
        if copy is not None:
            observed = copy.placed(observed, expected, exact=options.match == "exact")
        compared = compare(expected, observed, match=options.match, user_rules=options.user_rules)
        runs.append((observed, compared))
    reproduced = sum(compared.verdict.matched for _, compared in runs)
    flaky = 0 < reproduced < len(runs)
    observed, compared = next((pair for pair in runs if not pair[1].verdict.matched), runs[-1])
    if not compared.verdict.matched and not flaky:
        lacking = _missing(expected, observed, compared, options)
        if lacking is not None:
            return _cannot_run(expected, lacking.message, lacking.names, options)
    return _result(expected, observed, compared, spec, reproduced, len(runs))


def _spec(
    expected: CommandRun, options: ReplayOptions, copy: WorkCopy | None = None
) -> CommandSpec:
    return relocate(
        expected,
        environ={**os.environ} if options.environ is None else dict(options.environ),
        root=_root(expected, options.root),
        cwd=None if options.cwd is None else str(options.cwd),
        timeout=options.timeout if options.timeout is not None else _patience(expected),
        overrides=options.env,
        copy=copy.place if copy else None,
    )


def _patience(expected: CommandRun) -> float | None:
    """A limit for what somebody interrupted, which may never end by itself; None for the rest."""
    if expected.termination is not Termination.INTERRUPTED or expected.timeout is not None:
        return None
    return max(1.0, 2 * (expected.duration or 0))


def _root(expected: CommandRun, root: Path | None) -> Path | None:
    """`root`, unless it is a stranger to the recorded repository, which is still here.

    A store may lie in a repository of its own, where the command has no place.
    """
    recorded = expected.places.repository
    commit = expected.repository.commit if expected.repository else None
    if root is None or recorded is None or commit is None:
        return root
    if recorded == os.path.realpath(root) or not Path(expected.cwd).is_dir():
        return root
    try:
        git(["cat-file", "-e", f"{commit}^{{commit}}"], root, deadline=5)
    except GitError:
        return None
    return root


def plan(source: Reproduction | Trace | BugReport, options: ReplayOptions) -> CommandSpec:
    """What `replay` would run, without running it; of a copy, where the original would run.

    Raises RepoTraceError if the command cannot run here, NoCommand if there is none.
    """
    try:
        recorded = as_reproduction(source).recorded
        if options.at_capture:
            _source(recorded, options)
        return _spec(recorded, options)
    except Missing as missing:
        raise RepoTraceError(f"The command cannot run here: {missing.message}.") from missing


def _execute(spec: CommandSpec, options: ReplayOptions, kept: Iterable[str]) -> CommandRun:
    return execute(
        spec,
        redactor=options.redactor or _redactor(options),
        limit=options.settings.output_limit,
        kept=(*options.settings.env_keep, *kept),
        with_repository=options.with_repository,
        with_signature=False,
    )


def _redactor(options: ReplayOptions) -> Redactor:
    """What a rule found keeps the name of that rule, though a variable brings it now."""
    variables = {
        name: value
        for name, value in options.environment.items()
        if not name.startswith("REPOTRACE_SECRET_")
    }
    return Redactor(key=options.key or os.urandom(32), variables=variables)


def _missing(
    expected: CommandRun, observed: CommandRun, compared: Comparison, options: ReplayOptions
) -> Missing | None:
    """What explains a difference better than a change of behaviour does: something is not here."""
    if (
        observed.termination is Termination.SPAWN_ERROR
        and expected.termination is not Termination.SPAWN_ERROR
    ):
        return Missing(observed.error or "the command cannot be started", [])
    patience = _patience(expected) if options.timeout is None else None
    if patience is not None and observed.termination is Termination.TIMEOUT:
        # Nobody knows how it would have ended, so nothing can be told from how it ends now.
        return Missing(
            "it was interrupted when it was recorded, and has not ended after "
            f"{patience:.3g} s now; set a limit with --timeout",
            [],
        )
    if compared.verdict in (Verdict.FIXED, Verdict.PARTLY_FIXED):
        return None
    environ = options.environment
    names = [name for name in expected.env_redacted if name not in environ]
    return Missing(f"needs {', '.join(names)}", names) if names else None


def _cannot_run(
    expected: CommandRun, reason: str, names: list[str], options: ReplayOptions
) -> ReplayResult:
    return ReplayResult(
        report_id="",
        outcome=Outcome.DIFFERS,
        verdict=Verdict.CANNOT_RUN,
        detail=f"cannot run: {reason}",
        differences=[f"cannot run: {reason}"],
        missing=names,
        expected_exit_code=expected.returncode,
        expected_stdout=expected.stdout.text,
        expected_stderr=expected.stderr.text,
        cwd=str(options.cwd or expected.cwd),
        timeout=options.timeout,
        expected=expected,
        repeats=0,
    )


def _result(
    expected: CommandRun,
    observed: CommandRun,
    compared: Comparison,
    spec: CommandSpec,
    reproduced: int,
    repeats: int,
) -> ReplayResult:
    verdict, detail = compared.verdict, compared.detail
    if 0 < reproduced < repeats:
        verdict = Verdict.FLAKY
        detail = f"flaky {reproduced}/{repeats}: {compared.detail} in the other runs"
    elif repeats > 1:
        detail = f"{compared.detail} ({reproduced} of {repeats} runs reproduced)"
    return ReplayResult(
        report_id="",
        outcome=Outcome.MATCHED if verdict.matched else Outcome.DIFFERS,
        verdict=verdict,
        detail=detail,
        differences=list(compared.differences),
        rules=list(compared.rules),
        fixed_tests=list(compared.fixed_tests),
        still_failing=list(compared.still_failing),
        new_failing=list(compared.new_failing),
        reproduced=reproduced,
        repeats=repeats,
        exit_code=observed.returncode,
        expected_exit_code=expected.returncode,
        stdout=observed.stdout.text,
        stderr=observed.stderr.text,
        expected_stdout=expected.stdout.text,
        expected_stderr=expected.stderr.text,
        cwd=observed.cwd,
        timeout=spec.timeout,
        duration=observed.duration,
        trace=trace_of(observed),
        expected=expected,
        observed=observed,
    )


def remember(store: Store, results: list[ReplayResult]) -> RepoTraceError | None:
    """Keep the verdicts in the home. Returns what went wrong, None if nothing did."""
    now = datetime.now(UTC)
    try:
        store.history.record_verdicts(
            store.reports.root,
            [
                (
                    result.report_id,
                    RecordedVerdict(
                        result.verdict, result.detail, now, result.duration, _commit(result)
                    ),
                )
                for result in results
            ],
        )
    except RepoTraceError as error:
        return error
    return None


def _commit(result: ReplayResult) -> str | None:
    state = result.observed.repository if result.observed else None
    return state.commit if state else None


def accepted(
    report: BugReport,
    result: ReplayResult,
    options: ReplayOptions | None = None,
    *,
    files: FileState | None = None,
) -> BugReport:
    """`report` with what the replay saw in place of what was recorded; unsaved.

    `options`: those of the replay. `files`: those of the work tree before it. Raises NoCommand
    if the command could not be run, RepoTraceError if it ran in a copy.
    """
    options = options or ReplayOptions()
    if options.at_capture or result.files:
        raise RepoTraceError(f"The replay of {report.id} ran in a copy that is gone.")
    if result.observed is None:
        raise NoCommand(f"Report {report.id} was not replayed: {result.detail}.")
    run = result.observed
    run = run.model_copy(update={"signature": signature_of(run), "files": files})
    trace = trace_on_host(run, plan(report, options), options.redactor or _redactor(options))
    metadata = report.metadata | metadata_of(trace)
    metadata.pop("command", None)  # of a report by 0.1.0; the new record says it
    return report.model_copy(update={"metadata": metadata})
