"""`repotrace replay`."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from typing import Annotated, Literal

import typer

from repotrace.cli.boundary import INTERRUPTED, NO_ANSWER, complain, warn
from repotrace.cli.consent import YesOption, may_execute_report
from repotrace.cli.options import (
    AtCaptureOption,
    CwdOption,
    JsonOption,
    KeepGoingOption,
    LinkOption,
    Opened,
    ReportArgument,
    StoreOption,
    TimeoutOption,
    check_copy_options,
    inherited,
    note,
    open_store,
    print_json,
    say,
    the_report,
)
from repotrace.comparison import Match
from repotrace.errors import RepoTraceError
from repotrace.filestate import KeptFiles, forget_files, keep_files
from repotrace.readable import shell_line
from repotrace.records.bug import BugReport
from repotrace.records.command import CommandRun
from repotrace.records.replay import ReplayResult
from repotrace.records.trace import command_run_of
from repotrace.redact import Redactor
from repotrace.replay import (
    ReplayOptions,
    Verdict,
    accepted,
    diff,
    plan,
    remember,
    root_of,
)
from repotrace.replay import replay as run_replay
from repotrace.sweeps import reasons_json

REPRODUCED, DIFFERENT, COULD_NOT_RUN = 0, 1, 2
"""What `git bisect run` takes for: this commit cannot be judged."""


def replay(
    ctx: typer.Context,
    report_id: ReportArgument = "latest",
    store: StoreOption = None,
    cwd: CwdOption = None,
    timeout: TimeoutOption = None,
    exit_code_only: Annotated[
        bool, typer.Option("--exit-code-only", help="Compare how it ended, not the output")
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Demand the same output, byte for byte")
    ] = False,
    repeat: Annotated[
        int, typer.Option("--repeat", metavar="N", min=1, help="Run it N times; tells flaky ones")
    ] = 1,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="Set this variable; may be repeated"),
    ] = None,
    expect: Annotated[
        Literal["failure", "fixed"],
        typer.Option("--expect", help="What gives exit code 0"),
    ] = "failure",
    bisect: Annotated[
        bool, typer.Option("--bisect", help="Exit as git bisect run wants it: 1, 0 or 125")
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Record what happens now in place of the old record")
    ] = False,
    at_capture: AtCaptureOption = False,
    link: LinkOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be run, and run nothing")
    ] = False,
    keep_going: KeepGoingOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the command of a report again and compare

    Exits with 0 if the failure is reproduced, 1 if not, 2 if the command cannot run here.
    """
    if exact and exit_code_only:
        raise typer.BadParameter("--exact and --exit-code-only exclude each other")
    check_copy_options(at_capture=at_capture, cwd=cwd, link=link)
    if at_capture and (accept or bisect):
        other = "--accept" if accept else "--bisect"
        raise typer.BadParameter(f"{other} is about the present files, not those --at-capture")
    opened = open_store(ctx, store)
    report = the_report(opened, report_id)
    match: Match = "exact" if exact else "exit-code" if exit_code_only else "normal"
    options = replace(
        options_for(opened),
        cwd=cwd,
        timeout=timeout,
        match=match,
        repeat=repeat,
        env=_variables(env or []),
        at_capture=at_capture,
        links=tuple(link or ()),
        snapshots=opened.store.snapshots if at_capture else None,
    )
    if dry_run:
        _print_plan(report, options, as_json=as_json)
        return
    may_execute_report(report, yes=yes)
    options = replace(options, trusted=True)
    if accept:
        _accept(opened, report, options, as_json=as_json, exact=exact)
        return
    result = replay_once(opened, report, options)
    _print(opened, result, as_json=as_json, exact=exact)
    if result.ran and result.repeats < repeat:
        complain(f"interrupted after {result.repeats} of {repeat} runs")
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if keep_going else _exit_code(result, expect, bisect=bisect))


def _accept(
    opened: Opened, report: BugReport, options: ReplayOptions, *, as_json: bool, exact: bool
) -> None:
    """Replay, and record what happens with the files that it happens on."""
    with _kept_files(opened, report, options) as files:
        result = replay_once(opened, report, options)
        _print(opened, result, as_json=as_json, exact=exact)
        if not result.ran:
            return
        new = accepted(report, result, options, files=files.facts)
        opened.store.reports.save(new)
        # Those of the old record go in any case.
        forget_files(opened.store, report.id)
        files.claim(report.id)
        note(f"accepted: {report.id} now records {_ending(result.observed)}")
        files.settle()


