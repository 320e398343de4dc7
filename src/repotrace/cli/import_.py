"""`repotrace import`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from repotrace.cli.boundary import USAGE, warn
from repotrace.cli.options import (
    JsonOption,
    Opened,
    moment_given,
    note,
    open_store,
    print_json,
    say,
)
from repotrace.config import workspace_for
from repotrace.errors import ImportFailed, RepoTraceError

if TYPE_CHECKING:
    from repotrace.runs.transcripts.importing import EndState, Options, Summary
    from repotrace.runs.transcripts.sessions import Session

_LISTED = 20
OURS = "repotrace"
"""The format of what RepoTrace wrote."""
_WATCHED = 4 << 20
"""Bytes of a transcript from which a bar shows how far it was read."""


def import_(
    ctx: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Transcripts, or folders of them"),
    ] = None,
    format: Annotated[  # noqa: A002 - the name of the option
        str, typer.Option("--format", metavar="NAME", help="What they are; auto: by content")
    ] = "auto",
    repo: Annotated[
        Path | None,
        typer.Option("--repo", metavar="DIR", help="The repository that the session worked on"),
    ] = None,
    base: Annotated[
        str | None, typer.Option("--base", metavar="COMMIT", help="The commit it began with")
    ] = None,
    latest: Annotated[
        bool, typer.Option("--latest", help="Import the newest session of this folder")
    ] = False,
    all_: Annotated[bool, typer.Option("--all", help="Import all sessions of this folder")] = False,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Only sessions of this agent")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="Only newer ones: 2h, 3d, or a date"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what there is and keep nothing")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Import the sessions of coding agents as runs

    Without PATH, lists those that were found of work in this folder.
    """
    from repotrace.runs.transcripts.importing import Options
    from repotrace.runs.transcripts.sessions import sessions_of, transcripts_in

    if paths and (latest or all_ or agent or since):
        raise typer.BadParameter("--latest, --all, --agent and --since look for sessions; no PATH")
    if latest and all_:
        raise typer.BadParameter("--latest and --all exclude each other")
    moment = None if since is None else moment_given(since, datetime.now(UTC))
    opened = open_store(ctx, None)
    options = Options(
        None if format == "auto" else format,
        repo,
        Path.cwd() if repo is None else None,
        base,
        dry_run,
    )
    if paths:
        chosen = [found for path in paths for found in _transcripts(path, transcripts_in)]
        _import(opened, chosen, options, as_json=as_json)
        return
    folder = workspace_for(Path.cwd() if repo is None else repo, os.environ)
    found = sessions_of(
        folder,
        os.environ,
        agents=[agent] if agent else [],
        since=moment,
        limit=1 if latest else None if all_ or as_json else _LISTED,
    )
    if not latest and not all_:
        _list(found, folder, as_json=as_json)
    elif not found:
        raise RepoTraceError(
            f"No session of an agent was found for {folder}.",
            hint="Name its transcript: repotrace import PATH",
        )
    else:
        _import(opened, [session.path for session in found], options, as_json=as_json)


def _transcripts(path: Path, within: Callable[[Path], Iterator[Path]]) -> list[Path]:
    from repotrace.importers import file_of
    from repotrace.runs.receiving import is_ours

    if is_ours(path):
        return [path]
    if not file_of(path).exists():
        raise ImportFailed(f"{path} does not exist.")
    found = list(within(path))
    if not found:
        raise ImportFailed(f"{path} holds no transcript that we know.")
    return found


# --- Importing ------------------------------------------------------------------------------


def _import(opened: Opened, paths: list[Path], options: Options, *, as_json: bool) -> None:
    from repotrace.cli.receiving import print_received, received_facts
    from repotrace.runs.receiving import Received, is_ours, receive_all
    from repotrace.runs.transcripts.importing import import_session

    done: list[tuple[Path, Summary]] = []
    received: list[tuple[Path, Received]] = []
    failed: list[tuple[Path, RepoTraceError]] = []
    for path in paths:
        try:
            if options.format in (None, OURS) and is_ours(path):
                now, dry = datetime.now(UTC), options.dry_run
                for got in receive_all(opened.store, path, now=now, dry_run=dry):
                    received.append((path, got))
                    if not as_json:
                        print_received(got, path, dry=dry)
                continue
            with _progress(path) as advance:
                runs = import_session(opened.store, path, options, progress=advance)
        except RepoTraceError as error:
            failed.append((path, error))
            warn(error)
            continue
        done += [(path, run) for run in runs]
        if not as_json:
            for run in runs:
                _print(run, dry=options.dry_run)
    if as_json:
        print_json(
            {
                "schema_version": 1,
                "dry_run": options.dry_run,
                "imported": [_facts(path, run) for path, run in done],
                "received": [received_facts(path, got) for path, got in received],
                "failed": [{"path": str(path), "problem": e.message} for path, e in failed],
            }
        )
    if failed:
        raise typer.Exit(USAGE)


