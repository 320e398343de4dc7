"""`ReportStore`: a folder of bug reports, one JSON file each."""

from __future__ import annotations

import builtins
import errno
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from repotrace.errors import (
    InvalidReportId,
    NewerSchema,
    ReportNotFound,
    RepoTraceError,
    UnreadableReport,
)
from repotrace.records.base import printable
from repotrace.records.bug import SCHEMA_VERSION, BugReport, Kept
from repotrace.storage import files

LATEST = "latest"
"""Stands for the newest report wherever an id is expected."""

MAX_FILE_SIZE = 256 * 1024 * 1024
"""Bytes. A larger file is no report of ours, and would not fit the memory of a sweep."""

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def validate_id(report_id: str) -> str:
    """`report_id`, if a new report may have it; else raises InvalidReportId."""
    if report_id == LATEST:
        raise InvalidReportId(
            f"{LATEST!r} is reserved: it stands for the newest report.", hint="Choose another id."
        )
    if not _ID.fullmatch(report_id):
        lower = report_id.lower()
        raise InvalidReportId(
            f"{report_id!r} is not a report id.",
            hint=f"Ids are lower case, for example {lower}"
            if _ID.fullmatch(lower)
            else "An id is 1 to 64 of a-z, 0-9, '.', '_' and '-', and begins with one of a-z, 0-9.",
        )
    return report_id


def is_safe_name(report_id: str) -> bool:
    """Whether a report may be *read* under this id: 0.1.0 allowed more than `validate_id`."""
    return (
        report_id.isprintable()
        and 0 < len(os.fsencode(report_id)) <= 250
        and report_id[0] not in ".-"
        and "/" not in report_id
        and "\\" not in report_id
    )


