"""Restoring the files of a step, judged by walking folders and by plain git."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recording import event
from running import plain_git
from states import STEPS, Edits, Picture, fingerprint, is_sound, picture, play
from stepping import Recorded, call

from repotrace.errors import RepoTraceError
from repotrace.runs.paths import PathFilter
from repotrace.runs.restore import lacking, restore_in_place, restore_into, state_of_step
from repotrace.system.scratch import Scratch


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """Step 1 writes `a` and `sub/b`, step 2 changes and deletes, step 3 makes a link."""
    run = Recorded(tmp_path / "work", tmp_path / "home")
    run.step("echo 1 > a; mkdir sub; echo b > sub/b; chmod 600 sub/b")
    run.step("echo 2 > a; rm -r sub; mkdir new; echo c > new/c; chmod 755 new/c")
    run.step("rm a; ln -s new/c a")
    run.end()
    return run


def state_after(run: Recorded, step: int) -> str:
    state = state_of_step(run.store, run.run, step).state_id
    assert state is not None
    return state


# --- For any tree and any edits -----------------------------------------------------------


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_restoring_a_step_gives_its_files(steps: Edits) -> None:
    with TemporaryDirectory() as folder:
        top = Path(folder)
        work, home = top / "work", top / "home"
        run = Recorded(work, home)
        work.rmdir()
        pictures: list[Picture] = [{}]
        for pictured in play(work, steps):
            pictures.append(pictured)
            run.step()
        run.end()
        now = fingerprint(work)
        for step, expected in enumerate(pictures):
            into = top / f"step-{step}"
            done = call(top, home, "runs", "restore", run.id, "--step", str(step), "--into", into)
            assert done.stdout == f"wrote {into}\n".encode()
            assert picture(into) == expected
        assert fingerprint(work) == now
        assert is_sound(run.store.snapshots)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, data=st.data())
def test_restoring_in_place_gives_the_files_and_can_be_undone(
    steps: Edits, data: st.DataObject
) -> None:
    """Unless the folder `.git` of a nested repository, which no state holds, is in the way."""
    with TemporaryDirectory() as folder:
        top = Path(folder).resolve()
        work, home = top / "work", top / "home"
        run = Recorded(work, home)
        work.rmdir()
        pictures: list[Picture] = [{}]
        for pictured in play(work, steps):
            pictures.append(pictured)
            run.step()
        run.end()
        order = data.draw(st.permutations(range(len(pictures))))
        for step in order:
            before = picture(work)
            done = call(work, home, "runs", "restore", "--step", str(step), "--in-place")
            if done.code == 2:
                assert "In the way" in done.stderr
                assert ".git" in done.stderr
                assert picture(work) == before
                continue
            assert done.code == 0, done.stderr
            assert without_shells(work) == without_these(pictures[step], shells(work))
            undo = [line for line in done.stderr.splitlines() if "--state" in line]
            for line in undo:
                words = line.split()
                assert words[:3] == ["repotrace", "--home", str(home)]
                again = call(work, home, *words[3:])
                assert again.code == 0, again.stderr
                assert picture(work) == before
                call(work, home, "runs", "restore", "--step", str(step), "--in-place")
        assert is_sound(run.store.snapshots)


def shells(work: Path) -> set[bytes]:
    """Folders that lead to a `.git` of a nested repository: they cannot go."""
    found = set()
    root = os.fsencode(work)
    for top, folders, _ in os.walk(root):
        if b".git" in folders and top != root:
            folders.remove(b".git")
            path = os.path.relpath(top, root)
            while path:
                found.add(path)
                path = os.path.dirname(path)  # noqa: PTH120 - names that are no text
    return found


def without_these(pictured: Picture, paths: set[bytes]) -> Picture:
    return {path: what for path, what in pictured.items() if path not in paths}


def without_shells(work: Path) -> Picture:
    return without_these(picture(work), shells(work))


# --- The user's repository ----------------------------------------------------------------


def test_a_restore_into_a_folder_leaves_the_repository_bit_for_bit(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    plain_git(work, "init", "-q")
    (work / "a").write_text("1\n")
    (work / ".git" / "hooks" / "post-checkout").write_text("#!/bin/sh\ntouch /tmp/never\n")
    (work / ".git" / "hooks" / "post-checkout").chmod(0o755)
    plain_git(work, "add", "a")
    plain_git(work, "commit", "-qm", "one")
    home = work / ".git" / "repotrace"
    run = Recorded(work, home)
    run.step("echo 2 >> a; git add a; echo 3 > b")
    run.step("echo 4 > b")
    run.end()
    status = plain_git(work, "status", "--porcelain", "--ignored")
    before = {p: x for p, x in fingerprint(work).items() if not p.startswith(b".git/repotrace")}
    for step in range(3):
        done = call(
            work, home, "runs", "restore", "--step", str(step), "--into", tmp_path / str(step)
        )
        assert done.code == 0, done.stderr
    after = {p: x for p, x in fingerprint(work).items() if not p.startswith(b".git/repotrace")}
    assert after == before
    assert plain_git(work, "status", "--porcelain", "--ignored") == status
    plain_git(work, "fsck", "--strict")


def test_a_restore_in_place_leaves_all_of_git_alone(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    plain_git(work, "init", "-q")
    (work / "a").write_text("1\n")
    plain_git(work, "add", "a")
    plain_git(work, "commit", "-qm", "one")
    home = tmp_path / "home"
    run = Recorded(work, home)
    run.step("echo 2 > a; echo b > b; git add b; chmod 700 .git")
    run.end()
    git_files = fingerprint(work / ".git")
    assert call(work, home, "runs", "restore", "--step", "0", "--in-place").code == 0
    assert fingerprint(work / ".git") == git_files
    assert (work / "a").read_text() == "1\n"
    assert plain_git(work, "status", "--porcelain") == "AD b"


def test_a_run_of_a_removed_worktree_is_whole(tmp_path: Path) -> None:
    main, tree = tmp_path / "main", tmp_path / "tree"
    main.mkdir()
    plain_git(main, "init", "-q")
    (main / ".gitignore").write_text("ignored\n")
    (main / "a").write_text("1\n")
    plain_git(main, "add", ".")
    plain_git(main, "commit", "-qm", "one")
    plain_git(main, "worktree", "add", "-q", str(tree), "-b", "other")
    home = main / ".git" / "repotrace"
    run = Recorded(tree, home)
    run.step("echo 2 > a; echo x > ignored; mkdir deep; echo d > deep/d")
    expected = picture(tree)
    del expected[b"ignored"]
    run.step("git clean -q -fdx")
    run.end()
    plain_git(main, "worktree", "remove", "--force", str(tree))
    plain_git(main, "gc", "-q", "--prune=now")
    assert not tree.exists()
    done = call(main, home, "runs", "restore", "--step", "1", "--into", tmp_path / "again")
    assert done.code == 0, done.stderr
    assert picture(tmp_path / "again") == expected
    patch = call(main, home, "runs", "diff", "--step", "1").stdout
    assert b"+++ b/deep/d" in patch
    assert is_sound(run.store.snapshots)


# --- In place -----------------------------------------------------------------------------


def test_what_no_state_holds_stays(recorded: Recorded) -> None:
    work = recorded.workspace
    (work / ".env").write_text("TOKEN=1")
    (work / "new" / "node_modules").mkdir()
    (work / "new" / "node_modules" / "m").write_text("m")
    (work / "new").chmod(0o711)
    done = restore_in_place(recorded.store, state_after(recorded, 1), work)
    assert (work / ".env").read_text() == "TOKEN=1"
    assert (work / "new" / "node_modules" / "m").read_text() == "m"
    assert stat.S_IMODE((work / "new").stat().st_mode) == 0o711
    assert not (work / "new" / "c").exists()
    assert done.written == ("a", "sub/b")
    assert done.deleted == ("new/c",)


@pytest.mark.parametrize("kind", ["file", "folder", "above"])
def test_nothing_is_done_where_an_uncaptured_file_is_in_the_way(tmp_path: Path, kind: str) -> None:
    """Step 1 has a file of a name that is ignored now."""
    run = Recorded(tmp_path / "work", tmp_path / "home")
    work = run.workspace
    run.step("mkdir d; echo old > d/x; echo old > y")
    run.step("rm -r d y; echo changed > y")
    run.end()
    plain_git(work, "init", "-q")
    (work / ".gitignore").write_text("x\nd\n")
    if kind == "file":
        (work / "d").mkdir()
        (work / "d" / "x").write_text("mine")
    elif kind == "folder":
        (work / "d" / "x").mkdir(parents=True)
        (work / "d" / "x" / "mine").write_text("mine")
    else:
        (work / "d").write_text("mine")
    before = fingerprint(work)
    with pytest.raises(RepoTraceError, match="In the way"):
        restore_in_place(run.store, state_after(run, 1), work)
    assert fingerprint(work) == before
    assert not [ref for ref in run.store.snapshots.refs() if "undo" in ref]


def test_only_some_paths(recorded: Recorded) -> None:
    work = recorded.workspace
    (work / "new").chmod(0o711)
    done = restore_in_place(
        recorded.store, state_after(recorded, 1), work, paths=PathFilter(["sub"])
    )
    assert (done.written, done.deleted) == (("sub/b",), ())
    assert stat.S_IMODE((work / "sub" / "b").stat().st_mode) == 0o600
    assert (work / "a").is_symlink()
    assert stat.S_IMODE((work / "new").stat().st_mode) == 0o711
    restore_in_place(recorded.store, state_after(recorded, 1), work, paths=PathFilter(["new/c"]))
    assert not (work / "new").exists()


def test_a_dry_run_changes_nothing(recorded: Recorded) -> None:
    before = fingerprint(recorded.workspace)
    done = restore_in_place(
        recorded.store, state_after(recorded, 1), recorded.workspace, dry_run=True
    )
    assert (done.written, done.deleted) == (("a", "sub/b"), ("new/c",))
    assert fingerprint(recorded.workspace) == before
    assert recorded.store.snapshots.refs() == [f"runs/{recorded.id}"]


def test_the_same_state_again_changes_nothing(recorded: Recorded) -> None:
    before = fingerprint(recorded.workspace)
    done = restore_in_place(recorded.store, state_after(recorded, 3), recorded.workspace)
    assert (done.written, done.deleted, done.safety_state) == ((), (), None)
    assert fingerprint(recorded.workspace) == before
    assert recorded.store.snapshots.refs() == [f"runs/{recorded.id}"]


def test_only_permissions_differ(recorded: Recorded) -> None:
    (recorded.workspace / "new" / "c").chmod(0o640)
    done = restore_in_place(recorded.store, state_after(recorded, 3), recorded.workspace)
    assert done.written == ("new/c",)
    assert stat.S_IMODE((recorded.workspace / "new" / "c").stat().st_mode) == 0o755


def test_unusual_modes_of_the_state_do_not_reach_what_no_state_holds(tmp_path: Path) -> None:
    """In the state most files are 0600 and folders 0700; those of .git are not touched."""
    run = Recorded(tmp_path / "work", tmp_path / "home")
    work = run.workspace
    plain_git(work, "init", "-q")
    run.step("mkdir d e; echo 1 > d/1; echo 2 > e/2; chmod 600 */?; chmod 700 d e")
    run.step("chmod 644 */?; chmod 755 d e; mkdir -p node_modules/m; echo m > node_modules/m/m")
    run.end()
    before = fingerprint(work / ".git"), fingerprint(work / "node_modules")
    restore_in_place(run.store, state_after(run, 1), work)
    assert stat.S_IMODE((work / "d").stat().st_mode) == 0o700
    assert stat.S_IMODE((work / "d" / "1").stat().st_mode) == 0o600
    assert (fingerprint(work / ".git"), fingerprint(work / "node_modules")) == before


def test_a_safety_state_comes_first(recorded: Recorded) -> None:
    """Where the present files cannot be kept nothing is written."""
    home = recorded.store.home
    (home / "snapshots.git" / "objects" / "full").write_bytes(b"x" * 100_000)
    recorded.store.snapshots.cap = 1000
    before = fingerprint(recorded.workspace)
    os.utime(home / "snapshots.git" / "weighed", (0, 0))
    with pytest.raises(RepoTraceError, match="could not be kept, so nothing was restored"):
        restore_in_place(recorded.store, state_after(recorded, 1), recorded.workspace)
    assert fingerprint(recorded.workspace) == before


# --- Into a folder ------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["file", "full"])
def test_what_is_there_is_never_written_to(recorded: Recorded, tmp_path: Path, what: str) -> None:
    into = tmp_path / "into"
    if what == "file":
        into.write_text("mine")
    else:
        into.mkdir()
        (into / "mine").write_text("mine")
    before = fingerprint(tmp_path)
    with pytest.raises(RepoTraceError, match=r"not empty|cannot be used"):
        restore_into(recorded.store, state_after(recorded, 1), into)
    assert {p: x for p, x in fingerprint(tmp_path).items() if not p.startswith(b"home")} == {
        p: x for p, x in before.items() if not p.startswith(b"home")
    }


def test_a_failure_leaves_nothing_behind(recorded: Recorded, tmp_path: Path) -> None:
    """An object of the state is lost."""
    state = state_after(recorded, 1)
    blob = recorded.store.snapshots.list(state)[1].object_id
    assert blob is not None
    store = recorded.store.snapshots.path
    for pack in (store / "objects" / "pack").glob("*.pack"):
        moved = tmp_path / pack.name
        shutil.move(pack, moved)
        with moved.open("rb") as stream:
            subprocess.run(["git", "unpack-objects", "-q"], cwd=store, stdin=stream, check=True)
    (store / "objects" / blob[:2] / blob[2:]).unlink()
    recorded.store.close()
    with pytest.raises(RepoTraceError, match="the store has lost"):
        restore_into(recorded.store, state, tmp_path / "into")
    assert not (tmp_path / "into").exists()


def test_a_state_that_leads_elsewhere_is_refused(recorded: Recorded, tmp_path: Path) -> None:
    """A state of a foreign store may name `..`; git itself would make no such tree."""
    from repotrace.system.snapshots.objects import tree_data, write_object

    store = recorded.store.snapshots
    objects = store.path / "objects"
    blob = write_object(objects, b"blob", b"evil")
    manifest = store.state(state_after(recorded, 1)).manifest_id
    for name in (b"..", b".git", b".GIT"):
        inner = write_object(objects, b"tree", tree_data([(b"hook", 0o100644, blob)]))
        tree = write_object(objects, b"tree", tree_data([(name, 0o40000, inner)]))
        entries = [(b"manifest", 0o100644, manifest), (b"root", 0o40000, tree)]
        state = write_object(objects, b"tree", tree_data(entries))
        with pytest.raises(RepoTraceError, match="may not be written"):
            restore_into(recorded.store, state, tmp_path / "deep" / "into")
        with pytest.raises(RepoTraceError, match="may not be written"):
            restore_in_place(recorded.store, state, recorded.workspace)
    assert not (tmp_path / "deep" / "hook").exists()


# --- What a state does not hold -------------------------------------------------------------


def test_what_was_not_captured_is_known_for_each_state(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "work", tmp_path / "home")
    work = run.workspace
    run.step("echo 1 > a")
    (work / ".env").write_text("SECRET=12")
    (work / "caf\udce9.pem").write_text("k")
    (work / "node_modules").mkdir()
    (work / "inner").mkdir()
    plain_git(work / "inner", "init", "-q")
    (work / "inner" / "i").write_text("i")
    plain_git(work / "inner", "add", "i")
    plain_git(work / "inner", "commit", "-qm", "one")
    head = plain_git(work / "inner", "rev-parse", "HEAD")
    run.step("echo 2 > a")
    assert lacking(run.store, run.run, state_after(run, 1)).not_captured == ()
    found = lacking(run.store, run.run, state_after(run, 2))
    told = {(item.path, item.reason, item.is_folder) for item in found.not_captured}
    assert told == {
        (".env", "secret", False),
        ("caf\udce9.pem", "secret", False),
        ("node_modules", "regenerable", True),
    }
    assert [(item.path, item.head) for item in found.nested] == [("inner", head)]
    assert found.more == 0


def test_of_very_many_the_number_is_known(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "work", tmp_path / "home")
    for number in range(640):
        (run.workspace / f"{number}.key").write_text("")
    run.step("echo 1 > a")
    found = lacking(run.store, run.run, state_after(run, 1))
    assert len(found.not_captured) + found.more == 640
    (history,) = run.store.snapshots.history(f"runs/{run.id}")[-1:]
    assert history.message == "state"


def test_a_state_of_the_parent_run_is_found(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "work", tmp_path / "home")
    (run.workspace / ".env").write_text("x")
    run.step("echo 1 > a")
    state = state_after(run, 1)
    child = "rchild"
    run.store.runs.add_events(
        [event("run_started", 50, run=child, parent_run_id=run.id, base_state=state)]
    )
    found = lacking(run.store, run.store.runs.get(child), state)
    assert [item.path for item in found.not_captured] == [".env"]


@pytest.mark.parametrize("made", ["echo x > a", "mkfifo a", "ln -s b a"])
def test_a_folder_of_unusual_permissions_that_becomes_something_else(
    tmp_path: Path, made: str
) -> None:
    run = Recorded(tmp_path / "work", tmp_path / "home")
    run.step("mkdir a b; touch b/x; chmod 700 a; touch a/x")
    run.step(f"rm -r a; {made}")
    expected = picture(run.workspace)
    restore_in_place(run.store, state_after(run, 1), run.workspace)
    restore_in_place(run.store, state_after(run, 2), run.workspace)
    assert picture(run.workspace) == expected
    with Scratch(run.store.snapshots, tmp_path / "scratch") as scratch:
        scratch.goto(state_after(run, 1))
        scratch.goto(state_after(run, 2))
        assert picture(scratch.folder) == expected
