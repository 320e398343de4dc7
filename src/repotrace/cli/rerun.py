"""`repotrace rerun`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from repotrace.cli.boundary import complain, fail
from repotrace.cli.consent import YesOption, may_execute_run
from repotrace.cli.options import (
    JsonOption,
    Opened,
    RunArgument,
    note,
    open_runs,
    print_json,
    say,
    the_run,
)
from repotrace.cli.runs_alerts import tell_alerts
from repotrace.errors import RepoTraceError
from repotrace.readable import one_line, readable, truncate, visible

if TYPE_CHECKING:
    from repotrace.records.run import Run
    from repotrace.runs.record import Recorded
    from repotrace.runs.rerun import Plan

_SHOWN = 8


def rerun(
    ctx: typer.Context,
    from_step: Annotated[
        str,
        typer.Option(
            "--from-step", metavar="N", help="Begin with the files after this step, or checkpoint"
        ),
    ],
    run: RunArgument = "latest",
    modify_prompt: Annotated[
        str | None,
        typer.Option("--modify-prompt", metavar="TEXT", help="Add this to the task"),
    ] = None,
    prompt_file: Annotated[
        Path | None,
        typer.Option("--prompt-file", metavar="FILE", help="The task, in place of the original"),
    ] = None,
    agent_cmd: Annotated[
        str | None,
        typer.Option(
            "--agent-cmd", metavar="CMD", help="The command; {prompt} stands for the prompt"
        ),
    ] = None,
    into: Annotated[
        Path | None, typer.Option("--into", metavar="DIR", help="A folder, new or empty")
    ] = None,
    worktree: Annotated[
        bool,
        typer.Option("--worktree", help="A git work tree of the repository, on a new branch"),
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Do it; else it is only said what would be")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run an agent on from a step, as a new run; says what it would do unless told to --execute

    The files of the step are written into a folder of their own, and the agent is recorded there.
    Afterwards both runs are compared.
    """
    if modify_prompt is not None and prompt_file is not None:
        raise typer.BadParameter("--modify-prompt and --prompt-file exclude each other")
    opened = open_runs(ctx)
    from repotrace.runs.rerun import plan_rerun

    original, step = _place(opened, run, from_step)
    plan = plan_rerun(
        opened.store,
        original,
        step,
        modify_prompt=modify_prompt,
        prompt=None if prompt_file is None else _read(prompt_file),
        agent_cmd=agent_cmd,
        into=into,
        worktree=worktree,
    )
    if not execute:
        if as_json:
            print_json({"schema_version": 1, "executed": False, **_facts(plan)})
        else:
            _describe(plan)
        return
    if plan.argv:  # else there is nothing to ask about, as is said below
        may_execute_run(opened, original, plan.command, yes=yes)
    recorded = _execute(opened, plan, as_json=as_json)
    _conclude(opened, plan, recorded, as_json=as_json)
    raise typer.Exit(recorded.code)


