"""Errors that a user can read: what happened, then what to do.

Raised low, printed once at the boundary in `cli/`. A subclass exists only where some
caller catches it; each one also derives from the built-in that a Python caller would expect.
"""

from __future__ import annotations


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


class RunNotFound(RepoTraceError, LookupError):
    """No recorded run is meant by this id, or the run has no such step."""


class ImportFailed(RepoTraceError, ValueError):
    """A file is no transcript that we know, or cannot be read as one."""
