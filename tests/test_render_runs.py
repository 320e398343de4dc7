"""What runs look like: diffs, captured output, tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import plain_git

from repotrace.render.console import console
from repotrace.render.diffs import SYNTAX_LIMIT, Span, diff_lines, diff_view


def shown(diff: bytes) -> str:
    """The text of a diff without its colours."""
    return "".join("".join(span.text for span in line) + "\n" for line in diff_lines(diff))


def git_diff(folder: Path, before: dict[str, bytes], after: dict[str, bytes]) -> bytes:
    """What git says of two pictures of a folder."""
    plain_git(folder, "init", "-q")
    for contents in (before, after):
        for path in folder.iterdir():
            if path.is_file():
                path.unlink()
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        plain_git(folder, "add", "-A")
        if contents is before:
            plain_git(folder, "commit", "-qm", "x")
    return plain_git(folder, "diff", "--binary", "HEAD").encode() + b"\n"


def test_a_diff_is_shown_word_for_word(tmp_path: Path) -> None:
    code = Path(diff_lines.__code__.co_filename).read_bytes()
    after = code.replace(b"def ", b"async def ").replace(b"\n\n\n", b"\n\n\n# --- x\n")
    tricky = b"-- a\n++ b\n@@ -1 +1 @@\n\\ x\nlast"
    diff = git_diff(
        tmp_path,
        {"code.py": code, "tricky.txt": tricky, "gone.rs": b"fn main() {}\n"},
        {"code.py": after, "tricky.txt": tricky.replace(b"a", b"b").replace(b"last", b"end")},
    )
    assert len(diff) < SYNTAX_LIMIT
    assert shown(diff) == diff.decode()


def test_a_diff_is_coloured_by_line_and_by_syntax(tmp_path: Path) -> None:
    diff = git_diff(
        tmp_path, {"a.py": b"import os\nx = 1\n"}, {"a.py": b'import os\ndef f(): return "s"\n'}
    )
    lines = list(diff_lines(diff))[-3:]
    assert lines == [
        [Span(" "), Span("import", "magenta"), Span(" os")],
        [Span("-x = ", "red"), Span("1", "cyan")],
        [
            *(Span("+", "green"), Span("def", "magenta"), Span(" ", "green"), Span("f", "blue")),
            *(Span("(): ", "green"), Span("return", "magenta"), Span(" ", "green")),
            Span('"s"', "yellow"),
        ],
    ]
    plain = list(diff_lines(diff, syntax=False))[-3:]
    assert plain == [[Span(" import os")], [Span("-x = 1", "red")], [lines[2][0]._replace(
        text='+def f(): return "s"'
    )]]  # fmt: skip


def test_a_string_over_several_lines_stays_a_string(tmp_path: Path) -> None:
    before = b'"""\nfor\n"""\n'
    diff = git_diff(tmp_path, {"a.py": before}, {"a.py": before.replace(b"for", b"if")})
    lines = [line for line in diff_lines(diff) if line[-1].text in ("for", "if")]
    assert [line[-1].style for line in lines] == ["yellow", "yellow"]


def test_what_could_act_in_a_diff_is_made_visible(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J \u202e\r[bold red]x[/]\n".encode() + b"\xff\n"
    diff = git_diff(tmp_path, {"a.txt": b"x\n"}, {"a.txt": b"x\n"}) + (
        b"--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,2 @@\n x\n+" + evil.replace(b"\n", b"\n+", 1)
    )
    text = shown(diff)
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\u202e" not in text
    assert "+\u241b]0;owned\u2407\u241b[2J \\u202e\u240d[bold red]x[/]\n+\\xff\n" in text


def test_binary_contents_are_summed_up(tmp_path: Path) -> None:
    diff = git_diff(tmp_path, {"a": b"\0" * 10, "b": b"1"}, {"a": b"\0\1\2\3\4", "b": b"2"})
    lines = shown(diff).splitlines()
    assert lines[2] == "binary: 10 bytes → 5 bytes"
    assert lines[3] == "diff --git a/b b/b"


@pytest.mark.parametrize(
    "garbage", [b"", b"\n", b"@@ -1,9 +1,9 @@", b"\xff\n@@ -x", b"GIT binary patch"]
)
def test_what_is_no_diff_is_shown_too(garbage: bytes) -> None:
    shown(garbage)


def test_printing_a_diff_cuts_and_wraps_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    diff = git_diff(tmp_path, {"a.py": b"x\n"}, {"a.py": b"y = 'long " + b"z" * 90 + b"'\n"})
    console(color="never").print(diff_view(diff), soft_wrap=True)
    assert capsys.readouterr().out == diff.decode()
