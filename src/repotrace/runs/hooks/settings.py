"""Hooks in the settings of agents: put in, taken out again, looked at.

The settings belong to the user. Nothing but our own entries is touched, a copy of what was there
before stays until they are taken out, and what cannot be edited safely is refused.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from repotrace.agents import AGENTS, agent
from repotrace.agents.tools import Agent, Hooks
from repotrace.config import find_repository
from repotrace.errors import RepoTraceError
from repotrace.runs.hooks.json_text import Node, NotPlain, inserted, parsed, removed, replaced
from repotrace.storage import files
from repotrace.system.git import GitError, git
from repotrace.system.ourselves import ISOLATED, SAFE_PATH, is_found

NAMES = {"claude-code": "claude-code", "codex": "codex", "gemini": "gemini-cli"}
"""What agents with hooks are called on the command line, and by their importers."""

BACKUP = ".before-repotrace"
"""Follows the name of a file of settings."""

_OURS = re.compile(r"-m repotrace hook ([a-z-]+)")
_PROGRAM = re.compile(r"\[ -x ('[^']*'|\S+) \]")


class Scope(StrEnum):
    """Whose settings they are."""

    PROJECT = "project"
    USER = "user"


class Place(NamedTuple):
    """A file of settings that may hold our hooks."""

    agent: Agent
    hooks: Hooks
    scope: Scope
    path: Path
    backup: Path
    """Where a copy of what was there before is kept."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is to become of a file of settings."""

    place: Place
    before: bytes | None
    """None: there is no file."""
    after: bytes | None
    """None: the file is removed."""
    exact: bool = True
    """Whether a removal gives what was there before, byte for byte."""

    @property
    def is_none(self) -> bool:
        """Whether nothing changes."""
        return self.before == self.after


@dataclass(frozen=True, slots=True)
class HooksStatus:
    """What hooks of ours a file of settings holds."""

    place: Place
    installed: bool
    problem: str | None = None
    """Why nothing is recorded, though they are installed; or why it cannot be told."""


def places(
    name: str, root: Path, home: Path, environ: Mapping[str, str], scope: Scope | None = None
) -> list[Place]:
    """The settings of an agent in the project `root` and of the user, or those of one `scope`.

    Raises RepoTraceError for an agent without hooks.
    """
    called = NAMES.get(name, name)
    known = agent(called) if called in AGENTS else None
    if known is None or known.hooks is None:
        raise RepoTraceError(
            f"No hooks are known for an agent called {name!r}.",
            hint=f"There are those of: {', '.join(NAMES)}",
        )
    hooks = known.hooks
    project, user = root / hooks.project, hooks.user(environ)
    found = [
        Place(known, hooks, Scope.PROJECT, project, home / "hooks" / f"{called}{BACKUP}"),
        Place(known, hooks, Scope.USER, user, user.with_name(user.name + BACKUP)),
    ]
    return [place for place in found if scope in (None, place.scope)]


def our_command(name: str) -> str:
    """The shell line that an agent is to run: silent and successful, even if we are gone.

    Raises RepoTraceError if this program would not be found by it.
    """
    python = sys.executable
    flag = next((flag for flag in (ISOLATED, SAFE_PATH) if python and is_found(flag)), None)
    if flag is None:
        raise RepoTraceError(
            "The Python that runs RepoTrace does not find it from another folder.",
            hint="Install RepoTrace (uv tool install, pipx install, pip install) and try again.",
        )
    program = shlex.quote(python)
    call = f"{program} {flag} -m repotrace hook {name} >/dev/null 2>&1"
    return f"[ -x {program} ] && {call} || true"


# --- Changes ----------------------------------------------------------------------------------


def refuse_twice(chosen: Place, others: Iterable[Place]) -> None:
    """Raises RepoTraceError if the agent is told by other settings already: it would tell us of
    everything twice."""
    for place in others:
        if place.path != chosen.path and _ours_in(_content(place.path)):
            name = next(name for name, known in NAMES.items() if known == place.agent.name)
            raise RepoTraceError(
                f"{place.agent.title} tells RepoTrace of its sessions already: {place.path}",
                hint=f"Take that out first: repotrace hooks uninstall {name} --{place.scope}",
            )


