"""Signals sent to us while a command runs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_CAUGHT = (*INTERRUPTING, signal.SIGTSTP, signal.SIGWINCH)

# Reentrant, since a signal handler may interrupt whoever holds it.
_LOCK = threading.RLock()
_LISTENERS: set[int] = set()
_LASTING: list[int] = []
"""Signals that whatever starts to listen is told at once."""


@contextmanager
def caught() -> Iterator[int]:
    """A descriptor from which the numbers of signals can be read, one byte each.

    Signals that reach this process go there instead of ending it. Only the main thread can
    see to that; in other threads just `interrupt_running` writes there. Signals that were
    ignored before stay so.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    with _LOCK:
        _LISTENERS.add(writing)
        os.write(writing, bytes(_LASTING))

    def handle(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):
            os.write(writing, bytes([number]))

    earlier: dict[int, Callable[..., object] | int] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            _install(handle, earlier)
        yield reading
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
        with _LOCK:
            _LISTENERS.discard(writing)
        os.close(reading)
        os.close(writing)


def _install(
    handle: Callable[[int, FrameType | None], None],
    earlier: dict[int, Callable[..., object] | int],
) -> None:
    for number in _CAUGHT:
        handler = signal.getsignal(number)
        if handler is not None and handler is not signal.SIG_IGN:
            earlier[number] = handler
            signal.signal(number, handle)
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # Otherwise the system would throw away the exit status of the command.
        earlier[signal.SIGCHLD] = signal.SIG_IGN
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


@contextmanager
def interrupting(number: int = signal.SIGINT) -> Iterator[None]:
    """`interrupt_running`, and also every command that a thread starts meanwhile."""
    with _LOCK:
        _LASTING.append(number)
        interrupt_running(number)
    try:
        yield
    finally:
        with _LOCK:
            _LASTING.remove(number)


def interrupt_running(number: int = signal.SIGINT) -> None:
    """Interrupt every command that runs in any thread of this process, as ^C would."""
    with _LOCK:
        for writing in _LISTENERS:
            with suppress(OSError):
                os.write(writing, bytes([number]))