class ReportStore:
    """The reports in one folder, `<root>/<id>.json`, readable and diffable.

    Constructing a store touches nothing; the folder is made at the first save. Writers of
    any number of processes may share a store: each file is replaced as a whole.
    """

    def __init__(
        self, root: Path | str = ".repotrace/reports", *, home: Path | None = None
    ) -> None:
        """`home`: where it is noted which of them came from elsewhere; None: see `home_for`."""
        self.root = Path(root)
        self._home = home

    def __repr__(self) -> str:
        return f"ReportStore({str(self.root)!r})"

    def path(self, report_id: str) -> Path:
        """Where a report of this id lies, or would. Raises InvalidReportId if it cannot be."""
        if not is_safe_name(report_id):
            validate_id(report_id)
        return self.root / f"{report_id}.json"

    # --- Writing --------------------------------------------------------------------------

    def save(self, report: BugReport) -> Path:
        """Store `report` with a fresh `updated_at`; replaces the report of its id."""
        path = self.path(report.id)
        with self._writing():
            if not os.path.lexists(path):
                validate_id(report.id)
            files.replace(path, _to_json(_stamped(report)))
        return path

    def add(
        self,
        report: BugReport,
        same: Callable[[BugReport], bool] = lambda existing: False,
        *,
        stamp: bool = True,
        before: Callable[[str], None] | None = None,
        is_free: Callable[[str], bool] = lambda name: True,
    ) -> tuple[BugReport, bool]:
        """Store `report` without replacing any other, and say under which id.

        Its `updated_at` becomes now unless `stamp` is false. `before` is called with the id
        before there is a file of it. An id that is not `is_free` is left out.

        Tries its id, then `<id>-2`, `<id>-3`, … The first stored report for which `same`
        is true is returned with False; otherwise the new one with True. Of any number of
        processes that add the same at once, one stores it and the others find it.
        """
        validate_id(report.id)
        with self._writing():
            number = 1
            while True:
                report_id = _numbered(report.id, number)
                path = self.path(report_id)
                if not os.path.lexists(path):
                    if not is_free(report_id):
                        number += 1
                        continue
                    stored = report.model_copy(update={"id": report_id})
                    stored = _stamped(stored) if stamp else stored
                    if before is not None:
                        before(report_id)
                    try:
                        files.create(path, _to_json(stored))
                    except FileExistsError:  # only where the file system has no locks
                        continue
                    return stored, True
                existing = self._load_or_none(report_id)
                if existing is not None and same(existing):
                    return existing, False
                number += 1

    def update(self, report_id: str, **fields: Any) -> BugReport:
        """Change some fields of a stored report; others keep their value, known to us or not.

        Raises ReportNotFound, UnreadableReport, and TypeError for what is no field.
        """
        unknown = (fields.keys() - BugReport.model_fields.keys()) | (fields.keys() & {"id"})
        if unknown:
            raise TypeError(f"cannot set {', '.join(sorted(unknown))}")
        path = self.path(report_id)
        self._expect(report_id)
        with self._writing():
            document, before = self._read(report_id)
            changed = _stamped(BugReport.model_validate(before.model_dump() | fields))
            changed = changed if before.kept is None else changed.read_from(before.kept)
            document |= changed.model_dump(mode="json", include=fields.keys() | {"updated_at"})
            files.replace(path, _encode(document))
        return changed

    def delete(self, report_id: str) -> bool:
        """Remove a report; False if there was none."""
        if not self.exists(report_id):
            return False
        with self._writing():
            try:
                self.path(report_id).unlink()
            except FileNotFoundError:
                return False
        return True

    def rescue(self, report: BugReport) -> Path:
        """Write `report` into the folder for temporary files, for when `save` fails.

        The name cannot be guessed and the file is open to the user alone. The file can be
        moved into a store later, under the name `<id>.json`.
        """
        import tempfile

        data = _to_json(_stamped(report))
        path = None
        try:
            descriptor, name = tempfile.mkstemp(
                prefix="repotrace-", suffix=f"-{report.id[:64]}.json"
            )
            path = Path(name)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
        except OSError as error:
            if path is not None:
                path.unlink(missing_ok=True)
            raise RepoTraceError(
                f"Report {report.id} could not be kept anywhere: {_reason(error)}.",
                hint="Free some space, or point TMPDIR or --store at a folder with space.",
            ) from error
        return path

    # --- Reading --------------------------------------------------------------------------

    def load(self, report_id: str) -> BugReport:
        """The report of this id. Raises ReportNotFound, UnreadableReport or NewerSchema."""
        return self._read(report_id)[1]

    def exists(self, report_id: str) -> bool:
        """Whether a file of this id is there, readable or not."""
        return is_safe_name(report_id) and os.path.lexists(self.path(report_id))

    def list_ids(self) -> list[str]:
        """The ids of all stored reports, sorted; also of those that cannot be read."""
        return [name for name in self._names() if is_safe_name(name)]

    def list(self) -> builtins.list[BugReport]:
        """All stored reports, sorted by id. Raises UnreadableReport at the first bad one."""
        return [self.load(report_id) for report_id in self.list_ids()]

    def scan(self) -> Iterator[tuple[str, BugReport | RepoTraceError]]:
        """Each file of the store with its report, or with the reason why it is none.

        The first item is the id, or what is printable of a name that can be no id. Raises
        only if the folder itself cannot be read.
        """
        for name in self._names():
            if not is_safe_name(name):
                yield (
                    _shown(name),
                    _unreadable(
                        self.root / f"{_shown(name)}.json", "has a name that can be no id", _RENAME
                    ),
                )
                continue
            try:
                yield name, self.load(name)
            except ReportNotFound:  # deleted meanwhile
                continue
            except RepoTraceError as error:
                yield name, error

    def resolve(
        self,
        text: str,
        last_seen: Mapping[str, datetime] | Callable[[], Mapping[str, datetime]] | None = None,
    ) -> str:
        """The id that `text` means: an id, a prefix that only one id has, or `latest`.

        `latest` is the report that was created, or by `last_seen` seen again, most recently.
        """
        if text == LATEST:
            return self._latest(last_seen() if callable(last_seen) else last_seen or {})
        if self.exists(text):
            return text
        matches = [name for name in self.list_ids() if text and name.startswith(text)]
        if len(matches) == 1:
            return matches[0]
        if not matches:
            raise self._not_found(text)
        shown = ", ".join(matches[:8]) + (", …" if len(matches) > 8 else "")
        raise RepoTraceError(
            f"{text!r} is ambiguous: {len(matches)} reports begin with it.",
            hint=f"Write more of one of: {shown}",
        )

    def _latest(self, last_seen: Mapping[str, datetime]) -> str:
        times = [
            (max(item.created_at, last_seen.get(name, item.created_at)), name)
            for name, item in self.scan()
            if isinstance(item, BugReport)
        ]
        if not times:
            raise ReportNotFound(
                f"No reports stored in {self.root}", hint="Make one with: repotrace capture COMMAND"
            )
        return max(times)[1]

    def _names(self) -> builtins.list[str]:
        try:
            with os.scandir(self.root) as entries:
                names = [entry.name for entry in entries]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RepoTraceError(
                f"The store {self.root} cannot be read: {_reason(error)}.",
                hint="Choose another one with --store.",
            ) from error
        stems = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        # Hidden files are what editors, macOS and interrupted writers leave.
        return sorted(stem for stem in stems if not stem.startswith(".") and stem)

    def _read(self, report_id: str) -> tuple[dict[str, Any], BugReport]:
        data = self._read_bytes(report_id)
        path = self.path(report_id)
        try:
            document = _decode(data)
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise _unreadable(path, f"is not valid JSON: {reason}") from error
        _check_schema(path, document)
        try:
            report = _with_zones(BugReport.model_validate(document))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "the document"
            raise _unreadable(path, f"is not a report: {place}: {first['msg']}") from error
        except OverflowError as error:
            raise _unreadable(path, "is not a report: a time is out of range") from error
        if report.id != report_id:
            raise _unreadable(
                path,
                f"holds a report with another id, {report.id!r}",
                _RENAME,
            )
        root = Path(os.path.abspath(self.root))  # noqa: PTH100 - keeps links as they are
        return document, report.read_from(Kept(root, report_id, self._home))

    def _read_bytes(self, report_id: str) -> bytes:
        path = self.path(report_id)
        # Not blocking, since opening a FIFO would wait for a writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(path, flags), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise _unreadable(path, "is not a regular file")
                if status.st_size > MAX_FILE_SIZE:
                    raise _unreadable(path, f"is too large: {status.st_size} bytes")
                return file.read()
        except FileNotFoundError:
            raise self._not_found(report_id) from None
        except IsADirectoryError as error:
            raise _unreadable(path, "is not a regular file") from error
        except OSError as error:
            if isinstance(error, RepoTraceError):
                raise
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EOPNOTSUPP):
                reason = "is a symbolic link" if path.is_symlink() else "is not a regular file"
                raise _unreadable(path, reason) from error
            raise _unreadable(path, f"cannot be read: {_reason(error)}") from error

    def _load_or_none(self, report_id: str) -> BugReport | None:
        try:
            return self.load(report_id)
        except (ReportNotFound, UnreadableReport):
            return None

    def _expect(self, report_id: str) -> None:
        if not self.exists(report_id):
            raise self._not_found(report_id)

    def _not_found(self, text: str) -> ReportNotFound:
        try:
            ids = self.list_ids()
        except RepoTraceError:
            ids = []
        message = f"No report {text!r} in {self.root}"
        if not ids:
            return ReportNotFound(
                message,
                hint="No reports are stored there. Make one with: repotrace capture COMMAND",
            )
        from difflib import get_close_matches

        near = get_close_matches(text, ids[:5000], n=3, cutoff=0.6)
        meant = f"Did you mean {' or '.join(near)}? " if near else ""
        return ReportNotFound(message, hint=f"{meant}List reports with: repotrace list")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """The lock on the store, with its folder made; failures of writing become readable."""
        try:
            if self.root.name == "reports" and self.root.parent.name == ".repotrace":
                files.make_private(self.root.parent)
            files.make_private(self.root)
            with files.locked(self.root):
                yield
        except OSError as error:
            if isinstance(error, RepoTraceError):
                raise
            raise RepoTraceError(
                f"The store {self.root} cannot be written: {_reason(error)}.",
                hint=_WRITE_HINTS.get(
                    error.errno or 0, "Choose another folder with --store, or REPOTRACE_STORE."
                ),
            ) from error


