"""The journal: real files, real processes, a full disk."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from repotrace import journal as journal_module
from repotrace.journal import Journal, new_id, new_run_id
from repotrace.redact import Redactor

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def lines(folder: Path) -> list[dict[str, Any]]:
    """All events in a folder but those about writers."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().split(b"\n")[:-1]:
            event = json.loads(line)
            if event["kind"] not in ("writer", "closed"):
                found.append(event)
    return found


# --- Ids ----------------------------------------------------------------------------------


def test_ids_sort_by_time_and_are_unique() -> None:
    ids = [new_id() for _ in range(20_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len({name[-16:] for name in ids}) == 20_000
    assert {len(name) for name in ids} == {32}
    assert new_id(1_700_000_000_000_000_000) < new_id(1_700_000_000_000_001_000) < ids[0]
    assert new_run_id().startswith("r")
    assert new_run_id() != new_run_id()


def test_ids_of_a_child_differ(tmp_path: Path) -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, new_id()[14:].encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 100).decode()[:10] != new_id()[14:24]
    os.close(read)
    os.close(write)


# --- Writing ------------------------------------------------------------------------------


def test_an_event_is_one_line_behind_the_name_of_its_writer(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "journal"
    journal = Journal(folder)
    assert not folder.exists()
    name = journal.write("log", "r1", {"message": "hé\n\u2028"}, now=123_456, weak=True)
    (path,) = folder.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    first, second, rest = path.read_bytes().split(b"\n")
    assert rest == b""
    writer = json.loads(first)
    assert (writer["kind"], writer["data"]["pid"]) == ("writer", os.getpid())
    assert writer["data"]["pid_started"] > 0
    assert json.loads(second) == {
        "id": name,
        "kind": "log",
        "time": 123_456,
        "data": {"message": "hé\n\u2028"},
        "run": "r1",
        "weak": True,
    }
    journal.close()
    assert json.loads(path.read_bytes().split(b"\n")[2])["kind"] == "closed"


def test_a_closed_journal_goes_on_in_a_new_file(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.write("log", "r1", {})
    journal.write("log", "r1", {})
    assert len(list(tmp_path.iterdir())) == 2


def test_a_long_file_is_followed_by_another(tmp_path: Path) -> None:
    journal = Journal(tmp_path, file_limit=2000)
    for number in range(20):
        journal.write("log", "r1", {"number": number, "text": "x" * 500})
    assert len(list(tmp_path.iterdir())) > 4
    assert sorted(event["data"]["number"] for event in lines(tmp_path)) == list(range(20))


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


def circular() -> dict[str, Any]:
    inner: dict[str, Any] = {"name": "x"}
    inner["self"] = [inner, inner]
    return inner


@pytest.mark.parametrize("redact", [None, lambda text: text], ids=["plain", "redacting"])
@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (Path("/tmp/x"), "/tmp/x"),
        (b"caf\xc3\xa9\xff", "café\\xff"),
        ({1}, [1]),
        ({("a", 1): 2}, {"('a', 1)": 2}),
        ("\udcff\ud800", "\udcff\ud800"),
        (Unprintable(), "<Unprintable, unprintable: RuntimeError>"),
        (circular(), {"name": "x", "self": ["...", "..."]}),
        (float("inf"), float("inf")),
        (10**400, 10**400),
    ],
)
def test_anything_can_be_written(tmp_path: Path, redact: Any, value: object, seen: object) -> None:
    journal = Journal(tmp_path, redact=redact)
    journal.write("log", "r1", {"value": value})
    assert lines(tmp_path)[0]["data"] == {"value": seen}
    assert journal.lost == 0


def test_endless_nesting_is_cut_off(tmp_path: Path) -> None:
    deep: Any = "end"
    for _ in range(5000):
        deep = [deep]
    for redact in (None, str):
        journal = Journal(tmp_path, redact=redact)
        journal.write("log", "r1", {"value": deep})
        assert journal.lost == 0
    assert len(lines(tmp_path)) == 2


def test_long_texts_are_cut_and_say_so(tmp_path: Path) -> None:
    journal = Journal(tmp_path, text_limit=1000)
    text = "a" * 1500 + "é" * 1500
    journal.write("log", "r1", {"message": text, "data": [{"short": "x" * 900}]})
    data = lines(tmp_path)[0]["data"]
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert f"characters omitted, sha256 {digest} ...]" in data["message"]
    assert data["message"].startswith("a" * 500 + "\n[... 2000 of 3000 characters omitted, sha256 ")
    assert data["message"].endswith(" ...]\n" + "é" * 500)
    assert data["data"] == [{"short": "x" * 900}]


def test_threads_share_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path, file_limit=20_000)
    start = threading.Barrier(8)

    def work(thread: int) -> None:
        start.wait()
        for number in range(200):
            journal.write("log", "r1", {"n": thread * 1000 + number})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    found = [event["data"]["n"] for event in lines(tmp_path)]
    assert sorted(found) == [thread * 1000 + n for thread in range(8) for n in range(200)]
    assert journal.lost == 0


