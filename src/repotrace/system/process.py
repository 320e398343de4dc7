"""Run one command and tell everything about it.

`run` is where commands of users are started, in whichever thread it is called. Its parts: which
file to start (`lookup`), what goes in (`stdin`), what comes out (`output`), the terminal
(`terminal`), what the command leaves behind (`group`) and signals sent to us (`signals`).
"""

from __future__ import annotations

import errno
import os
import resource
import selectors
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from typing import NamedTuple

from repotrace.errors import RepoTraceError
from repotrace.records.command import CommandSpec, Termination
from repotrace.system import group, lookup, signals, terminal
from repotrace.system.channels import Channels, OnOutput
from repotrace.system.lookup import NoSuchFolder
from repotrace.system.output import Chunks, RawOutput
from repotrace.system.signals import interrupt_running, interrupting

__all__ = ["NoSuchFolder", "RawOutput", "RawRun", "interrupt_running", "interrupting", "run"]

_SETTLE = 0.1
"""Seconds in which what the command left behind may end by itself."""
_POLL = 0.01
"""Seconds between looks at something that cannot be waited for."""
_POLL_STOPS = 0.05
_LONG = 3600.0
_SAME_PRESS = 0.2
"""Seconds in which a second signal is taken for an echo of the first, as wrappers send it."""


