"""Run a command in our place: it has the terminal, we only wait.

Nothing is put between: the command inherits the standard streams and stays in our process group,
so the terminal's own keys, its size and the shell's job control reach it as they would without us.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_OURS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
"""Signals that we wait for instead of dying of them."""

_FROM_KERNEL = 0x80
"""`si_code` of a signal that the terminal sent to the whole group."""


def run_in_foreground(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    before: Callable[[], None],
    started: Callable[[int], None],
    all_on_stderr: bool = False,
) -> int:
    """Run `argv` to its end in our folder; its wait status, see `shell_code`.

    `before` is called before it is started, and `started` with its process id; threads that they
    start take no signals. `all_on_stderr`: what it writes on stdout goes to our stderr. Raises
    OSError if the command cannot be started. To be called in the main thread.
    """
    with signals_held():
        before()
        pid = _spawn(list(argv), dict(env), all_on_stderr=all_on_stderr)
        started(pid)
        return _wait(pid)


def shell_code(status: int) -> int:
    """The exit code that a shell gives for a wait status."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


@contextmanager
def signals_held() -> Iterator[None]:
    """Signals wait until we ask for them; threads that are started meanwhile take none.

    What came while nobody asked is dropped at the end."""
    before = signal.getsignal(signal.SIGCHLD)
    if before is signal.SIG_IGN:  # else the system throws the exit status away
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _OURS)
    try:
        yield
    finally:
        while signal.sigpending() & set(_OURS):
            signal.sigwait(_OURS)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if before is signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, before)


def _spawn(argv: list[str], env: dict[str, str], *, all_on_stderr: bool) -> int:
    # Python ignores these two, and a program that is started inherits that.
    reset = [number for name in ("SIGPIPE", "SIGXFSZ") if (number := getattr(signal, name, None))]
    reset = [number for number in reset if signal.getsignal(number) is signal.SIG_IGN]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ()) - set(_OURS)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    moved = [(os.POSIX_SPAWN_DUP2, 2, 1)] if all_on_stderr else []
    try:
        return os.posix_spawnp(
            argv[0], argv, env, file_actions=moved, setsigmask=mask, setsigdef=reset
        )
    except OSError as error:
        script = _script(argv[0], env) if error.errno == errno.ENOEXEC else None
        if script is None:
            raise
        # A shell runs a script without a first line of its own, and so it is here.
        shell = ["/bin/sh", script, *argv[1:]]
        return os.posix_spawn(
            shell[0], shell, env, file_actions=moved, setsigmask=mask, setsigdef=reset
        )


def _script(name: str, env: Mapping[str, str]) -> str | None:
    if "/" in name:
        return name
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        path = Path(folder or ".") / name
        if path.is_file() and os.access(path, os.X_OK):
            return os.fspath(path)
    return None


def _wait(pid: int) -> int:
    while True:
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if found and os.WIFSTOPPED(status):
            if _is_stopped(pid):
                # As one job with it: the shell shall have its terminal.
                os.kill(os.getpid(), signal.SIGSTOP)
            continue
        if found:
            return status
        _pass_on(pid)


def _pass_on(pid: int) -> None:
    """Wait for a signal, and give it to the command unless the terminal did that already."""
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(_OURS)
        number, typed = info.si_signo, info.si_code == _FROM_KERNEL
    else:
        number = signal.sigwait(_OURS)
        typed = number in (signal.SIGINT, signal.SIGQUIT) and os.isatty(0)
    if number != signal.SIGCHLD and not typed:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_stopped(pid: int) -> bool:
    """Whether it is stopped still: somebody may have continued us both meanwhile."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "tT"
    except OSError:
        return not Path("/proc/self/stat").exists()
