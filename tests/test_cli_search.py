"""`runs search` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reading import Recorded, project, record
from recording import RUN
from running import Shell


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.cwd = project(shell.cwd / "invoice")
    return shell


@pytest.fixture
def recorded(repotrace: Shell) -> Recorded:
    return record(repotrace.cwd)


@pytest.mark.usefixtures("recorded")
def test_a_result_names_run_step_and_text(repotrace: Shell) -> None:
    done = repotrace("runs", "search", "leap", "type:edit")
    head, *rest = done.stdout.decode().splitlines()
    assert head.startswith(f"{RUN}  ")
    assert any(line.startswith("  step ") and " · edit · " in line for line in rest)
    assert any("leap" in line for line in rest if line.startswith("    "))


@pytest.mark.usefixtures("recorded")
def test_the_words_are_marked_in_json(repotrace: Shell) -> None:
    found = json.loads(repotrace("runs", "search", "LEAP", "--json").stdout)
    assert found["schema_version"] == 1
    assert [run["id"] for run in found["runs"]] == [RUN]
    for hit in found["hits"]:
        assert [hit["snippet"][a:b].lower() for a, b in hit["marks"]]
        assert {hit["snippet"][a:b].lower() for a, b in hit["marks"]} == {"leap"}


@pytest.mark.usefixtures("recorded")
def test_dashes_and_quoted_arguments(repotrace: Shell) -> None:
    everything = repotrace("runs", "search", "agent:fixer").stdout
    assert everything
    assert repotrace("runs", "search", "-agent:fixer").stdout == b"nothing found\n"
    assert repotrace("runs", "search", "agent:fixer", "-agent:other").stdout == everything
    one = repotrace("runs", "search", "leap year -nowhere").stdout
    assert repotrace("runs", "search", "leap", "year", "-nowhere").stdout == one
    assert repotrace("runs", "search", "--run", "latest", "leap year").stdout == one
    phrase = json.loads(repotrace("runs", "search", "x", "file:a b.py", "--json").stdout)
    assert phrase["query"] == 'x file:"a b.py"'


@pytest.mark.usefixtures("recorded")
def test_what_makes_no_sense_is_said(repotrace: Shell) -> None:
    for words, said in (
        (["cost:much"], "no comparison"),
        (["since:long"], "no time"),
        (["--foo"], "No such option"),
        ([], "Missing argument"),
    ):
        done = repotrace("runs", "search", *words)
        assert (done.returncode, done.stdout) == (2, b"")
        assert said in done.stderr.decode()


def test_without_runs(repotrace: Shell) -> None:
    done = repotrace("runs", "search", "anything")
    assert (done.returncode, done.stdout) == (0, b"nothing found\n")


@pytest.mark.usefixtures("recorded")
def test_more_than_the_limit_is_told(repotrace: Shell) -> None:
    done = repotrace("runs", "search", "--limit", "1", "step:completed")
    assert b"--limit 5" in done.stderr
    assert len([line for line in done.stdout.splitlines() if line.startswith(b"  step")]) == 1
