"""`rerun`: an agent runs on from a step, in a folder of its own."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from recording import event
from running import Shell, clean_environment, plain_git
from states import exact

from repotrace.demo.project import TASK, make_project
from repotrace.errors import RepoTraceError, RunNotFound
from repotrace.records.run import Run
from repotrace.runs import rerun_from_step
from repotrace.runs.rerun import plan_rerun, prepared
from repotrace.storage import Store

ROOT = Path(__file__).parents[1]
HINT = "From 29 February it is 28 February."

AGENT = """
import sys
sys.path.insert(0, {examples!r})
from invoice_agent import SCRIPT
from repotrace.demo.agent import InvoiceAgent, ScriptedModel

right = SCRIPT[5][2]["changes"][0][1]
wrong = "        return sent.replace(year=sent.year + 1)\\n"
told = (
    *SCRIPT[:2],
    ("29 February becomes 28 February.", "edit",
     {{"path": "billing/terms.py", "changes": [(wrong, right)]}}),
    *SCRIPT[6:],
)
prompt = sys.argv[1]
print(InvoiceAgent(ScriptedModel(told if {hint!r} in prompt else SCRIPT)).work(prompt))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a project on which the agent has worked under `record`: it broke a test, and
    retried."""
    place = tmp_path_factory.mktemp("rerun") / "place"
    shell = Shell(place)
    shell.cwd = place / "the project"
    make_project(shell.cwd)
    agent = place / "agent.py"
    agent.write_text(AGENT.format(examples=str(ROOT / "examples"), hint=HINT))
    done = shell("record", "--task", TASK, "--", sys.executable, str(agent), TASK)
    assert done.returncode == 0, done.stderr.decode()
    shutil.copytree(place, place.parent / "kept", symlinks=True)
    return place


@pytest.fixture
def place(recorded: Path) -> Path:
    """That folder as it was, at the same place."""
    shutil.rmtree(recorded)
    shutil.copytree(recorded.parent / "kept", recorded, symlinks=True)
    return recorded


@pytest.fixture
def repotrace(place: Path, tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.home, shell.cwd = place / "home", place / "the project"
    return shell


def store_of(shell: Shell) -> Store:
    return Store(shell.cwd / ".git" / "repotrace")


def waiting(store: Store, folder: Path, **facts: Any) -> Run:
    """A run without steps, in `folder/work`."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    state = exact(store.snapshots.take(work, ref="runs/r0123456789ab"))
    store.runs.add_events(
        [
            event("run_started", 0, task="Fix it", workspace=str(work), **facts),
            event("state", 0, state_id=state, state_quality="exact"),
            event("run_ended", 9),
        ]
    )
    return store.runs.get("latest")


def wrong_edit(store: Store) -> int:
    """The number of the first edit."""
    steps = store.runs.steps(store.runs.get("latest").id)
    return next(step.step_number for step in steps if step.step_type == "edit")


