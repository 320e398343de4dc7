"""A failing command or test of a run as a report, with the files that it ran on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from repotrace.capture import Stored, build_report, store_report
from repotrace.config import Settings
from repotrace.errors import RepoTraceError
from repotrace.filestate import LISTED, held_files
from repotrace.records.base import printable
from repotrace.records.bug import BugReport
from repotrace.records.command import (
    CommandRun,
    FileState,
    LeftOut,
    Output,
    Places,
    RepositoryState,
    Termination,
)
from repotrace.records.run import ExecutionStep, Run, StateQuality, StepCommand, TestOutcome
from repotrace.records.trace import metadata_of, trace_of
from repotrace.redact import Redactor
from repotrace.replay import ReplayOptions, replay
from repotrace.runs.restore import lacking
from repotrace.runs.states import StatesOfRun
from repotrace.signatures import signature_of
from repotrace.storage import Store
from repotrace.storage.consent import foreign_run, permit_run
from repotrace.system.surroundings import host_facts

_KEPT_OPTIONS = ("-c", "--config-file", "--rootdir", "-p", "-o", "--override-ini", "--import-mode")
"""Of pytest, each with a value: without them it may not find the test."""
_HOST = ("platform", "machine")
_NAMED = 5


class Failure(NamedTuple):
    """What failed in a run: a command, or a test and the command that ran it."""

    step: ExecutionStep
    command: StepCommand | None
    test: TestOutcome | None = None


@dataclass(frozen=True, slots=True)
class Reported:
    """What became of a failure."""

    stored: Stored
    failure: Failure
    run: CommandRun
    """As the report has it."""
    alone: bool
    """Whether the test was run by itself for it, in a copy of the files."""
    doubts: tuple[str, ...] = ()
    """One line each, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """How to make the report."""

    redactor: Redactor
    settings: Settings = field(default_factory=Settings)
    environ: Mapping[str, str] | None = None
    """Of a test that is run; None: ours."""
    as_recorded: bool = False
    """Keep the command that ran a test as a whole, and run nothing."""
    report_id: str | None = None
    trusted: bool = False
    """Whether a test of a run that came from elsewhere is executed."""
    on_run: Callable[[CommandRun], None] | None = None
    """Called before a test is run."""


def find_failure(
    store: Store, run: Run, *, step: int | None = None, test: str | None = None
) -> Failure:
    """The last command or test that failed: in a step and its parts, or in the whole run.

    `test` is a node id, or the beginning or end of one. Raises RunNotFound if there is no such
    step, and RepoTraceError if nothing failed there.
    """
    steps = {found.id: found for found in store.runs.steps(run.id)}
    chosen = steps if step is None else _with_parts(steps, store.runs.step(run.id, step).id)
    commands = [item for item in store.runs.commands(run.id) if item.step_id in chosen]
    tests = [item for item in store.runs.tests(run.id) if item.step_id in chosen]
    where = f"step {step} of run {run.id}" if step is not None else f"run {run.id}"
    failed = [item for item in tests if item.failed]
    if test is not None:
        outcome = _named(test, tests, failed, where)
        return Failure(steps[outcome.step_id], _command_of(outcome, commands), outcome)
    broken = [item for item in commands if item.exit_code not in (None, 0) and not item.background]
    if broken and not (_unheard(broken[-1]) and any(_ran(broken[-1], item) for item in failed)):
        return Failure(steps[broken[-1].step_id], broken[-1])
    if broken:
        failed = [item for item in failed if _ran(broken[-1], item)]
    if failed:
        last = failed[-1]
        return Failure(steps[last.step_id], _command_of(last, commands), last)
    known = "failed" if commands or tests else "is known"
    raise RepoTraceError(
        f"No command and no test {known} in {where}.",
        hint=f"See its commands and tests with: repotrace runs show {run.id}",
    )


def report_failure(store: Store, run: Run, failure: Failure, options: ReportOptions) -> Reported:
    """Make a report of the failure and store it, with its files.

    A test is run once by itself, in a copy of the files that it ran on, so that the report
    shows that test alone. If that is not possible, or if it passes alone, the command that ran
    it is reported as a whole. Raises RepoTraceError if there is none, and NotTrusted if the run
    came from elsewhere; then its reports did, too.
    """
    whole = _recorded(store, run, failure)
    doubts: list[str] = []
    alone = None
    if failure.test is not None and not options.as_recorded:
        what = f"the test {failure.test.node_id}"
        permit_run(store, run.id, what, trusted=options.trusted)
        alone, doubt = _run_alone(store, failure.test, whole, options)
        doubts += [doubt] if doubt else []
    command = alone or whole
    if not command.argv and command.script is None:
        node = failure.test.node_id if failure.test else ""
        raise RepoTraceError(
            f"No command is known that ran {printable(node)}.",
            hint="Run the test with: repotrace capture COMMAND",
        )
    if command.files is None or command.files.state_id is None:
        why = f": {command.files.reason}" if command.files and command.files.reason else ""
        doubts.append(f"the files that it ran on were not kept{why}")
    elif command.files.quality != "exact":
        doubts.append(f"the files that it ran on are {command.files.quality}")
    if alone is None and failure.command is not None and _unheard(failure.command):
        doubts.append("what it printed is not known; replay it with --exit-code-only")
    report = _report(run, failure, command, options, alone=alone is not None)
    with held_files(store, command.files or FileState()) as files:
        stored = store_report(report, store, files, origin=foreign_run(store, run.id))
    return Reported(stored, failure, command, alone is not None, tuple(doubts))


