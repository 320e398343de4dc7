"""From a recorded command to one that can run here, today: folders, variables, secrets.

The recorded place is used where it still exists. Where the command is to run elsewhere (a
fresh clone, another machine), paths below the recorded folders are moved along with them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from repotrace.records.command import CommandRun, CommandSpec, Places
from repotrace.redact import restore

_OURS = ("REPOTRACE_STORE", "REPOTRACE_HOME")
_OF_ANOTHER_REPOSITORY = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_PREFIX", "GIT_NAMESPACE",
)  # fmt: skip
"""Set in hooks: git in a copy would work on the user's repository."""

MASKED = ("venv", "repository", "home")
"""The folders that stand as `<venv>` and so on in a recorded PATH."""


class Missing(Exception):
    """The command cannot run here. `names`: the variables that would have to be set."""

    def __init__(self, message: str, names: list[str]) -> None:
        super().__init__(message)
        self.message = message
        self.names = names


class Copied(NamedTuple):
    """A copy of the recorded work tree, to run in instead of any place that is there."""

    old: str
    """The root of the recorded work tree, free of links."""
    new: str
    inside: str
    """The recorded cwd relative to the root, `.` for the root itself."""


class _Move(NamedTuple):
    """Where folders were and where they are now, the innermost first."""

    pairs: tuple[tuple[str, str], ...]
    texts: re.Pattern[str] | None = None
    """Finds the paths of a copied work tree wherever they stand in a text."""

    def path(self, path: str) -> str:
        """`path`, moved along with the folder it lies in; as it is if that is nowhere new."""
        for old, new in self.pairs:
            if path == old or path.startswith(old.rstrip("/") + "/"):
                return new + path[len(old) :]
        return path

    def existing(self, path: str) -> str:
        """The moved path if there is something, else `path`."""
        moved = self.path(path)
        return moved if moved != path and os.path.lexists(moved) else path

    def into_copy(self, path: str) -> str:
        """The path in the copy, unless there is something at the old place only.

        What was not captured is used where it is; what is to come is made in the copy.
        """
        moved = self.path(path)
        stays = not os.path.lexists(moved) and os.path.lexists(path)
        return path if stays else moved

    def argument(self, text: str) -> str:
        """An argument or a value of a variable, moved."""
        if self.texts is None:
            return self.existing(text)
        moved = self.path(text)
        if moved != text and (os.path.lexists(moved) or os.path.lexists(text)):
            return self.into_copy(text)
        return self.texts.sub(lambda match: self.into_copy(match[0]), text)


def mask_path_list(value: str, places: Places) -> str:
    """A PATH with placeholders for the folders that differ between machines."""
    known = [(getattr(places, name), f"<{name}>") for name in MASKED]
    moves = _Move(tuple((old, new) for old, new in known if old and old != "/"))
    return os.pathsep.join(moves.path(entry) for entry in value.split(os.pathsep))


def relocate(
    recorded: CommandRun,
    *,
    environ: Mapping[str, str],
    root: Path | None = None,
    cwd: str | None = None,
    timeout: float | None = None,
    overrides: Mapping[str, str] | None = None,
    copy: Copied | None = None,
) -> CommandSpec:
    """The spec that runs `recorded` here.

    `environ`: the environment of the replay, from which redacted values come too. `root`: the
    work tree that stands for the recorded repository. `overrides`: variables over all else.
    `copy`: run in there, whatever `root` and `cwd` say.

    Raises Missing if a folder or the value of a redacted argument or variable is not here.
    """
    overrides = overrides or {}
    values = {**environ, **overrides}
    needed: list[str] = []

    def back(text: str) -> str:
        restored, missing = restore(text, values)
        needed.extend(name for name in missing if name not in needed)
        return restored

    recorded = _with_real_folders(recorded, values, needed if cwd is None else [])
    if needed:
        raise Missing(f"needs {', '.join(needed)}", needed)
    if copy is None:
        folder = _folder(recorded, root, cwd)
        move = _moves(recorded, folder, root)
    else:
        folder, move = _into_copy(recorded, copy)
    argv = tuple(move.argument(back(part)) for part in recorded.argv)
    script = None if recorded.script is None else back(recorded.script)
    if copy is not None:
        argv = _with_program(argv, folder, back(recorded.resolved or ""))
        script = None if script is None else move.argument(script)
    stdin = recorded.stdin
    if stdin is not None:
        stdin = os.fsencode(back(os.fsdecode(stdin)))
    env = _environment(recorded, dict(environ), move, back)
    if copy is not None:
        env = _in_copy(recorded, env, move, copy)
    env.update(overrides)
    if needed:
        raise Missing(f"needs {', '.join(needed)}", needed)
    if recorded.stdin_kind == "cut":
        raise Missing("its standard input was too long to be kept", [])
    if (cwd is not None or copy is not None) and "PWD" in env:
        env["PWD"] = folder
    return CommandSpec(
        argv=argv,
        script=script,
        cwd=folder,
        env=env,
        stdin=stdin,
        timeout=timeout if timeout is not None else recorded.timeout,
        pty=recorded.pty,
        merge=recorded.merge,
    )


