"""CPU time of snapshots against bare git in the same run.

    python benchmarks/snapshots.py --sizes 200,5000

Every figure is the median CPU time in milliseconds, children included, of this process. Bare
git is `git add -A && git write-tree` with a git folder and an index of its own, on the same
files in the same condition. Each look of both kinds follows the same edit.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from repotrace.system.scratch import Scratch
from repotrace.system.snapshots import SnapshotStore

EDITED = (0, 1, 10)


def cpu_ms(work: Callable[[], object]) -> float:
    """CPU milliseconds of `work`, with those of the processes that it waited for."""
    before = used()
    work()
    return 1000 * (used() - before)


def used() -> float:
    """CPU seconds so far; `os.times` would count in hundredths."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def make_tree(root: Path, files: int) -> list[Path]:
    """`files` sources of some 2 KB, twenty to a folder."""
    chance = random.Random(files)
    paths = []
    for number in range(files):
        folder = root / f"package{number // 400}" / f"module{number // 20 % 20}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"file{number}.py"
        lines = (f"value_{n} = {chance.random()}\n" for n in range(70))
        path.write_text("".join(lines))
        paths.append(path)
    return paths


def git_environment(**more: object) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    added = {key: str(value) for key, value in more.items()}
    return {**kept, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, **added}


class Bare:
    """`git add -A && git write-tree` on the same work tree."""

    def __init__(self, folder: Path, workspace: Path) -> None:
        self.workspace = workspace
        subprocess.run(
            ["git", "init", "-q", "--bare", str(folder)], env=git_environment(), check=True
        )
        self.env = git_environment(
            GIT_DIR=folder, GIT_INDEX_FILE=folder / "own-index", GIT_WORK_TREE=workspace
        )

    def take(self) -> None:
        for command in (["git", "add", "-A"], ["git", "write-tree"]):
            subprocess.run(
                command, cwd=self.workspace, env=self.env, check=True, capture_output=True
            )


def edit(paths: Sequence[Path], number: int, chance: random.Random) -> None:
    for path in chance.sample(paths, number):
        path.write_text(path.read_text() + f"changed = {chance.random()}\n")


def looks(
    bare: Bare, store: SnapshotStore, paths: Sequence[Path], number: int, rounds: int
) -> tuple[float, float]:
    """Medians of bare git and of ours, for `number` files changed since the last look."""
    chance = random.Random(number)
    theirs, ours = [], []
    for turn in range(rounds):
        edit(paths, number, chance)
        pair = [
            lambda: theirs.append(cpu_ms(bare.take)),
            lambda: ours.append(cpu_ms(lambda: take(store, bare.workspace))),
        ]
        for measure in pair if turn % 2 else reversed(pair):
            measure()
    return statistics.median(theirs), statistics.median(ours)


def take(store: SnapshotStore, workspace: Path) -> str:
    snapshot = store.take(workspace, ref="runs/rbench")
    if snapshot.state_id is None:
        sys.exit(f"missed: {snapshot.reason}")
    return snapshot.state_id


def first_look(base: Path, workspace: Path, rounds: int) -> float:
    """The first snapshot of a tree that the user's own index knows."""
    found = []
    for number in range(rounds):
        with SnapshotStore(base / f"first{number}") as store:
            found.append(cpu_ms(lambda store=store: take(store, workspace)))
    return statistics.median(found)


def moves(
    base: Path, store: SnapshotStore, workspace: Path, paths: Sequence[Path], rounds: int
) -> float:
    """A scratch folder to a random state of a run of 200 steps, per move."""
    chance = random.Random(7)
    states = [take(store, workspace)]
    for _ in range(200):
        edit(paths, chance.randint(1, 3), chance)
        states.append(take(store, workspace))
    store.close()
    with SnapshotStore(store.path) as fresh, Scratch(fresh, base / "scratch") as scratch:
        scratch.goto(states[0])
        fresh.close()

        def wander() -> None:
            for _ in range(rounds):
                scratch.goto(chance.choice(states))
            fresh.close()  # what its companions used counts only once they have ended

        return cpu_ms(wander) / rounds


def report(label: str, theirs: float | None, ours: float, limit: str, met: bool) -> None:
    bare = f"{theirs:9.1f}" if theirs is not None else "        -"
    ratio = f"{ours / theirs:6.2f}x" if theirs else "      -"
    print(f"{label:38} {bare} {ours:9.1f} {ratio}   {limit:14} {'met' if met else 'MISSED'}")


def measure(size: int, rounds: int, scratch: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        workspace = base / "workspace"
        paths = make_tree(workspace, size)
        user = git_environment()
        for command in (["git", "init", "-q"], ["git", "add", "-A"]):
            subprocess.run(command, cwd=workspace, env=user, check=True)
        time.sleep(2.5)  # else every file is as young as the index, and is read again
        subprocess.run(["git", "update-index", "--refresh"], cwd=workspace, env=user, check=True)
        (workspace / "new.txt").write_text("so that the index is written once more\n")
        subprocess.run(["git", "add", "-A"], cwd=workspace, env=user, check=True)
        identity = ["-c", "user.name=B", "-c", "user.email=b@example.org"]
        commit = ["git", *identity, "commit", "-q", "-m", "start"]
        subprocess.run(commit, cwd=workspace, env=user, check=True)
        bare = Bare(base / "bare", workspace)
        theirs = cpu_ms(bare.take)
        ours = first_look(base, workspace, 3)
        limit = "<= 0.10x" if size >= 5000 else "-"
        report(f"{size} files, first of an indexed tree", theirs, ours, limit,
               size < 5000 or ours <= 0.1 * theirs)  # fmt: skip
        with SnapshotStore(base / "store") as store:
            take(store, workspace)
            time.sleep(2.5)
            looks(bare, store, paths, 1, 2)
            for number in EDITED:
                theirs, ours = looks(bare, store, paths, number, rounds)
                met = ours <= 1.3 * theirs if size >= 5000 else ours <= theirs + 6
                limit = "<= 1.30x" if size >= 5000 else "<= +6 ms"
                report(f"{size} files, {number} changed", theirs, ours, limit, met)
            if scratch:
                ours = moves(base, store, workspace, paths, 200)
                limit = "<= 10 ms" if size <= 5000 else "-"
                report(f"{size} files, scratch to a random state", None, ours, limit,
                       size > 5000 or ours <= 10)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="200,5000", help="numbers of files, by commas")
    parser.add_argument("--rounds", type=int, default=15, help="looks per figure")
    parser.add_argument("--no-scratch", action="store_true", help="leave out the scratch")
    options = parser.parse_args()
    print(f"{'CPU ms (median)':38} {'bare git':>9} {'ours':>9} {'ratio':>7}   {'target':14}")
    for size in options.sizes.split(","):
        measure(int(size), options.rounds, not options.no_scratch)


if __name__ == "__main__":
    main()
