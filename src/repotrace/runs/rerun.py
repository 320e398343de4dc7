"""`rerun`: an agent runs on from a step of a run, in a folder of its own, as a new run.

A plan says what would be done and changes nothing. Carrying it out writes the files of the step
into a new folder (or a work tree of the user's repository on a branch of its own), and records
the agent there. The user's own tree is never touched.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repotrace.agents import AGENTS, PROGRAMS
from repotrace.agents import agent as agent_named
from repotrace.config import Repository, find_repository, workspace_for
from repotrace.errors import RepoTraceError, RunNotFound
from repotrace.records.command import CommandSpec
from repotrace.records.run import ExecutionStep, Run
from repotrace.runs.account import account_of, parts_of
from repotrace.runs.compare import compare_runs
from repotrace.runs.restore import (
    clear_folder,
    folder_beside,
    is_empty_folder,
    lacking,
    restore_into,
    state_of_step,
)
from repotrace.runs.states import KnownState
from repotrace.runs.testing.moving import Moving, environments_of
from repotrace.runs.traces import Workspace, find_run
from repotrace.storage import Store
from repotrace.storage.consent import foreign_run, permit_run, workspace_here
from repotrace.storage.received import Origin
from repotrace.system.branching import (
    branches_of,
    free_branch,
    remove_worktree,
    repository_of,
    worktree_without_files,
)

if TYPE_CHECKING:
    from repotrace.runs.record import Recorded, Recording

PROMPT = "{prompt}"
"""Stands for the prompt in a command."""

_SO_FAR = "What has been done so far"

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish"})
_BRANCHED = re.compile(r"(?:-r[0-9a-f]{12}-step-\d+(?:-\d+)?)+$")
_SCRIPT_FOLLOWS = re.compile(r"-[a-z]*c")
_LONGEST_ARGUMENT = 131_072
"""Bytes that are too many for one argument on Linux."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done."""

    run: Run
    step: int
    """The step whose files are the beginning; 0: before the first one."""
    known: KnownState
    files: int
    size: int
    """Bytes of all files."""
    not_captured: tuple[str, ...]
    """What the workspace had beside them then."""
    linked: tuple[str, ...]
    """Environments of the workspace that the new folder will be linked to."""
    before: ExecutionStep | None
    """The step itself; None for 0."""
    remaining: tuple[ExecutionStep, ...]
    """The steps that follow in the original, by their numbers."""
    within: frozenset[int]
    """The numbers of those of them that the step is made of: they are done."""
    task: str
    """What the original was asked to do, with how that was changed if it is a branch itself."""
    modification: str | None
    replaces_task: bool
    """Whether the modification takes the place of the task."""
    prompt: str
    """What the agent is told: the task with the modification, and what was done before."""
    argv: tuple[str, ...]
    """The command; empty where none is known, and `problem` says why."""
    command: str
    """It as a line of shell, with `{prompt}` for the prompt."""
    problem: str | None
    folder: Path
    started_in: str
    """The folder below it in which the agent is started; `.` for itself."""
    branch: str | None = None
    """Of a work tree of the user's repository; None for a folder apart."""


def plan_rerun(
    store: Store,
    run: Run,
    step: int,
    *,
    modify_prompt: str | None = None,
    prompt: str | None = None,
    agent_cmd: str | None = None,
    into: Path | None = None,
    worktree: bool = False,
) -> Plan:
    """How the run would be gone on with after `step`. Nothing is written.

    `modify_prompt` is added to the task, `prompt` takes its place. `agent_cmd` is a command line
    in which `{prompt}` stands for both and for what was done before; by default the command that
    the run was recorded with, or what is known of its agent.

    Raises RunNotFound for a step that is not there, RepoTraceError if its files were not kept, for
    a folder that is in use or within the work tree, and for a command that makes no sense.
    """
    known = state_of_step(store, run, step)
    assert known.state_id is not None
    entries = store.snapshots.list(known.state_id)
    steps = store.runs.steps(run.id)
    workspace = Path(run.workspace) if run.workspace else None
    beside = workspace_here(store, run) or workspace_for(Path.cwd(), os.environ)
    missed = lacking(store, run, known.state_id)
    account = account_of(store, run, step)
    task = asked(run)
    told = _prompt(task if prompt is None else prompt, modify_prompt, account, known)
    is_changed = modify_prompt is not None or prompt is not None
    words, problem = _command(run, agent_cmd, is_changed=is_changed)
    if words and not told and any(PROMPT in word for word in words):
        words, problem = [], "there is no prompt: the run has no task, and none was given"
    repository = find_repository(workspace) if worktree and workspace is not None else None
    if worktree and (repository is None or run.base_commit is None):
        what = "in a repository without a commit" if repository else "in no git repository here"
        raise RepoTraceError(f"The run worked {what}.", hint="Leave out --worktree.")
    branches = branches_of(repository) if repository is not None else frozenset()
    if into is None:
        folder = _folder_beside(beside, run, step, branches)
    else:
        folder = Path(os.path.abspath(into))  # noqa: PTH100 - keeps links as they are
        _refuse(folder, [place for place in (workspace, beside) if place is not None])
    return Plan(
        run=run,
        step=step,
        known=known,
        files=len(entries),
        size=_size(store, known.state_id),
        not_captured=tuple(item.path for item in missed.not_captured),
        linked=tuple(environments_of(workspace)) if workspace else (),
        before=next((s for s in steps if s.step_number == step), None),
        remaining=tuple(s for s in steps if s.step_number > step),
        within=frozenset(parts_of(steps, step)),
        task=task,
        modification=prompt if prompt is not None else modify_prompt,
        replaces_task=prompt is not None,
        prompt=told,
        argv=_with_prompt(words, told),
        command=shlex.join(words).replace(f"'{PROMPT}'", PROMPT),
        problem=problem,
        folder=folder,
        started_in=_started_in(run),
        branch=free_branch(f"repotrace/{folder.name}", branches) if worktree else None,
    )


