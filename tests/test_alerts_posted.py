"""At the end of a run its alerts are posted where the project wants that, once."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Shell, clean_environment
from untested_agent import agent, with_agent
from webhooks import Webhook, until, webhook

from repotrace.errors import RepoTraceError
from repotrace.runs.alerts import rules_from
from repotrace.runs.alerts.posting import address_in
from repotrace.runs.ended import LOCK, is_posting_wanted
from repotrace.storage import Store

SETTING = '[alerts]\nnotify = "env:TEAM_HOOK"\n'


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as served:
        yield served


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    return with_agent(tmp_path)


@pytest.fixture
def kept(repotrace: Shell) -> Iterator[Store]:
    store = Store(repotrace.cwd / ".git" / "repotrace")
    yield store
    store.close()


def test_a_run_that_traced_itself_is_posted_by_a_process_that_is_not_its_child(
    repotrace: Shell, kept: Store, hook: Webhook
) -> None:
    (repotrace.cwd / "repotrace.toml").write_text(SETTING)
    assert agent(repotrace, "new.py", TEAM_HOOK=hook.url) == "1 None"
    (body,) = hook.wait_for(1)
    run = kept.runs.get()
    assert body["text"].splitlines() == [
        "RepoTrace: 1 alert",
        f"• {run.id} step 1 · untested-edit: 1 file was changed and no test was run (new.py)",
    ]
    # Who reads is told all the same; nothing is posted again.
    until(lambda: not kept.alerts.has_unposted(run.id))
    env = {"TEAM_HOOK": hook.url}
    assert b"alert untested-edit" in repotrace("runs", "list", env=env).stderr
    assert repotrace("runs", "alerts", env=env).returncode == 1
    agent(repotrace, "more.py", TEAM_HOOK=hook.url)
    hook.wait_for(2)
    assert hook.rules == [["untested-edit"], ["untested-edit"]]


def test_nothing_is_started_where_nothing_is_to_be_posted(repotrace: Shell, kept: Store) -> None:
    assert agent(repotrace, "a.py") == "0 None"
    settings = repotrace.cwd / "pyproject.toml"
    settings.write_text('[tool.repotrace.alerts]\nretries = 2\n[tool.x]\nnotify = "no"\n')
    (repotrace.cwd / "repotrace.toml").write_text("[alerts]\nretries = 2\n")
    assert not is_posting_wanted(None, {})
    settings.write_text("[tool.other]\nnotify = 1\n")
    assert agent(repotrace, "b.py") == "0 None"
    assert len(kept.alerts.due(9)) == 0  # nobody took them in
    assert b"2 runs" not in repotrace("runs", "list").stderr


def test_the_users_own_address_needs_no_setting(repotrace: Shell, hook: Webhook) -> None:
    assert agent(repotrace, "new.py", REPOTRACE_WEBHOOK=hook.url) == "1 None"
    hook.wait_for(1)
    assert hook.rules == [["untested-edit"]]


def test_a_service_that_ends_many_runs_starts_few_processes(
    repotrace: Shell, kept: Store, hook: Webhook
) -> None:
    assert agent(repotrace, "a.py") == "0 None"
    env = {"REPOTRACE_WEBHOOK": hook.url}
    with (kept.home / LOCK).open("w") as waits:  # as a process does that has not looked yet
        fcntl.flock(waits, fcntl.LOCK_EX)
        assert agent(repotrace, "b.py", **env) == "0 None"
        assert agent(repotrace, "c.py", **env) == "0 None"
    assert agent(repotrace, "d.py", **env) == "1 None"
    (body,) = hook.wait_for(1)
    found = {alert["run_id"]: alert["evidence"] for alert in body["alerts"]}
    assert sorted(found.values()) == [["a.py"], ["b.py"], ["c.py"], ["d.py"]]
    assert found.keys() == {run.id for run in kept.runs.list()}


def test_no_process_is_started_where_the_variable_is_not_set(repotrace: Shell) -> None:
    (repotrace.cwd / "repotrace.toml").write_text(SETTING)
    assert agent(repotrace, "a.py") == "0 None"
    assert agent(repotrace, "a.py", TEAM_HOOK="") == "0 None"
    (repotrace.cwd / "repotrace.toml").unlink()
    inline = "[tool.repotrace]\nalerts = { 'notify'='env:TEAM_HOOK' }\n"
    (repotrace.cwd / "pyproject.toml").write_text(inline)
    below = repotrace.cwd / "below"
    below.mkdir()
    assert is_posting_wanted(below, {"TEAM_HOOK": "x"})
    assert not is_posting_wanted(below, {"TEAM": "x"})


def test_a_program_is_not_held_up_by_who_posts(repotrace: Shell, hook: Webhook) -> None:
    """Its parent waits for the end of what it inherited, and gets it when the program ends."""
    reading, writing = os.pipe()
    with subprocess.Popen(
        [sys.executable, "agent.py", "new.py"],
        cwd=repotrace.cwd,
        env=clean_environment(repotrace.home, {"REPOTRACE_WEBHOOK": hook.url}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[writing],
    ) as process:
        os.close(writing)
        # Answers come only when the program and its pipes are gone.
        with hook.taken:
            assert process.stdout is not None
            assert process.stdout.read() == b"1 None\n"
            assert os.read(reading, 1) == b""
    os.close(reading)
    hook.wait_for(1)


def test_record_posts_when_it_ends(repotrace: Shell, kept: Store, hook: Webhook) -> None:
    env = {"REPOTRACE_WEBHOOK": hook.url}
    done = repotrace("record", "--", "sh", "-c", "echo x > new.py", env=env)
    assert (done.returncode, hook.rules) == (0, [["untested-edit"]])
    assert b"s3cr3t" not in done.stderr
    assert not kept.alerts.has_unposted(kept.runs.get().id)
    repotrace("record", "--", "true", env=env)
    assert len(hook.bodies) == 1


def test_a_dead_web_hook_is_said_without_its_address_and_asked_again(
    repotrace: Shell, kept: Store, hook: Webhook
) -> None:
    hook.codes = [404]
    env = {"REPOTRACE_WEBHOOK": hook.url}
    done = repotrace("record", "--", "sh", "-c", "echo x > new.py; exit 3", env=env)
    assert done.returncode == 3
    assert b"repotrace: The alerts could not be posted: HTTP 404." in done.stderr
    assert b"s3cr3t" not in done.stderr
    assert kept.alerts.has_unposted(kept.runs.get().id)


def test_who_reads_has_those_posted_that_nobody_could(
    repotrace: Shell, kept: Store, hook: Webhook
) -> None:
    agent(repotrace, "new.py")
    repotrace("runs", "list", env={"REPOTRACE_WEBHOOK": hook.url})
    hook.wait_for(1)
    assert hook.rules == [["untested-edit"]]
    until(lambda: not kept.alerts.has_unposted(kept.runs.get().id))


HOOKED = """
import json, os, pathlib, subprocess, sys
def hear(event, **facts):
    told = {"session_id": "s1", "transcript_path": "/nowhere", "cwd": os.getcwd(), **facts}
    subprocess.run(
        [sys.executable, "-m", "repotrace", "hook", "claude-code"],
        input=json.dumps({**told, "hook_event_name": event}).encode(),
        check=True,
    )
