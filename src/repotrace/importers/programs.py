"""Programs that agents run: which only read, which run tests."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from functools import lru_cache

from repotrace.importers.shell import Opaque, Simple, simple_commands


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


READING = _words("""
    ls cat grep egrep fgrep rg ag ack head tail less more wc nl pwd which type whereis file stat du
    df tree diff cmp comm echo printf true false test [ : sort uniq cut tr awk gawk jq yq basename
    dirname realpath readlink date env printenv id whoami hostname uname ps export set unset cd
    pushd popd sleep exit return seq xxd od hexdump strings md5sum sha1sum sha256sum bat fd find sed
    column fold paste join tac rev man help ulimit alias source . nproc free uptime tee
    timeout xargs
    """)
"""Programs that change no file of a project unless their options or a redirection say so."""

CHECKING = _words("""
    pytest py.test tox nox unittest jest vitest mocha ava tap rspec phpunit ctest mypy pyright
    flake8 pylint tsc shellcheck bats nextest
    """)
"""Programs that check. They may write caches, but are taken to leave the project as it is."""

GIT_READING = _words("""
    status diff log show blame grep ls-files ls-tree rev-parse rev-list cat-file branch describe
    shortlog config remote fetch add commit push tag reflog name-rev merge-base diff-tree
    for-each-ref check-ignore show-ref symbolic-ref version whatchanged
    """)
_TESTING = {
    "python": ("pytest", "unittest", "doctest", "mypy", "flake8", "pylint", "py_compile"),
    "npm": ("test", "t", "ls", "run test", "run lint", "run typecheck"),
    "yarn": ("test", "run test", "lint"),
    "pnpm": ("test", "run test", "lint"),
    "bun": ("test",),
    "npx": ("jest", "vitest", "mocha", "tsc", "eslint"),
    "go": ("test", "vet", "list", "version", "env"),
    "cargo": ("test", "check", "nextest", "clippy"),
    "mvn": ("test",),
    "gradle": ("test",),
    "gradlew": ("test",),
    "make": ("test", "check"),
    "ruff": ("check",),
    "dotnet": ("test",),
    "mix": ("test",),
    "rake": ("test",),
    "node": ("--test", "--version", "--check"),
    "pip": ("list", "show", "freeze"),
}
_WRAPPERS = frozenset(["uv run", "poetry run", "pipenv run", "hatch run", "bundle exec", "pdm run"])
SHELLS = frozenset(["bash", "sh", "zsh", "dash"])
_REMEMBERED = 1 << 16
"""Characters of a script up to which it is remembered for a while: several ask for it."""


def inner(command: Simple) -> tuple[list[str], bool]:
    """The words without `sudo`, `env A=b`, `timeout 5`, `uv run` and the like; if any was cut."""
    argv, before = list(command.argv), len(command.argv)
    while argv:
        name = posixpath.basename(argv[0])
        if name in ("sudo", "command", "exec", "nohup", "time", "builtin"):
            argv = argv[1:]
        elif name in ("timeout", "gtimeout", "nice") and len(argv) > 2:
            argv = argv[1:]
            while argv and (argv[0].startswith("-") or re.fullmatch(r"[\d.]+[smhd]?", argv[0])):
                argv = argv[1:]
        elif name == "env" and len(argv) > 1:
            argv = argv[1:]
            while argv and ("=" in argv[0] or argv[0].startswith("-")):
                argv = argv[1:]
        elif len(argv) > 2 and f"{name} {argv[1]}" in _WRAPPERS:
            argv = argv[2:]
        else:
            break
    return argv, len(argv) != before


def program(argv: Sequence[str]) -> str:
    """The name of the program, without folder and version: `python` for `/usr/bin/python3.12`."""
    name = posixpath.basename(argv[0]) if argv else ""
    if name.startswith("p"):
        name = re.sub(r"^(python|pypy|pip)[\d.]*$", r"\1", name).replace("pypy", "python")
    return name


def is_test_command(script: str) -> bool:
    """Whether the script runs tests, by the names of the programs in it."""
    return _known_test(script) if len(script) < _REMEMBERED else _runs_tests(script)


def _runs_tests(script: str) -> bool:
    try:
        commands = simple_commands(script)
    except Opaque:
        return (
            re.search(r"\b(?:pytest|unittest|jest|vitest|go test|cargo test)\b", script) is not None
        )
    return any(_is_test(inner(command)[0]) for command in commands)


_known_test = lru_cache(maxsize=64)(_runs_tests)


def _is_test(argv: Sequence[str]) -> bool:
    name = program(argv)
    if name in SHELLS and len(argv) > 2 and argv[1] in ("-c", "-lc"):
        return is_test_command(argv[2])
    if name in CHECKING - {"mypy", "pyright", "flake8", "pylint", "tsc", "shellcheck"}:
        return True
    words = [word for word in argv[1:] if not word.startswith("-") or word == "--test"]
    first = words[0] if words else ""
    if name == "python":
        runners = ("pytest", "unittest", "doctest")
        after_m = argv[argv.index("-m") + 1 : argv.index("-m") + 2] if "-m" in argv else []
        return (bool(after_m) and after_m[0] in runners) or first.endswith("runtests.py")
    if name in _TESTING and name != "ruff":
        second = f"{first} {words[1]}" if len(words) > 1 else ""
        tests = ("test", "t", "run test", "nextest", "jest", "vitest", "mocha", "--test", "check")
        usual = first in tests or second in tests
        return usual and not (name == "cargo" and first == "check")
    return False


def command_key(script: str) -> str:
    """What two commands have in common that try the same thing: without options for display."""
    text = re.sub(r"^(?:\s*cd\s+\S+\s*(?:&&|;)\s*)+", "", script.strip())
    if "|" in text:
        text = re.sub(r"\s*(?:2>&1\s*)?\|\s*(?:tail|head|less|more|cat)\b[^|;&]*$", "", text)
    if "-" in text or "2>&1" in text:
        text = re.sub(
            r"\s+(?:2>&1|-q|-v|-vv|-x|-s|--tb=\w+|-ra|--no-header|--color=\w+)(?=\s|$)", "", text
        )
    return " ".join(text.split())


def is_harmless(name: str, argv: Sequence[str], command: Simple) -> bool:
    """Whether a command leaves the files of a project alone, but for its redirections."""
    if name in CHECKING or not argv:
        return not {"--fix", "--snapshot-update", "-u", "--updateSnapshot"} & set(argv)
    if name in ("xargs", "timeout"):
        inside = next((w for w in argv[1:] if not w.startswith("-") and not w.isdigit()), "echo")
        return program([inside]) in READING - {"sed", "xargs", "tee"}
    if name in READING:
        return True
    if name == "python":
        if "-m" in argv:
            module = argv[argv.index("-m") + 1 : argv.index("-m") + 2]
            return bool(module) and module[0] in _TESTING["python"]
        return command.heredoc is None and bool({"--version", "-V"} & set(argv))
    words = [word for word in argv[1:] if not word.startswith("-") or word.startswith("--test")]
    known = _TESTING.get(name, ())
    if "--fix" in argv or (not known and name):
        return argv[1:] in (["--version"], ["--help"], ["-h"], ["-V"])
    first = words[0] if words else (argv[1] if len(argv) > 1 else "")
    return first in known or " ".join(words[:2]) in known