_RENAME = "Rename the file to the id inside it."

_WRITE_HINTS = {
    errno.ENOSPC: "Free some space, or choose a folder elsewhere with --store.",
    errno.EDQUOT: "Your quota is used up: free some space, or choose another --store.",
    errno.EROFS: "It is mounted read-only: choose another folder with --store.",
    errno.EACCES: "Change its permissions, or choose another folder with --store.",
    errno.EPERM: "Change its permissions, or choose another folder with --store.",
    errno.ENOTDIR: "A file is where a folder should be: move it, or choose another --store.",
    errno.EISDIR: "A folder is where a report should be: move it, or choose another id.",
}


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _shown(name: str) -> str:
    """A file name that is safe to print on one line."""
    return "".join(
        part if part.isprintable() else part.encode("unicode_escape").decode("ascii")
        for part in printable(name)
    )


def _numbered(report_id: str, number: int) -> str:
    if number == 1:
        return report_id
    suffix = f"-{number}"
    return report_id[: 64 - len(suffix)] + suffix


def _unreadable(path: Path, problem: str, hint: str | None = None) -> UnreadableReport:
    return UnreadableReport(
        printable(f"{path} {problem}"), hint=hint or "Correct the file, or move it away."
    )


def _check_schema(path: Path, document: dict[str, Any]) -> None:
    metadata = document.get("metadata")
    version = metadata.get("schema_version", 1) if isinstance(metadata, dict) else 1
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _unreadable(path, f"is not a report: schema_version is {version!r:.40}")
    if version > SCHEMA_VERSION:
        raise NewerSchema(
            f"{path} was written by a newer RepoTrace: its schema is {version}, "
            f"this version reads up to {SCHEMA_VERSION}",
            hint="Upgrade RepoTrace to read it.",
        )