def _size(store: Store, state_id: str) -> int:
    """Bytes of all files of a state."""
    tree = store.snapshots.state(state_id).tree
    listed = store.snapshots.git(["ls-tree", "-r", "-l", "-z", tree])
    sizes = (row.split(b"\t", 1)[0].split() for row in listed.split(b"\0") if row)
    return sum(int(size) for *_, size in sizes if size.isdigit())


# --- The prompt and the command ---------------------------------------------------------------


def asked(run: Run) -> str:
    """What a run was asked to do; of one that was branched, with its modification."""
    task, modification = run.task or "", run.attributes.get("modification")
    if not isinstance(modification, str):
        return task
    if run.attributes.get("task_replaced"):
        return modification
    return "\n\n".join(part.strip() for part in (task, modification) if part.strip())


def _prompt(task: str, modification: str | None, account: Sequence[str], known: KnownState) -> str:
    parts = [task.strip()]
    if modification:
        parts.append(modification.strip())
    if account:
        doubt = "" if known.exact else ", as far as that is known"
        head = f"{_SO_FAR}; the files are as these steps left them{doubt}. Go on:"
        parts.append("\n".join([head, *account]))
    return "\n\n".join(part for part in parts if part)


def _command(run: Run, agent_cmd: str | None, *, is_changed: bool) -> tuple[list[str], str | None]:
    """The words of the command, with `PROMPT` for the prompt; or none, and why."""
    if agent_cmd is not None:
        try:
            words = shlex.split(agent_cmd)
        except ValueError as error:
            raise RepoTraceError(
                f"The command of the agent is no line of shell: {error}."
            ) from error
        if not words:
            raise RepoTraceError("The command of the agent is empty.")
        if is_changed and PROMPT not in agent_cmd:
            raise RepoTraceError(
                "The command of the agent does not take the prompt.",
                hint=f"Write {PROMPT} where it belongs: --agent-cmd 'mini --yolo -t {PROMPT}'",
            )
        _refuse_scripts(words)
        return words, None
    headless = agent_named(run.agent).headless if run.agent in AGENTS else ()
    recorded = run.attributes.get("command")
    if isinstance(recorded, list) and recorded and all(isinstance(w, str) for w in recorded):
        words = list(map(str, recorded))
        task = asked(run).strip()
        for number, word in reversed(list(enumerate(words))):
            if task and (found := _with_place(word, task)) is not None:
                words[number] = found
                return words, None
        # Somebody typed the task into the agent: there it waits for one again.
        waits = headless and PROGRAMS.get(Path(words[0]).name) == run.agent
        if not is_changed and not waits:
            return words, None
    if headless:
        return list(headless), None
    name = f"of {run.agent}" if run.agent else "of this run"
    return [], f"nobody knows how the agent {name} takes a prompt"


def _with_place(word: str, task: str) -> str | None:
    """A word that is the task, or an option that is given it, with `PROMPT` in its place."""
    option, sign, value = word.partition("=")
    before = option + sign if sign and option.startswith("-") else ""
    value = word.removeprefix(before).strip()
    # A branch was told besides what had been done before.
    if value == task or value.startswith(f"{task}\n\n{_SO_FAR}"):
        return before + PROMPT
    return None


