"""The files that a test is run on: those of a state, with the tests of another, changed by hunks.

Such files are states of the snapshot store themselves, put together from objects that it has.
Nothing is checked out for that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from repotrace.blame.evidence import Subject
from repotrace.runs.testing.hunks import (
    Hunk,
    Unfitting,
    hunks_between,
    is_text,
    merged,
    split_lines,
    with_hunks,
)
from repotrace.system.snapshots import SnapshotStore
from repotrace.system.snapshots.objects import Tree, tree_data, write_object
from repotrace.system.snapshots.rebuild import Rebuilder

_FOLDER = 0o40000
_REGULAR = 0o100000

_TEST_FOLDERS = frozenset(
    {"test", "tests", "testing", "__tests__", "__snapshots__", "spec", "specs", "e2e", "fixtures"}
)
_TEST_NAMES = re.compile(
    r"test_.*|.*_tests?\.[^.]+|conftest\.py|.*\.(?:test|spec)\.[^.]+|.*Tests?\.(?:java|kt|cs)"
)
_LOCK_FILES = frozenset(
    {
        *("uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock", "pylock.toml", "environment.yml"),
        *("package-lock.json", "pnpm-lock.yaml", "yarn.lock", "bun.lock", "bun.lockb"),
        *("Cargo.lock", "go.sum", "Gemfile.lock", "composer.lock"),
    }
)
_REQUIREMENTS = re.compile(r"(?:.*[-_.])?(?:requirements|constraints)(?:[-_.].*)?\.(?:txt|in)")

type Entry = tuple[int, str]
"""Git's mode and object id."""


def is_test_file(path: str) -> bool:
    """Whether a file belongs to the tests: their code, their fixtures and their data."""
    *folders, name = path.split("/")
    if any(folder in _TEST_FOLDERS for folder in folders):
        return True
    return _TEST_NAMES.fullmatch(name) is not None


def is_lock_file(path: str) -> bool:
    """Whether a file says which packages are to be installed."""
    name = path.rpartition("/")[2]
    return name in _LOCK_FILES or _REQUIREMENTS.fullmatch(name) is not None


class Change(NamedTuple):
    """One hunk of a step, with what it is a hunk of."""

    id: str
    before: str
    """State that it was made on."""
    after: str
    path: str
    number: int | None
    """Which of the hunks of the file; None: the file as a whole."""
    hunk: Hunk | None
    of: int
    """How many hunks the file has."""


@dataclass(slots=True)
class _Listing:
    """What a state holds."""

    tree: str
    tests: dict[bytes, Entry] = field(default_factory=dict)
    locks: dict[bytes, Entry] = field(default_factory=dict)


