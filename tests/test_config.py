"""Settings and places, checked against real folders and real git."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import plain_git

from repotrace.config import (
    Settings,
    UserRule,
    find_repository,
    find_store,
    home_for,
    load_settings,
    workspace_for,
)
from repotrace.errors import RepoTraceError


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = (tmp_path / "project").resolve()
    (folder / "src" / "deep").mkdir(parents=True)
    plain_git(folder, "init", "-q", "-b", "main")
    plain_git(folder, "commit", "-q", "--allow-empty", "-m", "start")
    return folder


def assert_as_git_says(start: Path) -> None:
    found = find_repository(start)
    assert found is not None
    assert str(found.root) == plain_git(start, "rev-parse", "--show-toplevel")
    assert str(found.git_dir) == plain_git(start, "rev-parse", "--absolute-git-dir")
    common = plain_git(start, "rev-parse", "--path-format=absolute", "--git-common-dir")
    assert str(found.common_dir) == common


# --- find_repository ----------------------------------------------------------------------


def test_repository_from_its_root_and_from_below(repository: Path) -> None:
    assert_as_git_says(repository)
    assert_as_git_says(repository / "src" / "deep")


def test_repository_of_a_linked_work_tree(repository: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    plain_git(repository, "worktree", "add", "-q", str(linked))
    assert_as_git_says(linked)
    found = find_repository(linked)
    assert found is not None
    assert found.common_dir == repository / ".git" != found.git_dir


def test_repository_of_a_submodule(repository: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    plain_git(library, "init", "-q")
    plain_git(library, "commit", "-q", "--allow-empty", "-m", "start")
    plain_git(repository, "submodule", "--quiet", "add", str(library), "vendored")
    assert_as_git_says(repository / "vendored")


def test_repository_through_a_symbolic_link(repository: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(repository / "src")
    assert_as_git_says(link / "deep")


def test_repository_of_a_folder_that_does_not_exist(repository: Path) -> None:
    found = find_repository(repository / "gone" / "for" / "good")
    assert found is not None
    assert found.root == repository


def test_what_is_no_repository_is_passed_over(repository: Path, tmp_path: Path) -> None:
    (repository / "src" / ".git").mkdir()
    (repository / "src" / "deep" / ".git").write_bytes(b"\xff\x00 nonsense")
    found = find_repository(repository / "src" / "deep")
    assert found is not None
    assert found.root == repository
    (tmp_path / "plain" / ".git").mkdir(parents=True)
    assert find_repository(tmp_path / "plain") is None


def test_a_dangling_work_tree_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /nowhere/at/all\n")
    assert find_repository(tmp_path) is None


# --- find_store, home_for -----------------------------------------------------------------


def test_store_given_by_flag_or_variable(repository: Path) -> None:
    environ = {"REPOTRACE_STORE": "mine"}
    assert find_store(repository, environ) == repository / "mine"
    assert find_store(repository, environ, "other") == repository / "other"
    assert find_store(repository, {"REPOTRACE_STORE": "/x"}) == Path("/x")


def test_store_of_a_repository_without_one_is_at_its_root(repository: Path) -> None:
    store = find_store(repository / "src" / "deep", {})
    assert store == repository / ".repotrace" / "reports"
    assert not store.exists()


def test_nearest_store_upward(repository: Path) -> None:
    (repository / "src" / ".repotrace" / "reports").mkdir(parents=True)
    nearest = repository / "src" / ".repotrace" / "reports"
    assert find_store(repository / "src" / "deep", {}) == nearest
    assert find_store(repository, {}) == repository / ".repotrace" / "reports"


def test_store_above_the_git_root_is_not_ours(repository: Path) -> None:
    (repository.parent / ".repotrace" / "reports").mkdir(parents=True)
    assert find_store(repository / "src", {}) == repository / ".repotrace" / "reports"


def test_store_outside_git(tmp_path: Path) -> None:
    deep = tmp_path / "home" / "a" / "b"
    deep.mkdir(parents=True)
    environ = {"HOME": str(tmp_path / "home")}
    assert find_store(deep, environ) == deep / ".repotrace" / "reports"
    (tmp_path / ".repotrace" / "reports").mkdir(parents=True)
    assert find_store(deep, environ) == deep / ".repotrace" / "reports"  # above $HOME
    assert find_store(deep, {}) == tmp_path / ".repotrace" / "reports"
    (tmp_path / "home" / ".repotrace" / "reports").mkdir(parents=True)
    assert find_store(deep, environ) == tmp_path / "home" / ".repotrace" / "reports"


def test_store_in_a_folder_open_to_everybody_is_not_ours(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / ".repotrace" / "reports").mkdir(parents=True)
    (shared / "work").mkdir()
    shared.chmod(0o1777)
    assert find_store(shared / "work", {}) == shared / "work" / ".repotrace" / "reports"
    assert find_store(shared, {}) == shared / ".repotrace" / "reports"


def test_home_given_by_flag_or_variable(repository: Path) -> None:
    store = repository / ".repotrace" / "reports"
    environ = {"REPOTRACE_HOME": "there"}
    assert home_for(store, repository, environ) == repository / "there"
    assert home_for(store, repository, environ, Path("/elsewhere")) == Path("/elsewhere")


def test_home_of_a_store_in_git(repository: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    plain_git(repository, "worktree", "add", "-q", str(linked))
    home = repository / ".git" / "repotrace"
    assert home_for(repository / ".repotrace" / "reports", tmp_path, {}) == home
    assert home_for(linked / ".repotrace" / "reports", linked, {}) == home
    assert home_for(Path("some/reports"), repository, {}) == home


def test_home_of_a_store_outside_git(repository: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    assert home_for(plain / ".repotrace" / "reports", repository, {}) == plain / ".repotrace"
    in_git = repository / ".git" / "repotrace"
    assert home_for(plain / "my-reports", repository / "src", {}) == in_git
    assert home_for(plain / "my-reports", tmp_path, {}) == tmp_path / ".repotrace"


# --- load_settings ------------------------------------------------------------------------


def test_settings_without_a_file(tmp_path: Path) -> None:
    assert load_settings(tmp_path, {}) == (Settings(), [])
    assert Settings().output_limit == 1_048_576
    assert Settings().timeout is None


def test_settings_in_pyproject(repository: Path) -> None:
    (repository / "pyproject.toml").write_text(
        """
        [tool.repotrace]
        output-limit = "4 MiB"
        timeout = 90
        env_keep = ["APP_MODE"]

        [[tool.repotrace.normalize]]
        name = "order"
        pattern = 'order-(\\d+)'
        replacement = '<order \\1>'
        """
    )
    settings, warnings = load_settings(repository / "src" / "deep", {})
    assert warnings == []
    assert settings == Settings(
        output_limit=4 * 1024 * 1024,
        timeout=90.0,
        env_keep=("APP_MODE",),
        normalize=(UserRule("order", r"order-(\d+)", r"<order \1>"),),
    )


@pytest.mark.parametrize("header", ["", "[tool.repotrace]\n"])
def test_settings_in_our_own_file_win_over_pyproject(tmp_path: Path, header: str) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.repotrace]\ntimeout = 1\n")
    (tmp_path / "repotrace.toml").write_text(header + "timeout = 2.5\n")
    assert load_settings(tmp_path, {})[0].timeout == 2.5


def test_nearest_file_with_settings_counts(repository: Path) -> None:
    (repository / "repotrace.toml").write_text("timeout = 1\n")
    (repository / "src" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert load_settings(repository / "src", {})[0].timeout == 1.0
    (repository.parent / "repotrace.toml").write_text("output-limit = 1\n")
    assert load_settings(repository / "src", {})[0].output_limit == 1_048_576


def test_variables_win_over_files(tmp_path: Path) -> None:
    (tmp_path / "repotrace.toml").write_text("timeout = 1\noutput-limit = 5\n")
    environ = {
        "REPOTRACE_TIMEOUT": "2",
        "REPOTRACE_OUTPUT_LIMIT": "3kB",
        "REPOTRACE_ENV_KEEP": "A, B C",
    }
    settings, warnings = load_settings(tmp_path, environ)
    assert (settings.timeout, settings.output_limit) == (2.0, 3000)
    assert settings.env_keep == ("A", "B", "C")
    assert warnings == []
    assert load_settings(tmp_path, {"REPOTRACE_TIMEOUT": ""})[0].timeout == 1.0


def test_unknown_keys_warn(tmp_path: Path) -> None:
    (tmp_path / "repotrace.toml").write_text("time-out = 1\ntimeout = 3\n")
    settings, warnings = load_settings(tmp_path, {})
    assert settings.timeout == 3.0
    assert len(warnings) == 1
    assert "'time-out'" in warnings[0]
    assert "timeout" in warnings[0]


def test_a_broken_pyproject_warns_and_never_stops_a_capture(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.repotrace\ntimeout = 1\n")
    settings, warnings = load_settings(tmp_path, {})
    assert settings == Settings()
    assert "pyproject.toml is not valid TOML" in warnings[0]
    (tmp_path / "pyproject.toml").write_bytes(b"repotrace = \xff")
    assert len(load_settings(tmp_path, {})[1]) == 1
    (tmp_path / "pyproject.toml").write_bytes(b"repotrace = " + b"[" * 50_000)
    assert len(load_settings(tmp_path, {})[1]) == 1


def test_a_broken_file_of_ours_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "repotrace.toml").write_text("timeout =\n")
    with pytest.raises(RepoTraceError, match=r"repotrace\.toml is not valid TOML") as caught:
        load_settings(tmp_path, {})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("timeout = 0", "above 0"),
        ("timeout = true", "above 0"),
        ("timeout = nan", "above 0"),
        ("timeout = 'soon'", "above 0"),
        ("output-limit = -1", "number of bytes"),
        ("output-limit = '3 parsecs'", "number of bytes"),
        ("output-limit = 1.5", "number of bytes"),
        ("env-keep = 'HOME'", "list of names"),
        ("env-keep = ['A=B']", "list of names"),
        ("env-keep = [3]", "list of names"),
        ("normalize = 3", "array of tables"),
        ("[normalize]\nname = 'x'", "array of tables"),
        ("[[normalize]]\nname = 'x'", "must have a name"),
        ("[[normalize]]\nname = 'a b'\npattern = 'x'\nreplacement = ''", "must have a name"),
        ("[[normalize]]\nname = 'n'\npattern = '('\nreplacement = ''", "no regular expression"),
        ("[[normalize]]\nname = 'n'\npattern = 'x'\nreplacement = '\\2'", "does not fit"),
        ("[[normalize]]\nname = 'n'\npattern = 'x'\nreplacement = '\\g<q>'", "does not fit"),
        ("[[normalize]]\nname = 'n'\npattern = 'x*'\nreplacement = 'y'", "everywhere"),
        (
            "[[normalize]]\nname = 'n'\npattern = 'x'\nreplacement = 'y'\n" * 2,
            "twice",
        ),
    ],
)
def test_a_value_that_makes_no_sense_is_an_error_with_a_hint(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "repotrace.toml").write_text(text)
    with pytest.raises(RepoTraceError, match=words) as caught:
        load_settings(tmp_path, {})
    assert "repotrace.toml" in caught.value.message
    assert caught.value.hint


def test_a_bad_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(RepoTraceError, match="REPOTRACE_TIMEOUT"):
        load_settings(tmp_path, {"REPOTRACE_TIMEOUT": "-3"})


def test_reading_settings_makes_and_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "repotrace.toml").write_text("unknown = 1\n")
    load_settings(tmp_path, {})
    home_for(find_store(tmp_path, {}), tmp_path, {})
    assert [path.name for path in tmp_path.iterdir()] == ["repotrace.toml"]
    assert capfd.readouterr() == ("", "")


def test_the_workspace_is_the_project_that_a_folder_belongs_to(tmp_path: Path) -> None:
    inner = tmp_path / "project" / "src" / "deep"
    inner.mkdir(parents=True)
    environ = {"HOME": str(tmp_path)}
    assert workspace_for(inner, environ) == inner.resolve()
    (tmp_path / "project" / ".repotrace").mkdir()
    assert workspace_for(inner, environ) == (tmp_path / "project").resolve()
    plain_git(inner.parent, "init", "-q")
    assert workspace_for(inner, environ) == inner.parent.resolve()
