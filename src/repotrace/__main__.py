"""The entry: answers what needs no imports, then hands over to the command line."""

from __future__ import annotations

import codecs
import gc
import os
import sys

from repotrace._version import __version__


def main() -> None:
    """Run the command line of this process and exit."""
    _mend_streams()
    if sys.argv[1:2] == ["hook"]:
        _hook(sys.argv[2:])
    if sys.argv[1:] == ["--version"]:
        print(f"repotrace {__version__}")
        return
    if sys.argv[1:] == ["version"]:
        print(__version__)
        return
    # A fifth of a short command's time is spent on looking for garbage in what was just imported,
    # and on taking the interpreter apart at the end.
    gc.disable()
    from repotrace.cli.app import main as run

    gc.freeze()
    gc.enable()
    try:
        run()
    except SystemExit as end:
        _leave(end.code)
    _leave(0)


def _hook(arguments: list[str]) -> None:
    """Answer the hook of an agent, which takes anything but silence and success as an order."""
    gc.disable()
    try:
        from repotrace.runs.hooks.hooking import answer

        answer(arguments)
    finally:
        os._exit(0)


def _mend_streams() -> None:
    """Standard streams that take all we say: none is missing, none refuses a character."""
    while (opened := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(opened, True)
    os.close(opened)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
    if sys.stdout.errors == "strict":
        codecs.register_error("repotrace", _escaped)
        sys.stdout.reconfigure(errors="repotrace")  # type: ignore[union-attr]


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """What an encoding lacks, written as in JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[n : n + 4]}" for n in range(0, len(units), 4)), error.end


def _leave(code: object) -> None:
    """End the process now. What is buffered is written; a closed pipe is no error any more."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 1
    os._exit(code or 0)


if __name__ == "__main__":
    main()
