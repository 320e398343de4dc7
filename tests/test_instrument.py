"""`instrument`: the real SDKs of OpenAI and Anthropic, against a server of our own."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import anthropic
import openai
import pydantic
import pytest
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI
from providers import (
    CHAT,
    CHAT_EVENTS,
    MESSAGE,
    MESSAGE_EVENTS,
    RESPONSE,
    RESPONSE_EVENTS,
    WEATHER,
    Provider,
    Reply,
    provider,
)
from running import clean_environment
from tracing import Project, make_project

from repotrace import instrument, record_llm, span, trace_agent, uninstrument
from repotrace.errors import RepoTraceError
from repotrace.records.run import LLMInteraction

ASKED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in Rome?"},
]
TOOL = {"name": "weather", "description": "The weather", "parameters": {"type": "object"}}


@pytest.fixture
def project(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    made = make_project(tmp_path, monkeypatch)
    instrument()
    yield made
    uninstrument()


@pytest.fixture
def server() -> Iterator[Provider]:
    with provider() as running:
        yield running


def traced[T](function: Callable[[], T]) -> T:
    """Run a function as an agent; nothing of it is kept but what is recorded."""
    return trace_agent(function, name="agent", states=False)()


class Clients:
    """Clients of both packages, of both kinds, made when they are wanted."""

    def __init__(self, server: Provider) -> None:
        self._url = server.url

    @cached_property
    def openai(self) -> OpenAI:
        return OpenAI(api_key="k", base_url=f"{self._url}/v1")

    @cached_property
    def openai_async(self) -> AsyncOpenAI:
        return AsyncOpenAI(api_key="k", base_url=f"{self._url}/v1")

    @cached_property
    def anthropic(self) -> Anthropic:
        return Anthropic(api_key="k", base_url=self._url)

    @cached_property
    def anthropic_async(self) -> AsyncAnthropic:
        return AsyncAnthropic(api_key="k", base_url=self._url)


@pytest.fixture
def clients(server: Provider) -> Clients:
    return Clients(server)


def chat(**more: Any) -> dict[str, Any]:
    tools = [{"type": "function", "function": TOOL}]
    return {"model": "gpt-4o", "messages": ASKED, "tools": tools, "temperature": 0.5, **more}


def message(**more: Any) -> dict[str, Any]:
    return {
        "model": "claude-opus-4-6",
        "max_tokens": 50,
        "system": "Be brief.",
        "messages": ASKED[1:],
        "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
        **more,
    }


def response(**more: Any) -> dict[str, Any]:
    tools = [{"type": "function", "strict": False, **TOOL}]
    ask = {"model": "gpt-4o", "instructions": "Be brief.", "input": "Weather in Rome?"}
    return {**ask, "tools": tools, **more}


# --- Every way to call ------------------------------------------------------------------------


def drained(stream: Any) -> Any:
    return list(stream)


async def drained_async(stream: Any) -> Any:
    return [item async for item in stream]


def within(manager: Any, use: Callable[[Any], Any]) -> Any:
    with manager as entered:
        return use(entered)


async def within_async(manager: Any, use: Callable[[Any], Any]) -> Any:
    async with manager as entered:
        return await use(entered)


async def awaited(*steps: Callable[[Any], Any], begin: Any) -> Any:
    """Each step applied to what the one before gives when it is awaited."""
    for step in steps:
        begin = step(await begin)
    return await begin if asyncio.iscoroutine(begin) else begin


class Words(pydantic.BaseModel):
    words: str


SYNC: dict[str, tuple[Any, Callable[[Clients], Any]]] = {
    "chat": (CHAT, lambda c: c.openai.chat.completions.create(**chat())),
    "chat raw": (
        CHAT,
        lambda c: c.openai.chat.completions.with_raw_response.create(**chat()).parse(),
    ),
    "chat raw, unparsed": (
        CHAT,
        lambda c: c.openai.chat.completions.with_raw_response.create(**chat()).http_response.text,
    ),
    "chat, response streamed": (
        CHAT,
        lambda c: within(
            c.openai.chat.completions.with_streaming_response.create(**chat()), lambda r: r.parse()
        ),
    ),
    "chat, response read as bytes": (
        CHAT,
        lambda c: within(
            c.openai.chat.completions.with_streaming_response.create(**chat()), lambda r: r.read()
        ),
    ),
    "chat stream": (
        CHAT_EVENTS,
        lambda c: drained(c.openai.chat.completions.create(**chat(stream=True))),
    ),
    "chat stream, raw": (
        CHAT_EVENTS,
        lambda c: drained(
            c.openai.chat.completions.with_raw_response.create(**chat(stream=True)).parse()
        ),
    ),
    "chat helper": (
        CHAT_EVENTS,
        lambda c: within(
            c.openai.chat.completions.stream(**chat()), lambda s: s.get_final_completion()
        ),
    ),
    "responses": (RESPONSE, lambda c: c.openai.responses.create(**response())),
    "responses stream": (
        RESPONSE_EVENTS,
        lambda c: drained(c.openai.responses.create(**response(stream=True))),
    ),
    "responses helper": (
        RESPONSE_EVENTS,
        lambda c: within(c.openai.responses.stream(**response()), lambda s: s.get_final_response()),
    ),
    "messages": (MESSAGE, lambda c: c.anthropic.messages.create(**message())),
    "messages raw": (
        MESSAGE,
        lambda c: c.anthropic.messages.with_raw_response.create(**message()).parse(),
    ),
    "messages, beta": (MESSAGE, lambda c: c.anthropic.beta.messages.create(**message())),
    "messages stream": (
        MESSAGE_EVENTS,
        lambda c: drained(c.anthropic.messages.create(**message(stream=True))),
    ),
    "messages helper": (
        MESSAGE_EVENTS,
        lambda c: within(c.anthropic.messages.stream(**message()), lambda s: s.get_final_message()),
    ),
    "messages helper, text": (
        MESSAGE_EVENTS,
        lambda c: within(c.anthropic.messages.stream(**message()), lambda s: list(s.text_stream)),
    ),
}

ASYNC: dict[str, tuple[Any, Callable[[Clients], Any]]] = {
    "chat": (CHAT, lambda c: c.openai_async.chat.completions.create(**chat())),
    "chat raw": (
        CHAT,
        lambda c: awaited(
            lambda r: r.parse(),
            begin=c.openai_async.chat.completions.with_raw_response.create(**chat()),
        ),
    ),
    "chat, response streamed": (
        CHAT,
        lambda c: within_async(
            c.openai_async.chat.completions.with_streaming_response.create(**chat()),
            lambda r: r.parse(),
        ),
    ),
    "chat stream": (
        CHAT_EVENTS,
        lambda c: awaited(
            drained_async, begin=c.openai_async.chat.completions.create(**chat(stream=True))
        ),
    ),
    "chat helper": (
        CHAT_EVENTS,
        lambda c: within_async(
            c.openai_async.chat.completions.stream(**chat()), lambda s: s.get_final_completion()
        ),
    ),
    "responses": (RESPONSE, lambda c: c.openai_async.responses.create(**response())),
    "responses stream": (
        RESPONSE_EVENTS,
        lambda c: awaited(
            drained_async, begin=c.openai_async.responses.create(**response(stream=True))
        ),
    ),
    "messages": (MESSAGE, lambda c: c.anthropic_async.messages.create(**message())),
    "messages raw": (
        MESSAGE,
        lambda c: awaited(
            lambda r: r.parse(),
            begin=c.anthropic_async.messages.with_raw_response.create(**message()),
        ),
    ),
    "messages stream": (
        MESSAGE_EVENTS,
        lambda c: awaited(
            drained_async, begin=c.anthropic_async.messages.create(**message(stream=True))
        ),
    ),
    "messages helper": (
        MESSAGE_EVENTS,
        lambda c: within_async(
            c.anthropic_async.messages.stream(**message()), lambda s: s.get_final_message()
        ),
    ),
}


def reply_of(told: Any) -> Reply:
    return Reply(events=told) if isinstance(told, list) else Reply(told)


def plain(value: Any) -> Any:
    """What a call returned, to be compared."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.to_dict() if hasattr(value, "to_dict") else value


