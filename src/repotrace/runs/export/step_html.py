"""One step of a run as HTML that folds."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from repotrace.readable import one_line
from repotrace.records.run import (
    FAILING,
    ExecutionStep,
    FileOperation,
    LLMInteraction,
    StepCommand,
    TestOutcome,
)
from repotrace.runs.export.account import Account, is_failed, lines_of, tests_of
from repotrace.runs.export.changes import LARGEST, change_of
from repotrace.runs.export.cutting import cut
from repotrace.runs.export.diff_table import diff_table
from repotrace.runs.export.elements import Child, Html, element, join, output
from repotrace.runs.export.timeline import kind_of
from repotrace.runs.trace_export import calls_in_order, redactor

_LONG = 1_200
"""Characters of a text from which it is folded."""
_READS = 60
_TESTS = 200


class StepPages:
    """The steps of a selection, with what hangs on them."""

    def __init__(self, account: Account) -> None:
        self._account = account
        options = account.selection.options
        self._limit = account.limit
        self._files = options.files
        self._largest = options.max_bytes or LARGEST
        self._redact = None if options.allow_secrets else redactor().redact
        trace = account.selection.trace
        self._operations = _by_step(trace.file_operations)
        self._reads = _by_step(trace.file_reads)
        self._logs = _by_step(trace.logs)
        self._commands = _by_step(trace.commands)
        self._tests = _by_step(trace.test_outcomes)
        self._calls: dict[str, list[tuple[int, LLMInteraction]]] = defaultdict(list)
        before: tuple[Any, ...] = ()
        for call in calls_in_order(trace):
            known = len(before) if before and call.messages[: len(before)] == before else 0
            self._calls[call.step_id].append((known, call))
            before = call.messages or before

    def kinds(self, step: ExecutionStep) -> list[str]:
        """The classes of a step, as those that filter go by."""
        line = self._account.line(step)
        found = [f"d{min(line.depth, 4)}"] if line.depth else []
        if is_failed(step) or (line.tests is not None and line.tests.failing):
            found.append("is-failure")
        if line.files:
            found.append("is-change")
        if line.tests is not None:
            found.append("is-test")
        if step.attempt > 1:
            found.append("is-retry")
        return found

    def step(self, step: ExecutionStep) -> Html:
        """The step; a failure is unfolded."""
        kinds = self.kinds(step)
        return element(
            "details",
            self._summary(step),
            element("div", *self._body(step), class_="body"),
            class_=" ".join(["step", *kinds]),
            id=f"step-{step.step_number}",
            open="is-failure" in kinds,
        )

    def _summary(self, step: ExecutionStep) -> Html:
        line = self._account.line(step)
        meta: list[Html] = []
        if line.tests is not None:
            kind = "bad" if line.tests.failing else "good"
            meta.append(element("span", tests_of(line), class_=f"chip {kind}"))
        if step.attempt > 1:
            again = f", of step {line.retry_of}" if line.retry_of else ""
            meta.append(element("span", f"attempt {step.attempt}{again}", class_="chip warn"))
        if step.label:
            meta.append(element("span", one_line(step.label, 40), class_="chip"))
        if is_failed(step):
            meta.append(element("span", one_line(step.status, 40), class_="chip bad"))
        elif step.status != "completed":
            meta.append(element("span", one_line(step.status, 40), class_="chip"))
        facts = []
        if line.files:
            count = f"{len(line.files)} file{'s' * (len(line.files) != 1)}"
            facts.append(lines_of(line).strip() or count)
        if line.tokens:
            facts.append(f"{line.tokens:,} tokens")
        facts.append(self._account.took(step))
        meta.append(element("span", " · ".join(filter(None, facts))))
        what = one_line(step.description, 300) or (line.tool or "")
        return element(
            "summary",
            element("span", str(step.step_number), class_="no"),
            element("span", one_line(step.step_type, 40), class_=f"kind {kind_of(step)}"),
            element("span", what, class_="what"),
            element("span", *meta, class_="meta"),
        )

    # --- What is in it ----------------------------------------------------------------------

    def _body(self, step: ExecutionStep) -> Iterator[Child]:
        if step.reason:
            yield element("div", cut(step.reason, self._limit), class_="reason")
        if step.error:
            yield element("h3", "Error")
            yield self._folding(step.error, "the error")
        if step.input_context:
            yield element("h3", "Given")
            yield self._folding(step.input_context, "what was given")
        for known, call in self._calls.get(step.id, ()):
            yield from self._call(known, call)
        for command in self._commands.get(step.id, ()):
            yield from self._command(command)
        yield from self._outcomes(self._tests.get(step.id, []))
        yield from self._changes(self._operations.get(step.id, []))
        said = {call.response.strip() for _, call in self._calls.get(step.id, ())}
        if step.output_result and step.output_result.strip() not in said:
            yield element("h3", "Result")
            yield self._folding(step.output_result, "the result")
        yield from self._noted(step)

    def _call(self, known: int, call: LLMInteraction) -> Iterator[Child]:
        facts = [one_line(call.model or "model", 80), f"{call.tokens_used:,} tokens"]
        facts += [one_line(call.purpose, 40)] if call.purpose != "execution" else []
        facts += [f"${call.cost_usd:.4f}"] if call.cost_usd is not None else []
        yield element("h3", "Model call")
        yield element("p", " · ".join(facts), class_="quiet")
        if call.error:
            yield element("p", one_line(call.error, 600), class_="chip bad")
        if not self._account.selection.options.llm:
            return
        if known:
            noun = "message" if known == 1 else "messages"
            yield element("p", f"… {known} {noun} as before", class_="quiet")
        if call.prompt and not call.messages:
            yield self._message("prompt", [self._text(call.prompt)])
        for message in call.messages[known:]:
            yield self._message(str(message.get("role", "message")), self._said(message))
        answer = call.response_message
        if answer is not None:
            yield self._message("assistant", self._said(answer), of_model=True)
        elif call.response:
            yield self._message("assistant", [self._text(call.response)], of_model=True)

    def _message(self, role: str, parts: Iterable[Html], *, of_model: bool = False) -> Html:
        kind = "message assistant" if of_model or role == "assistant" else "message"
        said = element("div", *parts, class_="said")
        return element("div", element("span", one_line(role, 40), class_="role"), said, class_=kind)

    def _said(self, message: Mapping[str, Any]) -> Iterator[Html]:
        content = message.get("content")
        if isinstance(content, list):
            for part in content:
                yield self._part(part)
        elif content is not None:
            yield self._text(content if isinstance(content, str) else _plain(content))
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            yield element("pre", cut(_plain(call), self._limit))

    def _part(self, part: Any) -> Html:
        if not isinstance(part, Mapping):
            return self._text(str(part))
        kind, text = part.get("type"), part.get("text")
        if kind == "thinking" and isinstance(text, str):
            return element("div", self._text(text), class_="thinking")
        if kind == "text" and isinstance(text, str):
            return self._text(text)
        if kind in ("tool_call", "tool_use"):
            name = element("b", one_line(str(part.get("name")), 80))
            arguments = part.get("arguments", part.get("input"))
            shown = arguments if isinstance(arguments, str) else _plain(arguments)
            return element("div", name, self._folding(shown, "the arguments"))
        if kind == "tool_result":
            content = part.get("content")
            shown = content if isinstance(content, str) else _plain(content)
            return self._folding(shown, "the result")
        return element("pre", cut(_plain(part), self._limit))

    def _command(self, command: StepCommand) -> Iterator[Child]:
        run = command.command
        code = command.exit_code
        kind = "good" if code == 0 else "" if code is None else "bad"
        ending = "left running" if command.background else "" if code is None else run.ending
        yield element("h3", "Command")
        yield element(
            "p",
            element("code", one_line(command.command_line, 2_000)),
            " ",
            element("span", one_line(ending, 80), class_=f"chip {kind}") if ending else None,
        )
        for name, text in (("output", run.stdout.text), ("errors", run.stderr.text)):
            if text.strip():
                yield self._folding(text, f"the {name}", shown=output)

    def _outcomes(self, tests: list[TestOutcome]) -> Iterator[Child]:
        if not tests:
            return
        yield element("h3", "Tests")
        failed = [test for test in tests if test.outcome in FAILING]
        others = [test for test in tests if test.outcome not in FAILING]
        items = []
        for test in (*failed, *others)[:_TESTS]:
            bad = test.outcome in FAILING
            kind = "bad" if bad else "good" if test.outcome == "passed" else ""
            phase = f" ({one_line(test.phase, 20)})" if test.phase != "call" else ""
            text = (test.details or test.message or "").strip("\n") if bad else ""
            items.append(
                element(
                    "li",
                    element("span", one_line(test.outcome, 20), class_=f"chip {kind}"),
                    " ",
                    element("code", one_line(test.node_id, 300)),
                    phase,
                    self._folding(text, "the failure", shown=output) if text else None,
                )
            )
        yield element("ul", *items, class_="tests")
        if len(tests) > _TESTS:
            yield element("p", f"… and {len(tests) - _TESTS} more", class_="quiet")

    def _changes(self, operations: list[FileOperation]) -> Iterator[Child]:
        if not operations:
            return
        yield element("h3", "Files")
        if not self._files:
            names = (
                element(
                    "li", element("code", one_line(one.file_path, 300)), f" {one.operation_type}"
                )
                for one in operations
            )
            yield element("ul", *names, class_="tests")
            return
        for operation in operations:
            yield diff_table(change_of(operation, self._redact, self._largest))

    def _noted(self, step: ExecutionStep) -> Iterator[Child]:
        logs, reads = self._logs.get(step.id, []), self._reads.get(step.id, [])
        if logs:
            yield element("h3", "Log")
            items = (
                element(
                    "li",
                    element("span", one_line(log.level, 20), class_=f"chip {_level(log.level)}"),
                    " ",
                    cut(log.message, self._limit),
                )
                for log in logs
            )
            yield element("ul", *items, class_="logs")
        if reads:
            paths = list(dict.fromkeys(one_line(read.file_path, 200) for read in reads))
            more = f" and {len(paths) - _READS} more" if len(paths) > _READS else ""
            yield element("h3", "Looked at")
            yield element("p", element("code", ", ".join(paths[:_READS])), more, class_="quiet")

    # --- Texts ------------------------------------------------------------------------------

    def _text(self, text: str) -> Html:
        shown = cut(text, self._limit)
        if len(shown) <= _LONG:
            return element("div", shown)
        return self._folding(text, "the text")

    def _folding(self, text: str, what: str, *, shown: Callable[[str], Html] | None = None) -> Html:
        """A text in a frame, folded where it is long."""
        kept = cut(text, self._limit).strip("\n")
        body = element("pre", shown(kept) if shown else kept, tabindex=0)
        lines = kept.count("\n") + 1
        if len(kept) <= _LONG and lines <= 20:
            return body
        title = f"{what}, {lines} lines: " if lines > 1 else f"{what}: "
        begin = element("span", one_line(kept, 90), class_="quiet")
        return element(
            "details", element("summary", join(title.capitalize(), begin)), body, class_="fold"
        )


def _by_step(parts: Iterable[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for part in parts:
        found[part.step_id or ""].append(part)
    return found


def _level(level: str) -> str:
    return {"error": "bad", "critical": "bad", "warning": "warn"}.get(level, "")


def _plain(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str)