def _refuse_scripts(words: Sequence[str]) -> None:
    """Raises RepoTraceError for a prompt within a line that a shell would read as its own."""
    for number, word in enumerate(words[1:], 1):
        is_script = _SCRIPT_FOLLOWS.fullmatch(words[number - 1]) is not None
        if is_script and PROMPT in word and _SHELLS & {Path(w).name for w in words[:number]}:
            raise RepoTraceError(
                "A shell would take the prompt for commands.",
                hint=f"Hand it over as an argument: sh -c 'agent \"$1\"' sh {PROMPT}",
            )


def _with_prompt(words: Sequence[str], prompt: str) -> tuple[str, ...]:
    argv = tuple(word.replace(PROMPT, prompt) for word in words)
    longest = max((len(os.fsencode(word)) for word in argv), default=0)
    if sys.platform == "linux" and longest >= _LONGEST_ARGUMENT:
        raise RepoTraceError(
            f"The prompt is too long for a command line: {longest:,} bytes of"
            f" {_LONGEST_ARGUMENT - 1:,}.",
            hint="Put it into a file of the repository, and name the file in a short prompt.",
        )
    return argv


def _folder_beside(workspace: Path, run: Run, step: int, branches: frozenset[str]) -> Path:
    """A new folder beside the workspace, so that it is in nobody's work tree; not called like
    one of the branches."""
    if run.parent_run_id is not None:  # of a branch of a branch, one name is enough
        workspace = workspace.with_name(_BRANCHED.sub("", workspace.name) or workspace.name)
    usual = folder_beside(workspace, f"{run.id}-step-{step}")
    folder, number = usual, 2
    while os.path.lexists(folder) or f"repotrace/{folder.name}" in branches:
        folder, number = usual.with_name(f"{usual.name}-{number}"), number + 1
    return folder


def _started_in(run: Run) -> str:
    told = run.attributes.get("started_in")
    path = Path(told) if isinstance(told, str) else Path()
    return "." if path.is_absolute() or ".." in path.parts else str(path)


def _refuse(folder: Path, places: Sequence[Path]) -> None:
    """Raises RepoTraceError for a folder that is in use, or within one of the work trees."""
    real = Path(os.path.realpath(folder))
    for place in places:
        if real.is_relative_to(os.path.realpath(place)):
            raise RepoTraceError(
                f"{folder} lies in the work tree {place}.", hint="Name a folder outside of it."
            )
    is_empty_folder(folder)


# --- Carrying it out ----------------------------------------------------------------------------


@contextmanager
def prepared(store: Store, plan: Plan) -> Iterator[None]:
    """Write the files of the plan: into its new folder, or a new work tree. If the agent then
    cannot be started, all that was made goes again.

    Raises RepoTraceError if the folder is there and not empty, or cannot be written; for a work
    tree also if git says no.
    """
    from repotrace.runs.record import CannotStart

    assert plan.known.state_id is not None
    workspace = Path(plan.run.workspace) if plan.run.workspace else None
    repository = find_repository(workspace) if workspace is not None else None
    existed = plan.folder.is_dir()
    with ExitStack() as undo:
        if plan.branch is not None:
            commit = plan.run.base_commit
            assert repository is not None
            assert commit is not None
            with worktree_without_files(repository, plan.folder, plan.branch, commit):
                undo.callback(_take_back, plan, repository, existed=existed)
                restore_into(store, plan.known.state_id, plan.folder)
        else:
            restore_into(store, plan.known.state_id, plan.folder)
            undo.callback(_take_back, plan, None, existed=existed)
            repository_of(plan.folder, repository, plan.run.base_commit)
        for name in plan.linked:
            link = plan.folder / name
            if workspace is not None and not os.path.lexists(link):
                link.symlink_to(os.path.realpath(workspace / name))
        start = plan.folder / plan.started_in
        start.mkdir(parents=True, exist_ok=True)
        if not Path(os.path.realpath(start)).is_relative_to(os.path.realpath(plan.folder)):
            raise RepoTraceError(f"{plan.started_in} leads out of {plan.folder}.")
        not_started = undo.pop_all()
    try:
        yield
    except CannotStart:
        not_started.close()
        raise


def _take_back(plan: Plan, repository: Repository | None, *, existed: bool) -> None:
    clear_folder(plan.folder, keep=False)
    if repository is not None and plan.branch is not None:
        remove_worktree(repository, plan.folder, plan.branch)
    if existed:
        plan.folder.mkdir(exist_ok=True)