def the_call(project: Project) -> LLMInteraction:
    (call,) = project.store.runs.interactions(project.run.id)
    return call


@pytest.mark.parametrize(
    ("kind", "name"), [("sync", name) for name in SYNC] + [("async", name) for name in ASYNC]
)
def test_a_call_is_recorded_however_it_is_made(
    kind: str, name: str, project: Project, server: Provider, clients: Clients
) -> None:
    told, ask = (SYNC if kind == "sync" else ASYNC)[name]

    def run() -> Any:
        if kind == "sync":
            return plain(ask(clients))
        return plain(asyncio.run(in_loop()))

    async def in_loop() -> Any:
        return await ask(Clients(server))

    server.replies += [reply_of(told), reply_of(told)]
    got = traced(run)

    call, (step,) = the_call(project), project.steps()
    assert (step.step_type, step.status, step.id) == ("llm", "completed", call.step_id)
    # The Responses helper's stream tells of no tool before the answer is whole.
    assert step.description == f"{call.model}: asks for weather"
    assert call.response == "I look."
    assert call.response_message == {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_call", "id": "call_1", "name": "weather", "arguments": WEATHER},
        ],
    }
    family = "anthropic" if name.startswith("messages") else "openai"
    assert (call.provider, call.error, call.attempts) == (family, None, 1)
    whole = {"chat": CHAT, "responses": RESPONSE, "messages": MESSAGE}[
        name.split(" ")[0].strip(",")
    ]
    assert (call.external_id, call.model) == (whole["id"], whole["model"])
    written = None if family == "openai" else 4
    assert (call.input_tokens, call.output_tokens, call.cache_write_tokens) == (20, 7, written)
    assert call.cache_read_tokens == (6 if family == "anthropic" else 4)
    assert call.cost_source == "computed"
    assert call.request_id == "req_1"
    words = [(m["role"], text_of(m)) for m in call.messages]
    assert words == [("system", "Be brief."), ("user", "Weather in Rome?")]
    assert len(call.tools) == 1
    assert call.duration is not None
    assert (call.first_token is not None) == isinstance(told, list)

    # The same without us: what the SDK gives is the same.
    uninstrument()
    assert run() == got
    assert len(project.store.runs.interactions(project.run.id)) == 1 or the_call(project)