def _with_real_folders(
    recorded: CommandRun, values: Mapping[str, str], needed: list[str]
) -> CommandRun:
    """`recorded` with its folders as they were before redacting.

    `needed` gets the names of the variables without which its cwd is not known.
    """
    cwd, missing = restore(recorded.cwd, values)
    needed.extend(missing)
    folders = {
        name: None if path is None else restore(path, values)[0] for name, path in recorded.places
    }
    inside = recorded.cwd_in_repository
    return recorded.model_copy(
        update={
            "cwd": cwd,
            "cwd_in_repository": None if inside is None else restore(inside, values)[0],
            "places": Places(**folders),
        }
    )


def _folder(recorded: CommandRun, root: Path | None, cwd: str | None) -> str:
    """The folder to run in: `cwd`, else its place in `root`, else the recorded one."""
    if cwd is not None:
        return os.path.abspath(cwd)  # noqa: PTH100 - as the user wrote it, links kept
    if root is not None and recorded.cwd_in_repository is not None:
        here = os.path.normpath(root / recorded.cwd_in_repository)
        if Path(here).is_dir():
            return here
    if not recorded.cwd:
        return os.getcwd()  # noqa: PTH109
    if not Path(recorded.cwd).is_dir():
        raise Missing(f"the folder {recorded.cwd} is not here; give another with --cwd", [])
    return recorded.cwd


def _moves(recorded: CommandRun, folder: str, root: Path | None) -> _Move:
    old = recorded.places
    inside = recorded.cwd_in_repository
    pairs: list[tuple[str, str]] = []
    if old.cwd and old.cwd != folder:
        pairs.append((old.cwd, folder))
    if old.repository and inside is not None:
        new_root = str(root) if root and _is_below(folder, str(root)) else None
        if new_root is None and (inside == "." or folder.endswith("/" + inside)):
            new_root = folder if inside == "." else folder[: -len(inside) - 1]
        if new_root and new_root != old.repository:
            pairs.append((old.repository, new_root))
    return _Move(tuple(sorted(pairs, key=lambda pair: -len(pair[0]))))


def _into_copy(recorded: CommandRun, copy: Copied) -> tuple[str, _Move]:
    """The folder to run in, and how the recorded paths become paths of the copy."""
    folder = os.path.normpath(os.path.join(copy.new, copy.inside))  # noqa: PTH118
    if not os.path.isdir(folder):  # noqa: PTH112
        raise Missing(f"the folder {copy.inside} is not among the recorded files", [])
    olds = [copy.old]
    tail = "" if copy.inside == "." else "/" + copy.inside
    if recorded.cwd.endswith(tail):
        olds.append(recorded.cwd[: len(recorded.cwd) - len(tail)])
    # The root as it is, and as it was reached through links.
    pairs = tuple((old, copy.new) for old in dict.fromkeys(olds) if old.strip("/"))
    roots = "|".join(re.escape(old) for old, _ in pairs)
    # To its end a path has nothing that separates it from others in lists and scripts.
    start = r"(?:(?<![\w./~-])|(?<=^-[A-Za-z])|(?<=[\s'\"]-[A-Za-z]))"
    pattern = rf"{start}(?:{roots})(?![\w.-])(?:/[^\s:;,'\"=()<>|&`]*)?"
    return folder, _Move(pairs, re.compile(pattern))


