"""Does a recording survive? Kill recorded programs and see; nothing is believed, all is counted.

    python examples/kill_test.py                 # 200 kills, 8 writers of 500 steps: minutes
    python examples/kill_test.py --quick         # the same with small numbers: seconds
    python examples/kill_test.py --only kill --kills 1000 --seed 7

Needs RepoTrace and git, and pytest for a part of one check. Each line is one check with its
figures; the exit code is 0 if all of them held. The programs that are recorded stand in
`victims.py`. Everything happens in a temporary folder (`--keep` leaves it there).

What counts is what a program was told: when a call of the SDK has returned, its program says so
through a pipe, and what was said there must be in the database after a SIGKILL. Power loss is not
tried and not promised: nothing here waits for the disk.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import victims

from repotrace.journal import Journal, new_id
from repotrace.records.run import ExecutionStep
from repotrace.storage import Store
from repotrace.storage.texts import decompress

VICTIMS = victims.__file__
PIPE = 8 << 10
TOO_SMALL = 3 << 20
"""Bytes of the disk that gets full."""


@dataclass
class Findings:
    """What a check counted, and what was wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    skipped: str | None = None

    def expect(self, held: object, problem: str) -> None:
        """Note a problem unless `held`."""
        self.counts["expectations"] += 1
        if not held:
            self.wrong.append(problem)

    def merge(self, other: Findings) -> None:
        """Take what another one counted."""
        self.counts += other.counts
        self.wrong += other.wrong
        self.skipped = self.skipped or other.skipped


def environment(home: Path, **more: str) -> dict[str, str]:
    """Ours without anything of RepoTrace, recording to `home`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REPOTRACE_")}
    return kept | {"REPOTRACE_HOME": str(home)} | more


def project(folder: Path) -> Path:
    """A small git repository."""
    folder.mkdir(parents=True)
    (folder / "README").write_text("a project\n")
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "start"]):
        subprocess.run([*command, *arguments], cwd=folder, check=True)
    return folder


def check_database(home: Path, found: Findings) -> None:
    """SQLite's own opinion."""
    with closing(sqlite3.connect(home / "runs.db")) as connection:
        said = connection.execute("PRAGMA integrity_check").fetchall()
        broken = connection.execute("PRAGMA foreign_key_check").fetchall()
    found.expect(said == [("ok",)] and not broken, f"the database is damaged: {said} {broken}")


# --- Programs are killed --------------------------------------------------------------------


def kill_programs(folder: Path, kills: int, seed: int) -> Findings:
    """Kill `kills` programs at random moments; what they were told of must all be there."""
    home, lanes = folder / "home", 3
    found, guard = Findings(), threading.Lock()
    chance = random.Random(seed)
    moments = [(number, chance.random(), chance.random()) for number in range(kills)]
    places = [project(folder / f"project{lane}") for lane in range(lanes)]

    def lane_of(lane: int) -> None:
        for number, early, late in moments[lane::lanes]:
            name = seed * 1_000_000 + number
            # Most die at work, some while they start.
            soon = early * 0.5 if number % 5 == 0 else None
            with_states = number % 2 == 0
            said, errors = run_and_kill(
                places[lane], home, name, states=with_states, soon=soon, late=late * 0.4
            )
            one = Findings(Counter(kills=1))
            one.expect("Traceback" not in errors, f"program {name} failed: {errors}")
            with guard:
                check_killed(Store(home), name, said, states=with_states, found=one)
                found.merge(one)

    with ThreadPoolExecutor(lanes) as pool:
        list(pool.map(lane_of, range(lanes)))
    store = Store(home)
    # A program that died before its first line left a file that goes after a minute.
    left = [path for path in store.runs.journal.glob("*.jsonl") if b"\n" in path.read_bytes()]
    found.expect(not left, f"journal files are left: {left}")
    torn = store.runs.losses() + sum(run.totals.lost for run in store.runs.list())
    found.counts["torn"] = torn
    found.expect(torn <= kills, f"{torn} events are counted as lost, more than one a kill")
    check_database(home, found)
    return found


