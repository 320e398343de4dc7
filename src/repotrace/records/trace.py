"""`Trace`: a command run as a list of events, and the way into and out of a report.

The published report schema keeps what a command printed in `metadata.events`. Newer facts
stand beside it in `metadata.command_run`, without the text that the events already hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import Field, ValidationError

from repotrace.errors import NoCommand
from repotrace.records.base import OsText, Record, printable
from repotrace.records.bug import SCHEMA_VERSION, BugReport, TraceEvent
from repotrace.records.command import Chunk, CommandRun, Output, Termination

STREAMS = ("stdout", "stderr")


class Trace(Record):
    """Everything observed for one captured command, in order."""

    command: list[OsText] = Field(default_factory=list, description="Argv of the command")
    cwd: OsText = Field(default="", description="Working directory of the command")
    exit_code: int | None = Field(
        default=None, description="As subprocess has it: -N for signal N, None if it never ended"
    )
    events: list[TraceEvent] = Field(default_factory=list, description="In order of arrival")
    environment: dict[str, Any] = Field(default_factory=dict, description="Facts of the host")
    run: CommandRun | None = Field(default=None, description="The same execution as a record")

    @classmethod
    def start(
        cls,
        command: list[str],
        cwd: str = "",
        *,
        now: datetime | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> Trace:
        """A trace that holds nothing but its opening `command` event."""
        trace = cls(command=list(command), cwd=str(cwd), environment=dict(environment or {}))
        argv = [printable(part) for part in command]
        return trace.add("command", " ".join(argv), data={"argv": argv}, now=now)

    def add(
        self,
        kind: str,
        message: str,
        data: dict[str, Any] | None = None,
        *,
        now: datetime | None = None,
    ) -> Trace:
        """A copy with one more event at the end."""
        event = TraceEvent(
            index=len(self.events),
            kind=kind,
            message=message,
            timestamp=now or datetime.now(UTC),
            data=data or {},
        )
        return self.model_copy(update={"events": [*self.events, event]})

    def of_kind(self, kind: str) -> list[TraceEvent]:
        """The events of one kind, in order."""
        return [event for event in self.events if event.kind == kind]


def trace_of(run: CommandRun, environment: Mapping[str, Any] | None = None) -> Trace:
    """`run` as a trace."""
    return Trace(
        command=list(run.argv) if run.script is None else [run.script],
        cwd=run.cwd,
        exit_code=run.returncode,
        events=events_of(run),
        environment=dict(environment or {}),
        run=run,
    )


def command_line(run: CommandRun) -> str:
    """The command as one line: the script of a shell, else argv joined by spaces."""
    return printable(run.script if run.script is not None else " ".join(run.argv))


def events_of(run: CommandRun) -> list[TraceEvent]:
    """The events `command`, `stdout`/`stderr`/`cut` in order of arrival, and `exit`."""
    start = run.started_at or datetime.fromtimestamp(0, UTC)
    events: list[TraceEvent] = []

    def add(kind: str, message: str, seconds: float, **data: Any) -> None:
        events.append(
            TraceEvent(
                index=len(events),
                kind=kind,
                message=message,
                timestamp=start + timedelta(seconds=seconds),
                data=data,
            )
        )

    opening: dict[str, Any] = {"argv": [printable(part) for part in run.argv]}
    if run.script is not None:
        opening = {"script": printable(run.script)}
    add("command", command_line(run), 0.0, **opening)
    for chunk, text in _texts(run):
        if chunk.stream == "cut":
            add("cut", text, chunk.seconds)
        else:
            add(chunk.stream, text, chunk.seconds)
    end = run.duration or 0.0
    if run.termination in (Termination.EXITED, Termination.SIGNALED):
        add("exit", run.ending, end, exit_code=run.returncode)
    else:
        add("error", run.ending, end, termination=run.termination.value)
    return events


def _texts(run: CommandRun) -> Iterable[tuple[Chunk, str]]:
    """Each stretch of output with its text; streams without chunks come whole."""
    known = {chunk.stream for chunk in run.chunks}
    chunks = list(run.chunks)
    for stream in STREAMS:
        output = _stream(run, stream)
        kept = len(output.head) + len(output.tail)
        if stream not in known and kept:
            chunks.append(Chunk(stream=stream, start=0, end=kept, seconds=run.duration or 0.0))
    done = dict.fromkeys(STREAMS, 0)
    last = {chunk.stream: index for index, chunk in enumerate(chunks)}
    for index, chunk in enumerate(chunks):
        output = _stream(run, chunk.stream)
        data = output.head + output.tail
        end = len(data) if last[chunk.stream] == index else _character_end(data, chunk.end)
        yield from _split_at_cut(chunk, output, data, done[chunk.stream], end)
        done[chunk.stream] = max(done[chunk.stream], end)


def _split_at_cut(
    chunk: Chunk, output: Output, data: bytes, start: int, end: int
) -> Iterable[tuple[Chunk, str]]:
    middle = len(output.head)
    if output.cut and start <= middle < end:
        pieces = [(start, middle), (middle, end)]
    else:
        pieces = [(start, end)]
    for begin, stop in pieces:
        if output.cut and begin == middle:
            marker = chunk.model_copy(update={"stream": "cut"})
            yield marker, f"[... {output.omitted} bytes of {chunk.stream} omitted ...]"
        if stop > begin:
            yield chunk, data[begin:stop].decode("utf-8", "replace")


def _character_end(data: bytes, offset: int) -> int:
    """`offset`, moved on to the end of the UTF-8 character that it would split."""
    while offset < len(data) and data[offset] & 0xC0 == 0x80:
        offset += 1
    return min(offset, len(data))


def _stream(run: CommandRun, stream: str) -> Output:
    return run.stdout if stream == "stdout" else run.stderr


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def metadata_of(trace: Trace) -> dict[str, Any]:
    """What a report keeps under `metadata` for `trace`; `command_run_of` reads it back."""
    run = trace.run
    metadata: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "exit_code": trace.exit_code,
        "cwd": printable(trace.cwd),
        "environment": trace.environment,
    }
    if run is not None:
        kept = run.model_dump(mode="json", exclude_defaults=True)
        kept.pop("chunks", None)
        for stream in STREAMS:
            output = _stream(run, stream)
            if stream in kept and _is_text(output.head) and _is_text(output.tail):
                kept[stream].pop("head", None)
                kept[stream].pop("tail", None)
        metadata["command_run"] = kept
    metadata["events"] = [event.model_dump(mode="json") for event in trace.events]
    return metadata


def command_run_of(report: BugReport) -> CommandRun:
    """The command of `report` as it ran, also for a report that 0.1.0 wrote.

    Raises NoCommand if the report holds no command.
    """
    events = [event for event in _list(report.metadata.get("events")) if isinstance(event, dict)]
    kept = report.metadata.get("command_run")
    try:
        run = (
            _from_record(kept, events)
            if isinstance(kept, dict)
            else _from_events(report.metadata, events)
        )
    except (ValidationError, ValueError, TypeError, OverflowError) as error:
        raise NoCommand(
            f"Report {report.id} holds no usable command.",
            hint="Capture the command again with: repotrace capture COMMAND…",
        ) from error
    if not run.argv and run.script is None:
        raise NoCommand(
            f"Report {report.id} holds no command.",
            hint="Capture it with: repotrace capture COMMAND…",
        )
    return run


def run_of_trace(trace: Trace) -> CommandRun:
    """The command run of a trace, also of one that was put together by hand."""
    if trace.run is not None:
        return trace.run
    metadata = {"cwd": trace.cwd, "exit_code": trace.exit_code, "command": trace.command}
    return _from_events(metadata, [event.model_dump(mode="json") for event in trace.events])


def _from_record(kept: dict[str, Any], events: list[dict[str, Any]]) -> CommandRun:
    fields = dict(kept)
    from_events: list[str] = []
    for stream in STREAMS:
        output = dict(fields.get(stream) or {})
        if output and "head" not in output and "tail" not in output:
            head, tail = _text_of(events, stream)
            fields[stream] = output | {"head": head, "tail": tail}
            from_events.append(stream)
    started = _time(fields.get("started_at"))
    fields["chunks"] = list(_chunks(events, from_events, started))
    return CommandRun.model_validate(fields)


def _text_of(events: Iterable[dict[str, Any]], stream: str) -> tuple[bytes, bytes]:
    """Head and tail of one stream; the event that marks the cut stands between them."""
    parts: tuple[list[str], list[str]] = ([], [])
    after = 0
    for event in events:
        if event.get("kind") == "cut" and f" of {stream} omitted" in str(event.get("message")):
            after = 1
        elif event.get("kind") == stream:
            parts[after].append(str(event.get("message", "")))
    head, tail = ("".join(part).encode("utf-8", "surrogateescape") for part in parts)
    return head, tail


def _chunks(
    events: Iterable[dict[str, Any]], streams: Iterable[str], started: datetime | None
) -> Iterable[Chunk]:
    offsets = dict.fromkeys(streams, 0)
    for event in events:
        stream = str(event.get("kind"))
        if stream not in offsets:
            continue
        start = offsets[stream]
        offsets[stream] += len(str(event.get("message", "")).encode("utf-8", "surrogateescape"))
        when = _time(event.get("timestamp"))
        seconds = (when - started).total_seconds() if when and started else 0.0
        yield Chunk(stream=stream, start=start, end=offsets[stream], seconds=seconds)


def _from_events(metadata: Mapping[str, Any], events: list[dict[str, Any]]) -> CommandRun:
    code = metadata.get("exit_code")
    if code is not None and not isinstance(code, int):
        raise ValueError("exit_code is no integer")
    streams = {}
    for stream in STREAMS:
        head, tail = _text_of(events, stream)
        streams[stream] = Output.of(head + tail)
    signaled = code is not None and code < 0
    ending = Termination.SIGNALED if signaled else Termination.EXITED
    return CommandRun(
        argv=tuple(_argv(metadata, events)),
        cwd=str(metadata.get("cwd") or ""),
        termination=Termination.TIMEOUT if code is None else ending,
        exit_code=None if signaled else code,
        signal=-code if signaled and code is not None else None,
        stdout=streams["stdout"],
        stderr=streams["stderr"],
        started_at=_time(events[0].get("timestamp")) if events else None,
    )


def _argv(metadata: Mapping[str, Any], events: Iterable[dict[str, Any]]) -> list[str]:
    """An explicit `command` wins; else the argv of the first `command` event, else its words."""
    explicit = metadata.get("command")
    if isinstance(explicit, list) and explicit:
        return [str(part) for part in explicit]
    for event in events:
        if event.get("kind") != "command":
            continue
        data = event.get("data")
        argv = data.get("argv") if isinstance(data, dict) else None
        if isinstance(argv, list) and argv:
            return [str(part) for part in argv]
        return str(event.get("message", "")).split()
    return []


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _time(value: object) -> datetime | None:
    if not isinstance(value, str):
        return value if isinstance(value, datetime) else None
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)
