"""Running git and reading the state of a work tree, on real repositories."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from running import plain_git

from repotrace.errors import RepoTraceError
from repotrace.records.command import RepositoryState
from repotrace.system.git import GitError, git, git_environment, repository_state


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    plain_git(root, "init", "-q", "-b", "trunk")
    (root / "a.txt").write_text("1\n")
    (root / ".gitignore").write_text("*.log\n")
    plain_git(root, "add", ".")
    plain_git(root, "commit", "-q", "-m", "first")
    return root


@pytest.fixture
def without_git(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def test_a_clean_work_tree(repository: Path) -> None:
    commit = plain_git(repository, "rev-parse", "HEAD")

    state = repository_state(repository)

    assert state == RepositoryState(commit=commit, branch="trunk", dirty=False)


@pytest.mark.parametrize(
    ("change", "dirty"),
    [("a.txt", True), ("new.txt", True), ("sub/new.txt", True), ("ignored.log", False)],
)
def test_what_counts_as_dirt(repository: Path, change: str, dirty: bool) -> None:
    (repository / change).parent.mkdir(exist_ok=True)
    (repository / change).write_text("changed\n")

    state = repository_state(repository)

    assert state is not None
    assert state.dirty is dirty


def test_a_staged_change_is_dirt_seen_from_any_folder_within(repository: Path) -> None:
    inner = repository / "inner"
    inner.mkdir()
    (repository / "a.txt").write_text("2\n")
    plain_git(repository, "add", "a.txt")

    state = repository_state(inner)

    assert state is not None
    assert state.dirty is True


def test_before_the_first_commit(tmp_path: Path) -> None:
    plain_git(tmp_path, "init", "-q", "-b", "trunk")

    assert repository_state(tmp_path) == RepositoryState(branch="trunk", dirty=False)


def test_a_detached_head(repository: Path) -> None:
    plain_git(repository, "checkout", "-q", "--detach")

    state = repository_state(repository)

    assert state is not None
    assert state.branch is None
    assert state.commit == plain_git(repository, "rev-parse", "HEAD")


def test_outside_of_any_repository(tmp_path: Path) -> None:
    assert repository_state(tmp_path) is None
    assert repository_state(tmp_path / "missing") is None


def test_a_bare_repository_has_no_state(tmp_path: Path) -> None:
    plain_git(tmp_path, "init", "-q", "--bare", "bare.git")

    assert repository_state(tmp_path / "bare.git") is None


def test_a_linked_work_tree_has_its_own_branch(repository: Path, tmp_path: Path) -> None:
    plain_git(repository, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    (repository / "a.txt").write_text("dirt in the other one\n")

    state = repository_state(tmp_path / "side")

    assert state is not None
    assert (state.branch, state.dirty) == ("side", False)


def test_a_submodule_has_its_own_commit(repository: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    plain_git(outer, "init", "-q")
    plain_git(outer, "submodule", "--quiet", "add", str(repository), "inner")

    state = repository_state(outer / "inner")

    assert state is not None
    assert state.commit == plain_git(repository, "rev-parse", "HEAD")


def test_variables_that_a_hook_inherits_do_not_mislead(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))

    state = repository_state(repository)

    assert state is not None
    assert (state.branch, state.dirty) == ("trunk", False)


def test_the_index_is_not_touched(repository: Path) -> None:
    index = repository / ".git" / "index"
    # A new time with the old content makes git want to refresh the index.
    os.utime(repository / "a.txt", (1, 1))
    before = index.read_bytes()

    repository_state(repository)

    assert index.read_bytes() == before


@pytest.mark.usefixtures("without_git")
class TestWithoutGit:
    """What the files of the repository tell must agree with what git says of them."""

    @pytest.fixture
    def commit(self, repository: Path) -> str:
        return (repository / ".git" / "refs" / "heads" / "trunk").read_text().strip()

    def test_commit_and_branch_are_known(self, repository: Path, commit: str) -> None:
        state = repository_state(repository)

        assert state == RepositoryState(commit=commit, branch="trunk", dirty=None)

    def test_packed_references(self, repository: Path, commit: str) -> None:
        (repository / ".git" / "packed-refs").write_text(
            f"# pack-refs with: peeled fully-peeled sorted \n{commit} refs/heads/trunk\n"
        )
        (repository / ".git" / "refs" / "heads" / "trunk").unlink()

        state = repository_state(repository)

        assert state == RepositoryState(commit=commit, branch="trunk", dirty=None)

    def test_a_detached_head(self, repository: Path, commit: str) -> None:
        (repository / ".git" / "HEAD").write_text(f"{commit}\n")

        assert repository_state(repository) == RepositoryState(commit=commit, dirty=None)

    def test_nonsense_in_head(self, repository: Path) -> None:
        (repository / ".git" / "HEAD").write_bytes(b"\xff\xfe nonsense")

        assert repository_state(repository) == RepositoryState(dirty=None)

    def test_running_git_is_an_error_with_a_hint(self, repository: Path) -> None:
        with pytest.raises(GitError) as caught:
            git(["status"], repository)

        assert caught.value.hint == "Is git installed?"


def test_a_git_that_refuses_leaves_what_the_files_tell(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'fatal: detected dubious ownership' >&2\nexit 128\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")

    state = repository_state(repository)

    assert state is not None
    assert (state.branch, state.dirty) == ("trunk", None)


def test_a_git_that_hangs_with_its_helpers_is_killed(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nsleep 60 &\nsleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")

    with pytest.raises(GitError, match=r"git status took longer than 0\.2 s"):
        git(["status"], repository, deadline=0.2)


def test_output_input_and_extra_variables(repository: Path, tmp_path: Path) -> None:
    blob = git(["hash-object", "--stdin"], repository, input=b"what is up, doc?")
    index = str(tmp_path / "other-index")
    listed = git(["ls-files", "-z"], repository, env={"GIT_INDEX_FILE": index})

    # The id is the one of the example in the book "Pro Git".
    assert blob == b"bd9dbf5aae1a3862dd1526723246b20206e5fc37\n"
    assert listed == b""


def test_a_failure_names_the_command_and_git_s_own_words(repository: Path) -> None:
    with pytest.raises(RepoTraceError, match=r"^git log failed: fatal: bad revision 'nope'"):
        git(["-c", "color.ui=never", "log", "nope", "--"], repository)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="does not exist"):
        git(["status"], tmp_path / "missing")


def test_the_environment_keeps_where_the_configuration_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_WORK_TREE", "/elsewhere")

    env = git_environment()

    assert env["GIT_CONFIG_GLOBAL"] == "/dev/null"
    assert "GIT_WORK_TREE" not in env
    assert env["GIT_OPTIONAL_LOCKS"] == "0"


def test_our_own_reports_are_no_dirt(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".repotrace" / "reports").mkdir(parents=True)
    (tmp_path / ".repotrace" / "reports" / "x.json").write_text("{}")
    state = repository_state(tmp_path)
    assert state is not None
    assert state.dirty is False
