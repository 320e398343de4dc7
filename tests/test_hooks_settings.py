"""Our hooks in the settings of agents: merged with the user's, taken out without a trace."""

from __future__ import annotations

import json
import os
import shlex
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repotrace.errors import RepoTraceError
from repotrace.runs.hooks.json_text import NotPlain, inserted, parsed, removed
from repotrace.runs.hooks.settings import (
    NAMES,
    Place,
    Scope,
    apply,
    installing,
    our_command,
    places,
    statuses,
    uninstalling,
)

COMMAND = "[ -x /bin/true ] && /bin/true -I -m repotrace hook claude-code >/dev/null 2>&1 || true"
MOVED = COMMAND.replace("/bin/true", "/usr/bin/true")


def place_in(folder: Path, name: str = "claude-code", scope: Scope = Scope.PROJECT) -> Place:
    environ = {"HOME": str(folder / "user")}
    (found,) = places(name, folder / "project", folder / "home", environ, scope)
    return found


def put(place: Place, content: bytes) -> None:
    place.path.parent.mkdir(parents=True, exist_ok=True)
    place.path.write_bytes(content)


# --- JSON as people write it ------------------------------------------------------------------

_SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6) | st.just(1.5e300)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
_HANDLER = st.fixed_dictionaries(
    {"type": st.just("command"), "command": st.sampled_from(["echo hi", "make -s lint"])},
    optional={"timeout": st.integers(1, 60)},
)
_GROUP = st.fixed_dictionaries(
    {"hooks": st.lists(_HANDLER, max_size=2)}, optional={"matcher": st.just("Bash|Edit")}
)
_EVENTS = st.dictionaries(
    st.sampled_from(["PreToolUse", "PostToolUse", "Stop", "SessionEnd"]),
    st.lists(_GROUP, max_size=2),
)
SETTINGS = st.dictionaries(
    st.text(max_size=5).filter(lambda name: name != "hooks"), _VALUES
).flatmap(
    lambda others: st.one_of(
        st.just(others), _EVENTS.map(lambda events: {"hooks": events, **others})
    )
)


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """Settings, laid out in some way."""
    settings_ = draw(SETTINGS)
    indent = draw(st.sampled_from([None, 1, 2, 4, "\t", 0]))
    separators = (draw(st.sampled_from([",", ", ", " , "])), draw(st.sampled_from([":", ": "])))
    text = json.dumps(
        settings_,
        indent=indent,
        separators=separators if indent is None else (",", separators[1]),
        ensure_ascii=draw(st.booleans()),
    )
    text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    return (text + draw(st.sampled_from(["", "\n", "\n\n"]))).encode("utf-8", "surrogatepass")


def is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def merged(settings_: dict[str, Any], place: Place, command: str) -> dict[str, Any]:
    """The settings with a hook of ours for each event, made without any text."""
    result = json.loads(json.dumps(settings_))
    handler = {"type": "command", "command": command, "timeout": 30}
    for event in place.hooks.events:
        result.setdefault("hooks", {}).setdefault(event, []).append({"hooks": [handler]})
    return dict(result)


