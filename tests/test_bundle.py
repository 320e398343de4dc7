"""Bundles: the same run and report on a machine that has nothing else of them."""

from __future__ import annotations

import base64
import io
import json
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_runs import QUICK, AgentRun
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import project, record
from recording import NOON, RUN, event, step
from running import Shell, plain_git
from states import Picture, picture

from repotrace.config import find_repository
from repotrace.errors import ImportFailed, NewerSchema, RepoTraceError
from repotrace.runs.blame import BlameOptions, blame_run
from repotrace.runs.export.exporting import export_run
from repotrace.runs.export.selection import ExportOptions
from repotrace.runs.receiving import is_ours, receive
from repotrace.runs.restore import restore_into
from repotrace.storage import Store
from repotrace.system.histories import take_history, write_history
from repotrace.system.snapshots import SnapshotStore
from repotrace.system.snapshots.lacking import Lacking
from repotrace.system.snapshots.objects import tree_data, write_object

WHOLE = ExportOptions()
TOKEN = "ghp_" + "A1b2C3d4E5f6G7h8I9j0" + "K1l2M3n4O5p6Q7r8"


def bundled(store: Store, folder: Path, options: ExportOptions = WHOLE) -> Path:
    file = folder / "run.repotrace"
    file.write_bytes(export_run(store, store.runs.get(RUN), "bundle", options))
    return file


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "elsewhere" / "home")
    yield opened
    opened.close()


def test_every_state_comes_back_byte_for_byte(elsewhere: Store, tmp_path: Path) -> None:
    workspace = project(tmp_path / "invoice")
    (workspace / "odd name \n.txt").write_bytes(b"\0\xff\r\n")
    (workspace / "link").symlink_to("app/export.py")
    (workspace / "empty").mkdir()
    (workspace / "untracked.sh").write_text("echo\n")
    (workspace / "untracked.sh").chmod(0o750)
    recorded = record(workspace)
    before = [contents(recorded.store, state, tmp_path / f"a{n}")
              for n, state in enumerate(recorded.states)]  # fmt: skip
    exported = export_run(recorded.store, recorded.store.runs.get(RUN), "json", WHOLE)
    file = bundled(recorded.store, tmp_path)
    recorded.store.close()
    shutil.rmtree(workspace)
    assert is_ours(file)
    got = receive(elsewhere, file, now=NOON)
    assert (got.kind, got.id, got.is_new, got.steps, got.states) == ("run", RUN, True, 6, 3)
    after = [contents(elsewhere, state, tmp_path / f"b{n}")
             for n, state in enumerate(recorded.states)]  # fmt: skip
    assert after == before
    assert export_run(elsewhere, elsewhere.runs.get(RUN), "json", WHOLE) == exported
    elsewhere.snapshots.prune(grace=0)
    assert contents(elsewhere, recorded.states[1], tmp_path / "c") == before[1]


def contents(store: Store, state_id: str, folder: Path) -> Picture:
    restore_into(store, state_id, folder)
    return picture(folder)


def test_what_no_state_holds_comes_along(store: Store, elsewhere: Store, tmp_path: Path) -> None:
    kept = store.snapshots.keep(f"runs/{RUN}", b"old\0", b"new")
    change = event("file_operation", 1, run=RUN, step_id="s", operation_type="edit",
                   file_path="a", before_id=kept[0], after_id=kept[1])  # fmt: skip
    store.runs.add_events([*step("s", 1, 2), change])
    receive(elsewhere, bundled(store, tmp_path), now=NOON)
    (found,) = elsewhere.runs.operations(RUN)
    assert (found.content_before, found.content_after) == ("old\0", "new")


def test_a_bundle_brings_states_to_a_run_that_is_here(elsewhere: Store, tmp_path: Path) -> None:
    """A colleague sends the run, and its files when they are asked for."""
    recorded = record(project(tmp_path / "invoice"))
    file = tmp_path / "run.json"
    options = ExportOptions(files=False)
    file.write_bytes(export_run(recorded.store, recorded.store.runs.get(RUN), "json", options))
    receive(elsewhere, file, now=NOON)
    with pytest.raises(RepoTraceError):
        restore_into(elsewhere, recorded.states[2], tmp_path / "nothing")
    bundle = bundled(recorded.store, tmp_path)
    got = receive(elsewhere, bundle, now=NOON)
    assert (got.id, got.is_new, got.states, got.left_out) == (RUN, False, 3, "")
    for state_id in recorded.states:
        restore_into(elsewhere, state_id, tmp_path / state_id)
        restore_into(recorded.store, state_id, tmp_path / f"{state_id} there")
        assert picture(tmp_path / state_id) == picture(tmp_path / f"{state_id} there")
    before = export_run(elsewhere, elsewhere.runs.get(RUN), "json", WHOLE)
    assert before == export_run(recorded.store, recorded.store.runs.get(RUN), "json", WHOLE)
    again = receive(elsewhere, bundle, now=NOON)
    assert (again.is_new, again.states) == (False, 0)