def text_of(told: dict[str, Any]) -> str:
    content = told["content"]
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


# --- Errors, retries, streams that are left ---------------------------------------------------


def test_retries_are_one_call_with_attempts(
    project: Project, server: Provider, clients: Clients
) -> None:
    busy = Reply({"error": {"message": "busy", "type": "overloaded"}}, status=503)
    server.replies += [busy, busy, Reply(CHAT)]
    traced(lambda: clients.openai.chat.completions.create(**chat()))
    call = the_call(project)
    assert (call.attempts, call.error, call.request_id) == (3, None, "req_3")


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_an_error_is_recorded_and_raised_as_it_is(
    kind: str, project: Project, server: Provider, clients: Clients
) -> None:
    server.replies.append(Reply({"error": {"message": "no such model"}}, status=404))

    def ask() -> None:
        if kind == "openai":
            clients.openai.chat.completions.create(**chat())
        else:
            clients.anthropic.messages.create(**message())

    expected = {"openai": openai.NotFoundError, "anthropic": anthropic.NotFoundError}[kind]
    with pytest.raises(expected, match="404"):
        traced(ask)
    call, (step,) = the_call(project), project.steps()
    assert "no such model" in str(call.error)
    assert (step.status, call.response or "", call.request_id) == ("failed", "", "req_1")
    assert len(call.messages) == 2
    assert project.run.status == "failed"


def test_a_server_that_is_not_there(project: Project, clients: Clients) -> None:
    client = openai.OpenAI(api_key="k", base_url="http://127.0.0.1:9/v1", max_retries=1)
    with pytest.raises(openai.APIConnectionError):
        traced(lambda: client.chat.completions.create(**chat()))
    call = the_call(project)
    assert (call.attempts, bool(call.error)) == (2, True)


