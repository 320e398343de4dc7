"""Captured text in Markdown, judged by a CommonMark parser; readable text by hand."""

from __future__ import annotations

import html
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from repotrace.markdown import code_span, escape_cell, fence, inline, output, prose
from repotrace.readable import one_line, readable, seconds, shell_line, size, truncate
from repotrace.records.command import CommandRun

NASTY = st.text(
    alphabet=st.one_of(
        st.sampled_from("`*_[]()<>#@|\\~!&;:-+=.1 \n\t\r\x1b\x00ab/$\"'{}^"), st.characters()
    ),
    max_size=60,
)


def parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def inner(tokens: list[Token]) -> list[Token]:
    """The tokens inside the lines of `tokens`."""
    return [child for token in tokens for child in token.children or []]


@settings(max_examples=300, deadline=None)
@given(NASTY)
@example("``")
@example("`a` ``b``")
@example("https://x.y/?a=1&amp;b=2")
@example("<script>alert(1)</script>")
@example("![x](y) [a][b] **b** _i_ ~~s~~")
def test_nothing_in_an_inline_value_acts(text: str) -> None:
    tokens = parser().parse(f"- **key:** {inline(text)} end")
    assert [token.type for token in tokens] == [
        "bullet_list_open", "list_item_open", "paragraph_open", "inline", "paragraph_close",
        "list_item_close", "bullet_list_close",
    ]  # fmt: skip
    children = inner(tokens)
    end_of_key = [child.type for child in children].index("strong_close")
    rest = children[end_of_key + 1 :]
    assert {child.type for child in rest} <= {"text", "code_inline"}
    shown = "".join(child.content for child in rest)
    assert shown.split() == [*one_line(text).split(), "end"]


@pytest.mark.parametrize(
    "text",
    [
        "Command failed: python -c import sys; print('boom'); sys.exit(7)",
        "exit code 7 -> 0",
        "/tmp/demo/my_project-1.2/file.py",
        "tests/test_a.py::test_one, tests/test_b.py::test_two",
        "naïve 日本語 — fine",
        "a && b; c > d",
    ],
)
def test_harmless_text_stays_as_it_is(text: str) -> None:
    assert inline(text) == text


@pytest.mark.parametrize(
    "text",
    ["ask @alice", "see #123", "GH-12", "__init__.py", "a * b * c", "<b>", ":tada:", "$x$ and $y$",
     "www.example.org", "http://example.org", "org/repo#5", "&lt;", "a`b`"],
)  # fmt: skip
def test_what_github_would_act_on_becomes_code(text: str) -> None:
    children = inner(parser().parse(inline(text)))
    assert [(child.type, child.content) for child in children] == [("code_inline", text)]


def test_an_empty_value_is_a_dash() -> None:
    assert code_span("") == "—"
    assert code_span(" \n ") == "—"


@settings(max_examples=200, deadline=None)
@given(NASTY, NASTY)
@example("a\\|b `|` \\\\|", "x|y")
@example("|", "\\|")
def test_a_cell_stays_one_cell(one: str, other: str) -> None:
    rows = f"| A | B |\n| --- | --- |\n| {escape_cell(one)} | {escape_cell(other)} |"
    tokens = parser().parse(rows)
    cells = [tokens[i + 1] for i, token in enumerate(tokens) if token.type == "td_open"]
    assert len(cells) == 2
    for cell, text in zip(cells, (one, other), strict=True):
        children = cell.children or []
        assert {child.type for child in children} <= {"text", "html_inline", "text_special"}
        tags = [child.content for child in children if child.type == "html_inline"]
        assert tags in ([], ["<code>", "</code>"])
        shown = "".join(child.content for child in children if child.type != "html_inline")
        assert html.unescape(shown).split() == one_line(text).split()


def test_cells_of_old_stay_as_they_were() -> None:
    assert escape_cell("a|b\nc") == "a\\|b c"
    assert escape_cell(7) == "7"
    assert escape_cell("exit code 7 -> 0, stdout differs") == "exit code 7 -> 0, stdout differs"


@settings(max_examples=200, deadline=None)
@given(NASTY)
@example("```\n# x\n````\n~~~")
def test_a_fence_holds_whatever_it_is_given(text: str) -> None:
    body = readable(text)
    tokens = parser().parse("\n".join(["before", "", *fence(body, "text"), "", "after"]))
    assert [token.type for token in tokens] == [
        *("paragraph_open", "inline", "paragraph_close"), "fence",
        *("paragraph_open", "inline", "paragraph_close"),
    ]  # fmt: skip
    # CommonMark itself has NUL and lines of blanks only in special care; readable has no NUL.
    assert tokens[3].content.rstrip("\n") == body.rstrip("\n")


@settings(max_examples=200, deadline=None)
@given(NASTY)
@example("# heading\n===\n> quote\n<div>\n```\n| a | b |\n| --- | --- |")
@example("    code\n***\n* * *\n[x]: http://y\nfoo\n---")
def test_prose_makes_paragraphs_and_lists_only(text: str) -> None:
    tokens = parser().parse("\n".join(prose(text)))
    allowed = ("paragraph", "inline", "bullet_list", "ordered_list", "list_item")
    assert [token.type for token in tokens if not token.type.startswith(allowed)] == []
    assert {child.type for child in inner(tokens)} <= {
        "text", "code_inline", "hardbreak", "softbreak"
    }  # fmt: skip