def test_a_bundle_without_files_has_none(elsewhere: Store, tmp_path: Path) -> None:
    workspace = project(tmp_path / "invoice")
    (workspace / "plan.txt").write_text("sell everything")
    store = record(workspace).store
    whole = bundled(store, tmp_path)
    receive(elsewhere, whole, now=NOON)
    assert (
        b"sell everything" in (_files_of(elsewhere, tmp_path / "whole") / "plan.txt").read_bytes()
    )
    file = bundled(store, tmp_path, ExportOptions(files=False))
    with zipfile.ZipFile(file) as archive:
        assert archive.namelist() == ["manifest.json", "run.json"]
        everything = b"".join(archive.read(name) for name in archive.namelist())
    assert b"sell everything" not in everything
    assert b"return year" not in everything
    other = Store(tmp_path / "third" / "home")
    got = receive(other, file, now=NOON)
    assert (got.is_new, got.states, got.left_out) == (True, 0, "contents of files")
    other.close()
    part = bundled(store, tmp_path, ExportOptions(from_step=3, to_step=3))
    assert json.loads(zipfile.ZipFile(part).read("run.json"))["left_out"]["files"] is False


def _files_of(store: Store, folder: Path) -> Path:
    """The files that the run began with, in a folder."""
    base = store.runs.get(RUN).base_state
    assert base is not None
    restore_into(store, base, folder)
    return folder


def test_a_run_without_states_is_a_bundle_too(
    store: Store, elsewhere: Store, tmp_path: Path
) -> None:
    store.runs.add_events([*step("s", 1, 2)])
    got = receive(elsewhere, bundled(store, tmp_path), now=NOON)
    assert (got.steps, got.states) == (1, 0)


def test_what_was_lacking_is_still_known(elsewhere: Store, tmp_path: Path) -> None:
    workspace = project(tmp_path / "invoice")
    (workspace / ".gitignore").write_text("*.log\n")
    (workspace / "a.log").write_text("x")
    recorded = record(workspace)
    receive(elsewhere, bundled(recorded.store, tmp_path), now=NOON)
    (item,) = elsewhere.snapshots.lacking(f"runs/{RUN}", recorded.states[0]).not_captured
    assert (item.path, item.reason, item.size) == ("a.log", "ignored", 1)


