"""What a key costs on the screen of `play`, in a long run and at a long output.

    .venv/bin/python benchmarks/play.py [--steps 10000] [--megabytes 50] [--rounds 20]

A temporary home gets a run as in `runs.py`, then steps that change files of a work tree of 2,000
with a state each, and a command that prints 50 MB. The screen is driven by keys without a
terminal; a figure is the CPU of this process from the key until all that it asked for is shown,
in all threads, and of the git processes that ended.

To reach: a step change under 100 ms, whatever tab is in front; and a search that tells of what it
has found within a second, though nothing is indexed yet.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import tempfile
from pathlib import Path

from runs import RUN, fill

from repotrace.journal import Journal, new_id
from repotrace.read.playing import PlayedRun
from repotrace.records.events import Kind
from repotrace.storage import Store
from repotrace.tui.opening import spare_what_stays
from repotrace.tui.options import PlayOptions
from repotrace.tui.play import PlayApp

FILES = 2_000
STATES = 30
TEST_RUNS = 12
LIMIT = 0.1


def add_states(store: Store, workspace: Path) -> None:
    """Steps that change a file each, with what the files were before and after."""
    for number in range(FILES):
        path = workspace / f"package_{number % 40}" / f"module_{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"def work_{n}(): return {n * number}\n" for n in range(40)))
    with Journal(store.home / "journal") as journal:
        before = store.snapshots.take(workspace, ref=f"runs/{RUN}").state_id
        for number in range(STATES):
            name = new_id()
            begun = {"id": name, "step_type": "edit", "description": f"edit {number}"}
            journal.write(Kind.STEP_STARTED, RUN, begun)
            state = {"step_id": name, "state_id": before, "state_quality": "exact"}
            journal.write(Kind.STATE, RUN, {**state, "when": "start"})
            path = workspace / f"package_{number % 40}" / f"module_{number}.py"
            path.write_text(path.read_text().replace("return", "return 1 +", 20))
            before = store.snapshots.take(workspace, ref=f"runs/{RUN}").state_id
            journal.write(Kind.STATE, RUN, {**state, "state_id": before})
            journal.write(Kind.STEP_ENDED, RUN, {"id": name})
    store.runs.ingest(wait=True)


def add_output(store: Store, megabytes: int) -> None:
    """A command that printed much."""
    rows = (f"{number:>9} \x1b[32mok\x1b[0m {'word ' * (number % 20)}" for number in range(20_000))
    text = "\n".join(rows)
    output = text * (megabytes * 1_000_000 // len(text) + 1)
    name = new_id()
    with Journal(store.home / "journal") as journal:
        begun = {"id": name, "step_type": "command", "description": "print much"}
        journal.write(Kind.STEP_STARTED, RUN, begun)
        command = {"argv": ["make"], "stdout": output, "exit_code": 0}
        journal.write(Kind.COMMAND, RUN, {"step_id": name, "command": command})
        journal.write(Kind.STEP_ENDED, RUN, {"id": name})
    store.runs.ingest(wait=True)


def add_tests(store: Store, tests: int) -> None:
    """Steps that run very many tests, of which a few fail now and then."""
    for number in range(TEST_RUNS):
        name = new_id()
        with Journal(store.home / "journal") as journal:
            begun = {"id": name, "step_type": "test", "description": f"all tests {number}"}
            journal.write(Kind.STEP_STARTED, RUN, begun)
            for test in range(tests):
                bad = test % 499 == number
                outcome = {"outcome": "failed", "message": "assert 1 == 2"} if bad else {}
                facts = {"node_id": f"many/test_{test % 99}.py::test_{test}", "outcome": "passed"}
                journal.write(Kind.TEST, RUN, {"step_id": name, **facts, **outcome})
            journal.write(Kind.STEP_ENDED, RUN, {"id": name})
        store.runs.ingest(wait=True)


def spent() -> float:
    """Seconds of CPU of this process, and of its children that ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Meter:
    """Presses keys and tells what they took."""

    def __init__(self, app: PlayApp, pilot: object) -> None:
        self.app = app
        self._pause = pilot.pause  # type: ignore[attr-defined]
        self._press = pilot.press  # type: ignore[attr-defined]

    async def key(self, *keys: str) -> float:
        """CPU seconds until everything is shown."""
        started = spent()
        await self._press(*keys)
        await self._pause()
        await self.app.workers.wait_for_complete()
        await self._pause()
        return spent() - started

    async def report(self, name: str, key: str, rounds: int) -> None:
        """The same key again and again."""
        taken = [await self.key(key) for _ in range(rounds)]
        middle, most = statistics.median(taken), max(taken)
        said = "met" if middle < LIMIT else "MISSED"
        print(f"{name:44} {middle * 1000:6.0f} ms {most * 1000:6.0f} ms  < 100 ms: {said}")

    async def once(self, name: str, *keys: str) -> None:
        """Something that is done once."""
        print(f"{name:44} {await self.key(*keys) * 1000:6.0f} ms")

    async def search(self, word: str) -> None:
        """Words that are typed, until the first step with them is shown, and until all are."""
        await self._press("slash", *word)
        started = spent()
        await self._press("enter")
        while self.app.search is None or not self.app.search.has_arrived:
            await self._pause(0.01)
        first = spent() - started
        await self.app.workers.wait_for_complete()
        await self._pause()
        said = "met" if first < 1 else "MISSED"
        name = f"search {word}: the first step"
        print(f"{name:44} {first * 1000:6.0f} ms            < 1 s: {said}")
        name = f"search {word}: all of them"
        print(f"{name:44} {(spent() - started) * 1000:6.0f} ms")


