"""The relay: one server on 127.0.0.1, run in a thread, that passes on what it gets."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from repotrace.agents import Agent
from repotrace.errors import RepoTraceError
from repotrace.proxy.exchange import Exchange
from repotrace.proxy.gate import Gate
from repotrace.proxy.passing import Asgi, Passing, answer
from repotrace.proxy.upstreams import VARIABLES, Upstreams, is_loopback, without_proxy

if TYPE_CHECKING:
    import httpx2

HOST = "127.0.0.1"

PATIENCE = 2.0
"""Seconds that the end of a response waits for what its request found to be recorded."""

_CONNECT = 30.0
"""Seconds after which a provider counts as out of reach. A response may take as long as it will."""
_KEEP_ALIVE = 300
"""Seconds that a connection of the agent is kept open for its next request."""
_SHUTDOWN = 1
"""Seconds that responses which are on their way get when the relay is stopped."""

type OnRequest = Callable[[Exchange, Callable[[], bool]], object]
"""Is told of a request when it is complete and on its way. The second argument says whether the
response could already be acted upon, so that files may have changed meanwhile."""
type OnExchange = Callable[[Exchange], object]
"""Is told of a request and its response when that has ended."""


class Relay:
    """Passes the requests of an agent on to its providers, and hands out what passed.

    `with Relay(upstreams, on_exchange=…) as relay:` serves until the block ends. Both functions are
    called in one thread of their own, in the order of what happened; one that raises is counted in
    `lost`, and the traffic goes on.
    """

    def __init__(
        self,
        upstreams: Upstreams,
        *,
        on_exchange: OnExchange | None = None,
        on_request: OnRequest | None = None,
        port: int = 0,
        patience: float = PATIENCE,
    ) -> None:
        self.upstreams = upstreams
        self.port = port
        """0 until the relay serves: the system chooses one."""
        self.lost = 0
        """How often recording failed."""
        self.problem: str | None = None
        """Why it failed, the first time."""
        self._on_exchange, self._on_request = on_exchange, on_request
        self._patience = patience
        self._secret = secrets.token_urlsafe(16)
        self._told: SimpleQueue[_Told | None] = SimpleQueue()
        self._server: Any = None
        self._threads: list[threading.Thread] = []
        self._clients: dict[bool, httpx2.AsyncClient] = {}

    # --- What the agent is given ------------------------------------------------------------

    def address(self, provider: str) -> str:
        """The base URL that stands for the one of a provider."""
        path = self.upstreams.path(provider)
        return f"http://{HOST}:{self.port}/{self._secret}/{provider}{path}"

    def variables(self) -> dict[str, str]:
        """The environment variables that lead an agent here."""
        known = self.upstreams.addresses
        return {v.name: self.address(v.provider) for v in VARIABLES if v.provider in known}

    def environment(self, environ: Mapping[str, str], agent: Agent | None = None) -> dict[str, str]:
        """`environ` with all that leads an agent here."""
        more = agent.proxy.environment if agent else {}
        return {**environ, **without_proxy(environ), **self.variables(), **more}

    def command(self, argv: Sequence[str], agent: Agent | None) -> list[str]:
        """The command that starts an agent, with the arguments that lead it here."""
        if agent is None or not argv:
            return list(argv)
        addresses = {
            name.replace("-", "_"): self.address(name) for name in self.upstreams.addresses
        }
        more = [argument.format(**addresses) for argument in agent.proxy.arguments]
        return [argv[0], *more, *argv[1:]]

    def shown(self, text: str) -> str:
        """A text for people, without the word that keeps others out."""
        return text.replace(self._secret, "…")

    # --- Serving ----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        import logging

        import uvicorn

        # It would log addresses with the keys in them.
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        listener = _listening(self.port)
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level=logging.CRITICAL + 1,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=_SHUTDOWN,
            h11_max_incomplete_event_size=1 << 20,
        )
        self._server = uvicorn.Server(config)
        serve = threading.Thread(target=self._serve, args=(listener,), name="repotrace-relay")
        record = threading.Thread(target=self._record, name="repotrace-relay-record")
        self._threads = [serve, record]
        for thread in self._threads:
            thread.daemon = True
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        serve, record = self._threads
        self._server.should_exit = True
        serve.join()
        self._told.put(None)
        record.join()

    def _serve(self, listener: socket.socket) -> None:
        async def until_stopped() -> None:
            try:
                # Each takes a while to make, which no request should have to wait for.
                for address in self.upstreams.addresses.values():
                    self._client(is_loopback(address))
                await self._server.serve(sockets=[listener])
            finally:
                for client in self._clients.values():
                    await client.aclose()

        try:
            asyncio.run(until_stopped())
        finally:
            listener.close()

    def _record(self) -> None:
        while (told := self._told.get()) is not None:
            try:
                if told.passing is None:
                    if self._on_exchange is not None:
                        self._on_exchange(told.exchange)
                elif self._on_request is not None:
                    self._on_request(told.exchange, told.passing.gate.is_late)
            except Exception as error:  # whatever it is: the agent must not notice
                self.lost += 1
                self.problem = self.problem or f"{type(error).__name__}: {error}"
            finally:
                if told.passing is not None:
                    told.passing.open_gate()

    # --- One request ------------------------------------------------------------------------

    async def _app(self, scope: dict[str, Any], receive: Asgi, send: Asgi) -> None:
        if scope["type"] != "http":
            return
        route = self._route(scope)
        if route is None:
            await answer(send, 404, "This is no address of the relay.", "not_found_error")
        elif _is_upgrade(scope):
            words = "RepoTrace relays HTTP only; agents fall back to it."
            await answer(send, 426, words, "invalid_request_error", upgrade="HTTP/1.1")
        else:
            origin, path = route
            gate = Gate(self._patience)
            passing = Passing(scope, origin, path, gate, self._asked, self._answered)
            await passing.run(self._client(is_loopback(origin)), receive, send)

    def _route(self, scope: Mapping[str, Any]) -> tuple[str, bytes] | None:
        """Where a request belongs: the origin, and the path there."""
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        _, secret, provider, *rest = [*raw.split(b"/", 3), b"", b""][:4]
        if not secrets.compare_digest(secret, self._secret.encode()):
            return None
        origin = self.upstreams.origin(provider.decode("latin-1"))
        return None if origin is None else (origin, b"/" + b"".join(rest))

    def _asked(self, exchange: Exchange, passing: Passing) -> None:
        if self._on_request is None:
            passing.gate.open()
        else:
            self._told.put(_Told(exchange, passing))

    def _answered(self, exchange: Exchange) -> None:
        self._told.put(_Told(exchange, None))

    def _client(self, loopback: bool) -> httpx2.AsyncClient:
        client = self._clients.get(loopback)
        if client is None:
            import httpx2

            client = self._clients[loopback] = httpx2.AsyncClient(
                timeout=httpx2.Timeout(None, connect=_CONNECT),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=50),
                trust_env=not loopback,
                follow_redirects=False,
            )
        return client


class _Told(NamedTuple):
    exchange: Exchange
    passing: Passing | None
    """The request that waits for being recorded; None: the exchange has ended."""


def _listening(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise RepoTraceError(
            f"Port {port} cannot be listened on: {error.strerror}.",
            hint="Leave out --port, and one that is free is taken.",
        ) from error
    return listener


def _is_upgrade(scope: Mapping[str, Any]) -> bool:
    return any(
        name == b"upgrade" and b"websocket" in value.lower() for name, value in scope["headers"]
    )