@pytest.mark.parametrize("how", ["dropped", "closed", "left", "never read"])
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_stream_that_is_left_is_kept_as_far_as_it_was_read(
    kind: str, how: str, project: Project, server: Provider, clients: Clients
) -> None:
    def ask() -> None:
        stream: Any
        if kind == "openai":
            server.replies.append(Reply(events=CHAT_EVENTS))
            stream = clients.openai.chat.completions.create(**chat(stream=True))
        else:
            server.replies.append(Reply(events=MESSAGE_EVENTS))
            stream = clients.anthropic.messages.create(**message(stream=True))
        if how == "left":
            for number, _ in enumerate(stream):
                if number == 3:
                    break
        elif how != "never read":
            for _ in range(3):
                next(stream)
        if how == "closed":
            stream.close()
        del stream
        gc.collect()

    traced(ask)
    call, (step,) = the_call(project), project.steps()
    assert call.error == "the answer was not read to its end"
    assert step.status == "failed"
    assert len(call.messages) == 2
    if how == "never read":
        assert not call.response
    else:
        assert str(call.response).startswith("I")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_stream_that_breaks_off_tells_so(
    kind: str, project: Project, server: Provider, clients: Clients
) -> None:
    server.replies.append(Reply(events=CHAT_EVENTS[:2], broken_off=True))

    async def ask_async() -> None:
        client = Clients(server).openai_async
        async for _ in await client.chat.completions.create(**chat(stream=True)):
            pass

    def ask() -> None:
        if kind == "async":
            asyncio.run(ask_async())
        else:
            list(clients.openai.chat.completions.create(**chat(stream=True)))

    with pytest.raises(openai.APIError):
        traced(ask)
    call = the_call(project)
    assert call.response == "I look."
    assert "closed" in str(call.error)


# --- Where a call belongs ---------------------------------------------------------------------


def test_outside_of_a_traced_agent_nothing_is_looked_at(
    project: Project, server: Provider, clients: Clients
) -> None:
    server.replies.append(Reply(CHAT))
    assert clients.openai.chat.completions.create(**chat()).id == "chatcmpl-1"
    assert not (project.folder / ".git" / "repotrace").exists()


def test_a_call_within_a_span_belongs_to_it(
    project: Project, server: Provider, clients: Clients
) -> None:
    server.replies += [Reply(CHAT), Reply(MESSAGE), Reply(CHAT)]

    def agent() -> None:
        span("think", lambda: clients.openai.chat.completions.create(**chat()), type="llm")
        with span("look", type="tool"):
            clients.anthropic.messages.create(**message())
            clients.openai.chat.completions.create(**chat())

    traced(agent)
    think, look = project.steps()
    calls = project.store.runs.interactions(project.run.id)
    assert [(call.step_id, call.model) for call in calls] == [
        (think.id, CHAT["model"]),
        (look.id, MESSAGE["model"]),
        (look.id, CHAT["model"]),
    ]
    assert think.output_result == "I look."


def test_each_call_counts_once_though_the_program_tells_of_it(
    project: Project, server: Provider, clients: Clients
) -> None:
    other = {**CHAT, "id": "chatcmpl-2"}
    server.replies += [Reply(CHAT), Reply(MESSAGE), Reply(events=MESSAGE_EVENTS), Reply(other)]
    server.replies[2] = Reply(
        events=[
            {**MESSAGE_EVENTS[0], "message": {**MESSAGE_EVENTS[0]["message"], "id": "msg_2"}},
            *MESSAGE_EVENTS[1:],
        ]
    )

    def agent() -> None:
        got = clients.openai.chat.completions.create(**chat())
        record_llm(got, messages=ASKED, purpose="planning", cost_usd="0.5")
        with span("think", type="llm"):
            record_llm(clients.anthropic.messages.create(**message()), messages=ASKED)
        with clients.anthropic.messages.stream(**message()) as stream:
            record_llm(stream.get_final_message())
        words = clients.openai.chat.completions.create(**chat()).choices[0].message.content
        record_llm(words, messages=ASKED, model="gpt-4o", input_tokens=20)
        record_llm("said by another model", model="mine")

    traced(agent)
    calls = project.store.runs.interactions(project.run.id)
    assert [(call.external_id, call.purpose) for call in calls] == [
        ("chatcmpl-1", "planning"),
        ("msg_1", "execution"),
        ("msg_2", "execution"),
        ("chatcmpl-2", "execution"),
        (None, "execution"),
    ]
    assert str(calls[0].cost_usd) == "0.5"
    assert len(project.steps()) == 5
    assert all(len(call.messages) == 2 for call in calls[:4])