def _stamped(report: BugReport) -> BugReport:
    return report.model_copy(update={"updated_at": datetime.now(UTC)})


def _with_zones(report: BugReport) -> BugReport:
    """Times without a zone count as UTC. Raises OverflowError where UTC has no such time."""
    changes: dict[str, datetime] = {}
    for name, time in (("created_at", report.created_at), ("updated_at", report.updated_at)):
        if time is not None:
            time.astimezone(UTC)
            if time.tzinfo is None:
                changes[name] = time.replace(tzinfo=UTC)
    return report.model_copy(update=changes) if changes else report


def _to_json(report: BugReport) -> bytes:
    try:
        return _encode(report.model_dump(mode="json"))
    except UnicodeEncodeError:  # Pydantic takes a lone surrogate in values and outer keys only
        plain = report.model_copy(update={"metadata": _plain(report.metadata)})
        return _encode(plain.model_dump(mode="json"))


def _encode(document: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        return text.encode() + b"\n"
    except ValueError:  # a lone surrogate, or a number that JSON has not
        text = json.dumps(_plain(document), indent=2, ensure_ascii=False)
        return text.encode() + b"\n"


def _decode(data: bytes) -> dict[str, Any]:
    document = json.loads(data.decode("utf-8-sig"), parse_constant=_refuse, parse_float=_finite)
    if not isinstance(document, dict):
        raise ValueError("expected an object")
    # Text holds a lone surrogate only if JSON spelt it out.
    return _plain(document) if b"\\ud" in data.lower() else document


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:40]} is out of range")
    return number


def _plain(value: Any) -> Any:
    """`value` with text that every encoder accepts, and None for what JSON cannot say."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
