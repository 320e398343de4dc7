"""What a capture costs, against the bare command, `script`, cram and repotrace 0.1.0.

    .venv/bin/python benchmarks/capture.py [--rounds 15]

Installs cram, repotrace==0.1.0 and this checkout into a temporary environment each. To reach:
`capture true` at most 0.85 of the CPU of 0.1.0, `--version` under 30 ms. A failure that was seen
before costs more than a new one: it is counted in the database.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from measure import in_turn, table

BIN = Path(sys.executable).parent


def peer(folder: Path, requirement: str) -> Path:
    """The `bin` of a new environment with `requirement`."""
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", requirement]
    subprocess.run(pip, check=True)
    return folder / "bin"


def commands(
    cwd: Path, old: Path, new: Path, cram: Path, target: list[str]
) -> dict[str, list[str]]:
    """One captured command in the hands of each tool."""
    line = " ".join(target)
    (cwd / "case.t").write_text(f"  $ {line}\n")
    tools = {
        "bare": target,
        "bare, from Python's subprocess": [
            sys.executable,
            "-c",
            f"import subprocess; subprocess.run({target!r}, capture_output=True)",
        ],
        "cram": [str(cram / "cram"), "case.t"],
        "repotrace 0.1.0": [str(old / "repotrace"), "capture", *target],
        "repotrace": [str(new / "repotrace"), "capture", "-s", "new", *target],
        "repotrace, seen before": [str(new / "repotrace"), "capture", "-s", "seen", *target],
    }
    if script := shutil.which("script"):
        tools["script"] = [script, "-qec", line, "/dev/null"]
    return tools


def main() -> None:
    """Print a table for `true`, one for `python -c pass`, and one for start-up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("REPOTRACE_") and key != "PYTHONDONTWRITEBYTECODE"
    }
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        old = peer(root / "old", "repotrace==0.1.0")
        cram = peer(root / "cram", "cram")
        new = peer(root / "new", str(Path(__file__).parents[1]))
        for title, target in (("true", ["true"]), ("python -c pass", ["python3", "-c", "pass"])):
            cwd = root / title.replace(" ", "-")
            cwd.mkdir()
            store = cwd / "new"
            figures = in_turn(
                commands(cwd, old, new, cram, target),
                cwd,
                env,
                rounds,
                before=lambda store=store: shutil.rmtree(store, ignore_errors=True),
            )
            print(f"\ncapture {title}\n{table(figures, 'repotrace 0.1.0')}")
        starts = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "repotrace --version": [str(new / "repotrace"), "--version"],
            "repotrace --help": [str(new / "repotrace"), "--help"],
            "repotrace 0.1.0 version": [str(old / "repotrace"), "version"],
        }
        figures = in_turn(starts, root, env, rounds)
        print(f"\nstart-up\n{table(figures, 'repotrace 0.1.0 version')}")


if __name__ == "__main__":
    main()
