"""What is planted in the runs, and what the right answer is."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.blame.catalogue import Catalogue, Killed, at_the_top, function_of, is_plain
from benchmarks.blame.environments import make_environment, wheel
from benchmarks.blame.patches import Entry, Mutant, Patch, Unfinished, Without, mutants, patched
from benchmarks.blame.work import Work

STEP = "step"
"""The answer is a step."""
RANGE = "range"
"""The answer is a range with the step in it: more cannot be told."""
NONE = "no step"
"""There is no step to be named."""


@dataclass(frozen=True)
class Truth:
    """The right answer for one test."""

    test: str
    expected: str
    """STEP, RANGE, NONE, or the verdict."""
    step: int | None = None
    also: tuple[int, ...] = ()
    """Further steps that broke the test: to name one of them is not wrong."""
    first: int | None = None
    """Where it was broken first, if it was repaired in between."""
    hunk: str = ""
    """The line that breaks the test, as it reads after the step."""
    deterministic: bool = True
    bounded: bool = True
    """Whether the bounds on executions are promised: none that could not be run, no other break."""
    bad: int | None = None
    """The last step after which it is known to fail, for git; None: the end. 0: it never is."""
    checks: tuple[tuple[int, bool], ...] = ()
    """Steps, and whether the test passes after each, for a plain pytest to confirm."""


@dataclass
class Action:
    """One step of a run."""

    what: str
    change: Callable[[Work], object] | None = None
    shell: bool = False
    """Whether a command makes the change, and not the agent's own editing."""
    line: str = ""
    """A command, in place of a change."""
    tests: tuple[str, ...] = ()
    """Tests to run, in place of a change."""


@dataclass
class Making:
    """A run in the making."""

    work: Work
    catalogue: Catalogue
    chance: random.Random
    size: int
    actions: dict[int, Action] = field(default_factory=dict)
    truths: list[Truth] = field(default_factory=list)

    def at(self, number: int, action: Action) -> None:
        assert number not in self.actions
        self.actions[number] = action

    def places(self, count: int, *, apart: int = 2) -> list[int]:
        """Numbers of steps, in order, with some between; none is the last."""
        room = self.size - 2 - (count - 1) * apart
        chosen = sorted(self.chance.sample(range(room), count))
        return [2 + place + number * apart for number, place in enumerate(chosen)]

    def breaks(self, number: int, killed: Killed, *, shell: bool = False) -> str:
        """Let a step put a mutant in, among harmless changes; the line that breaks."""
        mutant, chance = killed.mutant, self.chance
        extra = 0 if shell else chance.choice((0, 0, 1, 2, 3))

        def change(work: Work) -> None:
            work.comments(chance, number, mutant.path, extra)
            work.apply(mutant)

        self.at(number, Action(f"rework {mutant.function}", change, shell=shell))
        return changed_line(self.work.text(mutant.path), mutant)

    def repairs(self, number: int, patch: Patch) -> None:
        self.at(number, Action("repair it", lambda work: work.drop(patch)))

    def test(self, killed: Killed) -> str:
        return self.chance.choice(killed.tests)

    def new_test(self) -> Killed:
        """A mutant that a plain function of a test file notices."""
        folder = self.work.folder

        def fits(one: Killed) -> bool:
            return any(is_plain(test) and at_the_top(folder, test) for test in one.tests)

        killed = self.catalogue.one(self.chance, fits)
        tests = [test for test in killed.tests if is_plain(test) and at_the_top(folder, test)]
        return Killed(killed.mutant, (self.chance.choice(tests),))


def changed_line(text: bytes, mutant: Mutant) -> str:
    """The first line that a mutant makes."""
    start = mutant.edits(text)[0].start
    line = patched(text, [mutant])[:start].count(b"\n")
    return patched(text, [mutant]).split(b"\n")[line].decode()


def flip(
    test: str, step: int, last: int, *, hunk: str = "", base: bool = True, bounded: bool = True
) -> Truth:
    """It passes before the step and fails from it on."""
    checks = ((step - 1, True), (step, False), (last, False))
    return Truth(
        test,
        STEP,
        step,
        hunk=hunk,
        bounded=bounded,
        checks=((0, True), *checks) if base else checks,
    )