def test_a_server_that_gives_the_same_id_to_all_does_not_hide_calls(
    project: Project, server: Provider, clients: Clients
) -> None:
    server.replies += [Reply(CHAT), Reply(CHAT)]

    def agent() -> None:
        for _ in range(2):
            record_llm(clients.openai.chat.completions.create(**chat()))

    traced(agent)
    assert len(project.store.runs.interactions(project.run.id)) == 2
    assert len(project.steps()) == 2


def test_what_a_provider_remembers_is_part_of_the_conversation(
    project: Project, server: Provider, clients: Clients
) -> None:
    server.replies += [Reply(RESPONSE), Reply({**RESPONSE, "id": "resp_2"})]

    def agent() -> None:
        first = clients.openai.responses.create(**response())
        told = [{"type": "function_call_output", "call_id": "call_1", "output": "sunny"}]
        clients.openai.responses.create(
            model="gpt-4o",
            previous_response_id=first.id,
            input=told,  # type: ignore[arg-type]
        )

    traced(agent)
    _, second = project.store.runs.interactions(project.run.id)
    assert [m["role"] for m in second.messages] == ["system", "user", "assistant", "tool"]


def test_many_tasks_at_once(project: Project, server: Provider) -> None:
    count = 12
    for number in range(count):
        server.replies.append(Reply({**CHAT, "id": f"chatcmpl-{number}"}))

    async def one(client: openai.AsyncOpenAI, number: int) -> str:
        async with span(f"task {number}", type="llm"):
            return str((await client.chat.completions.create(**chat())).id)

    async def agent() -> list[str]:
        async with openai.AsyncOpenAI(api_key="k", base_url=f"{server.url}/v1") as client:
            return await asyncio.gather(*(one(client, number) for number in range(count)))

    ids = asyncio.run(trace_agent(agent, states=False)())
    calls = project.store.runs.interactions(project.run.id)
    steps = {step.id: step.description for step in project.steps()}
    assert {(steps[c.step_id], c.external_id) for c in calls} == {
        (f"task {number}", name) for number, name in enumerate(ids)
    }


