"""Requests and responses become runs: each response is a step, the calls in it are steps below.

A turn is over when the next request carries the results of its calls. What repeats a request that
failed is another attempt at it; what goes on with no conversation is a side call, a sub-agent, or a
conversation of its own.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from repotrace.agents import Action
from repotrace.importers import wire_agents as agents
from repotrace.importers.aider_edits import edits_of
from repotrace.importers.building import (
    MALFORMED,
    Builder,
    Events,
    Result,
    one_line,
    text_of,
)
from repotrace.importers.wire_answers import PROVIDERS, Answer, ToolCall, answer_of
from repotrace.importers.wire_requests import Ask, api_of, ask_of
from repotrace.importers.wire_runs import (
    Got,
    Moment,
    Run,
    Sent,
    line_of,
    own_name,
    refusal,
    with_names,
)
from repotrace.importers.wire_talks import Talk, Turn, belonging, digest_of, kept, said
from repotrace.records.events import Event, Kind
from repotrace.records.run import RunStatus, StepType

type Record = dict[str, Any]

SOURCE = "wire"
"""Of runs whose agents name no sessions that anybody else knows."""

_RAW = 20_000
"""Characters that are kept of what could not be read."""
_TICK = 1_000
"""Nanoseconds between the calls of one answer, so that their order is kept."""
_SUBMITS = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_HARMLESS = frozenset(
    [
        *(Action.READ, Action.SEARCH, Action.LIST, Action.PLAN, Action.ASK, Action.WEB),
        # What the other agent does is told by its own steps.
        *(Action.AGENT, Action.SUBMIT),
    ]
)
"""What tools do that changes no files."""
_SPAWNING = 20
"""Characters from which on a text that was handed to a tool is taken for the task of an agent."""


class Traffic:
    """The traffic of agents as it comes. What its methods give are the events of it."""

    def __init__(
        self,
        *,
        agent: str | None = None,
        folder: str = "",
        single: bool = False,
        joins: bool = False,
    ) -> None:
        """`agent` and `folder`, where they are known. `single`: all of it is one run. `joins`: a
        run has the name that the transcript of its session will have."""
        self.runs: list[Run] = []
        self.moment: Moment | None = None
        """Of the newest request; None: it was none of the work itself."""
        self._agent, self._folder = agent, folder
        self._single, self._joins = single, joins
        self._waiting: dict[str, tuple[Run, Talk, Turn]] = {}
        self._unread: dict[str, Sent] = {}
        self._count = 0

    # --- Requests ---------------------------------------------------------------------------

    def asked(self, sent: Sent) -> Events:
        """A request is complete."""
        self.moment = None
        api = api_of(sent.method, sent.path)
        if api is None:
            if self.runs:
                self.runs[-1].others += 1
            return
        try:
            ask = ask_of(api, sent.path, sent.headers, sent.body)
        except (*MALFORMED, RecursionError):
            self._unread[sent.id] = sent
            return
        talks = [talk for run in self.runs for talk in run.talks]
        before = next((t for t in talks if ask.previous and t.response_id == ask.previous), None)
        if before is not None:
            # The provider keeps what was said; the request has the rest.
            known = [m for m in before.messages if m["role"] == "system"]
            more = [message for message in ask.messages if message not in known]
            ask.messages = [*before.messages, *more]
        talk, again = belonging(talks, ask)
        if talk is not None and again and talk.turn is not None:
            talk.turn.attempts += 1
            self._waiting[sent.id] = self._run_of(talk), talk, talk.turn
            return
        if talk is None:
            run = yield from self._run_for(sent, ask)
            talk = self._new_talk(run, ask)
        else:
            run = self._run_of(talk)
        if talk.turn is not None and talk.turn.failed:
            yield from self._given_up(run, talk, talk.turn)
        yield from self._results(run, talk, ask, sent.time)
        yield from self._prompts(run, talk, ask, sent.time)
        yield from self._begin(run, talk, ask, sent)

    def _run_of(self, talk: Talk) -> Run:
        return next(run for run in self.runs if talk in run.talks)

    def _run_for(self, sent: Sent, ask: Ask) -> Generator[Event, None, Run]:
        """The run of a conversation that begins, and the events of its beginning."""
        found = self._known_run(ask)
        if found is None:
            found = self._new_run(sent, ask)
            yield found.builder.started(
                sent.time,
                cwd=self._folder or agents.folder_of(ask),
                agent_version=agents.version_of(sent.headers),
            )
        elif not found.builder.cwd and agents.folder_of(ask):
            yield found.builder.started(sent.time, cwd=agents.folder_of(ask))
        name = self._named(sent, ask)
        if name and found.builder.agent.name == agents.UNKNOWN:
            found.builder.agent = agents.speaking(name)
            yield found.builder.updated(sent.time, agent=name)
        return found

    def _named(self, sent: Sent, ask: Ask) -> str | None:
        return self._agent or agents.named(sent.headers) or agents.described(ask)

    def _known_run(self, ask: Ask) -> Run | None:
        if self._single or not self.runs:
            return self.runs[-1] if self.runs else None
        if ask.session:
            return next((run for run in self.runs if run.session == ask.session), None)
        newest = next((run for run in reversed(self.runs) if not run.session), None)
        if newest is None or newest.root is None or self._is_side(newest, ask):
            return newest
        if ask.tools and not newest.root.has_tools and newest.root.asked <= 1:
            return newest  # a call to see whether somebody is there
        # Whoever does not name sessions begins another with another conversation.
        return newest if self._parent(newest, ask) else None

    def _new_run(self, sent: Sent, ask: Ask) -> Run:
        name = self._named(sent, ask)
        speaker = agents.speaking(name)
        source, source_id = SOURCE, ask.session or digest_of([sent.time, ask.messages])[:24]
        if self._joins and ask.session and name:
            source = speaker.format
        run = Run(Builder(source, source_id, speaker), ask.session)
        self.runs.append(run)
        return run

    def _new_talk(self, run: Run, ask: Ask) -> Talk:
        parent = self._parent(run, ask)
        root = run.root
        if (
            root is not None
            and root.has_tools
            and ask.tools
            and not parent
            and ask.session
            and not self._is_busy(run, root)
        ):
            # The agent has put a summary in the place of what was said.
            return root
        talk = Talk(f"conversation {len(run.talks) + 1}", ask.session, ask.thread)
        talk.has_tools, talk.parent_step = bool(ask.tools), parent
        talk.is_side = not parent and self._is_side(run, ask)
        run.talks.append(talk)
        if not talk.is_side and not parent and (root is None or (ask.tools and not root.has_tools)):
            run.root = talk
        return talk

    def _is_busy(self, run: Run, talk: Talk) -> bool:
        turn = talk.turn
        return turn is not None and (
            not turn.answered or any(run.builder.is_open(name) for name in turn.calls)
        )

    def _is_side(self, run: Run, ask: Ask) -> bool:
        if ask.tools:
            return False
        if run.root is None:
            return ask.wants_json
        first = run.root.turn
        return run.root.has_tools or first is None or first.ask.system != ask.system

    def _parent(self, run: Run, ask: Ask) -> str:
        """The step that started the agent of a conversation; empty if none did."""
        words = "\n".join(said(ask))
        for step_id, text in reversed(run.spawning):
            if text in words:
                return step_id
        if not ask.tools:
            return ""
        taken = {talk.parent_step for talk in run.talks}
        for talk in run.talks:
            for name in talk.turn.calls if talk.turn else ():
                call = run.builder.opened(name)
                if call and call.tool.action is Action.AGENT and call.step_id not in taken:
                    return call.step_id
        return ""

    def _results(self, run: Run, talk: Talk, ask: Ask, time: int) -> Events:
        """The results that a request carries complete the calls of the turn before."""
        builder = run.builder
        order = {name: place for place, name in enumerate(talk.turn.calls)} if talk.turn else {}
        named = [(own_name(talk, told.id), told) for told in ask.results]
        # They may come in any order; the calls were made in that of the answer.
        for name, told in sorted(named, key=lambda one: order.get(one[0], 0)):
            call = builder.opened(name)
            if call is None:
                continue
            result = agents.result_of(builder, call, told)
            for event in builder.result(name, time, result):
                if event["data"].get("error") and result.metadata.get("tests"):
                    event["data"]["error"] = "tests failed"
                yield event

    def _prompts(self, run: Run, talk: Talk, ask: Ask, time: int) -> Events:
        """What a person said, as far as it can be told from what the agent adds."""
        if talk is not run.root:
            return
        texts = [text for text in said(ask) if digest_of(text) not in talk.told_prompts]
        talk.told_prompts.update(map(digest_of, texts))
        if not texts or ask.messages[-1]["role"] == "tool":
            return
        if not talk.has_task:
            talk.has_task = True
            task = agents.task_of(run.builder.agent.name, texts[-1])
            yield run.builder.updated(time, task=task)
            return
        for place, text in enumerate(texts):
            key = f"{talk.name} {talk.asked} said {place}"
            facts: Record = {"input_context": text, "metadata": {"role": "user"}}
            line = f"User: {one_line(text)}"
            yield from run.builder.moment(key, time, StepType.NOTE, line, **facts)

    def _begin(self, run: Run, talk: Talk, ask: Ask, sent: Sent) -> Events:
        self._count += 1
        talk.asked += 1
        talk.newest = self._count
        key = f"{talk.name} {talk.asked}"
        turn = Turn(key, run.builder.step_named(key, sent.time), sent.time, ask)
        if not talk.is_side and not ask.warms_up:
            over = [] if talk.turn is None else self._over(run, talk.turn)
            self.moment = Moment(run.builder.run_id, turn.step_id, tuple(over))
        talk.turn = turn
        self._waiting[sent.id] = run, talk, turn
        if ask.warms_up:
            return
        data: Record = {"id": turn.step_id, "step_type": StepType.LLM, "description": "model call"}
        data["metadata"] = {"thread": talk.name}
        if talk.parent_step:
            data["parent_id"] = talk.parent_step
        yield run.builder.event(Kind.STEP_STARTED, sent.time, data, key)
        if run.root is talk and talk.asked == 1:
            yield from self._demote(run, talk, sent.time)

    def _over(self, run: Run, turn: Turn) -> list[str]:
        """The steps of a turn that may have changed files, and do so no more."""
        going = {call.step_id for call in map(run.builder.opened, turn.calls) if call is not None}
        return [step_id for step_id in turn.changing if step_id not in going]

    def at_work(self, run: Run) -> list[str]:
        """The steps that may have changed files since they were looked at last."""
        turns = [talk.turn for talk in run.talks if talk.turn is not None and not talk.is_side]
        return [step_id for turn in turns for step_id in turn.changing]

    def _demote(self, run: Run, root: Talk, time: int) -> Events:
        """What came before the work began, and was no part of it, was a side call."""
        for talk in run.talks:
            aside = talk is not root and not talk.has_tools and not talk.parent_step
            if aside and not talk.is_side and talk.asked <= 1:
                talk.is_side = True
                if talk.shown is not None:
                    data = {"id": talk.shown[0], "purpose": "side"}
                    yield run.builder.event(Kind.LLM, time, data, talk.name, "side")

    # --- Responses --------------------------------------------------------------------------

    def answered(self, got: Got) -> Events:
        """A response has ended, however it did."""
        unread = self._unread.pop(got.id, None)
        if unread is not None:
            yield from self._unreadable(unread, got)
            return
        waiting = self._waiting.pop(got.id, None)
        if waiting is None:
            return
        run, talk, turn = waiting
        if got.status is None or not (200 <= got.status < 300 or got.status == 101):
            yield from self._failed(run, turn, got, refusal(got))
            return
        try:
            answer = answer_of(turn.ask.api, got.payloads)
        except (*MALFORMED, RecursionError):
            if got.complete:
                yield from self._garbled(run, talk, turn, got)
            else:
                yield from self._failed(run, turn, got, got.error or "the response broke off")
            return
        # Many programs close the connection when they have seen the last event.
        ended = answer.complete or (got.complete and bool(answer.parts))
        if answer.error is None and ended:
            yield from self._finish(run, talk, turn, answer, got)
        elif answer.error is None and got.complete:
            yield from self._garbled(run, talk, turn, got)
        else:
            turn.partial = answer
            problem = answer.error or got.error or "the response broke off"
            yield from self._failed(run, turn, got, problem)

    def _failed(self, run: Run, turn: Turn, got: Got, problem: str) -> Events:
        """An attempt failed. It may be repeated, so the step goes on."""
        turn.problem, turn.seconds = problem, got.duration
        key = f"{turn.key} attempt {turn.attempts}"
        words = f"Attempt {turn.attempts} failed: {one_line(problem)}"
        data: Record = {"status": got.status} if got.status is not None else {}
        yield run.builder.log(key, got.time, "warning", words, data, turn.step_id)

    def _finish(self, run: Run, talk: Talk, turn: Turn, answer: Answer, got: Got) -> Events:
        builder = run.builder
        answer = with_names(answer, turn.ask)
        turn.answered, turn.problem, turn.seconds = True, None, got.duration
        talk.answered(answer)
        if turn.ask.warms_up:
            talk.messages = turn.ask.messages
            return
        message = {"role": "assistant", "content": answer.parts}
        talk.messages = [*turn.ask.messages, message]
        yield self._interaction(run, talk, turn, answer, got)
        ended: Record = {"id": turn.step_id, "output_result": answer.text}
        ended["description"] = line_of(answer)
        if answer.id:
            ended["external_id"] = answer.id
        if got.payloads.broken:
            builder.damage.count("piece of a response")
            ended["metadata"] = {"broken_pieces": got.payloads.broken}
        yield from self._edits(run, turn, answer, got.time)
        yield builder.event(Kind.STEP_ENDED, got.time, ended, turn.key)
        for place, call in enumerate(answer.calls):
            yield from self._call(run, talk, turn, call, got.time + place * _TICK, answer)

    def _call(
        self, run: Run, talk: Talk, turn: Turn, call: ToolCall, time: int, answer: Answer
    ) -> Events:
        builder = run.builder
        builder.agent, tool = agents.understood(builder.agent, call.name, call.arguments)
        name = own_name(talk, call.id)
        if builder.is_open(name):
            return
        given = call.arguments if isinstance(call.arguments, dict) else {}
        before, folder = builder.cwd, given.get("workdir")
        if isinstance(folder, str) and folder:
            builder.cwd = builder.path(folder)
        reason = answer.text or answer.thoughts
        yield from builder.call(
            name, tool, call.arguments, time, reason=reason, parent_id=turn.step_id
        )
        builder.cwd = before
        turn.calls.append(name)
        opened = builder.opened(name)
        if opened is not None and opened.tool.action not in _HARMLESS:
            turn.changing.append(opened.step_id)
        if opened is not None and opened.tool.action in (Action.AGENT, Action.OTHER):
            texts = [text for text in given.values() if isinstance(text, str)]
            long = max(texts, key=len, default="")
            if len(long) >= _SPAWNING:
                run.spawning.append((opened.step_id, long))
        if call.done:
            yield from builder.result(name, time, Result(""))

    def _edits(self, run: Run, turn: Turn, answer: Answer, time: int) -> Events:
        """The changes in an answer in words, of agents that have no tools for them."""
        if answer.calls or turn.ask.tools or "SEARCH" not in answer.text:
            return
        for place, edit in enumerate(edits_of(answer.text, "diff")):
            change = edit.operation()
            path = run.builder.path(edit.path) if run.builder.cwd else edit.path
            data = {"step_id": turn.step_id, **change, "file_path": path}
            turn.changing = [turn.step_id]
            yield run.builder.event(Kind.FILE_OPERATION, time, data, turn.key, str(place))

    def _interaction(
        self, run: Run, talk: Talk, turn: Turn, answer: Answer | None, got: Got | None, **facts: Any
    ) -> Event:
        """The model call of a turn."""
        ask, builder = turn.ask, run.builder
        name = builder.id(turn.time, "llm", turn.key)
        begun: Record = {"id": name, "messages": ask.messages}
        if talk.shown is not None:
            count = kept(talk.shown[1], ask.messages)
            begun |= {"messages": ask.messages[count:], "previous_id": talk.shown[0], "kept": count}
        talk.shown = name, ask.messages
        told: Record = {
            "step_id": turn.step_id,
            "provider": PROVIDERS[ask.api],
            "model": ask.model or None,
            "tools": ask.tools or None,
            "parameters": ask.parameters or None,
            "duration": turn.seconds,
            "attempts": turn.attempts,
            "purpose": "side" if talk.is_side else None,
        }
        if answer is not None:
            told |= {
                "external_id": answer.id,
                "model": answer.model or ask.model or None,
                "response": answer.text or None,
                "response_message": {"role": "assistant", "content": answer.parts},
                "stop_reason": answer.stop_reason,
                **answer.tokens,
            }
        if got is not None:
            told["first_token"] = got.first_byte
            heads = got.headers
            told["request_id"] = heads.get("request-id") or heads.get("x-request-id")
        return builder.asked(turn.key, turn.time, begun, **{**told, **facts})

    def _given_up(self, run: Run, talk: Talk, turn: Turn) -> Events:
        """Nobody repeats a request that failed."""
        error, builder = turn.problem or "not answered", run.builder
        turn.problem, turn.answered = None, True
        if turn.ask.warms_up:
            return
        yield self._interaction(run, talk, turn, turn.partial, None, error=error)
        data: Record = {"id": turn.step_id, "error": one_line(error)}
        data["description"] = f"model call failed: {one_line(error)}"
        yield builder.event(Kind.STEP_ENDED, max(builder.time, turn.time), data, turn.key)

    def _garbled(self, run: Run, talk: Talk, turn: Turn, got: Got) -> Events:
        """A response that is none of those that we know."""
        builder = run.builder
        turn.answered, turn.seconds = True, got.duration
        builder.damage.count("response")
        yield self._interaction(run, talk, turn, None, got, error="the response cannot be read")
        data: Record = {
            "id": turn.step_id,
            "step_type": StepType.UNKNOWN,
            "description": "Unknown record: response",
            "output_result": got.raw[:_RAW],
            "metadata": {"raw_type": "response", "thread": talk.name},
        }
        yield builder.event(Kind.STEP_ENDED, got.time, data, turn.key)

    def _unreadable(self, sent: Sent, got: Got) -> Events:
        """A request to a model that is none of those that we know."""
        if not self.runs:
            run = self._new_run(sent, Ask(""))
            yield run.builder.started(sent.time, cwd=self._folder)
        builder = self.runs[-1].builder
        builder.damage.count("request")
        raw = sent.body if isinstance(sent.body, str) else text_of(sent.body)
        text = f"{sent.method} {sent.path}\n{raw[:_RAW]}"
        yield from builder.unknown(f"request {sent.id}", sent.time, "request", text)
        builder.time = max(builder.time, got.time)

    # --- The end ----------------------------------------------------------------------------

    def ended(self) -> Events:
        """Nothing follows."""
        waiting = [turn for _, _, turn in self._waiting.values()]
        for run in self.runs:
            status, error = RunStatus.COMPLETED, None
            for talk in run.talks:
                turn = talk.turn
                if turn is None or turn.answered:
                    continue
                if talk is run.root:
                    status = RunStatus.INTERRUPTED if turn in waiting else RunStatus.FAILED
                    error = turn.problem
                yield from self._given_up(run, talk, turn)
                yield from self._submitted(run, turn)
            if run.root is not None and run.root.turn is not None:
                yield from self._submitted(run, run.root.turn)
            if run.others:
                told = {"wire": {"other_requests": run.others}}
                yield run.builder.updated(run.builder.time, attributes=told)
            yield from run.builder.finished(status, error)
        self._waiting.clear()

    def _submitted(self, run: Run, turn: Turn) -> Events:
        """Calls by which an agent says that it is done get no result."""
        builder = run.builder
        for name in turn.calls:
            call = builder.opened(name)
            if call is None:
                continue
            command = text_of(call.arguments.get(call.tool.command)) if call.tool.command else ""
            if call.tool.action is Action.SUBMIT or _SUBMITS in command:
                yield from builder.result(name, builder.time, Result("", refused=True))


__all__ = ["SOURCE", "Got", "Moment", "Run", "Sent", "Traffic"]
