"""Execute a test command on the files of states, once for each question: what is known is kept.

Nothing runs in the user's work tree. Each worker has a folder of its own, which goes from state to
state; what tests write into it is cleaned away, and what they leave running is ended.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from repotrace.blame.evidence import Subject
from repotrace.config import CheckSettings
from repotrace.journal import new_id
from repotrace.records.command import CommandRun, CommandSpec, Termination
from repotrace.redact import Redactor
from repotrace.runs.testing.commands import TestCommand
from repotrace.runs.testing.first_party import ImportProbe, linked_packages
from repotrace.runs.testing.hunks import Unfitting
from repotrace.runs.testing.moving import environments_of
from repotrace.runs.testing.observing import key_of
from repotrace.runs.testing.runner import TestRun, TestRunner
from repotrace.runs.testing.subjects import Subjects
from repotrace.storage import Store
from repotrace.storage.consent import permit_run
from repotrace.storage.memo import Execution
from repotrace.system.execution import execute
from repotrace.system.process import interrupting
from repotrace.system.snapshots.objects import Tree
from repotrace.workcopy import remove_tree

OUTPUT_LIMIT = 64 << 10
"""Bytes of each stream that are kept of an execution; outcomes of tests are kept whole."""

SETUP_TIME = 1800.0
"""Seconds for the line that prepares a copy."""

type OnExecution = Callable[[Execution], None]


@contextmanager
def workers(count: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """Threads that execute commands. An error or an interrupt ends all that they run, also what
    one of them is about to start; another interrupt kills it."""
    pool = ThreadPoolExecutor(count, thread_name_prefix=name)
    try:
        yield pool
    except BaseException:
        ended = False
        while not ended:
            with suppress(KeyboardInterrupt), interrupting():
                pool.shutdown(wait=True, cancel_futures=True)
                ended = True
        raise
    pool.shutdown(wait=True)


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """How tests are executed."""

    environ: Mapping[str, str]
    redactor: Redactor
    settings: CheckSettings
    environment: str
    """Fingerprint of what the command runs with."""
    run_id: str = ""
    """The run that is looked into."""
    timeout: float | None = None
    """Seconds for one execution."""
    rerun: bool = False
    """Believe nothing that was executed before."""
    on_execution: OnExecution | None = None
    """Called after each execution, by the thread that made it."""
    owned: Path | None = None
    """A folder that goes with the bench."""


class Bench:
    """Executes one test command on subjects. May be shared by threads, one for each worker."""

    def __init__(
        self, store: Store, workspace: Path, command: TestCommand, options: BenchOptions
    ) -> None:
        self.store = store
        self.workspace = workspace
        self.command = command
        self.options = options
        self.subjects = Subjects(store.snapshots)
        self.executed = 0
        """Executions of this bench; those that the memo answered are none."""
        self._folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="repotrace-tests-")))
        self._workers: dict[int, _Worker] = {}
        self._looked_into = 0
        self._probe = ImportProbe(store.snapshots, self._folder / "probe")
        self._guard = threading.Lock()
        self._permitted = not options.run_id
        self._fresh: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Removes the folders."""
        for worker in self._workers.values():
            worker.runner.close()
        remove_tree(self._folder)
        if self.options.owned is not None:
            remove_tree(self.options.owned)

    @property
    def folder(self) -> Path:
        """Where the tests run."""
        return self._folder

    @property
    def unseen(self) -> str | None:
        """What is not known of all executions so far, for people; None if nothing is missing."""
        if not self.executed or self._looked_into:
            return None
        linked = linked_packages(self.workspace)
        if linked:
            return (
                f"node_modules links {', '.join(linked[:5])} to the work tree itself: tests that"
                " use it run the code of now on all states"
            )
        return (
            "what code was run could not be seen, as it can of Python: that it was that of the"
            " copies, where the command ran, is taken for granted"
        )

    def line(self, tests: Sequence[str] = ()) -> str:
        """The command for these tests, as people would type it."""
        return self.command.line(tests)

    def has(self, state_id: str, path: str) -> bool:
        """Whether a state has such a file, or files below it."""
        tree = self.store.snapshots.state(state_id).tree
        return Tree(self.store.snapshots.reader, tree).entry(os.fsencode(path)) is not None

    def permit(self, *, trusted: bool = False) -> None:
        """Let the tests be executed; what is permitted once stays so.

        Raises NotTrusted if the run came from elsewhere and is not `trusted`.
        """
        if not self._permitted:
            permit_run(self.store, self.options.run_id, self.about, trusted=trusted)
            self._permitted = True

    @property
    def about(self) -> str:
        """All that is executed in each copy, for people."""
        setup = self.options.settings.setup
        return self.line() if setup is None else f"{setup}; {self.line()}"

    # --- The memo ---------------------------------------------------------------------------

    def known(self, subject: Subject, tests: Sequence[str] = ()) -> list[Execution]:
        """What was executed on these files before, in order of time."""
        key = self._key(subject, tests)
        if key is None:
            return []
        found = self.store.memo.executions(key=key)
        if self.options.rerun:
            found = [execution for execution in found if execution.id in self._fresh]
        return [execution for execution in found if execution.problem is None]

    def _key(self, subject: Subject, tests: Sequence[str]) -> str | None:
        try:
            with self._guard:
                state = self.subjects.state_of(subject)
        except Unfitting:
            return None
        line = self.line(tests).replace(str(self.workspace), "<workspace>")
        return key_of(state, line, self.options.environment)

    def collect(self, state_id: str, paths: Sequence[str] = ()) -> list[str]:
        """The tests that pytest collects on a state, in its order; nothing of another runner."""
        if not self.command.pytest:
            return []
        self.permit()
        tests = ["--collect-only", "-q", *(paths or self.command.chosen)]
        run = self._worker(0).run(state_id, self._spec(tests, 0), self.options.timeout)
        if run.command.termination is Termination.INTERRUPTED:
            raise KeyboardInterrupt
        return self._probe.collected(0)

    # --- Executing --------------------------------------------------------------------------

    def execute(
        self,
        subject: Subject,
        tests: Sequence[str] = (),
        *,
        purpose: str = "",
        alone: bool = True,
        worker: int = 0,
        timeout: float | None = None,
    ) -> Execution:
        """Run the command once on these files, and keep what came of it.

        Raises KeyboardInterrupt if the command was interrupted, RepoTraceError if the tests would
        import code from elsewhere, and as `permit` does.
        """
        self.permit()
        try:
            with self._guard:
                state = self.subjects.state_of(subject)
        except Unfitting:
            return self._unusable(subject, tests, purpose, "the hunks do not fit these files")
        started = time.monotonic()
        try:
            run = self._worker(worker).run(state, self._spec(tests, worker), timeout)
        except _SetupFailed as failed:
            return self._unusable(subject, tests, purpose, str(failed))
        if run.command.termination is Termination.INTERRUPTED:
            raise KeyboardInterrupt
        folder = self._worker(worker).runner.scratch.folder
        self._looked_into += self._probe.check(worker, state, folder)
        execution = Execution(
            id=new_id(),
            run_id=self.options.run_id,
            key=self._key(subject, tests) or "",
            state_id=subject.state,
            command_line=self.line(tests),
            purpose=purpose,
            alone=alone,
            started_at=run.command.started_at or datetime.now(UTC),
            duration=run.command.duration or time.monotonic() - started,
            command=run.command,
            outcomes=run.outcomes,
            origin=run.origin,
            complete=run.complete,
        )
        with self._guard:
            self.executed += 1
            self._fresh.add(execution.id)
        self.store.memo.add(execution)
        if self.options.on_execution is not None:
            self.options.on_execution(execution)
        return execution

    def _unusable(
        self, subject: Subject, tests: Sequence[str], purpose: str, problem: str
    ) -> Execution:
        return Execution(
            id="",
            run_id=self.options.run_id,
            key="",
            state_id=subject.state,
            command_line=self.line(tests),
            purpose=purpose,
            started_at=datetime.now(UTC),
            command=CommandRun(),
            problem=problem,
        )

    def _spec(self, tests: Sequence[str], worker: int) -> CommandSpec:
        spec = self.command.spec(self.options.environ, tests)
        env = {**spec.env, "REPOTRACE_WORKER": str(worker), "REPOTRACE_SNAPSHOT": "0"}
        return spec.model_copy(
            update={"env": self._probe.environment(env, worker, pytest=self.command.pytest)}
        )

    def _worker(self, number: int) -> _Worker:
        with self._guard:
            found = self._workers.get(number)
            if found is None:
                found = self._workers[number] = _Worker(self, number)
            return found


