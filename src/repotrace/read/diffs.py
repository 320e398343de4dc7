"""What a step changed, as a unified diff of its own file operations."""

from __future__ import annotations

import os
import re
import string
import zlib
from base64 import b85encode
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from repotrace.read.views import StepView
from repotrace.records.run import FileOperation, OperationType, StateQuality
from repotrace.storage import Store

_LOOKED_AT = 8000
"""Bytes in which a zero makes a file binary for git."""

_LENGTHS = (string.ascii_uppercase + string.ascii_lowercase).encode()
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
    ends = (old_id, operation.after_id)
    if any(oid is not None and store.snapshots.read_object(oid) is None for oid in ends):
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
        full = [(oid or _NO_OBJECT).encode() for oid in ends]
        lines.append(b"index %s..%s%s" % (*full, mode))
    head = b"\n".join(lines) + b"\n"
    if old_id == operation.after_id:
        return head
    names = (b"/dev/null" if is_new else old_name, b"/dev/null" if is_gone else new_name)
    sides = [None if oid is None else store.snapshots.read_object(oid) for oid in ends]
    if None in sides:
        return head + _one_sided(sides[0] or b"", sides[1] or b"", names)
    command = ("diff", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color")
    text = store.snapshots.git([*command, *(oid for oid in ends if oid is not None)])
    start = _BODY.search(text)
    body = text[start.start() :] if start else b""
    if body.startswith(b"--- "):
        body = b"--- %s\n+++ %s\n%s" % (*names, body.split(b"\n", 2)[2])
    return head + body


def _one_sided(old: bytes, new: bytes, names: tuple[bytes, bytes]) -> bytes:
    """The body of the diff of a file that is new or gone: git has no name for "nothing"."""
    if b"\0" in (old + new)[:_LOOKED_AT]:
        return b"GIT binary patch\n" + _literal(new) + _literal(old)
    content = old or new
    if not content:
        return b""
    lines = content.removesuffix(b"\n").split(b"\n")
    count = b"1" if len(lines) == 1 else b"1,%d" % len(lines)
    ranges = (b"-%s +0,0" if old else b"-0,0 +%s") % count
    body = b"".join((b"-" if old else b"+") + line + b"\n" for line in lines)
    if not content.endswith(b"\n"):
        body += b"\\ No newline at end of file\n"
    return b"--- %s\n+++ %s\n@@ %s @@\n%s" % (*names, ranges, body)


def _literal(content: bytes) -> bytes:
    """A content in git's way to write binary ones."""
    packed = zlib.compress(content)
    rows = [packed[start : start + 52] for start in range(0, len(packed), 52)]
    lines = [_LENGTHS[len(row) - 1 : len(row)] + b85encode(row, pad=True) for row in rows]
    return b"literal %d\n%s\n\n" % (len(content), b"\n".join(lines))


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
