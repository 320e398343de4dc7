"""`CommandRun`: one execution of a command, whoever ran it and whatever for.

A report's command, a replay's and later a step's and a blame's are this one record.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from errno import ENOENT
from hashlib import sha256
from signal import Signals

from pydantic import Field

from repotrace.records.base import Bytes, OsText, Record


class Termination(StrEnum):
    """How a command ended; the truth behind every exit code."""

    EXITED = "exited"
    SIGNALED = "signaled"
    TIMEOUT = "timeout"
    SPAWN_ERROR = "spawn_error"
    INTERRUPTED = "interrupted"


class Output(Record):
    """One stream of a command, redacted. Whole, or head and tail with the middle omitted."""

    head: Bytes = b""
    tail: Bytes = b""
    """The end of the stream; empty unless `omitted` is above 0."""
    omitted: int = 0
    """Bytes between head and tail that were not kept."""
    length: int = 0
    """Bytes the command wrote, before redaction."""
    sha256: str = ""
    """Hex digest of all that the command wrote; kept only where bytes were omitted."""

    @classmethod
    def of(cls, data: bytes) -> Output:
        """A whole stream."""
        return cls(head=data, length=len(data))

    @property
    def cut(self) -> bool:
        return self.omitted > 0

    @property
    def data(self) -> bytes:
        """What was kept; a cut stream has a line in the middle that says what is missing."""
        if not self.cut:
            return self.head
        return self.head + b"\n[... %d bytes omitted ...]\n" % self.omitted + self.tail

    @property
    def text(self) -> str:
        """`data` as text for people; bytes that are not UTF-8 become U+FFFD."""
        return self.data.decode("utf-8", "replace")


class Chunk(Record):
    """A stretch of output that arrived together. Times and order across streams are approximate."""

    stream: str
    """`stdout` or `stderr`."""
    start: int
    """Offset into the kept, redacted data of the stream, in bytes."""
    end: int
    seconds: float
    """Since the command started."""


class Places(Record):
    """Folders whose paths are volatile, as they were for one run. None: not known."""

    cwd: OsText | None = None
    repository: OsText | None = None
    venv: OsText | None = None
    python: OsText | None = None
    """Prefix of the base interpreter, the one that a virtual environment stands on."""
    tmp: OsText | None = None
    home: OsText | None = None


class Signature(Record):
    """What kind of failure it was, read from the output and the way the command ended."""

    kind: str
    """`pytest`, `unittest`, `python`, `jest`, `node`, `go-test`, `rust`, `cargo-test`, `signal`,
    `timeout`, `spawn_error`, or `last-line` (which is untyped)."""
    exception: str | None = None
    message: str | None = None
    """Normalised."""
    frame: str | None = None
    """Innermost frame inside the project: `path::function`, without the line number."""
    failing_tests: tuple[str, ...] = ()
    signal: int | None = None

    @property
    def typed(self) -> bool:
        """Whether the signature says more than the last line of the output does."""
        return self.kind != "last-line"


class RepositoryState(Record):
    """The git work tree that the command ran in."""

    commit: str | None = None
    """Full hex id; None before the first commit."""
    branch: str | None = None
    """None on a detached HEAD."""
    dirty: bool | None = False
    """Whether it differed from the commit, untracked files included. None: not known."""


class LeftOut(Record):
    """A file or folder that a state does not hold."""

    path: OsText
    """Relative to the workspace; a folder ends with a slash."""
    reason: str = ""
    """`ignored`, `secret`, `regenerable`, `too-large`, `unreadable`, `special`, `reserved-name`."""


class FileState(Record):
    """The files of the work tree as they were before a command started."""

    state_id: str | None = None
    """In the snapshot store; None unless `quality` is `exact`."""
    quality: str = "missed"
    """`exact`, or `missed`."""
    reason: str | None = None
    """Why it was missed, for people."""
    workspace: OsText = ""
    """The folder whose files they are, absolute and free of links."""
    not_captured: tuple[LeftOut, ...] = ()
    """The first of what the state does not hold, without the caches of tools."""
    not_captured_count: int = 0
    """How much that is in all."""


class CommandSpec(Record):
    """What to run. One of `argv` and `script` is given; a `script` goes to `/bin/sh -c`."""

    argv: tuple[OsText, ...] = ()
    script: OsText | None = None
    cwd: OsText
    env: dict[str, OsText] = Field(default_factory=dict)
    """The whole environment of the child."""
    stdin: Bytes | None = None
    """Bytes to feed; None leaves the child what `inherit_stdin` says."""
    inherit_stdin: bool = False
    """Pass our own stdin on (a terminal is handed over); otherwise /dev/null."""
    timeout: float | None = None
    pty: bool = False
    merge: bool = False
    """Send stderr into the stdout pipe: the true order, one stream."""


class CommandRun(Record):
    """One execution: what ran, in what surroundings, how it ended and what it printed."""

    argv: tuple[OsText, ...] = ()
    script: OsText | None = None
    resolved: OsText | None = None
    """The file that argv[0] stood for."""
    cwd: OsText = ""
    cwd_in_repository: OsText | None = None
    """`cwd` relative to the root of the git work tree, `.` for the root itself."""

    stdin: Bytes | None = None
    """Recorded standard input; None if there was none or if it was not recorded."""
    stdin_kind: str = "none"
    """`none` (/dev/null), `recorded`, `terminal`, or `cut` (longer than the limit)."""
    env: dict[str, OsText] = Field(default_factory=dict)
    """The kept variables, values redacted."""
    env_redacted: tuple[str, ...] = ()
    """Names of variables whose values look secret and are not kept."""
    env_unset: tuple[str, ...] = ()
    """Names of variables that matter to output and were not set."""
    env_added: tuple[str, ...] = ()
    """Names of variables that RepoTrace itself set for the command, as for colours."""

    timeout: float | None = None
    """Seconds."""
    pty: bool = False
    merge: bool = False
    umask: int | None = None

    termination: Termination = Termination.EXITED
    exit_code: int | None = None
    """What the operating system reported; None unless `termination` is `exited`."""
    signal: int | None = None
    error: str | None = None
    """Why it could not be started."""
    spawn_errno: int | None = None

    stdout: Output = Output()
    stderr: Output = Output()
    chunks: tuple[Chunk, ...] = ()

    started_at: datetime | None = None
    duration: float | None = None
    """Seconds."""
    cpu_time: float | None = None
    """Seconds of user and system time of the command and the children it waited for."""
    max_rss: int | None = None
    """Bytes."""
    pipe_held_open: bool = False
    """A process left behind still held stdout or stderr when the command had ended."""
    leftovers: tuple[int, ...] = ()
    """Pids of processes that the command left behind. They were ended with it, but for those
    that had moved to a session of their own (daemons), unless it ran out of time."""

    places: Places = Places()
    repository: RepositoryState | None = None
    files: FileState | None = None
    """None where nobody asked for them."""
    signature: Signature | None = None

    @property
    def returncode(self) -> int | None:
        """As `subprocess` has it: the exit code, -N for signal N; None for no end of its own."""
        if self.termination is Termination.SIGNALED and self.signal is not None:
            return -self.signal
        return self.exit_code

    @property
    def shell_code(self) -> int:
        """As a shell has it: 124 timed out, 126 and 127 not started, 128+N, 130 interrupted."""
        match self.termination:
            case Termination.TIMEOUT:
                return 124
            case Termination.INTERRUPTED:
                return 130
            case Termination.SIGNALED:
                return 128 + (self.signal or 0)
            case Termination.SPAWN_ERROR:
                return 127 if self.spawn_errno in (None, ENOENT) else 126
            case Termination.EXITED:
                return self.exit_code or 0

    @property
    def failed(self) -> bool:
        return self.shell_code != 0

    @property
    def ending(self) -> str:
        """One phrase: `exit code 7`, `killed by SIGSEGV (signal 11)`, `timed out after 5 s`."""
        match self.termination:
            case Termination.TIMEOUT:
                return f"timed out after {self.timeout:g} s" if self.timeout else "timed out"
            case Termination.INTERRUPTED:
                return "interrupted"
            case Termination.SIGNALED:
                return f"killed by {signal_name(self.signal)} (signal {self.signal})"
            case Termination.SPAWN_ERROR:
                return f"not started: {self.error}"
            case Termination.EXITED:
                return f"exit code {self.exit_code}"


def signal_name(number: int | None) -> str:
    """`SIGSEGV` for 11; `signal 99` where the platform has no name for it."""
    try:
        return Signals(number or 0).name
    except ValueError:
        return f"signal {number}"


def digest(data: bytes) -> str:
    """The hex digest that `Output.sha256` holds."""
    return sha256(data).hexdigest()