@settings(max_examples=60)
@given(content=written().filter(is_utf8))
def test_installing_merges_and_uninstalling_restores(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = place_in(tmp_path_factory.mktemp("settings"))
    put(place, content)
    before = json.loads(content)

    apply(installing(place, COMMAND))

    written_ = place.path.read_bytes()
    assert json.loads(written_) == merged(before, place, COMMAND)
    assert installing(place, COMMAND).is_none
    # Brought up to date in place: one hook for each event, nothing else is touched.
    moved = installing(place, MOVED)
    assert moved.after == written_.replace(COMMAND.encode(), MOVED.encode())
    apply(moved)
    apply(uninstalling(place))
    assert place.path.read_bytes() == content
    assert not place.backup.exists()
    assert uninstalling(place).is_none


@settings(max_examples=60)
@given(content=written().filter(is_utf8))
def test_without_a_copy_only_our_entries_go(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = place_in(tmp_path_factory.mktemp("settings"))
    put(place, content)
    apply(installing(place, COMMAND))
    place.backup.unlink()

    apply(uninstalling(place))

    before = json.loads(content)
    # Whatever we left empty is gone, whoever made it; all else is there.
    after = json.loads(place.path.read_bytes()) if place.path.exists() else {}
    for event in place.hooks.events:
        for settings_ in (before, after):
            if settings_.get("hooks", {}).get(event) == []:
                del settings_["hooks"][event]
    for settings_ in (before, after):
        if settings_.get("hooks") == {}:
            del settings_["hooks"]
    assert after == before


@settings(max_examples=60)
@given(settings_=st.dictionaries(st.text(max_size=5), _VALUES, min_size=1), data=st.data())
def test_removing_a_member_leaves_the_others_as_they_are(
    settings_: dict[str, Any], data: st.DataObject
) -> None:
    text = json.dumps(settings_, indent=data.draw(st.sampled_from([None, 2, "\t"])))
    name = data.draw(st.sampled_from(sorted(settings_)))
    without = removed(text, parsed(text), list(settings_).index(name))
    assert json.loads(without) == {key: item for key, item in settings_.items() if key != name}
    again = inserted(without, parsed(without), settings_[name], name)
    assert json.loads(again) == settings_


@pytest.mark.parametrize(
    "content",
    [
        b"{ // mine\n}",
        b'{"a": 1,}',
        b"\xef\xbb\xbf{}",
        b"[]",
        b'"text"',
        b'{"hooks": []}',
        b'{"hooks": {"PreToolUse": {}}}',
        b'{"a": 1, "a": 2}',
        b'{"a": NaN}',
        b"{",
        b"\xff\xfe{\x00}\x00",
        b"[" * 100_000,
    ],
)
def test_what_is_no_plain_json_is_refused_and_left_alone(content: bytes, tmp_path: Path) -> None:
    place = place_in(tmp_path)
    put(place, content)
    with pytest.raises(RepoTraceError, match="not plain JSON") as refused:
        installing(place, COMMAND)
    assert refused.value.hint
    with pytest.raises(RepoTraceError):
        uninstalling(place)
    assert place.path.read_bytes() == content


def test_a_text_after_the_json_is_no_json() -> None:
    with pytest.raises(NotPlain):
        parsed("{} {}")


# --- Files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_was_not_there_is_gone_afterwards(name: str, tmp_path: Path) -> None:
    place = place_in(tmp_path, name, Scope.USER)
    apply(installing(place, COMMAND))
    assert stat.S_IMODE(place.path.stat().st_mode) == 0o600
    told = json.loads(place.path.read_bytes())["hooks"]
    assert list(told) == list(place.hooks.events)
    apply(uninstalling(place))
    assert not place.path.exists()
    assert not place.path.parent.exists()


def test_an_empty_file_is_empty_again(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    put(place, b"")
    apply(installing(place, COMMAND))
    assert len(json.loads(place.path.read_bytes())["hooks"]) == len(place.hooks.events)
    apply(uninstalling(place))
    assert place.path.read_bytes() == b""


def test_mode_and_link_of_the_settings_stay(tmp_path: Path) -> None:
    place = place_in(tmp_path, scope=Scope.USER)
    real = tmp_path / "dotfiles" / "claude.json"
    real.parent.mkdir()
    real.write_text('{"model": "opus"}\n')
    real.chmod(0o640)
    place.path.parent.mkdir(parents=True)
    place.path.symlink_to(real)

    apply(installing(place, COMMAND))

    assert place.path.is_symlink()
    assert "hooks" in json.loads(real.read_text())
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert stat.S_IMODE(place.backup.stat().st_mode) == 0o600
    assert place.backup.read_text() == '{"model": "opus"}\n'
    apply(uninstalling(place))
    assert place.path.is_symlink()
    assert real.read_text() == '{"model": "opus"}\n'


def test_what_the_user_changes_meanwhile_stays(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    put(place, b'{\n  "model": "opus"\n}\n')
    apply(installing(place, COMMAND))
    text = place.path.read_text().replace("opus", "haiku")
    told = json.loads(text)
    told["hooks"]["PreToolUse"][0]["hooks"].append({"type": "command", "command": "echo mine"})
    place.path.write_text(json.dumps(told, indent=2))

    change = uninstalling(place)
    apply(change)

    assert not change.exact
    mine = {"hooks": [{"type": "command", "command": "echo mine"}]}
    expected = {"model": "haiku", "hooks": {"PreToolUse": [mine]}}
    assert json.loads(place.path.read_bytes()) == expected
    assert not place.backup.exists()


def test_a_copy_is_of_what_was_there_before_the_latest_install(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    put(place, b'{"model": "a"}')
    apply(installing(place, COMMAND))
    put(place, b'{"model": "b"}')  # somebody took our hooks out by hand
    apply(installing(place, COMMAND))
    apply(uninstalling(place))
    assert place.path.read_bytes() == b'{"model": "b"}'


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    put(place, b"{}")
    change = installing(place, COMMAND)
    place.path.unlink()
    place.path.parent.rmdir()
    place.path.parent.write_text("no folder")
    with pytest.raises(RepoTraceError, match="Cannot write"):
        apply(change)


def test_no_hooks_are_known_of_other_agents(tmp_path: Path) -> None:
    for name in ("aider", "nobody"):
        with pytest.raises(RepoTraceError, match="No hooks") as refused:
            place_in(tmp_path, name)
        assert "codex" in str(refused.value.hint)


# --- Status -----------------------------------------------------------------------------------


def test_the_status_tells_what_keeps_from_recording(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    environ = {"HOME": str(tmp_path / "user")}

    def told() -> tuple[bool, str | None]:
        found = statuses(tmp_path / "project", tmp_path / "home", environ)
        assert len(found) == 2 * len(NAMES)
        (one,) = (each for each in found if each.place == place)
        return one.installed, one.problem

    assert told() == (False, None)
    apply(installing(place, our_command("claude-code")))
    assert told() == (True, None)
    text = place.path.read_text()
    place.path.write_text(text.replace('{\n  "hooks"', '{\n  "disableAllHooks": true,\n  "hooks"'))
    assert "disableAllHooks" in str(told()[1])
    place.path.write_text(text.replace('"SessionEnd"', '"Other"'))
    assert "no hook for SessionEnd" in str(told()[1])
    place.path.write_text(text.replace(os.path.dirname(our_program()), "/nowhere"))  # noqa: PTH120
    assert "/nowhere/python" in str(told()[1])
    place.path.write_text("{ // }")
    assert told() == (False, f"{place.path} is not plain JSON: {json_error('{ // }')}.")


def our_program() -> str:
    return shlex.split(our_command("codex"))[2]


def json_error(text: str) -> str:
    with pytest.raises(json.JSONDecodeError) as error:
        json.loads(text)
    return str(error.value)
