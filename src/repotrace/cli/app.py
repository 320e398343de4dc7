"""The command line: `repotrace [OPTIONS] COMMAND …`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from repotrace import __version__
from repotrace.cli import boundary
from repotrace.cli.options import Globals
from repotrace.errors import RepoTraceError

COMMANDS = {
    "capture": "repotrace.cli.capture:capture",
    "list": "repotrace.cli.list_reports:list_reports",
    "show": "repotrace.cli.show:show",
    "replay": "repotrace.cli.replay:replay",
    "replay-all": "repotrace.cli.replay_all:replay_all",
    "report": "repotrace.cli.report:report",
    "generate": "repotrace.cli.generate:generate",
    "set": "repotrace.cli.set_fields:set_fields",
    "version": "repotrace.cli.version:version",
}
"""Where each command lives, in the order of the help. One is imported when it is wanted."""

PASS_THROUGH = frozenset({"capture"})
"""Commands that take another command: from its first word on, everything belongs to that."""

_WITH_VALUE = ("-C", "--directory", "--home", "--color")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"repotrace {__version__}")
        raise typer.Exit


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
    try:
        Path.cwd()
    except OSError:
        gone = RepoTraceError("The current folder is gone.", hint="Change into another one.")
        boundary.fail(gone, 125 if ctx.invoked_subcommand in PASS_THROUGH else boundary.USAGE)
    ctx.obj = Globals(home=home.absolute() if home else None, color=color)


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with the commands `names`, all of them by default."""
    app = typer.Typer(
        name="repotrace",
        cls=boundary.Commands,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(start)
    for name in names:
        module, _, function = COMMANDS[name].partition(":")
        settings = {"allow_interspersed_args": False} if name in PASS_THROUGH else None
        command = app.command(name, cls=boundary.Command, context_settings=settings)
        command(getattr(import_module(module), function))
    return app


def wanted(argv: Sequence[str]) -> Iterable[str]:
    """The command that `argv` names; all of them where it names none, as for the help.

    Importing and describing the others would cost more than a short command takes.
    """
    words = iter(argv)
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return (word,) if word in COMMANDS else COMMANDS
    return COMMANDS


def main() -> None:
    """Run the command line of this process and exit."""
    boundary.run(make_app(wanted(sys.argv[1:])))
