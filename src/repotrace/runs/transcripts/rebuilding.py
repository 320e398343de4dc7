"""The files of an imported run, step by step: claimed changes applied to the commit before it.

Nothing is checked out or run. What a transcript tells of a change is believed; a command that may
have changed more makes all later states unverified.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from repotrace.errors import RepoTraceError
from repotrace.importers.effects import Effects, effects, normalised
from repotrace.importers.patches import Unfitting, apply_multi, apply_to_one
from repotrace.records.base import decode_bytes
from repotrace.records.run import OperationType, StateQuality
from repotrace.system.snapshots.rebuild import FILE, Rebuilder

type Data = dict[str, Any]

NOWHERE = "/(unknown folder)"
"""Stands for the folder of a session that does not tell it."""

_LINK = 0o120000
_TOGETHER = 100
_TOGETHER_BYTES = 8 << 20
"""Contents that are kept by one write, at most."""
_COMPARED = 4_000
"""Lines beyond which two texts are not compared line by line."""


class Base(NamedTuple):
    """What the files were before the first step."""

    tree: str | None
    """None: not known."""
    commit: str | None = None
    reason: str | None = None
    """Why it is not known."""
    doubt: str | None = None
    """Why it may have been another one."""


class Change(NamedTuple):
    """A change of one path, as an event is to tell it."""

    path: str
    kind: str
    before_id: str | None
    after_id: str | None
    facts: Data


@dataclass(slots=True)
class _Step:
    """A step whose end has not come."""

    changed: bool = False
    claimed: bool = False
    """The transcript itself tells what it changed."""
    doubted: bool = False


@dataclass(slots=True)
class Rebuilding:
    """The files of one run, as far as its events were taken."""

    rebuilder: Rebuilder
    ref: str
    """Keeps the contents that no state holds."""
    base: Base
    root: str = NOWHERE
    """The folder of the transcript that the paths of states are relative to."""
    states: list[str] = field(default_factory=list)
    """All states, in order."""
    touched: set[str] = field(default_factory=set)
    """Paths that were changed."""
    doubts: list[str] = field(default_factory=list)
    """Why the states are not sure."""
    _tree: str = ""
    _steps: dict[str, _Step] = field(default_factory=dict)
    _contents: dict[str, bytes | None] = field(default_factory=dict)
    """Without a base: what was told of files."""
    _unkept: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tree = self.base.tree or ""
        if self.base.doubt:
            self.doubt(self.base.doubt)
        if self.base.tree is not None:
            self.states.append(self.rebuilder.state(self.base.tree))

    # --- Paths and contents -----------------------------------------------------------------

    def relative(self, path: Any) -> Any:
        """A path of the transcript relative to the root; as it is outside of it."""
        if not isinstance(path, str):
            return path
        whole = normalised(self.root, path)
        if whole.startswith(self.root.rstrip("/") + "/"):
            return posixpath.relpath(whole, self.root)
        return whole

    def read(self, path: str) -> bytes | None:
        """The content of a relative path now; None if there is none, or if it is not known."""
        if not self._tree:
            return self._contents.get(path)
        entry = self.rebuilder.entry(self._tree, _raw(path)) if _usable(path) else None
        return self.rebuilder.store.read_object(entry[1]) if entry else None

    def object_id(self, path: str) -> str | None:
        """The object id of the content of a relative path now."""
        if not self._tree or not _usable(path):
            return None
        entry = self.rebuilder.entry(self._tree, _raw(path))
        return entry[1] if entry else None

    def _write(self, path: str, data: bytes | None, like: str | None = None) -> str | None:
        """Sets a content; its object id."""
        oid = self._kept(data)
        self.touched.add(path)
        if not self._tree:
            self._contents[path] = data
            return oid
        mode = FILE
        for name in (path, like):
            found = self.rebuilder.entry(self._tree, _raw(name)) if name else None
            if found is not None:
                mode = found[0]
                break
        if mode == _LINK:
            self.doubt(f"{path} is a link")
            return oid
        entry = None if oid is None else (mode, oid)
        self._tree = self.rebuilder.changed(self._tree, {_raw(path): entry})
        return oid

    def saw(self, tree: str) -> None:
        """Go on from a tree that the files were seen to be."""
        self._tree = tree
        self.doubts.clear()

    # --- What was done ----------------------------------------------------------------------

    def doubt(self, reason: str) -> None:
        """Note why the files may be others from here on."""
        if reason not in self.doubts:
            self.doubts.append(reason)

    def operation(self, data: Mapping[str, Any]) -> Change | None:
        """Applies a claimed change. None for one that is no change of a file below the root, or
        that cannot be applied; `doubts` tell of it."""
        step = self._steps.setdefault(str(data.get("step_id")), _Step())
        step.claimed = True
        path = self.relative(data.get("file_path"))
        kind = str(data.get("operation_type"))
        origin = self.relative(data.get("renamed_from"))
        if not isinstance(path, str) or not _usable(path):
            return None
        before = self.read(path)
        told = _content(data.get("content_before"))
        if told is not None and told != before:
            if self._tree and before is not None:
                self.doubt(f"{path} was changed by something else")
                step.doubted = True
            before = told
            if self._tree:
                self._write(path, told)
                self._keep(told)
        try:
            after = self._after(data, kind, self.read(origin) if origin else before)
        except (Unfitting, UnicodeError, ValueError) as problem:
            self.doubt(f"a change of {path} could not be applied: {problem}")
            step.doubted = True
            return Change(path, kind, self._kept(before), None, {})
        if kind == OperationType.DELETE and before is None and self._tree:
            self.doubt(f"{path} was deleted but is not known")
            step.doubted = True
        change = self._changed(step, path, before, after, origin)
        return change if self._tree else change._replace(kind=kind)

    def _after(self, data: Mapping[str, Any], kind: str, before: bytes | None) -> bytes | None:
        if kind == OperationType.DELETE:
            return None
        told = _content(data.get("content_after"))
        if told is not None:
            return told
        patch, edits = data.get("patch"), data.get("edits")
        if not isinstance(patch, str) and not isinstance(edits, list):
            if data.get("renamed_from"):
                return before
            raise Unfitting("the transcript does not tell its content")
        if before is None and kind != OperationType.CREATE:
            raise Unfitting("the file before it is not known")
        text = (before or b"").decode()
        if isinstance(patch, str):
            found = apply_to_one(patch, text) if patch else text
            return None if found is None else found.encode()
        for edit in edits or ():
            text = _edited(text.expandtabs() if edit.get("expand_tabs") else text, edit)
        return text.encode()

    def external(self, step_id: str, facts: Any) -> None:
        """Notes that somebody else changed a file, in a way that is not told."""
        path = self.relative(facts.get("path")) if isinstance(facts, dict) else None
        if isinstance(path, str) and not path.startswith("/"):
            self.doubt(f"{path} was changed by somebody else")
            self._steps.setdefault(step_id, _Step()).doubted = True

    def command(self, data: Mapping[str, Any]) -> list[Change]:
        """What a command changed, as its text tells; whatever else it may have done is doubted."""
        step = self._steps.setdefault(str(data.get("step_id")), _Step())
        command = data.get("command")
        script = command.get("script") if isinstance(command, dict) else None
        if step.claimed or not isinstance(command, dict) or not isinstance(script, str):
            return []
        cwd = normalised(self.root, str(command.get("cwd") or ""))
        code = command.get("exit_code")
        ended = code if isinstance(code, int) else 1 if command.get("termination") else None
        found = effects(script, cwd, self._outer_read, exit_code=ended, root=self.root)
        changes = self._of_effects(step, found)
        for reason in found.doubts:
            self.doubt(f"{reason} may have changed files")
            step.doubted = True
        return changes

    def _outer_read(self, path: str) -> bytes | None:
        inner = self.relative(path)
        return self.read(inner) if isinstance(inner, str) and not inner.startswith("/") else None

    def _of_effects(self, step: _Step, found: Effects) -> list[Change]:
        changes = []
        for name, data in found.contents.items():
            path = self.relative(name)
            if not _usable(path):
                continue
            before = self.read(path)
            if before == data:
                continue
            origin = found.renamed.get(name)
            renamed = self.relative(origin) if origin else None
            changes.append(self._changed(step, path, before, data, renamed))
        return changes

    def _changed(
        self,
        step: _Step,
        path: str,
        before: bytes | None,
        after: bytes | None,
        origin: str | None = None,
    ) -> Change:
        step.changed = True
        before_id = self._kept(before)
        after_id = self._write(path, after, origin)
        kind = OperationType.EDIT
        if after is None:
            kind = OperationType.DELETE
        elif before is None and self._tree:
            kind = OperationType.CREATE
        added, removed, binary = _lines(before, after)
        facts: Data = {"lines_added": added, "lines_removed": removed, "is_binary": binary}
        if origin:
            facts["renamed_from"] = origin
        return Change(path, kind, before_id, after_id, facts)

    def _kept(self, data: bytes | None) -> str | None:
        if data is None:
            return None
        if not self._tree:
            self._keep(data)
        return self.rebuilder.blob(data)

    def _keep(self, data: bytes) -> None:
        """Have a content that no state holds kept."""
        self._unkept.append(data)
        if len(self._unkept) >= _TOGETHER or sum(map(len, self._unkept)) > _TOGETHER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Keep the contents that no state holds. To be called at the end."""
        if self._unkept:
            self.rebuilder.store.keep(self.ref, *self._unkept)
            self._unkept.clear()

    def ended(self, step_id: str) -> Data | None:
        """The state after a step, as `StateData`; None if the step left the files alone."""
        step = self._steps.pop(step_id, None)
        if step is None or not (step.changed or step.doubted):
            return None
        if not self._tree:
            reason = self.base.reason or "the files before the first step are not known"
            missing = StateQuality.MISSING
            return {"step_id": step_id, "state_quality": missing, "state_reason": reason}
        state = self.rebuilder.state(self._tree)
        if not self.states or self.states[-1] != state:
            self.states.append(state)
        told: Data = {"step_id": step_id, "state_id": state, "state_quality": self.quality}
        if self.doubts:
            more = len(self.doubts) - 1
            reason = self.doubts[0] + (f"; and {more} more" if more else "")
            told["state_reason"] = reason[:500]
        return told

    @property
    def quality(self) -> StateQuality:
        """How far the newest state can be relied on."""
        if not self._tree:
            return StateQuality.MISSING
        return StateQuality.UNVERIFIED if self.doubts else StateQuality.INFERRED

    def base_state(self) -> Data:
        """The state before the first step, as `StateData`."""
        if self.base.tree is None:
            missing: Data = {"state_quality": StateQuality.MISSING}
            return missing | ({"state_reason": self.base.reason} if self.base.reason else {})
        quality = StateQuality.UNVERIFIED if self.base.doubt else StateQuality.INFERRED
        return {"state_id": self.states[0], "state_quality": quality}

    # --- Comparing --------------------------------------------------------------------------

    def differing_from_patch(self, patch: str) -> list[str] | None:
        """Paths in which the end differs from the base with `patch`; None if that cannot be
        told."""
        if self.base.tree is None:
            return None

        def text(path: str) -> str | None:
            entry = self.rebuilder.entry(self.base.tree or "", _raw(path))
            data = self.rebuilder.store.read_object(entry[1]) if entry else None
            return None if data is None else data.decode("utf-8", "surrogateescape")

        try:
            wanted = {change.path: change.after for change in apply_multi(patch, text)}
        except (Unfitting, ValueError):
            return None
        ours = {path: self.read(path) for path in self.touched | wanted.keys()}
        found = []
        for path, data in ours.items():
            after = wanted[path] if path in wanted else text(path)
            told = None if after is None else after.encode("utf-8", "surrogateescape")
            if told != data:
                found.append(path)
        return sorted(found)


