"""JUnit reports of several runners. pytest's are made here; the others are as the runners write
them, shortened."""

# ruff: noqa: E501, RUF001 - as the runners write it

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugged import run_pytest, write_files
from test_pytest_plugin import KINDS

from repotrace.errors import RepoTraceError
from repotrace.junit import outcomes_from_junit


def read(text: str) -> list[tuple[str, str, str]]:
    found = outcomes_from_junit(text.encode())
    assert all(outcome["origin"] == "junit" for outcome in found)
    return [(data["node_id"], data.get("phase", "call"), data["outcome"]) for data in found]


@pytest.mark.parametrize("family", ["xunit1", "xunit2"])
@pytest.mark.parametrize("with_files", [True, False])
def test_a_report_of_pytest_says_what_the_plugin_says(
    tmp_path: Path, family: str, with_files: bool
) -> None:
    project = write_files(
        tmp_path / "project",
        {
            "tests/unit/test_kinds.py": KINDS,
            "tests/unit/__init__.py": "",
            "tests/__init__.py": "",
            "test_broken.py": "import nothing_of_this_name\n",
            "test_not.py": "import pytest\npytest.skip('whole', allow_module_level=True)\n",
        },
    )
    args = ("--continue-on-collection-errors", "--junit-xml=report.xml")
    said = run_pytest(project, *args, "-o", f"junit_family={family}")

    def seen(data: Any) -> tuple[str, str, str, str | None]:
        # A report knows neither in which phase a test was skipped nor that it passed unexpectedly.
        phase = "call" if data["outcome"] in ("skipped", "xfailed") else data["phase"]
        if data["node_id"].endswith("_not.py"):
            phase = "collect"
        passed = data["outcome"] in ("passed", "xpassed")
        outcome = "passed" if passed else str(data["outcome"])
        return data["node_id"], phase, outcome, None if passed else data.get("message")

    told = [seen(event["data"]) for event in said.events]
    # It has no place for a call that passed before the teardown broke.
    told.remove(("tests/unit/test_kinds.py::test_teardown", "call", "passed", None))
    exists = (lambda path: (project / path).is_file()) if with_files else None
    report = outcomes_from_junit((project / "report.xml").read_bytes(), exists=exists)
    assert sorted(map(seen, report), key=str) == sorted(told, key=str)
    failed = next(data for data in report if data["outcome"] == "failed")
    assert "E       AssertionError: assert {'a': 1} == {'a': 2}" in failed["details"]
    assert failed["runner"] == "pytest"
    assert failed["duration"] >= 0


def test_modules_that_look_like_classes_need_the_files() -> None:
    text = """<testsuites><testsuite name="pytest"><testcase classname="tests.TestShop.TestCart"
        name="test_add" time="0.1"/></testsuite></testsuites>"""
    assert read(text) == [("tests.py::TestShop::TestCart::test_add", "call", "passed")]
    there = outcomes_from_junit(text.encode(), exists=lambda path: path == "tests/TestShop.py")
    assert there[0]["node_id"] == "tests/TestShop.py::TestCart::test_add"


JEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="jest tests" tests="3" failures="1" errors="0" time="0.6">
  <testsuite name="cart" errors="0" failures="1" skipped="1" timestamp="2026-03-01T12:00:00" time="0.3">
    <testcase classname="cart adds up" name="cart adds up" time="0.003">
      <failure>Error: expect(received).toBe(expected) // Object.is equality
Expected: 3
    at Object.toBe (sum.test.js:3:49)</failure>
    </testcase>
    <testcase classname="cart is empty" name="cart is empty" time="0"/>
    <testcase classname="cart" name="later" time="0"><skipped/></testcase>
  </testsuite>
</testsuites>"""
VITEST = """<?xml version="1.0" encoding="UTF-8" ?>
<testsuites name="vitest tests" tests="2" failures="1" errors="0" time="0.01">
    <testsuite name="sum.test.js" tests="2" failures="1" errors="0" skipped="0" time="0.006">
        <testcase classname="sum.test.js" name="cart &gt; adds up" time="0.004">
            <failure message="expected 2 to be 3 // Object.is equality" type="AssertionError">
AssertionError: expected 2 to be 3
            </failure>
        </testcase>
        <testcase classname="sum.test.js" name="cart &gt; fine" time="0.001"/>
    </testsuite>
