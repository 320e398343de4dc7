"""The command line: `repotrace [OPTIONS] COMMAND …`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from repotrace import __version__
from repotrace.cli import boundary
from repotrace.cli.capture import capture
from repotrace.cli.generate import generate
from repotrace.cli.list_reports import list_reports
from repotrace.cli.options import Globals
from repotrace.cli.replay import replay
from repotrace.cli.replay_all import replay_all
from repotrace.cli.report import report
from repotrace.cli.set_fields import set_fields
from repotrace.cli.show import show
from repotrace.errors import RepoTraceError

app = typer.Typer(
    name="repotrace",
    cls=boundary.Commands,
    help="Keep what failed, replay it later, and turn it into a regression test.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

PASS_THROUGH = {"allow_interspersed_args": False}
"""Everything from the first word of the command on belongs to the command."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"repotrace {__version__}")
        raise typer.Exit


@app.callback()
def start(
    ctx: typer.Context,
    directory: Annotated[
        Path | None,
        typer.Option("--directory", "-C", metavar="DIR", help="Work as if started in this folder"),
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option("--home", metavar="DIR", help="Keep history and runs in this folder"),
    ] = None,
    color: Annotated[
        str, typer.Option("--color", metavar="WHEN", help="auto, always or never")
    ] = "auto",
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version"),
    ] = False,
) -> None:
    """Keep what failed, replay it later, and turn it into a regression test."""
    if color not in ("auto", "always", "never"):
        raise typer.BadParameter("say auto, always or never", param_hint="--color")
    if directory is not None:
        try:
            os.chdir(directory)
        except OSError as error:
            raise RepoTraceError(f"Cannot work in {directory}: {error.strerror}.") from error
    ctx.obj = Globals(home=home.absolute() if home else None, color=color)


def version() -> None:
    """Print the installed version"""
    typer.echo(__version__)


app.command("capture", context_settings=PASS_THROUGH)(capture)
app.command("list")(list_reports)
app.command("show")(show)
app.command("replay")(replay)
app.command("replay-all")(replay_all)
app.command("report")(report)
app.command("generate")(generate)
app.command("set")(set_fields)
app.command("version")(version)


def main() -> None:
    """Run the command line of this process and exit."""
    boundary.run(app)
