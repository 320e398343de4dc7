"""What connects us with a command: its standard streams, through pipes or a terminal."""

from __future__ import annotations

import os
import selectors
import stat
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from repotrace.records.command import CommandSpec
from repotrace.system import lookup, terminal
from repotrace.system.output import Keeper, Timeline
from repotrace.system.stdin import Feed, is_null_device, peek

type OnOutput = Callable[[str, bytes], None]

_PIECE = 64 * 1024
_MOST_IN_A_PIPE = 1024 * 1024
_END_OF_INPUT = b"\x04" * 16


class Channels:
    """The streams of one command. `theirs` are the ends that it gets, to be closed by us."""

    def __init__(
        self,
        spec: CommandSpec,
        selector: selectors.BaseSelector,
        on_output: OnOutput | None,
        limit: int,
    ) -> None:
        self._spec = spec
        self._selector = selector
        self._on_output = on_output
        self._limit = limit
        self.kept = {"stdout": Keeper(limit), "stderr": Keeper(limit)}
        self.timeline = Timeline()
        self.open: dict[int, str] = {}
        """Our ends of the output that have not come to their end, and their streams."""
        self.pty: int | None = None
        """Our end of the terminal, if the command runs on one of our making."""
        self.loan: terminal.Loan | None = None
        self.interrupt_typed = False
        """Whether ^C went to the command directly, from the terminal that it had."""
        self._theirs: list[int] = []
        self._feed: Feed | None = None
        self._file_position: int | None = None
        self._stdin_kind = "none"
        self._interactive = False
        self._started = 0.0
        self._stdin = self._stdout = self._stderr = subprocess.DEVNULL

    def connect(self, stack: ExitStack) -> None:
        """Open everything; `stack` gives our own terminal back as it was."""
        if self._spec.pty:
            self._open_pty(stack)
        elif self._spec.inherit_stdin:
            self.loan = terminal.controlling_terminal()
        self._stdin = self._open_stdin()
        if self.pty is None:
            self._stdout = self._output_pipe("stdout")
            self._stderr = self._stdout if self._spec.merge else self._output_pipe("stderr")

    def spawn(self, argv: list[str]) -> int:
        """Start `argv` on these channels and return its pid. Raises OSError as `exec` does."""
        self._started = time.monotonic()
        try:
            return self._popen(argv) if self.pty is None else self._spawn_on_pty(argv)
        finally:
            self._close_theirs()

    # --- Opening -------------------------------------------------------------------------

    def _open_pty(self, stack: ExitStack) -> None:
        spec = self._spec
        self._interactive = spec.inherit_stdin and spec.stdin is None and terminal.in_foreground(0)
        self.pty, theirs = terminal.open_pty(spec.env, 0 if self._interactive else None)
        self._theirs.append(theirs)
        self._stdout = self._stderr = theirs
        self._receive(self.pty, "stdout")
        if self._interactive:
            stack.enter_context(terminal.raw_mode(0))

    def _output_pipe(self, stream: str) -> int:
        ours, theirs = os.pipe()
        self._theirs.append(theirs)
        self._receive(ours, stream)
        return theirs

    def _receive(self, fd: int, stream: str) -> None:
        os.set_blocking(fd, False)
        self.open[fd] = stream
        self._selector.register(fd, selectors.EVENT_READ, partial(self._on_readable, fd))

    def _open_stdin(self) -> int:
        """What the command gets as standard input.

        Bytes always come through a pipe, even if the output goes to a terminal of our making:
        a terminal would not pass them on as they are.
        """
        spec = self._spec
        if spec.stdin is not None:
            return self._input_pipe(data=spec.stdin)
        if not spec.inherit_stdin or is_null_device(0):
            if self.pty is None:
                return subprocess.DEVNULL
            os.write(self.pty, _END_OF_INPUT)
            return self._stdout
        if os.isatty(0):
            return self._terminal_input()
        if stat.S_ISREG(os.fstat(0).st_mode):
            # The command gets the file itself, so that it takes no more of it than it reads.
            self._file_position = os.lseek(0, 0, os.SEEK_CUR)
            return 0
        return self._input_pipe(source=0)

    def _terminal_input(self) -> int:
        self._stdin_kind = "terminal"
        if self.pty is None:
            return 0
        if self._interactive:
            keys = os.dup(self.pty)
            self._feed = Feed(self._selector, keys, source=0, limit=0, on_piece=self._on_typed)
        return self._stdout

    def _input_pipe(self, data: bytes = b"", source: int | None = None) -> int:
        theirs, ours = os.pipe()
        self._theirs.append(theirs)
        self._feed = Feed(self._selector, ours, data=data, source=source, limit=self._limit)
        self._stdin_kind = "recorded"
        return theirs

    def _popen(self, argv: list[str], *, keep: tuple[int, ...] = ()) -> int:
        # Without our input it has no business with our terminal either: a session of its own
        # makes a question on /dev/tty fail at once instead of stopping the command for ever.
        own_session = self.pty is not None or not self._spec.inherit_stdin
        process = subprocess.Popen(
            argv,
            stdin=self._stdin,
            stdout=self._stdout,
            stderr=self._stderr,
            cwd=self._spec.cwd,
            env=self._spec.env,
            start_new_session=own_session,
            process_group=None if own_session else 0,
            pass_fds=keep,
        )
        # Whoever called us waits for it, to learn what it used.
        process.returncode = 0
        return process.pid

    def _spawn_on_pty(self, argv: list[str]) -> int:
        reading, writing = os.pipe()
        try:
            try:
                paths = lookup.candidates(argv[0], self._spec)
                pid = self._popen(terminal.launcher(writing, paths, argv), keep=(writing,))
            finally:
                os.close(writing)
            failure = os.read(reading, 32)
        finally:
            os.close(reading)
        if failure:
            os.waitpid(pid, 0)
            raise OSError(int(failure), os.strerror(int(failure)))
        return pid

    # --- While the command runs ----------------------------------------------------------

    def _on_readable(self, fd: int) -> None:
        try:
            data = os.read(fd, _PIECE)
        except BlockingIOError:
            return
        except OSError:
            # Linux says so at the end of a terminal.
            data = b""
        if not data:
            self._close_output(fd)
            return
        stream = self.open[fd]
        kept = self.kept[stream]
        kept.add(data)
        self.timeline.add(stream, kept.length, len(data), time.monotonic() - self._started)
        if self._on_output is not None:
            try:
                self._on_output(stream, data)
            except BrokenPipeError:
                self._on_output = None

    def _on_typed(self, keys: bytes) -> None:
        if b"\x03" in keys:
            self.interrupt_typed = True

    def sweep(self) -> None:
        """Take what is in the pipes already, were we ever so late; no more than fits in one."""
        for fd, stream in list(self.open.items()):
            kept = self.kept[stream]
            enough = kept.length + _MOST_IN_A_PIPE
            before = -1
            while fd in self.open and before < kept.length < enough:
                before = kept.length
                self._on_readable(fd)

    def close_input(self) -> None:
        """Feed no more; the command has ended."""
        if self._feed is not None:
            self._feed.close()

    def take_terminal_back(self, *, restore: bool) -> None:
        """End the loan of our terminal; `restore`: with its modes as they were."""
        if self.loan is not None:
            # Lent, it sends ^C to the command and not to us.
            self.interrupt_typed = self.interrupt_typed or self.loan.lent
            self.loan.take_back(restore=restore)

    def recorded_input(self) -> tuple[bytes | None, str]:
        """The standard input as far as it is kept, and its kind, as in `CommandRun`."""
        if self._file_position is not None:
            return self._read_from_file(self._file_position)
        if self._stdin_kind != "recorded" or self._feed is None:
            return None, self._stdin_kind
        return bytes(self._feed.recorded), "cut" if self._feed.cut else "recorded"

    def _read_from_file(self, position: int) -> tuple[bytes | None, str]:
        """The file that was our input, from where it stood; nothing if nobody read from it.

        It may well be the script that called us, which is not the command's input.
        """
        try:
            if os.lseek(0, 0, os.SEEK_CUR) == position:
                return None, "none"
            data = peek(0, position, self._limit + 1)
        except OSError:
            return None, "none"
        return data[: self._limit], "cut" if len(data) > self._limit else "recorded"

    # --- Closing -------------------------------------------------------------------------

    def _close_output(self, fd: int) -> None:
        del self.open[fd]
        self._selector.unregister(fd)
        if fd != self.pty:
            os.close(fd)

    def _close_theirs(self) -> None:
        while self._theirs:
            os.close(self._theirs.pop())

    def close(self) -> None:
        """Close all that is open, the terminal back in our hands. The selector is gone by now."""
        self._close_theirs()
        if self._feed is not None:
            self._feed.abandon()
        for fd in self.open:
            if fd != self.pty:
                os.close(fd)
        if self.pty is not None:
            os.close(self.pty)
        if self.loan is not None:
            self.loan.take_back(restore=True)
            self.loan.close()
