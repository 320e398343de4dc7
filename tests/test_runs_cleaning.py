"""Deleting runs, and giving their room back."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from recording import NOON, event
from states import is_sound
from stepping import Recorded, call

from repotrace.errors import RepoTraceError, RunNotFound
from repotrace.runs.cleaning import clean, delete_run
from repotrace.runs.restore import restore_in_place, state_of_step
from repotrace.storage import Store
from repotrace.storage.space import compact, size_of, used_of

NOW = datetime.now(UTC)


def a_run(tmp_path: Path, run: str, *, hours: float = 0, size: int = 0, **about: Any) -> Recorded:
    """A run that began `hours` after noon of a day of March 2026, with that many random bytes
    in a file of its own."""
    recorded = Recorded(tmp_path / "work", tmp_path / "home", run=run, **about)
    recorded.store.runs.add_events(
        [
            event("run_started", hours * 3600, run=run),
            event("run_ended", hours * 3600 + 60, run=run),
        ]
    )
    recorded.step(
        lambda: (recorded.workspace / run).write_bytes(random.Random(run).randbytes(size))
    )
    (recorded.workspace / run).unlink()
    recorded.end()
    recorded.store.runs.add_events([event("run_ended", hours * 3600 + 90, run=run)])
    age(recorded.store)
    return recorded


def age(store: Store, seconds: float = 3600) -> None:
    """Makes everything in the snapshot store older."""
    for path in (store.snapshots.path / "objects").rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - seconds
            os.utime(path, (then, then))


def ids(store: Store) -> set[str]:
    return {run.id for run in store.runs.list()}


def test_a_deleted_run_is_gone_with_its_states(tmp_path: Path) -> None:
    one, other = a_run(tmp_path, "rone", size=1000), a_run(tmp_path, "rother", hours=1, size=1000)
    state = state_of_step(one.store, one.run, 1).state_id
    kept = state_of_step(other.store, other.run, 1).state_id
    assert state is not None
    assert kept is not None
    assert delete_run(one.store, one.run)
    assert one.store.snapshots.refs() == ["runs/rother"]
    with pytest.raises(RunNotFound):
        one.store.runs.get("rone")
    one.store.snapshots.prune(grace=0)
    store = Store(tmp_path / "home")
    with pytest.raises(RepoTraceError, match="No state"):
        store.snapshots.state(state)
    assert store.snapshots.read(kept, "rother") == random.Random("rother").randbytes(1000)
    assert is_sound(store.snapshots)


def test_a_running_run_is_deleted_by_force_only(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "work", tmp_path / "home")
    with pytest.raises(RepoTraceError, match="still being recorded"):
        delete_run(run.store, run.run)
    assert delete_run(run.store, run.run, force=True)
    run.tell("step_started", id="late")
    assert [step.id for step in run.store.runs.steps(run.id)] == ["late"]


def test_old_runs_go_and_others_stay(tmp_path: Path) -> None:
    for number, name in enumerate(["ra", "rb", "rc"]):
        run = a_run(tmp_path, name, hours=24 * number)
    run.store.runs.add_events([event("run_updated", 100, run="ra", pinned=True)])
    done = clean(run.store, now=NOW, before=NOON + timedelta(hours=36))
    assert [(item.run.id, item.reason) for item in done.runs] == [("rb", "old")]
    assert ids(run.store) == {"ra", "rc"}
    assert run.store.snapshots.refs() == ["runs/ra", "runs/rc"]


def test_the_oldest_go_until_all_fits(tmp_path: Path) -> None:
    """Five runs with half a megabyte each that cannot be compressed; two fit into the cap."""
    for number in range(5):
        run = a_run(tmp_path, f"r{number}", hours=number, size=500_000)
    base = used_of(tmp_path / "home")
    done = clean(run.store, now=NOW, max_size=base + 1_250_000)
    assert [item.run.id for item in done.runs] == ["r0", "r1", "r2"]
    assert {item.reason for item in done.runs} == {"size"}
    assert ids(run.store) == {"r3", "r4"}
    assert done.before - done.after > 1_400_000
    assert run.store.snapshots.size() < 1_250_000
    assert is_sound(run.store.snapshots)


def test_what_two_runs_share_is_no_room_of_either(tmp_path: Path) -> None:
    """The big file is in all states, so deleting the first run alone frees nothing."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "big").write_bytes(random.Random(1).randbytes(800_000))
    run = a_run(tmp_path, "r0")
    a_run(tmp_path, "r1", hours=1)
    refs = run.store.snapshots.refs()
    own = [run.store.snapshots.own_size(ref) for ref in refs]
    assert max(own) < 5_000
    assert run.store.snapshots.own_size("runs/r1", gone=["runs/r0"]) < 5_000
    for workspace in (run.store.snapshots.path / "refs/repotrace/workspaces").iterdir():
        workspace.unlink()
    assert run.store.snapshots.own_size("runs/r1", gone=["runs/r0"]) > 800_000


def test_pinned_and_running_runs_stay_whatever_the_cap(tmp_path: Path) -> None:
    pinned = a_run(tmp_path, "rpinned", size=100_000, pinned=True)
    running = Recorded(tmp_path / "work", tmp_path / "home", run="rrunning")
    running.step(lambda: (running.workspace / "x").write_bytes(b"x"))
    free = a_run(tmp_path, "rfree", hours=1, size=1000)
    done = clean(free.store, now=NOW, before=NOW, max_size=1)
    assert [item.run.id for item in done.runs] == ["rfree"]
    assert ids(free.store) == {"rpinned", "rrunning"}
    assert pinned.store.snapshots.refs() == ["runs/rpinned", "runs/rrunning"]
    assert done.after > done.max_size


