"""What a span of the SDK costs, against opentelemetry-sdk, logfire and langfuse in the same rounds.

    .venv/bin/python benchmarks/sdk.py [--rounds 5] [--traces 2000] [--only ours]

The peers live in an environment of their own, by default `.cache/benchmark-peers`, which is made
and filled (`pip install opentelemetry-sdk logfire langfuse`) if it is not there. None of them
reaches the network: what would be sent goes to an exporter that drops it.

2,000 traces of 10 nested spans, each with other 512 bytes in and out, no states of files. Every
contender runs in a process of its own, one after another in each round. *caller* is the CPU of the
thread that runs the program, *total* that of the whole process until everything is handed over.
Ours is in the journal when the call returns; what the others hold back dies with the program.
langfuse masks nothing by itself, and in its version 5 leaves most of its work to the thread that
exports; version 3 did it in the caller.

To reach, by caller CPU: with redaction at most a half of logfire, which scrubs too, and a third of
langfuse; without redaction at most opentelemetry-sdk with a batch processor that exports nothing;
and of 20,000 spans none is missing after they were read in. Beside that: `span` outside of a
traced agent under 2 µs, and `import repotrace` with both names at most 20 ms over bare Python.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from measure import in_turn

PEERS = Path(__file__).parents[1] / ".cache" / "benchmark-peers"
PACKAGES = ("opentelemetry-sdk", "logfire", "langfuse")
SIZE = 512
SHAPE = (-1, 0, 1, 1, 0, 4, 4, 0, 7, 7)
"""The parent of each span of a trace, by its number."""
CHILDREN = [[n for n, above in enumerate(SHAPE) if above == at] for at in range(len(SHAPE))]

ENGLISH = dict(
    zip(
        "etaoinshrdlcumwfgypbvkjxqz",
        (
            127,
            91,
            82,
            75,
            70,
            67,
            63,
            61,
            60,
            43,
            40,
            28,
            28,
            24,
            24,
            22,
            20,
            20,
            19,
            15,
            10,
            8,
            2,
            2,
            1,
            1,
        ),
        strict=True,
    )
)
"""How often letters are in English texts, in thousandths."""

type Opener = Callable[[str, str], Any]
"""From the name and the input of a span to its context manager."""
type Closer = Callable[[Any, str], object]
"""Gives a span its output."""


# --- What is recorded ---------------------------------------------------------------------


def texts(number: int) -> list[str]:
    """Texts such as an agent reads and writes, of SIZE characters, no two alike.

    Their words are made up, so that nobody's memory of earlier texts helps.
    """
    chance = random.Random(7)
    letters, often = zip(*ENGLISH.items(), strict=True)
    words = ["".join(chance.choices(letters, often, k=chance.randint(2, 9))) for _ in range(20_000)]

    def name() -> str:
        return "_".join(chance.choices(words, k=chance.choice((1, 1, 2, 3))))

    def prose() -> str:
        return " ".join(chance.choices(words, k=100)).capitalize()

    def code() -> str:
        lines = (f"    {name()} = {name()}({name()}, {chance.random():.4}" for _ in range(20))
        return f"def {name()}({name()}):\n" + ")\n".join(lines)

    def arguments() -> str:
        return json.dumps({name(): f"src/{name()}.py" for _ in range(25)})

    def output() -> str:
        lines = (f"tests/test_{name()}.py::test_{name()} PASSED" for _ in range(12))
        return "\n".join(lines)

    kinds = (prose, prose, code, arguments, output)
    return [f"{number} {kinds[number % len(kinds)]():<{SIZE}}"[:SIZE] for number in range(number)]


def trace(given: list[str], base: int, opener: Opener, closer: Closer, number: int = 0) -> None:
    """One trace, or what of it is within its span `number`."""
    at = 2 * (base + number)
    with opener("write-patch", given[at]) as span:
        for child in CHILDREN[number]:
            trace(given, base, opener, closer, child)
        closer(span, given[at + 1])


# --- The contenders -----------------------------------------------------------------------

type Contender = Callable[[Path, Callable[[Opener, Closer], None]], Callable[[], int] | None]
"""Sets itself up, has the spans made, hands everything over. Gives what counts the spans that
were kept in the folder; None if it keeps none."""


def ours(
    folder: Path, make: Callable[[Opener, Closer], None], *, redact: bool = True
) -> Callable[[], int]:
    from repotrace import span, trace_agent

    os.environ["REPOTRACE_HOME"] = str(folder / "home")

    def opener(name: str, text: str) -> Any:
        return span(name, input=text)

    def closer(made: Any, text: str) -> None:
        made.output = text

    @trace_agent(workspace=folder, states=False, redact=redact)
    def agent() -> None:
        make(opener, closer)

    agent()

    def count() -> int:
        from repotrace.storage import Store

        runs = Store(folder / "home").runs
        runs.ingest(wait=True)
        (run,) = runs.list()
        steps = runs.steps(run.id)
        return sum(len(step.input_context or "") == len(step.output_result or "") == SIZE
                   for step in steps)  # fmt: skip

    return count


def opentelemetry(
    folder: Path, make: Callable[[Opener, Closer], None], *, keep: bool = False
) -> Callable[[], int] | None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    exporter = into_sqlite(folder / "spans.db") if keep else into_nothing()
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("benchmark")

    def opener(name: str, text: str) -> Any:
        return tracer.start_as_current_span(name, attributes={"input.value": text})

    make(opener, lambda span, text: span.set_attribute("output.value", text))
    provider.shutdown()
    if not keep:
        return None
    database = sqlite3.connect(folder / "spans.db")
    return lambda: int(database.execute("SELECT count(*) FROM spans").fetchone()[0])


def logfire(folder: Path, make: Callable[[Opener, Closer], None]) -> None:
    import logfire
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    logfire.configure(
        send_to_logfire=False,
        console=False,
        metrics=False,
        inspect_arguments=False,
        additional_span_processors=[BatchSpanProcessor(into_nothing())],
    )

    def opener(name: str, text: str) -> Any:
        return logfire.span(name, input=text)

    make(opener, lambda span, text: span.set_attribute("output", text))
    logfire.shutdown()


def langfuse(folder: Path, make: Callable[[Opener, Closer], None]) -> None:
    from langfuse import Langfuse

    client = Langfuse(
        public_key="pk-lf-benchmark",
        secret_key="none",
        base_url="http://127.0.0.1:9",
        span_exporter=into_nothing(),
    )

    def opener(name: str, text: str) -> Any:
        return client.start_as_current_observation(name=name, input=text)

    make(opener, lambda span, text: span.update(output=text))
    client.flush()


def into_nothing() -> Any:
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, spans: Any) -> Any:
            return SpanExportResult.SUCCESS

    return Nowhere()


def into_sqlite(path: Path) -> Any:
    """An exporter as one would write it: a row a span, a transaction a batch."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Rows(SpanExporter):
        database: sqlite3.Connection | None = None

        def export(self, spans: Any) -> Any:
            if self.database is None:
                self.database = sqlite3.connect(path, check_same_thread=False)
                self.database.execute("PRAGMA journal_mode=WAL")
                self.database.execute("CREATE TABLE spans (id, parent, name, begun, ended, facts)")
            rows = [
                (
                    f"{span.context.span_id:016x}",
                    f"{span.parent.span_id:016x}" if span.parent else None,
                    span.name,
                    span.start_time,
                    span.end_time,
                    json.dumps(dict(span.attributes)),
                )
                for span in spans
            ]
            with self.database:
                self.database.executemany("INSERT INTO spans VALUES (?, ?, ?, ?, ?, ?)", rows)
            return SpanExportResult.SUCCESS

    return Rows()


