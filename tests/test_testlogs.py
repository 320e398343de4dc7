"""Failing tests out of what runners really print. The logs under `data/testlogs` are real."""

# ruff: noqa: E501, RUF001 - tables read best unbroken, runners print such signs

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repotrace.testlogs import failing_tests, frameworks, parse
from repotrace.tracebacks import Frame, Raised

LOGS = Path(__file__).parent / "data" / "testlogs"


def log(name: str) -> str:
    return (LOGS / f"{name}.txt").read_text("utf-8")


SHOP = (
    "test_shop.py::TestCart::test_add",
    "test_shop.py::test_setup",
    "test_shop.py::test_text[FAILED z]",
    "test_shop.py::test_text[\\xe9]",
    "test_shop.py::test_text[a - b]",
    "test_shop.py::test_text[a b]",
    "test_shop.py::test_text[x[1]]",
    "test_shop.py::test_total",
)
SUMS = (
    "mod_test.Sums.test_bad",
    "mod_test.Sums.test_error",
    "mod_test.Sums.test_many (i=0)",
    "mod_test.Sums.test_many (i=2)",
    "mod_test.Sums.test_named [even numbers]",
    "setUpClass (mod_test.Late)",
)
CART = ("alone", "cart › adds up", "cart › nested › odd › throws")
VITE = ("sum.test.js > cart > adds up", "sum.test.js > cart > nested > throws > now")

# Log, framework, failing tests, how many passed, how many there were.
EXPECTED = [
    ("pytest-default", "pytest", SHOP, 1, 10),
    ("pytest-rA", "pytest", SHOP, 1, 10),
    ("pytest-colour", "pytest", SHOP, 1, 10),
    ("pytest-xdist", "pytest", SHOP, 1, 10),
    ("pytest-no-summary", "pytest", SHOP, 1, 10),
    ("pytest-short-no-summary", "pytest", SHOP, 1, 10),
    ("pytest-collection-error", "pytest", ("test_uncollectable.py",), 0, 1),
    ("pytest-passed", "pytest", (), 1, 1),
    ("unittest", "unittest", SUMS, None, 5),
    ("unittest-39", "unittest", SUMS, None, 5),
    ("unittest-verbose", "unittest", (*SUMS, "unittest.loader._FailedTest.no_such_module"), None, 6),
    ("unittest-main", "unittest", tuple(t.replace("mod_test", "__main__") for t in SUMS), None, 5),
    ("jest", "jest", ("./broken.test.js", *CART), 1, 4),
    ("jest-verbose", "jest", CART, 1, 4),
    ("jest-colour", "jest", CART, 1, 4),
    ("vitest", "vitest", ("broken.test.js", *VITE), 1, 3),
    ("vitest-colour", "vitest", VITE, 1, 3),
    ("mocha", "mocha", ("cart adds up", "cart nested throws"), 1, 3),
    ("node-test-tap", "tap", ("adds up", "throws"), 1, 3),
    ("node-test-spec", "node-test", ("adds up", "throws"), 1, 3),
    (
        "cargo-test",
        "cargo-test",
        ("src/lib.rs - total (line 3)", "tests::adds_up", "tests::cart::opens", "tests::panics"),
        1,
        6,
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "framework", "failed", "passed", "total"), EXPECTED, ids=[row[0] for row in EXPECTED]
)
def test_real_logs(
    name: str, framework: str, failed: tuple[str, ...], passed: int | None, total: int
) -> None:
    found = parse(log(name))

    assert found is not None
    assert found.framework == framework
    assert set(found.failed) == set(failed)
    assert found.failed == tuple(sorted(failed))
    assert (found.passed_count, found.total_count) == (passed, total)
    assert failing_tests(log(name)) == ((framework, found.failed) if failed else None)


def error_of(name: str, test: str) -> Raised | None:
    found = parse(log(name))
    assert found is not None
    return next(failure.error for failure in found.failures if failure.test == test)


@pytest.mark.parametrize(
    ("name", "test", "exception", "message", "frame"),
    [
        ("pytest-default", SHOP[0], "KeyError", "'item'", Frame("test_shop.py", "test_add")),
        # The summary cuts this message off; the section does not.
        ("pytest-default", SHOP[4], "AssertionError", "assert 'a - b' == 'nothing'", Frame("test_shop.py", "test_text")),
        ("pytest-default", SHOP[1], "RuntimeError", "no database", Frame("test_shop.py", "broken")),
        ("pytest-short-no-summary", SHOP[7], "AssertionError", "assert 4 == 3", Frame("test_shop.py", "test_total")),
        ("pytest-collection-error", "test_uncollectable.py", "ModuleNotFoundError", "No module named 'does_not_exist'", Frame("test_uncollectable.py", "<module>")),
        ("unittest", SUMS[0], "AssertionError", "2 != 3", Frame("/home/dev/shop/mod_test.py", "test_bad")),
        ("unittest-39", SUMS[5], "OSError", "no server", Frame("/home/dev/shop/mod_test.py", "setUpClass")),
        ("jest", CART[2], "TypeError", "Cannot read properties of null (reading 'x')", Frame("sum.test.js", "Object.x")),
        ("jest", CART[1], None, "expect(received).toBe(expected) // Object.is equality", Frame("sum.test.js", "Object.toBe")),
        ("vitest", VITE[1], "TypeError", "no database", Frame("sum.test.js")),
        ("mocha", "cart nested throws", "TypeError", "no database", Frame("sum.test.js", "Context.<anonymous>")),
        ("cargo-test", "tests::cart::opens", "panic", "index out of bounds: the len is 0 but the index is 5", Frame("src/lib.rs")),
    ],
)  # fmt: skip
def test_what_a_test_failed_with(
    name: str, test: str, exception: str | None, message: str, frame: Frame
) -> None:
    error = error_of(name, test)

    assert error is not None
    assert (error.exception, error.message, error.frames[-1]) == (exception, message, frame)


