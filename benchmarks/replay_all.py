"""A sweep of many reports, two at a time against one after another and against 0.1.0.

    .venv/bin/python benchmarks/replay_all.py [--reports 200] [--rounds 3] [--imports sys]

To reach: at least 1.8 times as fast on two processors as one after another. Our own start, which
nothing can share, weighs the more the shorter the commands are; `--imports` makes them shorter
or longer.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from capture import BIN, peer
from measure import in_turn


def main() -> None:
    """Print wall and CPU of each way to sweep, and the ratio of their medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reports", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--imports", default="argparse, json, sys")
    options = parser.parse_args()
    modules = options.imports
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("REPOTRACE_") and key != "PYTHONDONTWRITEBYTECODE"
    }
    env["PATH"] = os.pathsep.join([str(BIN), env["PATH"]])
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        old = peer(root / "old", "repotrace==0.1.0")
        for program, store in ((old, "old"), (BIN, "new")):
            folder = root / store / "reports"
            for number in range(options.reports):
                code = f"import {modules}; print('boom', {number}); raise SystemExit(7)"
                subprocess.run(
                    [program / "repotrace", "capture", "-s", folder, "python", "-c", code],
                    cwd=root,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    check=False,
                )
        new = [str(BIN / "repotrace"), "replay-all", "-s", str(root / "new" / "reports")]
        figures = in_turn(
            {
                "one after another": [*new, "--jobs", "1"],
                "two at a time": [*new, "--jobs", "2"],
                "repotrace 0.1.0": [
                    str(old / "repotrace"),
                    "replay-all",
                    "-s",
                    str(root / "old" / "reports"),
                ],
            },
            root,
            env,
            options.rounds,
        )
        single = figures["one after another"].median_wall
        print(f"{options.reports} reports, {os.cpu_count()} processors, Python {sys.version[:6]}")
        for way, taken in figures.items():
            print(
                f"{way:20} median wall {taken.median_wall:6.2f} s  CPU {taken.least_cpu:6.2f} s"
                f"  {single / taken.median_wall:5.2f}x as fast"
            )


if __name__ == "__main__":
    main()
