"""An environment of a project's own, with a small package in it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from zipfile import ZipFile

from benchmarks.blame.work import Work


def wheel(folder: Path, level: int) -> Path:
    """A package `pace` of this version."""
    path = folder / "wheels" / f"pace-{level}.0-py3-none-any.whl"
    path.parent.mkdir(exist_ok=True)
    info = f"pace-{level}.0.dist-info"
    files = {
        "pace.py": f"LEVEL = {level}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: pace\nVersion: {level}.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def make_environment(work: Work) -> Path:
    """Its interpreter. pytest and pip come from the environment that all projects share."""
    place = work.folder / ".venv"
    words: list[str | Path] = [work.ground.python, "-m", "venv", "--without-pip", place]
    subprocess.run(words, check=True, env=work.environ)
    (shared,) = (work.ground.work / "venv" / "lib").glob("python3*/site-packages")
    (own,) = (place / "lib").glob("python3*/site-packages")
    (own / "shared.pth").write_text(f"{shared}\n", encoding="utf-8")
    python = place / "bin" / "python"
    words = [python, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*words, wheel(work.ground.work, 1)], check=True, env=work.environ)
    return python