def picture(folder: Path) -> dict[str, str]:
    """Every file of a folder but what is private to us, by its digest."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and ".git/repotrace" not in str(path)
        and "__pycache__" not in path.parts
        and ".pytest_cache" not in path.parts
    }


def test_a_changed_prompt_saves_the_retry(repotrace: Shell, place: Path) -> None:
    store = store_of(repotrace)
    original = store.runs.get("latest")
    assert (original.totals.retries, original.outcome) == (1, "passed")
    step = wrong_edit(store) - 1
    before = picture(repotrace.cwd)
    saved = store.runs.get(original.id).model_dump_json()

    done = repotrace(
        "rerun", original.id, "--from-step", str(step), "--modify-prompt", HINT, "--execute"
    )

    assert done.returncode == 0, done.stderr.decode()
    out = done.stdout.decode()
    assert "retries   1 " in out
    assert "Both ended with the same files." in out
    (branch,) = store.runs.list(parent=original.id)
    assert (branch.branched_from_step, branch.totals.retries, branch.outcome) == (step, 0, "passed")
    assert branch.attributes["modification"] == HINT
    folder = place / f"the project-{original.id}-step-{step}"
    assert branch.workspace == str(folder)
    assert picture(repotrace.cwd) == before
    assert store.runs.get(original.id).model_dump_json() == saved
    # A git repository of its own, in which git sees the agent's change.
    assert plain_git(folder, "rev-parse", "HEAD") == plain_git(repotrace.cwd, "rev-parse", "HEAD")
    assert plain_git(folder, "status", "--short").strip() == "M billing/terms.py"
    shown = repotrace("runs", "show", original.id).stdout.decode()
    assert f"step {step} └─ {branch.id}  tests pass" in shown
    assert HINT in shown


def test_nothing_is_done_unless_told(repotrace: Shell, place: Path) -> None:
    there = sorted(place.iterdir())
    done = repotrace("rerun", "--from-step", "0", "--modify-prompt", "Be quick; it's late.")
    assert done.returncode == 0, done.stderr.decode()
    text = done.stdout.decode()
    assert text.startswith("would go on before the first step of ")
    assert "  Be quick; it's late." in text.splitlines()
    assert text.endswith("nothing was done; do it with: --execute\n")
    found = json.loads(repotrace("rerun", "--from-step", "0", "--json").stdout)
    assert found["executed"] is False
    assert found["command"][-1] == TASK
    assert found["state"]["files"] == len(plain_git(repotrace.cwd, "ls-files").splitlines())
    assert sorted(place.iterdir()) == there
    assert store_of(repotrace).runs.count() == 1


def test_a_work_tree_of_the_repository(repotrace: Shell, place: Path) -> None:
    store = store_of(repotrace)
    number = wrong_edit(store)
    folder = place / "tree"
    cmd = f"{shlex.quote(sys.executable)} -c 'print(open(\"billing/terms.py\").read())'"
    arguments = ["--into", str(folder), "--worktree", "--agent-cmd", cmd, "--execute"]
    done = repotrace("rerun", "--from-step", str(number), *arguments)
    assert done.returncode == 0, done.stderr.decode()
    assert b"timedelta(days=365)" in done.stdout
    assert plain_git(folder, "branch", "--show-current").strip() == "repotrace/tree"
    assert plain_git(folder, "status", "--short").strip() == "M billing/terms.py"
    assert "days=365" in plain_git(folder, "diff")
    again = repotrace("rerun", "--from-step", str(number), *arguments)
    assert again.returncode == 2
    assert b"is not empty" in again.stderr
    # The branch stays when the work tree goes, and its name may be none for a branch.
    plain_git(repotrace.cwd, "worktree", "remove", "--force", str(folder))
    plain_git(repotrace.cwd, "checkout", "-q", "--detach")
    status = plain_git(repotrace.cwd, "status", "--short")
    for other, branch in (
        (folder, "repotrace/tree-2"),
        (place / "a b~ü..x.lock", "repotrace/a-b-ü-x"),
    ):
        arguments[1] = str(other)
        assert repotrace("rerun", "--from-step", str(number), *arguments).returncode == 0
        assert plain_git(other, "branch", "--show-current").strip() == branch
    assert plain_git(repotrace.cwd, "status", "--short") == status


def test_a_checkpoint_names_the_step(repotrace: Shell) -> None:
    repotrace("runs", "checkpoint", "before-edit", "--step", "2")
    found = json.loads(repotrace("rerun", "--from-step", "before-edit", "--json").stdout)
    assert found["from_step"] == 2


def test_what_cannot_be_done_is_said(repotrace: Shell, place: Path) -> None:
    (place / "full").mkdir()
    (place / "full" / "file").write_text("")
    (place / "bytes").write_bytes(b"\xff")
    cases: list[tuple[list[str], str]] = [
        (["--from-step", "99"], "has no step 99"),
        (["--from-step", "nowhere"], "No checkpoint 'nowhere'"),
        ([], "Missing option"),
        (["--from-step", "1", "--modify-prompt", "x", "--prompt-file", "y"], "exclude each other"),
        (["--from-step", "1", "--prompt-file", str(place / "no")], "Cannot read"),
        (["--from-step", "1", "--prompt-file", str(place / "bytes")], "no text in UTF-8"),
        (["--from-step", "1", "--into", str(place / "full")], "not empty"),
        (["--from-step", "0", "--prompt-file", str(place / "full" / "file"), "--execute"],
         "there is no prompt"),
    ]  # fmt: skip
    for arguments, said in cases:
        done = repotrace("rerun", "latest", *arguments)
        assert (done.returncode, said in done.stderr.decode()) == (2, True), done.stderr.decode()
    store = store_of(repotrace)
    plans: list[tuple[dict[str, Any], str]] = [
        ({"agent_cmd": "'"}, "no line of shell"),
        ({"agent_cmd": " "}, "is empty"),
        ({"agent_cmd": "x", "modify_prompt": "y"}, "not take the prompt"),
        ({"agent_cmd": "sh -c 'mini -t {prompt}'"}, "A shell would take"),
        ({"agent_cmd": "env A=b bash -lc 'mini {prompt}'"}, "A shell would take"),
        ({"prompt": "word " * 30_000}, "too long"),
        ({"into": repotrace.cwd / "sub" / "new"}, "lies in the work tree"),
        ({"into": repotrace.cwd}, "lies in the work tree"),
    ]
    for changes, said in plans:
        with pytest.raises(RepoTraceError, match=said):
            plan_rerun(store, store.runs.get("latest"), 1, **changes)
    missing = ["--agent-cmd", "no-such-program", "--into", str(place / "new"), "--execute"]
    assert repotrace("rerun", "latest", "--from-step", "1", *missing).returncode == 127
    assert not (place / "new").exists()
    assert [run.parent_run_id for run in store_of(repotrace).runs.list()] == [None]


@pytest.mark.parametrize(
    ("program", "existed"), [("no-such-program", False), ("./billing/terms.py", True)]
)
def test_nothing_is_left_of_an_agent_that_cannot_be_started(
    repotrace: Shell, place: Path, program: str, existed: bool
) -> None:
    refs = plain_git(repotrace.cwd, "for-each-ref")
    trees = plain_git(repotrace.cwd, "worktree", "list", "--porcelain")
    folder = place / "new"
    if existed:
        folder.mkdir()
    before = picture(place)
    for more in ([], ["--worktree"]):
        arguments = ["--agent-cmd", program, "--into", str(folder), "--execute", *more]
        done = repotrace("rerun", "--from-step", "1", *arguments)
        assert done.returncode in (126, 127), done.stderr.decode()
        assert folder.is_dir() == existed
        assert not existed or not [*folder.iterdir()]
        assert plain_git(repotrace.cwd, "for-each-ref") == refs
        assert plain_git(repotrace.cwd, "worktree", "list", "--porcelain") == trees
    after = picture(place)
    after.pop("the project/.git/packed-refs", None)  # empty
    assert after == before


def test_the_agent_is_started_where_it_was(repotrace: Shell, place: Path) -> None:
    folder = repotrace.cwd / "billing"
    code = "import os; print('here', os.getcwd(), os.environ['PWD'])"
    command = [sys.executable, "-c", code, "Look"]
    first = repotrace("record", "--task", "Look", "--", *command, cwd=folder)
    assert f"here {folder}" in first.stdout.decode()
    dry = repotrace("rerun", "--from-step", "0").stdout.decode()
    assert "command   in billing $ " in dry
    done = repotrace("rerun", "--from-step", "0", "--execute", "--into", str(place / "new"))
    assert f"here {place}/new/billing {place}/new/billing\n" in done.stdout.decode()
    store = store_of(repotrace)
    assert store.runs.get("latest", workspace=str(place / "new")).attributes["started_in"] == (
        "billing"
    )


@pytest.mark.parametrize(
    ("told", "started"), [("/etc", "."), ("a/../..", "."), (7, "."), ("", ".")]
)
def test_nothing_leads_out_of_the_folder(
    store: Store, tmp_path: Path, told: Any, started: str
) -> None:
    plan = plan_rerun(store, waiting(store, tmp_path, attributes={"started_in": told}), 0)
    assert plan.started_in == started


def test_no_link_leads_out_of_the_folder(store: Store, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "out").symlink_to(tmp_path)
    run = waiting(store, tmp_path, attributes={"started_in": "out"})
    plan = plan_rerun(store, run, 0, into=tmp_path / "new", agent_cmd="true")
    with pytest.raises(RepoTraceError, match="leads out"), prepared(store, plan):
        pass
    assert not (tmp_path / "new").exists()


def test_the_exit_code_is_the_agents(repotrace: Shell) -> None:
    done = repotrace("rerun", "--from-step", "1", "--agent-cmd", "sh -c 'exit 7'", "--execute")
    assert done.returncode == 7


def test_installed_in_place_is_imported_from_the_new_folder(repotrace: Shell, place: Path) -> None:
    # What an editable install is to Python: a line in a .pth file of the environment.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=repotrace.cwd,
                   check=True)  # fmt: skip
    (packages,) = repotrace.cwd.glob(".venv/lib/python3*/site-packages")
    (packages / "billing.pth").write_text(f"{repotrace.cwd}\n")
    (repotrace.cwd / ".gitignore").write_text(".venv\n")
    code = "import os; os.chdir('/'); import billing; print('from', billing.__file__)"
    cmd = f".venv/bin/python -c {shlex.quote(code)}"
    folder = place / "elsewhere"
    done = repotrace(
        "rerun", "--from-step", "0", "--into", str(folder), "--agent-cmd", cmd, "--execute"
    )
    assert done.returncode == 0, done.stderr.decode()
    assert f"from {folder}/billing/__init__.py" in done.stdout.decode()
    assert (folder / ".venv").is_symlink()


# --- The plan -------------------------------------------------------------------------------


def test_the_command_of_an_agent_that_is_known(store: Store, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    make_project(tmp_path / "p")
    shell.cwd = tmp_path / "p"
    shell("record", "--agent", "codex", "--task", "Fix it", "--", "sh", "-c", "echo hi > new.txt")
    kept = store_of(shell)
    run = kept.runs.get("latest")
    plan = plan_rerun(kept, run, 1, modify_prompt="Be kind.")
    assert plan.argv[:3] == ("codex", "exec", "--full-auto")
    assert plan.prompt == "\n\n".join(
        [
            "Fix it",
            "Be kind.",
            "What has been done so far; the files are as these steps left them. Go on:\n"
            f"1. {kept.runs.step(run.id, 1).description} +1 -0",
        ]
    )
    # Without a change, what was recorded is simply done again.
    assert plan_rerun(kept, run, 1).argv == ("sh", "-c", "echo hi > new.txt")
    assert plan_rerun(kept, run, 0, prompt="Another task").prompt == "Another task"


@pytest.mark.parametrize(
    ("agent", "command", "planned"),
    [
        ("aider", ["aider", "--message=Fix it", "--yes"], ["aider", "--message={prompt}", "--yes"]),
        ("codex", ["codex", "exec", "Fix it", "--", "x"], ["codex", "exec", "{prompt}", "--", "x"]),
        # The task was typed.
        ("claude-code", ["/opt/bin/claude"],
         ["claude", "-p", "--permission-mode", "acceptEdits", "{prompt}"]),
        ("claude-code", ["my-claude"], ["my-claude"]),
        (None, ["make", "x=Fix it"], ["make", "x=Fix it"]),
    ],
)  # fmt: skip
def test_the_prompt_takes_the_place_of_the_task(
    store: Store, tmp_path: Path, agent: str | None, command: list[str], planned: list[str]
) -> None:
    run = waiting(store, tmp_path, agent=agent, attributes={"command": command})
    plan = plan_rerun(store, run, 0)
    assert plan.command == shlex.join(planned).replace("'{prompt}'", "{prompt}")
    assert list(plan.argv) == [word.replace("{prompt}", "Fix it") for word in planned]


def test_the_prompt_tells_what_was_done_and_why(repotrace: Shell) -> None:
    store = store_of(repotrace)
    run = store.runs.get("latest")
    plan = plan_rerun(store, run, 11, modify_prompt=HINT)
    task, hint, account = plan.prompt.split("\n\n")
    assert (task, hint) == (TASK, HINT)
    lines = account.splitlines()
    assert [line.partition(".")[0] for line in lines[1:]] == ["3", "5", "7", "9", "11"]
    edit, test = lines[-2:]
    assert edit == (
        "9. edit billing/terms.py +1 -1; because: 29 February does not exist in the next year."
        " I'll add 365 days instead."
    )
    assert test.endswith(
        " -m pytest -q` → 1 of 6 tests failed:"
        " tests/test_reminders.py::Reminders::test_yearly_over_a_leap_day; because: Now the tests."
    )
    # The agent's own span is made of all the others: its end is theirs.
    whole = plan_rerun(store, run, 1)
    assert "15. run the tests" in whole.prompt
    assert "1. invoice_agent" not in whole.prompt
    assert "in the original" not in repotrace("rerun", "--from-step", "1").stdout.decode()


def test_a_branch_of_a_branch(repotrace: Shell, place: Path) -> None:
    store = store_of(repotrace)
    original = store.runs.get("latest")
    ask = ["--execute", "--modify-prompt"]
    assert repotrace("rerun", original.id, "--from-step", "7", *ask, HINT).returncode == 0
    (first,) = store.runs.list(parent=original.id)
    assert repotrace("rerun", first.id, "--from-step", "3", *ask, "Be quick.").returncode == 0
    (second,) = store.runs.list(parent=first.id)
    assert (second.task, second.outcome) == (f"{TASK}\n\n{HINT}", "passed")
    assert Path(str(second.workspace)) == place / f"the project-{first.id}-step-3"
    plan = plan_rerun(store, second, 0, modify_prompt="And kind.")
    task, *told, account = plan.prompt.split("\n\n")
    assert (task, told) == (TASK, [HINT, "Be quick.", "And kind."])
    assert [line.partition(".")[0] for line in account.splitlines()[1:]] == [
        *("earlier 3", "earlier 5", "earlier 7", "earlier 3")
    ]
    assert plan.argv[:-1] == (sys.executable, str(place / "agent.py"))
    replaced = plan_rerun(store, second, 0, prompt="Do nothing.")
    assert replaced.prompt.startswith("Do nothing.\n\nWhat has been done")


def test_the_prompt_is_one_word_wherever_it_stands(repotrace: Shell, place: Path) -> None:
    nasty = 'say "it\'s" $(touch pwned) `touch pwned` {prompt} \\n\nsecond line 🎉'
    (place / "prompt").write_text(nasty)
    code = "import json, sys; print(json.dumps(sys.argv[1:]))"
    cmd = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} --task={{prompt}} {{prompt}}"
    arguments = ["--from-step", "0", "--prompt-file", str(place / "prompt"), "--agent-cmd", cmd]
    said = repotrace("rerun", *arguments).stdout.decode()
    assert "--task={prompt}' {prompt}\n" in said.replace("--task={prompt} {", "--task={prompt}' {")
    done = repotrace("rerun", *arguments, "--execute", "--json")
    assert json.loads(done.stderr.splitlines()[-1]) == [f"--task={nasty}", nasty]
    told = json.loads(done.stdout)
    assert (told["executed"], told["exit_code"]) == (True, 0)
    assert not list(place.rglob("pwned"))


def test_the_library(repotrace: Shell, place: Path, monkeypatch: Any) -> None:
    for name, value in clean_environment(repotrace.home).items():
        monkeypatch.setenv(name, value)
    run = store_of(repotrace).runs.get("latest")
    plan = rerun_from_step(repotrace.cwd, run.id, 1, {"prompt": HINT})
    assert (plan["original_run_id"], plan["from_step"], plan["task_id"]) == (run.id, 1, "unknown")
    assert [step["step_number"] for step in plan["remaining_steps"]] == list(
        range(2, run.totals.steps + 1)
    )
    assert "new_run_id" not in plan
    done = rerun_from_step(
        repotrace.cwd,
        run.id,
        1,
        {"agent_cmd": "sh -c 'echo \"$0\" > note.txt' {prompt}", "task": "Write"},
        into=place / "made",
        dry_run=False,
    )
    assert done["exit_code"] == 0
    assert (place / "made" / "note.txt").read_text().startswith("Write")
    assert done["comparison"]["b"]["id"] == done["new_run_id"]
    with pytest.raises(RunNotFound):
        rerun_from_step(repotrace.cwd, "rnothing", 1)
    with pytest.raises(RepoTraceError):
        rerun_from_step(repotrace.cwd, run.id, 99)
