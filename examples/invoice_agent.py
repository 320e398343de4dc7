"""The agent of `repotrace.demo`, with another script: it breaks a test, sees it, and repairs it.

    python examples/invoice_agent.py [FOLDER]

It works on a project where invoices with yearly terms crash when they are sent on 29 February. The
agent itself is `src/repotrace/demo/agent.py`, one page that is to be read.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from repotrace.demo.agent import InvoiceAgent, ScriptedModel, Turn
from repotrace.demo.project import TASK, make_project
from repotrace.errors import RepoTraceError

SCRIPT: tuple[Turn, ...] = (
    ("Which code knows about terms?", "search", {"pattern": "yearly"}),
    ("`last_day` decides it. I'll read it.", "read", {"path": "billing/terms.py"}),
    ("And what is expected of it.", "read", {"path": "tests/test_reminders.py"}),
    (
        "29 February does not exist in the next year. I'll add 365 days instead.",
        "edit",
        {
            "path": "billing/terms.py",
            "changes": [("sent.replace(year=sent.year + 1)", "sent + timedelta(days=365)")],
        },
    ),
    ("Now the tests.", "test", {}),
    (
        "365 days are a day short over a leap day. I'll replace the year again, and treat"
        " 29 February on its own.",
        "edit",
        {
            "path": "billing/terms.py",
            "changes": [
                (
                    "        return sent + timedelta(days=365)\n",
                    "        day = 28 if (sent.month, sent.day) == (2, 29) else sent.day\n"
                    "        return sent.replace(year=sent.year + 1, day=day)\n",
                )
            ],
        },
    ),
    ("Again.", "test", {}),
    ("Fixed: from 29 February it is 28 February; all tests pass.", None, {}),
)


def main() -> None:
    """Work on the project, in the given folder or a new one."""
    given = sys.argv[1:]
    folder = Path(given[0] if given else tempfile.mkdtemp(prefix="invoice-"))
    try:
        make_project(folder)
    except RepoTraceError as error:
        sys.exit(error.message)
    os.chdir(folder)
    print(InvoiceAgent(ScriptedModel(SCRIPT)).work(TASK))
    print(f"\nLook at it:\n  cd {folder}\n  repotrace runs show\n  repotrace play --step 8")


if __name__ == "__main__":
    main()