# --- Which failure --------------------------------------------------------------------------


def _with_parts(steps: Mapping[str, ExecutionStep], whole: str) -> set[str]:
    chosen = {whole}
    # A part has a higher number than what it is a part of.
    for step in sorted(steps.values(), key=lambda step: step.step_number):
        if step.parent_id in chosen:
            chosen.add(step.id)
    return chosen


def _named(
    test: str, tests: Iterable[TestOutcome], failed: list[TestOutcome], where: str
) -> TestOutcome:
    matching = [item for item in failed if item.node_id == test]
    matching = matching or [
        item for item in failed if item.node_id.endswith(test) or item.node_id.startswith(test)
    ]
    names = sorted({item.node_id for item in matching})
    if len(names) > 1:
        raise RepoTraceError(
            f"{test!r} means {len(names)} failing tests in {where}.",
            hint=f"Say one of: {_list(names)}",
        )
    if matching:
        return matching[-1]
    if any(item.node_id == test for item in tests):
        problem = f"The test {test} did not fail in {where}."
    else:
        problem = f"No failing test {test} is known in {where}."
    others = sorted({item.node_id for item in failed})
    raise RepoTraceError(problem, hint=f"Failed there: {_list(others)}" if others else None)


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return printable(", ".join(names[:_NAMED]) + more)


def _ran(command: StepCommand, outcome: TestOutcome) -> bool:
    return outcome.command_id == command.id or (
        outcome.command_id is None and command.is_test and outcome.step_id == command.step_id
    )


def _unheard(command: StepCommand) -> bool:
    """Whether nobody was there to hear what a run of tests printed: it always prints something."""
    run = command.command
    return command.is_test and not run.stdout.length and not run.stderr.length


def _command_of(outcome: TestOutcome, commands: list[StepCommand]) -> StepCommand | None:
    """The command that ran the test: the one it names, else the last one of its step that did."""
    if outcome.command_id is not None:
        return next((item for item in commands if item.id == outcome.command_id), None)
    of_step = [item for item in commands if item.step_id == outcome.step_id and item.is_test]
    return of_step[-1] if of_step else None


# --- The command as it ran ------------------------------------------------------------------


def _recorded(store: Store, run: Run, failure: Failure) -> CommandRun:
    """The command with what else the run knows of it. Without a command or script if none ran."""
    item = failure.command
    command = item.command if item is not None else CommandRun(exit_code=1)
    update: dict[str, Any] = {"files": _files(store, run, failure)}
    if command.termination is Termination.EXITED and command.exit_code is None:
        update["exit_code"] = item.exit_code if item is not None else None
    workspace = run.workspace
    if workspace is not None:
        cwd = command.cwd or workspace
        update["cwd"] = cwd
        inside = os.path.relpath(cwd, workspace)
        if run.base_commit is not None and inside.split("/")[0] != "..":
            if command.cwd_in_repository is None:
                update["cwd_in_repository"] = inside
            if command.repository is None:
                branch = run.attributes.get("git_branch")
                update["repository"] = RepositoryState(
                    commit=run.base_commit,
                    branch=branch if isinstance(branch, str) else None,
                    dirty=None,
                )
            if command.places.repository is None:
                known = {"cwd": command.places.cwd or cwd, "repository": workspace}
                update["places"] = command.places.model_copy(update=known)
        elif command.places.cwd is None:
            update["places"] = command.places.model_copy(update={"cwd": cwd})
    if command.started_at is None and item is not None:
        update["started_at"] = item.timestamp
    return command.model_copy(update=update)


def _files(store: Store, run: Run, failure: Failure) -> FileState:
    before = StatesOfRun.of(store, run).before(failure.step.step_number)
    state, quality, reason = before.state_id, before.quality, before.reason
    named = failure.test.state_id if failure.test is not None else None
    if named is None and failure.command is not None:
        named = failure.command.state_id
    if named is not None and named != state:
        state, quality, reason = named, StateQuality.EXACT, None
    workspace = run.workspace or ""
    if state is None:
        return FileState(quality="missed", reason=reason, workspace=workspace)
    found = lacking(store, run, state)
    return FileState(
        state_id=state,
        quality=quality,
        reason=reason,
        workspace=os.path.realpath(workspace) if workspace else "",
        not_captured=tuple(
            LeftOut(path=item.path + "/" * item.is_folder, reason=item.reason)
            for item in found.not_captured[:LISTED]
        ),
        not_captured_count=len(found.not_captured) + found.more,
    )


