"""A plug-in of pytest that tells a recorded run what came of each test.

Inert unless `REPOTRACE_JOURNAL` and `REPOTRACE_RUN` are set. Then each outcome is appended to a
file of its own in that folder, in the words of `records/events.py`, as soon as pytest has it. The
texts are not redacted here; they are marked `raw`, and the reader does it. A test that passes is
one event; setup and teardown are told only when they did not pass.

This one file needs the standard library alone, runs on Python 3.8 and pytest 6, and is also put
into environments without RepoTrace (`system/plugin_environment.py`). Whatever goes wrong in it is
counted and never reaches the tests, nor what pytest prints.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import shlex
import threading
import time
import weakref
from typing import Any, Iterator  # noqa: UP035 - for the older Pythons, too

TEXT_LIMIT = 1 << 20
"""Characters of a failure text above which its middle is left out."""

MESSAGE_LIMIT = 2_000
"""Characters of the one line that says why."""

_CUT = "\n[... {omitted} of {length} characters omitted, sha256 {digest} ...]\n"
_RECORDER = "repotrace-recorder"
_STRAY = "repotrace_outcomes"
"""The name of this module where RepoTrace is not installed."""

_VARIABLES = (
    *("REPOTRACE_JOURNAL", "REPOTRACE_RUN", "REPOTRACE_STEP", "REPOTRACE_COMMAND"),
    "REPOTRACE_RECORDER",
)
_WORST = {"failed", "error", "rerun"}

_SECRET_NAME = re.compile(
    r"(?i)(pass(word|wd|phrase|code)s?|secrets?|tokens?|credentials?|cookie|jwt|pwd"
    r"|(access|account|api|app|auth|deploy|encryption|master|private|secret|service|signing)_?key)$"
)
"""Of variables whose values are masked here: whoever reads the journal may not have them."""
_SHORTEST_SECRET = 8


def pytest_configure(config: Any) -> None:
    """Begin to record, unless nothing is recorded, or another one of us, or pytest, does it."""
    try:
        _hide(config)
        if not _wanted(config, os.environ):
            return
        config.pluginmanager.register(Recorder(config, os.environ), _RECORDER)
    except Exception:
        return


def _wanted(config: Any, environ: Any) -> bool:
    if not (environ.get("REPOTRACE_JOURNAL") and environ.get("REPOTRACE_RUN")):
        return False
    if hasattr(config, "workerinput"):  # pytest-xdist: the controller hears of every test
        return False
    if environ.get("PYTEST_CURRENT_TEST"):  # a test runs pytest; its outcomes are the test's own
        return False
    return not config.pluginmanager.has_plugin(_RECORDER)


def _hide(config: Any) -> None:
    """Take what was put in from outside off the list of plug-ins in pytest's header."""
    listed = getattr(config.pluginmanager, "_plugin_distinfo", None)
    if __name__ == _STRAY and isinstance(listed, list):
        listed[:] = [pair for pair in listed if getattr(pair[0], "__name__", "") != _STRAY]


