"""Which mutants break which tests: tried once for each project, kept in the folder of the work."""

from __future__ import annotations

import ast
import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.blame.patches import Mutant, mutants, patched
from benchmarks.blame.projects import Ground, Project

KEPT = 14
"""Mutants for each module."""

TRIED = 60


@dataclass(frozen=True)
class Killed:
    """A mutant, and the tests that notice."""

    mutant: Mutant
    tests: tuple[str, ...]


class Catalogue:
    """The mutants of a project."""

    def __init__(self, ground: Ground, project: Project) -> None:
        self.project = project
        path = ground.work / "catalogue" / f"{project.name}.json"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            found = list(_tried(ground, project))
            lines = [asdict(killed) for killed in found]
            path.write_text(json.dumps(lines, indent=1), encoding="utf-8")
        told = json.loads(path.read_text(encoding="utf-8"))
        self.all = [Killed(Mutant(**one["mutant"]), tuple(one["tests"])) for one in told]

    def one(self, chance: random.Random, fits: Callable[[Killed], bool] | None = None) -> Killed:
        """Some mutant that fits."""
        return chance.choice([one for one in self.all if fits is None or fits(one)])

    def pair(
        self, chance: random.Random, fits: Callable[[Killed, Killed], bool]
    ) -> tuple[Killed, Killed]:
        """Two mutants of different functions that fit together."""
        pairs = [
            (one, other)
            for one in self.all
            for other in self.all
            if (one.mutant.path, one.mutant.function) != (other.mutant.path, other.mutant.function)
            and fits(one, other)
        ]
        return chance.choice(pairs)


def _tried(ground: Ground, project: Project) -> Iterator[Killed]:
    folder = ground.work / "catalogue" / project.name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ground.source(project), folder)
    for module, tests in project.modules.items():
        text = (folder / module).read_bytes()
        chance = random.Random(f"{project.name} {module}")
        before = ground.outcomes(folder, tests)
        if before is None:
            raise SystemExit(f"{project.name}: {tests} does not run")
        passing = {test for test, result in before.items() if result == "passed"}
        candidates = mutants(module, text)
        chance.shuffle(candidates)
        kept = 0
        for mutant in candidates[:TRIED]:
            (folder / module).write_bytes(patched(text, [mutant]))
            after = ground.outcomes(folder, tests, limit=20)
            failed = [] if after is None else [t for t in after if after[t] == "failed"]
            failed = sorted(passing.intersection(failed))
            # One that breaks everything is no mistake that an agent would overlook.
            if 0 < len(failed) <= max(3, len(passing) // 2):
                yield Killed(mutant, tuple(failed))
                kept += 1
            if kept == KEPT:
                break
        (folder / module).write_bytes(text)


def function_of(test: str) -> str:
    """The name of the test function, without class and parameters."""
    return test.partition("::")[2].rpartition("::")[2].partition("[")[0]


def is_plain(test: str) -> bool:
    """Whether the test is a function at the top of its file, without parameters."""
    return test.count("::") == 1 and "[" not in test


def at_the_top(folder: Path, test: str) -> bool:
    """Whether the test is defined just once, at the top of its file."""
    path, _, name = test.partition("::")
    tree = ast.parse((folder / path).read_bytes())
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return names.count(name) == 1