def _place(opened: Opened, ref: str, from_step: str) -> tuple[Run, int]:
    """The run and the number of the step; a checkpoint may name both."""
    if from_step.isascii() and from_step.isdigit():
        return the_run(opened, ref), int(from_step)
    from repotrace.runs.checkpoints import find_checkpoint

    own = the_run(opened, ref) if ref != "latest" else None
    found = find_checkpoint(opened.store, from_step, run=own)
    return found.run, found.step_number


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RepoTraceError(f"Cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise RepoTraceError(f"{path} is no text in UTF-8.") from None


# --- What would be done -------------------------------------------------------------------------


def _facts(plan: Plan) -> dict[str, Any]:
    return {
        "run_id": plan.run.id,
        "from_step": plan.step,
        "state": {
            "state_id": plan.known.state_id,
            "quality": plan.known.quality,
            "files": plan.files,
            "bytes": plan.size,
            "not_captured": list(plan.not_captured),
        },
        "folder": str(plan.folder),
        "started_in": plan.started_in,
        "branch": plan.branch,
        "linked": list(plan.linked),
        "prompt": plan.prompt,
        "modification": plan.modification,
        "command": list(plan.argv),
        "problem": plan.problem,
        "remaining_steps": [
            {"step_number": step.step_number, "description": step.description}
            for step in plan.remaining
        ],
    }


def _describe(plan: Plan) -> None:
    where = f"after step {plan.step}" if plan.step else "before the first step"
    say(f"would go on {where} of {plan.run.id}")
    if plan.before is not None:
        step = plan.before
        say(f"  step {step.step_number}  {step.step_type} · {one_line(step.description)}")
        if step.reason:
            say(f"          because: {one_line(step.reason, 200)}")
    size = f"{plan.size / 1000:,.1f} kB" if plan.size >= 1000 else f"{plan.size} bytes"
    quality = "" if plan.known.exact else f", {plan.known.quality}"
    say(f"files     {plan.files}, {size}{quality} → {one_line(str(plan.folder))}")
    if plan.branch:
        say(f"          a work tree on the new branch {plan.branch}")
    if plan.linked:
        say(f"          linked to the original's: {', '.join(plan.linked)}")
    rest = [path for path in plan.not_captured if path.rstrip("/") not in plan.linked]
    if rest:
        more = f" and {len(rest) - _SHOWN} more" if len(rest) > _SHOWN else ""
        say(f"          not kept, so not there: {', '.join(map(one_line, rest[:_SHOWN]))}{more}")
    say("prompt")
    for line in readable(plan.prompt).split("\n"):
        say(f"  {line}" if line else "")
    where = "" if plan.started_in == "." else f"in {one_line(plan.started_in)} "
    command = f"{where}$ {truncate(visible(plan.command), 2000)}"
    say(f"command   {command if plan.argv else plan.problem}")
    remaining = [step for step in plan.remaining if step.step_number not in plan.within]
    if remaining:
        number = len(remaining)
        say(f"in the original {number} step{'s follow' if number > 1 else ' follows'}:")
        for step in remaining[:_SHOWN]:
            say(f"  {step.step_number:>3}  {step.step_type}  {one_line(step.description, 100)}")
        if number > _SHOWN:
            say(f"       and {number - _SHOWN} more")
    say()
    if plan.argv:
        say("nothing was done; do it with: --execute")
    else:
        say("nothing was done; say the command with: --agent-cmd '… {prompt} …'")


# --- Doing it -----------------------------------------------------------------------------------


def _execute(opened: Opened, plan: Plan, *, as_json: bool) -> Recorded:
    from repotrace.runs.record import CannotStart
    from repotrace.runs.rerun import prepared, recording

    going = recording(opened.store, plan, os.environ, trusted=True)
    try:
        with prepared(opened.store, plan), going:
            note(f"files of step {plan.step} are in {plan.folder}")
            note(f"recording {going.run_id}")
            for problem in going.problems:
                complain(problem)
            return going.conclude(going.run(all_on_stderr=as_json))
    except CannotStart as error:
        fail(error, error.code)


def _conclude(opened: Opened, plan: Plan, recorded: Recorded, *, as_json: bool) -> None:
    if recorded.run is None:
        complain(f"{recorded.run_id} could not be read: {recorded.problem}")
        if as_json:
            print_json(_done(plan, recorded, None))
        return
    from repotrace.runs.compare import compare_runs

    compared = compare_runs(opened.store, plan.run, recorded.run)
    if as_json:
        print_json(_done(plan, recorded, compared.json_object()))
        tell_alerts(opened, recorded.run)
        return
    from repotrace.render.compare import comparison
    from repotrace.render.runs_layout import Page

    page = Page(opened.color)
    page.print([[]])
    page.print(comparison(compared, width=page.width))
    note(f"recorded {recorded.run_id} · repotrace play {recorded.run_id}")
    tell_alerts(opened, recorded.run)


def _done(plan: Plan, recorded: Recorded, comparison: object) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "executed": True,
        **_facts(plan),
        "new_run_id": recorded.run_id,
        "exit_code": recorded.code,
        "comparison": comparison,
    }