class Recorder:
    """The hooks of one session of pytest."""

    def __init__(self, config: Any, environ: Any) -> None:
        self._config = config
        self._writer = _Writer(environ["REPOTRACE_JOURNAL"], environ["REPOTRACE_RUN"])
        self._about = {"origin": "plugin", "runner": "pytest"}
        for name, variable in (("step_id", "REPOTRACE_STEP"), ("command_id", "REPOTRACE_COMMAND")):
            if environ.get(variable):
                self._about[name] = environ[variable]
        self._step = None
        if environ.get("REPOTRACE_RECORDER") and "step_id" not in self._about:
            self._step = _Step(self._writer, config)
            self._about.update(step_id=self._step.id, command_id=self._step.id)
        self._subtests: dict[str, dict[str, int]] = {}
        self._collected: set[tuple[str, str]] = set()
        self._end: dict[str, Any] = {"runner": "pytest"}
        # Tests find what they would find if nothing were recorded: what they start, pytest
        # perhaps, is no part of the run.
        self._taken = {name: environ.pop(name) for name in _VARIABLES if name in environ}

    def pytest_sessionstart(self, session: Any) -> None:
        """The folder learns that pytest is at work, even if no test runs."""
        self._writer.open()
        if self._step is not None:
            self._step.begin()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A phase of a test is over."""
        try:
            outcome = _outcome(report)
            if outcome is not None:
                self._tell(report, self._node_id(report), _phase(report), outcome)
            if report.when == "teardown":
                self._subtests.pop(report.nodeid, None)
        except Exception:
            self._writer.lose()

    def pytest_collectreport(self, report: Any) -> None:
        """A file could not be collected, or was skipped whole. Each worker of xdist says it."""
        try:
            if report.passed:
                return
            outcome = "skipped" if report.skipped else "error"
            node_id = report.nodeid or "."
            if (node_id, outcome) not in self._collected:
                self._collected.add((node_id, outcome))
                self._tell(report, node_id, "collect", outcome)
        except Exception:
            self._writer.lose()

    def pytest_sessionfinish(self, session: Any, exitstatus: Any) -> None:
        """No further test runs."""
        try:
            self._end["exit_status"] = int(exitstatus)
            stopped = getattr(session, "shouldstop", False) or getattr(session, "shouldfail", False)
            self._end["stopped"] = bool(stopped)
            self._end["collected"] = int(getattr(session, "testscollected", 0))
        except Exception:
            return

    def pytest_unconfigure(self) -> None:
        """Nothing follows."""
        for name, value in self._taken.items():
            os.environ.setdefault(name, value)
        if self._step is not None:
            self._step.end(self._end.get("exit_status"))
        self._writer.close(self._end)

    def _tell(self, report: Any, node_id: str, phase: str, outcome: str) -> None:
        data: dict[str, Any] = dict(self._about)
        data.update(node_id=node_id, phase=phase, outcome=outcome)
        duration = getattr(report, "duration", None)
        if isinstance(duration, (int, float)):
            data["duration"] = duration
        attempt = getattr(report, "rerun", None)  # pytest-rerunfailures counts from 0
        if isinstance(attempt, int) and attempt > 0:
            data["attempt"] = attempt + 1
        message = _message(report)
        if message:
            data["message"] = message
        if outcome in _WORST:
            data["details"] = self._details(report)
        stop = getattr(report, "stop", None)
        ended = int(stop * 1e9) if isinstance(stop, float) and stop > 0 else time.time_ns()
        self._writer.write("test", data, ended)

    def _node_id(self, report: Any) -> str:
        """pytest's id; that of a subtest goes on as unittest would print it."""
        node_id: str = report.nodeid
        context = getattr(report, "context", None)
        if context is None or not hasattr(context, "kwargs"):
            return node_id
        parts = [] if context.msg is None else ["[%s]" % context.msg]  # noqa: UP031
        if context.kwargs:
            parts.append("(%s)" % ", ".join(_arguments(report)))  # noqa: UP031
        name = " ".join(parts) or "(<subtest>)"
        seen = self._subtests.setdefault(node_id, {})
        seen[name] = seen.get(name, 0) + 1
        again = f" #{seen[name]}" if seen[name] > 1 else ""
        return f"{node_id} {name}{again}"

    def _details(self, report: Any) -> str:
        parts = [_longrepr(report)]
        shown = getattr(self._config.option, "showcapture", "all")
        for title, content in getattr(report, "sections", ()):
            if content and shown != "no" and (shown == "all" or shown in title):
                parts.append(f"{title:-^80}\n{content}")
        return _cut(_masked("\n".join(part.rstrip("\n") for part in parts)))


class _Step:
    """This session as a step and a command of its own, where who records cannot see commands."""

    def __init__(self, writer: _Writer, config: Any) -> None:
        self.id = writer.new_id(time.time_ns())
        self._writer = writer
        self._started = 0
        params = getattr(config, "invocation_params", None)
        self._argv = ["pytest", *(str(word) for word in getattr(params, "args", ()))]
        self._cwd = str(getattr(params, "dir", "") or os.getcwd())  # noqa: PTH109

    def begin(self) -> None:
        self._started = time.time_ns()
        step = {
            "id": self.id,
            "source": "pytest",
            "external_id": self.id,
            "step_type": "test",
            "description": shlex.join(self._argv)[:200],
        }
        self._writer.write("step_started", step, self._started)

    def end(self, code: Any) -> None:
        if not self._started:
            return
        ended = time.time_ns()
        command = {"argv": self._argv, "cwd": self._cwd, "exit_code": code}
        command["duration"] = (ended - self._started) / 1e9
        about = {"id": self.id, "step_id": self.id, "command": command, "is_test": True}
        self._writer.write("command", about, self._started)
        status = {} if code in (0, None) else {"status": "failed", "error": f"exit code {code}"}
        self._writer.write("step_ended", {"id": self.id, **status}, ended)


