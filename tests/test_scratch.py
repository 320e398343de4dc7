"""A scratch folder, compared with the work tree that its states were taken from."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from states import REF, STEPS, Edits, Picture, exact, picture, play

from repotrace.errors import RepoTraceError
from repotrace.system.scratch import Scratch
from repotrace.system.snapshots import SnapshotStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SnapshotStore]:
    with SnapshotStore(tmp_path / "home" / "snapshots.git") as store:
        yield store


@pytest.fixture
def scratch(store: SnapshotStore, tmp_path: Path) -> Iterator[Scratch]:
    with Scratch(store, tmp_path / "scratch") as scratch:
        yield scratch


def project(folder: Path) -> None:
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "src" / "deep" / "a.py").write_text("a = 1\n")
    (folder / "src" / "b.py").write_text("b = 1\n")
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "private").write_text("p")
    (folder / "private").chmod(0o600)
    (folder / "link").symlink_to("src/b.py")
    (folder / "empty").mkdir()
    os.mkfifo(folder / "pipe")


def state_of(store: SnapshotStore, folder: Path) -> str:
    return exact(store.take(folder, ref=REF))


def test_a_folder_becomes_a_link_and_a_folder_again(
    store: SnapshotStore, scratch: Scratch, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("not ours")
    work = tmp_path / "work"
    (work / "a").mkdir(parents=True)
    (work / "a" / "f").write_text("ours")
    as_folder = state_of(store, work)
    shutil.rmtree(work / "a")
    (work / "a").symlink_to(outside)
    as_link = state_of(store, work)
    for state in (as_folder, as_link, as_folder, as_link, as_folder):
        scratch.goto(state)
    assert (scratch.folder / "a" / "f").read_text() == "ours"
    assert picture(outside) == {b"f": (0o100644, b"not ours")}


def edit_in_place(folder: Path) -> None:
    with open(folder / "src" / "b.py", "r+") as file:
        file.write("b = 2\n")


def leave_caches(folder: Path) -> None:
    (folder / "src" / "__pycache__").mkdir()
    (folder / "src" / "__pycache__" / "b.pyc").write_bytes(b"\0")
    (folder / ".pytest_cache").mkdir()
    (folder / "out.txt").touch()


def delete(folder: Path) -> None:
    shutil.rmtree(folder / "src")
    (folder / "pipe").unlink()
    (folder / "empty").rmdir()


def change_modes(folder: Path) -> None:
    (folder / "private").chmod(0o644)
    (folder / "run").chmod(0o644)
    (folder / "src").chmod(0o700)
    (folder / "empty").chmod(0o500)


def lock_up(folder: Path) -> None:
    (folder / "src" / "deep" / "new").mkdir()
    (folder / "src" / "deep" / "new" / "f").touch()
    (folder / "src" / "deep" / "new").chmod(0)
    (folder / "src" / "deep").chmod(0o500)


def replace_by_links(folder: Path) -> None:
    outside = folder.parent / "outside"
    shutil.rmtree(folder / "src")
    (folder / "src").symlink_to(outside)
    (folder / "run").unlink()
    (folder / "run").symlink_to(outside / "b.py")
    (folder / "link").unlink()
    (folder / "link").write_text("now a file")


def move_and_link_back(folder: Path) -> None:
    (folder / "src").rename(folder / "moved")
    (folder / "src").symlink_to("moved")


def give_second_names(folder: Path) -> None:
    outside = folder.parent / "outside"
    (folder / "src" / "b.py").unlink()
    os.link(outside / "b.py", folder / "src" / "b.py")


DIRT = [
    edit_in_place,
    leave_caches,
    delete,
    change_modes,
    lock_up,
    replace_by_links,
    move_and_link_back,
    give_second_names,
]


@pytest.mark.parametrize("dirty", DIRT)
def test_it_is_put_back_after_a_test(
    store: SnapshotStore, scratch: Scratch, tmp_path: Path, dirty: Callable[[Path], None]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b.py").write_text("not ours\n")
    work = tmp_path / "work"
    work.mkdir()
    project(work)
    state = state_of(store, work)
    wanted = picture(work)
    scratch.goto(state)
    assert picture(scratch.folder) == wanted
    assert not scratch.dirty()
    dirty(scratch.folder)
    assert scratch.dirty()
    scratch.restore()
    assert picture(scratch.folder) == wanted
    assert not scratch.dirty()
    assert picture(outside) == {b"b.py": (0o100644, b"not ours\n")}
    # And what it believes of itself is true: the next move ends right as well.
    (work / "src" / "b.py").write_text("b = 3\n")
    (work / "src" / "deep" / "a.py").unlink()
    scratch.goto(state_of(store, work))
    assert picture(scratch.folder) == picture(work)


def test_cleaning_leaves_changed_files(
    store: SnapshotStore, scratch: Scratch, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    project(work)
    scratch.goto(state_of(store, work))
    edit_in_place(scratch.folder)
    leave_caches(scratch.folder)
    assert scratch.clean() == 3
    assert (scratch.folder / "src" / "b.py").read_text() == "b = 2\n"
    assert not (scratch.folder / "out.txt").exists()
    assert scratch.restore() == 1


def test_what_is_to_be_kept_stays(store: SnapshotStore, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "f").write_text("1")
    first = state_of(store, work)
    (work / "f").chmod(0o600)
    second = state_of(store, work)
    with Scratch(store, tmp_path / "scratch", keep=[".venv"]) as scratch:
        scratch.goto(first)
        (scratch.folder / ".venv").symlink_to("/usr")
        assert not scratch.dirty()
        scratch.restore()
        scratch.goto(second)
        assert (scratch.folder / ".venv").is_symlink()
    with Scratch(store, tmp_path / "scratch", keep=[".venv"]) as scratch:
        assert [path.name for path in scratch.folder.iterdir()] == [".venv"]


def test_somebody_elses_folder_is_refused(store: SnapshotStore, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "f").touch()
    with pytest.raises(RepoTraceError, match="not empty"):
        Scratch(store, tmp_path / "theirs")
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    with pytest.raises(RepoTraceError, match="is a link"):
        Scratch(store, tmp_path / "link")
    assert (tmp_path / "theirs" / "f").exists()


def test_an_abandoned_one_starts_empty(store: SnapshotStore, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    project(work)
    state = state_of(store, work)
    with Scratch(store, tmp_path / "scratch") as scratch:
        scratch.goto(state)
        lock_up(scratch.folder)
    with Scratch(store, tmp_path / "scratch") as scratch:
        assert picture(scratch.folder) == {}
        scratch.goto(state)
        assert picture(scratch.folder) == picture(work)


def test_an_unknown_state_leaves_it_as_it_is(
    store: SnapshotStore, scratch: Scratch, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    project(work)
    scratch.goto(state_of(store, work))
    with pytest.raises(RepoTraceError, match="No state"):
        scratch.goto("0" * 40)
    assert picture(scratch.folder) == picture(work)


@given(steps=STEPS, order=st.lists(st.integers(0, 3), min_size=4, max_size=8))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_order_of_states(steps: Edits, order: list[int]) -> None:
    base = Path(tempfile.mkdtemp())
    seen: list[tuple[str, Picture]] = []
    with SnapshotStore(base / "store") as store:
        for wanted in play(base / "w", steps):
            seen.append((exact(store.take(base / "w", ref=REF)), wanted))
        dirt = itertools.cycle([leave_caches, _harm])
        with Scratch(store, base / "scratch") as scratch:
            for number in order:
                state, wanted = seen[number % len(seen)]
                scratch.goto(state)
                assert picture(scratch.folder) == wanted
                assert not scratch.dirty()
                _spoil(scratch, wanted, next(dirt))
    shutil.rmtree(base)


def _spoil(scratch: Scratch, wanted: Picture, dirty: Callable[[Path], None]) -> None:
    if not (scratch.folder / "src").exists():
        (scratch.folder / "src").mkdir()
    dirty(scratch.folder)
    scratch.restore()
    assert picture(scratch.folder) == wanted


def _harm(folder: Path) -> None:
    """Every second file is deleted, every other one changed."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for number, path in enumerate(files):
        if number % 2 and not path.is_symlink():
            path.write_bytes(path.read_bytes() + b"more")
        else:
            path.unlink()
