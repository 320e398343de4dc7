"""What a capture costs, against the bare command, `script`, cram and repotrace 0.1.0.

    .venv/bin/python benchmarks/capture.py [--rounds 15]

Installs cram, repotrace==0.1.0 and this checkout into a temporary environment each. To reach:
`capture true` at most 0.85 of the CPU of 0.1.0 (which keeps no files, so without a snapshot),
`--version` under 30 ms, and at most 30 ms more for keeping the files of an unchanged tree of 5,000.
A failure that was seen before costs more than a new one: it is counted in the database.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
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
    capture = [str(new / "repotrace"), "capture"]
    tools = {
        "bare": target,
        "bare, from Python's subprocess": [
            sys.executable,
            "-c",
            f"import subprocess; subprocess.run({target!r}, capture_output=True)",
        ],
        "cram": [str(cram / "cram"), "case.t"],
        "repotrace 0.1.0": [str(old / "repotrace"), "capture", *target],
        "repotrace": [*capture, "--no-snapshot", "-s", "new", *target],
        "repotrace, seen before": [*capture, "--no-snapshot", "-s", "seen", *target],
        "repotrace, with the files": [*capture, "-s", "new", *target],
    }
    if script := shutil.which("script"):
        tools["script"] = [script, "-qec", line, "/dev/null"]
    return tools


def tree(root: Path, files: int) -> None:
    """A repository with so many committed files."""
    for number in range(files):
        path = root / f"package{number // 50:03}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"x = {number}\n" * 20)
    name = ("-c", "user.name=b", "-c", "user.email=b@example.org")
    for arguments in (["init", "-q"], ["add", "-A"], [*name, "commit", "-qm", "all"]):
        subprocess.run(["git", *arguments], cwd=root, check=True)


def print_snapshot(new: Path, cwd: Path, env: dict[str, str], rounds: int) -> None:
    """What keeping the files of an unchanged tree of 5,000 costs."""
    tree(cwd, 5000)
    store = cwd / ".repotrace"
    with_files, without = "repotrace", "repotrace --no-snapshot"
    command = [str(new / "repotrace"), "capture"]
    figures = in_turn(
        {without: [*command, "--no-snapshot", "true"], with_files: [*command, "true"]},
        cwd,
        env,
        rounds,
        before=lambda: shutil.rmtree(store, ignore_errors=True),
    )
    print(f"\ncapture true in a tree of 5,000 files\n{table(figures, without)}")
    medians = [statistics.median(figures[name].cpu) for name in (with_files, without)]
    print(f"difference of the median CPU: {(medians[0] - medians[1]) * 1000:.1f} ms")


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
        print_snapshot(new, root / "tree", env, rounds)
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