CONTENDERS: dict[str, Contender] = {
    "ours, redacting": ours,
    "ours, without redaction": partial(ours, redact=False),
    "opentelemetry-sdk, batch, no-op": opentelemetry,
    "opentelemetry-sdk, batch, SQLite": partial(opentelemetry, keep=True),
    "logfire, scrubbing": logfire,
    "langfuse": langfuse,
}


# --- Measuring ----------------------------------------------------------------------------


def work(name: str, traces: int) -> None:
    """Be one contender, and print what it took: microseconds of CPU a span, spans kept."""
    given = texts(2 * traces * len(SHAPE))
    count = traces * len(SHAPE)
    taken: dict[str, float] = {}

    def make(opener: Opener, closer: Closer) -> None:
        taken["total"] = time.process_time()
        started = time.thread_time()
        for number in range(traces):
            trace(given, number * len(SHAPE), opener, closer)
        taken["caller"] = (time.thread_time() - started) / count * 1e6

    with tempfile.TemporaryDirectory() as folder:
        counter = CONTENDERS[name](Path(folder), make)
        ended = time.process_time()
        taken["total"] = (ended - taken["total"]) / count * 1e6
        kept = counter() if counter is not None else None
        taken["reading"] = (time.process_time() - ended) / count * 1e6
    print(json.dumps(taken | {"kept": kept}))