def run_and_kill(
    place: Path, home: Path, name: int, *, states: bool, soon: float | None, late: float
) -> tuple[list[dict[str, Any]], str]:
    """What the program said until it was killed, and its stderr.

    It dies `soon` after it was started, or `late` seconds after its first word.
    """
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, VICTIMS, "agent", str(writing), str(place), str(name),
             "states" if states else "none"],
            cwd=place, env=environment(home), pass_fds=[writing], stderr=errors,
        )  # fmt: skip
        os.close(writing)
        said, deadline = bytearray(), None if soon is None else time.monotonic() + soon
        while deadline is None or time.monotonic() < deadline:
            wait = None if deadline is None else max(deadline - time.monotonic(), 0)
            if select.select([reading], [], [], wait)[0]:
                chunk = os.read(reading, 1 << 16)
                if not chunk:
                    break
                said += chunk
                deadline = deadline or time.monotonic() + late
        process.send_signal(signal.SIGKILL)
        process.wait()
        while chunk := os.read(reading, 1 << 16):
            said += chunk
        os.close(reading)
        errors.seek(0)
        text = errors.read().decode()
    return [json.loads(line) for line in said.splitlines()], text


def check_killed(
    store: Store, name: int, said: list[dict[str, Any]], *, states: bool, found: Findings
) -> None:
    """Compare what is in the database with what the program was told of."""
    done = store.runs.ingest(wait=True)
    found.expect(done.problem is None, f"cannot be read: {done.problem}")
    if not said:
        found.counts["before the first step"] += 1
        return
    run_id = said[0]["run"]
    run = store.runs.get(run_id)
    found.expect(run.status == "interrupted", f"run {run_id} reads {run.status}")
    steps = {step.id: step for step in store.runs.steps(run_id)}
    numbers = sorted(step.step_number for step in steps.values())
    found.expect(numbers == list(range(1, len(steps) + 1)), f"numbers of {run_id}: {numbers}")
    logs = {entry.id: entry.message for entry in store.runs.logs(run_id)}
    calls = {call.id: call.response for call in store.runs.interactions(run_id)}
    ended = {fact["id"] for fact in said if fact["did"] == "ended"}
    last = said[-1]
    for fact in said:
        number, what = fact["step"], f"{fact['did']} {fact['step']} of {run_id}"
        found.counts[fact["did"]] += 1
        if fact["did"] == "logged":
            same = logs.get(fact["id"]) == victims.words(name, number, "log")
            found.expect(same, f"{what} is not as it was said")
        elif fact["did"] == "called":
            same = calls.get(fact["id"]) == victims.words(name, number, "answer")
            found.expect(same, f"{what} is not as it was said")
        elif (step := steps.get(fact["id"])) is None:
            found.expect(False, f"{what} is missing")
        elif fact["did"] == "ended":
            check_ended(store, step, name, fact, found, states=states)
        elif step.id not in ended:
            # The kill may have come between the last record and the word of it.
            may_be_over = fact is last or fact["id"] == open_at(said)
            allowed = ("interrupted", "completed") if may_be_over else ("interrupted",)
            found.expect(step.status in allowed, f"{what} reads {step.status}")
            found.counts["interrupted"] += step.status == "interrupted"


def open_at(said: list[dict[str, Any]]) -> str | None:
    """The innermost step that was going on when the program died."""
    going: list[str] = []
    for fact in said:
        if fact["did"] == "started":
            going.append(fact["id"])
        elif fact["did"] == "ended":
            going.remove(fact["id"])
    return going[-1] if going else None


def check_ended(
    store: Store,
    step: ExecutionStep,
    name: int,
    fact: dict[str, Any],
    found: Findings,
    *,
    states: bool,
) -> None:
    """A step that was told to be over."""
    number, what = fact["step"], f"step {fact['step']} of {step.run_id}"
    found.expect(step.status == "completed", f"{what} reads {step.status}")
    output = victims.words(name, number, "output")
    found.expect(step.output_result == output, f"{what} has another output")
    if number > 0:
        given = victims.words(name, number, "input")
        found.expect(step.input_context == given, f"{what} has another input")
    if states and fact.get("kind") == "edit":
        found.counts["states"] += 1
        content = store.snapshots.read(step.state_id or "", f"file{number % 3}.txt")
        same = content == victims.words(name, number, "file").encode()
        found.expect(same, f"{what} has no state, or another one ({step.state_reason})")


