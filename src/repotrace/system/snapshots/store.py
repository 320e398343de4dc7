"""The store of states: one bare git repository of our own."""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from repotrace.config import head_of
from repotrace.errors import RepoTraceError
from repotrace.system.snapshots import differences, upkeep
from repotrace.system.snapshots.checkout import Checkout
from repotrace.system.snapshots.exclusion import exclude_file
from repotrace.system.snapshots.lacking import Lacking, lacking_in, subject_of, trailers
from repotrace.system.snapshots.manifest import Manifest, manifest_of
from repotrace.system.snapshots.model import (
    Deadline,
    DeadlinePassed,
    Entry,
    NestedRepository,
    NotCaptured,
    Operation,
    Snapshot,
    StateRecord,
    text,
)
from repotrace.system.snapshots.objects import (
    EMPTY_TREE,
    ObjectReader,
    Tree,
    TreeDiffer,
    tree_data,
    write_object,
)
from repotrace.system.snapshots.plumbing import (
    ATTRIBUTES,
    CONFIG,
    PRIVATE,
    locked,
    run_git,
)
from repotrace.system.snapshots.survey import Memory
from repotrace.system.snapshots.workspace import Workspace

SIZE_LIMIT = 50 * 1024 * 1024
CAP = 5 * 1024**3
_REF = re.compile(r"(runs|reports)/[A-Za-z0-9][A-Za-z0-9._-]*")
_PREFIX = "refs/repotrace/"
_IDENTITY = "RepoTrace <repotrace@localhost>"
_SIZES = 200
"""So many left-out files have their size looked up anew at every snapshot."""
_WEIGHED_EVERY = 100
"""Changed states after which the store's size is looked at again, at the latest."""
_WEIGHED_FOR = 600
"""Seconds after which it is, whoever writes into it."""

type Names = list[str]
type Entries = list[Entry]
type Operations = list[Operation]
type States = list[StateRecord]


@dataclass(frozen=True, slots=True)
class State:
    """The parts of a state id."""

    tree: str
    manifest_id: str
    manifest: Manifest


