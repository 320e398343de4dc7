"""Opens the screen."""

from __future__ import annotations

import gc

from repotrace.errors import RunNotFound
from repotrace.read.playing import PlayedRun
from repotrace.tui.options import PlayOptions
from repotrace.tui.play import PlayApp


def play_run(run: PlayedRun, options: PlayOptions) -> int:
    """Show the screen until somebody leaves it; the exit code."""
    if options.step is not None and run.place(options.step) is None:
        raise RunNotFound(
            f"Run {run.run.id} has no step {options.step}.",
            hint=f"List its steps with: repotrace runs show {run.run.id}",
        )
    app = PlayApp(run, options)
    spare_what_stays()
    app.run()
    if app.failure is not None:
        raise app.failure
    return app.return_code or 0


def spare_what_stays() -> None:
    """Have the garbage collector look no more at what is in memory now.

    Modules and the outline of a long run stay until the end; to look through them again and
    again would cost more than a step.
    """
    gc.collect()
    gc.freeze()