def test_a_dry_run_changes_nothing_and_says_what_would_be(tmp_path: Path) -> None:
    for number in range(4):
        run = a_run(tmp_path, f"r{number}", hours=number, size=400_000)
    base = used_of(tmp_path / "home")
    names, size = run.store.snapshots.refs(), run.store.snapshots.size()
    dry = clean(run.store, now=NOW, max_size=base + 1_000_000, dry_run=True)
    assert (run.store.snapshots.refs(), run.store.snapshots.size()) == (names, size)
    assert ids(run.store) == {"r0", "r1", "r2", "r3"}
    wet = clean(run.store, now=NOW, max_size=base + 1_000_000)
    assert [item.run.id for item in dry.runs] == [item.run.id for item in wet.runs] == ["r0", "r1"]
    # What is left is an estimate: blocks of the file system are counted, not bytes.
    assert abs(dry.after - wet.after) < 300_000


def test_room_in_the_database_is_given_back(tmp_path: Path) -> None:
    run = a_run(tmp_path, "rtexts")
    text = random.Random(1).randbytes(3_000_000).hex()
    run.store.runs.add_events([event("log", 1, run="rtexts", message=text)])
    before = size_of(tmp_path / "home")
    assert before > 3_000_000
    assert not compact(tmp_path / "home")
    delete_run(run.store, run.run)
    assert compact(tmp_path / "home")
    assert size_of(tmp_path / "home") < before - 2_500_000
    assert used_of(tmp_path / "home") <= size_of(tmp_path / "home")


def test_states_that_belong_to_nothing_go_when_their_time_is_over(tmp_path: Path) -> None:
    run = a_run(tmp_path, "rkept")
    store = run.store
    state = state_of_step(store, run.run, 1).state_id
    assert state is not None
    for ref in ("runs/rgone", "reports/gone"):
        store.snapshots.hold(ref, state)
    restored = restore_in_place(store, state, run.workspace)
    assert restored.safety_state is not None
    undo = next(ref for ref in store.snapshots.refs() if "undo" in ref)

    def gone_after(days: float) -> set[str]:
        later = NOW + timedelta(days=days)
        return set(clean(store, now=later, dry_run=True).refs)

    assert gone_after(0.5) == set()
    assert gone_after(2) == {"runs/rgone"}
    assert gone_after(20) == {"runs/rgone", "reports/gone", undo}
    assert set(clean(store, now=NOW + timedelta(days=20)).refs) == gone_after(0) | {
        "runs/rgone",
        "reports/gone",
        undo,
    }
    assert store.snapshots.refs() == ["runs/rkept"]


def test_the_files_of_a_report_outlive_its_run(tmp_path: Path) -> None:
    run = a_run(tmp_path, "rone", size=1000)
    state = state_of_step(run.store, run.run, 1).state_id
    assert state is not None
    from repotrace.capture import build_report, run_capture, store_report
    from repotrace.filestate import held_files
    from repotrace.records.command import FileState

    report = build_report(run_capture(["false"], cwd=run.workspace))
    with held_files(run.store, FileState(state_id=state, quality="exact")) as files:
        store_report(report, run.store, files)
    clean(run.store, now=NOW + timedelta(days=99), before=NOW + timedelta(days=99))
    assert ids(run.store) == set()
    assert run.store.snapshots.refs() == [f"reports/{report.id}"]
    assert run.store.snapshots.read(state, "rone") is not None


def test_nothing_is_lost_of_what_is_recorded_meanwhile(tmp_path: Path) -> None:
    """States are taken while another process deletes and packs again and again."""
    for number in range(3):
        a_run(tmp_path, f"rold{number}", hours=number, size=200_000)
    home = tmp_path / "home"
    new = Recorded(tmp_path / "live", home, run="rnew")
    end = threading.Event()
    failures: list[str] = []

    def clean_on() -> None:
        while not end.is_set():
            done = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "repotrace",
                    "--home",
                    home,
                    "runs",
                    "gc",
                    "--max-size",
                    "1",
                ],
                cwd=tmp_path / "work",
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                failures.append(done.stderr)

    cleaner = threading.Thread(target=clean_on)
    cleaner.start()
    try:
        for number in range(25):
            data = random.Random(number).randbytes(50_000)
            new.step(partial((new.workspace / "x").write_bytes, data))
    finally:
        end.set()
        cleaner.join()
    assert failures == []
    assert ids(new.store) == {"rnew"}
    fresh = Store(home)
    for number in range(25):
        state = state_of_step(fresh, new.run, number + 1).state_id
        assert state is not None
        assert fresh.snapshots.read(state, "x") == random.Random(number).randbytes(50_000)
    assert is_sound(fresh.snapshots)


def test_an_empty_home_stays_empty(tmp_path: Path) -> None:
    done = call(tmp_path, tmp_path / "home", "runs", "gc")
    assert done.code == 0
    assert done.stdout == b"0 bytes \xe2\x86\x92 0 bytes: 0 bytes freed\n"
    assert not (tmp_path / "home").exists()
