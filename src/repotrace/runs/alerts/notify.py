"""Tells a URL of alerts: one POST of JSON that a Slack webhook understands as well."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from repotrace.errors import RepoTraceError
from repotrace.read.views import Alert
from repotrace.readable import one_line

ATTEMPTS = 3
TIMEOUT = 10.0
"""Seconds for each attempt."""

PATIENCE = ATTEMPTS * TIMEOUT + 5.0
"""Seconds that all attempts may take."""

_PAUSES = (0.5, 2.0)
"""Seconds before the second and the third attempt."""

_LINES = 40
"""Alerts that the text has a line for."""

_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


def message_of(alerts: Sequence[Alert]) -> dict[str, Any]:
    """What is posted: `text` for people, as Slack shows it, and the alerts themselves.

    Alerts come from texts that are redacted, and name a secret by its place alone.
    """
    lines = [f"RepoTrace: {len(alerts)} alert{'s' * (len(alerts) != 1)}"]
    for alert in alerts[:_LINES]:
        where = f"{alert.run_id} step {alert.step}" if alert.step else alert.run_id
        proof = f" ({_escaped(', '.join(alert.evidence[:3]))})" if alert.evidence else ""
        lines.append(f"• {where} · {alert.rule}: {_escaped(alert.message)}{proof}")
    if len(alerts) > _LINES:
        lines.append(f"… and {len(alerts) - _LINES} more")
    return {
        "text": "\n".join(lines),
        "schema_version": 1,
        "alerts": [alert.model_dump(mode="json") for alert in alerts],
    }


def _escaped(text: str) -> str:
    """Text that Slack does not read as a link or a mention."""
    shown = one_line(text, 300)
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def notify(url: str, alerts: Sequence[Alert], *, patience: float = PATIENCE) -> None:
    """Post the alerts, up to three times where the other side is busy or not there, and no more
    after `patience` seconds.

    Raises RepoTraceError if it did not take them. The URL is not in the message: it is a secret.
    """
    import httpx2

    if not url.startswith(("https://", "http://")):
        raise RepoTraceError("The address to notify is no URL.", hint="Write https://…")
    body = message_of(alerts)
    problem = ""
    until = time.monotonic() + patience
    for pause in (0.0, *_PAUSES)[:ATTEMPTS]:
        left = until - time.monotonic() - pause
        if left <= 0:
            break
        time.sleep(pause)
        try:
            answer = httpx2.post(url, json=body, timeout=min(TIMEOUT, left))
        except httpx2.InvalidURL:
            raise RepoTraceError("The address to notify is no URL.") from None
        except httpx2.HTTPError as error:
            problem = f"no answer ({type(error).__name__})"
            continue
        if answer.is_success:
            return
        problem = f"HTTP {answer.status_code}"
        if answer.status_code not in _AGAIN:
            break
    raise RepoTraceError(f"The alerts could not be posted: {problem}.")