# --- Many processes write into one run ------------------------------------------------------


def many_writers(folder: Path, writers: int, steps: int, seed: int) -> Findings:
    """Processes, threads and forks write into one run; its readers are killed meanwhile."""
    home, place, found = folder / "home", project(folder / "project"), Findings()
    store, chance = Store(home), random.Random(seed)
    process = subprocess.Popen(
        [sys.executable, VICTIMS, "conductor", str(place), str(writers), str(steps)],
        cwd=place, env=environment(home),
    )  # fmt: skip
    numbers: dict[str, int] = {}
    while process.poll() is None:
        reader = os.fork()
        if reader == 0:
            try:
                while True:
                    store.runs.ingest(wait=True)
            finally:
                os._exit(1)
        time.sleep(chance.random() * 0.2)
        os.kill(reader, signal.SIGKILL)
        os.waitpid(reader, 0)
        found.counts["readers killed"] += 1
        look_at_numbers(store, numbers, found)
    found.expect(process.returncode == 0, f"the programs ended with {process.returncode}")
    done = store.runs.ingest(wait=True)
    found.expect(done.problem is None, f"cannot be read: {done.problem}")
    look_at_numbers(store, numbers, found)
    (run,) = store.runs.list()
    there = store.runs.steps(run.id)
    names = Counter(step.description for step in there)
    wanted = {f"writer {w} step {s}": 1 for w in range(writers) for s in range(steps)}
    found.counts.update(steps=len(there), writers=writers)
    found.expect(names == wanted, f"{len(names)} of {len(wanted)} steps, {len(there)} rows")
    found.expect(
        sorted(numbers.values()) == list(range(1, writers * steps + 1)), "numbers have gaps"
    )
    found.expect(run.status == "completed", f"the run reads {run.status}")
    found.expect({step.status for step in there} == {"completed"}, "not all steps are completed")
    messages = Counter(entry.message for entry in store.runs.logs(run.id))
    found.expect(
        messages == {f"message {w}.{s}": 1 for w in range(writers) for s in range(steps)},
        "messages are missing or doubled",
    )
    lost = store.runs.losses() + run.totals.lost
    found.expect(not lost, f"{lost} events are counted as lost")
    check_database(home, found)
    return found


def look_at_numbers(store: Store, numbers: dict[str, int], found: Findings) -> None:
    """The numbers of steps are never given anew."""
    for run in store.runs.list():
        for step in store.runs.steps(run.id):
            known = numbers.setdefault(step.id, step.step_number)
            found.expect(known == step.step_number, f"step {known} became {step.step_number}")
    found.counts["looks"] += 1


# --- The disk is full -----------------------------------------------------------------------


def full_disk(folder: Path, steps: int) -> Findings:
    """Record to a disk without room: in a mount of our own, where that is allowed."""
    disk, results = folder / "disk", folder / "results.json"
    disk.mkdir()
    inside = [sys.executable, __file__, "--inside", str(folder), "--steps", str(steps)]
    mount = f"mount -t tmpfs -o size={TOO_SMALL} none {disk} && exec " + '"$@"'
    said = "there is no unshare"
    # As a user in a namespace of our own, else as root.
    for how in ("-Urm", "-m") if shutil.which("unshare") else ():
        command = ["unshare", how, "sh", "-c", mount, "sh", *inside]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if results.exists():
            break
        said = done.stderr.strip()
        if "Traceback" in said:
            return Findings(wrong=[said])
    else:
        return Findings(skipped=f"no small disk can be mounted here: {said}")
    told = json.loads(results.read_text())
    return Findings(Counter(told["counts"]), told["wrong"])


