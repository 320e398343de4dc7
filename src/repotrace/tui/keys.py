"""The keys of the screen: what they are bound to, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import Binding

from repotrace.render.diffs import Line, Span

BINDINGS = (
    Binding("n", "step(1)", show=False),
    Binding("p", "step(-1)", show=False),
    Binding("j", "jump", show=False),
    Binding("l", "list", show=False),
    Binding("f", "tab('Files')", show=False),
    Binding("q", "quit", show=False),
    Binding("ctrl+c", "interrupt", show=False),
    Binding("ctrl+z", "suspend_process", show=False),
    Binding("left", "turn(-1)", show=False),
    Binding("right", "turn(1)", show=False),
    *(Binding(str(n), f"tab_number({n})", show=False) for n in range(1, 8)),
    Binding("slash", "search", show=False),
    Binding("full_stop", "found(False)", show=False),
    Binding("comma", "found(True)", show=False),
    Binding("e", "failure(False)", show=False),
    Binding("E", "failure(True)", show=False),
    Binding("t", "test_run(False)", show=False),
    Binding("T", "test_run(True)", show=False),
    Binding("m", "mark", show=False),
    Binding("d", "diff", show=False),
    Binding("r", "restore", show=False),
    Binding("y", "copy", show=False),
    Binding("c", "colours", show=False),
    Binding("question_mark", "help", show=False),
    Binding("escape", "leave", show=False),
)

HINT = (
    ("n/p", "step"), ("←/→", "tab"), ("j", "jump"), ("/", "search"), ("e", "failure"),
    ("d", "diff"), ("y", "copy"), ("?", "help"), ("q", "quit"),
)  # fmt: skip
FINDING = ((".", "next"), (",", "back"), ("Esc", "end"), ("?", "help"), ("q", "quit"))
"""What the foot of the screen says while something is searched for."""

KEYS = (
    ("n p", "next step, previous step; ↓ ↑ in the list do the same"),
    ("j", "jump to a step by its number, or to a checkpoint by its name"),
    ("← →", "the tab before, the tab after; 1 to 7 go to one"),
    ("Tab", "from the list to what is shown, and back"),
    ("l", "the list over the whole screen"),
    ("f", "the files after this step"),
    ("m", "mark this step, or take its mark away"),
    ("d", "diff from the marked step to this one, or of this step"),
    ("/", "search, in all that was recorded of the run"),
    (". ,", "next step in which it was found, the one before"),
    ("e E", "next step that failed, the one before"),
    ("t T", "next step that ran tests, the one before"),
    ("Enter", "open a folded part, a folder, a file; x opens all parts"),
    ("r", "write the files after this step into a folder"),
    ("y", "copy the command that shows this"),
    ("c", "dark on light, or light on dark"),
    ("Esc", "back to the list; there: end the search"),
    ("q", "quit"),
)
"""Each key, or a pair of keys, with its meaning."""


SIGNS = (
    ("✗", "failed"), ("!", "interrupted"), ("…", "running"), ("↻2", "retry"), ("◆", "marked"),
    ("⚑", "blamed"), ("┬", "branch"),
)  # fmt: skip
"""What stands before steps in the list."""


def keys_line(keys: Sequence[tuple[str, str]], width: int) -> Line:
    """Keys with what they do, on one line; where there is no room, the last ones but two go."""
    shown = list(keys)
    while len(shown) > 2 and sum(len(key) + len(word) + 3 for key, word in shown) > width:
        del shown[-3]
    return [part for key, word in shown for part in (Span(f" {key}", "bold"), Span(f" {word} "))]
