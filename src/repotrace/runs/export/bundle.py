"""A run or a report with the states of its files: one file that works on another machine.

A zip of `manifest.json`, `run.json` or `report.json`, and `states.bundle`, which is git's.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, get_args

from repotrace._version import __version__
from repotrace.config import find_repository
from repotrace.errors import ImportFailed, NewerSchema, NoCommand, RepoTraceError
from repotrace.readable import visible
from repotrace.records.base import decode_bytes, encode_bytes
from repotrace.records.bug import BugReport
from repotrace.records.command import FileState
from repotrace.records.run import ExecutionTrace, FileOperation, Run
from repotrace.records.trace import command_run_of
from repotrace.redact import Redactor
from repotrace.runs.export.json_ import as_text, run_document
from repotrace.runs.export.secrets import Suspect, secrets_in, secrets_of
from repotrace.runs.export.selection import ExportOptions, Selection
from repotrace.storage import Store
from repotrace.system.histories import contents_of_history, write_history
from repotrace.system.private_repository import has_commit
from repotrace.system.snapshots import NestedRepository, NotCaptured
from repotrace.system.snapshots.bundles import present, write_bundle
from repotrace.system.snapshots.lacking import Lacking
from repotrace.system.snapshots.model import Reason

FORMAT = "repotrace-bundle"
SCHEMA_VERSION = 1
MANIFEST, STATES, HISTORY = "manifest.json", "states.bundle", "history.bundle"

_MOST_TEXT = 256 << 20
_MOST_STATES = 4 << 30
_LIMITS = {
    MANIFEST: 16 << 20,
    "run.json": _MOST_TEXT,
    "report.json": _MOST_TEXT,
    STATES: _MOST_STATES,
    HISTORY: _MOST_STATES,
}
"""Bytes of each member, unpacked."""
_ENCRYPTED = 1
_SHOWN = 20
_LACKING = 500
_EPOCH = (1980, 1, 1, 0, 0, 0)


class Bundle(NamedTuple):
    """What is in a bundle, nothing of it believed yet."""

    kind: str
    """`run` or `report`."""
    record: bytes
    """JSON."""
    states: tuple[tuple[str, Lacking], ...]
    packed: bytes
    """The states as git bundles them; empty for none."""
    commit: str | None = None
    """The commit whose history is in it."""
    history: bytes = b""


# --- Out ------------------------------------------------------------------------------------


def run_bundle(selection: Selection) -> bytes:
    """The run with all states of its files, without them if files are left out.

    Raises RepoTraceError for what may be secrets.
    """
    store, run, options = selection.store, selection.run, selection.options
    named = states_of(run, selection.trace) if options.files else []
    states = present(store.snapshots, named)
    operations = selection.trace.file_operations if options.files else []
    others = _outside(store, states, operations)
    if not options.allow_secrets:
        _refuse_secrets(store, states, others)
    hollow = replace(options, files=False)
    document = run_document(Selection(store, run, hollow))
    del document["left_out"]
    if selection.left_out.told:
        document["left_out"] = selection.left_out.model_dump(mode="json")
    lacking = [(state, store.snapshots.lacking(f"runs/{run.id}", state)) for state in states]
    contents = [store.snapshots.read_object(object_id) or b"" for _, object_id in others]
    packed = write_bundle(store.snapshots, lacking, contents) if states or contents else b""
    history = _history(store, run.base_commit, [run.workspace], options)
    return _zipped("run", run.id, as_text(document), lacking, packed, history)


def report_bundle(store: Store, report: BugReport, options: ExportOptions) -> bytes:
    """The report with its files. Raises RepoTraceError for what may be secrets."""
    files = command_files(report)
    state_id = files.state_id if options.files and files is not None else None
    states = present(store.snapshots, [state_id] if state_id else [])
    if not options.allow_secrets:
        _refuse_secrets(store, states, ())
    lacking = [(state, Lacking()) for state in states]
    packed = write_bundle(store.snapshots, lacking, ()) if states else b""
    text = as_text(report.model_dump(mode="json"))
    history = _history(store, *_place_of(report), options)
    return _zipped("report", report.id, text, lacking, packed, history)


def states_of(run: Run, trace: ExecutionTrace) -> list[str]:
    """The ids of all states that the records of a run name, in the order of its steps."""
    named: list[str | None] = [run.base_state]
    for step in trace.steps:
        named += [step.state_before_id, step.state_id]
    named += [command.state_id for command in trace.commands]
    named += [outcome.state_id for outcome in trace.test_outcomes]
    return list(dict.fromkeys(name for name in named if name))


def command_files(report: BugReport) -> FileState | None:
    """What a report says of the files of its command."""
    try:
        return command_run_of(report).files
    except NoCommand:
        return None


def _place_of(report: BugReport) -> tuple[str | None, list[str | None]]:
    """The commit that a report was captured on, and where its repository may be."""
    try:
        run = command_run_of(report)
    except NoCommand:
        return None, []
    commit = run.repository.commit if run.repository is not None else None
    return commit, [run.places.repository, run.cwd]


def _history(
    store: Store, commit: str | None, places: Sequence[str | None], options: ExportOptions
) -> tuple[str, bytes] | None:
    """The commit with all before it, if that is wanted. Raises RepoTraceError if it is not here."""
    if not options.full:
        return None
    folders = [Path.cwd(), *(Path(place) for place in places if place)]
    for repository in dict.fromkeys(find_repository(folder) for folder in folders):
        if repository is None or commit is None or not has_commit(repository, commit):
            continue
        if not options.allow_secrets:
            redactor = Redactor(key=store.key, variables=os.environ)
            found = secrets_of(contents_of_history(repository, commit), redactor)
            _refuse([one._replace(path=f"history: {one.path}") for one in found])
        return commit, write_history(repository, commit)
    raise RepoTraceError(
        "The history is not here: no repository has the commit.",
        hint="Leave out --full, or export in a clone of the repository.",
    )


def _outside(
    store: Store, states: Sequence[str], operations: Sequence[FileOperation]
) -> list[tuple[str, str]]:
    """Path and object id of contents that operations name and no state holds."""
    inside = {entry.object_id for state in states for entry in store.snapshots.list(state)}
    found = {
        (operation.file_path, object_id): None
        for operation in operations
        for object_id in (operation.before_id, operation.after_id)
        if object_id is not None and object_id not in inside
    }
    return [named for named in found if store.snapshots.read_object(named[1]) is not None]


def _refuse_secrets(store: Store, states: Sequence[str], others: Sequence[tuple[str, str]]) -> None:
    redactor = Redactor(key=store.key, variables=os.environ)
    _refuse(list(secrets_in(store, states, others, redactor)))


def _refuse(found: Sequence[Suspect]) -> None:
    if not found:
        return
    shown = "\n".join(f"  {_plain_path(one)}:{one.line}  {one.rule}" for one in found[:_SHOWN])
    more = f"\n  and {len(found) - _SHOWN} more places" if len(found) > _SHOWN else ""
    raise RepoTraceError(
        f"The files hold what looks like a secret:\n{shown}{more}",
        hint="Files go into a bundle byte for byte. If they may, say --allow-secrets",
    )


def _plain_path(one: Suspect) -> str:
    return visible(one.path).replace("\n", "\\n")


def _zipped(
    kind: str,
    name: str,
    record: str,
    states: Sequence[tuple[str, Lacking]],
    packed: bytes,
    history: tuple[str, bytes] | None,
) -> bytes:
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "exported_by": f"repotrace {__version__}",
        "kind": kind,
        "id": name,
        "states": [{"id": state_id, **_plain(lacking)} for state_id, lacking in states],
    }
    if history is not None:
        manifest["commit"] = history[0]
    written = BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, text in ((MANIFEST, as_text(manifest)), (f"{kind}.json", record)):
            archive.writestr(_member(member, zipfile.ZIP_DEFLATED), text.encode())
        if packed:
            archive.writestr(_member(STATES, zipfile.ZIP_STORED), packed)
        if history is not None:
            archive.writestr(_member(HISTORY, zipfile.ZIP_STORED), history[1])
    return written.getvalue()


def _member(name: str, method: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.compress_type = method
    info.external_attr = 0o600 << 16
    return info


def _plain(lacking: Lacking) -> dict[str, Any]:
    return {
        "not_captured": [
            {
                "path": encode_bytes(os.fsencode(item.path)),
                "reason": item.reason,
                "size": item.size,
                "is_folder": item.is_folder,
            }
            for item in lacking.not_captured
        ],
        "nested": [
            {"path": encode_bytes(os.fsencode(item.path)), "head": item.head}
            for item in lacking.nested
        ],
        "more": lacking.more,
    }


# --- In -------------------------------------------------------------------------------------


def opened_bundle(path: Path) -> Bundle:
    """What is in the file. Raises ImportFailed for what is no bundle, or too large."""
    members = _members(path)
    try:
        manifest = json.loads(members.get(MANIFEST, b""))
        if manifest["format"] != FORMAT:
            raise ValueError("another format")
        version = manifest["schema_version"]
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise NewerSchema(
                f"{path.name} was written by a newer RepoTrace: its schema is {version}.",
                hint="Update RepoTrace.",
            )
        kind = manifest["kind"]
        states = tuple((_state_id(item["id"]), _lacking(item)) for item in manifest["states"])
        commit = None if "commit" not in manifest else _state_id(manifest["commit"])
        packed, history = members.get(STATES, b""), members.get(HISTORY, b"")
        return Bundle(kind, members[f"{kind}.json"], states, packed, commit, history)
    except NewerSchema:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ImportFailed(f"{path.name} is no bundle of RepoTrace, or a damaged one.") from error


def _members(path: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                limit = _LIMITS.get(info.filename)
                if limit is None:
                    continue
                if info.filename in found:
                    raise ImportFailed(f"{path.name} has {info.filename} twice.")
                if info.flag_bits & _ENCRYPTED:
                    raise ImportFailed(f"{path.name} is encrypted.", hint="Unpack and zip it anew.")
                with archive.open(info) as member:
                    found[info.filename] = member.read(limit + 1)
                if len(found[info.filename]) > limit:
                    raise ImportFailed(f"{path.name} is too large unpacked.")
    except ImportFailed:
        raise
    except (
        *(zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error),
        *(EOFError, OSError, ValueError),
    ) as error:
        raise ImportFailed(f"{path.name} is damaged: {error}.") from error
    return found


def _state_id(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 40 or set(value) - set("0123456789abcdef"):
        raise ValueError("not the id of a state")
    return value


def _lacking(item: Mapping[str, Any]) -> Lacking:
    reasons = get_args(Reason.__value__)
    left_out = tuple(
        NotCaptured(
            os.fsdecode(decode_bytes(one["path"])),
            one["reason"],
            None if one["size"] is None else int(one["size"]),
            bool(one["is_folder"]),
        )
        for one in item["not_captured"][:_LACKING]
        if one["reason"] in reasons
    )
    nested = tuple(
        NestedRepository(
            os.fsdecode(decode_bytes(one["path"])), str(one["head"]) if one["head"] else None
        )
        for one in item["nested"][:_LACKING]
    )
    return Lacking(left_out, nested, int(item["more"]))