class RawRun(NamedTuple):
    """One execution as it was. Nothing in here is redacted: don't store it as it is."""

    termination: Termination
    started_at: datetime
    exit_code: int | None = None
    """As the system reported it; None unless `termination` is `exited`."""
    signal: int | None = None
    """The signal that ended the command; of an interrupted one, the signal we passed on."""
    error: str | None = None
    spawn_errno: int | None = None
    stdout: RawOutput = RawOutput()
    stderr: RawOutput = RawOutput()
    chunks: Chunks = ()
    duration: float = 0.0
    cpu_time: float | None = None
    max_rss: int | None = None
    """Bytes; None if it was not clearly more than our own, for then the system reports ours."""
    pipe_held_open: bool = False
    leftovers: tuple[int, ...] = ()
    """Pids of processes that outlived the command. They were ended, but for `survivors`."""
    survivors: tuple[int, ...] = ()
    """Leftovers in a session of their own (daemons), which were left to run."""
    stdin_recorded: bytes | None = None
    stdin_kind: str = "none"
    """`none`, `recorded`, `terminal` or `cut`, as in `CommandRun`."""
    resolved: str | None = None
    """The file that argv[0] stood for."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


def run(
    spec: CommandSpec,
    *,
    on_output: OnOutput | None = None,
    limit: int = 1_048_576,
    grace: float = 0.5,
    kill_grace: float = 2.0,
    now: Callable[[], datetime] = _utc_now,
) -> RawRun:
    """Run `spec` to its end.

    `on_output` gets the name of the stream and the bytes as they come; once it raises
    BrokenPipeError it is not called again, and the output is still kept. Any other exception
    ends the command and is raised on. `limit`: bytes of each stream (and of standard input)
    to keep, see RawOutput. `grace`: seconds for which processes left behind may still write,
    and then have to end. `kill_grace`: seconds between SIGTERM and SIGKILL after a timeout.

    SIGINT, SIGTERM, SIGHUP and SIGQUIT that reach us in the main thread are passed on, and a
    second one kills; other threads are reached by `interrupt_running`. A command that cannot
    be started is a RawRun too; raised are RepoTraceError for what no system call could pass on
    and NoSuchFolder for `spec.cwd`.
    """
    argv = lookup.command_line(spec)
    execution = _Execution(spec, argv, grace=grace, kill_grace=kill_grace)
    with ExitStack() as stack:
        try:
            execution.prepare(stack, on_output, limit)
        except OSError as error:
            raise RepoTraceError(f"No command can be run now: {error.strerror}.") from error
        started_at = now()
        try:
            execution.start()
        except OSError as error:
            number = error.errno or 0
            return RawRun(
                Termination.SPAWN_ERROR,
                started_at,
                error=lookup.spawn_failure(number, argv[0], spec),
                spawn_errno=number,
                resolved=lookup.resolve(argv[0], spec),
            )
        execution.wait()
        return execution.result(started_at)


def _occupy_standard_descriptors() -> None:
    """See to it that 0, 1 and 2 are open: else our own pipes would get these numbers."""
    fd = 0
    while fd <= 2:
        fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.close(fd)


class _Execution:
    """A command from its start to the end of all that it left behind."""

    def __init__(
        self, spec: CommandSpec, argv: list[str], *, grace: float, kill_grace: float
    ) -> None:
        self._spec = spec
        self._argv = argv
        self._grace = grace
        self._kill_grace = kill_grace
        self._resolved: str | None = None
        self._pid = 0
        self._pidfd: int | None = None
        self._wants_terminal = False

        self._termination: Termination | None = None
        """Why we ended it, if we did."""
        self._signal: int | None = None
        self._status = 0
        self._usage: resource.struct_rusage | None = None
        self._interrupted_at: float | None = None

        self._deadline: float | None = None
        self._kill_at: float | None = None
        self._ended: float | None = None
        self._drain_until = 0.0
        self._held_open: bool | None = None
        """None as long as we wait for the end of the output."""
        self._next_step = 0.0
        self._steps = [(signal.SIGTERM, grace), (signal.SIGKILL, 1.0)]
        self._leftovers: dict[int, bool] = {}
        """Pid, and whether it goes on."""
        self._finished = False

    # --- Start ---------------------------------------------------------------------------

    def prepare(self, stack: ExitStack, on_output: OnOutput | None, limit: int) -> None:
        """Open all that the command needs; `stack` closes and restores it."""
        _occupy_standard_descriptors()
        self._selector = selectors.DefaultSelector()
        self._channels = Channels(self._spec, self._selector, on_output, limit)
        stack.callback(self._channels.close)
        stack.callback(self._selector.close)
        self._wake = stack.enter_context(signals.caught())
        self._selector.register(self._wake, selectors.EVENT_READ, self._on_wake)
        self._channels.connect(stack)
        self._family = stack.enter_context(group.watched())
        self._family.pipes = frozenset(
            f"pipe:[{os.fstat(fd).st_ino}]" for fd in self._channels.open
        )
        stack.callback(self._end_everything)

    def start(self) -> None:
        """Start the command. Raises OSError as `exec` does."""
        if not self._argv[0]:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._resolved = lookup.resolve(self._argv[0], self._spec)
        self._started = time.monotonic()
        self._pid = self._family.leader = self._channels.spawn(self._argv)
        self._own_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if self._spec.timeout is not None:
            self._deadline = self._started + self._spec.timeout
        # Other systems have no such thing; there we look again and again.
        with suppress(AttributeError, OSError):
            self._pidfd = os.pidfd_open(self._pid)
            self._selector.register(self._pidfd, selectors.EVENT_READ, self._look_at_child)

    # --- While it runs -------------------------------------------------------------------

    def wait(self) -> None:
        """Serve the command until it and what belongs to it have ended."""
        while not self._finished:
            for key, _ in self._selector.select(self._patience()):
                # An earlier one may have unregistered it.
                if self._selector.get_map().get(key.fd) is key:
                    key.data()
            self._advance(time.monotonic())

    def _patience(self) -> float | None:
        """Seconds until something has to be looked at although nothing happened."""
        moments = [self._deadline, self._kill_at]
        if self._ended is not None:
            if self._held_open is None:
                moments = [self._drain_until]
            else:
                return _POLL
        now = time.monotonic()
        # Selectors do not take any number, such as an infinite time limit.
        waits = [min(max(0.0, m - now), _LONG) for m in moments if m is not None]
        if self._ended is None:
            if self._channels.loan is not None:
                waits.append(_POLL_STOPS)
            elif self._pidfd is None:
                waits.append(_POLL)
        return min(waits, default=None)

    def _advance(self, now: float) -> None:
        if self._ended is None and (self._pidfd is None or self._channels.loan is not None):
            self._look_at_child()
        if self._ended is None:
            if self._kill_at is not None and now >= self._kill_at:
                self._kill_at = None
                self._family.signal(signal.SIGKILL, detached=self._timed_out)
            elif self._deadline is not None and now >= self._deadline:
                self._deadline = None
                self._stop(Termination.TIMEOUT, signal.SIGTERM, now)
        elif self._held_open is None:
            if not self._channels.open or now >= self._drain_until:
                self._channels.sweep()
                self._held_open = bool(self._channels.open)
                self._next_step = now if self._held_open else now + _SETTLE
                self._end_leftovers(now)
        else:
            self._end_leftovers(now)

    @property
    def _timed_out(self) -> bool:
        return self._termination is Termination.TIMEOUT

    def _stop(self, termination: Termination, number: int, now: float) -> None:
        """Ask the command to end, for a reason that outranks how it will end."""
        self._termination = termination
        self._family.signal(number, detached=self._timed_out)
        # A stopped process would not see the request.
        self._family.signal(signal.SIGCONT, detached=self._timed_out)
        if number != signal.SIGINT:
            self._kill_at = now + self._kill_grace

    def _look_at_child(self) -> None:
        options = os.WNOHANG | (os.WUNTRACED if self._channels.loan is not None else 0)
        try:
            pid, status, usage = os.wait4(self._pid, options)
        except ChildProcessError as error:
            self._family.ended = True
            raise RepoTraceError(
                "The exit status of the command was taken by another part of this program.",
                hint="Nothing else may wait for all children while a command runs.",
            ) from error
        if pid == 0:
            if self._wants_terminal:
                self._offer_terminal()
        elif os.WIFSTOPPED(status):
            self._on_stop(os.WSTOPSIG(status))
        else:
            self._on_exit(status, usage)

    def _on_exit(self, status: int, usage: resource.struct_rusage) -> None:
        self._family.ended = True
        self._status = status
        self._usage = usage
        self._ended = time.monotonic()
        self._drain_until = self._ended + self._grace
        self._deadline = self._kill_at = None
        if self._pidfd is not None:
            self._selector.unregister(self._pidfd)
        self._channels.close_input()
        self._channels.take_terminal_back(restore=not os.WIFEXITED(status))

    # --- Signals and the terminal --------------------------------------------------------

    def _on_wake(self) -> None:
        with suppress(BlockingIOError):
            for number in os.read(self._wake, 256):
                if number == signal.SIGWINCH:
                    if self._channels.pty is not None:
                        terminal.resize(self._channels.pty)
                elif number == signal.SIGTSTP:
                    self._suspend()
                else:
                    self._interrupt(number)

    def _interrupt(self, number: int) -> None:
        now = time.monotonic()
        if self._ended is not None:
            self._drain_until = now
        elif self._interrupted_at is None:
            self._interrupted_at = now
            if self._termination is None:
                self._signal = number
                self._stop(Termination.INTERRUPTED, number, now)
        elif now - self._interrupted_at > _SAME_PRESS:
            self._family.signal(signal.SIGKILL)

    def _on_stop(self, number: int) -> None:
        if number in (signal.SIGTTIN, signal.SIGTTOU):
            self._offer_terminal()
        elif number == signal.SIGTSTP and self._channels.loan is not None:
            lent = self._channels.loan.lent
            self._channels.loan.take_back()
            self._suspend()
            self._wants_terminal = lent

    def _offer_terminal(self) -> None:
        # In the background there is nothing to lend; we ask again until we are in front.
        loan = self._channels.loan
        self._wants_terminal = loan is not None and not loan.lend(self._pid)
        if not self._wants_terminal:
            self._family.signal(signal.SIGCONT)

    def _suspend(self) -> None:
        """Stop with the command, as one job, until somebody continues us."""
        before = time.monotonic()
        self._family.signal(signal.SIGTSTP)
        terminal.stop_ourselves()
        self._family.signal(signal.SIGCONT)
        away = time.monotonic() - before
        if self._deadline is not None:
            self._deadline += away
        if self._kill_at is not None:
            self._kill_at += away

    # --- The end -------------------------------------------------------------------------

    def _end_leftovers(self, now: float) -> None:
        """End what the command left behind, a step each time it turns out to be still there."""
        left = [m for m in self._family.left() if self._timed_out or not m.detached]
        if not left and not self._family.lives():
            self._finish()
        elif now >= self._next_step:
            for member in left:
                self._leftovers[member.pid] = False
            if not self._steps:
                self._finish()
                return
            number, patience = self._steps.pop(0)
            self._family.signal(number, detached=self._timed_out)
            self._family.signal(signal.SIGCONT, detached=self._timed_out)
            self._next_step = now + patience

    def _finish(self) -> None:
        for member in self._family.left():
            self._leftovers[member.pid] = True
        self._finished = True

    def _end_everything(self) -> None:
        """Leave nothing behind, even if an exception cut the run short."""
        if self._family.leader and not self._finished:
            self._family.signal(signal.SIGKILL, detached=True)
            if not self._family.ended:
                with suppress(ChildProcessError):
                    os.waitpid(self._family.leader, 0)
        if self._pidfd is not None:
            os.close(self._pidfd)

    def result(self, started_at: datetime) -> RawRun:
        """What happened; to be asked for after `wait`."""
        usage, ended = self._usage, self._ended
        assert usage is not None
        assert ended is not None
        termination, number = self._termination, self._signal
        exit_code = None
        if termination is None and self._died_of_typed_interrupt():
            termination, number = Termination.INTERRUPTED, int(signal.SIGINT)
        elif termination is None and os.WIFSIGNALED(self._status):
            termination, number = Termination.SIGNALED, os.WTERMSIG(self._status)
        elif termination is None:
            termination, exit_code = Termination.EXITED, os.WEXITSTATUS(self._status)
        recorded, kind = self._channels.recorded_input()
        # The system counts our own memory in, from before the program was loaded, and not to
        # the page.
        unit = 1 if sys.platform == "darwin" else 1024
        is_theirs = usage.ru_maxrss > self._own_rss * 1.1
        return RawRun(
            termination,
            started_at,
            exit_code=exit_code,
            signal=number,
            stdout=self._channels.kept["stdout"].output(),
            stderr=self._channels.kept["stderr"].output(),
            chunks=self._channels.timeline.chunks(),
            duration=ended - self._started,
            cpu_time=usage.ru_utime + usage.ru_stime,
            max_rss=usage.ru_maxrss * unit if is_theirs else None,
            pipe_held_open=bool(self._held_open),
            leftovers=tuple(sorted(self._leftovers)),
            survivors=tuple(sorted(pid for pid, goes_on in self._leftovers.items() if goes_on)),
            stdin_recorded=recorded,
            stdin_kind=kind,
            resolved=self._resolved,
        )

    def _died_of_typed_interrupt(self) -> bool:
        if not self._channels.interrupt_typed:
            return False
        if os.WIFSIGNALED(self._status):
            return os.WTERMSIG(self._status) == signal.SIGINT
        return os.WEXITSTATUS(self._status) == 128 + signal.SIGINT
