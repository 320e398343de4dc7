"""The logs of Inspect as files: `.eval`, a zip whose members may be packed by zstd, and `.json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from repotrace.errors import ImportFailed
from repotrace.importers.lines import WHOLE_LIMIT, Damage, Progress, whole_json

type Record = dict[str, Any]

_ATTACHMENT = "attachment://"
_DEEPEST = 200


def is_archive(head: bytes) -> bool:
    """Whether it is a zip that begins as those of Inspect do."""
    return head.startswith(b"PK\x03\x04") and any(
        name in head for name in (b"_journal/start.json", b"header.json", b"samples/")
    )


def logged(path: Path, damage: Damage, progress: Progress) -> Iterator[tuple[Record, Record]]:
    """The head of the log and each of its samples, the attachments put in. Raises ImportFailed."""
    with path.open("rb") as stream:
        packed = stream.read(4) == b"PK\x03\x04"
    if packed:
        yield from _unpacked(path, damage, progress)
        return
    log = whole_json(path, progress=progress)
    samples = log.get("samples") if isinstance(log, dict) else None
    if not isinstance(samples, list) or not isinstance(log.get("eval"), dict):
        raise ImportFailed(f"{path} holds no samples.")
    head = {name: value for name, value in log.items() if name != "samples"}
    for sample in samples:
        if isinstance(sample, dict):
            yield head, attached(sample)
        else:
            damage.broken += 1


def _unpacked(path: Path, damage: Damage, progress: Progress) -> Iterator[tuple[Record, Record]]:
    zipfile, errors = _unpackers()
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            head = next(
                (
                    found
                    for name in ("header.json", "_journal/start.json")
                    if name in names and (found := _member(archive, name, progress))
                ),
                None,
            )
            if head is None or not isinstance(head.get("eval"), dict):
                raise ImportFailed(f"{path} has no header.")
            for name in dict.fromkeys(names):
                if not (name.startswith("samples/") and name.endswith(".json")):
                    continue
                sample = _member(archive, name, progress)
                if sample is None:
                    damage.broken += 1
                else:
                    yield head, attached(sample)
    except errors as error:
        raise ImportFailed(f"{path} cannot be unpacked: {error}.") from error


def _member(archive: Any, name: str, progress: Progress) -> Record | None:
    """The object that a member holds; None if it holds none."""
    info = archive.getinfo(name)
    if info.file_size > WHOLE_LIMIT:
        return None
    with archive.open(info) as stream:
        data = stream.read(WHOLE_LIMIT + 1)
    progress(info.compress_size)
    if len(data) > WHOLE_LIMIT:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _unpackers() -> tuple[Any, tuple[type[Exception], ...]]:
    """The module that unpacks zips with members packed by zstd, and what broken ones raise."""
    import struct
    import zlib
    from lzma import LZMAError

    if sys.version_info >= (3, 14):
        import zipfile

        from compression.zstd import ZstdError
    else:
        from backports.zstd import ZstdError, zipfile
    broken = (zipfile.BadZipFile, zlib.error, struct.error, LZMAError, ZstdError)
    return zipfile, (*broken, OSError, EOFError, NotImplementedError, RuntimeError, ValueError)


def attached(sample: Record) -> Record:
    """The sample with its long texts in the places that refer to them."""
    attachments = sample.get("attachments")
    if not isinstance(attachments, dict) or not attachments:
        return sample
    return {
        name: value if name == "attachments" else _filled(value, attachments, 0)
        for name, value in sample.items()
    }


def _filled(value: Any, attachments: Record, depth: int) -> Any:
    if isinstance(value, str):
        if not value.startswith(_ATTACHMENT):
            return value
        found = attachments.get(value.removeprefix(_ATTACHMENT))
        return found if isinstance(found, str) else value
    if depth > _DEEPEST:
        return value
    if isinstance(value, list):
        return [_filled(part, attachments, depth + 1) for part in value]
    if isinstance(value, dict):
        return {name: _filled(part, attachments, depth + 1) for name, part in value.items()}
    return value


def events_of(sample: Record) -> Iterator[Record]:
    """The events of a sample in order, those that are within others behind them."""
    waiting: list[Any] = [sample.get("events")]
    transcript = sample.get("transcript")
    if isinstance(transcript, dict):
        waiting.append(transcript.get("events"))
    for listed in waiting:
        yield from _flat(listed, 0)


def _flat(listed: Any, depth: int) -> Iterator[Record]:
    for event in listed if isinstance(listed, list) else ():
        if isinstance(event, dict):
            yield event
            if depth < _DEEPEST:
                yield from _flat(event.get("events"), depth + 1)


def shown_to(event: Record, sample: Record) -> list[Record]:
    """The messages that a call of a model was shown."""
    found = event.get("input")
    messages = list(found) if isinstance(found, list) else []
    pool = sample.get("events_data")
    pooled: Sequence[Any] = pool.get("messages") or () if isinstance(pool, dict) else ()
    for part in event.get("input_refs") or ():
        if isinstance(part, list) and len(part) == 2 and isinstance(pooled, list):
            first, last = part
            if isinstance(first, int) and isinstance(last, int):
                messages += pooled[max(first, 0) : max(last, 0)]
    return [message for message in messages if isinstance(message, dict)]
