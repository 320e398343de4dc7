"""`repotrace play`, and `work replay`, its second name."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from repotrace.cli.options import (
    JsonOption,
    Opened,
    RunArgument,
    note,
    open_runs,
    print_json,
    the_run,
)

if TYPE_CHECKING:
    from repotrace.read.views import StepView
    from repotrace.records.run import Run
    from repotrace.render.runs_layout import Page

StepOption = Annotated[
    int | None, typer.Option("--step", metavar="N", min=1, help="Print this step in full")
]
InteractiveOption = Annotated[
    bool | None,
    typer.Option("--interactive/--no-interactive", help="Print one step, or all in short"),
]
ShowLLMOption = Annotated[
    bool,
    typer.Option("--show-llm/--no-show-llm", help="Print what models were asked and answered"),
]
ShowFilesOption = Annotated[
    bool | None,
    typer.Option("--show-files/--no-show-files", help="Print the diffs of files, or none"),
]
NoFilesOption = Annotated[bool, typer.Option("--no-files", help="As --no-show-files")]


def play(
    ctx: typer.Context,
    run: RunArgument = "latest",
    step: StepOption = None,
    show_llm: ShowLLMOption = False,
    show_files: ShowFilesOption = None,
    no_files: NoFilesOption = False,
    interactive: InteractiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Step through a recorded run; nothing is executed"""
    opened = open_runs(ctx)
    found = the_run(opened, run)
    files = False if no_files else show_files
    if as_json:
        _print_json(opened, found, step, show_llm=show_llm, show_files=files is not False)
        return
    if interactive is None:
        interactive = step is None and sys.stdin.isatty() and sys.stdout.isatty()
    from repotrace.render.runs_layout import Page

    page = Page(opened.color)
    if step is None and not interactive:
        _print_all(opened, found, page, show_llm=show_llm, show_files=bool(files))
        return
    shown = step or 1
    view = _print_step(opened, found, shown, page, show_llm=show_llm, show_files=files is not False)
    if interactive and view.line.number < view.last_step:
        note(f"the next step: repotrace play {found.id} --step {view.line.number + 1}")
        note(f"all steps in short: repotrace play {found.id} --no-interactive")


def work_replay(
    ctx: typer.Context,
    run: RunArgument = "latest",
    step: StepOption = None,
    show_llm: ShowLLMOption = False,
    show_files: ShowFilesOption = None,
    no_files: NoFilesOption = False,
    interactive: InteractiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Step through a recorded run; nothing is executed"""
    note("nothing is executed; this is: repotrace play")
    play(ctx, run, step, show_llm, show_files, no_files, interactive, as_json)


def _print_step(
    opened: Opened, run: Run, number: int, page: Page, *, show_llm: bool, show_files: bool
) -> StepView:
    from repotrace.read.diffs import step_diff
    from repotrace.read.steps import call_before, play_step, repeated_messages
    from repotrace.render.runs_step import step_view

    view = play_step(opened.store, run, number)
    before = call_before(opened.store, run, view) if show_llm else None
    lines = step_view(
        view,
        diff=step_diff(opened.store, view) if show_files else None,
        messages=repeated_messages(view, before) if show_llm else None,
        coloured=page.coloured,
    )
    page.print(lines)
    return view


def _print_all(opened: Opened, run: Run, page: Page, *, show_llm: bool, show_files: bool) -> None:
    from repotrace.read.runs import stream_steps
    from repotrace.render.runs import streamed

    steps = stream_steps(opened.store, run)
    if not (show_llm or show_files):
        page.print(streamed(steps, width=page.width))
        return
    for place, step in enumerate(steps):
        if place:
            page.print([[]])
        _print_step(opened, run, step.number, page, show_llm=show_llm, show_files=show_files)


def _print_json(
    opened: Opened, run: Run, step: int | None, *, show_llm: bool, show_files: bool
) -> None:
    from repotrace.read.runs import show_run
    from repotrace.read.steps import play_step, step_json

    if step is None:
        print_json(show_run(opened.store, run, whole=True).json_object())
        return
    view = play_step(opened.store, run, step)
    print_json(step_json(opened.store, view, messages=show_llm, contents=show_files))
