"""The relay: what passes is the same on both sides, and what is handed out is what passed."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from backports import zstd
from proxying import (
    SSE,
    Kept,
    Provider,
    Reply,
    anthropic_pieces,
    chat_body,
    chat_pieces,
    events,
    provider,
)

from repotrace.agents import agent
from repotrace.errors import RepoTraceError
from repotrace.proxy import Exchange, Relay, Upstreams

WORDS: Any = [{"role": "user", "content": "Say it."}]
RESPONSE = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": []}
RESPONSES = [
    {"type": "response.created", "sequence_number": 0, "response": RESPONSE},
    {
        "type": "response.output_text.delta",
        "sequence_number": 1,
        "item_id": "m_1",
        "output_index": 0,
        "content_index": 0,
        "delta": "Größe",
        "logprobs": [],
    },
    {"type": "response.completed", "sequence_number": 2, "response": RESPONSE},
]
ANSWER = json.dumps(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Said."}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }
).encode()
CALL = ("call_1", "run", {"command": "ls -l"})


@pytest.fixture(scope="module")
def _served() -> Iterator[tuple[Provider, Relay, Kept]]:
    kept = Kept()
    with (
        provider(Reply()) as found,
        Relay(
            Upstreams.found({}, [found.address]), on_request=kept.begun, on_exchange=kept
        ) as relay,
    ):
        yield found, relay, kept


@pytest.fixture
def kept(_served: tuple[Provider, Relay, Kept]) -> Kept:
    """What the relay has handed out in this test."""
    return _served[2]


@pytest.fixture
def upstream(_served: tuple[Provider, Relay, Kept], kept: Kept) -> Provider:
    """A provider that was not asked before."""
    found = _served[0]
    kept.forget()
    found.asked.clear()
    found.replies = [Reply(chat_body("Said."))]
    return found


@pytest.fixture
def relay(_served: tuple[Provider, Relay, Kept]) -> Relay:
    """A relay to it."""
    return _served[1]


def _client() -> httpx2.Client:
    return httpx2.Client(trust_env=False, timeout=20)


# --- Real clients ---------------------------------------------------------------------------


def _chat(base: str) -> object:
    client = openai.OpenAI(base_url=base, api_key="sk-test", max_retries=0)
    return client.chat.completions.create(model="m", messages=WORDS).model_dump()


def _chat_stream(base: str) -> object:
    client = openai.OpenAI(base_url=base, api_key="sk-test", max_retries=0)
    stream: Any = client.chat.completions.create(model="m", messages=WORDS, stream=True)
    return [chunk.model_dump() for chunk in stream]


def _responses_stream(base: str) -> object:
    client = openai.OpenAI(base_url=base, api_key="sk-test", max_retries=0)
    stream: Any = client.responses.create(model="m", input="Say it.", stream=True)
    return [event.model_dump(mode="json") for event in stream]


def _async_chat(base: str) -> object:
    async def ask() -> Any:
        async with openai.AsyncOpenAI(base_url=base, api_key="sk-test", max_retries=0) as client:
            stream: Any = await client.chat.completions.create(
                model="m", messages=WORDS, stream=True
            )
            return [chunk.model_dump() async for chunk in stream]

    return asyncio.run(ask())


def _async_messages(base: str) -> object:
    async def ask() -> Any:
        async with anthropic.AsyncAnthropic(base_url=base, api_key="k", max_retries=0) as client:
            told: Any = await client.messages.create(model="m", max_tokens=9, messages=WORDS)
            return told.model_dump()

    return asyncio.run(ask())


def _messages(base: str) -> object:
    client = anthropic.Anthropic(base_url=base, api_key="sk-test", max_retries=0)
    with client.messages.stream(model="m", max_tokens=9, messages=WORDS) as stream:
        return stream.get_final_message().model_dump()


@pytest.mark.parametrize(
    ("ask", "name", "path", "reply"),
    [
        (_chat, "openai", "/v1", Reply(chat_body("Said.", CALL))),
        (_chat_stream, "openai", "/v1", Reply(chat_pieces("Said.", CALL), kind=SSE)),
        (_messages, "anthropic", "", Reply(anthropic_pieces("Said.", CALL), kind=SSE)),
        (_async_chat, "openai", "/v1", Reply(chat_pieces("Said.", CALL), kind=SSE)),
        (_async_messages, "anthropic", "", Reply(ANSWER)),
        (_responses_stream, "openai", "/v1", Reply(events(*RESPONSES), kind=SSE)),
    ],
)
def test_a_client_of_a_provider_gets_the_same_through_the_relay(
    upstream: Provider,
    relay: Relay,
    kept: Kept,
    ask: Callable[[str], object],
    name: str,
    path: str,
    reply: Reply,
) -> None:
    upstream.replies = [reply]
    assert ask(relay.address(name)) == ask(upstream.address + path)
    relayed, direct = upstream.asked
    assert relayed.body == direct.body
    assert relayed.target == direct.target
    own = {"host", "accept-encoding", "connection"}
    assert {h for h in relayed.headers if h[0] not in own} == {
        h for h in direct.headers if h[0] not in own
    }
    (exchange,) = kept.wait()
    sent = reply.body if isinstance(reply.body, bytes) else b"".join(reply.body)
    assert exchange.response == sent
    assert exchange.request == direct.body
    assert exchange.complete
    assert exchange.error is None
    assert exchange.first_byte is not None
    assert exchange.duration is not None
    assert 0 < exchange.first_byte <= exchange.duration


@pytest.mark.parametrize("status", [400, 401, 429, 500, 529])
def test_errors_of_the_provider_pass_as_they_are(
    upstream: Provider, relay: Relay, kept: Kept, status: int
) -> None:
    body = json.dumps({"error": {"message": "no", "type": "t"}}).encode()
    upstream.replies = [Reply(body, status, headers={"retry-after": "7", "x-own": "kept"})]
    with _client() as client:
        response = client.post(f"{relay.address('openai')}/chat/completions", json={})
    assert response.status_code == status
    assert response.content == body
    assert response.headers["retry-after"] == "7"
    assert response.headers["x-own"] == "kept"
    (exchange,) = kept.wait()
    assert (exchange.status, exchange.response_headers["retry-after"]) == (status, "7")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_other_requests_pass_too(upstream: Provider, relay: Relay, method: str) -> None:
    upstream.replies = [Reply(b"[1]", headers={"x-list": "yes"})]
    address = f"{relay.address('anthropic')}/v1/files/a%2Fb%20c?limit=2&after=%C3%A4"
    with _client() as client:
        response = client.request(method, address)
    assert response.headers["x-list"] == "yes"
    assert response.content == (b"" if method == "HEAD" else b"[1]")
    (asked,) = upstream.asked
    assert (asked.method, asked.target) == (method, b"/v1/files/a%2Fb%20c?limit=2&after=%C3%A4")


# --- Streams --------------------------------------------------------------------------------


def test_each_piece_is_handed_on_before_the_next_is_sent(upstream: Provider, relay: Relay) -> None:
    pieces = events(*range(5))
    seen = [threading.Event() for _ in pieces]
    late: list[int] = []

    def wait_for_last(number: int) -> None:
        if not seen[number - 1].wait(20):
            late.append(number)

    upstream.replies = [Reply(pieces, kind=SSE, between=wait_for_last)]
    got = b""
    address = f"{relay.address('openai')}/chat/completions"
    with _client() as client, client.stream("POST", address, json={}) as response:
        for chunk in response.iter_raw():
            got += chunk
            seen[got.count(b"\n\n") - 1].set()
    assert got == b"".join(pieces)
    assert not late


def test_a_connection_that_breaks_breaks_for_the_agent_too(
    upstream: Provider, relay: Relay, kept: Kept
) -> None:
    pieces = chat_pieces("Said.")[:3]
    upstream.replies = [Reply(pieces, kind=SSE, drops=True)]
    got = b""
    address = f"{relay.address('openai')}/chat/completions"
    with _client() as client, client.stream("POST", address, json={}) as response:
        chunks = response.iter_raw()
        while got != b"".join(pieces):
            got += next(chunks)
        with pytest.raises(httpx2.RemoteProtocolError):
            next(chunks)
    assert got == b"".join(pieces)
    (exchange,) = kept.wait()
    assert exchange.response == got
    assert not exchange.complete
    assert exchange.error is not None
    assert "closed the connection" in exchange.error


def test_when_the_agent_leaves_the_provider_is_left_too(
    upstream: Provider, relay: Relay, kept: Kept
) -> None:
    left = threading.Event()
    upstream.replies = [Reply(events(*range(9)), kind=SSE, between=lambda _number: left.wait(0.2))]
    address = f"{relay.address('openai')}/chat/completions"
    with _client() as client, client.stream("POST", address, json={}) as response:
        next(response.iter_raw())
    assert upstream.asked[0].left.wait(20)
    left.set()
    (exchange,) = kept.wait()
    assert exchange.error == "the agent closed the connection"
    assert not exchange.complete


def test_a_provider_out_of_reach_is_said() -> None:
    kept = Kept()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with (
            Relay(Upstreams({"openai": address}), on_request=kept.begun, on_exchange=kept) as relay,
            _client() as client,
        ):
            response = client.post(f"{relay.address('openai')}/v1/responses", json={"a": 1})
            kept.forget()  # it was told of when it was complete, and when it had failed
            client.post(f"{relay.address('openai')}/v1/responses", json={"a": 1})
    assert response.status_code == 502
    assert address in response.json()["error"]["message"]
    (exchange,) = kept.wait()
    assert exchange.status is None
    assert exchange.request == b'{"a":1}'
    assert exchange.error is not None
    assert "out of reach" in exchange.error


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("zstd", zstd.compress),
        ("identity", bytes),
    ],
)
def test_packed_bodies_pass_packed_and_are_kept_unpacked(
    upstream: Provider, relay: Relay, kept: Kept, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    body = chat_body("Said. " * 50)
    packed = pack(body)
    pieces = [packed[at : at + 40] for at in range(0, len(packed), 40)]
    upstream.replies = [Reply(pieces, headers={"content-encoding": encoding})]
    headers = {"accept-encoding": "br, gzip, zstd;q=0.5", "content-encoding": encoding}
    address = f"{relay.address('openai')}/chat/completions"
    with _client() as client:
        request = client.build_request("POST", address, content=pack(b'{"a": 1}'), headers=headers)
        response = client.send(request, stream=True)
        assert b"".join(response.iter_raw()) == packed
        response.close()
    (exchange,) = kept.wait()
    assert exchange.response == body
    assert exchange.request == b'{"a": 1}'
    # What could not be read is not asked for.
    assert dict(upstream.asked[0].headers)["accept-encoding"] == "gzip, zstd;q=0.5"


def test_a_body_that_cannot_be_unpacked_passes_and_is_said_to_be_lost(
    upstream: Provider, relay: Relay, kept: Kept
) -> None:
    upstream.replies = [Reply(b"no gzip at all", headers={"content-encoding": "gzip"})]
    with _client() as client:
        request = client.build_request("POST", f"{relay.address('openai')}/responses", json={})
        response = client.send(request, stream=True)
        assert b"".join(response.iter_raw()) == b"no gzip at all"
        response.close()
    (exchange,) = kept.wait()
    assert exchange.response == b""
    assert exchange.error is not None
    assert "not kept whole" in exchange.error


# --- What is not passed ---------------------------------------------------------------------


def test_a_web_socket_is_refused_so_that_the_agent_falls_back(
    upstream: Provider, relay: Relay
) -> None:
    headers = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "c8WmJkwv2mRtTu3gq+b4pw==",
    }
    with _client() as client:
        response = client.get(f"{relay.address('openai')}/responses", headers=headers)
        assert response.status_code == 426
        # The connection serves on.
        assert client.get(f"{relay.address('openai')}/models").status_code == 200
    assert len(upstream.asked) == 1


def test_who_does_not_know_the_address_gets_nothing(upstream: Provider, relay: Relay) -> None:
    origin = f"http://127.0.0.1:{relay.port}"
    with _client() as client:
        for path in ("/", "/openai/v1/models", f"/{'x' * 22}/openai/v1/models"):
            assert client.get(origin + path).status_code == 404
        unknown = relay.address("openai").replace("/openai/", "/other/")
        assert client.get(unknown).status_code == 404
    assert not upstream.asked


def test_headers_between_two_neighbours_stay_there(upstream: Provider, relay: Relay) -> None:
    headers = {
        "connection": "keep-alive, x-between",
        "x-between": "1",
        "proxy-authorization": "Basic c2VjcmV0",
        "te": "trailers",
        "anthropic-beta": "a,b",
        "x-api-key": "sk-ant-planted",
    }
    with _client() as client:
        client.post(f"{relay.address('anthropic')}/v1/messages", json={}, headers=headers)
    told = dict(upstream.asked[0].headers)
    assert not {"x-between", "proxy-authorization", "te"} & told.keys()
    assert told["anthropic-beta"] == "a,b"
    assert told["x-api-key"] == "sk-ant-planted"
    assert told["host"] == upstream.address.removeprefix("http://")


def test_keys_are_in_nothing_that_is_handed_out(
    upstream: Provider, relay: Relay, kept: Kept
) -> None:
    keys = [f"planted-{place}-0123456789abcdef" for place in ("a", "b", "c", "d", "e")]
    # An agent may print its environment, and a provider may repeat what it was sent.
    upstream.replies = [Reply(json.dumps({"echo": keys}).encode())]
    headers = {
        "authorization": f"Bearer {keys[0]}",
        "x-goog-api-key": keys[1],
        "cookie": f"session={keys[2]}; other=1",
        "x-unheard-of": "planted-x",
        "user-agent": "agent/1",
        "x-claude-code-session-id": "s-1",
    }
    address = f"{relay.address('openai')}/chat/completions?alt=sse&key={keys[3]}"
    with _client() as client:
        headers["x-api-key"] = keys[4]
        client.post(address, json={"messages": [{"content": " ".join(keys)}]}, headers=headers)
    (exchange,) = kept.wait()
    told = repr(exchange)
    assert "planted" not in told
    assert exchange.query == {"alt": "sse", "key": "[not kept]"}
    assert exchange.request_headers["user-agent"] == "agent/1"
    assert exchange.request_headers["x-claude-code-session-id"] == "s-1"
    assert json.loads(exchange.response)["echo"] == ["[REDACTED:key]"] * 5
    # The provider got all of it.
    assert all(key in repr(upstream.asked[0]) for key in keys)


# --- Recording ------------------------------------------------------------------------------


def test_traffic_goes_on_if_recording_fails(upstream: Provider) -> None:
    def fail(*_given: object) -> None:
        raise OSError("the disk is full")

    upstreams = Upstreams.found({}, [upstream.address])
    with Relay(upstreams, on_request=fail, on_exchange=fail) as relay, _client() as client:
        address = f"{relay.address('openai')}/chat/completions"
        for _ in range(3):
            assert client.post(address, json={}).content == chat_body("Said.")
    assert relay.lost == 6
    assert relay.problem == "OSError: the disk is full"


def test_what_a_request_found_is_recorded_before_its_answer_can_be_acted_upon(
    upstream: Provider,
) -> None:
    upstream.replies = [Reply(chat_pieces("First words.", CALL), kind=SSE)]
    words, recorded, late = threading.Event(), threading.Event(), []

    def look(exchange: Exchange, is_late: Callable[[], bool]) -> None:
        assert exchange.status is None
        assert json.loads(exchange.request) == {"a": 1}
        assert words.wait(20)  # words pass meanwhile
        late.append(is_late())
        recorded.set()

    upstreams = Upstreams.found({}, [upstream.address])
    with Relay(upstreams, on_request=look, patience=20) as relay, _client() as client:
        got = b""
        address = f"{relay.address('openai')}/chat/completions"
        with client.stream("POST", address, json={"a": 1}) as response:
            for chunk in response.iter_raw():
                assert recorded.is_set() or b"tool_calls" not in chunk
                got += chunk
                if b"word" in got:
                    words.set()
        assert b"tool_calls" in got
    assert late == [False]


@pytest.mark.parametrize(
    "reply", [Reply(chat_pieces("Said.", CALL), kind=SSE), Reply(chat_body("Said.", CALL))]
)
def test_an_answer_does_not_wait_for_ever(upstream: Provider, reply: Reply) -> None:
    upstream.replies = [reply]
    answered, late = threading.Event(), []

    def look(_exchange: Exchange, is_late: Callable[[], bool]) -> None:
        assert answered.wait(20)
        late.append(is_late())

    upstreams = Upstreams.found({}, [upstream.address])
    with Relay(upstreams, on_request=look, patience=0.01) as relay, _client() as client:
        client.post(f"{relay.address('openai')}/chat/completions", json={})
        answered.set()
    assert late == [True]


def test_nothing_is_left_behind(upstream: Provider) -> None:
    before = set(threading.enumerate())
    with Relay(Upstreams.found({}, [upstream.address])) as relay, _client() as client:
        client.post(f"{relay.address('openai')}/chat/completions", json={})
        assert set(threading.enumerate()) > before
    assert not [t for t in set(threading.enumerate()) - before if t.name.startswith("repotrace")]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", relay.port), 5)
    # The same port can be had again at once.
    with Relay(Upstreams.found({}, [upstream.address]), port=relay.port) as again:
        assert again.port == relay.port


def test_a_relay_that_is_stopped_waits_for_no_answer(upstream: Provider) -> None:
    kept, over, got = Kept(), threading.Event(), threading.Event()
    upstream.replies = [Reply(events(*range(3)), kind=SSE, between=lambda _number: over.wait(30))]
    broken: list[bool] = []

    def ask(address: str) -> None:
        with _client() as client, client.stream("POST", address, json={}) as response:
            chunks = response.iter_raw()
            next(chunks)
            got.set()
            try:
                next(chunks)
            except httpx2.HTTPError:
                broken.append(True)

    with Relay(Upstreams.found({}, [upstream.address]), on_exchange=kept) as relay:
        address = f"{relay.address('openai')}/chat/completions"
        agent_ = threading.Thread(target=ask, args=(address,))
        agent_.start()
        assert got.wait(20)
    over.set()
    agent_.join(20)
    assert broken == [True]
    (exchange,) = kept.wait()
    assert exchange.error == "the relay was stopped"
    assert not exchange.complete


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RepoTraceError, match=f"Port {port}"):
            Relay(Upstreams({}), port=port).__enter__()


# --- Where it goes --------------------------------------------------------------------------


def test_what_the_user_has_set_is_where_it_goes() -> None:
    environ = {
        "OPENAI_BASE_URL": "https://gateway.test/llm/openai/v1",
        "ANTHROPIC_BASE_URL": "http://localhost:4000",
        "LLM_BASE_URL": "https://gateway.test/all/",
    }
    found = Upstreams.found(environ).addresses
    assert found["openai"] == found["openai-api"] == environ["OPENAI_BASE_URL"]
    assert found["anthropic"] == "http://localhost:4000"
    assert found["gemini"] == "https://generativelanguage.googleapis.com"
    assert found["llm"] == "https://gateway.test/all/"
    with Relay(Upstreams.found(environ)) as relay:
        given = relay.environment({"HOME": "/h", "NO_PROXY": "intern.test"})
        begin = f"http://127.0.0.1:{relay.port}/"
        assert given["HOME"] == "/h"
        assert given["NO_PROXY"] == "intern.test,127.0.0.1,localhost"
        assert given["OPENAI_BASE_URL"].startswith(begin)
        assert given["OPENAI_BASE_URL"].endswith("/openai/llm/openai/v1")
        assert given["ANTHROPIC_BASE_URL"].endswith("/anthropic")
        assert given["LLM_BASE_URL"].endswith("/llm/all")
        # The word in the path is another each time.
        with Relay(Upstreams.found(environ)) as other:
            assert relay.address("llm").split("/")[3] != other.address("llm").split("/")[3]


def test_one_upstream_stands_for_all_and_a_named_one_for_itself() -> None:
    found = Upstreams.found({}, ["http://127.0.0.1:8900", "gemini=https://g.test"]).addresses
    assert found["openai"] == "http://127.0.0.1:8900/v1"
    assert found["anthropic"] == found["llm"] == "http://127.0.0.1:8900"
    assert found["gemini"] == "https://g.test"
    assert Upstreams.found({}).addresses.keys() == {"anthropic", "openai", "openai-api", "gemini"}


@pytest.mark.parametrize(
    "given", ["ftp://h.test", "gateway.test", "https://", "http://h.test:port", "mistral=https://m"]
)
def test_an_upstream_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(RepoTraceError):
        Upstreams.found({}, [given])


def test_agents_that_need_more_than_variables_get_it() -> None:
    with Relay(Upstreams.found({})) as relay:
        codex = relay.command(["codex", "exec", "do it"], agent("codex"))
        assert codex == [
            "codex",
            "-c",
            f'openai_base_url="{relay.address("openai")}"',
            "exec",
            "do it",
        ]
        assert relay.command(["mini"], agent("mini-swe-agent")) == ["mini"]
        assert relay.command(["x"], None) == ["x"]
        given = relay.environment({}, agent("gemini-cli"))
        assert given["GEMINI_CLI_TRUST_WORKSPACE"] == "true"


def test_a_proxy_of_the_user_is_used_for_providers_and_not_for_the_loopback(
    upstream: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_PROXY", "no_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    with provider(Reply(b'{"by": "proxy"}')) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.address)
        upstreams = Upstreams({"openai": "http://provider.test/v1", "llm": upstream.address})
        with Relay(upstreams) as relay, _client() as client:
            far = client.post(f"{relay.address('openai')}/chat/completions", json={})
            near = client.post(f"{relay.address('llm')}/chat/completions", json={})
    assert far.json() == {"by": "proxy"}
    assert dict(proxy.asked[0].headers)["host"] == "provider.test"
    assert near.content == chat_body("Said.")
    assert len(proxy.asked) == len(upstream.asked) == 1
