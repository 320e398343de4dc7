"""The model calls of a run that were recorded without a word of the program.

A program may tell of one of them besides, by the response that it got: then both are one call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_REMEMBERED = 256


@dataclass(slots=True)
class ToldCall:
    """One call, as far as it is needed to know it again."""

    id: str
    step_id: str
    within: object
    """The span that was current."""
    external_id: str | None = None
    text: str | None = None
    message: dict[str, Any] | None = None
    """The answer, as `records.events.Message`."""
    is_told: bool = False
    """The program told of it, too."""


class ToldCalls:
    """The newest calls of a run. May be shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: deque[ToldCall] = deque(maxlen=_REMEMBERED)

    def renew_lock(self) -> None:
        """After a fork."""
        self._lock = threading.Lock()

    def add(self, call: ToldCall) -> bool:
        """Remember a call; whether its id is its own. Some servers give the same to all."""
        with self._lock:
            known = any(c.external_id == call.external_id for c in self._calls if c.external_id)
            self._calls.append(call)
        return not known

    def by_id(self, external_id: str) -> ToldCall | None:
        """The newest call whose response had this id."""
        with self._lock:
            found = (call for call in reversed(self._calls) if call.external_id == external_id)
            return next(found, None)

    def told(self, known: Mapping[str, Any], within: object) -> ToldCall | None:
        """The call that a program tells of within a span: by its id, else by its answer."""
        external_id, text = known.get("external_id"), known.get("response")
        call = self.by_id(external_id) if isinstance(external_id, str) else None
        if call is None and external_id is None and isinstance(text, str) and text:
            with self._lock:
                call = next((c for c in reversed(self._calls) if _fits(c, text, within)), None)
        if call is not None:
            call.is_told = True
        return call


def _fits(call: ToldCall, text: str, within: object) -> bool:
    return not call.is_told and call.within is within and (call.text or "").strip() == text.strip()
