"""Which span is another attempt at what an earlier one failed to do.

A span is a retry if it says so (`retry_of`), if one of its name has failed, or if something failed
since one of its name was tried: after a red test, writing the patch again is the second attempt.
A name such as `retry` or `retry-write-patch` says so as well. One failure is answered once, by the
first span that tries again; running the tests again is how one sees whether it did.
"""

from __future__ import annotations

import re
import threading
from typing import NamedTuple

_RETRY = re.compile(r"^(?:re-?try|try again|second attempt|fix again)\b[\s:_/-]*(.*)$", re.I)
_AGAIN = re.compile(r"^(.*?)[\s:_/-]*(?:\(?re-?try\)?|again|#?\d+)$", re.I)
_LOOKS = frozenset({"test", "gate", "verification"})
"""Types that look at a result; doing it again is no attempt at anything."""

_ANSWERS = frozenset({"llm", "edit", "planning", "plan", "agent", "span"})
"""Types that answer a failure of another span when they are done again."""


class Attempt(NamedTuple):
    """What is known of the newest span of a name."""

    step_id: str
    number: int
    failed: bool
    step_type: str


class Retries:
    """The attempts of one run, as this process makes them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, Attempt] = {}
        self._failure: str | None = None
        """Id of a failed step that nothing has answered yet."""

    def renew_lock(self) -> None:
        """After a fork."""
        self._lock = threading.Lock()

    def begin(self, name: str, step_type: str, retry_of: object = None) -> tuple[int, str | None]:
        """The number of the attempt, and the id of the step that is tried again."""
        if not self._newest:
            return 1, None
        with self._lock:
            earlier = self._earlier(name, step_type, retry_of)
            if earlier is None:
                return 1, None
            self._failure = None
            return earlier.number + 1, earlier.step_id

    def _earlier(self, name: str, step_type: str, retry_of: object) -> Attempt | None:
        if retry_of is not None:
            return self._named(retry_of)
        if step_type in _LOOKS:
            return None
        same = self._newest.get(name)
        if same is not None and same.failed:
            return same
        if self._failure is None:
            return None
        if same is not None:
            return same if step_type in _ANSWERS else None
        stem = _stem(name)
        if stem is None:
            return None
        return self._newest.get(stem) or self._newest_of_type(step_type) or self._failed()

    def _named(self, what: object) -> Attempt | None:
        """The attempt that a span, an id or a name means."""
        try:
            identity = getattr(what, "id", what)
        except Exception:  # a proxy of what is not there
            return None
        if isinstance(identity, str):
            for attempt in self._newest.values():
                if attempt.step_id == identity:
                    return attempt
            if identity in self._newest:
                return self._newest[identity]
            number = getattr(what, "attempt", 1)
            return Attempt(identity, number, True, "")
        return None

    def _newest_of_type(self, step_type: str) -> Attempt | None:
        found = [each for each in self._newest.values() if each.step_type == step_type]
        return max(found, default=None)

    def _failed(self) -> Attempt | None:
        return next((each for each in self._newest.values() if each.step_id == self._failure), None)

    def end(self, name: str, attempt: Attempt) -> None:
        """A span is over."""
        with self._lock:
            self._newest[name] = attempt
            if attempt.failed:
                self._failure = attempt.step_id


def _stem(name: str) -> str | None:
    """The name without the words that say it is a retry; None if it does not say so."""
    for pattern in (_RETRY, _AGAIN):
        found = pattern.match(name)
        if found:
            return found[1]
    return None