class Subjects:
    """Builds the states that tests are run on."""

    def __init__(self, snapshots: SnapshotStore) -> None:
        self._snapshots = snapshots
        self._rebuilder = Rebuilder(snapshots)
        self._listings: dict[str, _Listing] = {}
        self._changes: dict[str, Change] = {}
        self._built: dict[Subject, str] = {}

    # --- Facts of states --------------------------------------------------------------------

    def tests_of(self, state_id: str) -> str:
        """A fingerprint of the test files of a state."""
        return _fingerprint(self._listing(state_id).tests)

    def locks_of(self, state_id: str) -> str:
        """A fingerprint of the files that say which packages are to be installed."""
        return _fingerprint(self._listing(state_id).locks)

    def overlay(self, state_id: str, tests: str) -> list[str]:
        """The paths that change when the tests of another state lie over those of one."""
        own, other = self._listing(state_id).tests, self._listing(tests).tests
        changed = {path for path in own.keys() | other.keys() if own.get(path) != other.get(path)}
        return sorted(map(os.fsdecode, changed))

    def _listing(self, state_id: str) -> _Listing:
        found = self._listings.get(state_id)
        if found is None:
            found = self._listings[state_id] = _Listing(self._snapshots.state(state_id).tree)
            for path, mode, oid in self._walk(found.tree, b""):
                name = os.fsdecode(path)
                if is_test_file(name):
                    found.tests[path] = (mode, oid)
                elif is_lock_file(name):
                    found.locks[path] = (mode, oid)
        return found

    def _walk(self, tree: str, prefix: bytes) -> Iterator[tuple[bytes, int, str]]:
        for name, mode, oid in self._snapshots.reader.tree(tree):
            if mode == _FOLDER:
                yield from self._walk(oid, prefix + name + b"/")
            else:
                yield prefix + name, mode, oid

    # --- Hunks ------------------------------------------------------------------------------

    def changes(self, before: str, after: str, *, tests: bool = True) -> list[Change]:
        """The hunks that lead from one state to another, by path.

        Without `tests` those of test files are left out, unless there are no others.
        """
        found = list(self._changes_of(before, after))
        others = [change for change in found if not is_test_file(change.path)]
        if not tests and others:
            found = others
        self._changes.update((change.id, change) for change in found)
        return found

    def change(self, hunk_id: str) -> Change:
        """A hunk by its id, as `changes` gave it."""
        return self._changes[hunk_id]

    def _changes_of(self, before: str, after: str) -> Iterator[Change]:
        old_tree, new_tree = self._snapshots.state(before).tree, self._snapshots.state(after).tree
        differing = self._snapshots.differ.diff(old_tree, new_tree)
        for raw, old_mode, new_mode, old_id, new_id in differing:
            path = os.fsdecode(raw)
            name = f"{before[:16]}..{after[:16]}:{path}"
            hunks = self._hunks((old_mode, old_id), (new_mode, new_id))
            if hunks is None:
                yield Change(name, before, after, path, None, None, 1)
                continue
            for number, hunk in enumerate(hunks):
                yield Change(f"{name}:{number}", before, after, path, number, hunk, len(hunks))

    def _hunks(self, old: Entry, new: Entry) -> list[Hunk] | None:
        if old[0] != new[0] or old[0] & 0o170000 != _REGULAR:
            return None
        texts = self._content(old), self._content(new)
        if not all(map(is_text, texts)):
            return None
        return hunks_between(*map(split_lines, texts))

    def _content(self, entry: Entry | None) -> bytes:
        found = None if entry is None else self._snapshots.read_object(entry[1])
        return b"" if found is None else found

    # --- Building ---------------------------------------------------------------------------

    def state_of(self, subject: Subject) -> str:
        """The id of the state that has just these files.

        Raises Unfitting if the hunks do not fit the files.
        """
        found = self._built.get(subject)
        if found is None:
            found = self._built[subject] = self._build(subject)
        return found

    def _build(self, subject: Subject) -> str:
        state = self._snapshots.state(subject.state)
        tree = state.tree
        if subject.tests:
            tree = self._with_tests(subject.state, subject.tests)
        for group in _by_file(self._changes[name] for name in subject.removed):
            tree = self._undone(tree, group)
        for group in _by_file(self._changes[name] for name in subject.added):
            tree = self._done(tree, group)
        if tree == state.tree:
            return subject.state
        objects = self._snapshots.path / "objects"
        parts = [(b"manifest", 0o100644, state.manifest_id), (b"root", _FOLDER, tree)]
        return write_object(objects, b"tree", tree_data(parts))

    def _with_tests(self, state_id: str, tests: str) -> str:
        own, other = self._listing(state_id).tests, self._listing(tests).tests
        entries: dict[bytes, Entry | None] = dict.fromkeys(own)
        entries |= other
        changed = {path: entry for path, entry in entries.items() if entry != own.get(path)}
        tree = self._listing(state_id).tree
        return self._rebuilder.changed(tree, changed) if changed else tree

    def _done(self, tree: str, group: list[Change]) -> str:
        return self._applied(tree, group, undo=False)

    def _undone(self, tree: str, group: list[Change]) -> str:
        return self._applied(tree, group, undo=True)

    def _applied(self, tree: str, group: list[Change], *, undo: bool) -> str:
        """A tree with the hunks of one file made, or undone."""
        first, path = group[0], os.fsencode(group[0].path)
        old, new = (self._entry(state, path) for state in (first.before, first.after))
        start, end = (new, old) if undo else (old, new)
        present = self._entry_in(tree, path)
        if present == end:
            return tree
        if first.hunk is None:
            if present != start:
                raise Unfitting
            return self._rebuilder.changed(tree, {path: end})
        if present is None or present[0] & 0o170000 != _REGULAR:
            raise Unfitting
        old_lines, new_lines = split_lines(self._content(old)), split_lines(self._content(new))
        chosen = {change.number for change in group}
        hunks = hunks_between(old_lines, new_lines)
        kept = [hunk for number, hunk in enumerate(hunks) if (number in chosen) is not undo]
        base, wanted = (new_lines if undo else old_lines), with_hunks(old_lines, kept)
        data = b"".join(merged(base, split_lines(self._content(present)), wanted))
        blob = self._rebuilder.blob(data)
        return self._rebuilder.changed(tree, {path: (present[0], blob)})

    def _entry(self, state_id: str, path: bytes) -> Entry | None:
        return self._entry_in(self._snapshots.state(state_id).tree, path)

    def _entry_in(self, tree: str, path: bytes) -> Entry | None:
        found = Tree(self._snapshots.reader, tree).entry(path)
        return None if found is None or found[0] == _FOLDER else found


def _by_file(changes: Iterable[Change]) -> list[list[Change]]:
    """Those of one step and file together, in the order of the first of each."""
    groups: dict[tuple[str, str, str], list[Change]] = {}
    for change in changes:
        groups.setdefault((change.before, change.after, change.path), []).append(change)
    return list(groups.values())


def _fingerprint(entries: dict[bytes, Entry]) -> str:
    if not entries:
        return "none"
    parts = [b"%o %s %s\0" % (mode, oid.encode(), path) for path, (mode, oid) in entries.items()]
    return sha256(b"".join(sorted(parts))).hexdigest()[:16]


def shown_hunk(change: Change, old: Sequence[bytes]) -> list[str]:
    """A hunk as lines of a unified diff without context; none for a file as a whole."""
    hunk = change.hunk
    if hunk is None:
        return []
    gone = old[hunk.start : hunk.end]
    head = f"@@ -{_span(hunk.start, len(gone))} +{_span(hunk.new_start, len(hunk.lines))} @@"
    lines = [head]
    for sign, part in (("-", gone), ("+", hunk.lines)):
        lines += [sign + line.decode("utf-8", "replace").rstrip("\r\n") for line in part]
    return lines


def _span(start: int, count: int) -> str:
    """As git has it: the line before where there are none."""
    return f"{start + 1 if count else start},{count}"
