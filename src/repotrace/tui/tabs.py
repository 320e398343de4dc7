"""What each tab shows of a step, read when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from repotrace.errors import RepoTraceError
from repotrace.read.diffs import StepDiff
from repotrace.read.playing import KnownFile, PlayedRun
from repotrace.read.views import StepView
from repotrace.readable import one_line, shell_word
from repotrace.render.blocks import Block, fixed
from repotrace.render.diffs import Span
from repotrace.render.play import (
    blame_blocks,
    content_blocks,
    diff_blocks,
    message_blocks,
    output_blocks,
    overview_blocks,
    problem,
    test_blocks,
)

OVERVIEW, MESSAGES, FILES, DIFF = "Overview", "Messages", "Files", "Diff"
OUTPUT, TESTS, BLAME = "Output", "Tests", "Blame"

_MISSING = "the files after this step are not known"

_KEPT = 8
"""Steps that are kept at hand."""


class Wanted(NamedTuple):
    """What is to be shown."""

    place: int
    """The step, counted from 0."""
    tab: str
    width: int
    """Columns that there are for it."""
    since: int | None = None
    """The step from which on differences are wanted; None: only those of the step itself."""
    path: str | None = None
    """The file that is to be shown; None: the first one that the step changed."""


class Shown(NamedTuple):
    """What was read of it."""

    blocks: Sequence[Block]
    files: Sequence[KnownFile] = ()
    """Of the tab of the files."""
    note: str = ""
    """What has to be said of it."""


class TabReader:
    """Reads what tabs show."""

    def __init__(self, run: PlayedRun) -> None:
        self._run = run
        self._views: dict[int, StepView] = {}
        self._blocks: dict[str, Callable[[Wanted, StepView], Sequence[Block]]] = {
            OVERVIEW: lambda wanted, view: self._overview(view),
            MESSAGES: lambda wanted, view: self._messages(view),
            DIFF: lambda wanted, view: list(self._diff(wanted, view)),
            OUTPUT: lambda wanted, view: output_blocks(view),
            TESTS: lambda wanted, view: self._tests(wanted, view),
            BLAME: lambda wanted, view: blame_blocks(run.blamed()),
        }

    def forget(self) -> None:
        """Read anew from now on: the run went on."""
        self._views = {}

    def read(self, wanted: Wanted) -> Shown:
        """What is wanted, or why it cannot be shown."""
        try:
            view = self._view(wanted.place)
            if wanted.tab != FILES:
                return Shown(self._blocks[wanted.tab](wanted, view))
            files = self._run.files(view)
            changed = (file.path for file in files if file.change)
            path = wanted.path or next(changed, None)
            return Shown(self._content(view, path), files, _note(view, len(files)))
        except (RepoTraceError, OSError) as error:
            return Shown([fixed([problem(error)])])

    def _view(self, place: int) -> StepView:
        found = self._views.get(place)
        if found is None:
            found = self._run.view(place)
            while len(self._views) >= _KEPT:
                del self._views[next(iter(self._views))]
            self._views[place] = found
        return found

    def _overview(self, view: StepView) -> Sequence[Block]:
        number = view.line.number
        branches = [branch for branch in self._run.branches() if branch.step == number]
        return overview_blocks(view, self._run.blamed(), branches)

    def _tests(self, wanted: Wanted, view: StepView) -> Sequence[Block]:
        run = self._run
        grid, tests = run.grid(wanted.place), run.tests(view)
        return test_blocks(view, grid, tests, lambda passed: run.more_tests(view, passed=passed))

    def _messages(self, view: StepView) -> Sequence[Block]:
        calls = self._run.calls(view)
        return message_blocks(view, calls, None if calls else self._run.call_that_led_to(view))

    def _diff(self, wanted: Wanted, view: StepView) -> Iterator[Block]:
        place, since, width = wanted.place, wanted.since, wanted.width
        if since is None or since == place:
            yield fixed([[Span(f"what step {view.line.number} changed", "dim")], []])
            known = view.before.state_id is not None and view.after.state_id is not None
            nothing = "it changed no files" if known else f"no change is known; {_MISSING}"
            yield from diff_blocks(self._run.diff(view), nothing, width=width)
            return
        first, last = sorted((since, place))
        names = [self._run.outline(at).number for at in (first, last)]
        title = f"from after step {names[0]} to after step {names[1]}; d: this step alone"
        yield fixed([[Span(title, "magenta")], []])
        diff = self._run.diff_between(first, last)
        if diff is None:
            text = "the files after one of these steps are not known; d shows this step alone"
            yield fixed([[Span(text, "yellow")]])
            return
        yield from diff_blocks(StepDiff(diff), "nothing is different", width=width)

    def _content(self, view: StepView, path: str | None) -> Sequence[Block]:
        if path is None:
            return [fixed([[Span("Enter shows a file", "dim")]])]
        number = view.line.number
        head = fixed([[Span(one_line(path), "bold"), Span(f"  after step {number}", "dim")], []])
        return [head, *content_blocks(path, self._run.content(view, path))]


def _note(view: StepView, count: int) -> str:
    if view.after.state_id is not None:
        return "" if count else "there are no files after this step"
    return f"{_MISSING}; these it changed" if count else f"{_MISSING}, nor any that it changed"


def command_for(run: PlayedRun, wanted: Wanted, base: str) -> str:
    """The command line that shows what is wanted; `base` calls RepoTrace for this store."""
    name, number = shell_word(run.run.id), run.outline(wanted.place).number
    match wanted.tab:
        case "Messages":
            return f"{base} play {name} --step {number} --show-llm"
        case "Diff" if wanted.since not in (None, wanted.place):
            assert wanted.since is not None
            first, last = sorted((run.outline(wanted.since).number, number))
            return f"{base} runs diff {name} --from-step {first} --to-step {last}"
        case "Diff":
            return f"{base} runs diff {name} --step {number}"
        case "Files":
            path = f" --path {shell_word(wanted.path)}" if wanted.path else ""
            return f"{base} runs restore {name} --step {number}{path}"
        case "Tests":
            return f"{base} runs show {name}"
        case "Blame":
            return f"{base} blame {name}"
    return f"{base} play {name} --step {number}"