</testsuites>"""
GO = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="3" failures="1" errors="0" time="0.01">
	<testsuite tests="3" failures="1" time="0.002" name="example.com/shop" timestamp="2026-03-01T12:00:00Z">
		<properties><property name="go.version" value="go1.22.1 linux/amd64"></property></properties>
		<testcase classname="example.com/shop" name="TestTotal/empty" time="0.000">
			<failure message="Failed" type="">    shop_test.go:14: got 1, want 0&#xA;</failure>
		</testcase>
		<testcase classname="example.com/shop" name="TestOpen" time="0.000"></testcase>
		<testcase classname="example.com/shop" name="TestLater" time="0.000">
			<skipped message="    shop_test.go:30: no network&#xA;"></skipped>
		</testcase>
	</testsuite>
</testsuites>"""
SUREFIRE = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" name="org.shop.CartTest" time="1,204.5">
  <properties><property name="java.version" value="21"/></properties>
  <testcase name="adds" classname="org.shop.CartTest" time="1,204.1">
    <failure message="expected: &lt;3&gt; but was: &lt;4&gt;" type="AssertionFailedError"><![CDATA[at CartTest.java:9]]></failure>
    <rerunFailure message="again" type="AssertionFailedError"><stackTrace>at CartTest.java:9</stackTrace></rerunFailure>
  </testcase>
  <testcase name="opens" classname="org.shop.CartTest" time="0.1"><error type="java.io.IOException">no server</error></testcase>
  <testcase name="sometimes" classname="org.shop.CartTest" time="0.1">
    <flakyFailure message="late" type="TimeoutException"><stackTrace>at CartTest.java:30</stackTrace></flakyFailure>
  </testcase>
</testsuite>"""
NEXTEST = """<testsuites name="nextest-run" tests="1" failures="0" errors="0">
<testsuite name="shop" tests="1"><testcase name="tests::fine" classname="shop" time="0.004"/></testsuite></testsuites>"""
GOOGLETEST = """<testsuites tests="2" name="AllTests"><testsuite name="Cart">
<testcase name="Adds" status="run" result="completed" time="0." classname="Cart"/>
<testcase name="DISABLED_Later" status="notrun" result="suppressed" time="0." classname="Cart"/></testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            JEST,
            [
                ("cart adds up", "call", "failed"),
                ("cart is empty", "call", "passed"),
                ("cart › later", "call", "skipped"),
            ],
        ),
        (
            VITEST,
            [
                ("sum.test.js > cart > adds up", "call", "failed"),
                ("sum.test.js > cart > fine", "call", "passed"),
            ],
        ),
        (
            GO,
            [
                ("example.com/shop.TestTotal/empty", "call", "failed"),
                ("example.com/shop.TestOpen", "call", "passed"),
                ("example.com/shop.TestLater", "call", "skipped"),
            ],
        ),
        (
            SUREFIRE,
            [
                ("org.shop.CartTest.adds", "call", "rerun"),
                ("org.shop.CartTest.adds", "call", "failed"),
                ("org.shop.CartTest.opens", "call", "error"),
                ("org.shop.CartTest.sometimes", "call", "rerun"),
                ("org.shop.CartTest.sometimes", "call", "passed"),
            ],
        ),
        (NEXTEST, [("shop tests::fine", "call", "passed")]),
        (
            GOOGLETEST,
            [("Cart.Adds", "call", "passed"), ("Cart.DISABLED_Later", "call", "skipped")],
        ),
        ("<testsuites/>", []),
    ],
    ids=["jest", "vitest", "go", "surefire", "nextest", "googletest", "empty"],
)
def test_other_runners(text: str, expected: list[tuple[str, str, str]]) -> None:
    assert read(text) == expected


def test_the_words_of_a_failure() -> None:
    jest = outcomes_from_junit(JEST.encode())[0]
    assert jest["message"] == "Error: expect(received).toBe(expected) // Object.is equality"
    assert jest["details"].endswith("at Object.toBe (sum.test.js:3:49)")
    tried, failed, _, late, late_passed = outcomes_from_junit(SUREFIRE.encode())
    assert failed["message"] == "expected: <3> but was: <4>"
    assert failed["details"] == "at CartTest.java:9"
    assert failed["duration"] == 1204.1
    assert (tried.get("attempt"), failed.get("attempt")) == (1, 2)
    assert (late["message"], late_passed.get("attempt")) == ("late", 2)


BOMB = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><testsuite>&b;</testsuite>'
OUTSIDE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><testsuite name="&a;"/>'


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "no readable XML"),
        (b"not xml", "no readable XML"),
        (b"<testsuite>", "no readable XML"),
        (b"<html/>", "begins with <html>"),
        (b'<?xml version="1.0" encoding="odd"?><testsuite/>', "encoding"),
        (BOMB.encode(), "document type"),
        (BOMB.encode("utf-16"), "document type"),
        (OUTSIDE.encode(), "document type"),
        (b"<testsuite>" + b"<a>" * 5000 + b"</a>" * 5000 + b"</testsuite>", "nested too deeply"),
    ],
)
def test_what_is_no_report_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(RepoTraceError, match=what):
        outcomes_from_junit(data)


@given(st.binary() | st.text().map(str.encode))
def test_arbitrary_bytes_are_outcomes_or_an_error(data: bytes) -> None:
    for wrapped in (data, b"<testsuite><testcase name='a'>" + data + b"</testcase></testsuite>"):
        try:
            found = outcomes_from_junit(wrapped)
        except RepoTraceError:
            continue
        assert all(outcome["node_id"] and outcome["outcome"] for outcome in found)
