"""Real failing commands through the whole half: capture, three replays, a generated test.

    .venv/bin/python benchmarks/cases.py ../shared/cases [--work DIR] [--only 02 16]

Lays each case out twice (its packages are downloaded), captures it in the first place, replays it
there from another folder and HOME and in the second place, generates its test and runs that in
the second place. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BIN = Path(sys.executable).parent
TIMEOUTS = {"27": "5"}
"""A hang needs a limit."""
VARIABLES = {"08": {"OPENAI_API_KEY": "not-a-real-key"}}


def lay_out(cases: Path, name: str, target: Path) -> Path:
    """The case in `target`, made once."""
    ready = target / ".venv" / ".ready"
    if not ready.is_file():
        subprocess.run(["sh", cases / "prepare.sh", name, target], check=True, capture_output=True)
        ready.touch()
    return target


def environment(place: Path, home: Path, name: str) -> dict[str, str]:
    """As a user has it who activated the environment of the case."""
    home.mkdir(exist_ok=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("REPOTRACE_", "PYTEST_"))}
    env["PATH"] = os.pathsep.join([str(place / ".venv" / "bin"), env["PATH"]])
    env["VIRTUAL_ENV"] = str(place / ".venv")
    env["HOME"] = str(home)
    return env | VARIABLES.get(name, {})


def repotrace(
    *args: str | Path, cwd: Path, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """The command line of this checkout."""
    return subprocess.run(
        [BIN / "repotrace", *args],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def verdict(done: subprocess.CompletedProcess[str]) -> str:
    """The verdict of `replay --json`."""
    try:
        return str(json.loads(done.stdout)["verdict"])
    except (ValueError, KeyError):
        return f"exit {done.returncode}: {(done.stderr or done.stdout).strip()[-200:]}"


def try_case(cases: Path, name: str, work: Path) -> list[str]:
    """One row of the table."""
    first = lay_out(cases, name, work / name / "first")
    second = lay_out(cases, name, work / name / "a-second-and-longer-place")
    elsewhere = work / name / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    command = (cases / name / "cmd.txt").read_text().strip()
    env = environment(first, work / name / "home", name)
    other = environment(second, work / name / "another-home", name)
    store = work / name / "reports"
    limit = ["--timeout", TIMEOUTS[name]] if name in TIMEOUTS else []
    words = ["--shell", command]
    if "'" not in command and '"' not in command:
        words = command.split()
    captured = repotrace(
        "capture", "-s", store, "--id", f"case-{name}", *limit, *words, cwd=first, env=env
    )
    of = ["-s", store, f"case-{name}"]
    repeat = ["--repeat", "10"] if name == "16" else []
    replays = [
        verdict(repotrace("replay", "--json", *repeat, *of, cwd=first, env=env)),
        verdict(
            repotrace(
                "replay", "--json", *repeat, *of, cwd=elsewhere, env=env | {"HOME": other["HOME"]}
            )
        ),
        verdict(
            repotrace("replay", "--json", *repeat, *of, "--cwd", second, cwd=elsewhere, env=other)
        ),
    ]
    test = second / f"test_case_{name}.py"
    made = repotrace("generate", *of, "-o", test, "--overwrite", cwd=elsewhere, env=other)
    ran = subprocess.run(
        [BIN / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", test],
        cwd=elsewhere,
        env=other,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    last = ran.stdout.strip().splitlines()[-1] if made.returncode == 0 else made.stderr.strip()
    return [name, str(captured.returncode), *replays, last.replace("|", "/")[:70]]


def main() -> None:
    """Print the table, one row as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir(), "repotrace-cases"))
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    names = options.only or sorted(path.name for path in options.cases.iterdir() if path.is_dir())
    print("| case | exit | replay | other cwd, HOME | other place | generated test there |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for name in names:
        row = try_case(options.cases.resolve(), name, options.work)
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
