"""One event, one append: the inbox through which running programs tell of themselves.

Each process appends to a file of its own, one line of JSON an event, in a single write. Once
`Journal.write` has returned, the event survives the death of the process. Nothing here raises
into the program that is recorded: what cannot be written is counted, the first failure is said
once on stderr, and the count is written as soon as something can be.

The words of the events are explained in `records/events.py`. This file needs only the standard
library and nothing of its package, so that it can be loaded by path into a foreign process.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterator, Optional, Set, Tuple  # noqa: UP035 - for the older Pythons, too

__all__ = [
    "CUT",
    "FILE_LIMIT",
    "TEXT_LIMIT",
    "Journal",
    "message_of",
    "new_id",
    "new_run_id",
    "redacted",
    "writer_facts",
]

TEXT_LIMIT = 1 << 20
"""Characters of one text above which its middle is left out."""

FILE_LIMIT = 64 << 20
"""Bytes after which a writer goes on in a new file, so that the old one can be removed."""

CUT = "\n[... {omitted} of {length} characters omitted, sha256 {digest} ...]\n"
"""The line in the middle of a text that was cut. The digest is of the whole redacted text."""

_SUFFIX = ".jsonl"
_FAULT = "[REDACTED:fault]"
_DEEPEST = 200
_LONGEST_NAME = 60
_TRIES = 20
_LARGEST = 8192
"""Bits of a number that is written as one."""

_encoder = json.JSONEncoder(ensure_ascii=True, check_circular=False, separators=(",", ":"))


def _quick_dumps() -> Callable[[Any], str]:
    """The encoder's own machine, kept: `encode` builds a new one for each call."""
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    quote = json.encoder.encode_basestring_ascii
    sample = {"a": [1, "\u20ac", None]}
    try:
        machine = make(None, _encoder.default, quote, None, ":", ",", False, False, True)
        if "".join(machine(sample, 0)) == _encoder.encode(sample):
            return lambda value: "".join(machine(value, 0))
    except TypeError:  # another Python may have none, or another one
        pass
    return _encoder.encode


_dumps = _quick_dumps()


# --- Names --------------------------------------------------------------------------------