def test_a_run_is_blamed_where_its_repository_is_not(
    elsewhere: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = AgentRun(Shell(tmp_path))
    agent.edit("money.py", "a + b", "a + b  # the same")
    agent.edit("money.py", "a + b  #", "a - b  #")
    file = bundled(agent.store, tmp_path)
    agent.store.close()
    shutil.rmtree(agent.workspace)
    receive(elsewhere, file, now=NOON)
    monkeypatch.chdir(agent.shell.home)
    test = "tests/test_money.py::test_add"
    options = BlameOptions(QUICK)
    (found,) = blame_run(
        elsewhere, RUN, test, testing=agent.testing(), options=options, trusted=True
    )
    assert (found.named, [one.number for one in found.steps]) == (True, [2])
    assert not [*agent.shell.home.iterdir()]


# --- Secrets --------------------------------------------------------------------------------


def test_files_with_secrets_stay_here(elsewhere: Store, tmp_path: Path) -> None:
    workspace = project(tmp_path / "invoice")
    (workspace / "config.py").write_text(f"# one\n# two\nTOKEN = '{TOKEN}'\n")
    store = record(workspace).store
    with pytest.raises(RepoTraceError) as refused:
        bundled(store, tmp_path)
    assert "config.py:3" in refused.value.message
    assert TOKEN not in refused.value.message
    assert "--allow-secrets" in (refused.value.hint or "")
    assert not (tmp_path / "run.repotrace").exists()
    file = bundled(store, tmp_path, ExportOptions(allow_secrets=True))
    receive(elsewhere, file, now=NOON)
    state = elsewhere.runs.get(RUN).base_state
    assert state is not None
    assert TOKEN.encode() in (elsewhere.snapshots.read(state, "config.py") or b"")


def test_a_private_key_and_a_claimed_content_are_found(store: Store, tmp_path: Path) -> None:
    body = base64.encodebytes(random.Random(1).randbytes(300)).decode()
    key = f"-----BEGIN {'RSA PRIVATE'} KEY-----\n{body}-----END {'RSA PRIVATE'} KEY-----\n"
    (kept,) = store.snapshots.keep(f"runs/{RUN}", b"x\n" + key.encode())
    change = event("file_operation", 1, run=RUN, step_id="s", operation_type="create",
                   file_path="id_rsa.txt", after_id=kept)  # fmt: skip
    store.runs.add_events([*step("s", 1, 2), change])
    with pytest.raises(RepoTraceError, match=r"id_rsa.txt:2 "):
        bundled(store, tmp_path)


def test_conversations_can_be_scrubbed(elsewhere: Store, tmp_path: Path) -> None:
    store = record(project(tmp_path / "invoice")).store
    receive(elsewhere, bundled(store, tmp_path, ExportOptions(llm=False)), now=NOON)
    assert [call.response for call in elsewhere.runs.interactions(RUN)] == ["", ""]
    assert elsewhere.runs.get(RUN).totals.tokens_used == 3300
    assert elsewhere.snapshots.history(f"runs/{RUN}")


# --- What somebody else made ----------------------------------------------------------------


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("good")
    store = record(project(folder / "invoice")).store
    data = bundled(store, folder).read_bytes()
    store.close()
    return data


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(parts: dict[str, bytes] | list[tuple[str, bytes]]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items() if isinstance(parts, dict) else parts:
            archive.writestr(name, data)
    return written.getvalue()


def refused(store: Store, folder: Path, data: bytes) -> str:
    """What is said of the file; nothing of it may be kept."""
    file = folder / "evil.repotrace"
    file.write_bytes(data)
    with pytest.raises(ImportFailed) as failed:
        receive(store, file, now=NOON)
    assert store.runs.count() == 0
    assert store.snapshots.refs() == []
    return failed.value.message


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_damaged_bundles_are_refused(good: bytes, tmp_path_factory: Any, data: Any) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    at = data.draw(st.integers(0, len(good) - 1))
    spoiled = data.draw(
        st.sampled_from([good[:at], good[:at] + b"\xff" + good[at + 1 :], good[at:]])
    )
    store = Store(folder / "home")
    file = folder / "x.repotrace"
    file.write_bytes(spoiled)
    try:
        got = receive(store, file, now=NOON)
    except ImportFailed:
        assert store.runs.count() == 0
    else:
        assert got.id == RUN
    store.close()


def test_odd_members_are_refused(good: bytes, store: Store, tmp_path: Path) -> None:
    parts = members(good)
    twice = [*parts.items(), ("manifest.json", parts["manifest.json"])]
    with pytest.warns(UserWarning, match="Duplicate name"):
        doubled = zipped(twice)
    assert "twice" in refused(store, tmp_path, doubled)
    bomb = parts | {"manifest.json": b" " * (20 << 20)}
    assert len(zipped(bomb)) < 1 << 20
    assert "too large unpacked" in refused(store, tmp_path, zipped(bomb))
    del parts["run.json"]
    assert "damaged" in refused(store, tmp_path, zipped(parts))


def test_an_encrypted_bundle_is_said_to_be_one(good: bytes, store: Store, tmp_path: Path) -> None:
    data = bytearray(good)
    data[data.index(b"PK\x01\x02") + 8] |= 1
    file = tmp_path / "bad.repotrace"
    file.write_bytes(data)
    with pytest.raises(ImportFailed, match=r"^bad\.repotrace is encrypted\.$"):
        receive(store, file, now=NOON)


@pytest.mark.parametrize("content", [b"", b"<html>Not found</html>", b"PK\x05\x06" + b"\0" * 18])
def test_what_is_named_a_bundle_is_told_to_be_none(
    store: Store, tmp_path: Path, content: bytes
) -> None:
    """As a download that went wrong; not a transcript of which nobody knows the format."""
    file = tmp_path / "bad.repotrace"
    file.write_bytes(content)
    assert is_ours(file)
    with pytest.raises(ImportFailed, match=r"^bad\.repotrace is "):
        receive(store, file, now=NOON)


def test_paths_of_members_are_never_written(good: bytes, store: Store, tmp_path: Path) -> None:
    parts = members(good) | {"../../escaped": b"x", "/tmp/escaped-abs": b"x"}
    (tmp_path / "a" / "b").mkdir(parents=True)
    file = tmp_path / "a" / "b" / "x.repotrace"
    file.write_bytes(zipped(parts))
    assert receive(store, file, now=NOON).is_new
    assert not (tmp_path / "escaped").exists()
    assert not Path("/tmp/escaped-abs").exists()


def test_a_newer_one_is_named(good: bytes, store: Store, tmp_path: Path) -> None:
    parts = members(good)
    manifest = json.loads(parts["manifest.json"]) | {"schema_version": 2}
    file = tmp_path / "new.repotrace"
    file.write_bytes(zipped(parts | {"manifest.json": json.dumps(manifest).encode()}))
    with pytest.raises(NewerSchema, match="newer RepoTrace"):
        receive(store, file, now=NOON)


def test_states_that_are_not_there_are_said(good: bytes, store: Store, tmp_path: Path) -> None:
    parts = members(good)
    del parts["states.bundle"]
    file = tmp_path / "less.repotrace"
    file.write_bytes(zipped(parts))
    got = receive(store, file, now=NOON)
    assert (got.is_new, got.states) == (True, 0)


type Entry = tuple[bytes, int, str]


class Forge:
    """Makes states that no recorder would make."""

    def __init__(self, folder: Path) -> None:
        self.snapshots = SnapshotStore(folder / "forge.git")
        self.snapshots.create()
        self._objects = self.snapshots.path / "objects"

    def blob(self, data: bytes) -> str:
        return write_object(self._objects, b"blob", data)

    def tree(self, *entries: Entry) -> str:
        return write_object(self._objects, b"tree", tree_data(entries))

    def state(self, root: str, manifest: dict[str, Any] | None = None) -> str:
        usual = {"usual": [0o644, 0o755, 0o755], "modes": {}, "folders": {}, "empty": {},
                 "fifos": {}}  # fmt: skip
        listed = self.blob(json.dumps(usual | (manifest or {})).encode())
        return self.tree((b"manifest", 0o100644, listed), (b"root", 0o40000, root))

    def name(self, state: str, ref: str) -> None:
        """Gives a state a name, so that git bundles it."""
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        commit = self.snapshots.git([*who, "commit-tree", state, "-m", "x"]).decode().strip()
        self.snapshots.git(["update-ref", f"refs/repotrace/runs/{ref}", commit])

    def bundle(self, good: bytes, state: str) -> bytes:
        """A good bundle whose run names this state."""
        self.name(state, "x")
        file = self.snapshots.path / "out.bundle"
        self.snapshots.git(["bundle", "create", "-q", str(file), "--all"])
        parts = members(good)
        run = json.loads(parts["run.json"])
        for one in run["steps"]:
            one["state_before_id"] = one["state_id"] = None
            one["state_quality"] = None
        run["run"]["base_state"] = state
        run["steps"][2] |= {"state_id": state, "state_quality": "exact"}
        listed = {"id": state, "not_captured": [], "nested": [], "more": 0}
        manifest = json.loads(parts["manifest.json"]) | {"states": [listed]}
        return zipped({
            "manifest.json": json.dumps(manifest).encode(),
            "run.json": json.dumps(run).encode(),
            "states.bundle": file.read_bytes(),
        })  # fmt: skip


def up(forge: Forge) -> str:
    inner = forge.tree((b"evil", 0o100644, forge.blob(b"x")))
    return forge.state(forge.tree((b"..", 0o40000, inner)))


def slash(forge: Forge) -> str:
    return forge.state(forge.tree((b"../evil", 0o100644, forge.blob(b"x"))))


def hooks(forge: Forge) -> str:
    config = forge.tree((b"config", 0o100644, forge.blob(b"[core]\nfsmonitor = touch owned\n")))
    return forge.state(forge.tree((b".GIT", 0o40000, config)))


def hidden_git(forge: Forge) -> str:
    inner = forge.tree((b"config", 0o100644, forge.blob(b"x")))
    return forge.state(forge.tree((".g\u200cit".encode(), 0o40000, inner)))


def through_a_link(forge: Forge) -> str:
    link, inner = forge.blob(b"/tmp"), forge.tree((b"evil", 0o100644, forge.blob(b"x")))
    return forge.state(forge.tree((b"a", 0o120000, link), (b"a", 0o40000, inner)))


def exponential(forge: Forge) -> str:
    tree = forge.tree((b"f", 0o100644, forge.blob(b"x")))
    for _ in range(12):
        tree = forge.tree(*((b"%d" % n, 0o40000, tree) for n in range(10)))
    return forge.state(tree)


def bottomless(forge: Forge) -> str:
    tree = forge.tree((b"f", 0o100644, forge.blob(b"x")))
    for _ in range(300):
        tree = forge.tree((b"d", 0o40000, tree))
    return forge.state(tree)


def manifest_up(forge: Forge) -> str:
    return forge.state(forge.tree(), {"empty": {"../../evil": 0o40755}})


def set_user_id(forge: Forge) -> str:
    root = forge.tree((b"tool", 0o100755, forge.blob(b"x")))
    return forge.state(root, {"modes": {"tool": 0o104755}})


def odd_manifest(forge: Forge) -> str:
    return forge.state(forge.tree(), {"usual": "x", "modes": []})


def submodule(forge: Forge) -> str:
    return forge.state(forge.tree((b"sub", 0o160000, "1" * 40)))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (up, "path that is not allowed"), (slash, "path that is not allowed"),
        (hooks, "path that is not allowed"), (hidden_git, "path that is not allowed"),
        (through_a_link, "a name twice"), (exponential, "too many files"),
        (bottomless, "nested too deeply"), (manifest_up, "path that is not allowed"),
        (set_user_id, "permissions"), (odd_manifest, "lacks the state"),
        (submodule, "neither file, link nor folder"),
    ],
)  # fmt: skip
def test_states_that_would_reach_out_are_refused(
    good: bytes, store: Store, tmp_path: Path, make: Callable[[Forge], str], why: str
) -> None:
    forge = Forge(tmp_path)
    data = forge.bundle(good, make(forge))
    assert why in refused(store, tmp_path, data)


