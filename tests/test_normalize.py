"""Normalising: what is volatile goes, what is a fact stays, and a second time changes nothing."""

# ruff: noqa: E501 - tables read best unbroken

from __future__ import annotations

import re
import time
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repotrace.errors import RepoTraceError
from repotrace.normalize import UserRule, masks_for, normalize
from repotrace.records.command import Places
from repotrace.redact import Redactor

NOWHERE = Places()
PLACES = Places(
    cwd="/home/john/app",
    repository="/home/john/app",
    venv="/home/john/app/.venv",
    python="/usr",
    tmp="/tmp",
    home="/home/john",
)


def normalized(text: str, places: Places = PLACES) -> str:
    return normalize(text.encode(), places).data.decode()


VOLATILE = [
    # colours, links, line ends, progress
    ("\x1b[1;31mred\x1b[0m", "red", {"ansi"}),
    ("\x1b]8;;file:///x\x1b\\link\x1b]8;;\x1b\\", "link", {"ansi"}),
    ("\x1b]0;title\x07text", "text", {"ansi"}),
    ("a\x1b(Bb\x1b[?25lc\x1b", "abc", {"ansi"}),
    ("one\r\ntwo\r\n", "one\ntwo\n", {"crlf"}),
    ("10%\r50%\r100%\nnext", "100%\nnext", {"progress"}),
    ("10%\r100%\r\n", "100%\n", {"crlf", "progress"}),
    # addresses
    ("<A at 0x7f1122334455> <B at 0x7f11223344aa> <A at 0x7f1122334455>",
     "<A at 0xADDR1> <B at 0xADDR2> <A at 0xADDR1>", {"address"}),
    ("<A at 0xb7e01c>", "<A at 0xADDR1>", {"address"}),
    ("<Mock id='140234567890'>", "<Mock id='0xADDR1'>", {"address"}),
    ("0xADDR1 0x7f1122334455", "0xADDR1 0xADDR2", {"address"}),
    # identities
    ("id 9f0c7c5e-8a53-4a0e-9d7e-0f6f3b0e2b11, again 9f0c7c5e-8a53-4a0e-9d7e-0f6f3b0e2b11",
     "id <uuid1>, again <uuid1>", {"uuid"}),
    # moments
    ("2026-10-18 04:05:48,298 INFO x", "<time> INFO x", {"timestamp"}),
    ("at 2026-10-18T04:05:48.298051+00:00.", "at <time>.", {"timestamp"}),
    ("2026/10/18 04:05:48 main.go", "<time> main.go", {"timestamp"}),
    ("Date: Sun, 18 Oct 2026 04:05:48 +0000", "Date: <time>", {"timestamp"}),
    ("Sun Oct 18 04:05:48 UTC 2026", "<time>", {"timestamp"}),
    ("127.0.0.1 - - [18/Oct/2026 04:05:48] \"GET /\"", '127.0.0.1 - - [<time>] "GET /"', {"timestamp"}),
    ("[04:05:48] start", "[<time>] start", {"timestamp"}),
    ("timestamp=1792296348.29", "timestamp=<time>", {"timestamp"}),
    ("report_20261018_040548.txt", "report_<time>.txt", {"timestamp"}),
    ("run 20261018-040548", "run <time>", {"timestamp"}),
    # processes
    ("pid 77, PID: 78, pid=77", "pid <pid1>, PID: <pid2>, pid=<pid1>", {"pid"}),
    ("(node:4711) Warning", "(node:<pid1>) Warning", {"pid"}),
    ("==4711==ERROR: AddressSanitizer", "==<pid1>==ERROR: AddressSanitizer", {"pid"}),
    ("sh: line 1:  4711 Segmentation fault", "sh: line 1: <pid1> Segmentation fault", {"pid"}),
    ("[2026-10-18 04:05:48 +0000] [4711] [INFO] x", "[<time>] [<pid1>] [INFO] x", {"pid", "timestamp"}),
    ("Oct 18 04:05:48 host sshd[4711]: bye", "<time> host sshd[<pid1>]: bye", {"pid", "timestamp"}),
    ("Started server process [4711]", "Started server process [<pid1>]", {"pid"}),
    ("thread 'main' (4711) panicked at src/main.rs:2:5:", "thread 'main' (<pid1>) panicked at src/main.rs:2:5:", {"pid"}),
    ("http://127.0.0.1:45678/a localhost:45678", "http://127.0.0.1:<port1>/a localhost:<port1>", {"port"}),
    ("HTTPConnectionPool(host='localhost', port=45678)", "HTTPConnectionPool(host='localhost', port=<port1>)", {"port"}),
    ("('127.0.0.1', 45678)", "('127.0.0.1', <port1>)", {"port"}),
    # temporary names
    ("/tmp/tmpab12cd_x/f.txt", "<tmp>/<temp1>/f.txt", {"tmp", "temp-name"}),
    ("/tmp/tmpabcdefgh", "<tmp>/<temp1>", {"tmp", "temp-name"}),
    ("/tmp/pip-req-build-ab12cd_x", "<tmp>/pip-req-build-<temp1>", {"tmp", "temp-name"}),
    ("/tmp/pytest-of-john/pytest-41/test_a0", "<tmp>/<temp1>/test_a0", {"tmp", "temp-name"}),
    ("build/tmpab12cd_x.o", "build/<temp1>.o", {"temp-name"}),
    ("(target/debug/deps/app-0123456789abcdef)", "(target/debug/deps/app-<temp1>)", {"temp-name"}),
    # durations
    ("Ran 3 tests in 0.004s", "Ran 3 tests in <duration>", {"duration"}),
    ("1 failed in 61.23s (0:01:01)", "1 failed in <duration>", {"duration"}),
    ("0.02s call     test_a.py::test_x", "<duration> call     test_a.py::test_x", {"duration"}),
    ("took 1.2 ms", "took <duration>", {"duration"}),
    ("parsed: 1.25 ms", "parsed: <duration>", {"duration"}),
    ("real\t0m1.234s", "real\t<duration>", {"duration"}),
    ("--- FAIL: TestX (0.03 s)", "--- FAIL: TestX (<duration>)", {"duration"}),
    ("ok  \texample.com/pkg\t0.003s", "ok  \texample.com/pkg\t<duration>", {"duration"}),
    ("test result: ok. 1 passed; finished in 0.00s", "test result: ok. 1 passed; finished in <duration>", {"duration"}),
    ("Time:        1.234 s, estimated 2 s", "Time:        <duration>", {"duration"}),
    ("  ✓ adds (3 ms)", "  ✓ adds", {"duration"}),
    ("added 57 packages in 2s", "added 57 packages in <duration>", {"duration"}),
    ("100%|##| 10/10 [00:01<00:00,  9.52it/s]", "100%|##| 10/10 [<duration>]", {"duration"}),
    # widths
    ("===== 1 failed in 0.12s =====", "========== 1 failed in <duration> ==========", {"duration", "rule-width"}),
    ("= 1 failed in 100.12s (0:01:40) ==", "========== 1 failed in <duration> ==========", {"duration", "rule-width"}),
    ("________________ test_x ________________", "__________ test_x __________", {"rule-width"}),
    ("[100%] /home/john/app ============", "[100%] <cwd> ==========", {"cwd", "rule-width"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected", "rules"), VOLATILE, ids=[t for t, _, _ in VOLATILE])
def test_volatile_text_becomes_a_placeholder(text: str, expected: str, rules: set[str]) -> None:
    result = normalize(text.encode(), PLACES)

    assert result.data.decode() == expected
    assert result.rules == rules


INNOCENT = [
    "2 failed, 3 passed",
    "test.py:12: AssertionError",
    '  File "x.py", line 12, in f',
    "exit code 7",
    "Python 3.12.1, pytest-8.0.0",
    "API version 2023-06-01",
    "timed out after 0.5 seconds",
    "subprocess.TimeoutExpired: Command 'x' timed out after 30 seconds",
    "Exceeded timeout of 5000 ms for a test.",
    "retrying in 5 minutes",
    "new in 3.12",
    "connection refused: localhost:8080",
    "could not connect to 10.0.0.7:45678",
    "port 5432 is in use",
    "error 0x80070005",
    "mask 0xff 0x10",
    "hash 0xcbf29ce484222325",
    "errors[0]: wrong value",
    "list[3]: x",
    "pid must be positive",
    "rapid 12",
    "00000000-0000-0000-0000-000000000000",
    "expected 96 from C header, got 88 from PyObject",
    "sha256:0123456789abcdef",
    "user@example.com",
    "tmp_results/tmp_test_01/template",
    "/opt/home/john/x",
    "/home/johnny/x /home/john-2 /home/john.old/x /home/john_x",
    "histogram ############",
    "histogram ##########################",
    "-----------------------",
    "price: 12.50",
    "12:34 left",
    "ratio 0.25, 12.5%",
    "v1.2.3-rc.1",
    "array[12][13]",
    "seed 1234567890",
    "    ^^^^^^^^^^^^^^^^^^^^^^^",
    "<tmp> <cwd> <pid1> <time> 0xADDR3 <duration>",
]


@pytest.mark.parametrize("text", INNOCENT)
def test_facts_stay(text: str) -> None:
    result = normalize(text.encode(), PLACES)

    assert result.data.decode() == text
    assert result.rules == frozenset()
    assert result.by_line == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/john/app/x.py", "<cwd>/x.py"),
        ("/home/john/app", "<cwd>"),
        ("/home/john/app: no such file", "<cwd>: no such file"),
        ("cd /home/john/app.", "cd <cwd>."),
        ("'/home/john/app'", "'<cwd>'"),
        ("\u2018/home/john/app\u2019", "\u2018<cwd>\u2019"),
        ("│/home/john/app│", "│<cwd>│"),
        ("/home/john/application", "<home>/application"),
        ("/home/john/app/.venv/bin/python", "<venv>/bin/python"),
        ("/home/john/app/.venv2", "<cwd>/.venv2"),
        ("/usr/bin/python", "/usr/bin/python"),
        ("PATH=/home/john/bin:/home/john/app", "PATH=<home>/bin:<cwd>"),
        ("-I/home/john/include", "-I<home>/include"),
        ("file:///home/john/app/x.js:3:4", "file://<cwd>/x.js:3:4"),
        (r'{"a": "\/home\/john\/app\/x"}', r'{"a": "<cwd>\/x"}'),
        ("?path=%2Fhome%2Fjohn%2Fapp%2Fx", "?path=<cwd>%2Fx"),
        (r"'a\n/home/john/app/x'", r"'a\n<cwd>/x'"),
        ("http://example.com/home/john/app", "http://example.com/home/john/app"),
        ("a/home/john/app", "a/home/john/app"),
        ("/home/johné", "/home/johné"),
        ("<file>/home/john/app/x</file>", "<file><cwd>/x</file>"),
    ],
)
def test_folders_end_at_a_component(text: str, expected: str) -> None:
    assert normalized(text) == expected


@pytest.mark.parametrize("root", ["/", "//", "", "/usr", "/home", "/tmp", "relative", "."])
def test_a_root_of_the_system_is_never_masked(root: str) -> None:
    places = Places(cwd=root, home=root, python=root)

    assert normalized("/ /usr/bin /home/x /tmp/y relative .", places) == (
        "/ /usr/bin /home/x /tmp/y relative ."
    )


def test_tmp_itself_is_masked_as_tmp_only() -> None:
    assert normalized("/tmp/x /root/y", Places(tmp="/tmp", home="/root")) == "<tmp>/x <home>/y"


def test_a_folder_with_a_space_is_found_in_a_url_too() -> None:
    places = Places(cwd="/srv/my app")

    assert normalized("/srv/my app/x file:///srv/my%20app/x", places) == "<cwd>/x file://<cwd>/x"


def test_a_folder_that_is_not_utf8_is_found() -> None:
    places = Places(cwd="/srv/caf\udce9/app")

    assert normalize(b"in /srv/caf\xe9/app/x", places).data == b"in <cwd>/x"


def test_two_machines_read_the_same() -> None:
    other = Places(
        cwd="/Users/ann/w", venv="/opt/envs/w1", tmp="/var/folders/a/b/T", home="/Users/ann"
    )

    here = normalized("/home/john/app/a /home/john/app/.venv/b /home/john/c /tmp/tmpab12cd_x\n")
    there = normalized("/Users/ann/w/a /opt/envs/w1/b /Users/ann/c /var/folders/a/b/T/tmp0123abcd\n", other)  # fmt: skip

    assert here == there == "<cwd>/a <venv>/b <home>/c <tmp>/<temp1>\n"


def test_digests_of_secrets_do_not_count() -> None:
    one = Redactor(key=b"one", variables={"API_TOKEN": "tops3cretvalue"})
    two = Redactor(key=b"two", variables={"API_TOKEN": "tops3cretvalue"})
    texts = [redactor.redact("a\ntoken tops3cretvalue") for redactor in (one, two)]

    results = [normalize(text.encode(), NOWHERE) for text in texts]

    assert texts[0] != texts[1]
    assert results[0].data == results[1].data
    assert results[0].by_line == {1: frozenset({"redaction"})}


def test_each_line_knows_its_rules() -> None:
    result = normalize(b"plain\n/home/john/app took 1.5 ms\n\nplain\n\x1b[1mx\x1b[0m\n", PLACES)

    assert result.by_line == {1: frozenset({"cwd", "duration"}), 4: frozenset({"ansi"})}
    assert result.rules == {"cwd", "duration", "ansi"}


def test_what_an_escape_hid_is_normalised_too() -> None:
    result = normalize(b"in 0.\x1b[1m12s\x1b[0m", NOWHERE)

    assert result.data == b"in <duration>"
    assert result.by_line == {0: frozenset({"ansi", "duration"})}


def test_no_escape_is_made_by_removing_another() -> None:
    assert b"\x1b" not in normalize(b"\x1b\x1b[0m[31m\x1b\x1b]8;;x\x07[1m", NOWHERE).data


class TestUserRules:
    def test_come_first_and_are_named(self) -> None:
        rule = UserRule("build", r"build-\d+", "build-N")

        result = normalize(b"x\nbuild-41 in 1.5s\n", NOWHERE, [rule])

        assert result.data == b"x\nbuild-N in <duration>\n"
        assert result.by_line == {1: frozenset({"user:build", "duration"})}

    def test_anchors_stand_for_lines_and_groups_can_be_kept(self) -> None:
        rule = UserRule("seed", r"^(seed) \d+$", r"\1 N")

        assert normalize(b"a\nseed 5\nseed 5 x", NOWHERE, [rule]).data == b"a\nseed N\nseed 5 x"

    def test_lines_after_a_removed_one_keep_their_rules(self) -> None:
        rule = UserRule("noise", r"^noise.*\n", "")

        result = normalize(b"noise 1\nkeep\nnoise 2\nin 1.5s\n", NOWHERE, [rule])

        assert result.data == b"keep\nin <duration>\n"
        assert "duration" in result.by_line[1]
        assert "duration" not in result.by_line.get(0, frozenset())

    def test_see_what_the_terminal_codes_hid(self) -> None:
        rule = UserRule("build", r"build-\d+", "build-N")

        assert normalize(b"build-\x1b[1m41", NOWHERE, [rule]).data == b"build-N"

    def test_that_feeds_on_itself_is_applied_once(self) -> None:
        assert normalize(b"a", NOWHERE, [UserRule("grow", "a", "aa")]).data == b"aa"

    def test_works_on_text_of_any_alphabet_and_leaves_other_bytes(self) -> None:
        rule = UserRule("accent", "é+", "e")

        assert normalize("ééé \udcff".encode("utf-8", "surrogateescape"), NOWHERE, [rule]).data == (
            b"e \xff"
        )

    @pytest.mark.parametrize(("pattern", "replacement"), [("(", ""), ("a", r"\1"), ("a", r"\g<x>")])
    def test_that_is_wrong_is_named(self, pattern: str, replacement: str) -> None:
        with pytest.raises(RepoTraceError, match="'odd'"):
            normalize(b"a", NOWHERE, [UserRule("odd", pattern, replacement)])


# --- properties

HEX = "0123456789abcdef"
PIECES = st.sampled_from(
    [text for text, _, _ in VOLATILE]
    + INNOCENT
    + ["\x1b[", "\x1b", "0m", "\r", "\n", "\r\n", " ", "=", "==========", "-", "/", "<", ">", ":"]
    + ["/home/john", "/home/john/app", "/tmp/", "<tmp>/", "tmp", "in ", "1", ".", "5", "s", "ms"]
    + ["0x", "pid ", "✓ ", " (1ms)", "(", ")", "[", "]", "[REDACTED:rule:0123abcd]", "<pid", "127.0.0.1:"]
)  # fmt: skip
LOG_LIKE = st.lists(PIECES, max_size=25).map("".join).map(str.encode)


@given(st.binary(max_size=300) | LOG_LIKE)
@settings(max_examples=400, deadline=None)
def test_normalising_twice_changes_nothing_more(data: bytes) -> None:
    once = normalize(data, PLACES)

    again = normalize(once.data, PLACES)

    assert again.data == once.data
    assert again.rules == frozenset()


@given(LOG_LIKE)
@settings(max_examples=200, deadline=None)
def test_lines_without_a_rule_are_untouched(data: bytes) -> None:
    result = normalize(data, PLACES)
    before, after = data.split(b"\n"), result.data.split(b"\n")

    assert len(before) == len(after)
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        assert old == new or number in result.by_line
    assert result.rules == frozenset().union(*result.by_line.values())


@given(LOG_LIKE)
@settings(max_examples=200, deadline=None)
def test_user_rules_reach_a_fixed_point(data: bytes) -> None:
    rules = [UserRule("digits", r"\d{3,}", "N"), UserRule("blank", r"^\s*\n", "")]
    once = normalize(data, PLACES, rules)

    assert normalize(once.data, PLACES, rules).data == once.data


SLOTS = {
    "{time}": st.datetimes(datetime(1990, 1, 1), datetime(2099, 1, 1)).map("{:%Y-%m-%d %H:%M:%S}".format),
    "{address}": st.integers(0x7F0000000000, 0x7FFFFFFFFFFF).map(hex),
    "{uuid}": st.uuids().filter(lambda u: u.int > 2**100).map(str),
    "{port}": st.integers(32768, 60999).map(str),
    "{pid}": st.integers(2, 4194304).map(str),
    "{temp}": st.text("abcdefghijklmnopqrstuvwxyz0123456789_", min_size=8, max_size=8).map("/tmp/tmp".__add__),
    "{seconds}": st.floats(0, 500).map("{:.2f}s".format),
}  # fmt: skip
LINES = [
    "{time} INFO started",
    "\x1b[31mERROR\x1b[0m <X at {address}>",
    "listening on 127.0.0.1:{port} (pid {pid})",
    "wrote {temp}/out.txt",
    "request {uuid}",
    "=========== 1 failed in {seconds} ===========",
    "[{time}] [{pid}] [INFO] bye",
    "Ran 3 tests in {seconds}\r",
    "  ✓ adds ({seconds})",
    "2 failed",
]


@st.composite
def two_runs(draw: st.DrawFn) -> tuple[str, str]:
    """One log twice, each slot filled with new values."""
    one: list[str] = []
    two: list[str] = []
    for line in draw(st.lists(st.sampled_from(LINES), min_size=1, max_size=8)):
        for log in (one, two):
            filled = line
            for slot, values in SLOTS.items():
                if slot in filled:
                    filled = filled.replace(slot, draw(values))
            log.append(filled)
    return "\n".join(one), "\n".join(two)


@given(two_runs())
@settings(max_examples=300, deadline=None)
def test_masks_agree_with_normalising(runs: tuple[str, str]) -> None:
    places = Places(tmp="/tmp")
    results = [normalize(run.encode(), places) for run in runs]
    rules = results[0].rules | results[1].rules
    texts = [run.replace("/tmp/", "<tmp>/") for run in runs]

    for pattern, replacement in masks_for(rules):
        texts = [re.sub(pattern, replacement, text) for text in texts]

    unnumbered = [re.sub(r"(<[a-z]+|0xADDR)\d+", r"\1", text.data.decode()) for text in results]
    assert texts == unnumbered
    assert texts[0] == texts[1]


def test_masks_are_those_asked_for() -> None:
    assert masks_for([]) == []
    assert masks_for(["cwd", "user:x"]) == []
    text = "in 0.12s at 0x7f1122334455"
    for pattern, replacement in masks_for(["duration"]):
        text = re.sub(pattern, replacement, text)
    assert text == "in <duration> at 0x7f1122334455"


def test_masks_take_the_digests_of_secrets_away() -> None:
    ((pattern, replacement),) = masks_for(["redaction"])

    assert re.sub(pattern, replacement, "[REDACTED:env-API_KEY:0123abcd]") == (
        "[REDACTED:env-API_KEY]"
    )


ADVERSARIAL = [
    "a", "1", "=", " ", "\r", "\x1b", "\x1b[", "\x1b]", "0x", "-", "/", "in ", "1.", "1:", "= ",
    "/tmp/", "<tmp>/", "<tmp>/-", "/home/john/", "[0", "12:00:00 ", "tmp", "pid 1 ", "time ", "✓ ",
    "✓ x (1ms)", " (1ms)", "deadbeef-", "= <tmp> =", "Time: ", "duration     ", "FAIL ", "thread '",
    "line 1:     ", "/deps/aaaaaaa", "%2F", "\\/", "[REDACTED:", "\x1b[0m\n", "1\r2\n", "\n", "_",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("unit", ADVERSARIAL)
@pytest.mark.parametrize("end", ["", "x"])
def test_time_grows_with_the_size_only(unit: str, end: str) -> None:
    """Eight times the input takes nowhere near the sixty-four times of a quadratic pattern."""

    def seconds(size: int) -> float:
        data = (unit * (size // len(unit)) + end).encode()
        best = []
        for _ in range(3):
            start = time.process_time()
            normalize(data, PLACES)
            best.append(time.process_time() - start)
        return min(best)

    small, large = seconds(60_000), seconds(480_000)

    assert large < 30 * max(small, 0.002)
