"""Where the runs and reports came from that were not recorded here.

One small file each in `<home>/received/`: what a report or a run says of itself proves nothing,
so this is never read from them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple

from repotrace.storage import files

type Kind = Literal["run", "report"]

FOLDER = "received"


class Origin(NamedTuple):
    """Where something came from."""

    file: str
    """The name of the file that it was imported from."""
    at: datetime
    """When, UTC."""
    worked_on: bool = False
    """Of a run that was recorded here, on the files of one that came from elsewhere."""
    left_out: Mapping[str, object] = {}
    """What the file had not of the run, as `left_out` of an exported one; empty for nothing."""
    arriving: bool = False
    """Whether it is being taken in, or never came whole: the disk was full, the process killed."""


class ReceivedStore:
    """The origins that a home knows. Constructing opens and makes nothing."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else takes a run in meanwhile. Raises OSError if the home cannot be written."""
        files.make_private(self._folder)
        with files.locked(self._folder):
            yield

    def note(self, kind: Kind, name: str, origin: Origin) -> None:
        """Remember where a run or report came from. Raises OSError if that fails."""
        files.make_private(self._folder)
        facts: dict[str, object] = {"kind": kind, "id": name, "file": origin.file}
        facts |= {"at": origin.at.isoformat(), "worked_on": origin.worked_on}
        facts |= {"left_out": dict(origin.left_out)} if origin.left_out else {}
        facts |= {"arriving": True} if origin.arriving else {}
        files.replace(self._path(kind, name), json.dumps(facts, indent=2).encode() + b"\n")

    def origin(self, kind: Kind, name: str) -> Origin | None:
        """Where it came from; None for what was recorded here."""
        try:
            facts = json.loads(self._path(kind, name).read_bytes())
            at = datetime.fromisoformat(facts["at"]).astimezone(UTC)
            left_out = facts.get("left_out")
            lacks = left_out if isinstance(left_out, dict) else {}
            said = (facts.get(name) is True for name in ("worked_on", "arriving"))
            return Origin(str(facts["file"]), at, next(said), lacks, next(said))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            why = f"unknown: {self._folder} may not be read"
            return Origin(why, datetime.fromtimestamp(0, UTC))
        except (OSError, ValueError, KeyError, TypeError):  # it is there, whatever it says
            return Origin("an unknown file", datetime.fromtimestamp(0, UTC))

    def is_noted(self, kind: Kind, name: str) -> bool:
        """Whether something is written of it; false where nobody may look."""
        return os.path.lexists(self._path(kind, name))

    def forget(self, kind: Kind, name: str) -> None:
        """As for a run that is deleted."""
        with suppress(OSError):
            self._path(kind, name).unlink()

    def history(self, commit: str) -> Path:
        """Where the repository is, or would be, that came with a bundle and has the commit."""
        return self._folder / "commits" / commit

    def _path(self, kind: Kind, name: str) -> Path:
        plain = name if name.isalnum() and name.isascii() and len(name) <= 64 else None
        return self._folder / f"{kind}-{plain or sha256(os.fsencode(name)).hexdigest()}.json"
