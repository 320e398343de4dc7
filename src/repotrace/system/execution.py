"""Run a command and keep it as one `CommandRun`, redacted and with its signature."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from repotrace.config import find_repository
from repotrace.records.command import (
    Chunk,
    CommandRun,
    CommandSpec,
    Output,
    Places,
    RepositoryState,
)
from repotrace.redact import Redactor, is_secret_name
from repotrace.system import process, surroundings
from repotrace.system.git import repository_state
from repotrace.system.masking import redact_terminal_output
from repotrace.system.relocate import mask_path_list

type OnOutput = Callable[[str, bytes], None]
"""Called with `stdout` or `stderr` and the raw bytes as they arrive."""


def execute(
    spec: CommandSpec,
    *,
    redactor: Redactor,
    limit: int,
    on_output: OnOutput | None = None,
    kept: Collection[str] = (),
    added: Collection[str] = (),
    with_repository: bool = False,
    with_signature: bool = True,
) -> CommandRun:
    """Run `spec` to its end and return what happened.

    `limit`: bytes of each stream that are kept, half of them from the end where it is cut.
    `kept`: names of variables to keep besides the usual ones. `added`: names that RepoTrace
    put into `spec.env` itself. `with_repository`: ask git for commit, branch and dirtiness,
    before the command starts. `with_signature`: read the failure out of the output; a comparison
    that needs it does so by itself.

    Raises RepoTraceError if `spec.cwd` is no folder or an argument cannot be passed at all.
    """
    found = find_repository(Path(spec.cwd))
    root = found.root if found else None
    repository = _repository(spec.cwd, redactor) if root and with_repository else None
    raw = process.run(spec, on_output=on_output, limit=limit)
    run = _record(spec, raw, root, redactor, limit, kept)
    run = run.model_copy(update={"env_added": tuple(added), "repository": repository})
    if not run.failed or not with_signature:
        return run
    # Late: what succeeds, as under `--only-failures`, need not pay for reading failures.
    from repotrace.signatures import signature_of

    return run.model_copy(update={"signature": signature_of(run)})


def _record(
    spec: CommandSpec,
    raw: process.RawRun,
    root: Path | None,
    redactor: Redactor,
    limit: int,
    kept: Collection[str],
) -> CommandRun:
    """`raw`, which came of `spec` in the work tree `root`, without secrets."""

    redactor = redactor.knowing(_telling(spec, raw, kept))

    def masked(text: str | None) -> str | None:
        return None if text is None else redactor.redact(text)

    places = surroundings.places_of(spec.cwd, spec.env, str(root) if root else None)
    places = Places(**{name: masked(path) for name, path in places})
    stdout, out_map = _redacted(raw.stdout, redactor, limit)
    stderr, err_map = _redacted(raw.stderr, redactor, limit)
    env, hidden = _kept_environment(spec.env, redactor, kept)
    if "PATH" in env:
        env["PATH"] = mask_path_list(env["PATH"], places)
    return CommandRun(
        argv=tuple(redactor.redact(part) for part in spec.argv),
        script=masked(spec.script),
        resolved=masked(raw.resolved),
        cwd=redactor.redact(spec.cwd),
        cwd_in_repository=masked(_relative(spec.cwd, root)) if root else None,
        stdin=None if raw.stdin_recorded is None else redactor.redact_bytes(raw.stdin_recorded)[0],
        stdin_kind=raw.stdin_kind,
        env=env,
        env_redacted=tuple(hidden),
        env_unset=tuple(n for n in surroundings.PINNED_WHEN_UNSET if n not in spec.env),
        timeout=spec.timeout,
        pty=spec.pty,
        merge=spec.merge,
        umask=_umask(),
        termination=raw.termination,
        exit_code=raw.exit_code,
        signal=raw.signal,
        error=masked(raw.error),
        spawn_errno=raw.spawn_errno,
        stdout=stdout,
        stderr=stderr,
        chunks=_chunks(raw, out_map, err_map),
        started_at=raw.started_at,
        duration=round(raw.duration, 6),
        cpu_time=None if raw.cpu_time is None else round(raw.cpu_time, 6),
        max_rss=raw.max_rss,
        pipe_held_open=raw.pipe_held_open,
        leftovers=tuple(raw.leftovers),
        places=places,
    )


def _redacted(
    raw: process.RawOutput, redactor: Redactor, limit: int
) -> tuple[Output, Callable[[int], int]]:
    """One stream without secrets, and where each offset of it went.

    The raw head and tail carry a margin beyond the cut, so that a secret which straddles the
    cut is seen whole; the margin goes after redacting.
    """
    if not raw.omitted and raw.length <= limit:
        data, offsets = redact_terminal_output(redactor, raw.head + raw.tail)
        return Output(head=data, length=raw.length), offsets
    half = limit // 2
    whole = raw.head + raw.tail if not raw.omitted else None
    head, head_map = redact_terminal_output(redactor, raw.head if whole is None else whole)
    head_end = head_map(min(half, len(raw.head)))
    if whole is None:
        tail, tail_map = redact_terminal_output(redactor, raw.tail)
        tail_start = tail_map(max(0, len(raw.tail) - half))
        tail = tail[tail_start:]
    else:
        tail = head[head_map(max(half, len(whole) - half)) :]
    kept_head = head[:head_end]
    omitted = raw.length - min(half, len(raw.head)) - min(half, raw.length - half)

    def place(offset: int) -> int:
        if offset <= half:
            return min(head_map(offset), len(kept_head))
        return len(kept_head) + max(0, len(tail) - max(0, raw.length - offset))

    output = Output(
        head=kept_head, tail=tail, omitted=omitted, length=raw.length, sha256=raw.sha256
    )
    return output, place


def _chunks(
    raw: process.RawRun, out_map: Callable[[int], int], err_map: Callable[[int], int]
) -> tuple[Chunk, ...]:
    """When each piece of the redacted streams came, without those that are wholly gone."""
    return tuple(
        Chunk(stream=stream, start=place(start), end=place(end), seconds=round(seconds, 6))
        for stream, start, end, seconds in raw.chunks
        for place in (out_map if stream == "stdout" else err_map,)
        if place(end) > place(start)
    )


def _repository(cwd: str, redactor: Redactor) -> RepositoryState | None:
    state = repository_state(Path(cwd))
    if state is None or state.branch is None:
        return state
    return state.model_copy(update={"branch": redactor.redact(state.branch)})


def _telling(spec: CommandSpec, raw: process.RawRun, kept: Collection[str]) -> Iterator[str]:
    """What went into the command, where secrets are told by what stands beside them."""
    yield from spec.argv
    for option, value in pairwise(spec.argv):
        if option.startswith("-"):
            yield f"{option} {value}"
    if spec.script is not None:
        yield spec.script
    yield from (spec.env[name] for name in kept if name in spec.env)
    if raw.stdin_recorded is not None:
        yield os.fsdecode(raw.stdin_recorded)


def _kept_environment(
    environ: Mapping[str, str], redactor: Redactor, extra: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """The variables a report keeps, and the names of those whose values look secret."""
    kept: dict[str, str] = {}
    hidden: list[str] = []
    for name in sorted(environ):
        value = environ[name]
        if surroundings.is_kept(name, extra):
            kept[name] = redactor.redact(value)
        if value and is_secret_name(name):
            hidden.append(name)
    return kept, hidden


def _relative(cwd: str, root: Path) -> str:
    return os.path.relpath(os.path.realpath(cwd), root)


def _umask() -> int | None:
    """Our umask, which the command inherits; read where that needs no change of it."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    return None