call = {"tool_name": "Write", "tool_use_id": sys.argv[1], "tool_input": {"file_path": "new.py"}}
hear("SessionStart", source="startup")
hear("PreToolUse", **call)
pathlib.Path("new.py").write_text("x = 1\\n")
hear("PostToolUse", **call, tool_response={})
hear("SessionEnd", reason="other")
"""


def test_a_session_that_hooks_recorded_is_posted(
    repotrace: Shell, kept: Store, hook: Webhook
) -> None:
    def session(call: str) -> None:
        done = subprocess.run(
            [sys.executable, "-c", HOOKED, call],
            cwd=repotrace.cwd,
            env=clean_environment(repotrace.home, {"REPOTRACE_WEBHOOK": hook.url}),
            capture_output=True,
            check=True,
            timeout=60,
        )
        assert (done.stdout, done.stderr) == (b"", b"")

    session("t1")
    hook.wait_for(1)
    assert hook.rules == [["untested-edit"]]
    run_id = kept.runs.get().id
    until(lambda: not kept.alerts.has_unposted(run_id))
    assert said_of(repotrace, run_id)
    # Taken up again with the same end: it is looked over again, and nothing is new.
    (repotrace.cwd / "new.py").unlink()
    session("t2")
    until(lambda: kept.alerts.look(run_id).changes == 0 and len(kept.runs.steps(run_id)) > 1)
    assert len(hook.bodies) == 1
    assert not said_of(repotrace, run_id)


def said_of(shell: Shell, run_id: str) -> bool:
    """Whether who lists runs is told of alerts of this one."""
    return f"{run_id} step".encode() in shell("runs", "list").stderr


def test_what_was_refused_is_tried_again_when_the_run_is_read(
    repotrace: Shell, kept: Store, hook: Webhook
) -> None:
    hook.codes = [404]
    agent(repotrace, "new.py", REPOTRACE_WEBHOOK=hook.url)
    hook.wait_for(1)
    until(lambda: kept.alerts.has_unposted(kept.runs.get().id))
    repotrace("runs", "list", env={"REPOTRACE_WEBHOOK": hook.url})
    hook.wait_for(2)
    until(lambda: not kept.alerts.has_unposted(kept.runs.get().id))
    assert b"alert" not in repotrace("runs", "list").stderr


def test_a_project_file_that_is_none_holds_up_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pyproject.toml")
    (tmp_path / "repotrace.toml").mkdir()
    assert not is_posting_wanted(tmp_path, {})


def test_the_address_is_named_and_never_written(repotrace: Shell) -> None:
    assert address_in({"notify": "env:A"}, {"A": "http://a"}) == "http://a"
    assert address_in({"notify": "env:A"}, {}) is None
    assert address_in({}, {"A": "http://a"}) is None
    assert address_in({"notify": "env:A"}, {"A": "a", "REPOTRACE_WEBHOOK": "b"}) == "b"
    assert rules_from({"notify": "env:A"}) == rules_from({})
    for wrong in ("https://hooks.slack.com/services/s3cr3t", "env:", "env:A B", 1, ["env:A"]):
        with pytest.raises(RepoTraceError) as caught:
            rules_from({"notify": wrong})
        assert "s3cr3t" not in f"{caught.value.message}{caught.value.hint}"
    (repotrace.cwd / "repotrace.toml").write_text("[alerts]\nnotify = 'https://x/s3cr3t'\n")
    done = repotrace("record", "--", "true")
    assert done.returncode == 0
    assert b"names no environment variable" in done.stderr
    assert b"s3cr3t" not in done.stderr


def test_the_address_is_masked_where_a_program_prints_it(repotrace: Shell, kept: Store) -> None:
    address = "http://127.0.0.1:1/hooks/team-42"
    env = {"REPOTRACE_WEBHOOK": address}
    line = 'echo "to $REPOTRACE_WEBHOOK"; false'
    repotrace("capture", "--", "sh", "-c", line, env=env)
    shown = repotrace("show", "--json").stdout.decode()
    assert "to [REDACTED:env-REPOTRACE_WEBHOOK:" in shown
    assert "team-42" not in shown
    repotrace("record", "--", "sh", "-c", f'echo "{address}" > new.py', env=env)
    written = [*kept.home.glob("runs.db*"), *kept.home.glob("journal/*.jsonl")]
    assert written
    assert not any(b"team-42" in path.read_bytes() for path in written)
