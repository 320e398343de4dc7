"""`repotrace check`."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from repotrace.cli.boundary import INTERRUPTED, warn
from repotrace.cli.consent import YesOption, may_execute_run
from repotrace.cli.options import (
    Opened,
    StoreOption,
    inherited,
    is_named_as_ours,
    named,
    note,
    open_runs,
    say,
)
from repotrace.config import find_repository, workspace_for
from repotrace.errors import NotTrusted, RepoTraceError, RunNotFound
from repotrace.readable import visible
from repotrace.storage import LATEST

if TYPE_CHECKING:
    from repotrace.records.run import Run
    from repotrace.runs.blame import Moment
    from repotrace.runs.checking.sides import Sides
    from repotrace.runs.testing.executions import Bench
    from repotrace.runs.testing.options import Testing

Format = Literal["table", "json", "junit", "github", "markdown"]

TestCommandOption = Annotated[
    str | None,
    typer.Option("--test-cmd", metavar="CMD", help="What runs the tests; default: looked for"),
]
JobsOption = Annotated[
    int, typer.Option("--jobs", "-j", metavar="N", min=1, help="Executions at a time")
]
TimeLimitOption = Annotated[
    float | None,
    typer.Option("--timeout", metavar="S", min=0.001, help="Seconds for one execution"),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Tell what would be run, and run no test")
]
_RUN_ID = re.compile(r"r[0-9a-f]{4,}")


def check(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN|TEST", help="A run, and tests: ids, files or folders"),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="latest|PATH", help="Import this agent session first"),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="REV", help="The work tree against this commit; no run"),
    ] = None,
    test_cmd: TestCommandOption = None,
    jobs: JobsOption = 1,
    budget: Annotated[
        int | None,
        typer.Option("--budget", metavar="N", min=1, help="At most N tests, the nearest first"),
    ] = None,
    timeout: TimeLimitOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    format: Annotated[  # noqa: A002 - the name of the option
        Format, typer.Option("--format", help="How to print it")
    ] = "table",
    store: StoreOption = None,
) -> None:
    """Find what a run broke, with the step of each break

    Runs the tests on copies of the files before and after. Exits with 0 if nothing is broken,
    1 if something is, 2 if that is undecided.
    """
    from repotrace.runs.blame import BlameOptions
    from repotrace.runs.check import check_run

    if base is not None and session is not None:
        raise typer.BadParameter("--base and --session exclude each other")
    opened = open_runs(ctx, store)
    ref, tests = split_words(opened, words or [], allow_run=base is None and session is None)
    run = None if base is not None else chosen_run(opened, ref, session)
    workspace = workspace_for(Path.cwd(), os.environ)
    teller = Teller()

    def announce(bench: Bench, sides: Sides) -> None:
        if dry_run:
            if yes:
                bench.permit(trusted=True)
            _print_plan(bench, sides)
            raise typer.Exit(0)
        if run is not None:
            may_execute_run(opened, run, bench.about, yes=yes)
            bench.permit(trusted=True)
        teller.announce(bench, len(sides.candidates))

    try:
        done = check_run(
            opened.store,
            run,
            base=base,
            folder=workspace,
            tests=tests,
            budget=budget,
            testing=how_to_test(opened, test_cmd, timeout),
            blame=BlameOptions(jobs=jobs, on_progress=teller.progress),
            say=teller.stage,
            on_bench=announce,
        )
    except KeyboardInterrupt:
        teller.clear()
        kept = "; what was executed for blame is kept" if teller.searches > 1 else ""
        note(f"interrupted{kept}")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        opened.store.close()
    teller.clear()
    if format == "table":
        from repotrace.render.checks import check_view, summary_line
        from repotrace.render.console import console

        terminal = console(color=opened.color)
        terminal.print(check_view(done))
        terminal.print(summary_line(done))
    else:
        from repotrace.runs.checking.formats import check_text

        say(check_text(done, format).rstrip("\n"))
    raise typer.Exit(done.exit_code)


# --- What both check and blame need ---------------------------------------------------------


def split_words(
    opened: Opened, words: list[str], *, allow_run: bool = True
) -> tuple[str | None, list[str]]:
    """The run that the first word names, or else a later one, and the tests."""
    if not words or not allow_run:
        return None, [_from_the_root(test) for test in words]
    first = named(opened, words[0]) if is_named_as_ours(words[0]) else words[0]
    if first != words[0]:
        return first, [_from_the_root(test) for test in words[1:]]
    is_run = first == LATEST or _RUN_ID.fullmatch(first) is not None
    ref = first if is_run else next((word for word in words if _is_run(opened, word)), None)
    tests = list(words)
    if ref is not None:
        tests.remove(ref)
    return ref, [_from_the_root(test) for test in tests]


def _is_run(opened: Opened, word: str) -> bool:
    if "/" in word or "::" in word or Path(word).exists():
        return False
    if word == LATEST or _RUN_ID.fullmatch(word) or opened.store.runs.named(word) is not None:
        return True
    with suppress(RepoTraceError):
        return bool(opened.store.runs.resolve(word))
    return False


def _from_the_root(test: str) -> str:
    """A test that is named from the current folder, as it is named from that of the work tree."""
    path, mark, name = test.partition("::")
    here = Path.cwd() / path
    root = workspace_for(Path.cwd(), os.environ)
    if not path or not here.exists():
        return test
    inside = os.path.relpath(os.path.realpath(here), root)
    return test if inside.split("/")[0] == ".." else f"{inside}{mark}{name}"


def chosen_run(opened: Opened, ref: str | None, session: str | None) -> Run:
    """The run that is meant: a session, imported now; the named one; else the newest of this work
    tree; else the newest session of an agent in this folder."""
    if session is not None:
        return _imported(opened, session)
    workspace = workspace_for(Path.cwd(), os.environ)
    if ref is not None and ref != LATEST:
        return opened.store.runs.get(ref)
    try:
        return opened.store.runs.get(LATEST, workspace=str(workspace))
    except RunNotFound:
        if ref is not None:
            return opened.store.runs.get(LATEST)
    try:
        return _imported(opened, LATEST, "no run was recorded here; ")
    except RepoTraceError as error:
        hint = "Name a transcript: repotrace check --session PATH"
        if find_repository(workspace):
            hint = "Compare the work tree with a commit: repotrace check --base HEAD"
        if others := opened.store.runs.list(limit=1):
            more = "repotrace runs list --all-worktrees"
            hint = f"The newest run of all is {others[0].id}. Name it, or another of: {more}"
        raise RepoTraceError(
            f"No run was recorded in {workspace}, and no session of an agent was found for it.",
            hint=hint,
        ) from error


def _imported(opened: Opened, session: str, why: str = "") -> Run:
    from repotrace.runs.transcripts.importing import Options, import_session, peek
    from repotrace.runs.transcripts.sessions import sessions_of

    folder = workspace_for(Path.cwd(), os.environ)
    path, repository = Path(session), None
    if session == LATEST:
        found = sessions_of(folder, os.environ, limit=1)
        if not found:
            raise RepoTraceError(
                f"No session of an agent was found for {folder}.",
                hint="Name its transcript: repotrace check --session PATH",
            )
        path = found[0].path
    elif path.exists():
        told = peek(path)
        # A session that somebody brings along from elsewhere is meant to be one of this project.
        elsewhere = told is None or not told.workspace or not Path(told.workspace).is_dir()
        repository = folder if elsewhere else None
    runs = import_session(opened.store, path, Options(None, repository, folder))
    note(f"{why}imported {runs[0].run_id} from {runs[0].source} session {runs[0].source_id}")
    return opened.store.runs.get(runs[0].run_id)


def how_to_test(
    opened: Opened, test_cmd: str | None, timeout: float | None, *, rerun: bool = False
) -> Testing:
    """How tests are run, as the options say."""
    from repotrace.runs.testing.options import Testing

    return Testing(
        command=test_cmd,
        near=Path.cwd(),
        timeout=timeout,
        rerun=rerun,
        environ=inherited(opened),
    )


class Teller:
    """Says on stderr what goes on; on a terminal the last line is written over."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()
        self._shown = False
        self.searches = 0
        """Executions of searches that have begun."""

    def announce(self, bench: Bench, states: int) -> None:
        """Once, before anything is run."""
        what = f"the {states} states of the run" if states > 2 else "both states"
        why = f" ({bench.command.why})" if bench.command.why else ""
        note(f"$ {visible(bench.line())}{why}")
        note(f"runs on copies of {what} in {bench.folder}; your files stay as they are")

    def stage(self, text: str) -> None:
        """A part of the work begins."""
        self.clear()
        if self.live:
            self._write(f"{visible(text)} …")
        else:
            note(visible(text))

    def progress(self, moment: Moment) -> None:
        """Before each execution of a search; told on a terminal alone."""
        self.searches += 1
        if not self.live:
            return
        parts = [
            f"{moment.executions} done, about {moment.left} to come",
            f"{moment.purpose} {moment.where}",
            *([f"passes {moment.passes}"] if moment.passes else []),
            *([f"fails {moment.fails}"] if moment.fails else []),
            moment.test or "the command",
        ]
        self._write(visible(" · ".join(parts)))

    def clear(self) -> None:
        """Take the line back."""
        if self._shown:
            self._put("\r\x1b[K")
            self._shown = False

    def _write(self, text: str) -> None:
        import shutil

        width = max(20, shutil.get_terminal_size().columns - 1)
        self._put(f"\r\x1b[K{text[:width]}")
        self._shown = True

    def _put(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError as error:
            warn(RepoTraceError(str(error)))


def _print_plan(bench: Bench, sides: Sides) -> None:
    from repotrace.blame import executions_at_most

    say(
        f"command  {visible(bench.line())}"
        + (f" ({bench.command.why})" if bench.command.why else "")
    )
    say(f"base     {sides.base_about}")
    say(f"final    {sides.about}")
    changed = len(sides.changed)
    say(f"changed  {changed} {'file' if changed == 1 else 'files'}")
    try:
        collected = [len(bench.collect(state)) for state in (sides.base_state, sides.final_state)]
    except NotTrusted as refused:
        say(
            f"tests    not collected: that executes code which came from elsewhere ({refused.file})"
        )
    else:
        if bench.command.pytest:
            say(f"tests    {collected[0]} before, {collected[1]} after")
    likely, proven = executions_at_most(len({one.state_id for one in sides.candidates}))
    say(f"states   {len({one.state_id for one in sides.candidates})}")
    say(f"each break takes at most {proven} executions to prove ({likely} to find), without")
    say("those that make it minimal; the suite runs once on either side, and nothing ran now but")
    say("the collection of the tests")