def installing(place: Place, command: str) -> Change:
    """What putting our hooks in, or bringing them up to date, changes.

    Raises RepoTraceError if the settings cannot be read or edited.
    """
    before = _content(place.path)
    after = _installed(place, before, command)
    return Change(place, before, after)


def uninstalling(place: Place) -> Change:
    """What taking our hooks out changes: the file is as it was before they were put in.

    Where it was changed since, only our entries go. Raises RepoTraceError as `installing` does.
    """
    before = _content(place.path)
    if before is None:
        return Change(place, None, None)
    text, root = _parsed(place, before)
    command = next((handler.value["command"] for *_, handler in _ours(root)), None)
    if command is None:
        return Change(place, before, before)
    original = _content(place.backup)
    with suppress(RepoTraceError):
        if _installed(place, original, command) == before:
            return Change(place, before, original)
    after = _without_ours(text)
    exact = original is None and not parsed(after).members
    return Change(place, before, None if exact else after.encode(), exact=exact)


def apply(change: Change) -> None:
    """Make the change. Raises RepoTraceError if the file cannot be written."""
    place = change.place
    # A link to the user's own collection of settings stays one.
    path = Path(os.path.realpath(place.path))
    adding = bool(_ours_in(change.after)) and not _ours_in(change.before)
    try:
        if adding:
            _keep(place.backup, change.before)
        if change.after is None:
            path.unlink(missing_ok=True)
            with suppress(OSError):
                path.parent.rmdir()  # only if it is empty
        else:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = path.stat().st_mode & 0o777 if path.exists() else files.PRIVATE
            files.replace(path, change.after, mode=mode)
        if not _ours_in(change.after):
            _keep(place.backup, None)
    except OSError as error:
        raise RepoTraceError(f"Cannot write {place.path}: {error.strerror}.") from error


def is_shown_by_git(place: Place) -> bool:
    """Whether git would offer to commit the settings, which name a path of this machine."""
    repository = find_repository(place.path.parent)
    if place.scope is not Scope.PROJECT or repository is None or not place.path.exists():
        return False
    try:
        git(["check-ignore", "-q", os.fspath(place.path)], repository.root, deadline=2.0)
    except GitError:
        return True
    return False


def _keep(backup: Path, content: bytes | None) -> None:
    if content is None:
        backup.unlink(missing_ok=True)
        return
    if not backup.parent.is_dir():
        files.make_private(backup.parent)
    files.replace(backup, content)


def statuses(root: Path, home: Path, environ: Mapping[str, str]) -> list[HooksStatus]:
    """Of every agent with hooks, in the project and for the user."""
    return [_status(place) for name in NAMES for place in places(name, root, home, environ)]


def _status(place: Place) -> HooksStatus:
    try:
        before = _content(place.path)
        if before is None:
            return HooksStatus(place, installed=False)
        _, root = _parsed(place, before)
    except RepoTraceError as error:
        return HooksStatus(place, installed=False, problem=error.message)
    found = {event: str(handler.value["command"]) for event, *_, handler in _ours(root)}
    if not found:
        return HooksStatus(place, installed=False)
    if place.hooks.switch and root.value.get(place.hooks.switch) is True:
        problem = f"{place.hooks.switch} is set, so {place.agent.title} runs no hooks"
        return HooksStatus(place, installed=True, problem=problem)
    for command in found.values():
        match = _PROGRAM.match(command)
        program = shlex.split(match[1])[0] if match else ""
        if not os.access(program, os.X_OK):
            problem = f"its program is gone: {program or command}"
            return HooksStatus(place, installed=True, problem=problem)
    missing = [event for event in place.hooks.events if event not in found]
    if missing:
        problem = f"no hook for {', '.join(missing)}; install again"
        return HooksStatus(place, installed=True, problem=problem)
    return HooksStatus(place, installed=True)


# --- Texts ------------------------------------------------------------------------------------


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RepoTraceError(f"Cannot read {path}: {error.strerror}.") from error


