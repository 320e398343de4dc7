"""Signatures: out of real output of real programs, stable where only the surroundings change."""

# ruff: noqa: E501 - tables read best unbroken

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repotrace.records.command import CommandRun, Output, Places, Signature, Termination
from repotrace.signatures import message_shape, signature_of

DATA = Path(__file__).parent / "data"


def failed(
    stderr: str = "", stdout: str = "", *, code: int = 1, cwd: str = "/home/dev/shop"
) -> CommandRun:
    return CommandRun(
        exit_code=code,
        stdout=Output.of(stdout.encode()),
        stderr=Output.of(stderr.encode()),
        places=Places(cwd=cwd, home="/home/dev", venv="/home/dev/shop/.venv"),
    )


def program(source: str, folder: Path) -> Signature | None:
    """The signature of a Python program, run for real in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "main.py"
    script.write_text(source, "utf-8")
    done = subprocess.run([sys.executable, script], capture_output=True, cwd=folder, check=False)
    return signature_of(
        CommandRun(
            exit_code=done.returncode,
            stdout=Output.of(done.stdout),
            stderr=Output.of(done.stderr),
            places=Places(cwd=str(folder), tmp="/tmp"),
        )
    )


class TestEndings:
    def test_success_has_none(self) -> None:
        assert signature_of(failed("Traceback (most recent call last):\nE: x", code=0)) is None

    def test_an_interrupt_has_none(self) -> None:
        assert signature_of(CommandRun(termination=Termination.INTERRUPTED)) is None

    def test_timeout(self) -> None:
        run = CommandRun(termination=Termination.TIMEOUT, timeout=2, stdout=Output.of(b"x"))

        assert signature_of(run) == Signature(kind="timeout")

    def test_spawn_error(self) -> None:
        run = CommandRun(termination=Termination.SPAWN_ERROR, spawn_errno=errno.ENOENT, error="x")

        assert signature_of(run) == Signature(kind="spawn_error", exception="ENOENT")

    def test_signal(self) -> None:
        run = CommandRun(termination=Termination.SIGNALED, signal=signal.SIGSEGV)

        assert signature_of(run) == Signature(kind="signal", signal=11)

    def test_a_crash_that_a_shell_reports(self) -> None:
        crash = failed("Segmentation fault\n", code=139)

        assert signature_of(crash.model_copy(update={"script": "x"})) == Signature(
            kind="signal", signal=11
        )
        found = signature_of(crash)
        assert found is not None
        assert not found.typed

    def test_a_signal_outranks_a_traceback_but_not_failing_tests(self) -> None:
        traceback = "Traceback (most recent call last):\nValueError: x\n"
        tests = "=== short test summary info ===\nFAILED t.py::a\n1 failed in 0.01s\n"
        killed = {"termination": Termination.SIGNALED, "exit_code": None, "signal": 6}

        one = signature_of(failed(traceback).model_copy(update=killed))
        two = signature_of(failed(stdout=tests).model_copy(update=killed))

        assert one == Signature(kind="signal", signal=6)
        assert two == Signature(kind="pytest", failing_tests=("t.py::a",), signal=6)


class TestPython:
    @pytest.mark.parametrize(
        ("source", "exception", "message", "frame"),
        [
            ("def f():\n    raise ValueError('x 1')\nf()\n", "ValueError", "x 1", "<cwd>/main.py::f"),
            ("raise ValueError\n", "ValueError", None, "<cwd>/main.py::<module>"),
            ("raise ValueError('')\n", "ValueError", None, "<cwd>/main.py::<module>"),
            ("raise ValueError('\\n two\\nthree')\n", "ValueError", "two", "<cwd>/main.py::<module>"),
            ("import json\njson.loads('{')\n", "json.decoder.JSONDecodeError",
             "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
             "<cwd>/main.py::<module>"),
            ("try:\n    {}['a']\nexcept KeyError as e:\n    raise OSError('x') from e\n", "OSError", "x",
             "<cwd>/main.py::<module>"),
            ("try:\n    {}['a']\nexcept KeyError:\n    1 / 0\n", "ZeroDivisionError",
             "division by zero", "<cwd>/main.py::<module>"),
            ("def f(:\n", "SyntaxError", "invalid syntax", "<cwd>/main.py"),
            ("if 1:\nx\n", "IndentationError",
             "expected an indented block after 'if' statement on line 1", "<cwd>/main.py"),
            ("def f():\n    f()\nf()\n", "RecursionError", "maximum recursion depth exceeded",
             "<cwd>/main.py::f"),
            ("def f():\n    class Odd(Exception): ...\n    raise Odd('a: b')\nf()\n", "f.<locals>.Odd",
             "a: b", "<cwd>/main.py::f"),
            ("class A:\n    def __del__(self): raise ValueError('late')\na = A()\nraise TypeError('real')\n",
             "TypeError", "real", "<cwd>/main.py::<module>"),
            ("import os\nopen(os.path.join(os.getcwd(), 'absent'))\n", "FileNotFoundError",
             "[Errno 2] No such file or directory: '<cwd>/absent'", "<cwd>/main.py::<module>"),
            ("raise ExceptionGroup('many', [ValueError(1), KeyError('a')])\n", "ExceptionGroup",
             "many (2 sub-exceptions); ValueError: 1; KeyError: 'a'", "<cwd>/main.py::<module>"),
        ],
    )  # fmt: skip
    def test_real_programs(
        self, tmp_path: Path, source: str, exception: str, message: str | None, frame: str
    ) -> None:
        assert program(source, tmp_path) == Signature(
            kind="python", exception=exception, message=message, frame=frame
        )

    def test_another_folder_gives_the_same(self, tmp_path: Path) -> None:
        source = "import tempfile\nraise OSError(f'{__file__} {tempfile.mkdtemp()} {object()}')\n"

        one = program(source, tmp_path / "a")
        two = program(source, tmp_path / "much" / "deeper" / "in")

        assert one == two
        assert one is not None
        assert one.message == "<cwd>/main.py <tmp>/<temp1> <object object at 0xADDR1>"

    def test_the_innermost_frame_of_the_project_counts(self) -> None:
        text = (
            "Traceback (most recent call last):\n"
            '  File "/home/dev/shop/app.py", line 3, in main\n'
            "    go()\n"
            '  File "/home/dev/shop/lib/cart.py", line 9, in go\n'
            "    lib.call()\n"
            '  File "/home/dev/shop/.venv/lib/python3.12/site-packages/lib.py", line 1, in call\n'
            "    raise ValueError\n"
            "lib.errors.Odd: 3 left\n"
        )

        found = signature_of(failed(text))

        assert found is not None
        assert (found.exception, found.message) == ("lib.errors.Odd", "3 left")
        assert found.frame == "<cwd>/lib/cart.py::go"

    def test_without_one_the_innermost_of_all(self) -> None:
        text = (
            "Traceback (most recent call last):\n"
            '  File "<string>", line 1, in <module>\n'
            '  File "/home/dev/shop/.venv/lib/python3.12/site-packages/lib.py", line 1, in call\n'
            "ValueError: x\n"
        )

        found = signature_of(failed(text))

        assert found is not None
        assert found.frame == "<venv>/lib/python3.12/site-packages/lib.py::call"

    @pytest.mark.parametrize("prefix", ["INTERNALERROR> ", "web_1  | ", "    "])
    def test_a_prefix_on_each_line(self, prefix: str) -> None:
        lines = [
            "Traceback (most recent call last):",
            '  File "a.py", line 1, in f',
            "    x",
            "",
            "KeyError: 'x'",
        ]
        text = "".join(f"{prefix}{line}".rstrip() + "\n" for line in lines)  # fmt: skip

        found = signature_of(failed(stdout=text))

        assert found == Signature(
            kind="python", exception="KeyError", message="'x'", frame="a.py::f"
        )

    def test_colours_do_not_hide_it(self) -> None:
        text = (
            "\x1b[1mTraceback (most recent call last):\x1b[0m\r\n\x1b[31mKeyError\x1b[0m: 'x'\r\n"
        )

        found = signature_of(failed(text))

        assert found == Signature(kind="python", exception="KeyError", message="'x'")

    def test_stderr_comes_before_stdout(self) -> None:
        traceback = "Traceback (most recent call last):\n{}: x\n"

        found = signature_of(failed(traceback.format("A"), traceback.format("B")))

        assert found is not None
        assert found.exception == "A"

    def test_a_quoted_header_is_no_error(self) -> None:
        found = signature_of(failed('log: "Traceback (most recent call last):"\nlast words\n'))

        assert found == Signature(kind="last-line", message="last words")


class TestOtherRuntimes:
    @pytest.mark.parametrize(
        ("name", "kind", "exception", "message", "frame"),
        [
            ("node-boom", "node", "TypeError", "no database", "<cwd>/boom.js::Shop.open"),
            ("node-cause", "node", "Error", "bad config", "<cwd>/cause.js::go"),
            ("node-missing", "node", "Error", "Cannot find module './absent'", "<cwd>/missing.js::Object.<anonymous>"),
            ("node-assert", "node", "AssertionError", "Expected values to be strictly deep-equal:", "<cwd>/assert.js::Object.<anonymous>"),
            ("node-esm", "node", "Error", "Cannot find module '<cwd>/absent.mjs' imported from <cwd>/esm.mjs", "node:internal/modules/esm/resolve::finalizeResolution"),
            ("node-syntax", "node", "SyntaxError", "Unexpected token ';'", "node:internal/modules/cjs/loader::wrapSafe"),
            ("cargo-panic", "rust", "panic", "no database", "src/main.rs"),
            ("cargo-error", "rust", "error[E0308]", "mismatched types", "src/main.rs"),
        ],
    )  # fmt: skip
    def test_real_output(
        self, name: str, kind: str, exception: str, message: str, frame: str
    ) -> None:
        text = (DATA / "errors" / f"{name}.txt").read_text("utf-8")

        assert signature_of(failed(text)) == Signature(
            kind=kind, exception=exception, message=message, frame=frame
        )

    def test_a_thrown_string_has_no_type(self) -> None:
        found = signature_of(failed((DATA / "errors" / "node-text.txt").read_text("utf-8")))

        assert found is not None
        assert not found.typed

    def test_the_old_format_of_rust(self) -> None:
        text = "thread 'main' panicked at 'no database: \"x\"', src/main.rs:2:5\nnote: run with\n"

        assert signature_of(failed(text)) == Signature(
            kind="rust", exception="panic", message='no database: "x"', frame="src/main.rs"
        )

    def test_go(self) -> None:
        text = (
            "panic: runtime error: index out of range [5] with length 3 [recovered]\n\n"
            "goroutine 1 [running]:\n"
            "panic({0x1, 0x2})\n\t/usr/lib/go/src/runtime/panic.go:770 +0x132\n"
            "example.com/shop.(*Cart).Total(...)\n\t/home/dev/shop/cart.go:8\n"
            "main.main()\n\t/home/dev/shop/main.go:4 +0x1d\n\n"
            "goroutine 7 [select]:\nmain.other()\n\t/home/dev/shop/other.go:1 +0x1\nexit status 2\n"
        )

        assert signature_of(failed(text, code=2)) == Signature(
            kind="go",
            exception="panic",
            message="runtime error: index out of range [5] with length 3",
            frame="<cwd>/cart.go::example.com/shop.(*Cart).Total",
        )


class TestTests:
    def test_pytest_with_its_error(self) -> None:
        text = (DATA / "testlogs" / "pytest-default.txt").read_text("utf-8")

        found = signature_of(failed(stdout=text))

        assert found is not None
        assert (found.kind, found.exception, found.message) == ("pytest", "KeyError", "'item'")
        assert found.frame == "test_shop.py::test_add"
        assert len(found.failing_tests) == 8

    def test_the_order_of_tests_does_not_matter(self) -> None:
        one = (DATA / "testlogs" / "pytest-default.txt").read_text("utf-8")
        two = (DATA / "testlogs" / "pytest-xdist.txt").read_text("utf-8")

        assert signature_of(failed(stdout=one)) == signature_of(failed(stdout=two))

    def test_unittest_writes_to_stderr(self) -> None:
        text = (DATA / "testlogs" / "unittest.txt").read_text("utf-8")

        found = signature_of(failed(text))

        assert found is not None
        assert (found.kind, found.frame) == ("unittest", "<cwd>/mod_test.py::test_bad")

    def test_ids_are_normalised(self) -> None:
        text = (
            "=== short test summary info ===\n"
            "FAILED t.py::test_x[<object at 0x7f1122334455>] - ValueError: x\n"
            "FAILED t.py::test_x[/home/dev/shop/a] - ValueError: x\n2 failed in 0.01s\n"
        )

        found = signature_of(failed(stdout=text))

        assert found is not None
        assert found.failing_tests == ("t.py::test_x[<cwd>/a]", "t.py::test_x[<object at 0xADDR1>]")

    def test_an_internal_error_of_pytest_is_pythons(self) -> None:
        text = (
            "=== test session starts ===\ncollected 0 items\n"
            "INTERNALERROR> Traceback (most recent call last):\n"
            'INTERNALERROR>   File "/home/dev/shop/conftest.py", line 1, in hook\n'
            "INTERNALERROR> AttributeError: no obj\n\n=== no tests ran in 0.01s ===\n"
        )

        assert signature_of(failed(stdout=text, code=3)) == Signature(
            kind="python",
            exception="AttributeError",
            message="no obj",
            frame="<cwd>/conftest.py::hook",
        )


class TestLastLine:
    def test_is_untyped_and_normalised(self) -> None:
        found = signature_of(failed("first\nno access to /home/dev/shop/x (pid 17)\n\n", "out"))

        assert found == Signature(kind="last-line", message="no access to <cwd>/x (pid <pid1>)")
        assert not found.typed

    def test_of_stdout_where_stderr_is_empty(self) -> None:
        assert signature_of(failed("\n", "a\nb\n")) == Signature(kind="last-line", message="b")

    def test_nothing_printed_is_no_signature(self) -> None:
        assert signature_of(failed()) is None


def test_both_ends_of_a_cut_stream_are_read() -> None:
    output = Output(
        head=b"Traceback (most recent call last):\n  File",
        tail=b"more\nTraceback (most recent call last):\nValueError: end\n",
        omitted=10,
        length=200,
    )

    found = signature_of(CommandRun(exit_code=1, stderr=output))

    assert found == Signature(kind="python", exception="ValueError", message="end")


@pytest.mark.parametrize(
    ("message", "shape"),
    [
        ("0.7 != 0.5", "# != #"),
        ("1 != -3", "# != #"),
        ("Expected 96 from C header, got 88", "Expected # from C header, got #"),
        ("at 0x7f11 and 0xADDR2", "at # and #"),
        ("took 1e-05, 12%, 1,234", "took #, #, #"),
        ("pid <pid3>", "pid #"),
        ("dtype int64 is not utf8 v2", "dtype int64 is not utf8 v2"),
        ("no module named 'a'", "no module named 'a'"),
        ("'10' is no name", "'#' is no name"),
        ("", ""),
    ],
)
def test_message_shape(message: str, shape: str) -> None:
    assert message_shape(message) == shape
    assert message_shape(shape) == shape


@given(st.text(max_size=200) | st.binary(max_size=300).map(lambda b: b.decode("latin-1")))
@settings(max_examples=100, deadline=None)
def test_any_output_gives_a_signature_or_none(text: str) -> None:
    run = failed(text.encode("utf-8", "surrogatepass").decode("utf-8", "replace"))

    found = signature_of(run)

    assert found is None or Signature.model_validate_json(found.model_dump_json()) == found


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        "Traceback (most recent call last):\n",
        "Traceback (most recent call last):\n  File \"a\", line 1, in b\n",
        "    at a (b:1:1)\n\n",
        "x\n    at \n",
        "thread 'a' panicked at 'x\n",
        "panic: x\n",
        "SyntaxError: x\n",
        "error: x\n --> ",
        " | ",
        "x" * 79 + "\n",
    ],
)  # fmt: skip
def test_large_output_is_read(unit: str) -> None:
    signature_of(failed(unit * (600_000 // len(unit))))
