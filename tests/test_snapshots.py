"""States of work trees, checked by walking folders and by plain git."""

# Names that are no text need the functions that take bytes.
# ruff: noqa: PTH102

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from states import (
    REF,
    check_exact,
    exact,
    fingerprint,
    git,
    is_sound,
    left_out,
    picture,
)

from repotrace.errors import RepoTraceError
from repotrace.system.snapshots import NotCaptured, SnapshotStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SnapshotStore]:
    with SnapshotStore(tmp_path / "home" / "snapshots.git") as store:
        yield store


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


# -- bytes, links, modes, names --------------------------------------------------------------


def test_attributes_and_filters_leave_the_bytes_alone(
    store: SnapshotStore, workspace: Path, tmp_path: Path
) -> None:
    (workspace / ".gitattributes").write_text(
        "*.txt text eol=crlf\n*.id ident\n*.u16 text working-tree-encoding=UTF-16\n"
        "*.bin filter=lfs diff=lfs merge=lfs -text\n*.old crlf\n"
    )
    (workspace / "mixed.txt").write_bytes(b"a\r\nb\nc\r")
    (workspace / "x.id").write_bytes(b"$Id: 0123 $\n")
    (workspace / "wide.u16").write_bytes("no UTF-16 at all é".encode())
    (workspace / "pointer.bin").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    (workspace / "y.old").write_bytes(b"1\r\n2\r\n")
    check_exact(store, workspace, tmp_path / "out")


@pytest.mark.parametrize(
    "name",
    [
        b"new\nline",
        b"\xff\xfe",
        b" blank ",
        b"-dash",
        b'"q"',
        b":(top)x",
        b"*?[a]",
        b"t\tab",
        b"\\",
    ],
)
def test_odd_names(store: SnapshotStore, workspace: Path, tmp_path: Path, name: bytes) -> None:
    path = os.fsencode(workspace) + b"/" + name
    os.mkdir(path)
    Path(os.fsdecode(path + b"/" + name)).write_text("1")
    first = check_exact(store, workspace, tmp_path / "one")
    Path(os.fsdecode(path + b"/" + name)).write_text("2")
    Path(os.fsdecode(path + b"/" + name + b"2")).write_text("3")
    second = check_exact(store, workspace, tmp_path / "two")
    inner = os.fsdecode(name + b"/" + name)
    assert store.read(first, inner) == b"1"
    assert store.read(second, inner) == b"2"
    changes = [(o.op, o.path) for o in store.operations(first, second)]
    assert changes == [("edit", inner), ("create", inner + "2")]


def test_links_modes_fifos_and_empty_folders(
    store: SnapshotStore, workspace: Path, tmp_path: Path
) -> None:
    for name, mode in {"a": 0o644, "b": 0o600, "c": 0o444, "d": 0o755, "e": 0o700}.items():
        (workspace / name).write_text(name)
        (workspace / name).chmod(mode)
    (workspace / "link").symlink_to("a")
    (workspace / "dangling").symlink_to("/no/such\nplace")
    (workspace / "empty" / "inner").mkdir(parents=True)
    (workspace / "private").mkdir(mode=0o700)
    (workspace / "private" / "f").write_text("f")
    os.mkfifo(workspace / "pipe", 0o600)
    before = check_exact(store, workspace, tmp_path / "one")
    # In the same second and without a change of content: only the permissions differ.
    (workspace / "a").chmod(0o600)
    (workspace / "private").chmod(0o755)
    after = check_exact(store, workspace, tmp_path / "two")
    assert after != before
    (operation,) = store.operations(before, after)
    assert (operation.op, operation.path) == ("edit", "a")
    assert operation.old_mode == stat.S_IFREG | 0o644
    assert operation.new_mode == stat.S_IFREG | 0o600
    (workspace / "a").chmod(0o644)
    (workspace / "private").chmod(0o700)
    assert exact(store.take(workspace, ref=REF)) == before


def test_folders_files_and_links_take_each_others_places(
    store: SnapshotStore, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "x").write_text("file")
    (workspace / "y").mkdir()
    (workspace / "y" / "in").write_text("in")
    check_exact(store, workspace, tmp_path / "1")
    (workspace / "x").unlink()
    (workspace / "x").mkdir()
    (workspace / "x" / "now").write_text("folder")
    shutil.rmtree(workspace / "y")
    (workspace / "y").write_text("file")
    check_exact(store, workspace, tmp_path / "2")
    shutil.rmtree(workspace / "x")
    (workspace / "x").symlink_to(tmp_path)
    (workspace / "y").unlink()
    os.mkfifo(workspace / "y")
    check_exact(store, workspace, tmp_path / "3")


