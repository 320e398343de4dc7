"""Events become rows. The one place that knows what an event does to the tables of runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from repotrace.journal import redacted
from repotrace.records.events import Kind
from repotrace.records.run import CostSource, RunStatus, StateQuality, StepStatus
from repotrace.storage import run_tables as tables
from repotrace.storage.commands import command_facts
from repotrace.storage.conversations import Conversations, message_ids
from repotrace.storage.documents import Documents
from repotrace.storage.looks import followed, is_observed, look
from repotrace.storage.outcome_origins import OutcomeOrigins
from repotrace.storage.pricing import price
from repotrace.storage.rows import (
    Row,
    Table,
    Unusable,
    bound,
    cost,
    from_moment,
    integer,
    load,
    moment,
    text,
)
from repotrace.storage.said import Said, listed, step_name, words_of
from repotrace.storage.texts import TextPool, to_json

if TYPE_CHECKING:
    import sqlite3

_COMPUTED = CostSource.COMPUTED.value
_PRICED = frozenset(
    {"model", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"}
)
_TERMINAL = frozenset({StepStatus.COMPLETED, StepStatus.FAILED})


class Intake:
    """Takes events within one transaction. `flush` must be called before it is committed."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        redact: Callable[[str], str] | None = None,
        *,
        whole: bool = False,
    ) -> None:
        """`redact` is for events whose writer could not redact them. `whole`: they are records
        that were saved. Each begins with all that its record says, and replaces what was known;
        a step gets the `step_number` that it gives, unless another one has it; and of a run that
        is heard of only now the status is not known."""
        self._whole = whole
        self.touched: set[str] = set()
        """Ids of the runs whose rows have changed."""
        self._connection = connection
        self._redact = redact
        self._pool = TextPool(connection)
        self._conversations = Conversations(self._pool)
        self._documents = Documents(connection, self._pool)
        self._origins = OutcomeOrigins(connection)
        self._runs: dict[str, Row] = {}
        self._steps: dict[tuple[str, str], Row] = {}
        self._run_names: dict[str, str] = {}
        self._outer: dict[tuple[str, str, str], str] = {}

    def apply(self, event: Mapping[str, Any], writer: str | None = None) -> bool:
        """Take one event; False if its kind is unknown. Raises Unusable if it says too little.

        `writer` names the journal file that it stood in.
        """
        kind, data, when = event.get("kind"), event.get("data"), moment(event.get("time"))
        if not isinstance(data, dict) or when is None:
            raise Unusable("no data or no time")
        act = _ACTS.get(str(kind))
        if act is None:
            return False
        name, run_name = event.get("id"), event.get("run")
        if not isinstance(name, str) or not name:
            raise Unusable("no id")
        if event.get("raw") is True and self._redact is not None:
            data = redacted(data, self._redact)
        if kind == Kind.LOST:
            self.lose(name, integer(data.get("count")) or 1, text(data.get("reason")), when)
            if not isinstance(run_name, str):
                return True
        if not isinstance(run_name, str) or not run_name:
            raise Unusable("no run")
        run = self._run(run_name, data if kind == Kind.RUN_STARTED else {}, when)
        run_id = str(run.values["id"])
        if kind == Kind.LOST:
            self._connection.execute("UPDATE losses SET run_id = ? WHERE id = ?", (run_id, name))
        run.set("last_event_at", max(when, run.values.get("last_event_at") or when))
        if self._whole and run.values.get("status") == RunStatus.UNKNOWN:
            run.set("started_at", min(when, run.values["started_at"]))
        self.touched.add(run_id)
        act(self, run, Said(name, run_id, data, when, event.get("weak") is True, writer))
        return True

    def flush(self) -> None:
        """Write what was held back."""
        for row in self._runs.values():
            self._write(str(row.values["id"]), row)
        for (run_id, _), row in self._steps.items():
            self._write(run_id, row)
        self._pool.flush()
        self._runs.clear()
        self._steps.clear()
        self._run_names.clear()
        self._outer.clear()
        self._origins.forget()

    def lose(
        self, name: str, count: int, reason: str | None, when: int, run_id: str | None = None
    ) -> None:
        """Note that events are lost."""
        if run_id is not None:
            self.touched.add(run_id)
        self._connection.execute(
            "INSERT OR REPLACE INTO losses (id, run_id, count, reason, at) VALUES (?, ?, ?, ?, ?)",
            (bound(name), run_id, count, reason or "unknown", when),
        )

    # --- Runs -------------------------------------------------------------------------------

    def _run(self, name: str, data: Mapping[str, Any], when: int) -> Row:
        """The run that is called so, made if there is none."""
        run_id = self._run_names.get(name) or self._run_of_alias(name)
        row = self._loaded_run(run_id)
        if row is None:
            joined = self._run_of_source(data)
            if joined is not None and joined != run_id:
                self._alias("", name, joined)
                self._run_names[name] = joined
                row = self._loaded_run(joined)
        if row is None:
            row = Row(tables.RUNS, {"id": run_id, "started_at": when}, is_new=True)
            if self._whole:
                row.set("status", RunStatus.UNKNOWN.value)
            self._runs[run_id] = row
        self._run_names[name] = str(row.values["id"])
        return row

    def _loaded_run(self, run_id: str) -> Row | None:
        row = self._runs.get(run_id) or load(self._connection, tables.RUNS, (run_id,))
        if row is not None:
            self._runs[run_id] = row
        return row

    def _run_of_alias(self, name: str) -> str:
        return self._known_as("", name)

    def _run_of_source(self, data: Mapping[str, Any]) -> str | None:
        source, source_id = text(data.get("source")), text(data.get("source_id"))
        if not source_id:
            return None
        row = self._connection.execute(
            "SELECT run_id FROM run_sources WHERE source = ? AND source_id = ?",
            (bound(source or ""), bound(source_id)),
        ).fetchone()
        return None if row is None else str(row[0])

    def _known_as(self, run_id: str, name: str) -> str:
        row = self._connection.execute(
            "SELECT id FROM aliases WHERE run_id = ? AND alias = ?", (run_id, bound(name))
        ).fetchone()
        return name if row is None else str(row[0])

    def _alias(self, run_id: str, alias: str, name: str) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO aliases (run_id, alias, id) VALUES (?, ?, ?)",
            (run_id, bound(alias), bound(name)),
        )

    def run_started(self, run: Row, said: Said) -> None:
        """A run began, or another view of it did."""
        values = run.values
        end, start = values.get("completed_at"), values["started_at"]
        values["started_at"] = min(start, said.when)
        run.changed.add("started_at")
        # It is taken up again; but an end before its start is a clock that went back.
        if end is not None and said.when > max(start, end):
            run.clear("completed_at")
            run.set("status", RunStatus.RUNNING.value)
        if values.get("status") == RunStatus.UNKNOWN:
            run.set("status", RunStatus.RUNNING.value)
        if said.writer is not None:
            run.set("writer", said.writer)
        self.run_updated(run, said)

    def run_updated(self, run: Row, said: Said) -> None:
        """Facts about a run."""
        data, run_id = said.data, said.run_id
        run.take(data, self._pool, weak=said.weak)
        run.set("status", text(data.get("status")), weak=said.weak)
        if data.get("status") == RunStatus.RUNNING and not said.weak:
            run.clear("completed_at")
        if data.get("outcome") and not (said.weak and run.values.get("outcome_given")):
            run.set("outcome", text(data["outcome"]))
            run.set("outcome_given", 1)
        self._name_source(run, said)
        for tag in listed(data.get("tags")):
            self._connection.execute(
                "INSERT OR IGNORE INTO run_tags (run_id, tag) VALUES (?, ?)", (run_id, bound(tag))
            )
        models = listed(data.get("models"))
        if models:
            known = json.loads(run.values.get("models") or "[]")
            run.set("models", to_json(list(dict.fromkeys([*known, *models]))))

    def _name_source(self, run: Row, said: Said) -> None:
        source, source_id = text(said.data.get("source")), text(said.data.get("source_id"))
        if source:
            run.set("source", source, weak=True)
        if not source_id:
            return
        run.set("source_id", source_id, weak=True)
        self._connection.execute(
            "INSERT OR IGNORE INTO run_sources (source, source_id, run_id) VALUES (?, ?, ?)",
            (bound(source or ""), bound(source_id), said.run_id),
        )

    def run_ended(self, run: Row, said: Said) -> None:
        """A run is over."""
        self.run_updated(run, said)
        status = text(said.data.get("status")) or RunStatus.COMPLETED.value
        if status == RunStatus.RUNNING:
            return
        end = run.values.get("completed_at")
        if end is None or said.when >= end:
            run.set("completed_at", said.when)
            run.set("status", status)

    # --- Steps ------------------------------------------------------------------------------

    def _step(self, run: Row, name: str, said: Said) -> Row:
        """The step that is called so, made if there is none."""
        run_id = said.run_id
        row = self._loaded_step(run_id, name)
        if row is None:
            name = self._known_as(run_id, name)
            row = self._loaded_step(run_id, name)
        source = text(said.data.get("source")) or run.values.get("source") or ""
        outer = text(said.data.get("external_id"))
        if row is None and outer:
            known = self._of_external_id(tables.STEPS, run_id, source, outer)
            if known is not None:
                self._alias(run_id, name, known)
                for table in (*tables.PARTS[1:],):
                    self._rename(table, run_id, name, known)
                row = self._loaded_step(run_id, known)
        if row is None:
            step_number = self._number_for(run, said)
            values = {"id": name, "run_id": run_id, "step_number": step_number}
            values["started_at"] = said.when
            row = self._steps[run_id, name] = Row(tables.STEPS, values, is_new=True)
        if outer and not row.values.get("external_id"):
            holder = self._of_external_id(tables.STEPS, run_id, source, outer)
            if holder in (None, row.values["id"]):
                row.set("source", source)
                row.set("external_id", outer)
                self._outer[run_id, source, outer] = str(row.values["id"])
        return row

    def _number_for(self, run: Row, said: Said, present: int | None = None) -> int:
        """The number of a new step, or of one that has the number `present` and is saved again."""
        usual = int(run.values.get("next_step") or 1)
        number = usual if present is None else present
        wanted = integer(said.data.get("step_number")) if self._whole else None
        if wanted is not None and (wanted >= usual or self._is_free(said.run_id, wanted)):
            number = wanted
        run.set("next_step", max(usual, number + 1))
        return number

    def _is_free(self, run_id: str, number: int) -> bool:
        if number < 1 or any(
            key[0] == run_id and row.values["step_number"] == number
            for key, row in self._steps.items()
        ):
            return False
        found = self._connection.execute(
            "SELECT 1 FROM execution_steps WHERE run_id = ? AND step_number = ?", (run_id, number)
        )
        return found.fetchone() is None

    def _rename(self, table: Table, run_id: str, alias: str, name: str) -> None:
        self._connection.execute(
            f"UPDATE {table.name} SET step_id = ? WHERE run_id = ? AND step_id = ?",
            (bound(name), run_id, bound(alias)),
        )

    def _loaded_step(self, run_id: str, name: str) -> Row | None:
        row = self._steps.get((run_id, name))
        if row is None:
            row = load(self._connection, tables.STEPS, (run_id, name))
            if row is not None:
                self._steps[run_id, name] = row
        return row

    def _of_external_id(self, table: Table, run_id: str, source: str, outer: str) -> str | None:
        if table is tables.STEPS and (run_id, source, outer) in self._outer:
            return self._outer[run_id, source, outer]
        row_id = self._connection.execute(
            f"SELECT id FROM {table.name} WHERE run_id = ? AND source = ? AND external_id = ?",
            (run_id, bound(source), bound(outer)),
        ).fetchone()
        return None if row_id is None else str(row_id[0])

    def step_started(self, run: Row, said: Said) -> None:
        """A step began."""
        if self._whole:
            self._step_saved(run, said)
        row = self.step_updated(run, said)
        if not row.is_new:
            row.set("started_at", min(row.values["started_at"], said.when))
        if said.writer is not None:
            row.set("writer", said.writer)

    def _step_saved(self, run: Row, said: Said) -> None:
        """A step is told whole: only its number stays, if it cannot have the one it gives."""
        row = self._step(run, step_name(said.data), said)
        row.forget("step_number", "started_at", "writer")
        row.set("started_at", said.when)
        row.set("step_number", self._number_for(run, said, row.values["step_number"]))
        given = integer(said.data.get("step_number"))
        if given is not None and given != row.values["step_number"]:
            row.merge("metadata", {"step_number": given}, self._pool, weak=False)

    def step_updated(self, run: Row, said: Said) -> Row:
        """Facts about a step."""
        row = self._step(run, step_name(said.data), said)
        row.take(said.data, self._pool, weak=said.weak)
        row.set("status", text(said.data.get("status")), weak=said.weak)
        parent, retried = row.values.get("parent_id"), text(said.data.get("retry_of"))
        if parent and "parent_id" in row.changed:
            row.set("parent_id", self._known_as(said.run_id, parent))
        if retried and "retry_of" in row.changed:
            row.set("retry_of", self._known_as(said.run_id, retried))
        if retried and said.data.get("attempt") is None:
            earlier = self._loaded_step(said.run_id, self._known_as(said.run_id, retried))
            attempt = (earlier.values.get("attempt") or 1) if earlier else 1
            row.set("attempt", attempt + 1, weak=said.weak)
        return row

    def step_ended(self, run: Row, said: Said) -> None:
        """A step is over."""
        row = self.step_updated(run, said)
        failed = said.data.get("error") is not None
        usual = StepStatus.FAILED if failed else StepStatus.COMPLETED
        over = row.values.get("status") in _TERMINAL
        if said.data.get("status") is None and not (said.weak and over):
            row.set("status", usual.value)
        row.set("completed_at", said.when, weak=said.weak)

    def state(self, run: Row, said: Said) -> None:
        """The files at a moment."""
        data, step_id = said.data, text(said.data.get("step_id"))
        state_id, quality = text(data.get("state_id")), text(data.get("state_quality"))
        quality = quality or (StateQuality.EXACT.value if state_id else StateQuality.MISSING.value)
        when = "start" if data.get("when") == "start" else "end"
        if not step_id:
            run.set("base_state", state_id, weak=said.weak)
            run.set("base_quality", quality, weak=said.weak)
            self._note_state(said, "", when, state_id, quality)
            return
        row = self._step(run, step_id, said)
        if when == "end" and self._is_seen(row) and quality != StateQuality.EXACT:
            return
        reason = text(data.get("state_reason"))
        self._note_state(said, str(row.values["id"]), when, state_id, quality)
        if when == "start":
            row.set("state_before_id", state_id, weak=said.weak)
        elif not (said.weak and row.knows("state_quality")):
            row.set("state_id", state_id) if state_id else row.clear("state_id")
            row.set("state_quality", quality)
            row.clear("state_reason")
        row.set("state_reason", reason, weak=said.weak)

    def _is_seen(self, row: Row) -> bool:
        """Whether the files after a step were seen, which nobody knows better."""
        return not self._whole and row.values.get("state_quality") == StateQuality.EXACT

    def _note_state(
        self, said: Said, step_id: str, when: str, state_id: str | None, quality: str
    ) -> None:
        """Note a state whose file operations are to be derived; see `attribution`."""
        if state_id and quality == StateQuality.EXACT:
            self._connection.execute(
                "INSERT OR IGNORE INTO states (run_id, step_id, moment, at, state_id, derived)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (
                    *(said.run_id, bound(step_id), when, said.when, state_id),
                    said.data.get("derived") is True,
                ),
            )

    # --- What hangs on steps ----------------------------------------------------------------

    def _part(self, table: Table, said: Said) -> Row:
        name = text(said.data.get("id")) or said.name
        row = load(self._connection, table, (said.run_id, name))
        if row is None:
            values = {"id": name, "run_id": said.run_id, "timestamp": said.when}
            row = Row(table, values, is_new=True)
        elif self._whole:
            row.forget("timestamp", "previous", "kept", "added", "depth")
            row.set("timestamp", said.when)
        row.take(said.data, self._pool, weak=said.weak)
        step_id = row.values.get("step_id")
        if isinstance(step_id, str) and (said.run_id, step_id) not in self._steps:
            row.set("step_id", self._known_as(said.run_id, step_id))
        return row

    def llm(self, run: Row, said: Said) -> None:
        """A model was called."""
        data, run_id = said.data, said.run_id
        source = text(data.get("source")) or run.values.get("source") or ""
        outer = text(data.get("external_id"))
        known = self._of_external_id(tables.INTERACTIONS, run_id, source, outer) if outer else None
        if known is not None:
            said = said.about(known)
        row = self._part(tables.INTERACTIONS, said)
        if outer and (known is None or self._whole):
            row.set("source", source)
            row.set("external_id", outer)
        values = row.values
        if data.get("tokens_used") is None and (
            "input_tokens" in row.changed or "output_tokens" in row.changed
        ):
            used = (values.get("input_tokens") or 0) + (values.get("output_tokens") or 0)
            row.set("tokens_used", used)
        if "cost_usd" in row.changed and values.get("cost_usd") is not None:
            row.set("cost_source", text(data.get("cost_source")) or "given", weak=said.weak)
        elif values.get("cost_usd") is None or values.get("cost_source") == _COMPUTED:
            self._price(row)
        if data.get("response") is None and isinstance(data.get("response_message"), dict):
            row.set("response", words_of(data["response_message"]), weak=True)
        self._write_call(row, said)

    def _price(self, row: Row) -> None:
        """What a call costs that nobody gave a price for."""
        if not row.changed & _PRICED:
            return
        found = price(row.values, from_moment(row.values["timestamp"]))
        if found is not None:
            row.set("cost_usd", cost(found))
            row.set("cost_source", _COMPUTED)

    def _write_call(self, row: Row, said: Said) -> None:
        given = said.data.get("messages")
        if not isinstance(given, list) or (said.weak and row.knows("added")):
            self._write(said.run_id, row)
            return
        calls, run_id, before = self._conversations, said.run_id, len(self._pool.added)
        messages = calls.pool(run_id, given)
        fresh = self._pool.added[before:]
        previous = text(said.data.get("previous_id"))
        if previous:
            messages = calls.follow(run_id, previous, integer(said.data.get("kept")), messages)
        rowid = None if row.is_new else self._rowid(row)
        if rowid is None or message_ids(self._connection, rowid) != messages:
            if rowid is not None:
                calls.release(rowid)
            stored = calls.store(run_id, messages)
            for column in ("previous", "kept", "added", "depth"):
                row.values[column] = getattr(stored, column)
                row.changed.add(column)
        for text_id in fresh:
            self._documents.add_message(run_id, row, text_id)
        rowid = self._write(run_id, row)
        calls.remember(run_id, rowid, row.values["depth"], messages)

    def _rowid(self, row: Row) -> int:
        found = self._connection.execute(
            f"SELECT rowid FROM {row.table.name} WHERE run_id = ? AND id = ?",
            (row.values["run_id"], bound(row.values["id"])),
        ).fetchone()
        return int(found[0])

    def file_operation(self, run: Row, said: Said) -> None:
        """A path changed."""
        self._require(said, "file_path")
        if self._whole or not is_observed(self._connection, said, self._known_as):
            self._write(said.run_id, self._part(tables.OPERATIONS, said))

    def file_read(self, run: Row, said: Said) -> None:
        """A path was looked at."""
        self._require(said, "file_path")
        self._write(said.run_id, self._part(tables.READS, said))

    def command(self, run: Row, said: Said) -> None:
        """A command ran."""
        facts = command_facts(said.data)
        row = self._part(tables.COMMANDS, said)
        for column, value in facts.items():
            row.set(column, value, weak=said.weak)
        self._write(said.run_id, row)

    def test(self, run: Row, said: Said) -> None:
        """A phase of a test is over."""
        self._require(said, "node_id", "outcome")
        if not self._origins.is_superseded(said.run_id, said.data, weak=said.weak):
            self._write(said.run_id, self._part(tables.TESTS, said))

    def log(self, run: Row, said: Said) -> None:
        """Something was logged."""
        self._write(said.run_id, self._part(tables.LOGS, said))

    def lost(self, run: Row, said: Said) -> None:
        """Events were lost; `apply` has noted it."""

    def _require(self, said: Said, *names: str) -> None:
        for name in names:
            if said.data.get(name) in (None, ""):
                raise Unusable(f"no {name}")

    def _write(self, run_id: str, row: Row) -> int:
        if not row.is_new and not row.changed:
            return 0 if row.table.key == ("id",) else self._rowid(row)
        self._documents.note(run_id, row)
        return row.write(run_id, self._pool)


_ACTS: dict[str, Callable[[Intake, Row, Said], object]] = {
    Kind.RUN_STARTED: Intake.run_started,
    Kind.RUN_UPDATED: Intake.run_updated,
    Kind.RUN_ENDED: Intake.run_ended,
    Kind.STEP_STARTED: Intake.step_started,
    Kind.STEP_UPDATED: Intake.step_updated,
    Kind.STEP_ENDED: Intake.step_ended,
    Kind.STATE: Intake.state,
    Kind.LLM: Intake.llm,
    Kind.FILE_OPERATION: Intake.file_operation,
    Kind.FILE_READ: Intake.file_read,
    Kind.COMMAND: Intake.command,
    Kind.TEST: Intake.test,
    Kind.LOG: Intake.log,
    Kind.LOST: Intake.lost,
    Kind.LOOK: lambda intake, _, said: look(intake._connection, said),
    Kind.FOLLOWED: lambda intake, _, said: followed(intake._connection, said),
}