# --- What a report says ---------------------------------------------------------------------


def _phase(report: Any) -> str:
    return report.when if report.when in ("setup", "call", "teardown") else "call"


def _outcome(report: Any) -> str | None:
    """A `TestResult`; None for what needs no telling."""
    expected = hasattr(report, "wasxfail")
    if report.outcome == "passed":
        if report.when != "call":
            return None
        return "xpassed" if expected else "passed"
    if report.outcome == "skipped":
        return "xfailed" if expected else "skipped"
    if report.outcome == "failed" and report.when in ("setup", "teardown"):
        return "error"
    return str(report.outcome)


def _message(report: Any) -> str:
    """Why, on one line."""
    longrepr = report.longrepr
    if hasattr(report, "wasxfail"):
        text = str(report.wasxfail)
        text = text[8:] if text.startswith("reason: ") else text
    elif isinstance(longrepr, tuple) and len(longrepr) == 3:
        text = str(longrepr[2])
        text = text[9:] if text.startswith("Skipped: ") else text
    elif getattr(longrepr, "reprcrash", None) is not None:
        text = str(longrepr.reprcrash.message)
    elif report.outcome == "passed" or longrepr is None:
        text = ""
    else:
        lines = _longrepr(report).splitlines()
        if lines and hasattr(report, "node") and lines[0].startswith("[gw"):
            del lines[0]  # xdist says which worker it was
        marked = [line[1:].strip() for line in lines if line.startswith("E  ")]
        text = marked[-1] if marked else next((line for line in lines if line.strip()), "")
    first = _masked(next((line.strip() for line in text.splitlines() if line.strip()), ""))
    return first if len(first) <= MESSAGE_LIMIT else first[: MESSAGE_LIMIT - 3] + "..."


def _longrepr(report: Any) -> str:
    try:
        return str(report.longreprtext)
    except Exception as error:
        return f"<the failure cannot be shown: {type(error).__name__}>"


def _arguments(report: Any) -> Iterator[str]:
    """`i=1` for each argument of a subtest, as pytest prints it."""
    given = report.context.kwargs
    if not type(report).__module__.startswith("_pytest."):  # pytest-subtests
        for name in sorted(given):
            yield f"{name}={_shown(given[name])}"
        return
    for name, shown in given.items():  # since pytest 9 the values are texts of values
        if hasattr(report, "node"):  # and xdist makes texts of the texts
            try:
                inner = ast.literal_eval(shown)
            except (ValueError, SyntaxError):
                inner = None
            shown = inner if isinstance(inner, str) else shown
        yield f"{name}={shown}"


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__}, unprintable: {type(error).__name__}>"


def _masked(text: str) -> str:
    """`text` without the values of secret variables; other secrets are the reader's to find."""
    for name, value in list(os.environ.items()):
        if len(value) < _SHORTEST_SECRET or not _SECRET_NAME.search(name):
            continue
        for form in {value, repr(value)[1:-1]}:
            # A path to a file with secrets is none.
            if form in text and not os.path.exists(value):  # noqa: PTH110
                shown = re.sub("[^A-Za-z0-9_]", "_", name)
                text = text.replace(form, "[REDACTED:env-%s]" % shown)  # noqa: UP031
    return text


