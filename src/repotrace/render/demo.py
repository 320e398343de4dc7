"""The demonstration on the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

from rich.console import Group, RenderableType
from rich.text import Text

from repotrace.demo.project import TASK
from repotrace.demo.story import Digests, Story
from repotrace.readable import visible
from repotrace.records.blame import Check
from repotrace.records.run import Run
from repotrace.render.blame import blame_view
from repotrace.render.checks import check_view, summary_line


def beginning_view(folder: Path, width: int) -> RenderableType:
    """What is going to happen, in lines of at most so many columns."""
    text = (
        f"A small project about invoices, made in {visible(str(folder))}, and an agent that works"
        " on it. Its model is a script that needs no network, with tokens and prices to match;"
        " recorder, tests, check and blame are the real ones."
    )
    lines = wrap(text, max(40, min(width, 88)), break_long_words=False, break_on_hyphens=False)
    return Text("\n".join(lines) + "\n")


def agent_view(run: Run, said: str) -> RenderableType:
    """What the agent was asked, and what it says."""
    task = Text("task   ", style="dim")
    task.append(TASK, style="not dim")
    words = Text("agent  ", style="dim")
    words.append(f'"{visible(said)}"', style="not dim bold")
    return Group(task, words, Text())


def check_part(check: Check, repository: Path) -> RenderableType:
    """What the check found, without the blame."""
    bare = [test.model_copy(update={"blame": None}) for test in check.tests]
    plain = check.model_copy(update={"tests": tuple(bare), "run_id": None})
    return Group(_command(repository, "check"), check_view(plain), summary_line(check), Text())


def proof_part(check: Check, repository: Path) -> Iterator[RenderableType]:
    """What is blamed for each break."""
    for test in check.tests:
        if test.blame is not None:
            yield _command(repository, "blame", test.test)
            yield blame_view(test.blame)
            yield Text()


def ending_view(story: Story) -> RenderableType:
    """The digests of before and after, and how to go on."""
    lines = [_digests("before", story.before), _digests("after", story.after)]
    same = story.before == story.after
    lines.insert(
        0,
        Text("check and blame left the repository as it was:", style="green")
        if same
        else Text("the repository has changed meanwhile:", style="bold red"),
    )
    step = _step(story.check)
    lines += [Text(), Text("go on with")]
    lines += [
        _next(story, told, *words)
        for told, words in (
            ("all steps", ("runs", "show")),
            ("the step in full", ("play", "--step", str(step))),
            ("its change, as a diff", ("runs", "diff", "--step", str(step))),
            ("the evidence", ("runs", "show", "--blame")),
        )
    ]
    return Group(*lines)


def _command(repository: Path, *words: str) -> Text:
    line = shlex.join(["repotrace", "-C", str(repository), *words])
    return Text(f"$ {visible(line)}", style="bold")


def _next(story: Story, told: str, *words: str) -> Text:
    line = shlex.join(["repotrace", "-C", str(story.repository), *words])
    text = Text(f"  {visible(line)}")
    return text.append(f"  # {told}", style="dim")


def _digests(when: str, found: Digests) -> Text:
    facts = f"files {found.files} · index {found.index} · refs {found.refs} · config {found.config}"
    return Text(f"  {when:<6}  {facts}", style="dim")


def _step(check: Check) -> int:
    named = (test.blame.steps[0].number for test in check.tests if test.blame and test.blame.steps)
    return next(named, 1)
