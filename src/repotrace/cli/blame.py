"""`repotrace blame`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from repotrace.cli.boundary import INTERRUPTED
from repotrace.cli.check import (
    DryRunOption,
    JobsOption,
    Teller,
    TestCommandOption,
    TimeLimitOption,
    chosen_run,
    how_to_test,
    split_words,
)
from repotrace.cli.consent import YesOption, may_execute_run
from repotrace.cli.options import JsonOption, Opened, StoreOption, note, open_runs, print_json, say
from repotrace.readable import visible

if TYPE_CHECKING:
    from repotrace.blame import Plan
    from repotrace.records.blame import Blame
    from repotrace.records.run import Run
    from repotrace.runs.blame import Blaming

NOTHING_BROKEN = 1
UNDECIDED = 2


def blame(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN|TEST", help="A run, and ids of tests; default: failing"),
    ] = None,
    test_cmd: TestCommandOption = None,
    jobs: JobsOption = 1,
    budget: Annotated[
        int, typer.Option("--budget", metavar="N", min=1, help="Executions to find one break")
    ] = 100,
    timeout: TimeLimitOption = None,
    confidence: Annotated[
        float,
        typer.Option("--confidence", metavar="P", min=0.5, max=0.9999, help="For flaky tests"),
    ] = 0.95,
    no_reduce: Annotated[
        bool, typer.Option("--no-reduce", help="Leave the change whole, and undo nothing")
    ] = False,
    scan: Annotated[bool, typer.Option("--scan", help="Run all different states")] = False,
    original_tests: Annotated[
        bool, typer.Option("--original-tests", help="Lay the first tests over all states")
    ] = False,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Believe nothing that was executed before")
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the step that broke a test, by running it

    Exits with 0 if a step is named, 1 if nothing is broken, 2 if that is undecided.
    """
    from repotrace.blame import Plan
    from repotrace.runs.blame import BlameOptions, Blaming
    from repotrace.runs.checking.sides import sides_of_run
    from repotrace.runs.testing.options import bench_for, workspace_of

    opened = open_runs(ctx, store)
    ref, tests = split_words(opened, words or [])
    run = chosen_run(opened, ref, None)
    plan = Plan(
        confidence=confidence, budget=budget, reduce=not no_reduce, undo=not no_reduce, scan=scan
    )
    teller = Teller()
    testing = how_to_test(opened, test_cmd, timeout, rerun=rerun)
    sides = sides_of_run(opened.store, run)
    done: list[Blame] = []
    with bench_for(opened.store, workspace_of(run, opened.store), testing, run=run) as bench:
        options = BlameOptions(
            plan=plan, jobs=jobs, original_tests=original_tests, on_progress=teller.progress
        )
        blaming = Blaming(bench, sides, run, options)
        if dry_run:
            _print_plan(blaming, plan, tests)
            raise typer.Exit(0)
        may_execute_run(opened, run, bench.about, yes=yes)
        bench.permit(trusted=True)
        teller.announce(bench, len({one.state_id for one in sides.candidates}))
        try:
            if not all("::" in test for test in tests) or not tests:
                teller.stage(f"looking for failing tests {sides.about}")
            tests = blaming.meant(tests)
            for test in tests:
                teller.stage(f"blaming {test or bench.line()}")
                found = blaming.blame(test)
                done.append(found)
                teller.clear()
                if not as_json:
                    _print(found, opened.color)
        except KeyboardInterrupt:
            teller.clear()
            note(f"interrupted; {bench.executed} executions are kept, the same command goes on")
            raise typer.Exit(INTERRUPTED) from None
        finally:
            opened.store.close()
    if as_json:
        print_json(
            {
                "schema_version": 1,
                "run_id": run.id,
                "exit_code": _exit_code(done),
                "blames": [_plain(found) for found in done],
            }
        )
    elif not done:
        say("nothing is broken: all tests pass at the end of the run, and it saw none fail")
    raise typer.Exit(_exit_code(done))


def show_verdicts(opened: Opened, run: Run, *, as_json: bool) -> None:
    """What blame said of the tests of a run, with the executions that it rests on."""
    from repotrace.records.blame import Blame

    kept = [Blame.model_validate(one.record) for one in opened.store.memo.verdicts(run.id)]
    if as_json:
        print_json({"schema_version": 1, "run_id": run.id, "blames": [_plain(b) for b in kept]})
        return
    if not kept:
        say("nothing was blamed in this run; do it with: repotrace blame")
        return
    from repotrace.render.blame import evidence_view
    from repotrace.render.console import console

    terminal = console(color=opened.color)
    for found in kept:
        _print(found, opened.color)
        terminal.print(evidence_view(found))


def _plain(found: Blame) -> dict[str, Any]:
    return found.model_dump(mode="json")


def _exit_code(done: list[Blame]) -> int:
    codes = {found.exit_code for found in done} or {NOTHING_BROKEN}
    if UNDECIDED in codes:
        return UNDECIDED
    return 0 if 0 in codes else NOTHING_BROKEN


def _print(found: Blame, color: str) -> None:
    from repotrace.render.blame import blame_view
    from repotrace.render.console import console

    console(color=color).print(blame_view(found))


def _print_plan(blaming: Blaming, plan: Plan, tests: list[str]) -> None:
    from repotrace.blame import executions_at_most

    states = blaming.different_states
    likely, proven = executions_at_most(states, plan=plan)
    seconds = blaming.usual_duration
    line = blaming.bench.line(tests if blaming.bench.command.pytest else ())
    say(f"command  {visible(line)}")
    say(f"states   {states}, up to step {blaming.last_step} of {blaming.last_step}")
    say(f"at most  {proven} executions a test ({likely} to find the step), and up to")
    say(f"         {plan.reduce_budget if plan.reduce else 0} more to make it minimal")
    if seconds is not None:
        say(f"time     about {proven * seconds:.0f} s a test, at {seconds:.1f} s an execution")
