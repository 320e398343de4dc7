"""A small project about invoices, as a git repository with one commit.

Yearly terms crash for an invoice of 29 February, and a test says so. Its tests are run by pytest
where the interpreter has it, and by unittest elsewhere; they look the same to both.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

from repotrace.errors import RepoTraceError
from repotrace.system.git import git

FILES = {
    "billing/__init__.py": '''"""Invoices: when they are to be paid, and when to remind of that."""
''',
    "billing/terms.py": '''"""Terms of payment."""

from datetime import date, timedelta


def last_day(sent: date, terms: str) -> date:
    """The last day on which an invoice sent on `sent` is paid in time.

    Terms are `30 days`, or `yearly`: the same day of the next year.
    """
    if terms == "yearly":
        return sent.replace(year=sent.year + 1)
    number, _, unit = terms.partition(" ")
    if unit != "days" or not number.isdigit():
        raise ValueError(f"no such terms: {terms!r}")
    return sent + timedelta(days=int(number))
''',
    "billing/reminders.py": '''"""Reminders of invoices that are to be paid."""

from datetime import date, timedelta

from billing.terms import last_day


def reminders(sent: date, terms: str) -> list[date]:
    """A week before the last day, and on that day."""
    last = last_day(sent, terms)
    return [last - timedelta(days=7), last]
''',
    "tests/__init__.py": "",
    "tests/test_terms.py": """from datetime import date
from unittest import TestCase

from billing.terms import last_day


class Terms(TestCase):
    def test_days_are_counted(self):
        self.assertEqual(last_day(date(2026, 3, 1), "14 days"), date(2026, 3, 15))

    def test_yearly(self):
        self.assertEqual(last_day(date(2026, 5, 4), "yearly"), date(2027, 5, 4))

    def test_yearly_from_a_leap_day(self):
        self.assertEqual(last_day(date(2028, 2, 29), "yearly"), date(2029, 2, 28))

    def test_other_terms_are_refused(self):
        with self.assertRaisesRegex(ValueError, "no such terms"):
            last_day(date(2026, 1, 1), "soon")
""",
    "tests/test_reminders.py": """from datetime import date
from unittest import TestCase

from billing.reminders import reminders


class Reminders(TestCase):
    def test_a_week_before_and_on_the_day(self):
        first, second = reminders(date(2026, 3, 1), "14 days")
        self.assertEqual(str(first), "2026-03-08")
        self.assertEqual(str(second), "2026-03-15")

    def test_yearly_over_a_leap_day(self):
        _, last = reminders(date(2027, 5, 4), "yearly")
        self.assertEqual(str(last), "2028-05-04")
""",
    "CHANGELOG.md": "# Changes\n\n## 1.0\n\n- Terms of payment, and reminders.\n",
    ".gitignore": "__pycache__/\n.pytest_cache/\n",
}

ENVIRONMENT = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""What the tests run with: whatever plug-ins of pytest are installed, the project has none."""

TASK = "Yearly invoices crash when they are sent on 29 February. Fix it; all tests have to pass."


def make_project(folder: Path) -> None:
    """Write the project into a new or empty folder, and commit it.

    Whatever git is configured to do with commits of the user is not done with this one. Raises
    RepoTraceError if there is something in the folder, or git cannot be run.
    """
    refuse_used(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in {**FILES, "pyproject.toml": _settings()}.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RepoTraceError(f"Cannot write into {folder}: {error.strerror}.") from error
    env = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=Demo", "-c", "user.email=demo@localhost")
    for command in (
        ("-c", "init.defaultBranch=main", "init", "-q", "--template="),
        ("add", "."),
        (*who, "commit", "-q", "-m", "Invoices"),
    ):
        git(command, folder, env=env)


def refuse_used(folder: Path) -> None:
    """Raises RepoTraceError for a folder that there is something in, or that is none."""
    try:
        used = folder.exists() and any(folder.iterdir())
    except OSError as error:
        raise RepoTraceError(f"Cannot use {folder}: {error.strerror}.") from error
    if used:
        raise RepoTraceError(f"{folder} is not empty.", hint="Name a new folder.")


def suite_argv(*paths: str) -> list[str]:
    """What runs these test files of the project, all of them by default, in this interpreter."""
    if find_spec("pytest") is not None:
        return [sys.executable, "-m", "pytest", "-q", *paths]
    return [sys.executable, "-m", "unittest", *(paths or ("discover",)), "-v"]


def _settings() -> str:
    line = shlex.join(suite_argv())
    return (
        '[project]\nname = "billing"\nversion = "1.0"\n\n'
        f"[tool.repotrace.check]\ncommand = {json.dumps(line, ensure_ascii=False)}\n"
        f"env = {{ {', '.join(f'{name} = {json.dumps(v)}' for name, v in ENVIRONMENT.items())} }}\n"
    )