class _Process:
    """What tells this process from all others; made anew after a fork."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.random = os.urandom(5).hex()
        self.count = itertools.count(int.from_bytes(os.urandom(2), "big"))


_process = _Process()


def new_id(now: Optional[int] = None) -> str:  # noqa: UP045
    """An id that no other process makes; 32 hex digits that sort by time.

    `now` is in nanoseconds. The last 16 digits alone are as unique, as span ids must be.
    """
    moment = (time.time_ns() if now is None else max(now, 0)) // 1000
    return "%014x%s%08x" % (moment, _process.random, next(_process.count) & 0xFFFFFFFF)  # noqa: UP031


def new_run_id() -> str:
    """An id for a new run: `r` and twelve hex digits."""
    return "r" + os.urandom(6).hex()


# --- Writing ------------------------------------------------------------------------------


_said_of: Set[str] = set()  # noqa: UP006
"""Folders of which this process has said that they take nothing."""


class Journal:
    """The journal file of this process in `folder`. Constructing opens and makes nothing.

    May be shared by threads, and is usable in a child after a fork, which gets a file of its
    own. `redact` is applied to every text; one that fails costs the text, not the event.

    With a `name`, several processes append to one file of that name, and none of them closes
    it; `writer` are the `writer_facts` of the process that they speak for.
    """

    def __init__(
        self,
        folder: Any,
        *,
        redact: Optional[Callable[[str], str]] = None,  # noqa: UP045
        text_limit: int = TEXT_LIMIT,
        file_limit: int = FILE_LIMIT,
        name: Optional[str] = None,  # noqa: UP045
        writer: Optional[Dict[str, Any]] = None,  # noqa: UP006, UP045
    ) -> None:
        self.folder = os.fspath(folder)
        self.began = False
        """Whether this process was the first to write into its file."""
        self.lost = 0
        """Events that this process could not write, in all."""
        self._untold: Dict[Optional[str], int] = {}  # noqa: UP006, UP045
        self._redact = redact
        self._text_limit = max(text_limit, 2)
        self._file_limit = file_limit
        self._name = name
        self._writer = writer
        self._lock = threading.RLock()
        self._descriptor = -1
        self._size = 0
        self._torn = False
        self._warned = False
        _journals.add(self)

    def write(
        self,
        kind: str,
        run: Optional[str],  # noqa: UP045
        data: Dict[str, Any],  # noqa: UP006
        *,
        now: Optional[int] = None,  # noqa: UP045
        event_id: Optional[str] = None,  # noqa: UP045
        weak: bool = False,
    ) -> str:
        """Append one event and give its id. Never raises, whatever `data` holds.

        `now` is the time of the event in nanoseconds, if it is not this moment.
        """
        moment = time.time_ns() if now is None else now
        name = new_id(moment) if event_id is None else event_id
        try:
            event: Dict[str, Any] = {"id": name, "kind": kind, "time": moment, "data": data}  # noqa: UP006
            if run is not None:
                event["run"] = run
            if weak:
                event["weak"] = True
            if self._redact is not None:
                event["data"] = redacted(data, self._redact)
            self._append(self._line(event))
        except Exception as error:
            self._lose(error, run)
        return name

    def close(self) -> None:
        """Say that nothing follows. A later write begins a new file."""
        with self._lock:
            if self._descriptor < 0:
                return
            try:
                self._tell_of_losses()
                if self._name is None:
                    self._put(self._line(_event("closed", {})))
            except Exception as error:
                self._warn(error)
            self._shut()

    def open(self) -> None:
        """Begin the file now rather than at the first event. Raises OSError if it cannot be."""
        with self._lock:
            if self._descriptor < 0:
                self._open()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- One line ---------------------------------------------------------------------------

    def _line(self, event: Dict[str, Any]) -> bytes:  # noqa: UP006
        try:
            line = _dumps(event)
        except Exception:  # a foreign object may raise anything
            event["data"] = _plain(event["data"], set())
            line = _dumps(event)
        if len(line) > self._text_limit:
            event["data"] = _shortened(event["data"], self._text_limit)
            line = _dumps(event)
        return line.encode("ascii") + b"\n"

    def _append(self, line: bytes) -> None:
        with self._lock:
            if self._descriptor < 0:
                self._open()
            elif self._size > self._file_limit and self._name is None:
                self._put(self._line(_event("closed", {})))
                self._shut()
                self._open()
            if self._untold:
                self._tell_of_losses()
            self._put(line)

    def _tell_of_losses(self) -> None:
        for run, count in list(self._untold.items()):
            event = _event("lost", {"count": count, "reason": "could not be written"})
            if run is not None:
                event["run"] = run
            self._put(self._line(event))
            del self._untold[run]

    def _put(self, line: bytes) -> None:
        """Append `line` whole, or raise OSError. A reader drops what came of a part of it."""
        if self._torn:
            line = b"\n" + line
        written = os.write(self._descriptor, line)
        self._size += written
        self._torn = written < len(line)
        if self._torn:
            raise OSError(28, "No space left on device")

    def lose(self, error: Exception, run: Optional[str]) -> None:  # noqa: UP045
        """Count an event of `run` that could not even be made."""
        self._lose(error, run)

    def _lose(self, error: Exception, run: Optional[str]) -> None:  # noqa: UP045
        with self._lock:
            self.lost += 1
            self._untold[run] = self._untold.get(run, 0) + 1
        self._warn(error)

    def _warn(self, error: Exception) -> None:
        # What generators say when they are dropped at the very end has no way to be written.
        if self._warned or sys is None or sys.is_finalizing():
            return
        self._warned = True
        if self.folder in _said_of:
            return
        _said_of.add(self.folder)
        try:
            reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            sys.stderr.write(
                f"repotrace: an event could not be recorded in {self.folder}: {reason}."
                " The program goes on; what is lost is counted.\n"
            )
        except Exception:
            return

    # --- The file ---------------------------------------------------------------------------

    def _open(self) -> None:
        """Begin a file that holds this writer's lock for as long as the process lives."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        shared = [self._name] * _TRIES if self._name else []
        for name in (*shared, *[None] * _TRIES):
            stem = name or f"{os.getpid()}-{os.urandom(6).hex()}"
            path = os.path.join(self.folder, stem + _SUFFIX)  # noqa: PTH118
            descriptor = os.open(path, flags if name else flags | os.O_EXCL, 0o600)
            # A reader that saw the empty file first may have removed it.
            if _share_lock(descriptor) and os.fstat(descriptor).st_nlink:
                break
            os.close(descriptor)
            if name:  # a reader looks whether it is over
                time.sleep(0.005)
        else:
            raise OSError(11, "The journal folder is not usable")
        size = os.fstat(descriptor).st_size
        self._descriptor, self._size = descriptor, size
        self.began = size == 0 and name == self._name
        # Whoever wrote before us may have been killed in the middle of a line.
        self._torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        if size == 0:
            self._put(self._line(_event("writer", self._writer or writer_facts())))

    def _shut(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError:
                return

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
        self._shut()
        self.lost, self._untold = 0, {}


_journals: weakref.WeakSet[Journal] = weakref.WeakSet()


def _after_fork() -> None:
    global _process
    _process = _Process()
    for journal in list(_journals):
        journal._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _event(kind: str, data: Dict[str, Any]) -> Dict[str, Any]:  # noqa: UP006
    moment = time.time_ns()
    return {"id": new_id(moment), "kind": kind, "time": moment, "data": data}


def _share_lock(descriptor: int) -> bool:
    """Show that the writer of a file lives. True as well where there are no locks."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def writer_facts(pid: Optional[int] = None) -> Dict[str, Any]:  # noqa: UP006, UP045
    """What a reader needs to find out whether a process, by default this one, is still alive."""
    facts: Dict[str, Any] = {"pid": os.getpid() if pid is None else pid}  # noqa: UP006
    try:
        with open(f"/proc/{facts['pid']}/stat", "rb") as file:
            facts["pid_started"] = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/sys/kernel/random/boot_id") as file:
            facts["boot"] = file.read().strip()
        facts["pid_namespace"] = os.readlink("/proc/self/ns/pid")  # noqa: PTH115
    except (OSError, ValueError, IndexError):
        return facts
    return facts


# --- Texts --------------------------------------------------------------------------------


def redacted(data: Any, redact: Callable[[str], str]) -> Any:
    """`data` with every text redacted.

    Names are looked at together with their values, since a password is often known by its name
    alone. Most events hold no secret, and one look at all their texts together proves it.
    """
    texts: list[str] = []
    try:
        _collect(data, texts, 0)
        joined = "\n".join(texts)
        if redact(joined) == joined:
            return data
    except Exception:
        texts.clear()
    return _masked(_plain(data, set()), redact)


def _collect(value: Any, texts: list[str], depth: int, name: str = "") -> None:
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        own = _own_name(value, name) if "value" in value else name
        for key, item in value.items():
            if key == "value":
                key = own or key
            if isinstance(item, str):
                texts.append(f"{key}={item}")
            elif isinstance(item, (dict, list, tuple)):
                texts.append(str(key))
                _collect(item, texts, depth + 1, key if isinstance(key, str) else "")
            elif item is not None and not isinstance(item, (int, float)):
                texts.append(f"{key}={_text(item)}")
    elif isinstance(value, (list, tuple)):
        for label, item in _labelled(value, name):
            if isinstance(item, str):
                texts.append(f"{label}={item}" if label else item)
            else:
                _collect(item, texts, depth + 1, label)
    elif value is not None and not isinstance(value, (int, float)):
        texts.append(_text(value))


def _labelled(items: Any, name: str) -> Iterator[Tuple[str, Any]]:  # noqa: UP006
    """The items of a list, each with what it is called: by the list, or by the item before.

    So are the value of an option in a command line, and the second one of a pair.
    """
    is_pair, before = len(items) == 2, ""
    for item in items:
        yield (before or name), item
        before = ""
        if not isinstance(item, str) or len(item) > _LONGEST_NAME:
            continue
        if item.startswith("-") or (is_pair and item.isidentifier()):
            before = item.lstrip("-")


def _own_name(value: Any, name: str) -> str:
    """What the `value` of a dict is called: as its `name` or `key` says, else as the dict is."""
    given = value.get("name") or value.get("key")
    return given if isinstance(given, str) and len(given) <= _LONGEST_NAME else name


def _masked(value: Any, redact: Callable[[str], str], name: str = "") -> Any:
    if isinstance(value, str):
        return _named(name, value, redact) if name else _mask(value, redact)
    if isinstance(value, list):
        return [_masked(item, redact, label) for label, item in _labelled(value, name)]
    if isinstance(value, dict):
        own = _own_name(value, name)
        return {
            _mask(key, redact): _masked(item, redact, (own or key) if key == "value" else key)
            for key, item in value.items()
        }
    return value


def _named(name: str, text: str, redact: Callable[[str], str]) -> str:
    """`text` redacted as the value of `name`."""
    masked, prefix = _mask(f"{name}={text}", redact), f"{name}="
    return masked[len(prefix) :] if masked.startswith(prefix) else _mask(text, redact)


def _mask(text: str, redact: Callable[[str], str]) -> str:
    try:
        return redact(text)
    except Exception:
        return _FAULT


def message_of(error: BaseException) -> str:
    """An exception with its type, on however many lines it has. Never raises."""
    try:
        message = str(error)
    except Exception:
        message = "unprintable"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _text(value: Any) -> str:
    try:
        if isinstance(value, (bytes, bytearray)):
            return bytes(value).decode("utf-8", "backslashreplace")
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__}, unprintable: {type(error).__name__}>"


def _plain(value: Any, above: set[int]) -> Any:
    """`value` as JSON can hold it: other things as their text, what holds itself cut off."""
    if isinstance(value, int) and value.bit_length() > _LARGEST:
        return hex(value)  # Python refuses to write such a number in decimal digits
    if value is None or isinstance(value, (int, float)):
        return value
    if not isinstance(value, (dict, list, tuple, set, frozenset)):
        return _text(value)
    if id(value) in above or len(above) > _DEEPEST:
        return "..."
    above.add(id(value))
    try:
        if isinstance(value, dict):
            return {_text(key): _plain(item, above) for key, item in list(value.items())}
        return [_plain(item, above) for item in list(value)]
    except Exception as error:
        return f"<{type(value).__name__}, unprintable: {type(error).__name__}>"
    finally:
        above.discard(id(value))


def _shortened(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return _cut(value, limit) if len(value) > limit else value
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(value.get("base64"), str):
            return {"base64": _shortened_base64(value["base64"], limit)}
        return {key: _shortened(item, limit) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shortened(item, limit) for item in value]
    return value


def _shortened_base64(text: str, limit: int) -> str:
    """Bytes in base64, cut as bytes, so that what is left can be read."""
    import base64
    import hashlib

    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return _shortened(text, limit)  # type: ignore[no-any-return]
    if len(data) <= limit:
        return text
    head, tail = data[: limit // 2], data[len(data) - limit // 2 :]
    omitted = len(data) - len(head) - len(tail)
    digest = hashlib.sha256(data).hexdigest()
    line = CUT.format(omitted=omitted, length=len(data), digest=digest).encode()
    return base64.b64encode(head + line + tail).decode("ascii")


def _cut(text: str, limit: int) -> str:
    import hashlib

    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    head, tail = text[: limit // 2], text[len(text) - limit // 2 :]
    omitted = len(text) - len(head) - len(tail)
    return head + CUT.format(omitted=omitted, length=len(text), digest=digest) + tail
