"""The environment in which a child process tells its test outcomes.

A project's own environment normally has no RepoTrace. So `pytest_plugin.py` alone goes with it,
packed as a wheel that stands at the end of `PYTHONPATH`, where pytest finds it like any installed
plug-in. It is not named in `PYTEST_PLUGINS`: a command that sets a `PYTHONPATH` of its own would
lose the module and keep the name, and pytest refuses to start without it. A wheel, because pip and
setuptools don't take one on the path for something that is installed, so that `pip freeze` prints
what it always printed; and because Python writes no caches beside it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path

from repotrace._version import __version__
from repotrace.records.events import (
    COMMAND_VARIABLE,
    JOURNAL_VARIABLE,
    RUN_VARIABLE,
    STEP_VARIABLE,
)

MODULE = "repotrace_outcomes"
"""The name of the module, of the distribution and of the plug-in in a foreign environment."""

ADDED = (
    RUN_VARIABLE,
    STEP_VARIABLE,
    COMMAND_VARIABLE,
    JOURNAL_VARIABLE,
    "PYTHONPATH",
    "PYTEST_PLUGINS",
)
"""The variables that `with_plugin` may set."""

_FOLDER = "plugin"
_SUFFIX = "-py3-none-any.whl"


def with_plugin(
    env: Mapping[str, str],
    *,
    journal: Path,
    run_id: str,
    step_id: str | None,
    command_id: str | None,
) -> dict[str, str]:
    """A copy of `env` for a child whose test outcomes shall reach `journal`.

    Makes the folder, with the plug-in in it, if it is not there. Where that cannot be done, the
    child runs without the plug-in.
    """
    result = without_plugin(env)
    # A test that starts the child is no test of the child's; the plug-in keeps quiet in tests.
    result.pop("PYTEST_CURRENT_TEST", None)
    journal = Path(os.path.abspath(journal))  # noqa: PTH100 - the child may work elsewhere
    result[JOURNAL_VARIABLE] = os.fspath(journal)
    result[RUN_VARIABLE] = run_id
    for name, value in ((STEP_VARIABLE, step_id), (COMMAND_VARIABLE, command_id)):
        if value is None:
            result.pop(name, None)
        else:
            result[name] = value
    try:
        wheel = os.fspath(_wheel_in(journal))
    except OSError:
        return result
    if os.pathsep in wheel:  # no path list can hold it
        return result
    _append(result, "PYTHONPATH", wheel, os.pathsep)
    if result.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        _append(result, "PYTEST_PLUGINS", MODULE, ",")
    return result


def without_plugin(env: Mapping[str, str]) -> dict[str, str]:
    """`env` without the plug-in, as it was before `with_plugin`; for what is recorded of it."""
    result = dict(env)
    for name, separator in (("PYTHONPATH", os.pathsep), ("PYTEST_PLUGINS", ",")):
        value = result.get(name)
        if value is None or MODULE not in value:
            continue
        kept = [part for part in value.split(separator) if not _is_ours(part)]
        if kept:
            result[name] = separator.join(kept)
        else:
            del result[name]
    return result


def _is_ours(part: str) -> bool:
    name = os.path.basename(part)  # noqa: PTH119 - may hold bytes that are no text
    return part == MODULE or (name.startswith(f"{MODULE}-") and name.endswith(_SUFFIX))


def _append(env: dict[str, str], name: str, value: str, separator: str) -> None:
    present = env.get(name)
    env[name] = f"{present}{separator}{value}" if present else value


# --- The wheel ------------------------------------------------------------------------------


def _wheel_in(journal: Path) -> Path:
    """The wheel that belongs to the journal folder, named by its content; made if missing."""
    data = wheel()
    folder = journal / _FOLDER
    path = folder / f"{MODULE}-{__version__}+{sha256(data).hexdigest()[:12]}{_SUFFIX}"
    if not path.is_file():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = folder / f".{os.getpid()}-{os.urandom(4).hex()}"
        try:
            part.touch(mode=0o600, exist_ok=False)
            part.write_bytes(data)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    return path


@cache
def wheel() -> bytes:
    """The plug-in as a wheel; the same bytes for the same plug-in."""
    from zipfile import ZipFile, ZipInfo

    source = Path(__file__).parents[1] / "pytest_plugin.py"
    info = f"{MODULE}-{__version__}.dist-info"
    content = {
        f"{MODULE}.py": source.read_text(encoding="utf-8"),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: {__version__}\n",
        f"{info}/entry_points.txt": f"[pytest11]\n{MODULE} = {MODULE}\n",
    }
    buffer = BytesIO()
    with ZipFile(buffer, "w") as archive:
        for name, text in content.items():
            archive.writestr(ZipInfo(name), text)
    return buffer.getvalue()