def test_prose_keeps_its_lines() -> None:
    text = "Since #12 it fails.\nAsk @bob or `me`.\n\n- one\n- two"
    assert prose(text) == [
        "Since `#12` it fails.  ",
        "Ask `@bob` or `` `me`. ``",
        "",
        "- one  ",
        "- two",
    ]


def test_short_output_stands_in_a_fence() -> None:
    assert output("a\nb\n", "stdout") == ["```text", "a", "b", "```"]


def test_long_output_is_folded_with_its_end_outside() -> None:
    lines = output("".join(f"line {n}\n" for n in range(1, 101)), "stdout")
    assert lines[:4] == ["The last 10 of 100 lines:", "", "```text", "line 91"]
    assert lines[12:17] == [
        "line 100",
        "```",
        "",
        "<details>",
        "<summary>stdout: 100 lines</summary>",
    ]
    assert lines[17:20] == ["", "```text", "line 1"]
    assert lines[-4:] == ["line 100", "```", "", "</details>"]


def test_forty_lines_are_not_long() -> None:
    text = "\n".join(map(str, range(40)))
    assert "<details>" not in output(text, "stdout")
    assert "<details>" in output(text + "\n40", "stdout")


def test_huge_output_fits_an_issue() -> None:
    """GitHub takes 65,536 characters."""
    many = output("".join(f"line {n}\n" for n in range(100_000)), "stdout")
    assert sum(map(len, many)) < 30_000
    assert [line for line in many if "only" in line] == ["[… 99601 lines are in the report only …]"]
    assert many[-4] == "line 99999"
    one = output("x" * 1_000_000, "stdout")
    assert one[1].endswith("x… [998000 more characters]")
    assert sum(map(len, one)) < 3_000
    wide = output("\n".join("y" * 5000 for _ in range(300)), "stdout")
    assert sum(map(len, wide)) < 60_000


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;https://x.y\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;title\x07$ ", "$ "),
        ("\x1b[\x1b[31m31mnested", "nested"),
        ("\x1b(B\x1b[?25l\x1b7spin\x1b8", "spin"),
        ("10%\r50%\r100%\n", "100%\n"),
        ("10%\r", "10%"),
        ("dos\r\nline\r\r\n", "dos\nline\n"),
        ("bell\x07 nul\x00 del\x7f tab\t", "bell␇ nul␀ del␡ tab\t"),
        ("rtl\u202eevil\u2066", "rtl\\u202eevil\\u2066"),
        ("sep\u2028\x85", "sep\\u2028\\u0085"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("family 👩\u200d👧", "family 👩\u200d👧"),
        ("lone \ud800 and byte \udcff", "lone \\ud800 and byte \\udcff"),
    ],
)
def test_readable_text_is_what_one_would_have_seen(text: str, seen: str) -> None:
    assert readable(text) == seen
    assert readable(seen) == seen


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.one_of(st.sampled_from("\x1b[]m0;\r\n\x9b\x07\\ab"), st.characters())))
def test_readable_text_can_be_written_and_has_no_controls(text: str) -> None:
    shown = readable(text)
    shown.encode("utf-8")
    assert not [c for c in shown if (c < " " and c not in "\n\t") or "\x7f" <= c < "\xa0"]
    assert readable(shown) == shown


def test_lines_and_numbers_for_people() -> None:
    assert one_line(" a\n\tb\r\n c ") == "a b c"
    assert one_line("abcdef", 4) == "abc…"
    assert truncate("a" * 121) == "a" * 119 + "…"
    assert truncate("a" * 120) == "a" * 120
    assert [seconds(n) for n in (0.004, 0.03, 9.99, 12.44, 200, 7199, 86_224, float("inf"))] == [
        "4 ms", "0.03 s", "9.99 s", "12.4 s", "3 min 20 s", "119 min 59 s", "23 h 57 min", "inf s"
    ]  # fmt: skip
    assert [size(n) for n in (1, 999, 12_500, 3_200_000)] == [
        "1 byte", "999 bytes", "12.5 kB", "3.2 MB"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "argv",
    [
        ("printf", "%s.", "plain", "two words", "", "it's", 'say "hi"', "$HOME `x` \\ !"),
        ("printf", "%s.", "line\nbreak", "tab\tbed", "\x1b[31mred", "\x01\x7f"),
        ("printf", "%s.", "byte \udcff", "naïve 日本語", "'\x07\\"),
        ("printf", "%s.", "import sys; print('boom')", 'it\'s "both"', "it's $HOME"),
    ],
)
def test_the_shell_line_can_be_pasted(argv: tuple[str, ...]) -> None:
    line = shell_line(CommandRun(argv=argv))
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    wanted = subprocess.run(list(argv), capture_output=True, check=True)
    assert done.stdout == wanted.stdout


def test_the_shell_line_is_readable() -> None:
    run = CommandRun(argv=("python", "-c", "import sys; print('boom'); sys.exit(7)"))
    assert shell_line(run) == "python -c \"import sys; print('boom'); sys.exit(7)\""
    assert shell_line(CommandRun(script="a | b && c")) == "a | b && c"
