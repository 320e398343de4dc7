"""Command line of the ground truth: `run`, `report`."""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.blame.bisecting import History
from benchmarks.blame.catalogue import Catalogue
from benchmarks.blame.judging import Costs, grade, proven
from benchmarks.blame.projects import PROJECTS, Ground
from benchmarks.blame.recording import record
from benchmarks.blame.report import write_report
from benchmarks.blame.scenarios import KINDS, STEP, Making, Truth
from benchmarks.blame.work import Work
from repotrace.blame import Candidate, executions_at_most
from repotrace.records.blame import Blame
from repotrace.runs.blame import blame_run
from repotrace.runs.checking.sides import sides_of_run
from repotrace.runs.testing.options import Testing
from repotrace.storage import Store
from repotrace.storage.memo import Execution

COUNTS = {
    "single": 12,
    "flaky 0 to 0.5": 9,
    "unimportable": 6,
    "unimportable around": 6,
    "broken again": 6,
    "generated, ignored": 4,
}
"""Runs of a kind; three of the others."""


def names(seed: int) -> Iterator[str]:
    """The runs in the order in which they are made: each kind soon, on each project in turn."""
    projects = sorted(PROJECTS)
    for turn in range(max(COUNTS.values())):
        for place, kind in enumerate(KINDS):
            if turn < COUNTS.get(kind, 3):
                yield f"{seed} {kind} {turn} {projects[(turn + place) % len(projects)]}"


