"""A copy of the work tree as it was at a capture, to run its command in."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from repotrace.config import Repository, find_repository
from repotrace.errors import RepoTraceError
from repotrace.records.command import CommandRun, FileState, Output, Places, RepositoryState
from repotrace.redact import restore
from repotrace.system.relocate import Copied, Missing

if TYPE_CHECKING:
    from repotrace.system.snapshots import SnapshotStore


_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Source(NamedTuple):
    """Where the files of a capture are to be had now."""

    workspace: str
    """The root of the recorded work tree, free of links."""
    inside: str
    """The recorded cwd relative to it."""
    state_id: str | None
    """In the snapshot store; None: the files of `commit`, which was clean."""
    commit: str | None
    branch: str | None
    repository: Repository | None
    """The one here that has the commit; None if none has."""
    lacking: tuple[str, ...]
    """What the command may have used and is not among the files, as far as it is known."""

    @property
    def name(self) -> str:
        """`state 86616b506069`, or `commit c07e3dcd4a4a`."""
        if self.state_id is not None:
            return f"state {self.state_id[:12]}"
        return f"commit {(self.commit or '')[:12]}"


def source_of(
    recorded: CommandRun,
    snapshots: SnapshotStore | None,
    *,
    environ: Mapping[str, str],
    repositories: Sequence[Path | None] = (),
) -> Source:
    """Where the files are: the kept state, else the commit if the work tree was clean.

    `environ` has the values of what is redacted in paths. `repositories`: folders in whose
    repositories the commit is looked for, beside the recorded one.

    Raises Missing, with all reasons, if the files are nowhere.
    """
    files = recorded.files or FileState(reason="nobody asked for them")
    workspace = restore(files.workspace or recorded.places.repository or "", environ)[0]
    workspace = os.path.normpath(os.path.join("/", workspace)) if workspace else ""  # noqa: PTH118
    real_cwd = restore(recorded.places.cwd or recorded.cwd, environ)[0]
    state = recorded.repository
    commit = state.commit if state and _COMMIT.fullmatch(state.commit or "") else None
    places = [*repositories, Path(workspace), _received(commit, snapshots)] if workspace else []
    repository = _repository_with(commit, places)
    found = _has_state(files.state_id, snapshots)
    if not found and (state is None or commit is None or state.dirty is not False):
        raise Missing(f"{_why_no_state(files, snapshots)}, and {_why_no_commit(state, commit)}", [])
    if not found and repository is None:
        here = f"commit {(commit or '')[:12]} is not here; fetch it"
        raise Missing(f"{_why_no_state(files, snapshots)}, and {here}", [])
    inside = os.path.relpath(real_cwd, workspace)
    if inside.split("/")[0] == "..":
        raise Missing(f"its folder {real_cwd} is not inside of {workspace}", [])
    return Source(
        workspace=workspace,
        inside=inside,
        state_id=files.state_id if found else None,
        commit=commit,
        branch=state.branch if state else None,
        repository=repository,
        lacking=tuple(restore(item.path, environ)[0] for item in files.not_captured),
    )


def _has_state(state_id: str | None, snapshots: SnapshotStore | None) -> bool:
    if state_id is None or snapshots is None:
        return False
    try:
        snapshots.state(state_id)
    except RepoTraceError:
        return False
    return True


def _repository_with(commit: str | None, folders: Sequence[Path | None]) -> Repository | None:
    from repotrace.system.private_repository import has_commit

    found = [find_repository(folder) for folder in folders if folder is not None]
    for repository in dict.fromkeys(found):
        if commit and repository is not None and has_commit(repository, commit):
            return repository
    return None


def _received(commit: str | None, snapshots: SnapshotStore | None) -> Path | None:
    """Where the history of the commit is if it came in a bundle."""
    if commit is None or snapshots is None:
        return None
    from repotrace.storage.received import ReceivedStore

    return ReceivedStore(snapshots.path.parent).history(commit)


def _why_no_state(files: FileState, snapshots: SnapshotStore | None) -> str:
    if files.state_id is None:
        return f"its files were not kept ({files.reason})"
    where = f"not in {snapshots.path}" if snapshots is not None else "not here"
    return f"its files, state {files.state_id[:12]}, are {where}"


def _why_no_commit(state: RepositoryState | None, commit: str | None) -> str:
    if state is None:
        return "no git repository is known that it ran in"
    if commit is None:
        return "there was no commit yet"
    short = commit[:12]
    if state.dirty:
        return f"its work tree had changes that commit {short} does not hold"
    return f"nobody knows whether its work tree was as clean as commit {short}"


class WorkCopy:
    """The copy. Whatever is done in it, `reset` makes it exact again."""

    def __init__(
        self, folder: Path, source: Source, snapshots: SnapshotStore | None, links: Sequence[str]
    ) -> None:
        self.source = source
        self.root = folder / (os.path.basename(source.workspace) or "work")  # noqa: PTH119
        self.lacking = source.lacking
        """What the command may miss."""
        self._links = dict(_link(name, source) for name in links)
        self._scratch = None
        if source.state_id is not None and snapshots is not None:
            from repotrace.system.scratch import Scratch

            self._scratch = Scratch(snapshots, self.root, keep=[".git"])
        self._filled = False

    @property
    def place(self) -> Copied:
        """For `relocate`."""
        return Copied(self.source.workspace, str(self.root), self.source.inside)

    def reset(self) -> None:
        """Makes it exactly what was recorded. Raises RepoTraceError or OSError if that fails."""
        source = self.source
        if self._scratch is not None and source.state_id is not None:
            if self._filled:
                self._scratch.restore()
                remove_tree(self.root / ".git")
            else:
                self._scratch.goto(source.state_id)
        else:
            remove_tree(self.root)
            self.root.mkdir(mode=0o755)
        if source.repository is not None and source.commit is not None:
            self._add_repository(source.repository, source.commit)
        for name, target in self._links.items():
            self._link(name, target)
        self._filled = True

    def _link(self, name: str, target: str) -> None:
        path = self.root / name
        if os.path.lexists(path):
            raise RepoTraceError(f"{name} is among the files, it needs no link")
        parent = Path(os.path.realpath(path.parent))
        if not parent.is_relative_to(self.root):
            raise RepoTraceError(f"{name} is not inside of the copy")
        parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def _add_repository(self, repository: Repository, commit: str) -> None:
        from repotrace.system.private_repository import check_out, make_repository

        try:
            make_repository(self.root, repository, commit, self.source.branch)
        except RepoTraceError:
            if self._scratch is None:
                raise
            # The files are what counts, most commands do not look at git.
            remove_tree(self.root / ".git")
            return
        if self._scratch is None:
            modules = [f"{path}/" for path in check_out(self.root)]
            self.lacking = tuple(dict.fromkeys([*self.source.lacking, *modules]))

    def missed(self) -> list[str]:
        """What the command may have missed: not captured, and not linked."""
        return [path for path in self.lacking if path.rstrip("/") not in self._links]

    def placed(self, observed: CommandRun, expected: CommandRun, *, exact: bool) -> CommandRun:
        """`observed`, which ran in here, with the copy for its repository.

        What it used of the old place (a virtual environment, what was linked) belongs to the
        same work tree: unless `exact` its paths in the output become those of the copy.
        """
        places = dict(observed.places)
        if expected.places.repository is not None:
            places["repository"] = str(self.root)
        update: dict[str, object] = {}
        old, new = os.fsencode(self.source.workspace), os.fsencode(self.root)
        pattern = re.compile(rb"(?<![\w./~-])%b(?![\w.-])" % re.escape(old))
        if not exact:
            for name, path in places.items():
                if path is not None:
                    places[name] = os.fsdecode(pattern.sub(lambda _: new, os.fsencode(path)))
            for name in ("stdout", "stderr"):
                output: Output = getattr(observed, name)
                if not output.cut and pattern.search(output.head):
                    head = pattern.sub(lambda _: new, output.head)
                    update |= {name: output.model_copy(update={"head": head}), "chunks": ()}
        update["places"] = Places(**places)
        return observed.model_copy(update=update)

    def close(self) -> None:
        """Lets go of the folder, which is not removed."""
        if self._scratch is not None:
            self._scratch.close()


@contextmanager
def work_copy(
    source: Source, snapshots: SnapshotStore | None, links: Sequence[str] = ()
) -> Iterator[WorkCopy]:
    """A copy in a temporary folder, which is gone afterwards, whatever happens.

    `links`: paths that were not captured and are to be had from the recorded work tree.
    Raises RepoTraceError if the copy cannot be made.
    """
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="repotrace-replay-")))
    copy = None
    try:
        try:
            copy = WorkCopy(folder, source, snapshots, links)
            copy.reset()
        except OSError as error:
            raise RepoTraceError(f"no copy of the files can be made: {error.strerror}") from error
        yield copy
    finally:
        if copy is not None:
            copy.close()
        remove_tree(folder)


def _link(name: str, source: Source) -> tuple[str, str]:
    """The path of a link in the copy, and what it points to. Raises RepoTraceError for none."""
    path = os.path.normpath(os.path.join(source.workspace, name))  # noqa: PTH118
    if not path.startswith(source.workspace + "/"):
        raise RepoTraceError(f"{name} is no path inside of {source.workspace}")
    inside = path[len(source.workspace) + 1 :]
    roots = [source.workspace, *([str(source.repository.root)] if source.repository else [])]
    for root in roots:
        if os.path.lexists(f"{root}/{inside}"):
            return inside, f"{root}/{inside}"
    raise RepoTraceError(f"{name} is not in {source.workspace} any more")


def remove_tree(folder: Path) -> None:
    """Removes the folder and all that is in it, read-only folders too, as far as it can."""

    if not folder.is_dir() or folder.is_symlink():
        return
    shutil.rmtree(folder, ignore_errors=True)
    if folder.is_dir():
        for top, names, _ in os.walk(folder):
            for name in names:
                place = os.path.join(top, name)  # noqa: PTH118
                with suppress(OSError):
                    if not os.path.islink(place):  # noqa: PTH114
                        os.chmod(place, stat.S_IRWXU)  # noqa: PTH101
        shutil.rmtree(folder, ignore_errors=True)
