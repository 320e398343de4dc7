"""`repotrace demo`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from repotrace.cli.check import Teller
from repotrace.cli.options import Globals, JsonOption, print_json

if TYPE_CHECKING:
    from repotrace.demo.story import Story
    from repotrace.records.run import Run

UNDECIDED = 2


def demo(
    ctx: typer.Context,
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="DIR", help="A new folder for it; default: a temporary one"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show in a folder of its own what check and blame find

    An agent works on a small project and says that all tests pass; then its run is checked, and
    the break is blamed on a step. Nothing is sent, and nothing is written outside of the folder.
    """
    import tempfile

    from repotrace.demo.project import refuse_used
    from repotrace.demo.story import PROJECT, demonstrate
    from repotrace.render.console import console
    from repotrace.render.demo import (
        agent_view,
        beginning_view,
        check_part,
        ending_view,
        proof_part,
    )
    from repotrace.workcopy import remove_tree

    terminal = console(color=(ctx.find_object(Globals) or Globals()).color)
    folder = Path(os.path.abspath(into or tempfile.mkdtemp(prefix="repotrace-demo-")))  # noqa: PTH100
    repository = folder / PROJECT
    refuse_used(folder)
    teller = Teller()

    def tell(view: Any) -> None:
        teller.clear()
        if not as_json:
            # A terminal that breaks a line itself lets it be copied whole.
            terminal.print(view, soft_wrap=True)

    def agent_is_done(run: Run, said: str) -> None:
        tell(agent_view(run, said))

    try:
        tell(beginning_view(repository, terminal.width))
        story = demonstrate(
            folder,
            os.environ,
            say=teller.stage if teller.live else lambda text: None,
            on_agent=agent_is_done,
            on_progress=teller.progress,
        )
    except BaseException:
        teller.clear()
        if into is None:
            remove_tree(folder)
        raise
    tell(check_part(story.check, repository))
    for part in proof_part(story.check, repository):
        tell(part)
    tell(ending_view(story))
    if as_json:
        print_json(_plain(story))
    raise typer.Exit(0 if _is_proven(story) else UNDECIDED)


def _is_proven(story: Story) -> bool:
    named = [test.blame.named for test in story.check.tests if test.blame is not None]
    return bool(named) and all(named) and story.before == story.after


def _plain(story: Story) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "schema_version": 1,
        "repository": str(story.repository),
        "run_id": story.run.id,
        "said": story.said,
        "check": story.check.model_dump(mode="json"),
        "before": asdict(story.before),
        "after": asdict(story.after),
    }
