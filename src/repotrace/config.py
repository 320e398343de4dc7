"""Settings; and the names of `locations`, which says where things lie on disk.

Settings come from flags, then `REPOTRACE_*`, then `[tool.repotrace]` in `pyproject.toml`
or a `repotrace.toml`. Nothing here runs a process, makes a folder or prints.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from repotrace.errors import RepoTraceError
from repotrace.locations import (
    STORE_FOLDER,
    Repository,
    find_repository,
    find_store,
    head_of,
    home_for,
    project_folders,
    workspace_for,
)

__all__ = [
    "DEFAULT_OUTPUT_LIMIT",
    "STORE_FOLDER",
    "CheckSettings",
    "Repository",
    "Settings",
    "UserRule",
    "find_repository",
    "find_store",
    "head_of",
    "home_for",
    "load_settings",
    "workspace_for",
]

DEFAULT_OUTPUT_LIMIT = 1024 * 1024


class UserRule(NamedTuple):
    """A normalising rule of the user's own: what matches `pattern` becomes `replacement`."""

    name: str
    pattern: str
    """A regular expression in the syntax of `re`; `^` and `$` match at every line."""
    replacement: str


class CheckSettings(NamedTuple):
    """How the tests of a project are run on the states of a run, by `check` and `blame`."""

    command: str | None = None
    """A line of shell; None: found by looking at the project."""
    link: tuple[str, ...] = ()
    """Paths of the project that no state holds and that the tests need: linked into the copy."""
    setup: str | None = None
    """A line of shell that is run in the copy before the tests, on every state."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables for both."""


_NOTHING_SAID = CheckSettings()


@dataclass(frozen=True)
class Settings:
    """What a user may set once for a project. Flags go over it: `dataclasses.replace`."""

    output_limit: int = DEFAULT_OUTPUT_LIMIT
    """Bytes of each stream that a report keeps."""
    timeout: float | None = None
    """Seconds; None waits for ever."""
    env_keep: tuple[str, ...] = ()
    """Names of variables to keep in reports besides the usual ones."""
    normalize: tuple[UserRule, ...] = ()
    snapshot: bool = True
    """Whether a capture keeps the files of the work tree."""
    check: CheckSettings = _NOTHING_SAID
    alerts: Mapping[str, Any] = MappingProxyType({})
    """The table of the rules of `runs alerts`, as it was written."""


# --- Settings -----------------------------------------------------------------------------


def load_settings(cwd: Path, environ: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """The settings for a command started in `cwd`, and warnings for people.

    The nearest file that has settings counts, alone. Unknown keys and a `pyproject.toml`
    that cannot be parsed are warnings; a value that makes no sense, or a broken
    `repotrace.toml`, raises RepoTraceError.
    """
    warnings: list[str] = []
    settings = Settings()
    for folder in project_folders(cwd, environ):
        found = _settings_table(folder, warnings)
        if found is not None:
            path, table = found
            settings = _from_table(table, path, warnings)
            break
    return _from_environment(settings, environ), warnings


def _settings_table(folder: Path, warnings: list[str]) -> tuple[Path, dict[str, Any]] | None:
    own = folder / "repotrace.toml"
    text = _read(own)
    if text is not None:
        try:
            table = _parse(text)
        except ValueError as error:
            raise RepoTraceError(
                f"{own} is not valid TOML: {error}", hint="Correct the file, or move it away."
            ) from error
        nested = table.get("tool", {})
        if isinstance(nested, dict) and isinstance(nested.get("repotrace"), dict):
            return own, nested["repotrace"]
        return own, table

    shared = folder / "pyproject.toml"
    text = _read(shared)
    # Parsing costs a noticeable part of a short capture, and most projects set nothing.
    if text is None or b"repotrace" not in text:
        return None
    try:
        table = _parse(text)
    except ValueError as error:
        warnings.append(f"{shared} is not valid TOML, its settings are ignored: {error}")
        return None
    tools = table.get("tool")
    if not isinstance(tools, dict) or "repotrace" not in tools:
        return None
    if not isinstance(tools["repotrace"], dict):
        raise _bad("tool.repotrace", shared, "must be a table", "Write [tool.repotrace].")
    return shared, tools["repotrace"]


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError:
        return None


def _parse(text: bytes) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _from_table(table: dict[str, Any], path: Path, warnings: list[str]) -> Settings:
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name in _READERS:
            values[name] = _READERS[name](value, key, path)
        else:
            known = ", ".join(sorted(_READERS))
            warnings.append(f"Unknown setting {key!r} in {path}. Known settings: {known}")
    return Settings(**values)


def _from_environment(settings: Settings, environ: Mapping[str, str]) -> Settings:
    values: dict[str, Any] = {}
    for name in ("output_limit", "timeout", "snapshot"):
        variable = f"REPOTRACE_{name.upper()}"
        if environ.get(variable):
            values[name] = _READERS[name](environ[variable], variable, None)
    names = environ.get("REPOTRACE_ENV_KEEP")
    if names:
        split = [name for name in re.split(r"[\s,]+", names) if name]
        values["env_keep"] = _names(split, "REPOTRACE_ENV_KEEP", None)
    return replace(settings, **values)


def _bad(key: str, path: Path | None, problem: str, hint: str) -> RepoTraceError:
    where = f" in {path}" if path else ""
    return RepoTraceError(f"Setting {key}{where} {problem}.", hint=hint)


_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "kb": 1000, "mb": 1000**2, "gb": 1000**3}
_UNITS |= {"b": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3}