class SnapshotStore:
    """Takes states of workspaces and gives them back. Made on disk at first need.

    Several processes and threads may use one store. `close()` ends its companions.
    """

    def __init__(self, path: Path, *, size_limit: int = SIZE_LIMIT, cap: int = CAP) -> None:
        self.path = Path(os.path.abspath(path))  # noqa: PTH100 - keeps links as they are
        self.size_limit = size_limit
        self.cap = cap
        self._workspaces: dict[Path, Workspace] = {}
        self._states: dict[str, State] = {}
        self._tips: dict[str, str] = {}
        self._guard = threading.Lock()
        self._ready = False
        self._changes = 0
        self._full = False
        self.reader = ObjectReader(self.path)
        self.differ = TreeDiffer(self.path)
        weakref.finalize(self, _close, self.reader, self.differ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the git processes that stay; the store starts them again when it needs them."""
        _close(self.reader, self.differ)

    # -- taking --------------------------------------------------------------------------

    def take(
        self, workspace: Path, *, ref: str, deadline: float | None = None, message: str = ""
    ) -> Snapshot:
        """The state of `workspace` now, kept under `ref` (`runs/<id>` or `reports/<id>`).

        `deadline` is the number of seconds it may take. When they are over, or when the work
        tree cannot be read as a whole, the snapshot is `missed` and nothing is kept of it.
        Raises RepoTraceError for a workspace that nobody can mean: `/`, or `$HOME` or above.
        """
        started = time.monotonic()
        limit = Deadline.after(deadline)
        name = _full_ref(ref)
        root = refuse_wide(workspace)
        try:
            return self._take(root, name, message, limit, started)
        except DeadlinePassed:
            reason = f"not done within {deadline:g} s"
        except RepoTraceError as error:
            reason = str(error)
        except OSError as error:
            place = f": {error.filename}" if isinstance(error.filename, str) else ""
            reason = f"{error.strerror}{place}" if error.strerror else str(error)
        upkeep.sweep_broken(self.path)
        return Snapshot("missed", None, None, False, time.monotonic() - started, reason=reason)

    def _take(
        self, root: Path, ref: str, message: str, deadline: Deadline, started: float
    ) -> Snapshot:
        self.create()
        workspace = self._workspace(root)
        workspace.index.prepare()
        with (
            locked(workspace.index.lock, deadline=deadline),
            locked(self.path / "lock", shared=True, deadline=deadline),
        ):
            self._weigh()
            memory = workspace.look(deadline)
            unsettled = tuple(text(path) for path in sorted(workspace.unsettled()))
            if not memory.state_id:
                self._compose(memory)
            left_out = tuple(sorted(_left_out(root, memory), key=lambda item: item.path))
            nested = tuple(_nested(root, memory))
            changed = self._record(ref, memory, message, trailers(left_out, nested))
            if workspace.touched:
                self._pin(workspace.index.key, memory)
                workspace.save(memory)
        return Snapshot(
            "exact",
            memory.state_id,
            memory.tree,
            changed,
            time.monotonic() - started,
            left_out,
            nested,
            unsettled,
        )

    def _workspace(self, root: Path) -> Workspace:
        with self._guard:
            workspace = self._workspaces.get(root)
            if workspace is None:
                workspace = Workspace(self.path, root, self.size_limit)
                self._workspaces[root] = workspace
            return workspace

    def _compose(self, memory: Memory) -> None:
        """Makes the object that a state's id names: the tree, and the manifest beside it."""
        objects = self.path / "objects"
        manifest = manifest_of(memory, memory.modes())
        memory.manifest = write_object(objects, b"blob", manifest.dump())
        memory.state_id = self._wrap(memory.tree, memory.manifest)

    def _wrap(self, tree: str, manifest: str) -> str:
        objects = self.path / "objects"
        if tree == EMPTY_TREE:
            write_object(objects, b"tree", b"")
        entries = [(b"manifest", 0o100644, manifest), (b"root", 0o40000, tree)]
        return write_object(objects, b"tree", tree_data(entries))

    def _record(self, ref: str, memory: Memory, message: str, lacking: str) -> bool:
        tip = self._resolve(ref)
        if tip is not None and self._commit_tree(tip) == memory.state_id:
            return False
        self._changes += 1
        self._set_ref(ref, self._commit(memory.state_id, tip, (message or "state") + lacking))
        return True

    def _commit(self, tree: str, parent: str | None, message: str) -> str:
        now = int(time.time())
        data = (
            f"tree {tree}\n"
            + (f"parent {parent}\n" if parent else "")
            + f"author {_IDENTITY} {now} +0000\ncommitter {_IDENTITY} {now} +0000\n\n{message}\n"
        )
        raw = data.encode("utf-8", "backslashreplace").replace(b"\0", b"\\0")
        return write_object(self.path / "objects", b"commit", raw)

    def _weigh(self) -> None:
        """Refuses to take more where the store has outgrown its cap; looks now and then."""
        mark = self.path / "weighed"
        now = time.time()
        try:
            due = not 0 <= now - mark.stat().st_mtime < _WEIGHED_FOR
        except FileNotFoundError:
            due = True
        if due or self._full or self._changes >= _WEIGHED_EVERY:
            self._changes = 0
            self._full = upkeep.size_of(self.path) > self.cap
            mark.touch(mode=0o600)
        if self._full:
            # Others are not to believe for long that there is room.
            os.utime(mark, (0, 0))
            raise RepoTraceError(
                f"The snapshot store is larger than {self.cap} bytes.",
                hint="Make room with: repotrace runs gc",
            )

    def _pin(self, key: str, memory: Memory) -> None:
        """Keeps what the workspace's index refers to, whatever becomes of the runs."""
        self._set_ref(f"{_PREFIX}workspaces/{key}", memory.state_id)

    def keep(self, ref: str, *contents: bytes) -> Names:
        """Object ids of `contents`, which stay readable until `ref` is deleted.

        For what no state holds: a file's content that a program told of.
        """
        self.create()
        objects, name = self.path / "objects", _contents_ref(_full_ref(ref))
        with (
            locked(self.path / "contents-lock", deadline=Deadline()),
            locked(self.path / "lock", shared=True, deadline=Deadline()),
        ):
            found = [write_object(objects, b"blob", data) for data in contents]
            entries = [(oid.encode(), 0o100644, oid) for oid in dict.fromkeys(found)]
            tree = write_object(objects, b"tree", tree_data(entries))
            self._set_ref(name, self._commit(tree, self._resolve(name), "contents"))
        return found

    # -- refs ----------------------------------------------------------------------------

    def _resolve(self, ref: str) -> str | None:
        try:
            return (self.path / ref).read_text().strip()
        except FileNotFoundError:
            return None

    def _set_ref(self, ref: str, commit: str) -> None:
        target = self.path / ref
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = f"{target}.{os.getpid()}-{threading.get_ident()}.lock"
        Path(temporary).write_text(commit + "\n")
        os.rename(temporary, target)  # noqa: PTH104

    def _commit_tree(self, commit: str) -> str:
        known = self._tips.get(commit)
        if known is None:
            found = self.reader.get(commit)
            known = found[1][5:45].decode() if found else ""
            self._tips[commit] = known
        return known

    def refs(self) -> Names:
        """The names that states are kept under: `runs/<id>`, `reports/<id>`."""
        base = self.path / _PREFIX
        found = []
        for kind in ("runs", "reports"):
            with suppress(FileNotFoundError):
                found += [f"{kind}/{name}" for name in os.listdir(base / kind)]  # noqa: PTH208
        with suppress(FileNotFoundError):
            found += [name.replace(".", "/", 1) for name in os.listdir(base / "contents")]  # noqa: PTH208
        return sorted(name for name in set(found) if _REF.fullmatch(name) and ".lock" not in name)

    def history(self, ref: str) -> States:
        """The states of a ref, the oldest first."""
        commit = self._resolve(_full_ref(ref))
        found = []
        while commit:
            got = self.reader.get(commit)
            if got is None:
                break
            head, _, message = got[1].decode("utf-8", "replace").partition("\n\n")
            fields = dict(line.split(" ", 1) for line in head.splitlines())
            taken_at = float(fields["committer"].rsplit(" ", 2)[1])
            found.append(StateRecord(commit, fields["tree"], taken_at, subject_of(message)))
            commit = fields.get("parent")
        return found[::-1]

    def lacking(self, ref: str, state_id: str) -> Lacking:
        """What the workspace had beside the state when `ref` last kept it."""
        commit = self._resolve(_full_ref(ref))
        while commit and (got := self.reader.get(commit)):
            head, _, message = got[1].decode("utf-8", "replace").partition("\n\n")
            fields = dict(line.split(" ", 1) for line in head.splitlines())
            if fields["tree"] == state_id:
                return lacking_in(message)
            commit = fields.get("parent")
        return Lacking()

    def hold(self, ref: str, state_id: str, message: str = "") -> None:
        """Keeps a state that is in the store under `ref` too.

        Raises RepoTraceError if the store has no such state.
        """
        self.state(state_id)
        self.hold_all(ref, [state_id], message)

    def hold_all(self, ref: str, state_ids: Iterable[str], message: str = "") -> None:
        """Keeps states that are in the store, which is not looked at, under `ref` too."""
        name = _full_ref(ref)
        with locked(self.path / "lock", shared=True, deadline=Deadline()):
            tip = before = self._resolve(name)
            for state_id in state_ids:
                tip = self._commit(state_id, tip, message or "state")
            if tip is not None and tip != before:
                self._set_ref(name, tip)

    def rename(self, ref: str, to: str) -> bool:
        """Keeps the states of `ref` under `to`, in place of what was there; False for none."""
        target = self.path / _full_ref(to)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            os.rename(self.path / _full_ref(ref), target)  # noqa: PTH104
        except FileNotFoundError:
            return False
        return True

    def delete(self, ref: str) -> bool:
        """Forgets a ref; False if there was none. Its objects go with the next `prune`."""
        name, found = _full_ref(ref), False
        for path in (self.path / name, self.path / _contents_ref(name)):
            with suppress(FileNotFoundError):
                path.unlink()
                found = True
        return found

    # -- reading -------------------------------------------------------------------------

    def state(self, state_id: str) -> State:
        """The parts of a state. Raises RepoTraceError if the store has no such state."""
        known = self._states.get(state_id)
        if known is not None:
            return known
        found = self.reader.get(state_id) if self.path.is_dir() and _is_id(state_id) else None
        parts = {}
        if found and found[0] == "tree":
            parts = {name: oid for name, _, oid in self.reader.tree(state_id)}
        if parts.keys() != {b"manifest", b"root"}:
            raise RepoTraceError(
                f"No state {state_id!r} is in the store.",
                hint="It may have been pruned; list runs with: repotrace runs list",
            )
        blob = self.reader.get(parts[b"manifest"])
        assert blob is not None
        known = State(parts[b"root"], parts[b"manifest"], Manifest.load(blob[1]))
        if len(self._states) > 512:
            self._states.clear()
        self._states[state_id] = known
        return known

    def read(self, state_id: str, path: str) -> bytes | None:
        """The content of `path` (a link's target); None if it is no file or link there."""
        entry = Tree(self.reader, self.state(state_id).tree).entry(os.fsencode(path))
        return self.read_object(entry[1]) if entry else None

    def read_object(self, object_id: str) -> bytes | None:
        """The content of a file by its object id; None if the store does not have it."""
        known = self.path.is_dir() and _is_id(object_id)
        found = self.reader.get(object_id) if known else None
        return found[1] if found and found[0] == "blob" else None

    def list(self, state_id: str) -> Entries:
        """Every file, link and FIFO of the state, and its empty folders, by path."""
        state = self.state(state_id)
        raw = self.git(["ls-tree", "-r", "-z", "--full-tree", state.tree])
        return differences.entries(raw, state.manifest)

    def operations(self, before: str, after: str) -> Operations:
        """What happened to each path between two states."""
        return next(self.operations_of([(before, after)]))

    def operations_of(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Operations]:
        """The operations of many pairs of states, at the price of one git process."""
        states = [(self.state(a), self.state(b)) for a, b in pairs]
        lines = "".join(f"{a.tree} {b.tree}\n" for a, b in states if a.tree != b.tree)
        raw = self.git(differences.COMMAND, stdin=lines.encode()) if lines else b""
        found = differences.split(raw)
        for a, b in states:
            records = next(found, None) if a.tree != b.tree else b""
            if records is None:  # git tells no more of what it cannot read
                raise RepoTraceError(f"The files of {a.tree} or {b.tree} are not all there.")
            yield differences.operations(records, a.manifest, b.manifest, Tree(self.reader, b.tree))

    def known_operations_of(self, pairs: Sequence[tuple[str, str]]) -> Iterator[Operations | None]:
        """`operations_of`, with None for a pair of which a state or a part is not in the store."""
        known = [pair for pair in pairs if all(self._has(state_id) for state_id in pair)]
        found: dict[tuple[str, str], Operations] = {}
        try:
            found.update(zip(known, self.operations_of(known), strict=True))
        except (RepoTraceError, OSError):  # a part was borrowed, and is gone with its repository
            for pair in known:
                with suppress(RepoTraceError, OSError):
                    found[pair] = self.operations(*pair)
        yield from (found.get(pair) for pair in pairs)

    def _has(self, state_id: str) -> bool:
        try:
            self.state(state_id)
        except (RepoTraceError, OSError):
            return False
        return True

    def diff(self, before: str, after: str, paths: Sequence[str] = ()) -> bytes:
        """A unified diff of two states that `git apply` takes, of `paths` only if given."""
        trees = (self.state(before).tree, self.state(after).tree)
        return differences.patch(self.git, *trees, paths)

    def materialise(self, state_id: str, folder: Path) -> None:
        """Makes `folder`, which must be new or empty, the state: bytes, links and modes."""
        state = self.state(state_id)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RepoTraceError(f"{folder} is not empty.", hint="Name a new folder.")
        checkout = Checkout(folder)
        try:
            changes = self.differ.diff(EMPTY_TREE, state.tree)
            checkout.apply(changes, self.reader, Manifest(), state.manifest)
        finally:
            checkout.close()

    # -- upkeep --------------------------------------------------------------------------

    def git(self, args: Sequence[str], stdin: bytes | None = None) -> bytes:
        """Runs git on the store."""
        command = [f"--git-dir={self.path}", *args]
        return run_git(command, self.path, env=PRIVATE, stdin=stdin, deadline=Deadline())

    def create(self) -> None:
        """Makes the store if it is not there, and sweeps what a killed process left."""
        if self._ready and self.path.is_dir():
            return
        if not (self.path / "HEAD").exists():
            for name in ("objects/info", "objects/pack", "refs/repotrace", "info", "workspaces"):
                (self.path / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            (self.path / "config").write_text(CONFIG)
            (self.path / "info" / "attributes").write_text(ATTRIBUTES)
            (self.path / "info" / "exclude").write_bytes(exclude_file())
            (self.path / "HEAD").write_text("ref: refs/heads/none\n")
            write_object(self.path / "objects", b"tree", b"")
        upkeep.sweep(self.path)
        self._ready = True

    def size(self) -> int:
        """Bytes on disk."""
        return upkeep.size_of(self.path)

    def needed_size(self) -> int:
        """Bytes of what refs need, which is about what is left after `prune`."""
        return upkeep.needed(self) if self.path.is_dir() else 0

    def own_size(self, ref: str, *, gone: Iterable[str] = ()) -> int:
        """Bytes that go when `ref` is deleted after the refs `gone`, at the next `prune`."""
        return upkeep.own_size(self, ref, tuple(gone)) if self.path.is_dir() else 0

    def finish(self, ref: str | None = None) -> None:
        """At a run's end: packs its objects, and copies those still borrowed from the user."""
        del ref
        if self.path.is_dir():
            upkeep.repack(self)

    def settle(self) -> None:
        """`finish` if objects are borrowed from the user, and no other process is about it."""
        upkeep.settle(self)

    def prune(self, *, grace: float = 7200.0) -> None:
        """Removes what no ref needs and what is older than `grace` seconds."""
        if self.path.is_dir():
            upkeep.prune(self, grace)

    def shrink(self, max_bytes: int, *, keep: Iterable[str] = ()) -> Names:
        """Deletes the oldest refs that are not to be kept until the store fits; which ones."""
        return upkeep.shrink(self, max_bytes, frozenset(keep))


def refuse_wide(workspace: Path) -> Path:
    """The workspace's real path. Raises RepoTraceError for `/`, and `$HOME` or above it."""
    root = workspace.resolve()
    home = Path.home().resolve()
    if root == Path(root.anchor) or root == home or root in home.parents:
        raise RepoTraceError(
            f"{root} is too wide to be recorded.", hint="Work in a project folder below it."
        )
    if not root.is_dir():
        raise RepoTraceError(f"{root} is not a folder.")
    return root


def _close(reader: ObjectReader, differ: TreeDiffer) -> None:
    reader.close()
    differ.close()


def _full_ref(ref: str) -> str:
    short = ref.removeprefix(_PREFIX)
    if not _REF.fullmatch(short) or ".." in short or short.endswith((".lock", ".")):
        raise RepoTraceError(f"{ref!r} cannot name states.", hint="Use runs/<id> or reports/<id>.")
    return _PREFIX + short


def _contents_ref(ref: str) -> str:
    return f"{_PREFIX}contents/" + ref.removeprefix(_PREFIX).replace("/", ".", 1)


def _is_id(value: str) -> bool:
    return len(value) == 40 and all(c in "0123456789abcdef" for c in value)


def _left_out(root: Path, memory: Memory) -> Iterator[NotCaptured]:
    total = sum(len(names) for names in memory.skipped.values())
    base = os.fsencode(root)
    for parent, names in memory.skipped.items():
        for name, (reason, size, is_folder) in names.items():
            path = parent + b"/" + name if parent else name
            if not is_folder and total <= _SIZES:
                with suppress(OSError):
                    size = os.lstat(base + b"/" + path).st_size
            yield NotCaptured(text(path), reason, size, is_folder)


def _nested(root: Path, memory: Memory) -> Iterator[NestedRepository]:
    for path in sorted(memory.nested()):
        git_dir = root / text(path) / ".git"
        yield NestedRepository(text(path), head_of(git_dir))
