"""States of work trees, checked by walking folders and by plain git."""

# Names that are no text need the functions that take bytes.
# ruff: noqa: PTH102

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from states import REF, STEPS, Edits, Picture, exact, fingerprint, git, is_sound, picture, play

from repotrace.errors import RepoTraceError
from repotrace.system.snapshots import NotCaptured, Snapshot, SnapshotStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SnapshotStore]:
    with SnapshotStore(tmp_path / "home" / "snapshots.git") as store:
        yield store


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def check_exact(store: SnapshotStore, workspace: Path, into: Path) -> str:
    """Takes a state, makes it again elsewhere, and compares the two."""
    state = exact(store.take(workspace, ref=REF))
    store.materialise(state, into)
    assert picture(into) == picture(workspace)
    return state


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


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_cannot_be_read_is_listed_until_it_can(
    store: SnapshotStore, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "f").write_text("f")
    (workspace / "d").mkdir()
    (workspace / "d" / "in").write_text("in")
    check_exact(store, workspace, tmp_path / "1")
    (workspace / "f").chmod(0)
    (workspace / "d").chmod(0)
    assert left_out(store.take(workspace, ref=REF)) == {"d": "unreadable", "f": "unreadable"}
    (workspace / "f").chmod(0o644)
    (workspace / "d").chmod(0o755)
    check_exact(store, workspace, tmp_path / "2")


# -- what is left out -------------------------------------------------------------------------


def left_out(snapshot: Snapshot) -> dict[str, str]:
    return {item.path: item.reason for item in snapshot.not_captured}


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


# -- missed, failed, killed -------------------------------------------------------------------


def test_a_deadline_gives_missed_and_no_half_state(store: SnapshotStore, workspace: Path) -> None:
    for number in range(300):
        (workspace / str(number)).write_text(str(number))
    snapshot = store.take(workspace, ref=REF, deadline=0.001)
    assert (snapshot.quality, snapshot.state_id, snapshot.changed) == ("missed", None, False)
    assert snapshot.reason == "not done within 0.001 s"
    assert store.refs() == []
    assert len(store.list(exact(store.take(workspace, ref=REF, deadline=60)))) == 300


