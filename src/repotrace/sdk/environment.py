"""The environment by which a child process finds the run and the step that it belongs to."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from repotrace.records.events import RUN_VARIABLE, STEP_VARIABLE, WORKSPACE_VARIABLE

if TYPE_CHECKING:
    from repotrace.runs.recording.recorder import ExecutionRecorder

TRACEPARENT = "TRACEPARENT"
HOME_VARIABLE = "REPOTRACE_HOME"


def for_child(
    env: Mapping[str, str],
    recorder: ExecutionRecorder,
    step_id: str | None,
    command_id: str | None = None,
) -> dict[str, str]:
    """A copy of `env` for a child that belongs to a step of the run."""
    from repotrace.system.plugin_environment import with_plugin

    result = with_plugin(
        env,
        journal=recorder.journal_folder,
        run_id=recorder.run_id,
        step_id=step_id,
        command_id=command_id,
    )
    result[HOME_VARIABLE] = os.fspath(recorder.home)
    if recorder.workspace is not None:
        result[WORKSPACE_VARIABLE] = os.fspath(recorder.workspace)
    result[TRACEPARENT] = traceparent(recorder.run_id, step_id)
    return result


def traceparent(run_id: str, step_id: str | None) -> str:
    """The W3C header of a step: the run's id and the end of the step's are hex digits."""
    trace = "".join(c for c in run_id if c in "0123456789abcdef").rjust(32, "0")[-32:]
    return f"00-{trace}-{(step_id or run_id[1:]).rjust(16, '0')[-16:]}-01"


class ChildEnvironment:
    """Keeps our own environment such that children belong to the run, whoever starts them.

    That is so while this process records one run; with several at once nobody could tell which
    one a child belongs to, and only those started with `child_environment` do.
    """

    def __init__(self, recorder: ExecutionRecorder) -> None:
        self._recorder = recorder
        self._steps: list[str] = []

    def enter(self) -> None:
        """The run has begun."""
        with _lock:
            _recording.append(self)
            _apply()

    def leave(self) -> None:
        """The run is over."""
        with _lock:
            if self in _recording:
                _recording.remove(self)
            _apply()

    def enter_step(self, step_id: str | None) -> None:
        """Children belong to this step from now on."""
        if step_id is None:
            return
        with _lock:
            self._steps.append(step_id)
            self._name_step()

    def leave_step(self, step_id: str) -> None:
        """The step is over."""
        with _lock:
            if step_id in self._steps:
                self._steps.remove(step_id)
            self._name_step()

    def _name_step(self) -> None:
        if _recording != [self]:
            return
        step_id = self._steps[-1] if self._steps else None
        os.environ[TRACEPARENT] = traceparent(self._recorder.run_id, step_id)
        if step_id is not None:
            os.environ[STEP_VARIABLE] = step_id
        else:
            os.environ.pop(STEP_VARIABLE, None)

    def variables(self) -> dict[str, str | None]:
        """What is to be set in our environment, and what is not to be there."""
        recorder, environ = self._recorder, os.environ
        known_by: tuple[object, ...] = (
            *(recorder.journal_folder, recorder.home, recorder.workspace),
            *map(environ.get, _SHAPING),
        )
        common = _common.get(known_by)
        if common is None:
            wanted = for_child(environ, recorder, None)
            common = {name: value for name, value in wanted.items() if value != environ.get(name)}
            _common.clear()
            _common[known_by] = common
        step_id = self._steps[-1] if self._steps else None
        return {
            **common,
            RUN_VARIABLE: recorder.run_id,
            STEP_VARIABLE: step_id,
            TRACEPARENT: traceparent(recorder.run_id, step_id),
        }


_lock = threading.RLock()
_recording: list[ChildEnvironment] = []
_before: dict[str, str | None] = {}
_common: dict[tuple[object, ...], dict[str, str]] = {}
"""What the runs of a place have in common: the same is wanted for the next one."""

_SHAPING = ("PYTHONPATH", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD", HOME_VARIABLE)
"""Variables that `with_plugin` adds to."""


def _apply() -> None:
    """Set our environment as the runs that are recorded want it, or as it was."""
    for name, value in _before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _before.clear()
    if len(_recording) != 1:
        return
    try:
        wanted = _recording[0].variables()
    except OSError:
        return
    for name, value in wanted.items():
        _before[name] = os.environ.get(name)
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
