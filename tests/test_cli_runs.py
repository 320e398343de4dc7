"""`runs list`, `runs show` and `play` as a user runs them."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from reading import BROKEN, FIXED, LEAP, REASON, Recorded, project, record
from recording import RUN, event
from running import Shell, clean_environment, plain_git

from repotrace.storage import Store

OTHER = "rffffffffffff"


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def recorded(repotrace: Shell) -> Recorded:
    repotrace.cwd = project(repotrace.cwd / "invoice")
    return record(repotrace.cwd)


def out(done: subprocess.CompletedProcess[bytes]) -> str:
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def view(done: subprocess.CompletedProcess[bytes]) -> Any:
    found = json.loads(out(done))
    assert found["schema_version"] == 1
    return found


NARROW = {"COLUMNS": "80"}


# --- runs list ------------------------------------------------------------------------------


@pytest.mark.usefixtures("recorded")
def test_a_list_has_a_row_for_each_run(repotrace: Shell) -> None:
    head, row = out(repotrace("runs", "list")).splitlines()
    titles = "RUN WHEN RESULT AGENT STEPS FILES LINES TESTS TOKENS COST TIME TASK"
    assert " ".join(head.split()) == titles
    assert re.sub(r"\d+ (d|h|min|s)  ", "AGE ", row, count=1).split() == [
        *(RUN, "AGE", "tests", "pass", "fixer", "6", "2", "+2", "-2", "2", "3.3k", "$0.040"),
        *("13.0", "s", "Fix", "the", "date", "bug", "in", "the", "invoice", "export."),
    ]


@pytest.mark.usefixtures("recorded")
def test_a_list_fits_a_terminal(repotrace: Shell) -> None:
    lines = out(repotrace("runs", "list", env=NARROW)).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(RUN)
    assert "tests pass" in lines[0]
    assert "fixer · Fix the date bug" in lines[0]
    assert lines[1].strip() == "6 steps · 2 files +2 -2 · 2 tests · 3.3k tokens · $0.040 · 13.0 s"


def test_runs_are_selected(repotrace: Shell, recorded: Recorded) -> None:
    runs = recorded.store.runs
    where = str(recorded.workspace)
    runs.add_events(
        [event("run_started", 100, run=OTHER, agent="other", tags=["slow"], workspace=where)]
    )

    def listed(*options: str) -> list[str]:
        return [run["id"] for run in view(repotrace("runs", "list", "--json", *options))["runs"]]

    assert listed() == [OTHER, RUN]
    assert listed("--limit", "1") == [OTHER]
    assert listed("--status", "running") == [OTHER]
    assert listed("--outcome", "passed") == [RUN]
    wrong = repotrace("runs", "list", "--outcome", "succeeded")
    assert wrong.returncode == 2
    assert wrong.stderr.decode().endswith("for --outcome: say one of passed, failed, not-run\n")
    assert listed("--agent", "fixer") == [RUN]
    assert listed("--tag", "slow") == [OTHER]
    assert listed("--since", "2026-03-01T12:01:00+00:00") == [OTHER]
    assert listed("--since", "1s") == []
    assert listed("--since", "500w") == [OTHER, RUN]
    assert repotrace("runs", "list", "--limit", "1").stderr.startswith(b"the newest 1 are listed")
    assert out(repotrace("runs", "list", "--agent", "nobody")) == "no matching runs\n"
    wrong = repotrace("runs", "list", "--since", "soon")
    assert wrong.returncode == 2
    assert b"2h" in wrong.stderr


def test_another_work_tree_has_runs_of_its_own(repotrace: Shell, recorded: Recorded) -> None:
    tree = recorded.workspace.parent / "tree"
    plain_git(recorded.workspace, "worktree", "add", "-q", str(tree))
    done = repotrace("runs", "list", cwd=tree)
    assert out(done) == "no runs recorded\n"
    assert b"1 run elsewhere" in done.stderr
    assert b"--all-worktrees" in done.stderr
    assert RUN in out(repotrace("runs", "list", "--all-worktrees", cwd=tree))
    shown = repotrace("runs", "show", cwd=tree)
    assert f"Run {RUN}" in out(shown)
    assert b"no run was recorded in" in shown.stderr


def test_nothing_is_made_where_nothing_was_recorded(repotrace: Shell) -> None:
    assert out(repotrace("runs", "list")) == "no runs recorded\n"
    missing = repotrace("runs", "show")
    assert missing.returncode == 2
    assert b"No runs are recorded here." in missing.stderr
    assert list(repotrace.cwd.iterdir()) == []


def test_what_is_in_the_journal_is_read_first(repotrace: Shell) -> None:
    journal = repotrace.cwd / ".repotrace" / "journal"
    journal.mkdir(parents=True)
    where = os.path.realpath(repotrace.cwd)
    lines = [event("run_started", 0, agent="live", workspace=where), event("closed")]
    (journal / "one.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [run["agent"] for run in view(repotrace("runs", "list", "--json"))["runs"]] == ["live"]


# --- runs show ------------------------------------------------------------------------------


@pytest.mark.usefixtures("recorded")
def test_a_run_is_shown_with_its_steps(repotrace: Shell) -> None:
    text = out(repotrace("runs", "show", env=NARROW))
    assert max(map(len, text.splitlines())) <= 80
    head, _, rest = text.partition("\n\n")
    assert head.splitlines()[:6] == [
        f"Run {RUN}  tests pass",
        "task         Fix the date bug in the invoice export.",
        "             It fails on leap days.",
        "agent        fixer 1.2",
        "model        m-1",
        "environment  production",
    ]
    assert "6 steps, 1 failed · 2 files read, 2 edited · +2 -2 lines" in rest
    assert "2 model calls · 3.3k tokens (3.2k in, 100 out) · $0.040" in rest
    assert "1 retry: 2.0k tokens, $0.010, 1.00 s" in rest
    steps = rest.partition("\n\n")[2]
    patch = steps[steps.index("3  ok ") :]
    assert re.match(
        r"3  ok      edit      Write the patch +1\.00 s\n"
        rf" +because: {REASON}\n"
        r" +app/export\.py \+1 -1\n"
        r"4  failed  test      Check +1\.00 s\n"
        r" +\$ pytest -q → exit code 1\n"
        r" +1 failed, 1 passed on the files of step 3\n"
        rf" +FAILED {LEAP}\n"
        r"5  ok      edit      Retry · attempt 2 of step 3 +1\.00 s\n"
        r" +because: It must be one year\.\n"
        r" +app/export\.py, logo\.bin \+1 -1 · 2\.0k tokens · \$0\.010\n"
        r"6  ok      test      Check again +1\.00 s\n"
        r" +\$ pytest -q → exit code 0\n"
        r" +2 passed on the files of step 5\n",
        patch,
    ), patch
    assert text.endswith(
        "Tests that failed at some time, by step\n"
        "step                                   4 6\n"
        "on the files of step                   3 5\n"
        f"{LEAP}   F .\n"
        ". passed, F failed · 1 other test never failed\n"
    )


def test_the_view_of_a_run_says_all_of_it(repotrace: Shell, recorded: Recorded) -> None:
    found = view(repotrace("runs", "show", "--json"))
    assert [step["number"] for step in found["steps"]] == [1, 2, 3, 4, 5, 6]
    assert found["run"]["totals"]["cost_usd"] == "0.04"
    assert found["left_out"] == []
    check = found["steps"][3]
    assert check["patch"]["steps"] == [3]
    assert check["patch"]["state_id"] == recorded.states[1]
    assert found["grid"]["tests"] == [{"node_id": LEAP, "outcomes": ["failed", "passed"]}]


def test_all_steps_of_a_long_run_are_printed_when_asked(
    repotrace: Shell, recorded: Recorded
) -> None:
    where = str(recorded.workspace)
    events = [event("run_started", 100, run=OTHER, workspace=where)]
    for number in range(1, 451):
        events.append(
            event(
                "step_started", 100 + number, run=OTHER, id=f"s{number}", description=f"<{number}>"
            )
        )
        ending = {"error": "boom"} if number == 225 else {}
        events.append(event("step_ended", 100.5 + number, run=OTHER, id=f"s{number}", **ending))
    recorded.store.runs.add_events(events)
    short = out(repotrace("runs", "show", OTHER))
    numbers = [int(number) for number in re.findall(r"<(\d+)>", short)]
    assert numbers == [*range(1, 101), 225, *range(351, 451)]
    assert "… 124 more steps" in short
    assert "… 125 more steps" in short
    everything = out(repotrace("runs", "show", OTHER, "--all"))
    assert [int(number) for number in re.findall(r"<(\d+)>", everything)] == list(range(1, 451))
    assert len(view(repotrace("runs", "show", OTHER, "--all", "--json"))["steps"]) == 450
    gaps = view(repotrace("runs", "show", OTHER, "--json"))["left_out"]
    assert gaps == [{"after": 100, "count": 124}, {"after": 225, "count": 125}]


# --- play -----------------------------------------------------------------------------------


def test_a_step_is_printed_whole(repotrace: Shell, recorded: Recorded) -> None:
    text = out(repotrace("play", "--step", "5", env=NARROW))
    assert text.startswith("Step 5 of 6 · edit · ok · 1.00 s · 2026-03-01 12:00:09 UTC\nRetry\n")
    assert "\nReason\n  It must be one year.\n" in text
    assert "\nModel calls\n  m-1 · 2.0k tokens (2.0k in, 20 out) · $0.010\n" in text
    assert "M app/export.py  +1 -1, mode 644 → 755\n  A logo.bin  binary\n" in text
    assert "  -    return year + 2\n  +    return year + 1\n" in text
    assert f"\nState\n  exact · {recorded.states[2]} · as step 5 left them\n" in text
    assert (
        "\nChanged since the failure in step 4\n  app/export.py, logo.bin  +1 -1\n"
        f"  repotrace runs diff {RUN} --from-step 4 --to-step 5\n"
    ) in text
    assert "E [bold]x" not in text


@pytest.mark.usefixtures("recorded")
def test_conversations_are_printed_when_asked(repotrace: Shell) -> None:
    text = out(repotrace("play", "--step", "5", "--show-llm"))
    assert "… 1 message as in the call before" in text
    assert "    user\n      E [bold]x\n    response\n      One year.\n" in text
    first = out(repotrace("play", "--step", "1", "--show-llm"))
    assert "    user\n      Fix the date bug in the invoice export.\n" in first


@pytest.mark.usefixtures("recorded")
def test_a_test_step_tells_of_its_command_and_its_failures(repotrace: Shell) -> None:
    text = out(repotrace("play", "--step", "4"))
    assert "  $ pytest -q\n  → exit code 1 after 0.50 s\n    E assert 2026 == 2025\n" in text
    assert "  1 failed, 1 passed on the files of step 3\n" in text
    assert f"  failed  {LEAP}\n    E assert 2026 == 2025\n" in text
    assert "\x1b" not in text
    coloured = out(repotrace("--color", "always", "play", "--step", "4"))
    assert "\x1b[31mE assert 2026 == 2025\x1b[0m" in coloured


def test_a_step_as_json_has_what_is_asked_for(repotrace: Shell, recorded: Recorded) -> None:
    found = view(repotrace("play", "--step", "5", "--json"))
    assert "messages" not in found["interactions"][0]
    change = next(item for item in found["operations"] if item["file_path"] == "app/export.py")
    assert (change["content_before"], change["content_after"]) == (BROKEN.decode(), FIXED.decode())
    bare = view(repotrace("play", "--step", "5", "--json", "--no-files", "--show-llm"))
    assert "diff" not in bare
    assert "content_after" not in bare["operations"][0]
    assert len(bare["interactions"][0]["messages"]) == 2
    assert found["before"]["state_id"] == recorded.states[1]


def test_the_diff_of_a_step_is_one_that_git_applies(
    repotrace: Shell, recorded: Recorded, tmp_path: Path
) -> None:
    found = view(repotrace("play", "--step", "5", "--json"))
    copy = tmp_path / "copy"
    recorded.store.snapshots.materialise(recorded.states[1], copy)
    plain_git(copy, "init", "-q")
    (tmp_path / "patch").write_text(found["diff"])
    plain_git(copy, "apply", str(tmp_path / "patch"))
    assert (copy / "app" / "export.py").read_bytes() == FIXED
    assert (copy / "app" / "export.py").stat().st_mode & 0o777 == 0o755
    assert (copy / "logo.bin").read_bytes() == b"\0\1\2"


@pytest.mark.usefixtures("recorded")
def test_all_steps_are_played_in_short_without_a_terminal(repotrace: Shell) -> None:
    text = out(repotrace("play"))
    assert re.findall(r"^ *(\d)  ", text, re.MULTILINE) == list("123456")
    assert "diff --git" not in text
    assert out(repotrace("play", "--no-interactive", "--show-files")).count("diff --git") == 3
    assert len(view(repotrace("play", "--json"))["steps"]) == 6


@pytest.mark.usefixtures("recorded")
def test_a_terminal_gets_the_same_where_no_screen_is_wanted(repotrace: Shell) -> None:
    shown = on_terminal(repotrace, "play", "--plain")
    assert shown == on_terminal(repotrace, "play", "--no-interactive")
    assert "Write the patch" in shown
    assert "\x1b[?1049h" not in shown


@pytest.mark.usefixtures("recorded")
def test_the_specified_name_says_that_nothing_is_executed(repotrace: Shell) -> None:
    done = repotrace("work", "replay", RUN, "--step", "1", "--no-interactive", "--no-files")
    assert out(done).startswith("Step 1 of 6")
    assert done.stderr == b"nothing is executed; this is: repotrace play\n"
    assert RUN in out(repotrace("work", "list"))


@pytest.mark.usefixtures("recorded")
def test_a_step_that_is_not_there_is_named(repotrace: Shell) -> None:
    done = repotrace("play", "--step", "7")
    assert done.returncode == 2
    assert b"has no step 7" in done.stderr


HOSTILE = (
    "gone\r\x1b]0;owned\x07\x1b[2J\x1b[8mhidden\x1b[0m \u202e[bold red]x[/] [/]\x9b5n\ud800\n\n"
    "State\n"
)


@pytest.mark.parametrize("color", ["always", "never"])
def test_nothing_that_was_captured_can_act(repotrace: Shell, color: str) -> None:
    store = Store(repotrace.cwd / ".repotrace")
    where = os.path.realpath(repotrace.cwd)
    names = ("description", "input_context", "reason", "step_type", "label")
    facts = dict.fromkeys(names, HOSTILE)
    message = {"role": HOSTILE, "content": HOSTILE, HOSTILE: 1}
    call: dict[str, Any] = dict.fromkeys(("model", "response", "purpose", "error"), HOSTILE)
    call["messages"] = [message]
    store.runs.add_events(
        [
            event("run_started", 0, task=HOSTILE, agent=HOSTILE, workspace=where,
                  attributes={HOSTILE: HOSTILE}, environment=HOSTILE, tags=[HOSTILE]),
            event("step_started", 1, id="s", metadata={"tool": HOSTILE}, **facts),
            event("llm", 1, id="l", step_id="s", **call),
            event("log", 1, step_id="s", level=HOSTILE, message=HOSTILE, data={HOSTILE: HOSTILE}),
            event("file_read", 1, step_id="s", file_path=HOSTILE),
            event("file_operation", 1, step_id="s", operation_type=HOSTILE, file_path=HOSTILE,
                  before_id="--output=/tmp/x", after_id="x\ny"),
            event("command", 1, step_id="s", command={"argv": [HOSTILE], "stdout": HOSTILE}),
            event("test", 1, step_id="s", node_id=HOSTILE, outcome="failed", details=HOSTILE),
            event("step_ended", 2, id="s", output_result=HOSTILE * 2, error=HOSTILE),
        ]
    )  # fmt: skip
    for arguments in (["runs", "list"], ["runs", "show"], ["play"], ["play", "--step", "1"],
                      ["play", "--step", "1", "--show-llm"]):  # fmt: skip
        for env in (NARROW, {}):
            text = out(repotrace("--color", color, *arguments, env=env))
            bare = re.sub(r"\x1b\[[0-9;]*m", "", text)
            assert "\x1b" not in bare, arguments
            assert not set(bare) & {"\r", "\x07", "\x9b", "\u202e"}, arguments
            assert "\x1b[8m" not in text
            if arguments != ["runs", "list"]:
                assert "[bold red]x[/]" in bare, arguments
            assert bare.count("\nState\n") == ("--step" in arguments), arguments
    for arguments in (["runs", "list"], ["runs", "show"], ["play", "--step", "1", "--show-llm"]):
        view(repotrace(*arguments, "--json"))


def on_terminal(repotrace: Shell, *arguments: str) -> str:
    """What the command prints where all three streams are a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "repotrace", *arguments],
        cwd=repotrace.cwd,
        env=clean_environment(repotrace.home, {"TERM": "xterm"}),
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    seen = b""
    while True:
        try:
            piece = os.read(leader, 4096)
        except OSError:  # how Linux says that the other side is gone
            break
        if not piece:
            break
        seen += piece
    os.close(leader)
    assert process.wait(60) == 0, seen
    return seen.decode()
