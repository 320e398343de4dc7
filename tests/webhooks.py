"""A web hook on this machine that keeps what it is sent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE = 60.0
"""Seconds that something is waited for."""


class Webhook:
    """The web hook while it serves."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.codes: list[int] = []
        """What the next requests are answered with; 200 for all others."""
        self.bodies: list[dict[str, Any]] = []
        """What was posted, in order."""
        self.taken = threading.Condition()

    def wait_for(self, count: int) -> list[dict[str, Any]]:
        """What was posted, once that is so much."""
        with self.taken:
            assert self.taken.wait_for(lambda: len(self.bodies) >= count, PATIENCE)
            return list(self.bodies)

    @property
    def rules(self) -> list[list[str]]:
        """The rules of the alerts of each post."""
        return [[alert["rule"] for alert in body["alerts"]] for body in self.bodies]


@contextmanager
def webhook() -> Iterator[Webhook]:
    """Serve at an address that holds a secret."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            with served.taken:
                served.bodies.append(json.loads(data))
                code = served.codes.pop(0) if served.codes else 200
                served.taken.notify_all()
            self.send_response(code)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = Webhook(f"http://127.0.0.1:{server.server_address[1]}/hook/s3cr3t")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()


def until(condition: Any) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.05)