def test_a_forged_state_that_is_fine_is_taken(good: bytes, store: Store, tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    link = (b"link", 0o120000, forge.blob(b"/etc/passwd"))
    state = forge.state(forge.tree((b"a", 0o100644, forge.blob(b"x")), link))
    file = tmp_path / "fine.repotrace"
    file.write_bytes(forge.bundle(good, state))
    assert receive(store, file, now=NOON).states
    restore_into(store, state, tmp_path / "restored")
    assert (tmp_path / "restored" / "link").is_symlink()
    assert [entry.path for entry in store.snapshots.list(state)] == ["a", "link"]


def test_only_what_was_looked_at_gets_into_the_store(
    good: bytes, store: Store, tmp_path: Path
) -> None:
    forge = Forge(tmp_path)
    unseen = up(forge)
    forge.name(unseen, "y")
    state = forge.state(forge.tree((b"a", 0o100644, forge.blob(b"fine"))))
    file = tmp_path / "two.repotrace"
    file.write_bytes(forge.bundle(good, state))
    assert receive(store, file, now=NOON).is_new
    with pytest.raises(RepoTraceError, match="No state"):
        store.snapshots.state(unseen)
    assert store.snapshots.state(state)
    assert store.snapshots.lacking(f"runs/{RUN}", state) == Lacking()


# --- Histories ------------------------------------------------------------------------------


def test_a_damaged_history_is_refused(tmp_path: Path) -> None:
    workspace = project(tmp_path / "invoice")
    (workspace / "more.txt").write_text("x" * 5000)
    plain_git(workspace, "add", "-A")
    plain_git(workspace, "commit", "-qm", "two")
    commit = plain_git(workspace, "rev-parse", "HEAD")
    repository = find_repository(workspace)
    assert repository is not None
    data = write_history(repository, commit)
    for number, spoiled in enumerate((data[:-30], b"", data[:200], data.replace(b"PACK", b"PICK"))):
        with pytest.raises(ImportFailed, match="history in the bundle is damaged"):
            take_history(spoiled, commit, tmp_path / f"bad{number}")
        assert not (tmp_path / f"bad{number}").exists()
    with pytest.raises(ImportFailed):
        take_history(data, "1" * 40, tmp_path / "other")
    take_history(data, commit, tmp_path / "good")
    assert plain_git(tmp_path / "good", "log", "--format=%s", commit) == "two\nstart"
    assert plain_git(tmp_path / "good", "fsck", "--full") == ""
    take_history(data, commit, tmp_path / "good")


def test_a_shallow_clone_has_no_history_to_give(tmp_path: Path) -> None:
    workspace = project(tmp_path / "invoice")
    plain_git(workspace, "commit", "-q", "--allow-empty", "-m", "two")
    plain_git(tmp_path, "clone", "-q", "--depth", "1", workspace.as_uri(), "shallow")
    clone = find_repository(tmp_path / "shallow")
    assert clone is not None
    commit = plain_git(clone.root, "rev-parse", "HEAD")
    with pytest.raises(RepoTraceError, match="not whole here"):
        write_history(clone, commit)