def _cut(text: str) -> str:
    """Head and tail of a long text, whole lines if they are not too long."""
    if len(text) <= TEXT_LIMIT:
        return text
    import hashlib

    half = TEXT_LIMIT // 2
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    head, tail = text[:half], text[len(text) - half :]
    # A secret that is cut in two would not be recognised by who redacts it.
    end, start = head.rfind("\n", half // 2), tail.find("\n", 0, half // 2)
    head = head[:end] if end >= 0 else head
    tail = tail[start + 1 :] if start >= 0 else tail
    omitted = len(text) - len(head) - len(tail)
    return head + _CUT.format(omitted=omitted, length=len(text), digest=digest) + tail


# --- Writing --------------------------------------------------------------------------------


class _Writer:
    """One journal file, as `journal.Journal` writes it. Never raises; counts what it loses."""

    def __init__(self, folder: str, run: str) -> None:
        self._folder = folder
        self._run = run
        self._descriptor = -1
        self._torn = False
        self._lost = 0
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._random = os.urandom(5).hex()
        self._count = itertools.count(int.from_bytes(os.urandom(2), "big"))
        _writers.add(self)

    def open(self) -> None:
        """Begin the file."""
        with self._lock:
            self._ready()

    def write(self, kind: str, data: dict[str, Any], moment: int) -> None:
        """Append one event in one write."""
        with self._lock:
            if not self._ready():
                self._lost += 1
                return
            try:
                if self._lost:
                    self._tell_of_losses()
                self._put(kind, data, moment, raw=True)
            except Exception:
                self._lost += 1

    def lose(self) -> None:
        """An event could not be made."""
        with self._lock:
            self._lost += 1

    def close(self, data: dict[str, Any]) -> None:
        """Say that nothing follows."""
        with self._lock:
            if self._descriptor < 0 or self._process != os.getpid():
                return
            try:
                if self._lost:
                    self._tell_of_losses()
                self._put("closed", data, time.time_ns())
            except Exception:
                self._lost += 1
            self.shut()

    def shut(self) -> None:
        """Let go of the file, and with it of the lock."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError:
                return

    def after_fork(self) -> None:
        """A child writes nothing, and may not seem to be the writer."""
        self._lock = threading.RLock()
        self.shut()

    def _tell_of_losses(self) -> None:
        reason = "test outcomes could not be written"
        self._put("lost", {"count": self._lost, "reason": reason}, time.time_ns())
        self._lost = 0

    def _ready(self) -> bool:
        if self._process != os.getpid():
            return False
        if self._descriptor >= 0:
            return True
        try:
            self._begin()
        except Exception:
            self.shut()
        return self._descriptor >= 0

    def _begin(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        for _ in range(20):
            name = f"{os.getpid()}-{os.urandom(6).hex()}.jsonl"
            descriptor = os.open(os.path.join(self._folder, name), flags, 0o600)  # noqa: PTH118
            # A reader that saw the empty file first may have removed it.
            if _share_lock(descriptor) and os.fstat(descriptor).st_nlink:
                break
            os.close(descriptor)
        else:
            return
        self._descriptor, self._torn = descriptor, False
        try:
            self._put("writer", _facts(), time.time_ns())
        except OSError:  # the disk is full; it may not stay so
            return

    def _put(self, kind: str, data: dict[str, Any], moment: int, *, raw: bool = False) -> None:
        event: dict[str, Any] = {"id": self.new_id(moment), "kind": kind, "time": moment}
        if kind not in ("writer", "closed"):
            event["run"] = self._run
        if raw:
            event["raw"] = True
        event["data"] = data
        line = json.dumps(event, separators=(",", ":")).encode("ascii") + b"\n"
        if self._torn:
            line = b"\n" + line
        written = os.write(self._descriptor, line)
        self._torn = written < len(line)
        if self._torn:
            raise OSError(28, "No space left on device")

    def new_id(self, moment: int) -> str:
        """An id that no other process makes; it sorts by time."""
        count = next(self._count) & 0xFFFFFFFF
        return "%014x%s%08x" % (max(moment, 0) // 1000, self._random, count)  # noqa: UP031


_writers: weakref.WeakSet[_Writer] = weakref.WeakSet()


def _after_fork() -> None:
    for writer in list(_writers):
        writer.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _share_lock(descriptor: int) -> bool:
    """Show that the writer of a file lives. True as well where there are no locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return True
    return True


def _facts() -> dict[str, Any]:
    """What a reader needs to find out whether this process is still alive."""
    facts: dict[str, Any] = {"pid": os.getpid()}
    try:
        with open("/proc/self/stat", "rb") as file:
            facts["pid_started"] = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/sys/kernel/random/boot_id") as text:
            facts["boot"] = text.read().strip()
        facts["pid_namespace"] = os.readlink("/proc/self/ns/pid")  # noqa: PTH115
    except (OSError, ValueError, IndexError):
        return facts
    return facts