def inside_full_disk(folder: Path, steps: int) -> Findings:
    """As `full_disk`, once the small disk is there."""
    found, disk, place = Findings(), folder / "disk", project(folder / "project")
    parts: dict[str, Callable[[Path], None]] = {
        "recording": lambda home: full_while_recording(home, place, steps, found),
        "ingesting": lambda home: full_while_ingesting(home, steps, found),
        "states": lambda home: full_while_taking_states(home, place, found),
    }
    for name, part in parts.items():
        try:
            part(disk / name)
        except Exception:
            found.wrong.append(f"{name}: {traceback.format_exc()}")
        for left in disk.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    return found


def fill(disk: Path, *, free: int) -> Path:
    """A file that leaves so many bytes of the disk."""
    path, room = disk / "ballast", os.statvfs(disk)
    path.write_bytes(bytes(max(room.f_bavail * room.f_frsize - free, 0)))
    return path


def starve(arguments: list[str], home: Path, place: Path, ballast: Path) -> tuple[int, str, str]:
    """Run a program until it waits for room, make room, and let it end."""
    reading, writing = os.pipe()
    name, *rest = arguments
    process = subprocess.Popen(
        [sys.executable, VICTIMS, name, str(writing), str(place), *rest],
        cwd=place, env=environment(home), pass_fds=[writing], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(writing)
    os.read(reading, PIPE)
    ballast.unlink()
    out, errors = process.communicate("go on\n")
    os.close(reading)
    return process.returncode, out, errors


def full_while_recording(home: Path, place: Path, steps: int, found: Findings) -> None:
    """The program is right, is warned once, and what is lost is counted to the event."""
    ballast = fill(home.parent, free=400_000)
    code, out, errors = starve(["unlucky", str(steps)], home, place, ballast)
    sum_is = f"the sum is {steps * (steps - 1) // 2}\n"
    found.expect((code, out) == (3, sum_is), f"the program ended with {code}: {out}{errors}")
    lines = [line for line in errors.splitlines() if line.startswith("repotrace:")]
    found.expect(len(lines) == 1, f"not one warning: {errors!r}")
    found.expect(errors.strip() == "".join(lines), f"more than warnings: {errors!r}")
    store = Store(home)
    done = store.runs.ingest(wait=True)
    found.expect(done.problem is None, f"cannot be read: {done.problem}")
    run = store.runs.get()
    there = store.runs.steps(run.id)
    # Each step is an event at its start, one at its end, and a message.
    present = sum((step.input_context is not None) + (step.completed_at is not None)
                  for step in there) + len(store.runs.logs(run.id))  # fmt: skip
    found.counts.update(events=3 * steps, lost=run.totals.lost)
    found.expect(run.totals.lost, "no loss is counted")
    found.expect(
        present + run.totals.lost == 3 * steps,
        f"{present} events are there, {run.totals.lost} counted as lost, of {3 * steps}",
    )
    found.expect({f"step {steps - 1}", "step 0"} <= {step.description for step in there}, "ends")
    found.expect(run.status == "completed", f"the run reads {run.status}")
    shown = subprocess.run(
        [sys.executable, "-m", "repotrace", "runs", "show"],
        cwd=place, env=environment(home), capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = f"{run.totals.lost} events lost"
    found.expect(
        said in shown.stdout.replace(",", ""),
        f"the loss is not shown:\n{shown.stdout}{shown.stderr}",
    )
    check_database(home, found)


def full_while_ingesting(home: Path, steps: int, found: Findings) -> None:
    """What the database has no room for stays in the journal."""
    store, run_id = Store(home), "r0123456789ab"
    with Journal(store.runs.journal) as journal:
        journal.write("run_started", run_id, {"task": "to be ingested"})
        for number in range(steps):
            text = random.Random(number).randbytes(600).hex()
            journal.write("step_started", run_id, {"id": f"s{number}", "input_context": text})
            journal.write("step_ended", run_id, {"id": f"s{number}"})
        journal.write("run_ended", run_id, {})
    ballast = fill(home.parent, free=200_000)
    for _ in range(3):
        done = store.runs.ingest(wait=True)
        found.expect(done.problem and "full" in done.problem, f"no complaint: {done}")
    ballast.unlink()
    done = store.runs.ingest(wait=True)
    found.expect(done.problem is None, f"cannot be read: {done.problem}")
    there = [step.status for step in store.runs.steps(run_id)]
    found.expect(there == ["completed"] * steps, f"{len(there)} of {steps} steps")
    found.expect(not store.runs.get(run_id).totals.lost, "something is counted as lost")
    check_database(home, found)


def full_while_taking_states(home: Path, place: Path, found: Findings) -> None:
    """A state for which there is no room is missing, and said so; the next one is exact."""
    ballast = fill(home.parent, free=1_000_000)
    code, out, errors = starve(["editor"], home, place, ballast)
    found.expect((code, out) == (0, "edited\n"), f"the program ended with {code}: {out}{errors}")
    store = Store(home)
    done = store.runs.ingest(wait=True)
    found.expect(done.problem is None and done.runs, f"nothing is read: {done} {errors}")
    large, small = store.runs.steps(store.runs.get().id)
    found.expect(large.status == small.status == "completed", "a step did not end")
    missing = large.state_quality == "missing" and large.state_id is None and large.state_reason
    found.expect(missing, f"the first state is {large.state_quality}: {large.state_reason}")
    found.expect(small.state_quality == "exact", f"the second state is {small.state_quality}")
    if small.state_id:
        content = store.snapshots.read(small.state_id, "small.txt")
        found.expect(content == b"small\n", f"the second state holds {content!r}")
        said = store.snapshots.git(["fsck", "--full", "--strict", "--no-dangling"]).decode()
        found.expect(not said.strip(), f"git fsck: {said}")
    check_database(home, found)


# --- Secrets --------------------------------------------------------------------------------


def planted() -> dict[str, str]:
    """Fakes, put together here so that no scanner takes this file for a leak."""
    mixed = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY" * 3
    lines = "\n".join(mixed[n : n + 60] for n in range(0, 30, 5))
    return {
        "token": "gh" + "p_" + mixed[:36],
        "model": "sk" + "-ant-api03-" + mixed[:93] + "AA",
        "cloud": "AK" + "IA" + "QWERTYUIOP234567",
        "password": "correct-horse-battery-staple",
        "private_key": f"-----BEGIN PRIVATE KEY-----\n{lines}\n-----END PRIVATE KEY-----",
        "bearer": "Authorization: Bearer " + mixed[7:47],
        "url": "https://ada:" + "s3cretEnough42" + "@db.example.org/x",
        # Told by nothing but the name that it goes by, and by a variable that is set late.
        "named": "Tr0ub4dor-" + "3xKq9vLm",
        "loaded": "lAte-" + "c0mer-9Xw4",
    }


def plant_secrets(folder: Path) -> Findings:
    """A program says secrets everywhere; none of their bytes reach the journal or the database."""
    home, place, found, secrets = folder / "home", project(folder / "project"), Findings(), {}
    secrets = planted()
    needles = needles_of(secrets)
    kept = folder / "journal"
    env = environment(home, DEPLOY_PASSWORD=secrets["password"])
    done = subprocess.run(
        [sys.executable, VICTIMS, "careless", str(place)],
        cwd=place, env=env, input=json.dumps(secrets), text=True, capture_output=True, check=False,
    )  # fmt: skip
    found.expect(done.returncode == 0, f"the program failed: {done.stderr}")
    store = Store(home)
    shutil.copytree(store.runs.journal, kept)
    search_journal(kept, needles, found)
    done_reading = store.runs.ingest(wait=True)
    found.expect(done_reading.problem is None, f"cannot be read: {done_reading.problem}")
    run = store.runs.get()
    # Contents are read from the states, which keep files as they are.
    contents = {"__all__": {"content_before", "content_after"}}
    trace = store.runs.trace(run.id).model_dump_json(exclude={"file_operations": contents})
    shown = trace + run.model_dump_json()
    found.counts["masked"] = shown.count("[REDACTED:")
    found.expect(found.counts["masked"] > 50, "hardly anything was masked")
    for name, needle in needles.items():
        found.expect(needle not in shown.encode(), f"{name} is read back")
    for name, data in database_bytes(home):
        found.counts["bytes"] += len(data)
        for secret, needle in needles.items():
            found.expect(needle not in data, f"{secret} is in {name}")
    # The files are kept as they are, or replaying and restoring would be lies.
    states = [step.state_id for step in store.runs.steps(run.id) if step.state_id]
    content = store.snapshots.read(states[-1], "settings.env") if states else None
    written = "\n".join(text for name, text in secrets.items() if name not in ("named", "loaded"))
    found.expect(content == written.encode(), "a state is not byte-exact")
    return found


def needles_of(secrets: dict[str, str]) -> dict[str, bytes]:
    """What of each secret must be nowhere."""
    needles = {name: text.encode() for name, text in secrets.items()}
    needles["bearer"] = secrets["bearer"].split()[-1].encode()
    needles["url"] = b"s3cretEnough42"
    needles["private_key"] = secrets["private_key"].splitlines()[2].encode()
    return needles


def search_journal(folder: Path, needles: dict[str, bytes], found: Findings) -> None:
    """Look through the inbox as it is after the program has ended, before anybody read it."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            # pytest in a foreign environment has no redactor; its lines are marked, and masked
            # when they are read.
            raw = json.loads(line).get("raw") is True
            found.counts["raw lines" if raw else "lines"] += 1
            for name, needle in needles.items():
                found.expect(raw or needle not in line, f"{name} is in the journal: {line!r}")


def database_bytes(home: Path) -> Iterator[tuple[str, bytes]]:
    """The files of the database, and everything that is compressed in it."""
    for path in sorted(home.glob("runs.db*")):
        yield path.name, path.read_bytes()
    with closing(sqlite3.connect(home / "runs.db")) as connection:
        for number, data in connection.execute("SELECT id, data FROM blocks"):
            yield f"block {number} of texts", decompress(data)


# --- Odd journals ---------------------------------------------------------------------------


def odd_journals(folder: Path) -> Findings:
    """Torn and garbage lines, a file that comes twice, a clock that goes back."""
    found, home, run_id = Findings(), folder / "home", "rabcdefabcdef"
    store = Store(home)
    inbox, hour = store.runs.journal, 3600 * 10**9
    now = time.time_ns()
    with Journal(inbox) as journal:
        journal.write("run_started", run_id, {"task": "odd"}, now=now)
        for number in range(50):
            # From the middle on the clock is an hour behind; each step ends before it began.
            moment = now + number * 1000 - (hour if number >= 25 else 0)
            name = new_id(moment)
            facts = {"id": name, "description": f"step {number}", "input_context": "in" * 300}
            journal.write("step_started", run_id, facts, now=moment)
            journal.write("log", run_id, {"step_id": name, "message": f"log {number}"}, now=moment)
            journal.write("step_ended", run_id, {"id": name}, now=moment - 500)
        journal.write("run_ended", run_id, {}, now=now - hour)
    (path,) = inbox.glob("*.jsonl")
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    garbage = [b"\xff\xfe\x00garbage\n", b'{"id": "torn", "kind": "log"\n', b"\n", b"[]\n"]
    chance = random.Random(3)
    for extra in garbage:
        lines.insert(chance.randrange(1, len(lines) - 1), extra)
    path.write_bytes(b"".join(lines))
    shutil.copy(path, inbox / "copy.jsonl")
    store.runs.ingest(wait=True)
    shutil.copy(path, inbox / "late.jsonl") if path.exists() else None
    (inbox / "later.jsonl").write_bytes(whole)
    (inbox / "torn.jsonl").write_bytes(whole[: len(whole) // 2 + 17])
    (inbox / "empty.jsonl").write_bytes(b"")
    done = store.runs.ingest(wait=True)
    found.expect(done.problem is None, f"cannot be read: {done.problem}")
    there = store.runs.steps(run_id)
    found.counts.update(steps=len(there), garbage=len(garbage))
    names = Counter(step.description for step in there)
    found.expect(names == {f"step {n}": 1 for n in range(50)}, f"{len(there)} steps of 50")
    numbers = [step.step_number for step in there]
    found.expect(numbers == list(range(1, 51)), f"numbers: {numbers}")
    found.expect({step.status for step in there} == {"completed"}, "not all are completed")
    messages = Counter(entry.message for entry in store.runs.logs(run_id))
    found.expect(messages == {f"log {n}": 1 for n in range(50)}, "messages differ")
    run = store.runs.get(run_id)
    found.expect(run.status == "completed", f"the run reads {run.status}")
    found.expect(store.runs.losses() + run.totals.lost >= 3, "the garbage is not counted")
    for arguments in ("runs show", "runs list --all-worktrees", "play --step 30"):
        shown = subprocess.run(
            [sys.executable, "-m", "repotrace", *arguments.split()],
            cwd=folder, env=environment(home), capture_output=True, text=True, check=False,
        )  # fmt: skip
        found.expect(shown.returncode == 0, f"{arguments}: {shown.stdout}{shown.stderr}")
    check_database(home, found)
    return found


# --- All of them ----------------------------------------------------------------------------


def checks(options: argparse.Namespace) -> dict[str, tuple[str, Callable[[Path], Findings]]]:
    """Each check: what it says of its counts, and how it is done."""
    quick = options.quick
    kills = max(options.kills if options.kills is not None else 12 if quick else 200, 1)
    steps, disk_steps = (40, 150) if quick else (500, 600)
    return {
        "kill": (
            "{kills} programs killed: {started} steps begun, {ended} ended, {logged} messages,"
            " {called} model calls, {states} states all there; {interrupted} steps interrupted,"
            " {torn} torn last lines",
            lambda folder: kill_programs(folder, kills, options.seed),
        ),
        "writers": (
            "{writers} processes, {steps} steps in one run, each once;"
            " {readers killed} readers killed, numbers the same in {looks} looks",
            lambda folder: many_writers(folder, 8, steps, options.seed),
        ),
        "disk": (
            "the program was right; of {events} events {lost} lost, and counted",
            lambda folder: full_disk(folder, disk_steps),
        ),
        "secrets": (
            "{masked} secrets masked, none in {lines} lines of journal and {bytes} bytes of"
            " database; {raw lines} raw from pytest, masked when read",
            plant_secrets,
        ),
        "journal": ("{steps} steps, each once, despite {garbage} garbage lines", odd_journals),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, help="programs to kill (200; 12 with --quick)")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments")
    parser.add_argument("--quick", action="store_true", help="small numbers")
    parser.add_argument("--only", metavar="NAME", help="kill, writers, disk, secrets, journal")
    parser.add_argument("--keep", action="store_true", help="leave the temporary folder")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside:  # started by `full_disk`, in a mount of its own
        found = inside_full_disk(options.inside, options.steps)
        told = {"counts": found.counts, "wrong": found.wrong}
        (options.inside / "results.json").write_text(json.dumps(told))
        return 0
    wanted = checks(options)
    if options.only:
        if options.only not in wanted:
            parser.error(f"there is no check {options.only}; there are {', '.join(wanted)}")
        wanted = {options.only: wanted[options.only]}
    folder = Path(tempfile.mkdtemp(prefix="repotrace-kill-test-"))
    failed = 0
    try:
        for name, (says, check) in wanted.items():
            started = time.monotonic()
            place = folder / name
            place.mkdir()
            failed += not report(name, says, check(place), time.monotonic() - started)
    finally:
        if options.keep:
            print(f"kept {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


def report(name: str, says: str, found: Findings, seconds: float) -> bool:
    """Print a check's line, and what was wrong; whether nothing was."""
    verdict = "WRONG" if found.wrong else "skipped" if found.skipped else "fine"
    figures = found.skipped or says.format_map(found.counts)
    print(f"{name:<8} {verdict:<8} {figures}  ({seconds:.0f} s)", flush=True)
    for problem in itertools.islice(found.wrong, 10):
        print(f"         - {problem}")
    if len(found.wrong) > 10:
        print(f"         - and {len(found.wrong) - 10} more")
    return not found.wrong


if __name__ == "__main__":
    sys.exit(main())
