"""Errors that a user can read: what happened, then what to do.

Raised low, printed once at the boundary in `cli/`. A subclass exists only where some
caller catches it; each one also derives from the built-in that a Python caller would expect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


class RepoTraceError(Exception):
    """Something the user can act on. `message` is plain text, `hint` the next step or None."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class ReportNotFound(RepoTraceError, FileNotFoundError):
    """No stored report has this id."""


class UnreadableReport(RepoTraceError, ValueError):
    """A report file is not a report: broken JSON, a wrong shape, an id that is not its name."""


class NewerSchema(UnreadableReport):
    """A report or database was written by a newer RepoTrace."""


class InvalidReportId(RepoTraceError, ValueError):
    """A report id that may not be used: wrong characters, too long, or reserved."""


class ReportExists(RepoTraceError, FileExistsError):
    """A file is in the way and may not be replaced."""


class NoCommand(RepoTraceError, ValueError):
    """A report carries no command that could be run."""


class NotTrusted(RepoTraceError, PermissionError):
    """What came from elsewhere would be executed, and nobody said that it may be."""

    def __init__(self, kind: str, name: str, *, file: str, at: datetime, command: str) -> None:
        super().__init__(
            f"{kind.capitalize()} {name} came from elsewhere ({file}) and is not executed"
            f" unasked. It would run: {command}",
            hint="Look at it first. If you trust it, pass trusted=True",
        )
        self.kind = kind
        self.name = name
        self.file = file
        """The name of the file that it was imported from."""
        self.at = at
        """When it was imported, UTC."""
        self.command = command
        """What would be executed, in one line."""


class RunNotFound(RepoTraceError, LookupError):
    """No recorded run is meant by this id, or the run has no such step."""


class ImportFailed(RepoTraceError, ValueError):
    """A file is no transcript that we know, or cannot be read as one."""
