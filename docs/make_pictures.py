"""Make the pictures of the screen of `play` in docs/pictures.

    .venv/bin/python docs/make_pictures.py [NAME …]

The example agent is run and recorded in the folder for temporary files, `repotrace blame` asked
for the test that it broke, and the screen driven by keys. The SVG files need nothing from the
network.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from textual.worker import WorkerCancelled

from repotrace.read.playing import PlayedRun
from repotrace.storage import Store
from repotrace.tui.options import PlayOptions
from repotrace.tui.play import PlayApp

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
TEST = "tests/test_reminders.py::Reminders::test_yearly_over_a_leap_day"

SCREENS: dict[str, tuple[tuple[int, int], str]] = {
    "overview": ((120, 32), "j12\n"),
    "messages": ((120, 32), "j7\n2"),
    "files": ((132, 28), "j8\nf"),
    "diff": ((166, 28), "j12\n4"),
    "diff-narrow": ((80, 24), "j8\n4"),
    "output": ((120, 32), "j10\n5"),
    "tests": ((120, 32), "j10\n6"),
    "blame": ((120, 32), "j8\n7"),
    "search": ((120, 24), "/leap\n.."),
    "light": ((120, 24), "j12\nc"),
    "list": ((120, 20), "l"),
    "help": ((80, 24), "?"),
}
"""The size of each picture, and the keys that lead to what it shows."""

_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def record(folder: Path) -> Store:
    """Run the example agent there, and ask which step broke the test."""
    python = folder.with_name(f"{folder.name}-venv")
    python.symlink_to(sys.prefix)
    env = {key: value for key, value in os.environ.items() if not key.startswith("REPOTRACE_")}
    env |= {"HOME": str(folder.parent), "FORCE_COLOR": "1"}
    run = [str(python / "bin" / "python")]
    try:
        agent = [*run, str(ROOT / "examples" / "invoice_agent.py"), str(folder)]
        subprocess.run(agent, env=env, check=True, stdout=subprocess.DEVNULL)
        asked = [*run, "-m", "repotrace", "blame", TEST]
        subprocess.run(asked, env=env, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    finally:
        python.unlink()
    return Store(folder / ".git" / "repotrace")


async def picture(store: Store, size: tuple[int, int], keys: str) -> str:
    """The screen after these keys, as SVG."""
    app = PlayApp(PlayedRun(store, store.runs.get()), PlayOptions())
    async with app.run_test(size=size) as pilot:
        for key in ["", *keys]:
            if key:
                await pilot.press({"\n": "enter", "?": "question_mark"}.get(key, key))
            for _ in range(2):
                await pilot.pause(0.1)
                with suppress(WorkerCancelled):  # something else was to be shown meanwhile
                    await app.workers.wait_for_complete()
            await pilot.pause(0.1)
        svg = app.export_screenshot(title="repotrace play")
    return _FONTS.sub("", svg).replace("Fira Code", "DejaVu Sans Mono")


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    folder = Path(tempfile.gettempdir()) / "invoice"
    if folder.exists():
        sys.exit(f"{folder} is in the way")
    try:
        store = record(folder)
        for name in sys.argv[1:] or SCREENS:
            size, keys = SCREENS[name]
            path = PICTURES / f"play-{name}.svg"
            path.write_text(asyncio.run(picture(store, size, keys)))
            print(f"wrote {path.relative_to(ROOT)}")
        store.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
