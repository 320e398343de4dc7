"""`repotrace play`, and `work replay`, its second name."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from repotrace.cli.options import (
    Globals,
    JsonOption,
    Opened,
    RunArgument,
    note,
    open_runs,
    print_json,
    step_named,
    the_run,
)

if TYPE_CHECKING:
    from repotrace.records.run import Run
    from repotrace.render.runs_layout import Page

FOLLOWED = 0.5
"""Seconds between two looks at a run that is followed."""

RUNNING = "running"

StepOption = Annotated[
    str | None,
    typer.Option(
        "--step", metavar="N", help="Begin with this step, or checkpoint; print it in full"
    ),
]
InteractiveOption = Annotated[
    bool | None,
    typer.Option("--interactive/--no-interactive", help="Open the screen, or print"),
]
ShowLLMOption = Annotated[
    bool,
    typer.Option("--show-llm/--no-show-llm", help="Show what models were asked and answered"),
]
ShowFilesOption = Annotated[
    bool | None,
    typer.Option("--show-files/--no-show-files", help="Show the diffs of files, or none"),
]
NoFilesOption = Annotated[bool, typer.Option("--no-files", help="As --no-show-files")]


PlainOption = Annotated[
    bool, typer.Option("--plain", help="Print; do not open the screen (as --no-interactive)")
]
FollowOption = Annotated[
    bool, typer.Option("--follow", help="Go on with a run that is still being recorded")
]


def play(
    ctx: typer.Context,
    run: RunArgument = "latest",
    named: StepOption = None,
    show_llm: ShowLLMOption = False,
    show_files: ShowFilesOption = None,
    no_files: NoFilesOption = False,
    interactive: InteractiveOption = None,
    plain: PlainOption = False,
    follow: FollowOption = False,
    as_json: JsonOption = False,
) -> None:
    """Step through a recorded run; nothing is executed"""
    opened = open_runs(ctx)
    found = the_run(opened, run)
    step = None if named is None else step_named(opened, found, named)
    files = False if no_files else show_files
    if as_json:
        _print_json(opened, found, step, show_llm=show_llm, show_files=files is not False)
        return
    if interactive is None:
        interactive = not plain and _has_screen()
    if interactive and _has_screen():
        base = _base_command(ctx)
        _show_screen(opened, found, step, base, show_llm=show_llm, files=files, follow=follow)
        return
    if interactive:
        _step_on_console(opened, found, step, show_llm=show_llm, show_files=files is not False)
        return
    from repotrace.render.runs_layout import Page

    page = Page(opened.color)
    if follow:
        _print_on(opened, found, page)
    elif step is None:
        _print_all(opened, found, page, show_llm=show_llm, show_files=bool(files))
    else:
        _print_step(opened, found, step, page, show_llm=show_llm, show_files=files is not False)


def work_replay(
    ctx: typer.Context,
    run: RunArgument = "latest",
    named: StepOption = None,
    show_llm: ShowLLMOption = False,
    show_files: ShowFilesOption = None,
    no_files: NoFilesOption = False,
    interactive: InteractiveOption = None,
    plain: PlainOption = False,
    follow: FollowOption = False,
    as_json: JsonOption = False,
) -> None:
    """Step through a recorded run; nothing is executed"""
    note("nothing is executed; this is: repotrace play")
    play(ctx, run, named, show_llm, show_files, no_files, interactive, plain, follow, as_json)


# --- On a terminal --------------------------------------------------------------------------


def _has_screen() -> bool:
    """Whether there is a terminal that a screen can be drawn on."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return is_terminal and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


def _base_command(ctx: typer.Context) -> str:
    """How RepoTrace is called again for the same store."""
    said = ctx.find_object(Globals) or Globals()
    if said.home is None:
        return "repotrace"
    return f"repotrace --home {shlex.quote(str(said.home))}"


def _show_screen(
    opened: Opened,
    run: Run,
    step: int | None,
    base: str,
    *,
    show_llm: bool,
    files: bool | None,
    follow: bool,
) -> None:
    from repotrace.read.playing import PlayedRun
    from repotrace.tui.looks import theme_for
    from repotrace.tui.opening import play_run
    from repotrace.tui.options import PlayOptions

    options = PlayOptions(
        step=step,
        show_llm=show_llm,
        show_files=files is not False,
        follow=follow,
        command=base,
        colourless=opened.color == "never",
        theme=theme_for(os.environ),
    )
    code = play_run(PlayedRun(opened.store, run), options)
    opened.store.close()
    if code:
        raise typer.Exit(code)


def _step_on_console(
    opened: Opened, run: Run, step: int | None, *, show_llm: bool, show_files: bool
) -> None:
    """Line by line, where there is no terminal for a screen."""
    from repotrace.runs.session import ReplaySession

    session = ReplaySession(opened.store.runs.trace(run.id))
    if step is not None and session.jump(step) is None:
        opened.store.runs.step(run.id, step)
    session.interactive_mode(show_llm=show_llm, show_files=show_files)


# --- Elsewhere ------------------------------------------------------------------------------


def _print_on(opened: Opened, run: Run, page: Page) -> None:
    """The steps in short, each when it has ended, until the run has."""
    import time

    from repotrace.read.playing import PlayedRun
    from repotrace.render.runs import streamed

    played = PlayedRun(opened.store, run)
    shown: set[int] = set()
    while True:
        is_over = played.run.status != RUNNING
        for place in range(len(played)):
            if place not in shown and (is_over or played.outline(place).completed_at is not None):
                page.print(streamed([played.line(place)], width=page.width))
                shown.add(place)
        if is_over:
            return
        time.sleep(FOLLOWED)
        played.refresh()


def _print_step(
    opened: Opened, run: Run, number: int, page: Page, *, show_llm: bool, show_files: bool
) -> None:
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


def _print_all(opened: Opened, run: Run, page: Page, *, show_llm: bool, show_files: bool) -> None:
    from repotrace.read.alerts import alerts_in
    from repotrace.read.runs import stream_steps
    from repotrace.render.alerts import alert_rows
    from repotrace.render.runs import streamed

    steps = stream_steps(opened.store, run)
    if not (show_llm or show_files):
        page.print(streamed(steps, width=page.width))
        alerts = alerts_in(opened.store, run.id)
        page.print([[], *alert_rows(alerts, width=page.width)] if alerts else [])
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