class Benchmark:
    """Makes runs, and asks."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        ground.prepare()
        self._catalogues: dict[str, Catalogue] = {}

    def catalogue(self, project: str) -> Catalogue:
        if project not in self._catalogues:
            self._catalogues[project] = Catalogue(self.ground, PROJECTS[project])
        return self._catalogues[project]

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        """What is said of a run, one dictionary for each test that was asked about."""
        _, *words, turn, project = name.split(" ")
        kind = " ".join(words)
        chance = random.Random(name)
        # Long runs are as likely as short ones on a logarithmic scale.
        size = round(20 * 10 ** chance.random())
        if kind == "single" and turn in ("0", "1", "2"):
            size = 200
        catalogue = self.catalogue(project)
        place = self.ground.work / "runs" / name.replace(" ", "-").replace(",", "")
        work = Work(self.ground, PROJECTS[project], place / project)
        draws = place / f"draws {name}"
        work.environ["DRAWS"] = str(draws)
        making = Making(work, catalogue, chance, size)
        KINDS[kind](making)
        draws.write_text("")
        started = time.monotonic()
        store, run_id = record(making)
        run = store.runs.get(run_id)
        candidates = sides_of_run(store, run).candidates
        about = {
            "name": name,
            "kind": kind,
            "project": project,
            "steps": size,
            "states": len({one.state_id for one in candidates}),
            "recorded_in": round(time.monotonic() - started, 1),
        }
        history = History(place / "history", store.snapshots, candidates)
        if (work.folder / ".venv").exists():
            (history.folder / ".venv").symlink_to(work.folder / ".venv")
        for truth in making.truths:
            asked = Asked(work, store, run_id, candidates, history, truth)
            yield about | asked.line(draws)


class Asked:
    """One question about one run."""

    def __init__(
        self,
        work: Work,
        store: Store,
        run_id: str,
        candidates: tuple[Candidate, ...],
        history: History,
        truth: Truth,
    ) -> None:
        self._work, self._store, self._run_id = work, store, run_id
        self._candidates, self._history, self._truth = candidates, history, truth
        self._argv = [str(work.python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]

    def line(self, draws: Path) -> dict[str, Any]:
        truth = self._truth
        checked = [self._check(*check) for check in truth.checks]
        if not all(checked):
            raise AssertionError(f"the break is not as it was planted: {truth}")
        draws.write_text("")
        executions: list[Execution] = []
        testing = Testing(
            command=" ".join([*self._argv[:4]]),
            environ=self._work.environ,
            on_execution=executions.append,
        )
        started, cpu = time.monotonic(), time.process_time()
        (blame,) = blame_run(self._store, self._run_id, truth.test, testing=testing)
        found = {
            "truth": asdict(truth) | {"checks": len(truth.checks)},
            "verdict": blame.verdict,
            "named": [step.number for step in blame.steps] if blame.named else [],
            "grade": grade(blame, truth),
            "proven": proven(blame),
            "reason": blame.reason,
            "breaks": [list(one.steps) for one in blame.breaks],
            "first_broken": list(blame.first_broken),
            "blamed_in": round(time.monotonic() - started, 1),
            "own_cpu": round(time.process_time() - cpu, 2),
            "until": sum(max(one.steps, default=0) <= blame.until for one in self._candidates),
            **self._costs(blame, executions),
        }
        if blame.flaky is not None:
            found["flaky"] = blame.flaky.model_dump(mode="json")
        if truth.hunk and blame.breaks and blame.breaks[0].hunks is not None:
            lines = [line for hunk in blame.breaks[0].hunks for line in hunk.lines]
            found["hunks"] = len(blame.breaks[0].hunks)
            found["hunk_steps"] = sorted({hunk.step or 0 for hunk in blame.breaks[0].hunks})
            found["hunks_of"] = blame.breaks[0].hunks_of
            found["hunk_right"] = f"+{truth.hunk}" in lines
        return found | {"git": self._git(draws)}

    def _check(self, step: int, passes: bool) -> bool:
        index = self._history.index_after(step, self._candidates)
        return self._history.passes(index, [*self._argv, self._truth.test], self._env) is passes

    @property
    def _env(self) -> dict[str, str]:
        return self._work.environ

    def _costs(self, blame: Blame, executions: list[Execution]) -> dict[str, Any]:
        costs = Costs(self._truth.test, executions)
        told: dict[str, Any] = {"executions": costs.executions, "reductions": costs.reductions}
        if blame.breaks and len(blame.breaks[0].steps) == 1:
            first = blame.breaks[0]
            ends = {max(one.steps, default=0): one.state_id for one in self._candidates}
            low, high = ends[first.passes_after], ends[first.fails_after]
            given = first.given_passed, first.given_failed
            told["to_likely"] = costs.until(low, high, 3, given)
            told["to_proven"] = costs.until(low, high, 7, given)
            told["allowed"] = executions_at_most(len(self._candidates))
        return told

    def _git(self, draws: Path) -> dict[str, Any]:
        argv, end = [*self._argv, self._truth.test], self._truth.bad
        if end == 0:
            return {"step": None, "executions": 0, "codes": "", "seconds": 0, "grade": "not asked"}
        bad = -1 if end is None else self._history.index_after(end, self._candidates)
        draws.write_text("")
        plain = self._history.bisect(argv, self._env, bad=bad)
        told: dict[str, Any] = asdict(plain) | {"codes": "".join(map(str, plain.codes))}
        told["seconds"] = round(plain.seconds, 1)
        told["grade"] = self._grade_of(plain.step)
        if set(plain.codes) - {0, 1}:
            draws.write_text("")
            careful = self._history.bisect(argv, self._env, bad=bad, careful=True)
            told["careful"] = {
                "step": careful.step,
                "executions": careful.executions,
                "grade": self._grade_of(careful.step),
            }
        return told

    def _grade_of(self, step: int | None) -> str:
        truth = self._truth
        if step is None:
            return "open"
        right = {truth.step, *truth.also} if truth.expected in (STEP, "range") else {truth.step}
        return "exact" if step in right else "wrong"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.blame")
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--work", type=Path, required=True, help="a folder for all that is made")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=1000, help="so many runs in this call")
    parser.add_argument("--only", default="", help="runs whose names have this in them")
    given = parser.parse_args()
    os.nice(10)
    log = given.work.resolve() / "log.jsonl"
    if given.what == "report":
        write_report(log, Path(__file__).parents[2] / "docs")
        return
    benchmark = Benchmark(Ground(given.work.resolve()))
    known = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    done = {json.loads(line)["name"] for line in known}
    wanted = [name for name in names(given.seed) if name not in done and given.only in name]
    for name in wanted[: given.most]:
        started = time.monotonic()
        lines = list(benchmark.lines(name))
        with log.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        for line in lines:
            print(
                f"{name}: {line['grade']} {line['verdict']} {line['named']}"
                f" of {line['truth']['step']}, {line['executions']}+{line['reductions']};"
                f" git {line['git']['grade']} {line['git']['executions']};"
                f" {time.monotonic() - started:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
