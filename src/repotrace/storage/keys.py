"""The key of the redaction digests of a home."""

from __future__ import annotations

import os
from pathlib import Path

from repotrace.storage import files

_KEY_LENGTH = 32


def key(home: Path) -> bytes:
    """The 32 random bytes in `<home>/key`, made at the first call, the same for all processes.

    Where they cannot be kept, other random bytes: digests then agree within one process only
    if the caller keeps the value.
    """
    path = home / "key"
    try:
        found = _read_key(path)
        if found is None:
            files.make_private(home)
            with files.locked(home):
                found = _read_key(path)
                if found is None:
                    found = os.urandom(_KEY_LENGTH)
                    files.replace(path, found)
    except OSError:
        return os.urandom(_KEY_LENGTH)
    return found


def _read_key(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(_KEY_LENGTH + 1)
    return data if len(data) == _KEY_LENGTH else None