def _usable(path: str) -> bool:
    """Whether a state may hold the path."""
    parts = path.split("/")
    return bool(path) and "\0" not in path and not {"", ".", "..", ".git"} & set(parts)


def _raw(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _edited(text: str, edit: Mapping[str, Any]) -> str:
    """The text with an edit of `ClaimedContent` made. Raises Unfitting."""
    first, last = edit.get("first"), edit.get("last")
    if not isinstance(first, int) or not isinstance(last, int):
        return _replaced(text, edit)
    lines = text.split("\n")
    if first > len(lines):
        lines = lines[:-1] if not lines[-1] else lines
        first, last = len(lines) + 1, len(lines)
    elif first < 1 or last < first - 1:
        raise Unfitting("the lines to replace are not there")
    new = edit.get("new")
    if "old" in edit:
        new = _replaced("\n".join(lines[first - 1 : last]), edit)
    inserted = [] if new is None else str(new).split("\n")
    return "\n".join([*lines[: first - 1], *inserted, *lines[last:]])


def _replaced(text: str, edit: Mapping[str, Any]) -> str:
    old, new = str(edit.get("old")), str(edit.get("new"))
    if old not in text or (not old and text):
        raise Unfitting("the text to replace is not there")
    return text.replace(old, new, -1 if edit.get("all") else 1) if old else new


def _content(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict):
        try:
            return decode_bytes(value)
        except ValueError:
            return None
    return None


def _lines(before: bytes | None, after: bytes | None) -> tuple[int, int, bool]:
    """Lines added and removed, and whether it is no text."""
    one, other = (data or b"" for data in (before, after))
    if b"\0" in one[:8000] or b"\0" in other[:8000]:
        return 0, 0, True
    old, new = one.splitlines(keepends=True), other.splitlines(keepends=True)
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    if len(old) + len(new) > _COMPARED:
        return len(new), len(old), False
    same = sum(
        block.size
        for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    )
    return len(new) - same, len(old) - same, False


def base_of(rebuilder: Rebuilder, repository: Any, commit: str) -> Base:
    """The files of a commit of the user's repository."""
    try:
        return Base(rebuilder.tree_of(repository, commit), commit)
    except RepoTraceError as error:
        return Base(None, commit, str(error))


def with_contents(
    rebuilder: Rebuilder, base: Base, seen: Mapping[str, str], doubt: str | None
) -> Base:
    """The base with other contents of some files, by their paths."""
    if base.tree is None:
        return base
    entries: dict[bytes, tuple[Any, str] | None] = {}
    for path, text in seen.items():
        known = rebuilder.entry(base.tree, _raw(path)) if _usable(path) else None
        if _usable(path) and (known is None or known[0] != _LINK):
            oid = rebuilder.blob(text.encode("utf-8", "surrogatepass"))
            entries[_raw(path)] = (known[0] if known else FILE, oid)
    return base._replace(tree=rebuilder.changed(base.tree, entries), doubt=doubt)
