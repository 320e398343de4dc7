"""Keeps the journal small: of a conversation that grows, only what is new is written."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from repotrace.sdk.values import as_text

_REMEMBERED = 16
"""Conversations of one run that may go on at the same time."""


class Conversations:
    """The newest model calls of a run, and the messages that each was shown."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown: dict[str, list[int]] = {}

    def renew_lock(self) -> None:
        """After a fork."""
        self._lock = threading.Lock()

    def added(self, call_id: str, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """`messages`, as far as no earlier call had them, and which call that was."""
        plain = [_plain(message) for message in messages]
        marks = [hash(as_text(message)) for message in plain]
        with self._lock:
            previous, kept = "", 0
            for name, shown in self._shown.items():
                same = _common(shown, marks)
                if same >= kept and same:
                    previous, kept = name, same
            self._shown.pop(previous, None)
            self._shown[call_id] = marks
            while len(self._shown) > _REMEMBERED:
                del self._shown[next(iter(self._shown))]
        if not kept:
            return {"messages": plain}
        return {"previous_id": previous, "kept": kept, "messages": plain[kept:]}


def _common(one: list[int], other: list[int]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _plain(message: Any) -> dict[str, Any]:
    try:
        if isinstance(message, Mapping):
            return dict(message)
        dump = getattr(message, "model_dump", None)
        if callable(dump):
            return dict(dump())
    except Exception:  # a foreign object that cannot be looked at
        pass
    return {"role": "unknown", "content": as_text(message)}
