"""A store of states: failures, references, upkeep, differences, and any tree there may be."""

# Names that are no text need the functions that take bytes.

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from states import (
    REF,
    STEPS,
    Edits,
    Picture,
    check_exact,
    exact,
    git,
    is_sound,
    left_out,
    picture,
    play,
)

from repotrace.errors import RepoTraceError
from repotrace.system.snapshots import SnapshotStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SnapshotStore]:
    with SnapshotStore(tmp_path / "home" / "snapshots.git") as store:
        yield store


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


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


TAKER = """
import sys
from pathlib import Path
from repotrace.system.snapshots import SnapshotStore
store, workspace = SnapshotStore(Path(sys.argv[1])), Path(sys.argv[2])
print("ready", flush=True)
for number in range(10_000):
    (workspace / f"f{number % 50}").write_text(str(number))
    (workspace / f"d{number % 7}").mkdir(exist_ok=True)
    (workspace / f"d{number % 7}" / str(number)).write_text("new")
    store.take(workspace, ref="runs/r1")
"""


def test_a_killed_process_leaves_nothing_wrong(
    store: SnapshotStore, workspace: Path, tmp_path: Path
) -> None:
    for number in range(6):
        command = [sys.executable, "-c", TAKER, str(store.path), str(workspace)]
        taker = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert taker.stdout is not None
        taker.stdout.readline()
        time.sleep(0.05 + 0.037 * number)
        taker.kill()
        taker.wait()
        taker.stdout.close()
        check_exact(store, workspace, tmp_path / str(number))
    assert is_sound(store)


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
    (workspace / "f").write_bytes(os.urandom(100_000))
    with SnapshotStore(tmp_path / "store") as store:
        exact(store.take(workspace, ref=REF))
    (tmp_path / "store" / "weighed").unlink()
    with SnapshotStore(tmp_path / "store", cap=50_000) as store:
        size = store.size()
        (workspace / "f").write_bytes(os.urandom(100_000))
        snapshot = store.take(workspace, ref=REF)
        assert snapshot.quality == "missed"
        assert snapshot.reason == "The snapshot store is larger than 50000 bytes."
        assert store.size() <= size + 4096
    with SnapshotStore(tmp_path / "store", cap=500_000) as store:
        exact(store.take(workspace, ref=REF))


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
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


def test_kept_contents_outlive_pruning_until_their_run_is_deleted(store: SnapshotStore) -> None:
    texts = [b"", b"one\n", b"\0\xff", b"one\n"]
    names = store.keep("runs/r1", *texts) + store.keep("runs/r1", b"later")
    other = store.keep("runs/r2", b"other")[0]
    expected = [hashlib.sha1(b"blob %d\0%s" % (len(t), t)).hexdigest() for t in [*texts, b"later"]]
    assert names == expected
    store.prune(grace=0)
    assert [store.read_object(name) for name in names] == [*texts, b"later"]
    assert store.refs() == ["runs/r1", "runs/r2"]
    assert store.history("runs/r1") == []
    assert is_sound(store)

    assert store.delete("runs/r1")
    assert not store.delete("runs/r1")
    time.sleep(1.1)
    store.prune(grace=0)
    with SnapshotStore(store.path) as fresh:
        assert fresh.read_object(names[1]) is None
        assert fresh.read_object(other) == b"other"


def test_contents_kept_by_many_at_once_are_all_there(store: SnapshotStore) -> None:
    found: dict[int, list[str]] = {}

    def keep(number: int) -> None:
        found[number] = [store.keep("runs/r1", b"%d %d" % (number, n))[0] for n in range(20)]

    threads = [threading.Thread(target=keep, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.prune(grace=0)
    for number, names in found.items():
        assert [store.read_object(name) for name in names] == [
            b"%d %d" % (number, n) for n in range(20)
        ]
