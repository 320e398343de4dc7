"""Until when what a request found may still be looked at: before its response can be acted upon."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

_MARKS = (
    *(b'"tool_use"', b'"tool_calls"', b'"function_call"', b'"custom_tool_call"'),
    *(b'"functionCall"', b'"finishReason"', b"message_stop", b"response.completed"),
    *(b"response.incomplete", b"[DONE]"),
)
"""Words of streams with which an agent may begin to act: a call of a tool, or the end."""
_TAIL = max(map(len, _MARKS)) - 1


class Gate:
    """Opens when the request has been recorded, or when that has taken too long.

    While it is shut, bytes pass until some come that an agent could act upon. So a state of its
    files that is taken meanwhile is one that the response had no part in.
    """

    def __init__(self, patience: float) -> None:
        self._late = False
        self._patience = patience
        self._open = asyncio.Event()
        self._tail = b""
        self._streams = True
        self._left: int | None = None

    def is_late(self) -> bool:
        """Whether something was handed on that could be acted upon before the gate was open."""
        return self._late

    def open(self) -> None:
        """Let everything pass; to be called in the loop."""
        self._open.set()

    def begin(self, headers: Mapping[str, str], path: str) -> None:
        """Take note of how the response will come."""
        if self._open.is_set():
            return
        kind = headers.get("content-type", "")
        self._streams = kind.startswith("text/event-stream") or "stream" in path
        length = headers.get("content-length", "")
        self._left = int(length) if length.isdecimal() else None

    async def before(self, raw: bytes, decoded: bytes) -> None:
        """Wait, if these bytes must not pass yet; `decoded` is what they say."""
        if self._open.is_set() or self._late:
            return
        if self._left is not None:
            self._left -= len(raw)
            acts = self._left <= 0
        elif self._streams:
            text = self._tail + decoded
            acts = any(mark in text for mark in _MARKS)
            self._tail = text[-_TAIL:]
        else:
            acts = True
        if acts:
            await self.before_end()

    async def before_end(self) -> None:
        """Wait until the gate is open, as long as patience lasts."""
        if self._open.is_set() or self._late:
            return
        try:
            await asyncio.wait_for(self._open.wait(), self._patience)
        except TimeoutError:
            self._late = True
