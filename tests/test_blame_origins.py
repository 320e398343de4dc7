"""Which of several steps made a hunk."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from repotrace.runs.finding.hunk_origins import made_at
from repotrace.runs.testing.hunks import Hunk, hunks_between, split_lines

EDITS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=8
)
"""Of each step: where, how many lines it takes away, how many it puts in."""


def content(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@given(EDITS)
@settings(deadline=None, max_examples=300)
def test_a_hunk_is_made_by_one_step_if_all_its_lines_came_and_went_with_it(
    edits: list[tuple[int, int, int]],
) -> None:
    """No two lines are equal, so that it is known of each who wrote it and who took it away."""
    lines = [f"{number}\n".encode() for number in range(10)]
    texts = [list(lines)]
    writers: dict[bytes, int] = {}
    removers: dict[bytes, int] = {}
    for step, (place, taken, put) in enumerate(edits, 1):
        fresh = [f"{step} {number}\n".encode() for number in range(put)]
        removers |= dict.fromkeys(lines[place : place + taken], step)
        writers |= dict.fromkeys(fresh, step)
        lines[place : place + taken] = fresh
        texts.append(list(lines))
    contents = [b"".join(text) for text in texts]
    for hunk in hunks_between(texts[0], texts[-1]):
        involved = {writers[line] for line in hunk.lines}
        involved |= {removers[line] for line in texts[0][hunk.start : hunk.end]}
        expected = involved.pop() if len(involved) == 1 else None
        assert made_at(hunk, contents) == expected


def test_lines_that_came_twice_are_nobodys() -> None:
    first, middle = content("a", "b"), content("a", "x", "b")
    contents = [first, middle, first, middle]
    (hunk,) = hunks_between(split_lines(first), split_lines(middle))
    assert hunk == Hunk(1, 1, (b"x\n",), 1)
    assert made_at(hunk, contents) is None
    assert made_at(hunk, [first, first, middle, content("a", "x", "b", "c")]) == 2


def test_a_file_as_a_whole() -> None:
    assert made_at(None, [b"1\0", b"1\0", b"2\0", b"2\0"]) == 2
    assert made_at(None, [b"1\0", b"2\0", None]) == 2
    assert made_at(None, [b"1\0", b"2\0", b"1\0", b"2\0"]) is None
