"""Normalising: what is volatile goes, what is a fact stays, and twice is once."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repotrace.errors import RepoTraceError
from repotrace.normalize import UserRule, masks_for, normalize
from repotrace.records.command import Places

PLACES = Places(
    cwd="/home/john/project/sub",
    repository="/home/john/project",
    venv="/home/john/project/.venv",
    python="/opt/python-3.12",
    tmp="/tmp",
    home="/home/john",
)


def text_of(text: str, places: Places = PLACES, rules: tuple[UserRule, ...] = ()) -> str:
    return normalize(text.encode(), places, rules).data.decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('File "/home/john/project/sub/a.py"', 'File "<cwd>/a.py"'),
        ("/home/john/project/b.py:3", "<repository>/b.py:3"),
        ("/home/john/project/.venv/lib/x.py", "<venv>/lib/x.py"),
        ("/opt/python-3.12/lib/y.py", "<python>/lib/y.py"),
        ("/home/john/.cache", "<home>/.cache"),
        ("/home/johnny/.cache", "/home/johnny/.cache"),
        ("/home/john", "<home>"),
        ("file:///home/john/project/sub/a", "file://<cwd>/a"),
    ],
)
def test_row_31_and_34_places(text: str, expected: str) -> None:
    assert text_of(text) == expected


def test_row_34_the_root_is_never_masked() -> None:
    text = "/usr/bin /etc /"
    assert text_of(text, Places(home="/", cwd="/", repository="/usr")) == text


def test_row_25_and_26_terminal_output_is_folded() -> None:
    assert text_of("\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07\r\n") == "red link\n"
    assert text_of("10%\r50%\r100%\n") == "100%\n"
    assert "\x1b" not in text_of("\x1b\x1b[0m[31mnested\x1b[0m")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("<object at 0x7f3c1a7be04d>", "<object at 0x5581aa00>"),
        ("job 123e4567-e89b-12d3-a456-426614174000", "job 00000000-0000-4000-8000-000000000001"),
        ("at 2026-11-30T05:47:00Z", "at 2025-01-01T00:00:00Z"),
        ("at 2026-11-30 05:47:00,123", "at 2025-01-01 00:00:00,999"),
        ("http://127.0.0.1:45123/", "http://127.0.0.1:39999/"),
        ("pid 4711", "pid 12"),
        ("/tmp/tmpab12cd_x/f", "/tmp/tmpzz99yy_q/f"),
        ("/tmp/pytest-of-ann/pytest-3/t0", "/tmp/pytest-of-bob/pytest-12/t0"),
        ("1 failed in 0.12s", "1 failed in 12.40s"),
        ("Ran 3 tests in 0.004s", "Ran 3 tests in 1.250s"),
        ("real\t0m1.234s", "real\t1m0.001s"),
        ("ok  \texample.org/x\t0.003s", "ok  \texample.org/x\t1.250s"),
        ("test result: ok. finished in 0.00s", "test result: ok. finished in 3.10s"),
    ],
)
def test_row_38_volatile_values(one: str, other: str) -> None:
    assert text_of(one) == text_of(other)
    assert text_of(one) != one


def test_row_37_the_width_of_a_rule_follows_the_duration() -> None:
    one = "============ 1 failed, 2 passed in 0.12s ============"
    other = "============ 1 failed, 2 passed in 12.40s ==========="
    assert text_of(one) == text_of(other)
    assert "1 failed, 2 passed" in text_of(one)


def test_row_38_the_same_value_gets_the_same_number() -> None:
    masked = text_of("0xdeadbeef00 0xcafebabe00 0xdeadbeef00")
    first, second, third = masked.split()
    assert first == third != second
    assert text_of("0x1111111100 0x2222222200 0x1111111100") == masked
    assert text_of("0x1111111100 0x2222222200 0x2222222200") != masked


@pytest.mark.parametrize(
    "text",
    [
        "2 failed, 3 passed",
        "exit code 7",
        "line 42, column 7",
        "version 3.12.1",
        "assert 0.7 == 0.5",
        "expected 1000 got 999",
        "HTTP 404",
        "a.py:12:3: E501 line too long (101 > 100)",
        "timeout=30",
        "x = 0.12",
        "KeyError: 'in 3'",
        "-----",
        "a == b",
        "5 minutes of fame",
    ],
)
def test_facts_stay(text: str) -> None:
    assert text_of(text) == text


def test_rules_are_named_by_line() -> None:
    data = b"same\nin /home/john/project/sub\n1 failed in 0.12s\n"
    normal = normalize(data, PLACES)
    assert normal.by_line[1] == {"cwd"}
    assert "duration" in normal.by_line[2]
    assert 0 not in normal.by_line
    assert {"cwd", "duration"} <= normal.rules


def test_user_rules_come_with_their_name() -> None:
    rule = UserRule("order", r"order #\d+", "order #N")
    normal = normalize(b"order #12 failed", PLACES, [rule])
    assert normal.data == b"order #N failed"
    assert normal.rules == {"user:order"}
    with pytest.raises(RepoTraceError):
        normalize(b"x", PLACES, [UserRule("bad", "(", "")])


def test_redactions_of_one_rule_are_equal() -> None:
    assert text_of("[REDACTED:npm:0a1b2c3d]") == text_of("[REDACTED:npm:ffffffff]")
    assert text_of("[REDACTED:npm:0a1b2c3d]") != text_of("[REDACTED:jwt:0a1b2c3d]")


PIECES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            "\x1b[", "31m", "\x1b]8;;", "\r", "\n", "\r\n", "0x", "deadbeef", "/home/john",
            "/project",
            "/tmp/", "tmpab12cd_x", "in 0.12s", " ", "=" * 12, "-" * 12, "pid ", "42", "127.0.0.1:",
            "40123", "2026-11-30", "T05:47:00Z", "[REDACTED:npm:0a1b2c3d]", "<cwd>", "<time>",
            "123e4567-e89b-12d3-a456-426614174000", "Ran 3 tests in 0.004s", "\b", "\x07",
        ]
    ),
)  # fmt: skip


@given(st.lists(PIECES, max_size=12).map("".join))
@settings(max_examples=400, deadline=None)
def test_twice_is_once(text: str) -> None:
    once = normalize(text.encode("utf-8", "surrogatepass"), PLACES)
    again = normalize(once.data, PLACES)
    assert again.data == once.data


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_fine_and_twice_is_once(data: bytes) -> None:
    once = normalize(data, PLACES)
    assert normalize(once.data, PLACES).data == once.data
    assert all(0 <= line <= once.data.count(b"\n") for line in once.by_line)


@pytest.mark.parametrize(
    ("rule", "one", "other"),
    [
        ("duration", "1 failed in 0.12s", "1 failed in 7.50s"),
        ("ansi", "\x1b[31mx\x1b[0m", "x"),
    ],
)
def test_masks_for_a_generated_test_agree(rule: str, one: str, other: str) -> None:
    assert text_of(one) == text_of(other)
    masks = masks_for([rule])
    for pattern, replacement in masks:
        one, other = re.sub(pattern, replacement, one), re.sub(pattern, replacement, other)
    assert masks
    assert one == other


@pytest.mark.slow
def test_long_hostile_input_takes_time_in_proportion() -> None:
    """Ten times the input may take some twenty times as long, not a hundred."""
    import time

    for unit in (b"=" * 64, b"0x", b"\x1b[", b"/home/john", b"1.", b"in ", b"tmp", b"a\r", b"(("):
        taken = []
        for size in (20_000, 200_000):
            data = unit * (size // len(unit))
            start = time.process_time()
            normalize(data, PLACES)
            taken.append(time.process_time() - start)
        assert taken[1] < 40 * max(taken[0], 0.005), unit
