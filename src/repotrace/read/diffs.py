"""What a step changed, as a unified diff of its own file operations."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from repotrace.read.views import StepView
from repotrace.records.run import FileOperation, OperationType, StateQuality
from repotrace.storage import Store

_NOTHING = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
"""The object id of an empty file, which git knows without having it."""

_NO_OBJECT = "0" * 40

_BODY = re.compile(rb"^(?:--- |GIT binary patch|Binary files )", re.MULTILINE)
_PLAIN = re.compile(rb'[^\x00-\x1f"\\\x7f-\xff]+')
_ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}
_USUAL_MODE = 0o100644


class StepDiff(NamedTuple):
    """What a step changed."""

    diff: bytes
    """Byte for byte, as git has it."""
    unknown: tuple[FileOperation, ...] = ()
    """Operations whose contents are not kept."""


def step_diff(store: Store, view: StepView) -> StepDiff:
    """The diff of the operations of a step. What others changed meanwhile is not in it."""
    if not view.operations:
        return StepDiff(b"")
    whole = _between_states(store, view)
    if whole is not None:
        return StepDiff(whole)
    known: list[bytes] = []
    unknown: list[FileOperation] = []
    for operation, source in _with_sources(view.operations):
        diff = _of_contents(store, operation, source)
        if diff is None:
            unknown.append(operation)
        else:
            known.append(diff)
    return StepDiff(b"".join(known), tuple(unknown))


def _between_states(store: Store, view: StepView) -> bytes | None:
    """The diff of the states around the step, if its operations are what differs between them.

    One git process then does for all files.
    """
    before, after = view.before, view.after
    if before.state_id is None or after.state_id is None or after.step_number != view.line.number:
        return None
    if {before.quality, after.quality} != {StateQuality.EXACT}:
        return None
    pair = (before.state_id, after.state_id)
    found = next(iter(store.snapshots.known_operations_of([pair])), None)
    if found is None:
        return None
    seen: set[tuple[str, str | None]] = set()
    for operation in found:
        seen.add((operation.path, operation.new_id))
        if operation.renamed_from is not None:
            seen.add((operation.renamed_from, None))
    if seen != {(operation.file_path, operation.after_id) for operation in view.operations}:
        return None
    return store.snapshots.diff(*pair)


def _with_sources(
    operations: Iterable[FileOperation],
) -> Iterator[tuple[FileOperation, FileOperation | None]]:
    """The operations, a rename once: its create with its delete."""
    deleted = {op.file_path: op for op in operations if op.operation_type == OperationType.DELETE}
    sources = {op.renamed_from for op in operations if op.renamed_from in deleted}
    for operation in operations:
        if operation.file_path in sources and deleted.get(operation.file_path) is operation:
            continue
        yield operation, deleted.get(operation.renamed_from or "")


def _of_contents(
    store: Store, operation: FileOperation, source: FileOperation | None
) -> bytes | None:
    """The diff of the contents that an operation names; None if they are not kept."""
    old_id, old_mode = operation.before_id, operation.mode_before
    if source is not None:
        old_id, old_mode = source.before_id, source.mode_before
    is_new = operation.operation_type == OperationType.CREATE and source is None
    is_gone = operation.operation_type == OperationType.DELETE
    if (old_id is None and not is_new) or (operation.after_id is None and not is_gone):
        return None
    ids = [oid for oid in (old_id, operation.after_id) if oid is not None]
    if any(store.snapshots.read_object(oid) is None for oid in ids):
        return None
    path = os.fsencode(operation.file_path)
    old_path = os.fsencode(source.file_path) if source is not None else path
    old_name, new_name = _quoted(b"a/" + old_path), _quoted(b"b/" + path)
    lines = [b"diff --git %s %s" % (old_name, new_name)]
    lines += _modes(old_mode, operation.mode_after, is_new=is_new, is_gone=is_gone)
    if source is not None:
        lines += [b"rename from " + _quoted(old_path), b"rename to " + _quoted(path)]
    same_mode = _git_mode(old_mode) == _git_mode(operation.mode_after)
    mode = b" %o" % _git_mode(old_mode) if same_mode and not (is_new or is_gone) else b""
    if old_id != operation.after_id:
        ends = [(oid or _NO_OBJECT).encode() for oid in (old_id, operation.after_id)]
        lines.append(b"index %s..%s%s" % (*ends, mode))
    head = b"\n".join(lines) + b"\n"
    if old_id == operation.after_id:
        return head
    text = store.snapshots.git(
        [
            *("diff", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color"),
            *(old_id or _NOTHING, operation.after_id or _NOTHING),
        ]
    )
    start = _BODY.search(text)
    if start is None:
        return head
    body = text[start.start() :]
    if body.startswith(b"--- "):
        hunks = body.split(b"\n", 2)[2]
        names = (b"/dev/null" if is_new else old_name, b"/dev/null" if is_gone else new_name)
        body = b"--- %s\n+++ %s\n%s" % (*names, hunks)
    return head + body


def _modes(old: int | None, new: int | None, *, is_new: bool, is_gone: bool) -> list[bytes]:
    if is_new:
        return [b"new file mode %o" % _git_mode(new)]
    if is_gone:
        return [b"deleted file mode %o" % _git_mode(old)]
    if old is None or new is None or _git_mode(old) == _git_mode(new):
        return []
    return [b"old mode %o" % _git_mode(old), b"new mode %o" % _git_mode(new)]


def _git_mode(mode: int | None) -> int:
    """The nearest mode that git has a name for."""
    if mode is None:
        return _USUAL_MODE
    if mode & 0o170000 == 0o120000:
        return 0o120000
    return 0o100755 if mode & 0o100 else _USUAL_MODE


def _quoted(path: bytes) -> bytes:
    """A path as git writes it in a diff."""
    if _PLAIN.fullmatch(path):
        return path
    parts = [
        f"\\{_ESCAPES[byte]}"
        if byte in _ESCAPES
        else chr(byte)
        if 0x20 <= byte < 0x7F
        else f"\\{byte:03o}"
        for byte in path
    ]
    return b'"' + "".join(parts).encode() + b'"'
