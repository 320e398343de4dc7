"""Messages of `logging` that are logged in a traced agent become log entries of the step."""

from __future__ import annotations

import logging

from repotrace.sdk.spans import current_span


class TraceHandler(logging.Handler):
    """Add it to a logger; outside of a traced agent it does nothing."""

    def emit(self, record: logging.LogRecord) -> None:
        """Record one message with its level, its logger and its exception."""
        span = current_span()
        if span is None or span._run is None:
            return
        try:
            data: dict[str, object] = {}
            if record.exc_info:
                formatter = self.formatter or logging.Formatter()
                data["exception"] = formatter.formatException(record.exc_info)
            span._run.recorder.record_log(
                self.format(record) if self.formatter else record.getMessage(),
                level=record.levelname.lower(),
                step_id=span.id,
                logger=record.name,
                data=data or None,
            )
        except Exception:
            self.handleError(record)
