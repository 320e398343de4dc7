"""`export` and `import` as a user runs them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from reading import Recorded, project, record
from recording import RUN
from running import BOOM, BOOM_ID, Shell

from repotrace.runs.export.exporting import EXPORTERS


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def recorded(repotrace: Shell) -> Recorded:
    repotrace.cwd = project(repotrace.cwd / "invoice")
    return record(repotrace.cwd)


def out(done: subprocess.CompletedProcess[bytes], code: int = 0) -> str:
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.usefixtures("recorded")
def test_a_run_is_printed_or_written(repotrace: Shell) -> None:
    printed = out(repotrace("export"))
    assert json.loads(printed)["run_id"] == RUN
    assert out(repotrace("export", RUN, "-o", "run.json")) == "wrote run.json\n"
    assert (repotrace.cwd / "run.json").read_text() == printed
    assert (repotrace.cwd / "run.json").stat().st_mode & 0o777 == 0o644
    refused = repotrace("export", "-o", "run.json")
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"--overwrite" in refused.stderr
    options = ("--from-step", "2", "--to-step", "3", "--no-llm", "--no-files", "--max-bytes", "9")
    out(repotrace("export", "-o", "run.json", "--overwrite", *options))
    part = json.loads((repotrace.cwd / "run.json").read_text())
    assert [step["step_number"] for step in part["steps"]] == [2, 3]
    assert part["left_out"]["llm"] is True
    none = repotrace("export", "--from-step", "9")
    assert (none.returncode, none.stdout) == (2, b"")


@pytest.mark.usefixtures("recorded")
def test_a_run_comes_back_elsewhere(repotrace: Shell, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    assert out(repotrace("work", "export-trace", RUN, str(file))) == f"wrote {file}\n"
    printed = out(repotrace("work", "export-trace", RUN, "--format", "json"))
    assert file.read_text() == printed
    other = tmp_path / "elsewhere"
    other.mkdir()
    told = out(repotrace("import", "--dry-run", str(file), cwd=other))
    assert told.startswith(f"would import run {RUN} from {file}\n")
    assert not (other / ".repotrace").exists()
    told = out(repotrace("import", str(file), cwd=other))
    assert told.startswith(f"imported run {RUN} from {file}\n")
    assert "6 steps, without its files" in told
    assert out(repotrace("export", RUN, cwd=other)) == printed
    found = json.loads(out(repotrace("import", "--json", str(file), cwd=other)))
    (received,) = found["received"]
    assert (received["id"], received["is_new"]) == (RUN, False)


def test_a_report_comes_back_elsewhere(repotrace: Shell, tmp_path: Path) -> None:
    repotrace("capture", *BOOM)
    file = tmp_path / "report.json"
    out(repotrace("export", BOOM_ID, "-o", str(file)))
    other = tmp_path / "elsewhere"
    other.mkdir()
    told = out(repotrace("import", str(file), cwd=other))
    assert told.startswith(f"imported report {BOOM_ID} from ")
    assert out(repotrace("export", BOOM_ID, cwd=other)) == file.read_text()
    again = out(repotrace("import", str(file), cwd=other))
    assert again == f"report {BOOM_ID} is here already; nothing was changed\n"
    changed = json.loads(file.read_text()) | {"title": "Another"}
    file.write_text(json.dumps(changed))
    told = out(repotrace("import", str(file), cwd=other))
    assert told.startswith(f"imported report {BOOM_ID}-2 from ")


@pytest.mark.usefixtures("recorded")
def test_the_newest_of_both_kinds_is_exported(repotrace: Shell) -> None:
    repotrace("capture", *BOOM)
    assert json.loads(out(repotrace("export")))["id"] == BOOM_ID
    assert json.loads(out(repotrace("export", RUN[:6])))["run_id"] == RUN
    missing = repotrace("export", "nothing-like-it")
    assert missing.returncode == 2
    assert b"No run or report matches 'nothing-like-it'" in missing.stderr
    refused = repotrace("export", BOOM_ID, "--from-step", "2")
    assert refused.returncode == 2


@pytest.mark.usefixtures("recorded")
def test_every_format_is_in_the_table(repotrace: Shell) -> None:
    helped = out(repotrace("export", "--help"))
    assert all(name in helped for name in EXPORTERS)


def test_what_cannot_be_imported_is_said(repotrace: Shell) -> None:
    bad = repotrace.cwd / "bad.json"
    bad.write_text('{"run_id": "r1", "steps": 3}')
    done = repotrace("import", "bad.json")
    assert done.returncode == 2
    assert b"bad.json is no exported run" in done.stderr
