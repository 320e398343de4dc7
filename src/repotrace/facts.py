"""What is worth telling about a command run, as short lines of plain text."""

from __future__ import annotations

import errno
import re
import shlex
from collections import Counter

from repotrace.readable import one_line, seconds, size
from repotrace.records.command import CommandRun, Output, Signature, Termination
from repotrace.records.trace import STREAMS
from repotrace.redact import PLACEHOLDER

_SHELL_ONLY = frozenset({".", "alias", "cd", "eval", "exec", "export", "set", "source", "ulimit"})


def facts_of(run: CommandRun) -> list[tuple[str, str]]:
    """Name and value of each fact of `run` that is known and not what one expects anyway."""
    streams = {stream: getattr(run, stream) for stream in STREAMS}
    candidates = [
        ("ended", "" if run.termination is Termination.EXITED else one_line(run.ending)),
        ("duration", _duration(run)),
        ("failure", failure(run.signature) if run.signature else ""),
        ("program", one_line(run.resolved or "")),
        ("repository", _repository(run)),
        ("files", _files(run)),
        ("time limit", f"{run.timeout:g} s" if run.timeout else ""),
        ("standard input", _standard_input(run)),
        ("terminal", "yes" if run.pty else ""),
        ("stderr", "merged into stdout" if run.merge else ""),
        *((f"{name} cut", _cut(output)) for name, output in streams.items() if output.cut),
        ("redacted", _redacted(run)),
        ("set by RepoTrace", ", ".join(run.env_added)),
        ("left behind", _leftovers(run)),
    ]
    return [(name, value) for name, value in candidates if value]


def ending(run: CommandRun) -> str:
    """How `run` ended and after how long: `exit code 7 after 0.03 s`."""
    text = one_line(run.ending)
    timed = run.termination not in (Termination.TIMEOUT, Termination.SPAWN_ERROR)
    return f"{text} after {seconds(run.duration)}" if timed and run.duration is not None else text


def remedy(run: CommandRun) -> str:
    """What to type where `run` found no program since its line was meant for a shell; else ""."""
    if run.spawn_errno != errno.ENOENT or not run.argv or not run.argv[0].strip():
        return ""
    program, *arguments = run.argv
    if re.fullmatch(r"[A-Za-z_]\w*=.*", program, re.DOTALL) and arguments:
        return f"set variables before it: {one_line(program)} repotrace capture …"
    if program in _SHELL_ONLY or (not arguments and re.search(r"[\s|&;<>$*]", program)):
        line = program if not arguments else shlex.join(run.argv)
        return (
            f"a line for the shell takes: repotrace capture --shell {shlex.quote(one_line(line))}"
        )
    return ""


def failure(signature: Signature) -> str:
    """The failure in one line: `ValueError: too big in app.py::load`.

    Empty if the signature says no more than the way of ending does.
    """
    if not signature.typed or signature.kind in ("signal", "timeout", "spawn_error"):
        return ""
    what = ": ".join(part for part in (signature.exception, signature.message) if part)
    where = f" in {signature.frame}" if what and signature.frame else ""
    tests = signature.failing_tests
    shown = ", ".join(tests[:5]) + (f" and {len(tests) - 5} more" if len(tests) > 5 else "")
    parts = [f"{what}{where}", f"failing: {shown}" if tests else ""]
    return one_line("; ".join(part for part in parts if part))


def _duration(run: CommandRun) -> str:
    if run.duration is None:
        return ""
    parts = [seconds(run.duration)]
    if run.cpu_time is not None:
        parts.append(f"CPU {seconds(run.cpu_time)}")
    if run.max_rss:
        parts.append(f"at most {size(run.max_rss)} of memory")
    return "; ".join(parts)


def _repository(run: CommandRun) -> str:
    state = run.repository
    if state is None:
        return ""
    parts = [f"commit {state.commit[:12]}" if state.commit else "no commit yet"]
    parts.append(f"on {one_line(state.branch)}" if state.branch else "on no branch")
    if run.cwd_in_repository not in (None, "", "."):
        parts.append(f"in {one_line(run.cwd_in_repository)}")
    return " ".join(parts) + (", with uncommitted changes" if state.dirty else "")


def _files(run: CommandRun) -> str:
    files = run.files
    if files is None:
        return ""
    if files.state_id is None:
        return one_line(f"not kept: {files.reason}")
    text = f"state {files.state_id[:12]}"
    count = files.not_captured_count
    if not count:
        return text
    some = ", ".join(f"{item.path} ({item.reason})" for item in files.not_captured[:5])
    more = f" and {count - 5} more" if count > 5 else ""
    return one_line(f"{text}, without {some}{more}")


def _standard_input(run: CommandRun) -> str:
    match run.stdin_kind:
        case "terminal":
            return "a terminal"
        case "cut":
            return "too long to be recorded"
        case _:
            return "" if run.stdin is None else f"{size(len(run.stdin))}, recorded"


def _cut(output: Output) -> str:
    return f"{size(output.omitted)} in the middle of {size(output.length)} not kept"


def _redacted(run: CommandRun) -> str:
    texts = [*run.argv, run.script or "", *run.env.values(), run.stdout.text, run.stderr.text]
    found = Counter(match[1] for text in texts for match in PLACEHOLDER.finditer(text))
    rules = [f"{rule} ({count} times)" if count > 1 else rule for rule, count in found.items()]
    names = [name for name in run.env_redacted if f"env-{name}" not in found]
    return one_line(", ".join([*rules, *(f"env-{name}" for name in names)]))


def _leftovers(run: CommandRun) -> str:
    parts = []
    if run.leftovers:
        count = len(run.leftovers)
        parts.append("1 process" if count == 1 else f"{count} processes")
    if run.pipe_held_open:
        parts.append("a process that held the output open")
    return "; ".join(parts)
