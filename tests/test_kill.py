"""The script that users run to see a recording survive, with small numbers; and what it found."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import clean_environment

from repotrace.records.events import Kind
from repotrace.storage import Store

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def script() -> Any:
    """`examples/kill_test.py` as a module."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module("kill_test")
    finally:
        sys.path.remove(str(EXAMPLES))


def holds(found: Any) -> bool:
    """Whether a check held; said in full by the assertion if not."""
    if found.skipped:
        pytest.skip(found.skipped)
    assert found.wrong == []
    return bool(found.counts["expectations"])


# --- The checks -----------------------------------------------------------------------------


def test_programs_that_are_killed_keep_all_that_they_were_told_of(
    script: Any, tmp_path: Path
) -> None:
    found = script.kill_programs(tmp_path, 8, seed=os.getpid())
    assert holds(found)
    assert found.counts["kills"] == 8
    assert found.counts["ended"] > 0


def test_many_writers_and_a_reader_that_dies(script: Any, tmp_path: Path) -> None:
    found = script.many_writers(tmp_path, 8, 25, seed=os.getpid())
    assert holds(found)
    assert found.counts["readers killed"] > 0


def test_a_full_disk_breaks_nothing_and_is_told(script: Any, tmp_path: Path) -> None:
    found = script.full_disk(tmp_path, 120)
    assert holds(found)
    assert found.counts["lost"] > 0


def test_no_secret_reaches_journal_or_database(script: Any, tmp_path: Path) -> None:
    assert holds(script.plant_secrets(tmp_path))


def test_odd_journals_lose_and_double_nothing(script: Any, tmp_path: Path) -> None:
    assert holds(script.odd_journals(tmp_path))


@pytest.mark.slow
def test_200_kills(script: Any, tmp_path: Path) -> None:
    assert holds(script.kill_programs(tmp_path, 200, seed=1))


@pytest.mark.slow
def test_8_writers_of_500_steps(script: Any, tmp_path: Path) -> None:
    assert holds(script.many_writers(tmp_path, 8, 500, seed=1))


# --- The checks can fail --------------------------------------------------------------------


def test_a_step_that_is_missing_or_changed_is_found(script: Any, tmp_path: Path) -> None:
    place, home = script.project(tmp_path / "project"), tmp_path / "home"
    said, _ = script.run_and_kill(place, home, 5, states=False, soon=None, late=0.5)
    ended = [fact["id"] for fact in said if fact["did"] == "ended"]
    assert len(ended) > 2
    (journal,) = Store(home).runs.journal.glob("*.jsonl")
    lines = journal.read_text().splitlines(keepends=True)
    events = [json.loads(line) for line in lines if line.endswith("\n")]
    kept = []
    for event in events:
        of_step = event["data"].get("id")
        if event["kind"] == Kind.STEP_ENDED and of_step == ended[0]:
            continue  # its end was never written
        if event["kind"] == Kind.STEP_ENDED and of_step == ended[1]:
            event["data"]["output_result"] = "something else"
        kept.append(json.dumps(event) + "\n")
    journal.write_text("".join(kept))
    found = script.Findings()
    script.check_killed(Store(home), 5, said, states=False, found=found)
    assert any("reads interrupted" in problem for problem in found.wrong)
    assert any("has another output" in problem for problem in found.wrong)


def test_a_secret_that_is_kept_is_found(script: Any, tmp_path: Path) -> None:
    line = {"kind": "log", "data": {"message": script.planted()["password"]}}
    (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n")
    found = script.Findings()
    script.search_journal(tmp_path, script.needles_of(script.planted()), found)
    assert [problem[:29] for problem in found.wrong] == ["password is in the journal: b"]


# --- The command ----------------------------------------------------------------------------


def run_script(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, EXAMPLES / "kill_test.py", *arguments],
        cwd=tmp_path,
        env=clean_environment(tmp_path, {"TMPDIR": str(tmp_path)}),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_script_prints_a_line_a_check_and_leaves_nothing(tmp_path: Path) -> None:
    done = run_script(tmp_path, "--quick", "--only", "journal")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"journal  fine     50 steps, each once, .* \(\d+ s\)\n", done.stdout)
    assert list(tmp_path.iterdir()) == []
    done = run_script(tmp_path, "--only", "odd")
    assert done.returncode == 2
    assert "there are kill, writers, disk, secrets, journal" in done.stderr


def test_what_is_wrong_makes_it_fail(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = script.Findings(wrong=["step 7 is missing"] * 11)
    assert not script.report("kill", "{kills} programs", found, 1)
    out = capsys.readouterr().out
    assert out.startswith("kill     WRONG    0 programs  (1 s)\n         - step 7 is missing\n")
    assert out.endswith("- and 1 more\n")