async def drive(store: Store, rounds: int) -> None:
    """All that is measured."""
    started = spent()
    app = PlayApp(PlayedRun(store, store.runs.get(RUN)), PlayOptions())
    spare_what_stays()
    async with app.run_test(size=(120, 40)) as pilot:
        meter = Meter(app, pilot)
        await meter.key("home")
        print(f"{'opened':44} {(spent() - started) * 1000:6.0f} ms")
        print(f"{'':44} {'median':>9} {'most':>9}")
        for number, tab in enumerate(app.tabs, start=1):
            await meter.key("escape", str(number), "escape")
            await meter.report(f"next step, {tab}", "n", rounds)
        middle = len(app.played) // 2
        await meter.key("j", *str(middle), "enter")
        for number, tab in enumerate(app.tabs, start=1):
            await meter.key("escape", str(number), "escape")
            await meter.report(f"next step in the middle, {tab}", "n", rounds)
        await meter.key("1", "escape", "end")
        for number, tab in ((3, "Files"), (4, "Diff")):
            await meter.key("escape", str(number), "escape")
            await meter.report(f"previous step, {FILES} files, {tab}", "p", min(rounds, STATES))
        await meter.key("1", "escape", "end")
        await meter.key("p", "6", "escape")
        await meter.once("the first of them, Tests", "p")
        await meter.report("previous step of 5,000 tests, Tests", "p", TEST_RUNS - 2)
        await meter.key("1", "escape", "end")
        await meter.once("the long output opened", "5", "tab")
        await meter.report("a page down in it", "pagedown", rounds)
        await meter.once("to its end", "end")
        await meter.report("a page up in it", "pageup", rounds)
        await meter.key("1", "escape", "home")
        await meter.report("a page of the list", "pagedown", rounds)
        await meter.once("next failure", "e")
        await meter.search("module")
        await meter.search("module_299")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--tests", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace"
        workspace.mkdir()
        store = Store(Path(folder) / "home")
        fill(store, workspace, options.steps, 10_000 * options.steps)
        add_states(store, workspace)
        add_tests(store, options.tests)
        add_output(store, options.megabytes)
        asyncio.run(drive(store, options.rounds))
        store.close()


if __name__ == "__main__":
    main()