def test_waiting_for_the_lock_respects_the_deadline(store: SnapshotStore, workspace: Path) -> None:
    (workspace / "f").touch()
    exact(store.take(workspace, ref=REF))
    holder = subprocess.Popen(
        ["flock", "--exclusive", store.path / "lock", "sh", "-c", "echo held; sleep 60"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    assert store.take(workspace, ref=REF, deadline=0.1).quality == "missed"
    os.killpg(holder.pid, 9)
    holder.wait()
    holder.stdout.close()
    assert store.take(workspace, ref=REF, deadline=10).quality == "exact"


def test_names_that_git_refuses_do_not_spoil_the_rest(
    store: SnapshotStore, workspace: Path
) -> None:
    (workspace / ".GIT").mkdir()
    (workspace / ".GIT" / "x").write_text("x")
    (workspace / ".gitmodules").symlink_to("a")
    (workspace / "a").write_text("a")
    snapshot = store.take(workspace, ref=REF)
    assert left_out(snapshot) == {".GIT": "reserved-name", ".gitmodules": "reserved-name"}
    assert [entry.path for entry in store.list(exact(snapshot))] == ["a"]
    (workspace / "a").write_text("b")
    assert store.read(exact(store.take(workspace, ref=REF)), "a") == b"b"


def damage_index(store: SnapshotStore) -> None:
    (index,) = store.path.glob("workspaces/*/index")
    index.write_bytes(index.read_bytes()[:-30])


def lose_index(store: SnapshotStore) -> None:
    (index,) = store.path.glob("workspaces/*/index")
    index.unlink()


def lose_memory(store: SnapshotStore) -> None:
    (memory,) = store.path.glob("workspaces/*/memory")
    memory.write_bytes(memory.read_bytes()[:50])


def leave_locks(store: SnapshotStore) -> None:
    (index,) = store.path.glob("workspaces/*/index")
    Path(f"{index}.lock").write_bytes(b"half")


def lose_objects(store: SnapshotStore) -> None:
    for path in store.path.glob("objects/??/*"):
        path.unlink()


@pytest.mark.parametrize("harm", [damage_index, lose_index, lose_memory, leave_locks, lose_objects])
def test_after_harm_a_state_is_never_stale(
    store: SnapshotStore,
    workspace: Path,
    tmp_path: Path,
    harm: Callable[[SnapshotStore], None],
) -> None:
    (workspace / "sub").mkdir()
    for name in ("a", "b", "sub/c"):
        (workspace / name).write_text(name)
    exact(store.take(workspace, ref=REF))
    harm(store)
    (workspace / "a").write_text("after the harm")
    (workspace / "new").write_text("new")
    (workspace / "b").unlink()
    store.close()
    with SnapshotStore(store.path) as again:
        check_exact(again, workspace, tmp_path / "out")


def test_stale_temporaries_are_swept(store: SnapshotStore, workspace: Path) -> None:
    (workspace / "f").touch()
    exact(store.take(workspace, ref=REF))
    old = store.path / "objects" / "pack" / "tmp_pack_AbCd"
    young = store.path / "objects" / "pack" / "tmp_pack_EfGh"
    for path in (old, young):
        path.write_bytes(b"x")
    day_ago = time.time() - 86400
    os.utime(old, (day_ago, day_ago))
    with SnapshotStore(store.path) as again:
        exact(again.take(workspace, ref=REF))
    assert not old.exists()
    assert young.exists()


def test_a_full_store_takes_no_more(tmp_path: Path, workspace: Path) -> None:
    (workspace / "f").write_bytes(os.urandom(10_000))
    with SnapshotStore(tmp_path / "store", cap=1000) as store:
        snapshot = store.take(workspace, ref=REF)
    assert snapshot.quality == "missed"
    assert "larger than 1000 bytes" in (snapshot.reason or "")


# -- refs, history, upkeep --------------------------------------------------------------------


def test_one_commit_per_changed_state(store: SnapshotStore, workspace: Path) -> None:
    (workspace / "f").write_text("1")
    first = store.take(workspace, ref=REF, message="start")
    same = store.take(workspace, ref=REF, message="nothing happened")
    (workspace / "f").write_text("2")
    second = store.take(workspace, ref=REF, message="edit f")
    assert [s.changed for s in (first, same, second)] == [True, False, True]
    assert same.state_id == first.state_id
    history = [(r.state_id, r.message) for r in store.history(REF)]
    assert history == [(first.state_id, "start"), (second.state_id, "edit f")]
    listed = git("log", "--format=%T", "refs/repotrace/runs/r1", cwd=store.path).split()
    assert [t.decode() for t in listed] == [second.state_id, first.state_id]
    assert is_sound(store)


@pytest.mark.parametrize("ref", ["", "runs/", "runs/../x", "heads/x", "runs/a b", "runs/x.lock"])
def test_names_that_are_no_refs(store: SnapshotStore, workspace: Path, ref: str) -> None:
    with pytest.raises(RepoTraceError, match="cannot name states"):
        store.take(workspace, ref=ref)


def test_deleting_and_pruning(store: SnapshotStore, workspace: Path, tmp_path: Path) -> None:
    (workspace / "big").write_bytes(os.urandom(300_000))
    gone = exact(store.take(workspace, ref="runs/r1"))
    (workspace / "big").write_bytes(b"small")
    kept = exact(store.take(workspace, ref="runs/r2"))
    full = store.size()
    assert store.refs() == ["runs/r1", "runs/r2"]
    assert store.delete("runs/r1")
    assert not store.delete("runs/r1")
    store.prune(grace=3600)
    assert store.read(gone, "big") is not None
    time.sleep(1.1)
    store.prune(grace=0)
    assert store.size() < full - 250_000
    with pytest.raises(RepoTraceError, match="No state"):
        SnapshotStore(store.path).list(gone)
    store.materialise(kept, tmp_path / "out")
    assert is_sound(store)
    # The workspace's own index still refers to objects that no run needs.
    store.delete("runs/r2")
    store.prune(grace=0)
    (workspace / "other").write_text("x")
    check_exact(store, workspace, tmp_path / "again")


def test_shrinking_deletes_the_oldest_first(store: SnapshotStore, workspace: Path) -> None:
    for number in range(3):
        (workspace / "big").write_bytes(os.urandom(300_000))
        exact(store.take(workspace, ref=f"runs/r{number}"))
    time.sleep(1.1)  # what is as young as a second may belong to somebody still at work
    assert store.shrink(750_000, keep=["runs/r0"]) == ["runs/r1"]
    assert store.refs() == ["runs/r0", "runs/r2"]


def test_two_workspaces_and_threads_share_a_store(store: SnapshotStore, tmp_path: Path) -> None:
    failures: list[str] = []

    def work(name: str) -> None:
        folder = tmp_path / name
        folder.mkdir()
        for number in range(5):
            (folder / f"f{number}").write_text(f"{name} {number}")
            state = exact(store.take(folder, ref=f"runs/{name}"))
            store.materialise(state, tmp_path / f"{name}-{number}")
            if picture(tmp_path / f"{name}-{number}") != picture(folder):
                failures.append(f"{name} {number}")

    threads = [threading.Thread(target=work, args=(name,)) for name in ("ra", "rb", "rc")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [len(store.history(f"runs/{name}")) for name in ("ra", "rb", "rc")] == [5, 5, 5]
    assert is_sound(store)


def test_the_store_is_private(store: SnapshotStore, workspace: Path) -> None:
    exact(store.take(workspace, ref=REF))
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o700


def test_inherited_git_variables_and_global_hooks_do_nothing(
    store: SnapshotStore, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("reference-transaction", "post-index-change", "post-commit"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/fired\n")
        (hooks / name).chmod(0o755)
    (tmp_path / "config").write_text(f"[core]\n\thooksPath = {hooks}\n\tautocrlf = true\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "nowhere-index"))
    (workspace / "f").write_bytes(b"a\r\n")
    check_exact(store, workspace, tmp_path / "out")
    assert not (tmp_path / "fired").exists()
    assert not (tmp_path / "nowhere-index").exists()


# -- differences ------------------------------------------------------------------------------


def two_states(store: SnapshotStore, workspace: Path) -> tuple[str, str]:
    lines = [f"line {n}\n" for n in range(30)]
    (workspace / "edited").write_text("a\nb\nc\n")
    (workspace / "deleted").write_text("x\ny")
    (workspace / "moved").write_text("".join(lines))
    (workspace / "binary").write_bytes(b"\0\1\2")
    (workspace / "script").write_text("#!/bin/sh\n")
    (workspace / "turned").write_text("file")
    before = exact(store.take(workspace, ref=REF))
    (workspace / "edited").write_text("a\nB\nc\nd")
    (workspace / "deleted").unlink()
    (workspace / "moved").unlink()
    (workspace / "dir").mkdir()
    (workspace / "dir" / "to").write_text("".join([*lines, "more\n"]))
    (workspace / "binary").write_bytes(b"\0\1\2\3")
    (workspace / "script").chmod(0o755)
    (workspace / "turned").unlink()
    (workspace / "turned").symlink_to("edited")
    (workspace / "created").write_text("1\n2\n")
    return before, exact(store.take(workspace, ref=REF))


def blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%s" % (len(content), content)).hexdigest()


def test_operations(store: SnapshotStore, workspace: Path) -> None:
    before, after = two_states(store, workspace)
    told = {
        o.path: (o.op, o.renamed_from, o.is_binary, o.lines_added, o.lines_removed)
        for o in store.operations(before, after)
    }
    assert told == {
        "binary": ("edit", None, True, 0, 0),
        "created": ("create", None, False, 2, 0),
        "deleted": ("delete", None, False, 0, 2),
        "dir/to": ("rename", "moved", False, 1, 0),
        "edited": ("edit", None, False, 2, 1),
        "script": ("edit", None, False, 0, 0),
        "turned": ("edit", None, False, 1, 1),
    }
    by_path = {o.path: o for o in store.operations(before, after)}
    assert by_path["created"].new_id == blob(b"1\n2\n")
    assert by_path["created"].old_mode is None
    assert by_path["script"].new_mode == 0o100755
    assert by_path["turned"].new_mode == 0o120777
    assert store.read_object(blob(b"x\ny")) == b"x\ny"


def test_operations_of_many_pairs(store: SnapshotStore, workspace: Path) -> None:
    before, after = two_states(store, workspace)
    pairs = [(before, after), (before, before), (after, before), (before, after)]
    there, none, back, again = store.operations_of(pairs)
    assert none == []
    assert there == again == store.operations(before, after)
    assert {o.op for o in back} == {"create", "edit", "delete", "rename"}


def test_a_diff_can_be_applied_by_git(
    store: SnapshotStore, workspace: Path, tmp_path: Path
) -> None:
    before, after = two_states(store, workspace)
    target = tmp_path / "target"
    store.materialise(before, target)
    git("apply", "-", cwd=target, stdin=store.diff(before, after))
    store.materialise(after, tmp_path / "after")
    assert picture(target) == picture(tmp_path / "after")
    only = store.diff(before, after, paths=["created"])
    assert only.count(b"diff --git") == 1
    assert b"+++ b/created" in only
    assert store.diff(after, after) == b""


def test_reading(store: SnapshotStore, workspace: Path) -> None:
    (workspace / "d").mkdir()
    (workspace / "d" / "f").write_bytes(b"\0bytes")
    (workspace / "l").symlink_to("d")
    state = exact(store.take(workspace, ref=REF))
    assert store.read(state, "d/f") == b"\0bytes"
    assert store.read(state, "l") == b"d"
    assert store.read(state, "d") is None
    assert store.read(state, "l/f") is None
    assert store.read(state, "none") is None
    for unknown in ("0" * 40, "xyz", blob(b"\0bytes")):
        with pytest.raises(RepoTraceError, match="No state"):
            store.read(unknown, "d/f")


def test_materialising_needs_an_empty_folder(store: SnapshotStore, workspace: Path) -> None:
    (workspace / "f").touch()
    state = exact(store.take(workspace, ref=REF))
    with pytest.raises(RepoTraceError, match="not empty"):
        store.materialise(state, workspace)


# -- any tree, any edit -----------------------------------------------------------------------


@given(steps=STEPS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_state_can_be_made_again(steps: Edits) -> None:
    check_states(steps)


@pytest.mark.slow
@pytest.mark.timeout(900)
@given(steps=STEPS, pause=st.sampled_from([0, 0.12]), tracked=st.booleans())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_state_can_be_made_again_at_length(steps: Edits, pause: float, tracked: bool) -> None:
    check_states(steps, pause, tracked)


def check_states(steps: Edits, pause: float = 0, tracked: bool = False) -> None:
    """Takes a state after each step; each is made again, and told apart from the one before.

    With a `pause` between the steps folders have time to settle, and are not read again.
    """
    base = Path(tempfile.mkdtemp())
    seen: list[tuple[str, Picture]] = []
    try:
        with SnapshotStore(base / "store") as store:
            for wanted in play(base / "w", steps):
                if tracked and not (base / "w" / ".git").exists():
                    git("init", "-q", cwd=base / "w")
                    # It fails at a repository without a commit, having added the others.
                    git("add", "--ignore-errors", ".", cwd=base / "w", check=False)
                time.sleep(pause)
                seen.append((exact(store.take(base / "w", ref=REF)), wanted))
                time.sleep(pause)
            for number, (state, wanted) in enumerate(seen):
                store.materialise(state, base / f"out{number}")
                assert picture(base / f"out{number}") == wanted
            for (one, was), (other, now) in itertools.pairwise(seen):
                assert (one == other) == (was == now)
                operations = store.operations(one, other)
                told = {os.fsencode(o.path) for o in operations}
                told |= {os.fsencode(o.renamed_from) for o in operations if o.renamed_from}
                assert told == _changed_files(was, now)
            assert is_sound(store)
    finally:
        shutil.rmtree(base)


def _changed_files(was: Picture, now: Picture) -> set[bytes]:
    def files(seen: Picture) -> Picture:
        kinds = (stat.S_IFREG, stat.S_IFLNK)
        return {p: v for p, v in seen.items() if stat.S_IFMT(v[0]) in kinds}

    one, other = files(was), files(now)
    return {path for path in one.keys() | other.keys() if one.get(path) != other.get(path)}