def _with_program(argv: tuple[str, ...], folder: str, resolved: str) -> tuple[str, ...]:
    """`argv` with the program that was not captured, such as `.venv/bin/python`, where it is."""
    if not argv or "/" not in argv[0] or os.path.exists(os.path.join(folder, argv[0])):  # noqa: PTH110, PTH118
        return argv
    return (resolved, *argv[1:]) if os.path.exists(resolved) else argv  # noqa: PTH110


def _in_copy(
    recorded: CommandRun, env: dict[str, str], move: _Move, copy: Copied
) -> dict[str, str]:
    """`env` with the paths of the copy, and with its code before that of the old place."""
    # Late: every capture imports this module, and few commands run in a copy.
    from repotrace.system.editable import editable_paths

    moved = {
        name: value if name in _OURS or name in ("PATH", "VIRTUAL_ENV") else move.argument(value)
        for name, value in env.items()
        if name not in _OF_ANOTHER_REPOSITORY
    }
    program = os.path.dirname(os.path.dirname(recorded.resolved or ""))  # noqa: PTH120
    own = (f"{copy.old}/.venv", f"{copy.old}/venv")
    venvs = dict.fromkeys([moved.get("VIRTUAL_ENV"), recorded.places.venv, program, *own])
    found = [path for venv in venvs if venv for path in editable_paths(venv, copy.old)]
    imported = [path for path in map(move.path, dict.fromkeys(found)) if os.path.isdir(path)]  # noqa: PTH112
    if imported:
        before = [moved["PYTHONPATH"]] if moved.get("PYTHONPATH") else []
        moved["PYTHONPATH"] = os.pathsep.join([*before, *imported])
    # What a capture in there would keep is kept already.
    moved["REPOTRACE_SNAPSHOT"] = "0"
    return moved


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _environment(
    recorded: CommandRun,
    environ: dict[str, str],
    move: _Move,
    back: Callable[[str], str],
) -> dict[str, str]:
    """`environ` with the recorded variables that matter pinned to their recorded values."""
    env = dict(environ)
    for name in recorded.env_unset:
        env.pop(name, None)
    venv = _virtual_env(recorded, environ, move)
    for name, value in recorded.env.items():
        if name == "PATH":
            continue
        if name == "VIRTUAL_ENV":
            if venv is not None:
                env[name] = venv
        elif name == "TMPDIR":
            if Path(value).is_dir():
                env[name] = value
        else:
            env[name] = back(value)
    if "PATH" in recorded.env:
        env["PATH"] = _path(recorded, environ, move, venv)
    return env


def _virtual_env(recorded: CommandRun, environ: Mapping[str, str], move: _Move) -> str | None:
    """The environment that stands for the recorded one: moved along, the active one, or itself.

    One that belonged to the project comes last once the project is elsewhere: it may hold an
    editable install, and the code of the old place would be judged in the name of the new one.
    """
    old = recorded.places.venv
    if old is None:
        return None
    active = environ.get("VIRTUAL_ENV")
    moved = move.path(old)
    # A copy is preferred to what an editable install takes from the old place, see _in_copy.
    stays = moved == old or move.texts is not None
    order = (moved, old, active) if stays else (moved, active, old)
    for candidate in order:
        if candidate and Path(candidate, "bin").is_dir():
            return candidate
    return None


def _path(recorded: CommandRun, environ: Mapping[str, str], move: _Move, venv: str | None) -> str:
    """The recorded PATH as far as its folders are here, then what this environment adds."""
    entries: list[str] = []
    candidates: dict[str, list[str | None]] = {
        "<venv>": [venv],
        "<repository>": [recorded.places.repository],
        "<home>": [recorded.places.home, environ.get("HOME")],
    }
    for entry in recorded.env["PATH"].split(os.pathsep):
        mark, rest = entry.split(">", 1) if entry.startswith("<") and ">" in entry else ("", "")
        options = [
            move.existing(place + rest) for place in candidates.get(mark + ">", []) if place
        ] or [move.existing(entry)]
        # For every entry, at every replay of a sweep: Path would cost five times as much.
        found = next((option for option in options if os.path.isdir(option)), options[0])  # noqa: PTH112
        entries.append(found)  # twice, if it was there twice: a command may show its PATH
    for entry in environ.get("PATH", os.defpath).split(os.pathsep):
        if entry not in entries:
            entries.append(entry)
    return os.pathsep.join(entries)
