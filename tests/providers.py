"""A server that answers as OpenAI and Anthropic do, with what it is told to answer."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

type Json = dict[str, Any]


class Reply(NamedTuple):
    """One answer of the server."""

    body: Json | None = None
    events: list[Json] | None = None
    """Of a stream, sent one by one."""
    status: int = 200
    broken_off: bool = False
    """The connection ends in the middle of the stream."""


class Provider:
    """The server while it runs. It takes replies from the left of `replies`."""

    def __init__(self) -> None:
        self.replies: deque[Reply] = deque()
        self.requests: list[Json] = []
        self.url = ""


@contextmanager
def provider() -> Iterator[Provider]:
    """A server on a port of its own."""
    told = Provider()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            size = int(self.headers["content-length"])
            told.requests.append(json.loads(self.rfile.read(size)))
            reply = told.replies.popleft()
            self.send_response(reply.status)
            self.send_header("x-request-id", f"req_{len(told.requests)}")
            self.send_header("request-id", f"req_{len(told.requests)}")
            self.send_header("retry-after-ms", "1")
            if reply.events is None:
                self._plain(reply)
            else:
                self._stream(reply)

        def _plain(self, reply: Reply) -> None:
            data = json.dumps(reply.body).encode()
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, reply: Reply) -> None:
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for event in reply.events or ():
                name = f"event: {event['type']}\n" if "type" in event else ""
                self._chunk(f"{name}data: {json.dumps(event)}\n\n".encode())
                time.sleep(0.002)
            if reply.broken_off:
                self.close_connection = True
                return
            if "/chat/" in self.path:
                self._chunk(b"data: [DONE]\n\n")
            self._chunk(b"")

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

        def log_message(self, *args: object) -> None:
            """Nothing is printed."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *args: object) -> None:
            """A client that leaves a stream is no error."""

    server = Server(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# --- What they answer -------------------------------------------------------------------------

WEATHER = {"city": "Rome"}

CHAT: Json = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-4o-2024-08-06",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": None,
            "message": {
                "role": "assistant",
                "content": "I look.",
                "refusal": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "weather", "arguments": json.dumps(WEATHER)},
                    }
                ],
            },
        }
    ],
    "usage": {
        "prompt_tokens": 20,
        "completion_tokens": 7,
        "total_tokens": 27,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    },
}


def _chunk(delta: Json, reason: str | None = None, **more: Any) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1}
    return {**head, "model": CHAT["model"], "choices": [choice], **more}


CHAT_EVENTS: list[Json] = [
    _chunk({"role": "assistant", "content": "I "}),
    _chunk({"content": "look."}),
    _chunk(
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city"'},
                }
            ]
        }
    ),
    _chunk({"tool_calls": [{"index": 0, "function": {"arguments": ': "Rome"}'}}]}),
    _chunk({}, "tool_calls"),
    {**_chunk({}), "choices": [], "usage": CHAT["usage"]},
]

MESSAGE: Json = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-4-6",
    "content": [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "call_1", "name": "weather", "input": WEATHER},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 10,
        "cache_read_input_tokens": 6,
        "cache_creation_input_tokens": 4,
        "output_tokens": 7,
    },
}

MESSAGE_EVENTS: list[Json] = [
    {
        "type": "message_start",
        "message": {
            **MESSAGE,
            "content": [],
            "stop_reason": None,
            "usage": {**MESSAGE["usage"], "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "look."}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "call_1", "name": "weather", "input": {}},
    },
    {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": '{"city": "Rome"}'},
    },
    {"type": "content_block_stop", "index": 1},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 7},
    },
    {"type": "message_stop"},
]

RESPONSE: Json = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-4o-2024-08-06",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "output": [
        {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
        },
        {
            "id": "f1",
            "type": "function_call",
            "call_id": "call_1",
            "name": "weather",
            "arguments": json.dumps(WEATHER),
            "status": "completed",
        },
    ],
    "usage": {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 27,
    },
}

_BEGUN = {**RESPONSE, "status": "in_progress", "output": [], "usage": None}
_AT = {"item_id": "m1", "output_index": 0, "content_index": 0}
RESPONSE_EVENTS: list[Json] = [
    {"type": "response.created", "sequence_number": 0, "response": _BEGUN},
    {
        "type": "response.output_item.added",
        "sequence_number": 1,
        "output_index": 0,
        "item": {**RESPONSE["output"][0], "content": [], "status": "in_progress"},
    },
    {
        "type": "response.content_part.added",
        "sequence_number": 2,
        **_AT,
        "part": {"type": "output_text", "text": "", "annotations": []},
    },
    {
        "type": "response.output_text.delta",
        "sequence_number": 3,
        **_AT,
        "delta": "I look.",
        "logprobs": [],
    },
    {"type": "response.completed", "sequence_number": 4, "response": RESPONSE},
]