# -- nested repositories ----------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("outer_is_repository", [True, False])
def test_a_nested_repository_is_captured_with_its_files(
    store: SnapshotStore,
    workspace: Path,
    tmp_path: Path,
    committed: bool,
    outer_is_repository: bool,
) -> None:
    if outer_is_repository:
        git("init", "-q", cwd=workspace)
        (workspace / "top").write_text("top")
        git("add", "-A", cwd=workspace)
    inner = workspace / "lib" / "inner"
    inner.mkdir(parents=True)
    git("init", "-q", cwd=inner)
    (inner / "code").write_text("1")
    head = None
    if committed:
        git("add", "-A", cwd=inner)
        git("commit", "-q", "-m", "x", cwd=inner)
        head = git("rev-parse", "HEAD", cwd=inner).decode().strip()
        if outer_is_repository:
            git("add", "-A", cwd=workspace)
    (inner / ".git" / "info" / "exclude").write_text("*.tmp\n")
    snapshot = store.take(workspace, ref=REF)
    assert [(n.path, n.head) for n in snapshot.nested] == [("lib/inner", head)]
    (inner / "more").write_text("2")
    (inner / "x.tmp").write_text("2")
    after = store.take(workspace, ref=REF)
    assert [item.path for item in after.not_captured] == ["lib/inner/x.tmp"]
    store.materialise(exact(after), tmp_path / "out")
    (inner / "x.tmp").unlink()
    assert picture(tmp_path / "out") == picture(workspace)


def test_a_repository_comes_and_goes_in_a_known_folder(
    store: SnapshotStore, workspace: Path, tmp_path: Path
) -> None:
    inner = workspace / "inner"
    inner.mkdir()
    (inner / "a").write_text("a")
    check_exact(store, workspace, tmp_path / "plain")
    git("init", "-q", cwd=inner)
    (inner / ".git" / "info" / "exclude").write_text("b\n")
    (inner / "b").write_text("b")
    snapshot = store.take(workspace, ref=REF)
    assert left_out(snapshot) == {"inner/b": "ignored"}
    assert [n.path for n in snapshot.nested] == ["inner"]
    shutil.rmtree(inner / ".git")
    check_exact(store, workspace, tmp_path / "plain-again")


def test_a_settled_folder_moves_behind_a_link(
    store: SnapshotStore, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "a" / "deep").mkdir(parents=True)
    (workspace / "a" / "deep" / "f").write_text("f")
    time.sleep(0.15)
    check_exact(store, workspace, tmp_path / "1")
    (workspace / "a").rename(workspace / "b")
    (workspace / "a").symlink_to("b")
    (workspace / "b" / "deep" / "new").write_text("new")
    check_exact(store, workspace, tmp_path / "2")
    time.sleep(0.15)
    (workspace / "a").unlink()
    (workspace / "b").rename(workspace / "a")
    check_exact(store, workspace, tmp_path / "3")


def test_what_cannot_be_read_is_listed_until_it_can(
    store: SnapshotStore, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "f").write_text("f")
    (workspace / "d").mkdir()
    (workspace / "d" / "in").write_text("in")
    check_exact(store, workspace, tmp_path / "1")
    (workspace / "f").chmod(0)
    (workspace / "d").chmod(0)
    if os.access(workspace / "f", os.R_OK):
        pytest.skip("this user reads everything")
    assert left_out(store.take(workspace, ref=REF)) == {"d": "unreadable", "f": "unreadable"}
    (workspace / "f").chmod(0o644)
    (workspace / "d").chmod(0o755)
    check_exact(store, workspace, tmp_path / "2")


# -- what is left out -------------------------------------------------------------------------


