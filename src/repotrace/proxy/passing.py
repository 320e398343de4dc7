"""One request on its way to a provider and back, byte for byte."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from repotrace.journal import new_id
from repotrace.proxy.bodies import Body, offered
from repotrace.proxy.exchange import Exchange, kept_headers, kept_query, keys_in, without
from repotrace.proxy.gate import Gate

if TYPE_CHECKING:
    import httpx2

type Asgi = Callable[..., Any]
"""`receive` or `send` of an application."""
type Headers = list[tuple[bytes, bytes]]

_HOP_BY_HOP = frozenset(
    [
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te"),
        *(b"trailer", b"transfer-encoding", b"upgrade", b"proxy-connection"),
    ]
)


class _Left(Exception):
    """The agent has closed its connection."""


class Passing:
    """A request that passes; `gate` keeps the end of its response until it was recorded."""

    def __init__(
        self,
        scope: Mapping[str, Any],
        origin: str,
        path: bytes,
        gate: Gate,
        asked: Callable[[Exchange, Passing], None],
        answered: Callable[[Exchange], None],
    ) -> None:
        self.gate = gate
        self._asked, self._answered = asked, answered
        self._loop = asyncio.get_running_loop()
        self._scope, self._origin, self._path = scope, origin, path
        self._begun = time.perf_counter()
        self._sent = asyncio.Event()
        """The request is complete."""
        headers: Headers = scope["headers"]
        self._keys = keys_in(headers, scope.get("query_string", b""))
        self._request = Body(_header(headers, b"content-encoding"))
        self._response = Body()
        self._exchange = Exchange(
            id=new_id(),
            time=time.time_ns(),
            method=scope["method"],
            path=path.decode("latin-1"),
            query=kept_query(scope.get("query_string", b"")),
            upstream=origin.rpartition("@")[2] if "@" in origin else origin,
            request_headers=kept_headers(headers),
        )

    def open_gate(self) -> None:
        """Let the end of the response pass; from any thread."""
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(self.gate.open)

    async def run(self, client: httpx2.AsyncClient, receive: Asgi, send: Asgi) -> None:
        """Pass the request and its response on. If that cannot be done to the end, return early:
        the server then closes the connection, as the provider did."""
        passing = asyncio.create_task(self._pass(client, receive, send))
        watching = asyncio.create_task(self._until_left(receive))
        try:
            await asyncio.wait((passing, watching), return_when=asyncio.FIRST_COMPLETED)
            if not passing.done():
                self._note("the agent closed the connection")
            elif passing.exception() is not None:
                self._note(f"the relay failed: {passing.exception()!r}")
        except asyncio.CancelledError:
            self._note("the relay was stopped")
            raise
        finally:
            for task in (passing, watching):
                task.cancel()
            try:
                await asyncio.gather(passing, watching, return_exceptions=True)
            finally:
                # A server that is stopped cancels twice.
                self._tell()

    async def _until_left(self, receive: Asgi) -> None:
        await self._sent.wait()
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _pass(self, client: httpx2.AsyncClient, receive: Asgi, send: Asgi) -> None:
        import httpx2

        try:
            response = await client.send(self._to_provider(receive), stream=True)
        except _Left:
            self._note("the agent closed the connection")
            return
        except httpx2.HTTPError as error:
            await self._out_of_reach(receive, send, error)
            return
        try:
            await self._hand_on(response, send)
        except httpx2.HTTPError as error:
            self._note(f"the provider closed the connection: {error or type(error).__name__}")
        finally:
            await response.aclose()

    def _to_provider(self, receive: Asgi) -> httpx2.Request:
        import httpx2

        given: Headers = self._scope["headers"]
        dropped = _dropped(given) | {b"host", b"accept-encoding"}
        headers = [(name, value) for name, value in given if name not in dropped]
        accepted = _header(given, b"accept-encoding")
        headers.append((b"accept-encoding", offered(accepted).encode("latin-1")))
        query: bytes = self._scope.get("query_string", b"")
        target = self._path + (b"?" + query if query else b"")
        url = httpx2.URL(self._origin).copy_with(raw_path=target)
        names = {name for name, _ in given}
        if b"content-length" in names or b"transfer-encoding" in names:
            return httpx2.Request(
                self._exchange.method, url, headers=headers, content=self._body(receive)
            )
        self._complete()
        return httpx2.Request(self._exchange.method, url, headers=headers)

    async def _body(self, receive: Asgi) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Left
            chunk, more = message.get("body", b""), message.get("more_body", False)
            self._request.add(chunk)
            if not more:
                # It is whole although its last bytes are not gone yet.
                self._complete()
            if chunk:
                yield chunk

    def _complete(self) -> None:
        """All of the request is here."""
        self._exchange = replace(
            self._exchange,
            request=without(self._keys, self._request.kept),
            error=_trouble("request", self._request),
        )
        self._sent.set()
        self._asked(self._exchange, self)

    async def _hand_on(self, response: httpx2.Response, send: Asgi) -> None:
        raw = [(name.lower(), value) for name, value in response.headers.raw]
        dropped = _dropped(raw)
        headers = [(name, value) for name, value in raw if name not in dropped]
        self._response = Body(_header(raw, b"content-encoding"))
        self._exchange = replace(
            self._exchange, status=response.status_code, response_headers=kept_headers(raw)
        )
        self.gate.begin(
            {name.decode("latin-1"): value.decode("latin-1") for name, value in headers},
            self._exchange.path,
        )
        start = {"type": "http.response.start", "status": response.status_code, "headers": headers}
        await send(start)
        async for chunk in response.aiter_raw():
            if self._exchange.first_byte is None:
                self._exchange = replace(self._exchange, first_byte=self._seconds())
            await self.gate.before(chunk, self._response.add(chunk))
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await self.gate.before_end()
        self._exchange = replace(self._exchange, complete=True, duration=self._seconds())
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _out_of_reach(self, receive: Asgi, send: Asgi, error: Exception) -> None:
        why = str(error) or type(error).__name__
        if not self._sent.is_set():
            # What nobody wanted is still what the agent asked.
            with suppress(_Left):
                async for _ in self._body(receive):
                    pass
        self._note(f"the provider is out of reach: {why}")
        # A provider that answers nothing at all cannot be imitated by a server.
        words = f"RepoTrace could not reach {self._exchange.upstream}: {why}"
        await answer(send, 502, words, "upstream_error")

    def _seconds(self) -> float:
        return time.perf_counter() - self._begun

    def _note(self, problem: str) -> None:
        if not self._exchange.complete:
            self._exchange = replace(self._exchange, error=problem)

    def _tell(self) -> None:
        """The end of it, to whom it concerns."""
        exchange = self._exchange
        if not self._sent.is_set():
            exchange = replace(exchange, request=without(self._keys, self._request.kept))
        error = exchange.error or _trouble("response", self._response)
        duration = exchange.duration if exchange.duration is not None else self._seconds()
        kept = without(self._keys, self._response.kept)
        self._answered(replace(exchange, response=kept, error=error, duration=duration))


async def answer(send: Asgi, status: int, words: str, kind: str, **headers: str) -> None:
    """An answer of our own, in the form of providers' errors."""
    body = json.dumps({"type": "error", "error": {"type": kind, "message": words}}).encode()
    own = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    pairs = [(name.encode(), value.encode()) for name, value in own.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


def _header(pairs: Headers, name: bytes) -> str:
    return ",".join(value.decode("latin-1") for found, value in pairs if found == name)


def _dropped(pairs: Headers) -> frozenset[bytes]:
    """The headers that are between two neighbours only."""
    named = _header(pairs, b"connection").lower().encode("latin-1").split(b",")
    return _HOP_BY_HOP | {name.strip() for name in named}


def _trouble(what: str, body: Body) -> str | None:
    return None if body.problem is None else f"the {what} is not kept whole: {body.problem}"
