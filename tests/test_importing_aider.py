"""The chats of Aider as runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from importing import (
    AIDER,
    RIGHT,
    SHARED,
    WRONG,
    calc_repository,
    check_end,
    commit_at,
    imported_runs,
    invoice_repository,
)
from running import plain_git

from repotrace.importers.aider_edits import Edit, edits_of, prose
from repotrace.storage import Store


def test_each_chat_is_a_run(store: Store, tmp_path: Path) -> None:
    (_, one, steps), (_, other, others) = imported_runs(
        store, AIDER, calc_repository(tmp_path / "calc")
    )
    assert one.task == "add() in calc.py forgets its second argument.\nFix it."
    assert (one.agent, one.agent_version) == ("aider", "0.86.2")
    assert [(step.step_type, step.status, step.description) for step in steps] == [
        ("llm", "completed", "I have to see calc.py first."),
        ("tool", "completed", "add calc.py"),
        ("edit", "completed", "edit calc.py"),
        ("test", "failed", "python -m pytest -q"),
        ("edit", "completed", "edit calc.py"),
        ("edit", "completed", "edit NOTES"),
        ("test", "completed", "python -m pytest -q"),
        ("command", "completed", "cat calc.py"),
        ("note", "completed", "User: Is there anything else?"),
        ("llm", "completed", "No."),
    ]
    assert steps[6].retry_of == steps[3].id
    assert steps[2].reason == "I subtract."
    # Rounded by Aider itself, see the lines "Tokens:".
    assert one.totals.input_tokens == 850 + 2900 + 3600 + 900
    assert one.totals.output_tokens == 20 + 70 + 145 + 2
    assert (one.totals.cache_write_tokens, one.totals.cache_read_tokens) == (1200, 800)
    assert str(one.totals.cost_usd) == "0.0208"
    calls = store.runs.interactions(one.id)
    assert [call.attempts for call in calls] == [1, 2, 1, 1]
    assert {call.model for call in calls} == {"some/model-large"}
    (command,) = (c for c in store.runs.commands(one.id) if not c.is_test)
    assert command.command.stdout.text == "def add(a, b):\n    return a + b"
    assert other.task == "Give add() a docstring, and subtract() as well."
    assert [(step.step_type, step.status) for step in others] == [
        *(("tool", "completed"), ("edit", "failed"), ("edit", "completed"), ("edit", "completed")),
    ]


def test_the_blocks_are_applied(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    (summary, run, steps), _ = imported_runs(store, AIDER, repository)
    states = [step.state_id for step in steps if step.state_id]
    assert [store.snapshots.read(state, "calc.py") for state in states] == [
        *(WRONG.encode(), RIGHT.encode(), RIGHT.encode()),
    ]
    assert store.snapshots.read(states[-1], "NOTES") == b"fixed\n"
    assert {step.state_quality for step in steps if step.state_id} == {"inferred"}
    assert (summary.test_runs, summary.failing_test_runs, summary.retries) == (2, 1, 1)
    assert summary.read_first == ("calc.py",)
    assert run.workspace == str(repository)


def test_the_commits_of_a_chat_tell_where_it_began(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    begin = plain_git(repository, "rev-parse", "HEAD")
    (repository / "calc.py").write_text(RIGHT)
    (repository / "NOTES").write_text("fixed\n")
    plain_git(repository, "add", "-A")
    plain_git(repository, "commit", "-q", "-m", "By Aider")
    commit = plain_git(repository, "rev-parse", "--short=7", "HEAD")
    plain_git(repository, "commit", "-q", "--allow-empty", "-m", "Later")
    # The history lies in the repository, where Aider keeps it.
    path = repository / ".aider.chat.history.md"
    text = AIDER.read_text().replace("a1b2c3d", commit)
    path.write_text(text[: text.index("# aider chat started at 2026-03-01 12:30")])
    ((summary, run, _),) = imported_runs(store, path)
    assert run.base_commit == begin
    assert run.workspace == str(repository)
    assert summary.end.against == "work tree"
    assert set(summary.end.differing) == {".aider.chat.history.md"}


def test_an_undone_change_is_taken_back(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    (repository / "calc.py").write_text(RIGHT)
    plain_git(repository, "add", "calc.py")
    tree = plain_git(repository, "write-tree")
    plain_git(
        repository, "reset", "-q", commit_at(repository, "2026-02-28T13:00:00Z", tree, "-p", "HEAD")
    )
    _, (summary, _, steps) = imported_runs(store, AIDER, repository)
    states = [step.state_id for step in steps if step.state_id]
    documented = 'def add(a, b):\n    """The sum."""\n    return a + b\n'
    found = [(store.snapshots.read(state, "calc.py") or b"").decode() for state in states]
    assert found == [documented, documented.replace("a + b", "sum((a, b))"), documented]
    assert summary.end.quality == "inferred"


def test_what_the_linter_changed_is_not_known(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "chats.md"
    line = "> You can use /undo to revert and discard commit a1b2c3d.  \n"
    text = AIDER.read_text()
    path.write_text(text.replace(line, f"{line}> Commit e5f6a7b style: Sort  \n"))
    (summary, _, steps), _ = imported_runs(store, path, calc_repository(tmp_path / "calc"))
    assert "linter e5f6a7b" in [step.description for step in steps]
    assert summary.end.quality == "unverified"


def test_what_a_person_had_changed_is_committed_first(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "chats.md"
    line = "> Applied edit to calc.py\x20\x20\n> Commit a1b2c3d"
    told = "> Committing calc.py before applying edits.  \n> Commit 0123456 Earlier  \n"
    text = AIDER.read_text()
    assert line in text
    path.write_text(text.replace(line, told + line))
    (summary, run, steps), _ = imported_runs(store, path, calc_repository(tmp_path / "calc"))
    assert not any("linter" in step.description for step in steps)
    assert summary.end.quality == "inferred"
    messages = [log.message for log in store.runs.logs(run.id)]
    assert "Commit 0123456 Earlier" in messages


def test_edit_formats() -> None:
    assert edits_of("calc.py\n```\nx = 1\n```\nSee above.", "whole") == [
        Edit("calc.py", "", "x = 1\n", whole=True)
    ]
    udiff = "```diff\n--- a.py\n+++ a.py\n@@ ... @@\n one\n-two\n+2\n@@ ... @@\n-three\n```"
    assert edits_of(udiff, "udiff") == [
        Edit("a.py", "one\ntwo\n", "one\n2\n"),
        Edit("a.py", "three\n", ""),
    ]
    fenced = "```\na/b.py\n<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n```"
    assert edits_of(fenced, "diff-fenced") == [Edit("a/b.py", "x\n", "y\n")]
    patch = "*** Begin Patch\n*** Add File: n\n+1\n*** Delete File: d\n*** End Patch"
    assert [(edit.path, edit.kind) for edit in edits_of(patch, "patch")] == [
        *(("n", "create"), ("d", "delete")),
    ]
    broken = "a.py\n```\n<<<<<<< SEARCH\nx\n"
    assert edits_of(broken, "diff") == []
    assert prose(f"First.\n\n{fenced}\n\nLast.") == "First.\n\n\nLast."


CHATS = [
    *(SHARED / "samples" / "aider").glob("aider__*.md"),
    *(SHARED / "agents" / "fixtures" / "aider").glob("*/session/*/.aider.chat.history.md"),
]
REAL = [path for path in CHATS if "fixtures" in path.parts]


@pytest.mark.skipif(not CHATS, reason="no chats of real people beside the checkout")
def test_tokens_are_those_that_aider_tells(store: Store) -> None:
    for path in CHATS:
        told = re.findall(r"^> Tokens: ([\d.,]+)(k?) sent", path.read_text(), re.MULTILINE)
        sent = sum(round(float(number.replace(",", "")) * (1000 if k else 1)) for number, k in told)
        runs = imported_runs(store, path)
        assert sum(run.totals.input_tokens for _, run, _ in runs) == sent, path
        assert sum(summary.input_tokens for summary, _, _ in runs) == sent, path
        applied = path.read_text().count("\n> Applied edit to ")
        operations = [o for _, run, _ in runs for o in store.runs.operations(run.id)]
        assert len(operations) >= applied, path


@pytest.mark.skipif(not REAL, reason="no sessions of real agents beside the checkout")
def test_real_chats_end_with_the_real_diff(store: Store, tmp_path: Path) -> None:
    repository = invoice_repository(tmp_path / "invoice")
    for path in REAL:
        copy = shutil.copy(path, tmp_path / "chat.md")
        ((summary, run, steps),) = imported_runs(store, Path(copy), repository)
        final = next(parent for parent in path.parents if parent.name == "session").parent
        check_end(store, steps, repository, final / "final.diff")
        assert (summary.failing_test_runs, run.totals.retries) == (1, 1)
        assert summary.read_first == ("src/invoice_export/duedate.py",)
        edits = [step.step_number for step in steps if step.step_type == "edit"]
        (failed,) = (step for step in steps if step.step_type == "test" and step.error)
        assert edits[0] < failed.step_number < edits[1]