def test_other_requests_of_the_sdk_pass(
    project: Project, server: Provider, clients: Clients
) -> None:
    server.replies.append(
        Reply({"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [1.0]}]})
    )
    traced(lambda: clients.openai.embeddings.create(model="m", input="x", encoding_format="float"))
    server.replies.append(Reply({"input_tokens": 3}))
    ask = {"model": "claude-opus-4-6", "messages": ASKED[1:]}
    traced(lambda: clients.anthropic.messages.count_tokens(**ask))  # type: ignore[arg-type]
    assert project.steps() == []


def test_an_answer_in_a_form_of_ones_own_warns_of_nothing(
    project: Project, server: Provider, clients: Clients, recwarn: pytest.WarningsRecorder
) -> None:
    told = {"role": "assistant", "content": '{"words": "hi"}', "refusal": None}
    choice = {"index": 0, "finish_reason": "stop", "logprobs": None, "message": told}
    server.replies.append(Reply({**CHAT, "choices": [choice]}))
    got = traced(
        lambda: clients.openai.chat.completions.parse(
            model="gpt-4o",
            messages=ASKED,  # type: ignore[arg-type]
            response_format=Words,
        )
    )
    assert got.choices[0].message.parsed == Words(words="hi")
    assert the_call(project).response == '{"words": "hi"}'
    assert [str(w.message) for w in recwarn if "Pydantic" in str(w.message)] == []


# --- Other tracers, undoing -------------------------------------------------------------------


def test_another_tracer_above_and_below_goes_on(
    project: Project, server: Provider, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def watched(owner: Any, method: str) -> None:
        original = getattr(owner, method)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(f"before {method}")
            result = original(self, *args, **kwargs)
            seen.append(f"after {method}")
            return result

        monkeypatch.setattr(owner, method, call)

    base = next(c for c in openai.OpenAI.__mro__ if "request" in vars(c))
    watched(base, "request")
    watched(type(clients.openai.chat.completions), "create")
    instrument()
    server.replies += [Reply(CHAT), Reply(CHAT)]
    traced(lambda: clients.openai.chat.completions.create(**chat()))
    assert seen == ["before create", "before request", "after request", "after create"]
    assert len(project.store.runs.interactions(project.run.id)) == 1
    first = project.run.id

    uninstrument()  # beneath the other one, which stays
    traced(lambda: clients.openai.chat.completions.create(**chat()))
    assert len(seen) == 8
    assert project.run.id != first
    assert project.store.runs.interactions(project.run.id) == []


def test_undoing_leaves_the_packages_as_they_were(project: Project) -> None:
    uninstrument()
    owners = {
        client: next(c for c in client.__mro__ if "request" in vars(c))
        for client in (
            openai.OpenAI,
            openai.AsyncOpenAI,
            anthropic.Anthropic,
            anthropic.AsyncAnthropic,
        )
    }
    before = [dict(vars(owner)) for owner in owners.values()]
    instrument()
    instrument("openai")
    assert [dict(vars(owner)) for owner in owners.values()] != before
    assert asyncio.iscoroutinefunction(vars(owners[openai.AsyncOpenAI])["request"])
    uninstrument("anthropic")
    uninstrument()
    uninstrument()
    assert [dict(vars(owner)) for owner in owners.values()] == before
    with pytest.raises(RepoTraceError, match="mistral"):
        instrument("mistral")


def test_packages_that_are_imported_later_are_instrumented(
    project: Project, server: Provider
) -> None:
    program = f"""
import json, sys
from repotrace import instrument, trace_agent, uninstrument

instrument()
instrument()
assert "openai" not in sys.modules and "anthropic" not in sys.modules
assert len(sys.meta_path) == len(set(sys.meta_path))

@trace_agent(states=False)
def agent():
    import openai

    client = openai.OpenAI(api_key="k", base_url="{server.url}/v1")
    return client.chat.completions.create(**json.loads('''{json.dumps(chat())}''')).id

print(agent())
uninstrument()
import anthropic

assert "repotrace" not in str(sys.meta_path), sys.meta_path
assert "repotrace" not in anthropic.Anthropic.request.__code__.co_filename
"""
    server.replies.append(Reply(CHAT))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=project.folder,
        env=clean_environment(project.folder.parent),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("chatcmpl-1\n", "")
    assert the_call(project).response == "I look."


def test_a_client_that_is_not_what_we_know_works_on(
    project: Project, server: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a later SDK changes: the program gets its answer, the loss is counted."""

    class Odd(openai.OpenAI):
        def request(self, *args: Any, **kwargs: Any) -> Any:
            result = super().request(*args, **kwargs)
            if isinstance(result, openai.Stream):
                return result
            return {"told": "in another form"}

    base = next(c for c in openai.OpenAI.__mro__ if "request" in vars(c))
    uninstrument()
    monkeypatch.setattr(base, "request", lambda self, *args, **kwargs: object())
    instrument()
    client = Odd(api_key="k", base_url=f"{server.url}/v1")
    got: Any = traced(lambda: client.chat.completions.create(**chat()))
    assert got == {"told": "in another form"}
    call = the_call(project)
    assert (call.response or "", call.model, len(call.messages)) == ("", "gpt-4o", 2)
