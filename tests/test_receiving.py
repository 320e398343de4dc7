"""A run from elsewhere comes whole or not at all, on a full disk and where the import is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from reading import project, record
from recording import NOON, RUN, event, step
from running import Shell, clean_environment
from storing import mounted

from repotrace.errors import RepoTraceError
from repotrace.runs.export.exporting import Format, export_run
from repotrace.runs.export.selection import ExportOptions
from repotrace.runs.receiving import receive
from repotrace.storage import Store
from repotrace.storage.received import Origin

WHOLE = ExportOptions()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A run whose records take more than one transaction."""
    store = record(project(tmp_path_factory.mktemp("there") / "invoice")).store
    texts = (os.urandom(80).hex() for _ in range(2_500))
    store.runs.add_events(
        [one for n in range(500) for one in step(f"s{n}", 30 + n, 30.5 + n, description=f"{n}")]
        + [event("log", 2_000 + n, message=text) for n, text in enumerate(texts)]
    )
    yield store
    store.close()


def written(store: Store, folder: Path, form: Format) -> Path:
    file = folder / f"run.{form}"
    file.write_bytes(export_run(store, store.runs.get(RUN), form, WHOLE))
    return file


def nothing_is_here(store: Store) -> bool:
    refs = store.snapshots.path / "refs" / "repotrace" / "runs" / RUN
    return store.runs.named(RUN) is None and not refs.exists()


@pytest.mark.parametrize("form", ["json", pytest.param("bundle", marks=pytest.mark.slow)])
def test_a_full_disk_keeps_no_half_of_a_run(recorded: Store, tmp_path: Path, form: Format) -> None:
    file = written(recorded, tmp_path, form)
    there = recorded.runs.trace(RUN)
    for kilobytes in (100, 900, 1_400, 2_000):
        with mounted(tmp_path / f"disk {kilobytes}", f"size={kilobytes}k") as disk:
            store = Store(disk / "home")
            came = False
            with suppress(RepoTraceError):
                came = receive(store, file, now=NOON).is_new
            origin = store.received.origin("run", RUN)
            assert came or nothing_is_here(store) or (origin is not None and origin.arriving)
            assert not came or kilobytes > 900
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            assert receive(store, file, now=NOON).is_new is not came
            assert store.runs.trace(RUN) == there
            assert not receive(store, file, now=NOON).is_new
            store.close()


def test_an_import_that_was_killed_is_done_anew(recorded: Store, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    file = written(recorded, tmp_path, "bundle")
    home = tmp_path / "elsewhere"
    command = [sys.executable, "-m", "repotrace", "--home", str(home), "import", str(file)]
    there = recorded.runs.trace(RUN)
    store = Store(home)
    with subprocess.Popen(
        command,
        cwd=shell.cwd,
        env=clean_environment(shell.home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as child:
        while child.poll() is None and store.runs.named(RUN) is None:
            time.sleep(0.001)
        child.send_signal(signal.SIGKILL)
    if child.returncode == 0:
        pytest.skip("the import was faster than the signal")
    got = receive(store, file, now=NOON)
    assert (got.is_new, got.states) == (True, 3)
    assert store.runs.trace(RUN) == there
    store.close()


def test_what_never_came_whole_gives_way(recorded: Store, tmp_path: Path) -> None:
    """As a killed import leaves it."""
    file = written(recorded, tmp_path, "bundle")
    store = Store(tmp_path / "elsewhere")
    store.received.note("run", RUN, Origin("run.bundle", NOON, arriving=True))
    store.runs.add_events([event("run_started", task="half"), event("log", message="half")])
    got = receive(store, file, now=NOON, dry_run=True)
    assert got.is_new
    assert store.runs.get(RUN).task == "half"
    assert receive(store, file, now=NOON).is_new
    assert store.runs.trace(RUN) == recorded.runs.trace(RUN)
    assert store.received.origin("run", RUN) == Origin(file.name, NOON)
    store.close()