@contextmanager
def _progress(path: Path) -> Iterator[Callable[[int], None]]:
    """How far a large transcript was read, on stderr while that is a terminal."""
    size = path.stat().st_size if path.is_file() else 0
    if size < _WATCHED or not sys.stderr.isatty():
        yield lambda _size: None
        return
    from repotrace.render.console import console
    from repotrace.render.progress import bar

    # It is read twice: for the commit that it began with, then for what was done.
    with bar(console(stderr=True), f"reading {path.name}", 100) as advance:
        read = shown = 0

        def count(more: int) -> None:
            nonlocal read, shown
            read += more
            while shown < min(100, 100 * read // (2 * size)):
                shown += 1
                advance()

        yield count


def _print(run: Summary, *, dry: bool) -> None:
    verb = "would import" if dry else "imported" if run.is_new else "updated"
    say(f"{verb} {run.run_id} from {run.source} session {run.source_id}")
    for label, text in _lines(run, dry=dry):
        say(f"  {label:<9} {text}")


def _lines(run: Summary, *, dry: bool) -> Iterator[tuple[str, str]]:
    from repotrace.importers.building import one_line

    if run.task:
        yield "task", one_line(run.task)
    tokens = ""
    if run.input_tokens or run.output_tokens:
        tokens = f" ({run.input_tokens:,} tokens in, {run.output_tokens:,} out)"
    yield "work", f"{_many(run.steps, 'step')}, {_many(run.llm_calls, 'model call')}{tokens}"
    changed = f"{_many(run.edits, 'change')} of {_many(run.files_changed, 'file')}"
    changed = changed if run.files_changed else _many(run.edits, "change")
    yield "files", f"{run.reads} read, {changed}"
    tests = f"{_many(run.test_runs, 'run')} of tests"
    tests += f" ({run.failing_test_runs} failed)" if run.failing_test_runs else ""
    retries = f", {_many(run.retries, 'retry', 'retries')}" if run.retries else ""
    yield "commands", f"{run.commands}, {tests}{retries}"
    yield from _damage(run)
    if not dry:
        yield "end state", _end(run.end)


def _damage(run: Summary) -> Iterator[tuple[str, str]]:
    counts = run.damage
    lines = [f"{counts[name]} {name}" for name in ("broken", "torn") if counts.get(name)]
    if lines:
        lost = sum(counts.get(name, 0) for name in ("broken", "torn"))
        noun = "line" if lost == 1 else "lines"
        yield "lost", f"{', '.join(lines)} {noun} of the transcript"
    unknown = counts.get("unknown") or {}
    if unknown:
        kinds = ", ".join(f"{name} ({count})" for name, count in list(unknown.items())[:8])
        yield "unknown", f"{_many(sum(unknown.values()), 'record')}: {kinds}"


def _end(end: EndState) -> str:
    if end.quality == "missing":
        return f"missing: {end.reason or 'the files before the first step are not known'}"
    quality = f"{end.quality}: {end.reason}" if end.reason else f"{end.quality}"
    if end.against is None:
        return f"rebuilt, compared with nothing ({quality})"
    if not end.differing:
        return f"equals the {end.against} ({quality})"
    names = ", ".join(end.differing[:5])
    more = f" and {len(end.differing) - 5} more" if len(end.differing) > 5 else ""
    return f"differs from the {end.against} in {names}{more} ({quality})"


def _many(count: int, one: str, several: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def _facts(path: Path, run: Summary) -> dict[str, Any]:
    end = run.end
    return {
        "path": str(path),
        "run": run.run_id,
        "new": run.is_new,
        "format": run.source,
        "session": run.source_id,
        "task": run.task,
        "workspace": run.workspace,
        "base_commit": run.base_commit,
        "steps": run.steps,
        "llm_calls": run.llm_calls,
        "input_tokens": run.input_tokens,
        "output_tokens": run.output_tokens,
        "files_read": run.reads,
        "read_before_first_change": list(run.read_first),
        "changes": run.edits,
        "files_changed": run.files_changed,
        "commands": run.commands,
        "test_runs": run.test_runs,
        "failing_test_runs": run.failing_test_runs,
        "retries": run.retries,
        "unknown_records": dict(run.damage.get("unknown") or {}),
        "damage": {name: count for name, count in run.damage.items() if name != "unknown"},
        "end_state": {
            "quality": str(end.quality),
            "against": end.against,
            "equal": end.equal,
            "differing": list(end.differing),
            "reason": end.reason,
        },
    }


# --- Listing --------------------------------------------------------------------------------


def _list(found: list[Session], folder: Path, *, as_json: bool) -> None:
    from repotrace.importers.building import one_line

    if as_json:
        print_json({"schema_version": 1, "sessions": [_session(session) for session in found]})
        return
    if not found:
        say(f"no sessions found for {folder}")
        note("looked where installed agents keep them; else name one: repotrace import PATH")
        return
    for session in found:
        when = session.modified.astimezone().strftime("%Y-%m-%d %H:%M")
        task = one_line(session.summary.task or "(no task)")
        say(f"{when}  {session.agent}  {_size(session.size)}  {task}")
        say(f"  {session.path}")
    say()
    say("1 session" if len(found) == 1 else f"{len(found)} sessions")
    note("import one with: repotrace import PATH, or the newest with: repotrace import --latest")


def _session(session: Session) -> dict[str, Any]:
    return {
        "path": str(session.path),
        "agent": session.agent,
        "modified": session.modified.isoformat(),
        "size": session.size,
        "session": session.summary.source_id,
        "task": session.summary.task,
        "workspace": session.summary.workspace,
    }


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1_000_000 else f"{max(size // 1000, 1)} kB"
