"""Which file a command stands for, and in plain words why it could not be started."""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path

from repotrace.errors import NoCommand, RepoTraceError
from repotrace.records.base import printable
from repotrace.records.command import CommandSpec

SHELL = "/bin/sh"


class NoSuchFolder(RepoTraceError, FileNotFoundError):
    """The folder that a command was to run in is not there, or is no folder."""


def command_line(spec: CommandSpec) -> list[str]:
    """The argv that is started for `spec`.

    Raises RepoTraceError for what no system call could pass on: no command at all, a NUL
    byte, a variable without a proper name; NoSuchFolder where `spec.cwd` cannot be entered.
    """
    argv = [SHELL, "-c", spec.script] if spec.script is not None else list(spec.argv)
    if not argv:
        raise NoCommand("There is no command to run.", hint="Name one: repotrace capture COMMAND")
    for part in argv:
        if "\0" in part:
            raise RepoTraceError(
                f"An argument has a NUL byte in it: {printable(part)!r}.",
                hint="No program can receive such an argument.",
            )
    for name, value in spec.env.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise RepoTraceError(f"The variable {printable(name)!r} cannot be passed on.")
    _check_folder(spec.cwd)
    return argv


def _check_folder(cwd: str) -> None:
    folder = Path(cwd)
    shown = printable(cwd)
    hint = "Choose another one with: --cwd DIR"
    if "\0" in cwd or not folder.exists():
        raise NoSuchFolder(f"The folder {shown} does not exist.", hint=hint)
    if not folder.is_dir():
        raise NoSuchFolder(f"{shown} is not a folder.", hint=hint)
    if not os.access(folder, os.X_OK):
        raise NoSuchFolder(f"The folder {shown} may not be entered.", hint=hint)


def candidates(argv0: str, spec: CommandSpec) -> list[str]:
    """The files that are tried for `argv0`, in order, seen from the command's own folder."""
    if not argv0:
        return []
    if "/" in argv0:
        return [argv0]
    # An entry that is empty means the current folder, as the system has it.
    return [f"{folder}/{argv0}" if folder else argv0 for folder in os.get_exec_path(spec.env)]


def resolve(argv0: str, spec: CommandSpec) -> str | None:
    """The absolute path of the program that `argv0` means for `spec`; None if there is none."""
    for name in candidates(argv0, spec):
        path = Path(spec.cwd, name)
        if path.is_file() and os.access(path, os.X_OK):
            return str(Path.cwd() / path) if not path.is_absolute() else str(path)
    return None


def spawn_failure(number: int, argv0: str, spec: CommandSpec) -> str:
    """Why the command `argv0` did not start: one line for people."""
    shown = printable(argv0)
    found = next(
        (path for name in candidates(argv0, spec) if (path := Path(spec.cwd, name)).exists()), None
    )
    match number:
        case errno.ENOENT if found is None:
            return f"command not found: {shown}"
        case errno.ENOENT:
            return f"the interpreter that the first line of {shown} names does not exist"
        case errno.EACCES if found is not None and found.is_dir():
            return f"is a folder, not a command: {shown}"
        case errno.EACCES:
            return f"permission denied: {shown}"
        case errno.ENOEXEC:
            return f"{shown} has no #! line; run it with: sh {printable(shlex.quote(argv0))}"
        case _:
            return f"{os.strerror(number)}: {shown}"