def measured(name: str, traces: int, peers: Path) -> dict[str, Any]:
    """What a process that is this contender says of itself."""
    python = Path(sys.executable) if name.startswith("ours") else peers / "bin" / "python"
    command = [python, __file__, "--be", name, "--traces", str(traces)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name}:\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def install(peers: Path) -> None:
    if not peers.is_dir():
        venv.create(peers, with_pip=True)
        command = [peers / "bin" / "python", "-m", "pip", "install", "-q", *PACKAGES]
        subprocess.run(command, check=True)


def beside(rounds: int) -> tuple[float, float]:
    """Microseconds of a `span` outside of a traced agent, CPU milliseconds of the import."""
    from repotrace import span

    def once() -> float:
        count = 20_000
        started = time.thread_time()
        for _ in range(count):
            span("write-patch", int)
        return (time.thread_time() - started) / count * 1e6

    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "bare": [sys.executable, "-c", "pass"],
            "import": [sys.executable, "-c", "from repotrace import span, trace_agent"],
        }
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        taken = in_turn(commands, Path(folder), env, 3 * rounds)
    both = (statistics.median(taken[name].cpu) for name in ("import", "bare"))
    return min(once() for _ in range(rounds)), (next(both) - next(both)) * 1000


def report(figures: dict[str, list[dict[str, Any]]], count: int) -> None:
    caller = {n: statistics.median(one["caller"] for one in all_) for n, all_ in figures.items()}
    print(f"{'µs of CPU a span (medians)':34} {'caller':>8} {'total':>8}   kept of {count}")
    for name, rounds in figures.items():
        total = statistics.median(one["total"] for one in rounds)
        kept = sorted({one["kept"] for one in rounds if one["kept"] is not None})
        said = "-" if not kept else str(kept[0]) if kept[0] == kept[-1] else f"{kept[0]}-{kept[-1]}"
        print(f"{name:34} {caller[name]:8.1f} {total:8.1f}   {said}")
    for name in figures:
        if name.startswith("ours"):
            reading = statistics.median(one["reading"] for one in figures[name])
            print(f"{name}: reading it in and back takes {reading:.0f} µs a span, later")
    for one, other, limit in GOALS:
        if one in caller and other in caller:
            # Within a round, since a machine that is busy is busy for both.
            ratio = statistics.median(
                a["caller"] / b["caller"] for a, b in zip(figures[one], figures[other], strict=True)
            )
            said = "met" if ratio <= limit else "MISSED"
            print(f"{one} / {other}: {ratio:.2f}, to reach {limit:.2f}: {said}")


GOALS = (
    ("ours, redacting", "logfire, scrubbing", 1 / 2),
    ("ours, redacting", "langfuse", 1 / 3),
    ("ours, without redaction", "opentelemetry-sdk, batch, no-op", 1.0),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--traces", type=int, default=2000, help="of ten spans each")
    parser.add_argument("--only", default="", help="contenders whose names begin so")
    parser.add_argument("--peers", type=Path, default=PEERS, help="environment of the peers")
    parser.add_argument("--be", choices=CONTENDERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be:
        work(options.be, options.traces)
        return
    names = [name for name in CONTENDERS if name.startswith(options.only)]
    if any(not name.startswith("ours") for name in names):
        install(options.peers)
    figures: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            figures[name].append(measured(name, options.traces, options.peers))
    report(figures, options.traces * len(SHAPE))
    outside, importing = beside(options.rounds)
    print(
        f"span outside of an agent: {outside:.2f} µs; import: {importing:.1f} ms over bare Python"
    )


if __name__ == "__main__":
    main()
