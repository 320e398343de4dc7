"""`Reproduction`: what is needed to reproduce a failure, whatever it was read from."""

from __future__ import annotations

import keyword
import re

from pydantic import Field, PrivateAttr

from repotrace.errors import NoCommand
from repotrace.records.base import OsText, Record
from repotrace.records.bug import BugReport, Kept
from repotrace.records.command import CommandRun, Output, Places, Termination
from repotrace.records.trace import Trace, command_run_of, run_of_trace

_MAX_NAME = 60
_SYSTEMS = {"linux": "linux", "darwin": "darwin", "macos": "darwin", "windows": "win32"}


class Reproduction(Record):
    """A recorded command and how it ended."""

    command: list[OsText] = Field(description="Argv; of a script /bin/sh, -c and the script")
    cwd: OsText = Field(default="", description="Working directory of the run")
    exit_code: int | None = Field(
        default=None, description="As subprocess has it: -N for signal N, None if it never ended"
    )
    stdout: OsText = Field(default="", description="Standard output")
    stderr: OsText = Field(default="", description="Standard error")
    report_id: str | None = Field(default=None, description="Id of the report, if there is one")
    title: str = Field(default="", description="What failed, in one line")
    run: CommandRun | None = Field(default=None, description="All that was recorded")
    platform: str = Field(
        default="", description="Where it ran, as sys.platform has it; empty: not known"
    )
    _kept: Kept | None = PrivateAttr(default=None)

    @property
    def kept(self) -> Kept | None:
        """Where the report was read from; None if there is none, or if a program made it."""
        return self._kept

    @classmethod
    def from_trace(
        cls, trace: Trace, *, report_id: str | None = None, title: str = ""
    ) -> Reproduction:
        """The reproduction of a trace. Raises NoCommand if it holds no command."""
        run = run_of_trace(trace)
        if not run.argv and run.script is None:
            raise NoCommand("The trace holds no command.")
        return cls._of(run, report_id, title, trace.environment.get("platform"))

    @classmethod
    def from_report(cls, report: BugReport) -> Reproduction:
        """The reproduction of a report. Raises NoCommand (a ValueError) if it holds none."""
        facts = report.metadata.get("environment")
        platform = facts.get("platform") if isinstance(facts, dict) else None
        made = cls._of(command_run_of(report), report.id, report.title, platform)
        made._kept = report.kept
        return made

    @classmethod
    def _of(
        cls, run: CommandRun, report_id: str | None, title: str, platform: object
    ) -> Reproduction:
        system = str(platform or "").partition("-")[0].lower()
        return cls(
            command=command_of(run),
            cwd=run.cwd,
            exit_code=run.returncode,
            stdout=run.stdout.text,
            stderr=run.stderr.text,
            report_id=report_id,
            title=title,
            run=run,
            platform=_SYSTEMS.get(system, ""),
        )

    @property
    def recorded(self) -> CommandRun:
        """`run`, or as much of it as the other fields say. Raises NoCommand if empty."""
        run = self.run
        if run is None:
            signaled = self.exit_code is not None and self.exit_code < 0
            endings = {True: Termination.SIGNALED, False: Termination.EXITED}
            run = CommandRun(
                argv=tuple(self.command),
                cwd=self.cwd,
                termination=Termination.TIMEOUT if self.exit_code is None else endings[signaled],
                exit_code=None if signaled else self.exit_code,
                signal=-self.exit_code if signaled and self.exit_code is not None else None,
                stdout=Output.of(self.stdout.encode("utf-8", "surrogateescape")),
                stderr=Output.of(self.stderr.encode("utf-8", "surrogateescape")),
                places=Places(cwd=self.cwd or None),
            )
        if not command_of(run):
            raise NoCommand("There is no command to reproduce.")
        return run


def command_of(run: CommandRun) -> list[str]:
    """The argv that runs it again, a script given to /bin/sh."""
    return list(run.argv) if run.script is None else ["/bin/sh", "-c", run.script]


def as_reproduction(source: Reproduction | Trace | BugReport) -> Reproduction:
    """`source` as a reproduction. Raises NoCommand if it holds no command, TypeError otherwise."""
    if isinstance(source, Reproduction):
        return source
    if isinstance(source, Trace):
        return Reproduction.from_trace(source)
    if isinstance(source, BugReport):
        return Reproduction.from_report(source)
    raise TypeError(f"Expected a Reproduction, Trace or BugReport, not {type(source).__name__}.")


def slugify(text: str, *, fallback: str = "case") -> str:
    """`text` as a lowercase Python identifier of at most 60 characters or a few more."""
    slug = re.sub(r"[^0-9a-zA-Z]+", "_", text).strip("_").lower()
    slug = slug[:_MAX_NAME].strip("_") or fallback
    if slug[0].isdigit():
        slug = f"case_{slug}"
    return f"{slug}_case" if keyword.iskeyword(slug) else slug