# --- One test by itself ---------------------------------------------------------------------


def narrowed(command: CommandRun, node_id: str) -> CommandRun | None:
    """The command of one pytest test out of one that ran many; None if it was not pytest."""
    words = list(command.argv)
    place = next((n for n, word in enumerate(words) if _is_pytest(word)), None)
    if command.script is None and place is not None:
        head, options = words[: place + 1], _kept_options(words[place + 1 :])
    elif not words and ("pytest" in (command.script or "") or ".py" in node_id):
        head, options = ["python", "-m", "pytest"], []
    else:
        return None
    same_program = bool(words) and command.script is None
    return command.model_copy(
        update={
            "argv": (*head, *options, node_id),
            "script": None,
            "resolved": command.resolved if same_program else None,
        }
    )


def _is_pytest(word: str) -> bool:
    return word.rpartition("/")[2] in ("pytest", "py.test")


def _kept_options(words: list[str]) -> list[str]:
    kept: list[str] = []
    for number, word in enumerate(words):
        name, equals, _ = word.partition("=")
        if name not in _KEPT_OPTIONS:
            continue
        if equals:
            kept.append(word)
        elif number + 1 < len(words):
            kept += [word, words[number + 1]]
    return kept


def _run_alone(
    store: Store, test: TestOutcome, whole: CommandRun, options: ReportOptions
) -> tuple[CommandRun | None, str | None]:
    """The test run by itself on its files, or why it cannot be reported like that."""
    if test.runner not in (None, "pytest"):
        return None, None
    command = narrowed(whole, test.node_id)
    if command is None:
        return None, None
    if command.files is None or command.files.state_id is None:
        return None, "its files were not kept, so the test was not run by itself"
    if options.on_run is not None:
        options.on_run(command)
    replaying = ReplayOptions(
        environ=options.environ,
        settings=options.settings,
        redactor=options.redactor,
        at_capture=True,
        snapshots=store.snapshots,
        timeout=command.timeout or options.settings.timeout,
    )
    result = replay(trace_of(command), options=replaying)
    if result.observed is None:
        return None, f"the test cannot be run by itself: {result.detail}"
    observed = _moved_back(result.observed, result.cwd, command)
    signature = signature_of(observed)
    if not observed.failed:
        return None, "by itself, on the same files, the test passes"
    if signature is None or test.node_id not in signature.failing_tests:
        return None, f"by itself the test fails otherwise: {observed.ending}"
    return observed.model_copy(update={"signature": signature}), None


def _moved_back(observed: CommandRun, cwd: str, recorded: CommandRun) -> CommandRun:
    """What ran in a copy that is gone, as if it had run in the work tree."""
    assert recorded.files is not None
    workspace = recorded.files.workspace
    inside = os.path.relpath(os.path.realpath(recorded.cwd), workspace)
    copy = str(Path(cwd).parents[inside.count("/")]) if inside != "." else cwd

    def moved(text: str | None) -> str | None:
        return text.replace(copy, workspace) if text is not None else None

    def output(stream: Output) -> Output:
        old, new = os.fsencode(copy), os.fsencode(workspace)
        parts = {"head": stream.head.replace(old, new), "tail": stream.tail.replace(old, new)}
        return stream.model_copy(update=parts)

    return observed.model_copy(
        update={
            "argv": tuple(moved(word) or "" for word in observed.argv),
            "resolved": moved(observed.resolved),
            "cwd": recorded.cwd,
            "cwd_in_repository": recorded.cwd_in_repository,
            "env": {name: moved(value) or "" for name, value in observed.env.items()},
            "stdout": output(observed.stdout),
            "stderr": output(observed.stderr),
            "chunks": (),
            "places": Places(**{name: moved(path) for name, path in observed.places}),
            "repository": recorded.repository,
            "files": recorded.files,
        }
    )


# --- The report -----------------------------------------------------------------------------


def _report(
    run: Run, failure: Failure, command: CommandRun, options: ReportOptions, *, alone: bool
) -> BugReport:
    facts = host_facts("/", {}, None)
    trace = trace_of(command, {name: facts[name] for name in _HOST})
    origin: dict[str, Any] = {"run_id": run.id, "step_number": failure.step.step_number}
    # Now, not when it failed: whoever makes a report goes on with `latest`.
    more: dict[str, Any] = {"created_at": datetime.now(UTC)}
    if failure.test is not None:
        origin |= {"test": printable(failure.test.node_id), "alone": alone}
        more["title"] = f"Test failed: {printable(failure.test.node_id)}"
    about = f": {failure.step.description}" if failure.step.description else ""
    return build_report(
        trace,
        report_id=options.report_id,
        description=f"Step {failure.step.step_number} of run {run.id}{about}",
        tags=["run"],
        metadata=metadata_of(trace) | {"run": origin},
        **more,
    )
