"""Whole-process figures: CPU of a command and its children, wall time, several rounds in turn.

Machines are noisy: minimum CPU and median wall are quoted, and ratios against a peer that ran
in the same rounds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Figures:
    """What the rounds of one command took, in seconds."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    @property
    def least_cpu(self) -> float:
        return min(self.cpu)

    @property
    def median_wall(self) -> float:
        return statistics.median(self.wall)


def run_once(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> tuple[float, float]:
    """CPU seconds (user and system, children included) and wall seconds of one run."""
    started = time.perf_counter()
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - started


def in_turn(
    commands: Mapping[str, Sequence[str]],
    cwd: Path,
    env: Mapping[str, str],
    rounds: int,
    before: Callable[[], None] = lambda: None,
) -> dict[str, Figures]:
    """Each command once per round, A B C A B C …, after one round that does not count.

    `before` is called before each command, outside of what is measured.
    """
    figures = {name: Figures() for name in commands}
    for number in range(rounds + 1):
        for name, argv in commands.items():
            before()
            cpu, wall = run_once(argv, cwd, env)
            if number:
                figures[name].cpu.append(cpu)
                figures[name].wall.append(wall)
    return figures


def table(figures: Mapping[str, Figures], against: str) -> str:
    """The figures in ms, and the ratio of least CPU to that of `against`."""
    peer = figures[against].least_cpu
    lines = [f"{'':44} {'least CPU':>10} {'median wall':>12} {'CPU ratio':>10}"]
    for name, taken in figures.items():
        lines.append(
            f"{name:44} {taken.least_cpu * 1000:7.1f} ms {taken.median_wall * 1000:9.1f} ms"
            f" {taken.least_cpu / peer:9.2f}x"
        )
    return "\n".join(lines)
