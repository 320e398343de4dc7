"""A provider on the loopback that sends what a test wants, and programs that ask it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from repotrace.proxy import Exchange

type Record = dict[str, Any]

SSE = "text/event-stream"


@dataclass
class Reply:
    """What the provider answers to one request."""

    body: bytes | list[bytes] = b"{}"
    """Several pieces are sent one after another, as a stream without a length."""
    status: int = 200
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    drops: bool = False
    """The connection breaks behind the pieces."""
    between: Callable[[int], object] | None = None
    """Is called in a thread before each piece but the first."""


@dataclass
class Asked:
    """A request as it arrived."""

    method: str
    target: bytes
    """Path and query."""
    headers: list[tuple[str, str]]
    body: bytes
    left: threading.Event = field(default_factory=threading.Event)
    """The other side has closed the connection before the answer was over."""


class Provider:
    """Answers requests in turn, and keeps them."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.replies: list[Reply] = []
        """The next ones; the last is given again and again."""
        self.address = ""

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application; it answers whatever address is asked for."""
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        query = request.scope["query_string"]
        target = request.scope["raw_path"] + (b"?" + query if query else b"")
        headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in request.headers.raw]
        asked = Asked(request.method, target, headers, b"")
        self.asked.append(asked)
        try:
            asked.body = await request.body()
        except ClientDisconnect:
            asked.left.set()
            return Response()
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply.body, bytes):
            return Response(reply.body, reply.status, reply.headers, reply.kind)
        pieces = self._pieces(reply, reply.body, asked)
        return StreamingResponse(pieces, reply.status, reply.headers, reply.kind)

    async def _pieces(
        self, reply: Reply, pieces: list[bytes], asked: Asked
    ) -> AsyncIterator[bytes]:
        try:
            for number, piece in enumerate(pieces):
                if number and reply.between is not None:
                    await asyncio.to_thread(reply.between, number)
                yield piece
        except asyncio.CancelledError:
            asked.left.set()
            raise
        if reply.drops:
            raise ConnectionAbortedError("the test wants it so")


@contextmanager
def provider(*replies: Reply) -> Iterator[Provider]:
    """A provider that serves until the block ends."""
    found = Provider()
    found.replies = list(replies)
    listener = socket.create_server(("127.0.0.1", 0))
    found.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        found.app,
        interface="asgi3",
        log_config=None,
        log_level=100,
        timeout_graceful_shutdown=1,
        lifespan="off",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


class Kept:
    """The exchanges that a relay hands out, and when they come."""

    def __init__(self) -> None:
        self.all: list[Exchange] = []
        self._going = 0
        self._new = threading.Condition()

    def begun(self, _exchange: Exchange, _is_late: Callable[[], bool]) -> None:
        """A request is on its way."""
        with self._new:
            self._going += 1

    def forget(self) -> None:
        """Begin anew, when all that are on their way have come."""
        with self._new:
            assert self._new.wait_for(lambda: self._going == 0, 20)
            self.all.clear()

    def __call__(self, exchange: Exchange) -> None:
        with self._new:
            self.all.append(exchange)
            self._going -= 1
            self._new.notify_all()

    def wait(self, count: int = 1) -> list[Exchange]:
        """The first so many, once they are there."""
        with self._new:
            assert self._new.wait_for(lambda: len(self.all) >= count, 20)
            return self.all[:count]


def events(*values: Any) -> list[bytes]:
    """Server-sent events, a piece each."""
    return [b"data: " + json.dumps(value).encode() + b"\n\n" for value in values]


def chat_pieces(
    text: str, *calls: tuple[str, str, Record], name: str = "chatcmpl-1"
) -> list[bytes]:
    """A streamed answer of Chat Completions."""
    base = {"id": name, "object": "chat.completion.chunk", "created": 1, "model": "scripted"}

    def chunk(delta: Record, finish: str | None = None) -> Record:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {**base, "choices": [choice]}

    told = [chunk({"role": "assistant", "content": ""})]
    told += [chunk({"content": text[at : at + 5]}) for at in range(0, len(text), 5)]
    for place, (call_id, tool, arguments) in enumerate(calls):
        given = json.dumps(arguments)
        function = {"name": tool, "arguments": ""}
        opened = {"index": place, "id": call_id, "type": "function", "function": function}
        told.append(chunk({"tool_calls": [opened]}))
        for at in range(0, len(given), 7):
            more = {"index": place, "function": {"arguments": given[at : at + 7]}}
            told.append(chunk({"tool_calls": [more]}))
    told.append(chunk({}, "tool_calls" if calls else "stop"))
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    told.append({**base, "choices": [], "usage": usage})
    return [*events(*told), b"data: [DONE]\n\n"]


def chat_body(text: str, *calls: tuple[str, str, Record], name: str = "chatcmpl-1") -> bytes:
    """The same, plain."""
    message: Record = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": tool, "arguments": json.dumps(arguments)},
            }
            for call_id, tool, arguments in calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    whole = {"id": name, "object": "chat.completion", "created": 1, "model": "scripted"}
    return json.dumps({**whole, "choices": [choice], "usage": usage}).encode()


def anthropic_pieces(
    text: str, *calls: tuple[str, str, Record], name: str = "msg_1"
) -> list[bytes]:
    """A streamed answer of Messages."""
    used = {"input_tokens": 3, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2}
    message: Record = {
        "id": name,
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**used, "output_tokens": 1},
    }
    told: list[Record] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    blocks: list[tuple[Record, list[Record]]] = [
        (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": text[at : at + 6]} for at in range(0, len(text), 6)],
        )
    ]
    for call_id, tool, arguments in calls:
        given = json.dumps(arguments)
        block = {"type": "tool_use", "id": call_id, "name": tool, "input": {}}
        deltas = [
            {"type": "input_json_delta", "partial_json": given[at : at + 9]}
            for at in range(0, len(given), 9)
        ]
        blocks.append((block, deltas))
    for place, (block, deltas) in enumerate(blocks):
        told.append({"type": "content_block_start", "index": place, "content_block": block})
        told += [{"type": "content_block_delta", "index": place, "delta": d} for d in deltas]
        told.append({"type": "content_block_stop", "index": place})
    ended = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    told.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 9}})
    told.append({"type": "message_stop"})
    return [f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode() for value in told]