def test_ignored_secret_and_regenerable_are_listed(
    store: SnapshotStore, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    (tmp_path / "gitconfig").write_text(f"[core]\n\texcludesFile = {tmp_path}/ignore\n")
    (tmp_path / "ignore").write_text("*.swp\n")
    git("init", "-q", cwd=workspace)
    (workspace / ".git" / "info" / "exclude").write_text("/mine\n")
    (workspace / ".gitignore").write_text("*.log\nbuild/\n!.env\n!keep.log\n")
    for name in ("a.swp", "mine", "b.log", "keep.log", ".env", ".env.example", "server.pem", "ok"):
        (workspace / name).write_text(name)
    for name in ("build", "node_modules", "venv", "src/sub", ".repotrace"):
        (workspace / name).mkdir(parents=True)
        (workspace / name / "f").write_text("12345")
    (workspace / "venv" / "pyvenv.cfg").touch()
    (workspace / "src" / "sub" / ".gitignore").write_text("f\n")
    snapshot = store.take(workspace, ref=REF)
    assert left_out(snapshot) == {
        ".env": "secret",
        "a.swp": "ignored",
        "b.log": "ignored",
        "build": "ignored",
        "mine": "ignored",
        "node_modules": "regenerable",
        "server.pem": "secret",
        "src/sub/f": "ignored",
        "venv": "regenerable",
    }
    assert NotCaptured("node_modules", "regenerable", 5, True) in snapshot.not_captured
    assert NotCaptured("b.log", "ignored", 5, False) in snapshot.not_captured
    captured = [entry.path for entry in store.list(exact(snapshot))]
    assert captured == [".env.example", ".gitignore", "keep.log", "ok", "src/sub/.gitignore"]


def test_a_changed_rule_is_heeded(store: SnapshotStore, workspace: Path) -> None:
    git("init", "-q", cwd=workspace)
    (workspace / ".gitignore").write_text("*.out\n")
    (workspace / "a.out").write_text("a")
    assert left_out(store.take(workspace, ref=REF)) == {"a.out": "ignored"}
    (workspace / ".gitignore").write_text("*.none\n")
    state = exact(store.take(workspace, ref=REF))
    assert store.read(state, "a.out") == b"a"
    (workspace / ".git" / "info" / "exclude").write_text("b.out\n")
    (workspace / "b.out").write_text("b")
    assert left_out(store.take(workspace, ref=REF)) == {"b.out": "ignored"}


def test_rules_above_a_workspace_that_is_a_subfolder(store: SnapshotStore, workspace: Path) -> None:
    git("init", "-q", cwd=workspace)
    (workspace / ".gitignore").write_text("/sub/*.o\n")
    sub = workspace / "sub"
    sub.mkdir()
    (sub / "x.o").write_text("o")
    (sub / "x.c").write_text("c")
    snapshot = store.take(sub, ref=REF)
    assert left_out(snapshot) == {"x.o": "ignored"}
    assert [entry.path for entry in store.list(exact(snapshot))] == ["x.c"]


def test_a_file_that_outgrows_the_limit_and_shrinks_again(tmp_path: Path, workspace: Path) -> None:
    with SnapshotStore(tmp_path / "store", size_limit=100) as store:
        (workspace / "f").write_bytes(b"x" * 100)
        small = exact(store.take(workspace, ref=REF))
        (workspace / "f").write_bytes(b"x" * 101)
        snapshot = store.take(workspace, ref=REF)
        assert snapshot.not_captured == (NotCaptured("f", "too-large", 101, False),)
        assert store.list(exact(snapshot)) == []
        (workspace / "f").write_bytes(b"x" * 100)
        assert exact(store.take(workspace, ref=REF)) == small


def test_tracked_secrets_and_own_folder_leave_the_seeded_index(
    store: SnapshotStore, workspace: Path
) -> None:
    git("init", "-q", cwd=workspace)
    (workspace / ".env").write_text("KEY=1")
    (workspace / ".repotrace").mkdir()
    (workspace / ".repotrace" / "r.json").write_text("{}")
    (workspace / "node_modules").mkdir()
    (workspace / "node_modules" / "vendored.js").write_text("1")
    (workspace / ".gitignore").write_text("forced\n")
    (workspace / "forced").write_text("1")
    git("add", "-A", "-f", cwd=workspace)
    snapshot = store.take(workspace, ref=REF)
    captured = [entry.path for entry in store.list(exact(snapshot))]
    assert captured == [".gitignore", "forced", "node_modules/vendored.js"]
    assert left_out(snapshot) == {".env": "secret"}


@pytest.mark.parametrize("place", ["/", "~", "~/.."])
def test_wide_workspaces_are_refused(store: SnapshotStore, place: str) -> None:
    with pytest.raises(RepoTraceError, match="too wide"):
        store.take(Path(place).expanduser(), ref=REF)
    assert not store.path.exists()


# -- the first snapshot -----------------------------------------------------------------------


def tracked_project(folder: Path) -> None:
    """A repository whose index hides things from git in every way there is."""
    git("init", "-q", cwd=folder)
    for name in ("a", "assumed", "skipped", "gone", "sub/b"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    git("add", "-A", cwd=folder)
    git("commit", "-q", "-m", "start", cwd=folder)
    git("update-index", "--assume-unchanged", "assumed", cwd=folder)
    git("update-index", "--skip-worktree", "skipped", cwd=folder)
    (folder / "assumed").write_text("changed behind git's back")
    (folder / "skipped").write_text("this too")
    (folder / "gone").unlink()
    (folder / "intended").write_text("i")
    git("add", "-N", "intended", cwd=folder)
    (folder / "untracked").write_text("u")
    (folder / "sub" / "b").write_text("edited")


def test_seeding_from_an_index_that_hides_changes(
    store: SnapshotStore, workspace: Path, tmp_path: Path
) -> None:
    tracked_project(workspace)
    check_exact(store, workspace, tmp_path / "out")


@pytest.mark.parametrize(
    "setting", [("core.autocrlf", "true"), ("core.autocrlf", "input"), ("core.eol", "crlf")]
)
def test_seeding_where_git_converts_line_ends(
    store: SnapshotStore, workspace: Path, tmp_path: Path, setting: tuple[str, str]
) -> None:
    git("init", "-q", cwd=workspace)
    git("config", *setting, cwd=workspace)
    (workspace / ".gitattributes").write_text("*.t text\n*.i ident\n* text=auto\n")
    (workspace / "crlf").write_bytes(b"a\r\nb\r\n")
    (workspace / "lf").write_bytes(b"a\nb\n")
    (workspace / "x.t").write_bytes(b"a\r\nb\n")
    (workspace / "x.i").write_bytes(b"$Id: foreign $\n")
    (workspace / "bin").write_bytes(b"\0\r\n")
    git("add", "-A", cwd=workspace)
    check_exact(store, workspace, tmp_path / "out")


def test_a_conflict_in_the_index_is_no_obstacle(
    store: SnapshotStore, workspace: Path, tmp_path: Path
) -> None:
    git("init", "-q", "-b", "main", cwd=workspace)
    (workspace / "f").write_text("base\n")
    git("add", "-A", cwd=workspace)
    git("commit", "-q", "-m", "base", cwd=workspace)
    git("checkout", "-q", "-b", "other", cwd=workspace)
    (workspace / "f").write_text("other\n")
    git("commit", "-q", "-am", "other", cwd=workspace)
    git("checkout", "-q", "main", cwd=workspace)
    (workspace / "f").write_text("main\n")
    git("commit", "-q", "-am", "main", cwd=workspace)
    with pytest.raises(subprocess.CalledProcessError):
        git("merge", "other", cwd=workspace)
    check_exact(store, workspace, tmp_path / "out")


def test_a_split_index_is_no_obstacle(
    store: SnapshotStore, workspace: Path, tmp_path: Path
) -> None:
    tracked_project(workspace)
    git("update-index", "--split-index", cwd=workspace)
    check_exact(store, workspace, tmp_path / "out")


def test_the_store_stands_alone_after_finish(
    store: SnapshotStore, workspace: Path, tmp_path: Path
) -> None:
    tracked_project(workspace)
    before = picture(workspace)
    state = exact(store.take(workspace, ref=REF))
    assert (store.path / "objects" / "info" / "alternates").exists()
    store.finish(REF)
    shutil.rmtree(workspace)
    assert is_sound(store)
    store.materialise(state, tmp_path / "out")
    assert picture(tmp_path / "out") == before


def test_a_linked_worktree(store: SnapshotStore, workspace: Path, tmp_path: Path) -> None:
    tracked_project(workspace)
    linked = tmp_path / "linked"
    git("worktree", "add", "-q", str(linked), cwd=workspace)
    (linked / "new").write_text("new")
    before = picture(linked)
    state = check_exact(store, linked, tmp_path / "one")
    git("worktree", "remove", "--force", str(linked), cwd=workspace)
    store.materialise(state, tmp_path / "two")
    assert picture(tmp_path / "two") == before


def test_the_users_repository_stays_bit_identical(store: SnapshotStore, workspace: Path) -> None:
    tracked_project(workspace)
    hook = workspace / ".git" / "hooks" / "post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch fired\n")
    hook.chmod(0o755)
    status = git("status", "--porcelain", cwd=workspace)
    before = fingerprint(workspace)
    times = {p: p.stat().st_mtime_ns for p in workspace.rglob("*")}
    for content in ("1", "2"):
        exact(store.take(workspace, ref=REF))
        store.finish(REF)
        (workspace / "untracked").write_text(content)
        before[b"untracked"] = (before[b"untracked"][0], content.encode())
    assert fingerprint(workspace) == before
    now = {p: p.stat().st_mtime_ns for p in workspace.rglob("*")}
    assert {p for p in times if now[p] != times[p]} == {workspace / "untracked"}
    assert git("status", "--porcelain", cwd=workspace) == status