GO = """\
=== RUN   TestTotal
=== RUN   TestTotal/empty
    shop_test.go:14: got 1, want 0
=== RUN   TestTotal/two
--- FAIL: TestTotal (0.00s)
    --- FAIL: TestTotal/empty (0.00s)
        shop_test.go:14: got 1, want 0
    --- PASS: TestTotal/two (0.00s)
--- FAIL: TestOpen (0.01s)
    shop_test.go:20: no database
FAIL
FAIL\texample.com/shop\t0.012s
FAIL\texample.com/cart [build failed]
ok  \texample.com/other\t0.003s
?   \texample.com/cmd\t[no test files]
FAIL
"""


def test_go() -> None:
    found = parse(GO)

    assert found is not None
    assert found.framework == "go-test"
    assert found.failed == (
        "TestOpen",
        "TestTotal",
        "TestTotal/empty",
        "example.com/cart [build failed]",
    )
    assert found.failures[0].error == Raised(
        "go", None, "no database", (Frame("shop_test.go", "TestOpen"),)
    )


def test_a_go_package_can_fail_without_a_test() -> None:
    assert failing_tests("exit status 3\nFAIL\texample.com/shop\t0.012s\nFAIL\n") == (
        "go-test",
        ("example.com/shop",),
    )


def test_nextest() -> None:
    text = (
        "    Starting 2 tests across 1 binary\n"
        "        PASS [   0.004s] shop tests::fine\n"
        "        FAIL [   0.005s] shop tests::adds_up\n"
        "     Summary [   0.006s] 2 tests run: 1 passed, 1 failed, 0 skipped\n"
    )

    assert failing_tests(text) == ("nextest", ("shop tests::adds_up",))


def test_bats() -> None:
    assert failing_tests("1..3\nok 1 fine\nnot ok 2 adds up\n# (in test file x.bats, line 3)\nnot ok 3 later # TODO\n") == (
        "tap",
        ("adds up",),
    )  # fmt: skip


def test_jest_without_details() -> None:
    text = "FAIL ./a.test.js\n  cart\n    ✓ fine (1 ms)\n    deep\n      ✕ opens (2 ms)\n  ✕ alone\n\nTests:       2 failed, 1 passed, 3 total\n"

    assert failing_tests(text) == ("jest", ("alone", "cart › deep › opens"))  # fmt: skip


def test_pytest_progress_where_nothing_else_names_the_test() -> None:
    text = (
        "============ test session starts ============\n"
        "t.py::test_a PASSED        [ 50%]\n"
        "t.py::test_b[x y] FAILED   [100%]\n"
        "===== 1 failed, 1 passed in 0.01s =====\n"
    )

    assert failing_tests(text) == ("pytest", ("t.py::test_b[x y]",))


def test_pytest_subtests_count_for_their_test() -> None:
    text = (
        "=========== short test summary info ===========\n"
        "SUBFAILED[odd] (i=1) t.py::test_many - assert 1 == 2\n"
        "FAILED t.py::test_many - contains 1 failed subtest\n"
        "1 failed, 2 passed, 1 subtests failed in 0.01s\n"
    )

    assert failing_tests(text) == ("pytest", ("t.py::test_many",))


def test_what_comes_after_the_count_is_not_pytests() -> None:
    text = (
        "=========== short test summary info ===========\n"
        "FAILED t.py::test_a - ValueError\n"
        "1 failed in 0.01s\n"
        "ERROR the build server says no\n"
    )

    assert failing_tests(text) == ("pytest", ("t.py::test_a",))


def test_a_test_that_fails_in_teardown_too_is_one_test() -> None:
    text = (
        "====== ERRORS ======\n"
        "______ ERROR at teardown of test_a ______\n"
        "E   OSError: gone\n"
        "t.py:3: OSError\n"
        "===== short test summary info =====\n"
        "FAILED t.py::test_a - ValueError: x\n"
        "ERROR t.py::test_a - OSError: gone\n"
        "1 failed, 1 passed, 1 error in 0.01s\n"
    )

    found = parse(text)

    assert found is not None
    assert found.failed == ("t.py::test_a",)
    assert found.total_count == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "FAILED\n",
        "error: something\n",
        "ERROR: file or directory not found: x\n\nno tests ran in 0.00s\n",
        "  ● a bullet\n",
        "1 failed attempt, trying again\n",
        "FAIL: deployment\n",
        "panic: x\n\ngoroutine 1 [running]:\n",
    ],
)
def test_other_output_is_no_failing_test(text: str) -> None:
    assert failing_tests(text) is None


def test_every_framework_has_a_log() -> None:
    shown = {row[1] for row in EXPECTED} | {"go-test", "nextest"}

    assert shown == set(frameworks())


PIECES = st.sampled_from(
    [line + "\n" for name, *_ in EXPECTED for line in log(name).split("\n")[:60]]
    + ["FAILED a[", " - ", "]", "=== FAILURES ===\n", "___ x ___\n", "\x1b[31m", "not ok 1 - x\n"]
)


@given(st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_text_gives_a_log_or_none(text: str) -> None:
    found = parse(text)

    assert found is None or found.failed == tuple(sorted(set(found.failed)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", ["FAILED a[x - ", "_ x _\n", "= x =\n", "● x\n", "ok 1 ", "a:1: ", "  1) a\n", " FAIL  a\n"]
)  # fmt: skip
def test_large_output_is_read(unit: str) -> None:
    parse(
        "===== short test summary info =====\n1..2\n  2 failing\nTests: 1 total\n" + unit * 60_000
    )