class _SetupFailed(Exception):
    """The copy could not be prepared."""


class _Worker:
    """One folder, and what runs in it."""

    def __init__(self, bench: Bench, number: int) -> None:
        self._bench = bench
        place = bench.folder / str(number)
        self._temporary = place / "tmp"
        settings = bench.options.settings
        links = [*environments_of(bench.workspace), *(n for n in settings.link if "/" not in n)]
        self._deeper = [name for name in settings.link if "/" in name]
        if project := bench.command.project:
            within = environments_of(bench.workspace / project)
            self._deeper += [f"{project}/{name}" for name in within]
        self.runner = TestRunner(
            bench.store.snapshots,
            place / (bench.workspace.name or "work"),
            workspace=bench.workspace,
            redactor=bench.options.redactor,
            limit=OUTPUT_LIMIT,
            links=list(dict.fromkeys(links)),
        )

    def run(self, state: str, spec: CommandSpec, timeout: float | None) -> TestRun:
        """Run it on the files of a state, in a folder of temporary files of its own."""
        self._temporary.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = self._bench.options
        limit = timeout if timeout is not None else options.timeout
        spec = spec.model_copy(update={"env": {**spec.env, "TMPDIR": str(self._temporary)}})
        try:
            return self.runner.run(
                state, spec, timeout=limit, prepare=lambda folder: self._prepare(folder, spec)
            )
        finally:
            remove_tree(self._temporary)

    def _prepare(self, folder: Path, spec: CommandSpec) -> None:
        for name in self._deeper:
            target, link = self._bench.workspace / name, folder / name
            if target.exists() and not os.path.lexists(link):
                link.parent.mkdir(parents=True, exist_ok=True)
                with suppress(OSError):
                    link.symlink_to(target)
        setup = self._bench.options.settings.setup
        if setup is None:
            return
        command = CommandSpec(script=setup, cwd=spec.cwd, env=spec.env, timeout=SETUP_TIME)
        command = self.runner.spec(command)
        done = execute(command, redactor=self._bench.options.redactor, limit=OUTPUT_LIMIT)
        if done.termination is Termination.INTERRUPTED:
            raise KeyboardInterrupt
        if done.failed:
            said = done.stderr.text.strip() or done.stdout.text.strip()
            last = said.rpartition("\n")[2][:200]
            raise _SetupFailed(f"the setup failed ({done.ending}): {last}")
