"""What a search found, run by run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rich.cells import cell_len

from repotrace.read.views import Found, RunLine, SearchView
from repotrace.readable import age, one_line, visible
from repotrace.render.console import WIDE
from repotrace.render.diffs import Line, Span
from repotrace.render.runs import result_of
from repotrace.render.runs_layout import fit, phrase

_FIELDS = {
    "stdout_head": "output",
    "stdout_tail": "output",
    "stderr_head": "errors",
    "stderr_tail": "errors",
    "output_result": "result",
    "input_context": "input",
    "file_path": "file",
    "node_id": "test",
    "command_line": "command",
    "details": "test output",
    "prompt": "prompt",
}


def search_results(view: SearchView, *, now: datetime, width: int = WIDE) -> Iterator[Line]:
    """A line for each run, and below it its steps in order with what was found in them."""
    runs = {run.id: run for run in view.runs}
    found: dict[str, dict[int, list[Found]]] = {name: {} for name in runs}
    for hit in view.hits:
        number = 0 if hit.step is None else hit.step.number
        found[hit.run_id].setdefault(number, []).append(hit)
    for number, (run_id, steps) in enumerate(found.items()):
        if number:
            yield []
        yield _run(runs[run_id], now, width)
        for _, hits in sorted(steps.items()):
            yield from _step(hits)


def _run(run: RunLine, now: datetime, width: int) -> Line:
    result, style = result_of(run)
    name, when = one_line(run.id), f"  {age(run.started_at, now)} ago  "
    rest = " · ".join(filter(None, (one_line(run.agent or ""), phrase(run.task or ""))))
    room = width - cell_len(name + when + result) - 2
    if width < WIDE and cell_len(rest) > room:
        rest = fit(rest, max(room, 1)).rstrip()
    return [Span(name, "cyan"), Span(when), Span(result, style), Span(f"  {rest}" if rest else "")]


def _step(hits: list[Found]) -> Iterator[Line]:
    """A step with its texts, each once however many fields have it."""
    step = hits[0].step
    if step is not None:
        yield [
            Span(f"  step {step.number}", "bold"),
            Span(f" · {one_line(step.step_type)}", "red" if step.status == "failed" else ""),
            Span(f" · {phrase(step.description)}" if step.description else ""),
        ]
    for hit in {hit.snippet: hit for hit in reversed(hits) if hit.snippet}.values():
        field = _FIELDS.get(hit.field, hit.field)
        yield [Span(f"    {one_line(field)}: ", "dim"), *_marked(hit)]


def _marked(hit: Found) -> Iterator[Span]:
    end = 0
    for start, stop in hit.marks:
        yield Span(visible(hit.snippet[end:start]))
        yield Span(visible(hit.snippet[start:stop]), "bold yellow")
        end = stop
    yield Span(visible(hit.snippet[end:]))
