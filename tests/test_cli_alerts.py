"""Every rule of `runs alerts` with a run that raises it and one that does not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from reading import project
from recording import event
from running import Shell
from states import exact
from webhooks import Webhook, webhook

from repotrace.errors import RepoTraceError
from repotrace.records.events import Event
from repotrace.runs.alerts import DEFAULTS, alerts_of, rules_from, rules_in
from repotrace.runs.alerts.notify import notify
from repotrace.storage import Store

RUN = "ra1e57000000"
TEST = "tests/test_a.py::test_x"

type Step = dict[str, Any]


def edit(path: str, *, before: str | None = "1" * 40, after: str = "2" * 40, **more: Any) -> Step:
    kind = "create" if before is None else "edit"
    change = {"operation_type": kind, "before_id": before, "after_id": after, **more}
    return {"step_type": "edit", "operation": {"file_path": path, **change}}


def ran(**outcomes: str) -> Step:
    return {"step_type": "test", "outcomes": outcomes or {TEST: "passed"}}


def saw(outcome: str, test: str = TEST) -> Step:
    return {"step_type": "test", "outcomes": {test: outcome}}


def read(path: str) -> Step:
    return {"step_type": "tool", "read": path}


def say(text: str) -> Step:
    return {"step_type": "llm", "said": text}


def told(*steps: Step, ended: float | None = None, **facts: Any) -> Iterator[Event]:
    """A run with these steps, a minute each."""
    yield event("run_started", 0, run=RUN, agent="a", workspace="/w", **facts)
    for number, step in enumerate(steps, 1):
        at = 60.0 * number
        own = {key: value for key, value in step.items() if key in ("step_type", "attempt")}
        here: dict[str, Any] = {"run": RUN, "step_id": f"s{number}"}
        yield event("step_started", at, run=RUN, id=f"s{number}", **own)
        if "operation" in step:
            yield event("file_operation", at + 1, **here, **step["operation"])
        if "read" in step:
            yield event("file_read", at + 1, **here, file_path=step["read"])
        if "said" in step:
            yield event("llm", at + 1, **here, model="m", response=step["said"])
        if "usage" in step:
            yield event("llm", at + 1, **here, model="m", **step["usage"])
        if "command" in step:
            told_of = {"is_test": step.get("is_test", True), "command": step["command"]}
            yield event("command", at + 1, **here, **told_of)
        for node_id, outcome in step.get("outcomes", {}).items():
            yield event("test", at + 2, **here, node_id=node_id, outcome=outcome)
        more = {key: step[key] for key in ("state_quality", "state_reason") if key in step}
        if more:
            yield event("state", at + 3, **here, **more)
        yield event("step_ended", at + 3, run=RUN, id=f"s{number}")
    yield event("run_ended", ended or 60.0 * (len(steps) + 1), run=RUN)


def raised(store: Store, events: Iterable[Event], **settings: Any) -> list[tuple[str, int | None]]:
    store.runs.add_events(events)
    found = alerts_of(store, store.runs.get(RUN), rules_from(settings))
    return [(alert.rule, alert.step) for alert in found]


LIMITS = {"cost_usd": "11", "tokens_used": 6_000_000}

RAISED: dict[str, tuple[list[Step], list[tuple[str, int | None]]]] = {
    "broken-test": ([saw("passed"), saw("failed")], [("broken-test", 2)]),
    "broken-test of several": (
        [ran(a="passed", b="passed"), ran(a="failed", b="error")],
        [("broken-test", 2)],
    ),
    "untested-edit": ([ran(), edit("a.py"), edit("b.py")], [("untested-edit", 3)]),
    "untested-edit without any test": ([edit("a.py")], [("untested-edit", 1)]),
    "false-claim": ([saw("failed"), say("All tests pass.")], [("false-claim", 2)]),
    "false-claim without any test": ([say("All tests pass.")], [("false-claim", 1)]),
    "false-claim by exit code": (
        [
            {"step_type": "test", "command": {"argv": ["make", "test"], "exit_code": 2}},
            say("I fixed it; the tests pass."),
        ],
        [("false-claim", 2)],
    ),
    "false-claim after looking at a file of tests": (
        [
            {
                "step_type": "command",
                "is_test": False,
                "command": {"argv": ["cat", "test_calc.py"], "exit_code": 0},
            },
            say("All tests pass."),
        ],
        [("false-claim", 2)],
    ),
    "retries": ([{"step_type": "tool", "attempt": 2}] * 6, [("retries", 6)]),
    "repeated-failure": ([saw("failed")] * 5, [("repeated-failure", 5)]),
    "unread-edit": ([read("b.py"), edit("a.py"), ran()], [("unread-edit", 2)]),
    "unread-edit read afterwards": (
        [read("b.py"), edit("a.py"), read("a.py"), ran()],
        [("unread-edit", 2)],
    ),
    "outside": ([edit("/etc/hosts"), ran()], [("outside", 1)]),
    "touched": ([edit("conf/.env.local"), ran()], [("touched", 1)]),
    "cost and tokens": (
        [{"step_type": "llm", "usage": LIMITS}],
        [("cost", None), ("tokens", None)],
    ),
    "missing-state": (
        [{"step_type": "tool", "state_quality": "missing", "state_reason": "too slow"}],
        [("missing-state", 1)],
    ),
}

QUIET: dict[str, list[Step]] = {
    "a test that never passed": [saw("failed"), saw("failed")],
    "a test that broke and was repaired": [saw("passed"), saw("failed"), saw("passed")],
    "edits that were tested": [edit("a.py"), ran()],
    "edits of pages alone": [ran(), edit("README.md"), edit("docs/a/b.py")],
    "a true claim": [saw("failed"), saw("passed"), say("All tests pass.")],
    "a true claim by exit code": [
        {"step_type": "test", "command": {"argv": ["make", "test"], "exit_code": 0}},
        say("All tests pass."),
    ],
    "a claim after tests of which nobody told": [
        {"step_type": "test", "command": {"argv": ["make", "test"]}},
        say("All tests pass."),
    ],
    "a claim after a file of tests as a program": [
        {
            "step_type": "command",
            "is_test": False,
            "command": {"argv": ["python3", "test_calc.py"], "exit_code": 0},
        },
        say("All tests pass."),
    ],
    "a wish": [say("Make sure that all tests pass."), saw("failed")],
    "few retries": [{"step_type": "tool", "attempt": 2}] * 5,
    "few failures": [saw("failed")] * 4,
    "an edit after reading": [read("a.py"), edit("a.py"), ran()],
    "a new file": [read("b.py"), edit("a.py", before=None), edit("a.py"), ran()],
    "a run that tells no reads": [edit("a.py"), ran()],
    "inside of the workspace": [edit("/w/a.py"), edit("a/../b.py"), ran()],
    "what looks alike": [edit("src/.environment.py"), edit("src/git/x.py"), ran()],
    "little": [{"step_type": "llm", "usage": {"cost_usd": "10", "tokens_used": 5_000_000}}],
}


@pytest.mark.parametrize("name", RAISED)
def test_what_is_raised(store: Store, name: str) -> None:
    steps, expected = RAISED[name]
    assert raised(store, told(*steps)) == expected


@pytest.mark.parametrize("name", QUIET)
def test_what_is_not(store: Store, name: str) -> None:
    assert raised(store, told(*QUIET[name])) == []


def test_a_run_that_takes_long(store: Store) -> None:
    assert raised(store, told(ended=7_201)) == [("duration", None)]
    other = Store(store.home / "other")
    assert raised(other, told(ended=7_200)) == []


def test_every_rule_can_be_switched_off(store: Store) -> None:
    everything = [step for steps, _ in RAISED.values() for step in steps]
    assert raised(store, told(*everything, ended=9_999))
    rules = rules_from(dict.fromkeys(DEFAULTS, False))
    assert alerts_of(store, store.runs.get(RUN), rules) == ()


def test_limits_and_patterns_can_be_set(store: Store) -> None:
    steps = [edit("src/core/a.py"), ran(), saw("failed", "other"), saw("failed", "other")]
    found = raised(store, told(*steps), touched=["src/core/**"], repeated_failure=1)
    assert found == [("repeated-failure", 4), ("touched", 1)]


# --- Contents -------------------------------------------------------------------------------

STRONG = """
import pytest
def test_a():
    assert f(1) == 2
    assert f(2) == 3
