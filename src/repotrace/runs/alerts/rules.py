"""What an alert is raised for, and the settings of it.

`[tool.repotrace.alerts]` names rules: false switches one off, a number is its limit, a list its
patterns. What is not named is as in `DEFAULTS`. `notify` is no rule; see `notify_variable`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from repotrace._version import __version__
from repotrace.errors import RepoTraceError

type Setting = bool | float | tuple[str, ...]

DEFAULTS: dict[str, Setting] = {
    "broken-test": True,
    "untested-edit": True,
    "false-claim": True,
    "retries": 5,
    "repeated-failure": 4,
    "weakened-test": True,
    "unread-edit": True,
    "outside": True,
    "touched": (".env", ".env.*", ".git/**", ".github/workflows/**"),
    "secret": True,
    "cost": 10.0,
    "tokens": 5_000_000,
    "duration": 7_200,
    "missing-state": True,
}
"""Every rule with what it is set to unless the project says otherwise. A number is a limit: more
than so many raise the alert. Cost in US dollars, duration in seconds."""

QUOTING = frozenset({"false-claim"})
"""Rules whose evidence is what a model said."""

NOTIFY = "notify"
"""What stands beside the rules: where alerts are posted at the end of a run."""

UNTESTED = ("*.md", "*.rst", "*.txt", "docs/**", "LICENSE*", ".gitignore")
"""Paths whose change asks for no test run."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules as they are set."""

    settings: Mapping[str, Setting]

    def limit(self, name: str) -> float | None:
        """The limit of a rule; None if it is off."""
        value = self.settings[name]
        return None if isinstance(value, bool | tuple) else value

    def patterns(self, name: str) -> tuple[str, ...]:
        """The patterns of a rule; none if it is off."""
        value = self.settings[name]
        return value if isinstance(value, tuple) else ()

    def on(self, name: str) -> bool:
        """Whether a rule is on."""
        value = self.settings[name]
        return value is not False and value != ()

    @property
    def digest(self) -> str:
        """The same for what is looked for in the same way."""
        told = json.dumps([__version__, dict(self.settings)], sort_keys=True)
        return sha256(told.encode()).hexdigest()[:16]


def rules_from(table: Mapping[str, Any], where: str = "the settings") -> Rules:
    """The rules of a table of settings over the defaults.

    Raises RepoTraceError for a rule that does not exist, and for a value that makes no sense.
    """
    settings = dict(DEFAULTS)
    for key, value in table.items():
        name = key.replace("_", "-")
        if name == NOTIFY:
            notify_variable(value, where)
            continue
        if name not in DEFAULTS:
            raise RepoTraceError(
                f"There is no alert {key!r} in {where}.", hint=f"Known: {', '.join(DEFAULTS)}."
            )
        settings[name] = _setting(name, value, where)
    return Rules(settings)


def _setting(name: str, value: Any, where: str) -> Setting:
    default = DEFAULTS[name]
    if isinstance(value, bool):
        return default if value else False
    if isinstance(default, tuple):
        if isinstance(value, list) and all(isinstance(item, str) and item for item in value):
            return tuple(value)
        raise _bad(name, value, where, "a list of patterns of paths, or false")
    if isinstance(default, bool):
        raise _bad(name, value, where, "true or false")
    if isinstance(value, int | float) and 0 <= value < float("inf"):
        return value
    raise _bad(name, value, where, "a number, or false")


def _bad(name: str, value: Any, where: str, wanted: str) -> RepoTraceError:
    return RepoTraceError(f"Alert {name} in {where} is {value!r}.", hint=f"Write {wanted}.")


def notify_variable(value: object, where: str = "the settings") -> str:
    """The environment variable that holds the address, out of `env:NAME`.

    Raises RepoTraceError for anything else: an address is a secret, and settings are shared.
    """
    text = value if isinstance(value, str) else ""
    name = text.removeprefix("env:")
    if name == text or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise RepoTraceError(
            f"Setting alerts.notify in {where} names no environment variable.",
            hint='Keep the address out of files: write notify = "env:SLACK_WEBHOOK", and set that.',
        )
    return name


def rules_in(path: Path) -> Rules:
    """The rules of a file of TOML: its table `alerts`, `tool.repotrace.alerts`, or the whole.

    Raises RepoTraceError for a file that cannot be read, and as `rules_from`.
    """
    import tomllib

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RepoTraceError(f"Cannot read {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise RepoTraceError(f"{path} is not valid TOML: {error}") from error
    tools = table.get("tool")
    if isinstance(tools, dict) and isinstance(tools.get("repotrace"), dict):
        table = tools["repotrace"]
    nested = table.get("alerts", table)
    return rules_from(nested if isinstance(nested, dict) else {}, str(path))