def test_a_child_writes_a_file_of_its_own(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("log", "r1", {"who": "parent"})
    pid = os.fork()
    if pid == 0:
        journal.write("log", "r1", {"who": "child"})
        os._exit(0)
    os.waitpid(pid, 0)
    journal.write("log", "r1", {"who": "parent"})
    by_file = [
        {json.loads(line)["data"].get("who") for line in path.read_bytes().splitlines()}
        for path in tmp_path.iterdir()
    ]
    assert sorted(by_file, key=str) == [{None, "child"}, {None, "parent"}]


# --- Redaction ----------------------------------------------------------------------------


def test_no_secret_reaches_the_file(tmp_path: Path) -> None:
    variables = {"API_TOKEN": "correct-horse-battery-staple"}
    redactor = Redactor(key=b"k" * 32, variables=variables)
    journal = Journal(tmp_path, redact=redactor.redact)
    data = {
        "prompt": f"use {SECRET} please",
        "messages": [{"role": "user", "content": [{"text": f"line\n{SECRET}\n"}]}],
        "metadata": {"password": "hunter2-and-more", SECRET: 1, "n": {"tuple": (SECRET,)}},
        "object": Path(f"/x/{SECRET}"),
        "bytes": SECRET.encode(),
        "env": "correct-horse-battery-staple",
        "clean": "nothing here",
    }
    journal.write("log", "r1", data)
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for secret in (SECRET, "hunter2-and-more", "correct-horse-battery-staple"):
        assert secret.encode() not in raw
    found = lines(tmp_path)[0]["data"]
    assert found["clean"] == "nothing here"
    assert found["prompt"].startswith("use [REDACTED:")
    assert found["metadata"]["password"].startswith("[REDACTED:")
    assert data["env"] == "correct-horse-battery-staple"


def test_a_broken_redactor_costs_the_text_and_not_the_event(tmp_path: Path) -> None:
    def broken(text: str) -> str:
        if SECRET in text:
            raise RuntimeError
        return text

    journal = Journal(tmp_path, redact=broken)
    journal.write("log", "r1", {"a": SECRET, "b": "fine", "c": [1, SECRET]})
    assert lines(tmp_path)[0]["data"] == {
        "a": "[REDACTED:fault]",
        "b": "fine",
        "c": [1, "[REDACTED:fault]"],
    }


# --- What cannot be written ---------------------------------------------------------------


def test_a_folder_that_cannot_be_is_said_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    journal = Journal(tmp_path / "file" / "journal")
    for _ in range(5):
        assert journal.write("log", "r1", {})
    assert journal.lost == 5
    assert capfd.readouterr().err == (
        f"repotrace: an event could not be recorded in {tmp_path}/file/journal: Not a directory."
        " The program goes on; what is lost is counted.\n"
    )
    journal.close()


def test_losses_are_told_when_something_can_be_written_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "journal").write_text("in the way")
    journal = Journal(tmp_path / "journal")
    for run in ("r1", "r2", "r1"):
        journal.write("log", run, {})
    (tmp_path / "journal").unlink()
    journal.write("log", "r3", {"message": "through"})
    told = [(event["kind"], event["run"], event["data"].get("count")) for event in
            lines(tmp_path / "journal")]  # fmt: skip
    assert told == [("lost", "r1", 2), ("lost", "r2", 1), ("log", "r3", None)]
    assert capfd.readouterr().err.count("\n") == 1


FULL_DISK = """
import os, sys
from repotrace.journal import Journal
journal = Journal(sys.argv[1])
filler = os.path.join(sys.argv[1], "filler")
journal.write("log", "r1", {"n": -1})
file = os.open(filler, os.O_WRONLY | os.O_CREAT)
try:
    while True: os.write(file, b"x" * 4096)
except OSError: os.close(file)
for number in range(300):
    journal.write("log", "r1", {"n": number, "text": "x" * 700})
lost = journal.lost
os.unlink(filler)
for number in range(300, 310):
    journal.write("log", "r1", {"n": number})
print(lost, journal.lost)
"""


def can_mount(tmp_path: Path) -> bool:
    probe = ["unshare", "-m", "sh", "-c", f"mount -t tmpfs -o size=64k none {tmp_path}"]
    try:
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def test_a_full_disk_does_not_break_the_program(tmp_path: Path) -> None:
    if not can_mount(tmp_path):
        pytest.skip("may not mount a small file system")
    mount = tmp_path / "disk"
    mount.mkdir()
    (tmp_path / "program.py").write_text(FULL_DISK)
    script = (
        f"mount -t tmpfs -o size=128k none {mount}"
        f" && {shlex.quote(sys.executable)} {tmp_path}/program.py {mount}"
        f" && cp {mount}/*.jsonl {tmp_path}"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=True
    )
    lost, in_all = map(int, done.stdout.split())
    assert lost == in_all
    assert 200 < lost <= 300
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr
    (path,) = tmp_path.glob("*.jsonl")
    told, garbage = [], 0
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            told.append(json.loads(line))
        except ValueError:
            garbage += 1
    numbers = [event["data"]["n"] for event in told if event["kind"] == "log"]
    assert numbers[-10:] == list(range(300, 310))
    assert [event["data"]["count"] for event in told if event["kind"] == "lost"] == [lost]
    assert len(numbers) == 311 - lost
    assert garbage <= 1


# --- Alone --------------------------------------------------------------------------------


def test_it_is_loadable_without_its_package(tmp_path: Path) -> None:
    script = (
        "import importlib.util, sys\n"
        "spec = importlib.util.spec_from_file_location('alone', sys.argv[1])\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "module.Journal(sys.argv[2]).write('log', 'r1', {'message': 'alone'})\n"
        "print([name for name in sys.modules if 'repotrace' in name or 'pydantic' in name])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(journal_module.__file__), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
    assert lines(tmp_path)[0]["data"] == {"message": "alone"}
    assert importlib.util.find_spec("repotrace.journal") is not None