def test_b():
    assert f(3) == 4
class TestC:
    def test_c(self):
        assert f(4) == 5
"""


def changed(store: Store, folder: Path, path: str, *contents: str | None) -> list[str]:
    """The rules raised for a file that had these contents one after the other, None: deleted."""
    folder.mkdir(exist_ok=True)
    oids: list[str | None] = []
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    for content in contents:
        if content is None:
            file.unlink()
            oids.append(None)
            continue
        file.write_text(content)
        state = exact(store.snapshots.take(folder, ref="runs/r1"))
        entries = {entry.path: entry.object_id for entry in store.snapshots.list(state)}
        oids.append(entries[path])
    steps = []
    for before, after in pairwise(oids):
        kind = "delete" if after is None else "create" if before is None else "edit"
        change = {"operation_type": kind, "before_id": before, "after_id": after}
        steps.append({"step_type": "edit", "operation": {"file_path": path, **change}})
    store.runs.add_events(told(*steps, ran(z="passed")))
    rules = rules_from({"unread-edit": False})
    found = alerts_of(store, store.runs.get(RUN), rules)
    return [f"{a.rule} {a.step}: {a.message}: {', '.join(a.evidence)}" for a in found]


WEAKER = {
    "deleted": (
        STRONG.replace("def test_b():\n    assert f(3) == 4\n", ""),
        "a test was deleted: tests/test_a.py::test_b",
    ),
    "skipped": (
        STRONG.replace("def test_b", "@pytest.mark.skip\ndef test_b"),
        "a test was marked so that it is not run, or may fail: tests/test_a.py::test_b, @skip",
    ),
    "skipped inside": (
        STRONG.replace("    assert f(3) == 4", "    pytest.skip('later')\n    assert f(3) == 4"),
        "a test was marked so that it is not run, or may fail: tests/test_a.py::test_b, skip()",
    ),
    "skipped by its class": (
        STRONG.replace("class TestC", "@pytest.mark.xfail(strict=False)\nclass TestC"),
        "a test was marked so that it is not run, or may fail:"
        " tests/test_a.py::TestC::test_c, @xfail",
    ),
    "weakened": (
        STRONG.replace("    assert f(2) == 3\n", ""),
        "a test lost an assertion: tests/test_a.py::test_a, f(2) == 3",
    ),
}


@pytest.mark.parametrize("name", WEAKER)
def test_a_weakened_test(store: Store, tmp_path: Path, name: str) -> None:
    after, said = WEAKER[name]
    found = changed(store, tmp_path / "w", "tests/test_a.py", STRONG, after)
    assert found == [f"weakened-test 1: {said.replace('f(2) == 3', 'assert f(2) == 3')}"]


def test_a_deleted_file_of_tests(store: Store, tmp_path: Path) -> None:
    found = changed(store, tmp_path / "w", "tests/test_a.py", STRONG, None)
    assert [line.rpartition("::")[2] for line in found] == ["test_a", "test_b", "test_c"]


@pytest.mark.parametrize(
    "later",
    [
        (STRONG.replace("f(2) == 3", "f(2) == 4"),),
        (STRONG.replace("test_b", "test_renamed") + "def test_b():\n    assert f(3) == 4\n",),
        (WEAKER["deleted"][0], STRONG),
        (WEAKER["skipped"][0], STRONG),
        (STRONG + "def test_d():\n    pass\n",),
    ],
)
def test_a_test_that_is_as_strong(store: Store, tmp_path: Path, later: tuple[str, ...]) -> None:
    assert changed(store, tmp_path / "w", "tests/test_a.py", STRONG, *later) == []


TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA2bC4"


def test_a_secret_is_named_by_its_place_and_never_shown(store: Store, tmp_path: Path) -> None:
    found = changed(store, tmp_path / "w", "app/conf.py", "a = 1\n", f"a = 1\nt = '{TOKEN}'\n")
    assert len(found) == 1
    assert found[0].startswith("secret 1: what looks like a secret was written: app/conf.py:2, ")
    assert TOKEN not in found[0]


def test_a_secret_that_was_there_already(store: Store, tmp_path: Path) -> None:
    line = f"t = '{TOKEN}'\n"
    assert changed(store, tmp_path / "w", "app/conf.py", line, f"a = 1\n{line}") == []


# --- Rules ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.repotrace.alerts]\nretries = 1\n", None),
        ("[alerts]\nretries = 1\n", None),
        ("retries = 1\ncost = false\n", None),
        ("colour = 1\n", "no alert 'colour'"),
        ("retries = 'many'\n", "a number"),
        ("touched = 1\n", "a list of patterns"),
        ("secret = 3\n", "true or false"),
        ("retries = \n", "not valid TOML"),
        ("cost = inf\n", "a number"),
        ("cost = -1\n", "a number"),
    ],
)
def test_a_file_of_rules(tmp_path: Path, text: str, said: str | None) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    if said is None:
        assert rules_in(path).limit("retries") == 1
        return
    with pytest.raises(RepoTraceError) as caught:
        rules_in(path)
    assert said in f"{caught.value.message} {caught.value.hint}"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RepoTraceError, match="Cannot read"):
        rules_in(tmp_path / "no.toml")


# --- The command ----------------------------------------------------------------------------


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.cwd = project(shell.cwd / "invoice")
    return shell


@pytest.fixture
def recorded(repotrace: Shell) -> Store:
    store = Store(repotrace.cwd / ".git" / "repotrace")
    store.runs.add_events(told(saw("passed"), saw("failed", f"{TEST}[a,b:%]"), say("tests pass")))
    return store


@pytest.mark.usefixtures("recorded")
def test_the_command(repotrace: Shell) -> None:
    done = repotrace("runs", "alerts", RUN)
    assert done.returncode == 1
    assert done.stdout.decode().splitlines() == [
        "false-claim  step 3: it said that the tests pass, but the last test run (step 2) failed",
        "  tests pass",
    ]
    found = json.loads(repotrace("runs", "alerts", RUN, "--format", "json").stdout)
    assert found["alerts"][0]["rule"] == "false-claim"
    (line, end) = repotrace("runs", "alerts", RUN, "--format", "github").stdout.splitlines()
    assert line.startswith(b"::warning title=repotrace false-claim::ra1e57000000 step 3: it said")
    assert end == b"1 alert in 1 run"


@pytest.mark.usefixtures("recorded")
def test_the_rules_of_the_project_and_of_a_file(repotrace: Shell) -> None:
    settings = repotrace.cwd / "pyproject.toml"
    settings.write_text("[tool.repotrace.alerts]\nfalse-claim = false\n")
    done = repotrace("runs", "alerts", RUN)
    assert (done.returncode, done.stdout) == (0, b"no alerts\n")
    (repotrace.cwd / "strict.toml").write_text("repeated-failure = 0\nfalse-claim = false\n")
    done = repotrace("runs", "alerts", RUN, "--rules", "strict.toml")
    assert (done.returncode, done.stdout.split()[0]) == (1, b"repeated-failure")
    settings.write_text("[tool.repotrace.alerts]\nfalse-clam = false\n")
    done = repotrace("runs", "alerts", RUN)
    assert (done.returncode, b"no alert 'false-clam'" in done.stderr) == (2, True)
    assert repotrace("runs", "alerts", "--format", "xml").returncode == 2


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as served:
        yield served


@pytest.mark.usefixtures("recorded")
def test_alerts_are_posted(repotrace: Shell, hook: Webhook) -> None:
    done = repotrace("runs", "alerts", RUN, "--notify", hook.url)
    assert (done.returncode, done.stderr) == (1, b"")
    (body,) = hook.bodies
    assert body["text"].splitlines()[0] == "RepoTrace: 1 alert"
    assert body["alerts"][0]["step"] == 3


def test_a_busy_webhook_is_asked_again(store: Store, hook: Webhook) -> None:
    store.runs.add_events(told(saw("passed"), saw("failed")))
    alerts = alerts_of(store, store.runs.get(RUN), rules_from({}))
    hook.codes = [503, 200]
    notify(hook.url, alerts)
    assert len(hook.bodies) == 2
    hook.codes = [400, 200]
    with pytest.raises(RepoTraceError, match="HTTP 400"):
        notify(hook.url, alerts)
    assert len(hook.bodies) == 3


def test_a_webhook_that_does_not_answer_is_given_up(store: Store, hook: Webhook) -> None:
    store.runs.add_events(told(saw("passed"), saw("failed")))
    alerts = alerts_of(store, store.runs.get(RUN), rules_from({}))
    with hook.taken, pytest.raises(RepoTraceError, match="no answer"):
        notify(hook.url, alerts, patience=0.3)
    assert len(hook.wait_for(1)) == 1


@pytest.mark.usefixtures("recorded")
def test_a_webhook_that_is_not_there_is_said_without_its_address(repotrace: Shell) -> None:
    done = repotrace("runs", "alerts", RUN, "--notify", "http://127.0.0.1:1/hook/s3cr3t")
    assert done.returncode == 1
    assert b"could not be posted" in done.stderr
    assert b"s3cr3t" not in done.stderr
    done = repotrace("runs", "alerts", RUN, "--notify", "ftp://x")
    assert b"no URL" in done.stderr


def test_what_is_posted_is_text_for_slack(store: Store, hook: Webhook) -> None:
    store.runs.add_events(told(saw("passed", "<!channel>"), saw("failed", "<!channel>")))
    notify(hook.url, alerts_of(store, store.runs.get(RUN), rules_from({})))
    assert "&lt;!channel&gt;" in hook.bodies[0]["text"]


def test_a_recording_ends_with_its_alerts(repotrace: Shell) -> None:
    done = repotrace("record", "--", "sh", "-c", "echo x = 1 > new.py")
    *_, alert, hint = done.stderr.decode().splitlines()
    assert alert == "alert untested-edit · step 1: 1 file was changed and no test was run"
    assert hint.startswith("look at them with: repotrace runs alerts r")
    settings = repotrace.cwd / "pyproject.toml"
    settings.write_text("[tool.repotrace.alerts]\nuntested-edit = false\n")
    done = repotrace("record", "--", "sh", "-c", "echo x = 2 > new.py")
    assert b"alert" not in done.stderr
