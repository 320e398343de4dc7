"""Terminals: making one for a command, and lending it ours."""

from __future__ import annotations

import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

_LAUNCHER = """\
import fcntl, os, signal, sys, termios
report, count = int(sys.argv[1]), int(sys.argv[2])
words = [os.fsencode(word) for word in sys.argv[3:]]
os.set_inheritable(report, False)
try:
    fcntl.ioctl(1, termios.TIOCSCTTY, 0)
except OSError:
    pass
for name in ("SIGPIPE", "SIGXFSZ"):
    signal.signal(getattr(signal, name), signal.SIG_DFL)
first = 0
last = 2
for path in words[:count]:
    try:
        os.execve(path, words[count:], os.environb)
    except OSError as error:
        last = error.errno
        if last not in (2, 20) and not first:
            first = last
os.write(report, b"%d" % (first or last))
os._exit(127)
"""


def launcher(report: int, paths: Sequence[str], argv: Sequence[str]) -> list[str]:
    """An argv that makes its stdout the controlling terminal and becomes `argv`.

    It tries the files `paths` in turn; if none can be executed, it writes the error's number
    to the descriptor `report`, which otherwise is closed. No code may run between fork and
    exec in a process with threads, hence the detour through a small program.
    """
    python = sys.executable or "python3"
    return [python, "-ISX", "utf8", "-c", _LAUNCHER, str(report), str(len(paths)), *paths, *argv]


def open_pty(env: Mapping[str, str], like: int | None) -> tuple[int, int]:
    """Both ends of a new terminal: ours and the command's.

    Sized as the terminal we are on, else as COLUMNS and LINES in `env`, else 80 by 24.
    `like`: a terminal whose modes it gets too.
    """
    ours, theirs = os.openpty()
    if like is not None:
        with suppress(termios.error):
            termios.tcsetattr(theirs, termios.TCSANOW, termios.tcgetattr(like))
    termios.tcsetwinsize(theirs, _window_size() or _size_in(env))
    return ours, theirs


def resize(pty: int) -> None:
    """Give a terminal of our making the size of the one that we are on."""
    size = _window_size()
    if size is not None:
        with suppress(termios.error):
            termios.tcsetwinsize(pty, size)


def _window_size() -> tuple[int, int] | None:
    for fd in (1, 2, 0):
        with suppress(termios.error, OSError):
            lines, columns = termios.tcgetwinsize(fd)
            if lines > 0 and columns > 0:
                return lines, columns
    return None


def _size_in(env: Mapping[str, str]) -> tuple[int, int]:
    def number(name: str, default: int) -> int:
        text = env.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and 0 < int(text) < 65536 else default

    return number("LINES", 24), number("COLUMNS", 80)


def in_foreground(fd: int) -> bool:
    """Whether `fd` is our controlling terminal and we may use it right now."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


@contextmanager
def raw_mode(fd: int) -> Iterator[None]:
    """The terminal passes every key on untouched; as it was afterwards, whatever happens."""
    before = termios.tcgetattr(fd)
    tty.setraw(fd)
    try:
        yield
    finally:
        with suppress(termios.error), _undisturbed():
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


class Loan:
    """Our controlling terminal, which a command in a group of its own may need.

    It is lent only when the command wants it, for reading or for changing its modes: then the
    system stops the command, and `lend` lets it go on. So ^C reaches us as long as nobody
    needs the terminal, and a pager behind us in the pipeline keeps its keyboard.
    """

    def __init__(self) -> None:
        self._fd = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
        self._modes = termios.tcgetattr(self._fd)
        self._borrower = 0

    @property
    def lent(self) -> bool:
        return self._borrower != 0

    def lend(self, group: int) -> bool:
        """Whether `group` has the terminal now; not if we are in the background ourselves."""
        if not in_foreground(self._fd):
            return False
        try:
            with _undisturbed():
                os.tcsetpgrp(self._fd, group)
        except OSError:
            return False
        self._borrower = group
        return True

    def take_back(self, *, restore: bool = False) -> None:
        """Be in the foreground again; `restore`: with the modes from before the loan."""
        if not self._borrower:
            return
        self._borrower = 0
        with suppress(OSError, termios.error), _undisturbed():
            os.tcsetpgrp(self._fd, os.getpgrp())
            if restore:
                termios.tcsetattr(self._fd, termios.TCSADRAIN, self._modes)

    def close(self) -> None:
        os.close(self._fd)


def controlling_terminal() -> Loan | None:
    """Our terminal, ready to be lent; None without one."""
    try:
        return Loan()
    except (OSError, termios.error):
        return None


def stop_ourselves() -> None:
    """Stop as ^Z stops a job; returns when somebody continues us.

    Where nobody could (no shell with job control above us), the system lets us go on at once.
    """
    before: Callable[..., object] | int | None = None
    with suppress(ValueError):
        before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    try:
        os.killpg(os.getpgrp(), signal.SIGTSTP)
    finally:
        if before is not None:
            signal.signal(signal.SIGTSTP, before)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let a background process change the terminal, which else would stop it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