def _kept_files(opened: Opened, report: BugReport, options: ReplayOptions) -> KeptFiles:
    if not opened.settings.snapshot:
        return KeptFiles()
    try:
        cwd = plan(report, options).cwd
    except RepoTraceError:  # the replay says it better
        return KeptFiles()
    redactor = Redactor(key=opened.store.key, variables=options.environment)
    return keep_files(opened.store, cwd, os.environ, redactor)


def _print(opened: Opened, result: ReplayResult, *, as_json: bool, exact: bool) -> None:
    if as_json:
        more = {"cwd": result.cwd, "files": result.files, "not_captured": result.not_captured}
        print_json({"schema_version": 1, **diff(result), **reasons_json(result), **more})
    else:
        _print_result(opened, result, exact=exact)


def options_for(opened: Opened) -> ReplayOptions:
    """How this project replays, before any flag."""
    return ReplayOptions(
        environ=inherited(opened),
        root=root_of(opened.store.reports),
        settings=opened.settings,
        key=opened.store.key,
        with_repository=True,
    )


def replay_once(opened: Opened, report: BugReport, options: ReplayOptions) -> ReplayResult:
    """Replay one report: the command goes to stderr first, the verdict into the home."""
    note(f"$ {shell_line(command_run_of(report))}")
    result = run_replay(report, options=options)
    if result.files:
        note(f"ran in a copy of {result.files}")
    warn(remember(opened.store, [result]))
    return result


def _variables(pairs: list[str]) -> dict[str, str]:
    variables = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            if name not in os.environ:
                raise typer.BadParameter(f"{name} is not set; say {name}=VALUE", param_hint="--env")
            value = os.environ[name]
        variables[name] = value
    return variables


def _print_plan(report: BugReport, options: ReplayOptions, *, as_json: bool) -> None:
    planned = plan(report, options)
    run = command_run_of(report)
    changed = {
        name: value
        for name, value in planned.env.items()
        if os.environ.get(name) != value and name in run.env
    }
    if as_json:
        more: dict[str, object] = {"at_capture": options.at_capture}
        view = {"id": report.id, "argv": list(planned.argv), "script": planned.script}
        more |= {"cwd": planned.cwd, "timeout": planned.timeout, "env": changed}
        print_json({"schema_version": 1, **view, **more})
        return
    if options.at_capture:
        say("# in a temporary copy of the files as they were at the capture")
    say(f"cd {shlex.quote(planned.cwd)}")
    for name, value in sorted(changed.items()):
        say(f"export {name}={shlex.quote(value)}")
    say(shell_line(run.model_copy(update={"argv": planned.argv, "script": planned.script})))


def _print_result(opened: Opened, result: ReplayResult, *, exact: bool) -> None:
    from repotrace.render.console import console
    from repotrace.render.replays import differences_view, result_line

    out = console(color=opened.color)
    out.print(result_line(result), soft_wrap=True)
    if result.verdict != Verdict.SAME and result.observed is not None:
        view = differences_view(result, opened.settings.normalize, exact=exact)
        if view is not None:
            out.print(view, soft_wrap=True)
    if result.verdict == Verdict.FIXED and result.repeats == 1:
        note("one pass proves little for a failure that comes and goes; see --repeat 10")
    recorded = result.expected
    if recorded and recorded.stdin_kind == "terminal" and not result.matched and result.ran:
        note("what was typed at the terminal was not recorded; if it reads any input, capture it")
        note("again with: repotrace capture --stdin FILE")


def _ending(run: CommandRun | None) -> str:
    return run.ending if run else "nothing"


def _exit_code(result: ReplayResult, expect: str, *, bisect: bool) -> int:
    if bisect:
        if result.matched:
            return DIFFERENT
        return 0 if result.verdict == Verdict.FIXED else NO_ANSWER
    if not result.ran:
        return COULD_NOT_RUN
    wanted = result.verdict == Verdict.FIXED if expect == "fixed" else result.matched
    return REPRODUCED if wanted else DIFFERENT
