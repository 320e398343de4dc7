"""The agent of the demonstration as a program: it works in the current folder.

It runs the tests of the module that it changed, and is content with that.
"""

from __future__ import annotations

from repotrace.demo.agent import InvoiceAgent, ScriptedModel, Turn
from repotrace.demo.project import TASK

TERMS = "billing/terms.py"
OWN_TESTS = {"paths": ["tests/test_terms.py"]}

SCRIPT: tuple[Turn, ...] = (
    ("Which code knows about yearly terms?", "search", {"pattern": "yearly"}),
    ("`last_day` decides it. I'll read it.", "read", {"path": TERMS}),
    (
        "29 February does not exist in the next year. I'll add 365 days instead.",
        "edit",
        {
            "path": TERMS,
            "changes": [
                ("`yearly`: the same day of the next year.", "`yearly`: a year later."),
                ("sent.replace(year=sent.year + 1)", "sent + timedelta(days=365)"),
            ],
        },
    ),
    ("Does that do?", "test", OWN_TESTS),
    (
        "It does. A line for the users.",
        "edit",
        {
            "path": "CHANGELOG.md",
            "changes": [("# Changes\n", "# Changes\n\n- Yearly terms from 29 February.\n")],
        },
    ),
    (
        "And the message could say which terms there are.",
        "edit",
        {
            "path": TERMS,
            "changes": [("no such terms: {terms!r}", "no such terms: {terms!r} (N days, yearly)")],
        },
    ),
    ("Once more.", "test", OWN_TESTS),
    ("Yearly invoices of 29 February no longer crash. All tests pass.", None, {}),
)


def main() -> None:
    """Do the task of the demonstration."""
    print(InvoiceAgent(ScriptedModel(SCRIPT)).work(TASK))


if __name__ == "__main__":
    main()