def _size(value: object, key: str, path: Path | None) -> int:
    size = 0
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", value.strip().lower())
        if match and match[2] in _UNITS:
            size = int(match[1]) * _UNITS[match[2]]
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    if size < 1:
        raise _bad(
            key,
            path,
            f"must be a number of bytes above 0, not {value!r}",
            'Write bytes, or a size such as "4 MiB".',
        )
    return size


def _seconds(value: object, key: str, path: Path | None) -> float:
    seconds = math.nan
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except (ValueError, OverflowError):
            seconds = math.nan
    if not (0 < seconds < math.inf):
        raise _bad(
            key,
            path,
            f"must be a number of seconds above 0, not {value!r}",
            "Leave the setting out to wait without a limit.",
        )
    return seconds


_SWITCHES = {"1": True, "true": True, "yes": True, "on": True}
_SWITCHES |= {"0": False, "false": False, "no": False, "off": False}


def _switch(value: object, key: str, path: Path | None) -> bool:
    switch = _SWITCHES.get(value.strip().lower()) if isinstance(value, str) else value
    if not isinstance(switch, bool):
        raise _bad(key, path, f"must be true or false, not {value!r}", "Write true or false.")
    return switch


def _names(value: object, key: str, path: Path | None) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(_is_variable_name(name) for name in value):
        raise _bad(
            key,
            path,
            "must be a list of names of variables",
            'Write for example: env-keep = ["DATABASE_HOST", "APP_MODE"]',
        )
    return tuple(value)


def _is_variable_name(name: object) -> bool:
    return isinstance(name, str) and bool(name) and "=" not in name and "\0" not in name


def _rules(value: object, key: str, path: Path | None) -> tuple[UserRule, ...]:
    if not isinstance(value, list) or not all(isinstance(rule, dict) for rule in value):
        raise _bad(
            key,
            path,
            "must be an array of tables",
            "Write [[tool.repotrace.normalize]] with name, pattern and replacement below it.",
        )
    rules = tuple(_rule(rule, path) for rule in value)
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise _bad(f"normalize {name!r}", path, "is there twice", "Give each rule a name.")
    return rules


def _rule(table: dict[str, Any], path: Path | None) -> UserRule:
    texts = [table.get(name) for name in ("name", "pattern", "replacement")]
    name, pattern, replacement = texts
    if (
        not (isinstance(name, str) and isinstance(pattern, str) and isinstance(replacement, str))
        or len(table) != 3
        or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name)
    ):
        raise _bad(
            f"normalize {name!r}" if isinstance(name, str) else "normalize",
            path,
            "must have a name (letters, digits, - and _), a pattern and a replacement, all text",
            "Quote patterns with single quotes, so that backslashes stay as they are.",
        )
    rule = UserRule(name=name, pattern=pattern, replacement=replacement)
    problem = _problem_with(rule)
    if problem:
        raise _bad(
            f"normalize {name!r}",
            path,
            problem,
            "Quote patterns with single quotes, and try them in Python: re.sub(pattern, …).",
        )
    return rule


def _problem_with(rule: UserRule) -> str | None:
    try:
        pattern = re.compile(rule.pattern, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        return f"has a pattern that is no regular expression: {error}"
    try:
        pattern.sub(rule.replacement, "")
    except (re.error, IndexError) as error:
        return f"has a replacement that does not fit its pattern: {error}"
    if pattern.search(""):
        return "has a pattern that matches nothing at all, and so matches everywhere"
    return None


def _check(value: object, key: str, path: Path | None) -> CheckSettings:
    if not isinstance(value, dict):
        raise _bad(key, path, "must be a table", "Write [tool.repotrace.check].")
    unknown = value.keys() - set(CheckSettings._fields)
    if unknown:
        known = ", ".join(CheckSettings._fields)
        raise _bad(f"{key}.{min(unknown)}", path, "is not known", f"There are: {known}")
    link, env = value.get("link", []), value.get("env", {})
    for name in ("command", "setup"):
        if not isinstance(value.get(name, ""), str):
            raise _bad(f"{key}.{name}", path, "must be a line of shell", "Write it as text.")
    if not isinstance(link, list) or not all(_is_inside(name) for name in link):
        hint = 'Write for example: link = ["data/model.bin"]'
        raise _bad(f"{key}.link", path, "must be a list of paths inside the project", hint)
    texts = isinstance(env, dict) and all(isinstance(text, str) for text in env.values())
    if not texts or not all(_is_variable_name(name) for name in env):
        hint = 'Write for example: env = { PYTHONPATH = "src" }'
        raise _bad(f"{key}.env", path, "must be a table of texts", hint)
    return CheckSettings(
        command=value.get("command") or None,
        link=tuple(os.path.normpath(name) for name in link),
        setup=value.get("setup") or None,
        env=tuple(env.items()),
    )


def _alerts(value: object, key: str, path: Path | None) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _bad(key, path, "must be a table", "Write [tool.repotrace.alerts].")
    return MappingProxyType(value)


def _is_inside(name: object) -> bool:
    if not isinstance(name, str) or not name.strip() or "\0" in name or name.startswith("/"):
        return False
    return os.path.normpath(name).partition("/")[0] not in (".", "..", ".git")


type _Reader = Callable[[object, str, Path | None], object]

_READERS: dict[str, _Reader] = {
    "output_limit": _size,
    "timeout": _seconds,
    "env_keep": _names,
    "normalize": _rules,
    "snapshot": _switch,
    "check": _check,
    "alerts": _alerts,
}
