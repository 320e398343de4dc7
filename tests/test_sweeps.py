"""Sweeps in the formats that other programs read."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reporting import cannot_run, command_run, result_of

from repotrace.records.replay import ReplaySummary
from repotrace.report import format_replays
from repotrace.sweeps import (
    as_expected,
    format_github,
    format_junit,
    format_plain,
    sweep_json,
    sweep_text,
)

RUN = command_run()
SAME = result_of(RUN, RUN)
FIXED = result_of(
    RUN, command_run(exit_code=0, stdout="fine\x1b[0m\n"), report_id="aaaaaaaaaaaa", title="A & <B>"
)
SWEEP = ReplaySummary.of([SAME, FIXED, cannot_run()], [("broken", "not valid JSON: line 1")])


def test_junit() -> None:
    root = ElementTree.fromstring(format_junit(SWEEP))
    (suite,) = root
    assert suite.attrib == {
        "name": "repotrace replay-all", "tests": "4", "failures": "1", "errors": "2", "skipped": "0"
    }  # fmt: skip
    cases = {case.attrib["name"]: list(case) for case in suite}
    assert list(cases) == ["5303b4f97c12", "aaaaaaaaaaaa", "0123456789ab", "broken"]
    assert cases["5303b4f97c12"] == []
    (failure,) = cases["aaaaaaaaaaaa"]
    assert failure.tag == "failure"
    assert failure.attrib == {
        "message": "fixed: exit code 7 -> 0, stdout differs", "type": "fixed"
    }  # fmt: skip
    assert failure.text == (
        "A & <B>\nfixed: exit code 7 -> 0, stdout differs\n"
        "@@ stdout: expected (-) and observed (+) @@\n-boom\n+fine\n"
    )
    assert [cases[name][0].tag for name in ("0123456789ab", "broken")] == ["error", "error"]
    assert cases["broken"][0].attrib["message"] == "not valid JSON: line 1"
    assert {case.attrib["time"] for case in suite} == {"0.030", "0.000"}


@settings(max_examples=150, deadline=None)
@given(st.text(), st.text(), st.binary())
def test_junit_survives_any_character(title: str, reason: str, output: bytes) -> None:
    other = command_run(stdout=output.decode("utf-8", "replace"), exit_code=1)
    result = result_of(RUN, other, title=title, detail=reason, report_id=title)
    text = format_junit(ReplaySummary.of([result], [(title, reason)]))
    suite = ElementTree.fromstring(text.encode("utf-8"))[0]
    assert len(suite) == 2


def test_junit_shows_control_characters() -> None:
    result = cannot_run("\x00\x1b\ufffe\ud800", title="a\x08b\x0cc")
    text = format_junit(ReplaySummary.of([result]))
    error = ElementTree.fromstring(text.encode("utf-8"))[0][0][0]
    assert error.attrib["message"] == "␀␛\\ufffe\\ud800"
    assert str(error.text).startswith("a␈b␌c\n")


def test_github() -> None:
    assert format_github(SWEEP).splitlines() == [
        "::error title=replay aaaaaaaaaaaa::differs: fixed: exit code 7 -> 0, stdout differs",
        "::error title=replay 0123456789ab::cannot-run: needs OPENAI_API_KEY",
        "::error title=replay broken::unreadable: not valid JSON: line 1",
        "replayed 4, reproduced 1, differs 1, failed 2, reproducibility 25%",
    ]


def test_github_escapes_what_would_end_or_forge_a_command() -> None:
    result = cannot_run("100% of it\n::error::x\r", report_id="a:b,c%")
    assert format_github(ReplaySummary.of([result])).splitlines()[0] == (
        "::error title=replay a%3Ab%2Cc%25::cannot-run: 100%25 of it ::error::x"
    )


def test_json() -> None:
    view = sweep_json(SWEEP)
    assert {name: view[name] for name in view if name not in ("results", "unreadable")} == {
        "schema_version": 1, "total": 4, "matched": 1, "differed": 1, "failed": 2,
        "reproducible": 0.25,
    }  # fmt: skip
    assert view["unreadable"] == [{"name": "broken", "problem": "not valid JSON: line 1"}]
    assert [(row["report_id"], row["outcome"], row["verdict"]) for row in view["results"]] == [
        ("5303b4f97c12", "matched", "same"),
        ("aaaaaaaaaaaa", "differs", "fixed"),
        ("0123456789ab", "differs", "cannot-run"),
    ]
    assert json.loads(sweep_text(SWEEP, "json")) == view


def test_json_of_a_title_that_is_no_unicode() -> None:
    summary = ReplaySummary.of([cannot_run(title="a\ud800 \udcffé")])
    text = sweep_text(summary, "json")
    assert "é" in text.encode("utf-8").decode("utf-8")
    assert json.loads(text)["results"][0]["title"] == "a\ud800 \udcffé"


def test_plain() -> None:
    assert format_plain(SWEEP).splitlines() == [
        "5303b4f97c12\tmatched\t7\tno differences",
        "aaaaaaaaaaaa\tdiffers\t0 (success)\tfixed: exit code 7 -> 0, stdout differs",
        "0123456789ab\tcannot-run\t—\tneeds OPENAI_API_KEY",
        "broken\tunreadable\t—\tnot valid JSON: line 1",
        "replayed 4, reproduced 1, differs 1, failed 2, reproducibility 25%",
    ]
    assert sweep_text(SWEEP, "table") == format_plain(SWEEP)
    assert sweep_text(SWEEP, "markdown") == format_replays(SWEEP)
    with pytest.raises(KeyError):
        sweep_text(SWEEP, "html")


def test_a_gate_wants_closed_reports_not_to_fail() -> None:
    back = SAME.model_copy(update={"status": "Closed", "report_id": "back"})
    gone = FIXED.model_copy(update={"status": "fixed", "report_id": "gone"})
    summary = ReplaySummary.of([SAME, back, gone, cannot_run(status="closed")])
    assert [as_expected(result, gate=True) for result in summary.results] == [
        True, False, True, False
    ]  # fmt: skip
    assert [as_expected(result) for result in summary.results] == [True, True, False, False]
    suite = ElementTree.fromstring(format_junit(summary, gate=True))[0]
    assert (suite.attrib["failures"], suite.attrib["errors"]) == ("1", "1")
    assert [len(case) for case in suite] == [0, 1, 0, 1]
    assert suite[1][0].attrib["message"] == "closed, but reproduced: no differences"
    assert format_github(summary, gate=True).splitlines()[0] == (
        "::error title=replay back::matched: closed, but reproduced: no differences"
    )
    assert sweep_text(summary, "junit", gate=True) == format_junit(summary, gate=True)
