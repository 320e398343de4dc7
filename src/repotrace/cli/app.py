"""The command line: `repotrace [OPTIONS] COMMAND …`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

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
    "record": "repotrace.cli.record:record",
    "import": "repotrace.cli.import_:import_",
    "play": "repotrace.cli.play:play",
    "check": "repotrace.cli.check:check",
    "blame": "repotrace.cli.blame:blame",
    "rerun": "repotrace.cli.rerun:rerun",
    "runs list": "repotrace.cli.runs_list:runs_list",
    "runs show": "repotrace.cli.runs_show:runs_show",
    "runs diff": "repotrace.cli.runs_diff:runs_diff",
    "runs restore": "repotrace.cli.runs_restore:runs_restore",
    "runs search": "repotrace.cli.runs_search:runs_search",
    "runs compare": "repotrace.cli.runs_compare:runs_compare",
    "runs stats": "repotrace.cli.runs_stats:runs_stats",
    "runs alerts": "repotrace.cli.runs_alerts:runs_alerts",
    "runs report": "repotrace.cli.runs_report:runs_report",
    "runs report-tests": "repotrace.cli.runs_report_tests:runs_report_tests",
    "runs checkpoint": "repotrace.cli.runs_checkpoint:runs_checkpoint",
    "runs delete": "repotrace.cli.runs_delete:runs_delete",
    "runs gc": "repotrace.cli.runs_gc:runs_gc",
    "export": "repotrace.cli.export:export",
    "demo": "repotrace.cli.demo:demo",
    "proxy": "repotrace.cli.proxy:proxy",
    "hooks install": "repotrace.cli.hooks_install:hooks_install",
    "hooks uninstall": "repotrace.cli.hooks_uninstall:hooks_uninstall",
    "hooks status": "repotrace.cli.hooks_status:hooks_status",
    "version": "repotrace.cli.version:version",
}
"""Where each command lives, in the order of the help; `runs list` is `list` of the group `runs`.
One is imported when it is wanted."""

HELP = {
    "Failing commands": {
        "capture": "Run a command and keep what happened as a report",
        "replay, replay-all": "Run it again and compare: one report, or every one",
        "report, generate": "Print a report as Markdown; make a pytest test of it",
        "list, show, set": "List the reports; show one; change its fields",
    },
    "Runs of coding agents": {
        "record": "Record an agent while it works, without a change to it",
        "import": "Take in what an agent has written down itself",
        "play": "Step through a run; nothing is executed",
        "check": "Find what a run broke, with the step of each break",
        "blame": "Prove which step broke a test, by running it",
        "rerun": "Run an agent on from a step, with a changed prompt",
        "runs": "List, search, compare, restore, clean up: see runs --help",
    },
    "Share and set up": {
        "demo": "See an agent break a test, and the proof, in a few seconds",
        "export": "Write a run or a report as one file: HTML, Markdown, …",
        "hooks, proxy": "Record every session of an agent; relay its model calls",
        "version": "Print the installed version",
    },
}
"""What the help of the whole says; it fits a terminal of 24 lines."""

GROUPS = {
    "runs": "List, read, compare, restore and clean up the runs of agents",
    "hooks": "Have every session of an agent recorded, by its own hooks",
}
"""The groups of commands, with their help."""

SECOND_NAMES: dict[str, str] = {
    name.replace("runs ", "work ", 1): place
    for name, place in COMMANDS.items()
    if name.startswith("runs ")
} | {
    "work replay": "repotrace.cli.play:work_replay",
    "work rerun": "repotrace.cli.rerun:rerun",
    "work export-trace": "repotrace.cli.export:work_export_trace",
}
"""Other names of commands, in the hidden group `work`."""

PASS_THROUGH = frozenset({"capture", "record"})
"""Commands that take another command: from its first word on, everything belongs to that."""

KINDS: dict[str, type[boundary.Command]] = {
    # `-word` is one that must not occur.
    "runs search": boundary.DashedWords,
    "work search": boundary.DashedWords,
    "replay": boundary.ForBisect,
}
"""Commands that take their words, or end, in a way of their own."""

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
    """Keep what failed, replay it later, and prove which step broke it."""
    if color not in ("auto", "always", "never"):
        raise typer.BadParameter("say auto, always or never", param_hint="--color")
    code = 125 if ctx.invoked_subcommand in PASS_THROUGH else boundary.USAGE
    if directory is not None:
        try:
            os.chdir(directory)
        except OSError as error:
            nowhere = RepoTraceError(f"Cannot work in {directory}: {error.strerror}.")
            boundary.fail(nowhere, code)
    try:
        Path.cwd()
    except OSError:
        gone = RepoTraceError("The current folder is gone.", hint="Change into another one.")
        boundary.fail(gone, code)
    ctx.obj = Globals(home=home.absolute() if home else None, color=color)


class _Whole(boundary.Commands):
    """The command line itself, with its commands by what they are for."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As always; the name of a command of a group tells the group."""
        name = args[0]
        if name not in self.commands:
            whole = [full for full in COMMANDS if full.endswith(f" {name}")]
            if name == "help":
                whole = [f"{args[1]} --help" if args[1:] else "--help"]
            if whole:
                ctx.fail(f"No such command {name!r}. Did you mean {', '.join(map(repr, whole))}?")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The usage with the options of all commands, then `HELP`."""
        formatter.write_usage("repotrace", "[-C DIR] [--home DIR] [--color WHEN] COMMAND [ARGS]...")
        formatter.write_text(self.help)
        lines = [names for section in HELP.values() for names in section]
        width = max(map(len, lines))
        for heading, section in HELP.items():
            formatter.write(f"\n{heading}\n")
            for names, text in section.items():
                formatter.write(f"  {names:{width}}  {text}\n")


def make_app(names: Iterable[str] | None = None) -> typer.Typer:
    """The command line with the commands `names`, all of them by default."""
    places = COMMANDS | SECOND_NAMES
    app = _group("repotrace", _Whole)
    app.callback()(start)
    groups: dict[str, typer.Typer] = {}
    for full_name in places if names is None else names:
        group, _, name = full_name.rpartition(" ")
        if group and group not in groups:
            groups[group] = _group(group)
            app.add_typer(groups[group], help=GROUPS.get(group), hidden=group not in GROUPS)
        module, _, function = places[full_name].partition(":")
        settings = {"allow_interspersed_args": False} if full_name in PASS_THROUGH else None
        kind = KINDS.get(full_name, boundary.Command)
        home = groups[group] if group else app
        command = home.command(name, cls=kind, context_settings=settings)
        command(getattr(import_module(module), function))
    return app


def _group(name: str, kind: type[boundary.Commands] = boundary.Commands) -> typer.Typer:
    return typer.Typer(
        name=name,
        cls=kind,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def wanted(argv: Sequence[str]) -> Iterable[str] | None:
    """The command that `argv` names; None for all of them where it names none, as for the help.

    Importing and describing the others would cost more than a short command takes.
    """
    places = COMMANDS | SECOND_NAMES
    name = ""
    words = iter(argv)
    for word in words:
        if not name and word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            name = f"{name} {word}".lstrip()
            if name in places:
                return (name,)
            if not any(place.startswith(f"{name} ") for place in places):
                return None
    return None


def main() -> None:
    """Run the command line of this process and exit."""
    boundary.run(make_app(wanted(sys.argv[1:])))
