"""`runs search` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reading import Recorded, project, record
from recording import RUN, event, step
from running import Shell

from repotrace.storage import Store


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


@pytest.mark.usefixtures("recorded")
def test_nothing_found_is_explained(repotrace: Shell) -> None:
    for query, said in (
        ("outcom:passed", "outcom: is no filter and was searched for as a word; did you mean"),
        ("task:leap-of-faith", "filters are agent, cost, "),
        ("agent:fixr", "No run has agent:fixr; there are fixer."),
        ("type:edits", "No step has type:edits; there are "),
        ("==", "There is no word in the query"),
        ("-leap", "besides what must not occur"),
    ):
        done = repotrace("runs", "search", "--", query)
        assert (done.returncode, done.stdout) == (0, b"nothing found\n")
        assert said in done.stderr.decode()
        found = json.loads(repotrace("runs", "search", "--json", "--", query).stdout)
        assert said in " ".join(found["advice"])
    plain = repotrace("runs", "search", "nowhere http://example.org/x std::vector agent:fixer")
    assert plain.stderr == b""


def test_a_message_that_repeats_an_output_is_no_further_result(repotrace: Shell) -> None:
    store = Store(repotrace.cwd / ".git" / "repotrace")
    output = "collected 2 items\nE   KeyError: 'due'\n1 failed"
    told = [
        {"role": "user", "content": "There is a KeyError somewhere else"},
        {"role": "tool", "content": f"exit code 1\n{output}"},
    ]
    store.runs.add_events(
        [
            event("run_started", 0, agent="fixer"),
            *step("s1", 1, 2, step_type="tool", description="run it", output_result=output),
            event("step_started", 3, id="s2", step_type="llm", description="think"),
            event("llm", 4, step_id="s2", model="m", messages=told, response="ok"),
            event("step_ended", 5, id="s2"),
            event("run_ended", 6, status="completed"),
        ]
    )
    found = json.loads(repotrace("runs", "search", "KeyError", "--json").stdout)
    hits = {hit["field"]: hit for hit in found["hits"]}
    assert {field: hit["step"]["number"] for field, hit in hits.items()} == {
        "output_result": 1,
        "message": 2,
    }
    assert "somewhere else" in hits["message"]["snippet"]
    only = json.loads(repotrace("runs", "search", "KeyError type:llm", "--json").stdout)
    assert {hit["field"] for hit in only["hits"]} == {"message"}


def test_a_description_that_repeats_its_step_is_no_further_result(repotrace: Shell) -> None:
    store = Store(repotrace.cwd / ".git" / "repotrace")
    store.runs.add_events(
        [
            event("run_started", 0, agent="fixer"),
            *step("s1", 1, 2, step_type="llm", description="m: the leap", output_result="the leap"),
            *step("s2", 3, 4, step_type="tool", description="read the leap"),
            event("run_ended", 5, status="completed"),
        ]
    )
    found = json.loads(repotrace("runs", "search", "leap", "--json").stdout)
    fields = {(hit["step"]["number"], hit["field"]) for hit in found["hits"]}
    assert fields == {(1, "output_result"), (2, "description")}
