"""What the relay adds to a streamed answer, against asking the provider directly.

    .venv/bin/python benchmarks/proxy.py [ROUNDS]

A server on the loopback streams an answer, a chunk every few milliseconds, each with the moment
when it was sent. Direct and relayed requests take turns. To be reached, at the median of one run:
at most 5 ms more to the first byte, and 1 ms more a chunk. `recorded` is the relay with the traffic
written to a journal and a state of a work tree taken at each request.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from repotrace.proxy import Relay, Upstreams
from repotrace.runs.recording.wire_recording import ProxyRecording

CHUNKS = 40
PAUSE = 0.005
FILES = 1_000


async def answer(request: Request) -> StreamingResponse:
    """A streamed answer; each chunk says when it was sent."""
    await request.body()

    async def chunks() -> AsyncIterator[str]:
        for number in range(CHUNKS):
            sent = {"content": f"{time.perf_counter():.9f} "}
            last = "stop" if number == CHUNKS - 1 else None
            choice = {"index": 0, "delta": sent, "finish_reason": last}
            yield f"data: {json.dumps({'id': 'chatcmpl-1', 'choices': [choice]})}\n\n"
            await asyncio.sleep(PAUSE)
        yield "data: [DONE]\n\n"

    return StreamingResponse(chunks(), media_type="text/event-stream")


@contextmanager
def served() -> Iterator[str]:
    """The server; gives its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def measured(client: httpx2.Client, address: str, number: int) -> tuple[float, list[float]]:
    """Milliseconds to the first byte, and those between sending and arrival of each chunk."""
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": f"{number}"}]}
    body["tools"] = [{"type": "function", "function": {"name": "a", "description": "x" * 20_000}}]
    begun = time.perf_counter()
    first, delays = 0.0, []
    with client.stream("POST", f"{address}/chat/completions", json=body) as response:
        for line in response.iter_lines():
            now = time.perf_counter()
            first = first or now - begun
            if line.startswith("data: {"):
                told = json.loads(line[6:])["choices"][0]["delta"]["content"]
                delays.append((now - float(told)) * 1e3)
    return first * 1e3, delays


def main(rounds: int) -> None:
    """Measure, print, and say whether it is enough."""
    with ExitStack() as stack:
        upstream = stack.enter_context(served())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for number in range(FILES):
            (folder / f"{number}.txt").write_text(f"{number}\n" * 20)
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        relay = stack.enter_context(Relay(Upstreams.found({}, [upstream])))
        recording = stack.enter_context(ProxyRecording(folder, {}, upstreams=[upstream]))
        ways = {
            "direct": f"{upstream}/v1",
            "relayed": relay.address("openai"),
            "recorded": recording.relay.address("openai"),
        }
        client = stack.enter_context(httpx2.Client(trust_env=False))
        first: dict[str, list[float]] = {name: [] for name in ways}
        chunk: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds + 3):
            for name, address in ways.items():
                begun, delays = measured(client, address, number)
                if number >= 3:  # connections are made, and the first state is taken
                    first[name].append(begun)
                    chunk[name] += delays
    print(f"{'':10} {'first byte':>12} {'a chunk':>12}   (medians of {rounds} answers, ms)")
    for name in ways:
        begin, one = statistics.median(first[name]), statistics.median(chunk[name])
        print(f"{name:10} {begin:12.2f} {one:12.3f}")
    for name in ("relayed", "recorded"):
        more = statistics.median(first[name]) - statistics.median(first["direct"])
        each = statistics.median(chunk[name]) - statistics.median(chunk["direct"])
        good = "reached" if more <= 5 and each <= 1 else "MISSED"
        print(f"{name}: {more:+.2f} ms to the first byte, {each:+.3f} ms a chunk: {good}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