# --- One break, and several --------------------------------------------------------------------


def single(make: Making) -> None:
    killed = make.catalogue.one(make.chance)
    (place,) = make.places(1)
    hunk = make.breaks(place, killed)
    make.truths.append(flip(make.test(killed), place, make.size, hunk=hunk))


def seen(make: Making) -> None:
    """The agent ran the test now and then, but never after it had broken it."""
    killed = make.catalogue.one(make.chance)
    place = make.chance.randrange(max(10, make.size // 2), make.size - 1)
    hunk = make.breaks(place, killed)
    test = make.test(killed)
    for number in sorted(make.chance.sample(range(2, place - 1), 3)):
        make.at(number, Action("run the test", tests=(test,)))
    make.truths.append(flip(test, place, make.size, hunk=hunk))


def two_tests(make: Making) -> None:
    """Two breaks of two tests."""

    def apart(one: Killed, other: Killed) -> bool:
        return bool(set(one.tests) - set(other.tests) and set(other.tests) - set(one.tests))

    pair = make.catalogue.pair(make.chance, apart)
    for place, own, other in zip(make.places(2), pair, reversed(pair), strict=True):
        hunk = make.breaks(place, own)
        tests = sorted(set(own.tests) - set(other.tests))
        make.truths.append(flip(make.chance.choice(tests), place, make.size, hunk=hunk))


def one_test_twice(make: Making) -> None:
    """Two breaks of one test: mending one of them would not do."""

    def shared(one: Killed, other: Killed) -> bool:
        return bool(set(one.tests) & set(other.tests))

    pair = make.catalogue.pair(make.chance, shared)
    first, second = make.places(2)
    for place, killed in zip((first, second), pair, strict=True):
        make.breaks(place, killed)
    test = make.chance.choice(sorted(set(pair[0].tests) & set(pair[1].tests)))
    checks = ((0, True), (first - 1, True), (first, False), (make.size, False))
    make.truths.append(Truth(test, STEP, first, also=(second,), bounded=False, checks=checks))


def broken_again(make: Making) -> None:
    """Broken, repaired, broken again: by the same mistake or by another one."""
    killed = make.catalogue.one(make.chance)
    test = make.test(killed)
    again = make.catalogue.one(make.chance, lambda one: test in one.tests)
    first, repair, last = make.places(3)
    make.breaks(first, killed)
    make.repairs(repair, killed.mutant)
    hunk = make.breaks(last, again)
    checks = ((first, False), (repair, True), (last - 1, True), (last, False), (make.size, False))
    make.truths.append(
        Truth(test, STEP, last, first=first, hunk=hunk, bounded=False, checks=checks)
    )


def repaired(make: Making) -> None:
    """Broken and repaired, and nobody saw it."""
    killed = make.catalogue.one(make.chance)
    first, repair = make.places(2)
    make.breaks(first, killed)
    make.repairs(repair, killed.mutant)
    checks = ((first, False), (repair, True), (make.size, True))
    make.truths.append(
        Truth(make.test(killed), "not-reproducible", bounded=False, bad=0, checks=checks)
    )


def repaired_and_seen(make: Making) -> None:
    """Broken, seen to be broken by the agent itself, repaired, seen to be repaired."""
    killed = make.catalogue.one(make.chance)
    first, see, repair, last = make.places(4)
    test = make.test(killed)
    hunk = make.breaks(first, killed)
    make.at(see, Action("run the test", tests=(test,)))
    make.repairs(repair, killed.mutant)
    make.at(last, Action("run the test", tests=(test,)))
    checks = ((first - 1, True), (first, False), (make.size, True))
    make.truths.append(Truth(test, STEP, first, hunk=hunk, bounded=False, bad=see, checks=checks))


def broken_before(make: Making) -> None:
    killed = make.catalogue.one(make.chance)
    make.work.apply(killed.mutant)
    checks = ((0, False), (make.size, False))
    make.truths.append(
        Truth(make.test(killed), "broken-before", bounded=False, bad=0, checks=checks)
    )


# --- Tests that are new, or changed ------------------------------------------------------------


def new_then_broken(make: Making) -> None:
    """The test is added, and broken later."""
    killed = make.new_test()
    test = killed.tests[0]
    missing = Without(test.partition("::")[0], function_of(test))
    make.work.apply(missing)
    added, place = make.places(2)
    make.at(added, Action(f"add {function_of(test)}", lambda work: work.drop(missing)))
    hunk = make.breaks(place, killed)
    make.truths.append(flip(test, place, make.size, hunk=hunk, base=False))


def broken_then_new(make: Making) -> None:
    """The test is added when what it is about is broken already."""
    killed = make.new_test()
    test = killed.tests[0]
    missing = Without(test.partition("::")[0], function_of(test))
    make.work.apply(missing)
    place, added = make.places(2)
    hunk = make.breaks(place, killed)
    make.at(added, Action(f"add {function_of(test)}", lambda work: work.drop(missing)))
    make.truths.append(Truth(test, STEP, place, hunk=hunk, checks=((make.size, False),)))


def never_passed(make: Making) -> None:
    """A new test for something that nobody has written yet."""
    file = make.chance.choice(sorted(make.work.project.modules.values()))
    (added,) = make.places(1)
    module = next(m for m, tests in make.work.project.modules.items() if tests == file)
    name = module.removesuffix(".py").replace("/", ".")
    body = f"\n\ndef test_of_the_new_thing():\n    import {name} as it\n\n"
    body += '    assert hasattr(it, "the_new_thing")\n'

    def change(work: Work) -> None:
        work.put(file, work.text(file) + body.encode())

    make.at(added, Action("write the test first", change))
    make.truths.append(
        Truth(f"{file}::test_of_the_new_thing", "never-passed", added, bounded=False)
    )


def test_changed(make: Making) -> None:
    """The test expects something else now, and the code is as good as it was."""
    killed = make.new_test()
    test = killed.tests[0]
    path, name = test.partition("::")[0], function_of(test)
    ground, folder = make.work.ground, make.work.folder
    own = [one for one in mutants(path, make.work.text(path)) if one.function == name]
    make.chance.shuffle(own)
    for mutant in own:
        (folder / path).write_bytes(patched(make.work.text(path), [mutant]))
        told = ground.outcomes(folder, test)
        (folder / path).write_bytes(make.work.text(path))
        if told == {test: "failed"}:
            break
    else:
        raise LookupError(f"no mutant of {test} makes it fail")
    (place,) = make.places(1)
    make.at(place, Action(f"sharpen {name}", lambda work: work.apply(mutant)))
    checks = ((0, True), (place - 1, True), (place, False), (make.size, False))
    make.truths.append(Truth(test, "test-changed", place, bounded=False, checks=checks))


def fixture_changed(make: Making) -> None:
    """A fixture that all tests of the folder use fails now."""
    test = make.test(make.catalogue.one(make.chance))
    folder = test.partition("::")[0].rpartition("/")[0]
    path = f"{folder}/conftest.py"
    old = make.work.text(path) if (make.work.folder / path).exists() else b"import pytest\n"
    make.work.put(path, old)
    new = b"\n\nimport pytest as _pytest\n\n\n@_pytest.fixture(autouse=True)\ndef database():\n"
    new += b'    raise RuntimeError("there is no database")\n'
    (place,) = make.places(1)
    make.at(place, Action("ask for a database", lambda work: work.put(path, old + new)))
    checks = ((0, True), (place - 1, True), (place, False), (make.size, False))
    make.truths.append(Truth(test, "test-changed", place, bounded=False, checks=checks))


def test_edited(make: Making) -> None:
    """The test file was edited too, to no effect."""
    killed = make.catalogue.one(make.chance)
    test = make.test(killed)
    file = test.partition("::")[0]
    first, place, last = make.places(3)

    def tidy(work: Work) -> None:
        work.comments(make.chance, place, file, 2)

    for number in (first, last):
        make.at(number, Action("tidy the tests", tidy))
    hunk = make.breaks(place, killed)
    make.truths.append(flip(test, place, make.size, hunk=hunk))


# --- States that can't be run ------------------------------------------------------------------


def _unfinished(make: Making, killed: Killed, start: int, end: int) -> None:
    patch = Unfinished(killed.mutant.path)
    make.at(start, Action("begin a function", lambda work: work.apply(patch)))
    make.at(end, Action("take it back", lambda work: work.drop(patch)))


def unimportable(make: Making) -> None:
    """A stretch of states with a syntax error, away from the break."""
    killed = make.catalogue.one(make.chance)
    places = make.places(3, apart=3)
    if make.chance.random() < 0.5:
        start, end, place = places
    else:
        place, start, end = places
    _unfinished(make, killed, start, end)
    hunk = make.breaks(place, killed)
    make.truths.append(flip(make.test(killed), place, make.size, hunk=hunk, bounded=False))


def unimportable_around(make: Making) -> None:
    """The break is made where nothing can be imported."""
    killed = make.catalogue.one(make.chance)
    start, place, end = make.places(3, apart=3)
    _unfinished(make, killed, start, end)
    hunk = make.breaks(place, killed)
    checks = ((start - 1, True), (end, False), (make.size, False))
    make.truths.append(
        Truth(make.test(killed), RANGE, place, hunk=hunk, bounded=False, checks=checks)
    )


# --- Other hands -------------------------------------------------------------------------------


def by_shell(make: Making) -> None:
    """The break comes with a command, not with an edit."""
    killed = make.catalogue.one(make.chance)
    (place,) = make.places(1)
    hunk = make.breaks(place, killed, shell=True)
    make.truths.append(flip(make.test(killed), place, make.size, hunk=hunk))


GENERATOR = '''"""Writes limits.py from limits.txt."""

from pathlib import Path

value = Path("limits.txt").read_text().strip()
Path("{module}").write_text(f"# Generated by generate.py\\nMOST = {{value}}\\n")
'''


def generated(make: Making) -> None:
    """The agent edits what a file is generated from, and generates it later."""
    killed = make.catalogue.one(make.chance)
    function = killed.mutant
    guard = 'if __import__("limits").MOST < 3: raise ValueError("over the limit")'
    make.work.apply(Entry(function.path, function.function, guard))
    make.work.put("limits.txt", "9\n")
    make.work.put("limits.py", "# Generated by generate.py\nMOST = 9\n")
    make.work.put("generate.py", GENERATOR.format(module="limits.py"))
    edited, place = make.places(2)
    make.at(edited, Action("lower the limit", lambda work: work.put("limits.txt", "2\n")))
    python = make.work.python
    make.at(place, Action("generate", line=f"{python} generate.py"))
    make.truths.append(flip(make.test(killed), place, make.size, hunk="MOST = 2"))


def generated_and_ignored(make: Making) -> None:
    """What the tests need is generated, and git ignores it: no state has it."""
    killed = make.catalogue.one(make.chance)
    function = killed.mutant
    if make.chance.random() < 0.5:
        name, text = "limits.py", "MOST = 9\n"
        guard = 'assert __import__("limits").MOST > 3'
    else:
        name, text = "limits.json", "[9]\n"
        guard = 'assert open("limits.json").read()'
    make.work.put(".gitignore", make.work.text(".gitignore") + f"{name}\n".encode())
    make.work.put(name, text)
    make.work.apply(Entry(function.path, function.function, guard))
    make.truths.append(
        Truth(make.test(killed), "depends-on-uncaptured-files", bounded=False, bad=0)
    )


def ignored_from_then(make: Making) -> None:
    """From some step on the code needs a file that was generated then and that git ignores.

    Where the agent worked it passes to the end: the step is not to blame.
    """
    killed = make.catalogue.one(make.chance)
    function = killed.mutant
    name = make.chance.choice(("limits.py", "limits.json"))
    guards = {
        "limits.py": 'assert __import__("limits").MOST > 3',
        "limits.json": 'assert open("limits.json").read()',
    }
    make.work.put(".gitignore", make.work.text(".gitignore") + f"{name}\n".encode())
    (place,) = make.places(1)

    def change(work: Work) -> None:
        work.put(name, "MOST = 9\n")
        work.apply(Entry(function.path, function.function, guards[name]))

    make.at(place, Action("have limits", change))
    make.truths.append(
        Truth(make.test(killed), "depends-on-uncaptured-files", bounded=False, bad=0)
    )


def environment_changed(make: Making) -> None:
    """A package that the code needs is installed in another version, where no state has it."""
    killed = make.catalogue.one(make.chance)
    function = killed.mutant
    guard = 'if __import__("pace").LEVEL > 1: raise ValueError("pace 2 is another thing")'
    make.work.apply(Entry(function.path, function.function, guard))
    make.work.python = make_environment(make.work)
    test = make.test(killed)
    see, place = make.places(2)
    make.at(see, Action("run the test", tests=(test,)))
    package = wheel(make.work.ground.work, 2)
    line = f"{make.work.python} -m pip install -q --no-index --no-deps {package}"
    make.at(place, Action("upgrade pace", line=line))
    make.truths.append(Truth(test, "environment", place, bounded=False))


# --- Chance ------------------------------------------------------------------------------------

RACING = '''"""What a race or a clock would decide. Draws are numbered: a search can be repeated."""

import os
import random

_drawn = []


def late(rate):
    """Whether it is too late; once for each process."""
    if not _drawn:
        path = os.environ["DRAWS"]
        count = os.path.getsize(path)
        with open(path, "a") as file:
            file.write(".")
        _drawn.append(random.Random(f"{os.path.basename(path)} {count}").random())
    return _drawn[0] < rate
'''


def _racing(make: Making, before: float, after: float | None) -> None:
    make.work.put("racing.py", RACING)

    def entry(killed: Killed, rate: float) -> Entry:
        line = f'if __import__("racing").late({rate}): raise TimeoutError("too late")'
        return Entry(killed.mutant.path, killed.mutant.function, line)

    def always(killed: Killed) -> bool:
        """Whether some test fails, and is collected, when it is too late."""
        patch = entry(killed, 2.0)
        file = make.work.folder / patch.path
        (make.work.folder / "racing.py").write_text(RACING.replace("_drawn = []", "_drawn = [0]"))
        file.write_bytes(patched(make.work.text(patch.path), [patch]))
        told = make.work.ground.outcomes(make.work.folder, make.work.project.modules[patch.path])
        file.write_bytes(make.work.text(patch.path))
        return told is not None and told.get(killed.tests[0]) == "failed"

    choice = list(make.catalogue.all)
    make.chance.shuffle(choice)
    killed = next(one for one in choice if always(one))
    if before:
        make.work.apply(entry(killed, before))
    step = None
    if after is not None:
        (step,) = make.places(1)

        def change(work: Work) -> None:
            if before:
                work.drop(entry(killed, before))
            work.apply(entry(killed, after))

        make.at(step, Action("do it in the background", change))
    expected = NONE if step is None else STEP
    make.truths.append(Truth(killed.tests[0], expected, step, deterministic=False, bounded=False))


def _flaky(before: float, after: float | None) -> Callable[[Making], None]:
    return lambda make: _racing(make, before, after)


KINDS: dict[str, Callable[[Making], None]] = {
    "single": single,
    "seen": seen,
    "two tests": two_tests,
    "one test twice": one_test_twice,
    "broken again": broken_again,
    "repaired": repaired,
    "repaired, seen": repaired_and_seen,
    "broken before": broken_before,
    "new, then broken": new_then_broken,
    "broken, then new": broken_then_new,
    "never passed": never_passed,
    "test changed": test_changed,
    "fixture changed": fixture_changed,
    "test edited": test_edited,
    "unimportable": unimportable,
    "unimportable around": unimportable_around,
    "by shell": by_shell,
    "generated": generated,
    "generated, ignored": generated_and_ignored,
    "environment": environment_changed,
    "flaky 0 to 0.5": _flaky(0, 0.5),
    "flaky 0 to 0.9": _flaky(0, 0.9),
    "flaky 0.1 to 0.6": _flaky(0.1, 0.6),
    "coin 0.3": _flaky(0.3, None),
    "coin 0.5": _flaky(0.5, None),
    "coin 0.7": _flaky(0.7, None),
    # Later ones come last: the projects of the others stay what they were.
    "ignored from then": ignored_from_then,
}
"""What is planted, by its name."""
