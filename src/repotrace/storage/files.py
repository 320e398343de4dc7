"""Private folders, and files that are written whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

GITIGNORE = "*\n!/reports/\n!/reports/*.json\n"
"""Of a `.repotrace` folder: reports may be committed, nothing else."""

PRIVATE = 0o600
OPEN = 0o666
"""As far as the user's umask lets it be."""

_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


def make_private(folder: Path) -> None:
    """Make `folder` and what is missing above it, open to the user alone.

    A folder `.repotrace` gets a `.gitignore`, unless it has one.
    """
    if not folder.is_dir():
        missing = [folder]
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for path in reversed(missing):
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                if not path.is_dir():
                    raise NotADirectoryError(
                        errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)
                    ) from None
    if folder.name == ".repotrace":
        _write_gitignore(folder)


def _write_gitignore(folder: Path) -> None:
    path = folder / ".gitignore"
    if not path.exists():
        with suppress(OSError):
            create(path, GITIGNORE.encode())


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the one lock on `folder`. It is on the folder itself, so no lock file is left."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Some network file systems have no locks. Links and renames are atomic there as well.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace(path: Path, data: bytes, *, mode: int = PRIVATE) -> None:
    """Make `data` the content of `path`, at once: a reader sees the old or the new file."""
    with _temporary(path, data, mode) as temporary:
        temporary.rename(path)


def create(path: Path, data: bytes, *, mode: int = PRIVATE) -> None:
    """Make the file `path`, whole and at once. Raises FileExistsError if there is one."""
    with _temporary(path, data, mode) as temporary:
        publish(temporary, path)


def write_document(path: Path, text: str, *, overwrite: bool) -> None:
    """`write_file` with a text."""
    write_file(path, text.encode("utf-8"), overwrite=overwrite)


def write_file(path: Path, data: bytes, *, overwrite: bool) -> None:
    """Write a file that the user asked for, with the modes of any file, making its folders.

    A link is followed only with `overwrite`, and what is no regular file (a device, a pipe) is
    written into. Raises FileExistsError if the name is taken and `overwrite` is false, another
    OSError if it cannot be written.
    """
    if not overwrite and os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        # A file where a folder is needed is not the file that may be replaced.
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
    if not overwrite:
        create(path, data, mode=OPEN)
        return
    if path.exists() and not path.is_file():
        path.write_bytes(data)
    else:
        replace(Path(os.path.realpath(path)), data, mode=OPEN)


def publish(temporary: Path, path: Path) -> None:
    """Give a finished file its name. Raises FileExistsError if the name is taken.

    Hold the lock on the folder: a file system without hard links needs it.
    """
    try:
        os.link(temporary, path, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        temporary.rename(path)


def temporary_name(path: Path) -> Path:
    """A hidden name beside `path` that nobody else uses."""
    return path.with_name(f".{path.name[:200]}.{os.urandom(6).hex()}.tmp")


@contextmanager
def _temporary(path: Path, data: bytes, mode: int) -> Iterator[Path]:
    temporary = temporary_name(path)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def held_alone(descriptor: int, *, wait: bool) -> Iterator[bool]:
    """Whether this process alone holds the lock of an open file, which is closed at the end.

    `wait`: until others let go of it. On a file system without locks everybody holds it.
    """
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        except OSError:
            pass
        yield True
    finally:
        os.close(descriptor)