def recording(
    store: Store, plan: Plan, environ: Mapping[str, str], *, trusted: bool = False
) -> Recording:
    """The recording of the agent in the folder, to be entered; the run names its parent.

    Raises RepoTraceError for a plan without a command, and NotTrusted for files that came from
    elsewhere, unless they are `trusted`; the new run then counts as one from there, too.
    """
    from repotrace.runs.record import Recording, Wish

    if not plan.argv:
        raise RepoTraceError(
            f"There is no command to run: {plan.problem}.",
            hint=f"Say it with --agent-cmd '… {PROMPT} …'",
        )
    permit_run(store, plan.run.id, plan.command, trusted=trusted)
    cwd = plan.folder / plan.started_in
    spec = CommandSpec(argv=plan.argv, cwd=os.fspath(cwd), env=dict(environ))
    if plan.run.workspace:
        moved = Moving(Path(plan.run.workspace), plan.folder, linked=plan.linked).spec(spec)
        # A prompt may well name the old folder; it is the agent's to read.
        words = [
            old if old == plan.prompt else new
            for old, new in zip(spec.argv, moved.argv, strict=True)
        ]
        spec = moved.model_copy(update={"argv": tuple(words)})
    agent = plan.run.agent if plan.run.agent in AGENTS else None
    attributes: dict[str, Any] = {}
    if plan.modification is not None:
        attributes["modification"] = plan.modification
    if plan.replaces_task:
        attributes["task_replaced"] = True
    wish = Wish(
        spec.argv,
        {**spec.env, "PWD": os.fspath(cwd)},
        cwd,
        agent,
        plan.task or None,
        plan.run.tags,
        workspace=plan.folder,
        facts={
            "parent_run_id": plan.run.id,
            "branched_from_step": plan.step,
            "task_id": plan.run.task_id,
            "attributes": attributes,
        },
    )
    going = Recording(store, wish)
    origin = foreign_run(store, plan.run.id)
    if origin is not None:
        try:  # before anybody can find it
            store.received.note("run", going.run_id, Origin(origin.file, origin.at, worked_on=True))
        except OSError as error:
            raise RepoTraceError(f"{store.home} cannot be written: {error.strerror}.") from error
    return going


def rerun_from_step(
    workspace: Workspace,
    run_id: str,
    step_number: int,
    modifications: Mapping[str, Any] | None = None,
    *,
    into: str | os.PathLike[str] | None = None,
    dry_run: bool = True,
    trusted: bool = False,
) -> dict[str, Any]:
    """Go on with a run from a step, as a new run that names it as its parent.

    `modifications`: `prompt` is added to the task, `task` takes its place, `agent_cmd` is the
    command, in which `{prompt}` stands for both. Returns `prepare_rerun`'s facts but for the
    contents, with `folder`, `prompt` and `command`; unless `dry_run` also `new_run_id`,
    `exit_code` and `comparison`, as `runs compare --json` prints it.

    Raises RunNotFound if there is no such run or step, RepoTraceError if its files were not kept,
    if no command is known, or if the folder cannot be made, and NotTrusted if the run came from
    elsewhere and is not `trusted`.
    """
    found = find_run(workspace, run_id)
    if found is None:
        raise RunNotFound(f"No run has the id {run_id!r}.")
    store, run = found
    changes = dict(modifications or {})
    plan = plan_rerun(
        store,
        run,
        step_number,
        modify_prompt=changes.get("prompt"),
        prompt=changes.get("task"),
        agent_cmd=changes.get("agent_cmd"),
        into=None if into is None else Path(into),
    )
    facts: dict[str, Any] = {
        "original_run_id": run.id,
        "from_step": step_number,
        "task_id": run.task_id or "unknown",
        "remaining_steps": [
            {"step_number": step.step_number, "description": step.description}
            for step in plan.remaining
        ],
        "folder": str(plan.folder),
        "prompt": plan.prompt,
        "command": list(plan.argv),
    }
    if dry_run:
        return facts
    recorded = execute(store, plan, os.environ, trusted=trusted)
    facts |= {"new_run_id": recorded.run_id, "exit_code": recorded.code, "comparison": None}
    if recorded.run is not None:
        facts["comparison"] = compare_runs(store, run, recorded.run).json_object()
    return facts


def execute(
    store: Store, plan: Plan, environ: Mapping[str, str], *, trusted: bool = False
) -> Recorded:
    """Carry the plan out to its end.

    Raises RepoTraceError as `prepared` and `recording` do, CannotStart for a command that is none.
    """
    going = recording(store, plan, environ, trusted=trusted)
    with prepared(store, plan), going:
        return going.conclude(going.run())