def _parsed(place: Place, content: bytes) -> tuple[str, Node]:
    """The text of the settings. Raises RepoTraceError if it is not what we can edit."""
    try:
        text = content.decode("utf-8")
        root = parsed(text if text.strip() else "{}")
        hooks = root.member("hooks")
        if not isinstance(root.value, dict) or not isinstance(hooks.value if hooks else {}, dict):
            raise NotPlain("no object")
        if hooks is not None and any(
            member.name in place.hooks.events and not isinstance(member.node.value, list)
            for member in hooks.members
        ):
            raise NotPlain("the hooks of an event are no list")
    except (NotPlain, UnicodeDecodeError) as error:
        raise RepoTraceError(
            f"{place.path} is not plain JSON: {error}.",
            hint="Mend it, or take comments out, and try again; nothing was changed.",
        ) from error
    return (text if text.strip() else "{}"), root


def _installed(place: Place, before: bytes | None, command: str) -> bytes:
    text, _ = _parsed(place, before or b"")
    wanted = place.hooks.events
    text = _without_ours(text, keep=wanted)
    for event in wanted:
        _, root = _parsed(place, text.encode())
        mine = next((handler for name, *_, handler in _ours(root) if name == event), None)
        if mine is not None:
            told = mine.member("command")
            if told is not None and told.value != command:
                text = replaced(text, told, command)
            continue
        group = {"hooks": [_handler(place.hooks, command)]}
        hooks = root.member("hooks")
        if hooks is None:
            text = inserted(text, root, {}, "hooks")
            _, root = _parsed(place, text.encode())
            hooks = root.member("hooks")
        assert hooks is not None
        listed = hooks.member(event)
        if listed is not None:
            text = inserted(text, listed, group)
        else:
            text = inserted(text, hooks, [group], event)
    ending = "" if before else "\n"
    return (text + ending).encode()


def _handler(hooks: Hooks, command: str) -> dict[str, Any]:
    named = {"name": "repotrace"} if hooks.named else {}
    return {**named, "type": "command", "command": command, "timeout": hooks.timeout}


def _ours(root: Node) -> Iterator[tuple[str, Node, int, Node, int, Node]]:
    """Our hooks: the event, its list, the place of the group in it, the hooks of the group, the
    place of ours among them, and ours."""
    hooks = root.member("hooks")
    for event in hooks.members if hooks is not None else ():
        for at, group in enumerate(event.node.members):
            listed = group.node.member("hooks") if isinstance(group.node.value, dict) else None
            for place, one in enumerate(listed.members if listed is not None else ()):
                handler = one.node.value
                command = handler.get("command") if isinstance(handler, dict) else None
                if isinstance(command, str) and _OURS.search(command):
                    assert listed is not None
                    yield str(event.name), event.node, at, listed, place, one.node


def _ours_in(content: bytes | None) -> bool:
    if content is None:
        return False
    try:
        return next(_ours(parsed(content.decode("utf-8"))), None) is not None
    except (NotPlain, UnicodeDecodeError):
        return False


def _without_ours(text: str, keep: tuple[str, ...] = ()) -> str:
    """`text` without our hooks, but for one of each event in `keep`, and without what they leave
    empty."""
    while True:
        root = parsed(text)
        kept: set[str] = set()
        for event, groups, at, listed, place, _ in _ours(root):
            if event in keep and event not in kept:
                kept.add(event)
                continue
            text = _cut(text, root, event, groups, at, listed, place)
            break
        else:
            return text


def _cut(text: str, root: Node, event: str, groups: Node, at: int, listed: Node, place: int) -> str:
    """`text` without one hook: with its group, the event, and `hooks`, if nothing else is there."""
    if len(listed.members) > 1:
        return removed(text, listed, place)
    if len(groups.members) > 1:
        return removed(text, groups, at)
    hooks = root.member("hooks")
    assert hooks is not None
    if len(hooks.members) > 1:
        return removed(text, hooks, [member.name for member in hooks.members].index(event))
    return removed(text, root, [member.name for member in root.members].index("hooks"))
