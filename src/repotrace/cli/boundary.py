"""The one place where an error becomes a line for the user and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, NoReturn

import typer

from repotrace import __version__
from repotrace.errors import RepoTraceError

USAGE = 2
"""Wrong use, or nothing there to work on."""
BUG = 3
NO_ANSWER = 125
"""To `git bisect run`: leave this commit out."""
INTERRUPTED = 130
BROKEN_PIPE = 141
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})
"""What the system says where an output cannot take more."""
NOT_OURS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR})
"""What it says of a folder that we may not use, as after a run as another user."""


def complain(message: str, hint: str | None = None) -> None:
    """One line on stderr, and a second one with the hint."""
    lines = f"repotrace: {message}\n" + (f"  {hint}\n" if hint else "")
    try:
        sys.stderr.write(lines)
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)
    except ValueError:
        pass


def warn(error: RepoTraceError | None) -> None:
    """Say what is wrong and what to do, and go on. Nothing for None."""
    if error is not None:
        complain(error.message, error.hint)


def fail(error: RepoTraceError, code: int = USAGE) -> NoReturn:
    """Say what is wrong and what to do, then exit with `code`."""
    warn(error)
    raise typer.Exit(code)


class Command(typer.core.TyperCommand):
    """One command. Its usage line names arguments as the documentation does."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`COMMAND...` and `[ID]`, without the braces of Typer."""
        pieces = super().collect_usage_pieces(ctx)
        return [
            piece.replace("{", "").replace("}", "").replace("......", "...") for piece in pieces
        ]


class DashedWords(Command):
    """A command whose arguments may begin with one dash; its options have long names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As always, once such words stand at the end, where they are no options."""
        end = args.index("--") if "--" in args else len(args)
        dashed = [word for word in args[:end] if len(word) > 2 and word[0] == "-" != word[1]]
        others = [word for word in args[:end] if word not in dashed]
        return super().parse_args(ctx, [*others, "--", *dashed, *args[end + 1 :]])


class ForBisect(Command):
    """A command with `--bisect`: git takes every exit code but 125 for an answer, so whatever
    keeps it from answering ends with that."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As always; wrong use is no answer either."""
        with _no_answer(asked="--bisect" in args):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _no_answer(asked=bool(ctx.params.get("bisect"))):
            return super().invoke(ctx)


@contextmanager
def _no_answer(*, asked: bool) -> Iterator[None]:
    try:
        yield
    except RepoTraceError as error:
        if not asked:
            raise
        fail(error, NO_ANSWER)
    except (typer.Exit, OSError):
        raise
    except Exception as problem:
        if not asked:
            raise
        if hasattr(problem, "exit_code"):  # wrong use, which says itself what it is about
            problem.exit_code = NO_ANSWER
            raise
        _report(problem)
        raise typer.Exit(NO_ANSWER) from None


class Commands(typer.core.TyperGroup):
    """A group of commands; errors a user can act on end here."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Exits with 2 after a RepoTraceError, 130 after an interrupt."""
        try:
            return super().invoke(ctx)
        except RepoTraceError as error:
            fail(error)
        except BrokenPipeError:
            silence(sys.stdout)
            raise typer.Exit(BROKEN_PIPE) from None
        except OSError as error:
            if error.errno in NOT_OURS and error.filename is not None:
                fail(_unusable(error))
            if error.errno not in NO_SPACE:
                raise
            silence(sys.stdout)
            fail(RepoTraceError(f"Cannot write: {error.strerror}."))
        except KeyboardInterrupt:
            complain("interrupted")
            raise typer.Exit(INTERRUPTED) from None


def _unusable(error: OSError) -> RepoTraceError:
    place = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "a file"
    return RepoTraceError(
        f"Cannot use {place}: {error.strerror}.",
        hint="Change its owner or permissions, or choose another folder with --home.",
    )


def run(app: Callable[[], object]) -> None:
    """Run `app`. A bug of ours gives one line and the path of a log, exit code 3."""
    try:
        app()
    except SystemExit as end:
        problem = _flush()
        if problem is not None and not end.code:
            complain(f"Cannot write: {problem}.")
            raise SystemExit(USAGE) from None
        raise
    except Exception as bug:
        _report(bug)
        raise SystemExit(BUG) from None


def _report(bug: Exception) -> None:
    path = _log(bug)
    where = f"the details are in {path}" if path else "the details could not be written"
    complain(f"this is a bug in RepoTrace ({type(bug).__name__}); {where}")


def _flush() -> str | None:
    """Flush stdout while a closed pipe can still be told from an error of ours.

    Returns why something was lost, None if nothing was or nobody listens any more.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
    except OSError as error:
        silence(sys.stdout)
        return error.strerror
    except ValueError:
        pass
    return None


def silence(stream: IO[str]) -> None:
    """Send what is left for `stream` to nowhere, so that the flush at exit says nothing."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass


def _log(bug: Exception) -> str | None:
    """The path of a new private file with the traceback, without the values of arguments."""
    import tempfile
    import traceback

    try:
        descriptor, path = tempfile.mkstemp(prefix="repotrace-bug-", suffix=".log")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"repotrace {__version__}, Python {sys.version}, {sys.platform}\n\n")
            file.writelines(traceback.format_exception(bug))
    except OSError:
        return None
    return path
