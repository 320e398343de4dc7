"""What a generated test has to take care of, decided once from the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Literal

from repotrace.config import UserRule
from repotrace.generator.expectation import (
    PLACE_NAMES,
    Expectation,
    expectation_of,
    is_hang,
    places_of,
)
from repotrace.generator.place import Whereabouts, whereabouts
from repotrace.generator.reproduction import Reproduction, command_of
from repotrace.records.command import CommandRun, Termination
from repotrace.redact import PLACEHOLDER

type Expect = Literal["failure", "fixed"]
type Way = Literal["plain", "patient", "terminal"]

_PATIENCE = 60
_MOVABLE = ("cwd", "repository", "venv")
_NOT_PINNED = frozenset({"PATH", "VIRTUAL_ENV", "TMPDIR"})
_PYTEST_OWN = frozenset({"PYTEST_CURRENT_TEST", "PYTEST_VERSION", "PYTEST_XDIST_WORKER"})
"""Some programs behave otherwise in a test, and here they must not."""


@dataclass(frozen=True, slots=True)
class Needs:
    """One test to write: the record, what to expect, and what it takes to run it again."""

    reproduction: Reproduction
    run: CommandRun
    expect: Expect
    match_output: bool
    exact: bool
    expectation: Expectation
    where: Whereabouts | None

    command: list[str]
    stdin: str | bytes | None
    environment: dict[str, str]
    """Variables to set."""
    unset: list[str]
    """Variables to take away."""
    secrets: dict[str, str]
    """Redacted text in command, stdin and environment, and the variable that has it."""
    recorded: dict[str, str]
    """Folders, by field of `Places`, whose recorded paths stand in the command."""

    @property
    def way(self) -> Way:
        """How to run the command."""
        run = self.run
        if run.pty:
            return "terminal"
        if is_hang(run) or run.pipe_held_open or run.leftovers or self.expectation.shortened:
            return "patient"
        return "plain"

    @property
    def decoded(self) -> bool:
        """Whether the test decodes the output itself, since text mode would change it."""
        if self.way != "plain" or self.exact or isinstance(self.stdin, bytes):
            return True
        outputs = (self.run.stdout.data, self.run.stderr.data)
        return any(isinstance(stream.expected, bytes) for stream in self.expectation.streams) or (
            any(b"\r" in output for output in outputs)
        )

    @property
    def not_started(self) -> bool:
        return self.run.termination is Termination.SPAWN_ERROR

    @property
    def exit_code_known(self) -> bool:
        """Whether how it ended was recorded; a Reproduction made by hand may not say."""
        run = self.run
        return run.termination is not Termination.TIMEOUT or run.timeout is not None

    @property
    def in_environment(self) -> bool:
        """Whether the command needs another environment than that of the test."""
        return bool(self.environment or self.unset or self.uses_venv)

    @property
    def uses_venv(self) -> bool:
        return self.run.places.venv is not None

    @property
    def places(self) -> list[str]:
        """Folders that the test must know, by field of `Places`."""
        used = {*self.expectation.places, *self.recorded}
        return [name for name in PLACE_NAMES if name in used]

    @property
    def timeout(self) -> float:
        """Seconds after which the command counts as hanging."""
        run = self.run
        if is_hang(run):
            limit = run.timeout if run.termination is Termination.TIMEOUT else None
            return _short(limit if limit is not None else max(run.duration or 0.0, 0.1))
        return max(_PATIENCE, ceil((run.duration or 0.0) * 10), ceil(run.timeout or 0))

    @property
    def bare(self) -> bool:
        """Whether a plain call of `subprocess.run` says it all. What runs tests may find this one
        among them, and needs more."""
        return (
            self.way == "plain"
            and not self.decoded
            and not self.not_started
            and self.where is None
            and not self.in_environment
            and not self.secrets
            and self.stdin is None
            and self.run.stdin_kind != "cut"
            and not self.run.merge
            and not any("test" in part for part in self.command)
        )


def needs_of(
    reproduction: Reproduction,
    *,
    path: Path | None,
    match_output: bool,
    exact: bool,
    expect: Expect,
    user_rules: Sequence[UserRule] = (),
) -> Needs:
    """What a test of `reproduction` at `path` takes (None: nobody knows where it will be)."""
    run = reproduction.recorded
    command = command_of(run)
    environment, hidden = _environment(run)
    stdin = None if run.stdin is None else _text_or_bytes(run.stdin)
    texts = [*command, *([stdin] if isinstance(stdin, str) else []), *environment.values()]
    return Needs(
        reproduction=reproduction,
        run=run,
        expect=expect,
        match_output=match_output,
        exact=exact,
        expectation=expectation_of(
            run, match_output=match_output, exact=exact, user_rules=user_rules
        ),
        where=whereabouts(run, path),
        command=command,
        stdin=stdin,
        environment=environment,
        unset=_unset(run, hidden),
        secrets=_secrets(texts),
        recorded=_recorded(run, [*command, *environment.values()]),
    )


def _environment(run: CommandRun) -> tuple[dict[str, str], set[str]]:
    """The recorded variables to set, and the names of those whose values are redacted."""
    kept = {name: value for name, value in run.env.items() if name not in _NOT_PINNED}
    hidden = {name for name, value in kept.items() if PLACEHOLDER.fullmatch(value)}
    return {name: kept[name] for name in sorted(kept) if name not in hidden}, hidden


def _unset(run: CommandRun, hidden: set[str]) -> list[str]:
    """The variables that were not set; none if nobody looked."""
    if not run.env and not run.env_unset:
        return []
    return sorted({*run.env_unset, *_PYTEST_OWN} - hidden - set(run.env))


def _secrets(texts: list[str]) -> dict[str, str]:
    """Each redacted text and the name of the variable that stands for it."""
    found: dict[str, str] = {}
    for text in texts:
        for match in PLACEHOLDER.finditer(text):
            rule, digest = match.groups()
            named = rule.startswith("env-")
            found[match[0]] = rule[4:] if named else f"REPOTRACE_SECRET_{digest.upper()}"
    return found


def _recorded(run: CommandRun, texts: list[str]) -> dict[str, str]:
    """The folders whose absolute paths stand in the command or in its variables."""
    places = places_of(run)
    paths = {name: getattr(places, name) for name in _MOVABLE}
    return {
        name: path
        for name, path in paths.items()
        if path and path.count("/") > 1 and any(path in text for text in texts)
    }


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


def _short(seconds: float) -> float:
    return int(seconds) if seconds == int(seconds) else round(seconds, 3)
