"""What a shell command did to files and which it read, as its text tells without running it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from repotrace.importers import patches, scripts, sed
from repotrace.importers.programs import (
    CHECKING,
    GIT_READING,
    READING,
    SHELLS,
    inner,
    is_harmless,
    program,
)
from repotrace.importers.shell import KEYWORDS, Opaque, Redirect, Simple, simple_commands, unescaped

type Read = Callable[[str], bytes | None]
"""The content of an absolute path before the command; None if there is none."""

_SHOWING = frozenset(["cat", "head", "tail", "nl", "less", "more", "bat", "tac"])
_VALUED = {"head": "nc", "tail": "nc", "nl": "bvwsilnfhd", "bat": "rlHm", "cat": "", "sed": "el"}


class Reading(NamedTuple):
    """A path that a command shows."""

    path: str
    first_line: int | None = None
    last_line: int | None = None
    whole: bool = False
    """The output of the command is the content of the path, and nothing else."""


@dataclass(slots=True)
class Effects:
    """What a command did to files."""

    contents: dict[str, bytes | None] = field(default_factory=dict)
    """By absolute path: the content afterwards; None if it is gone."""
    renamed: dict[str, str] = field(default_factory=dict)
    """New path to old path."""
    doubts: list[str] = field(default_factory=list)
    """Parts of the command that may have changed more, for people."""


def normalised(cwd: str, path: str) -> str:
    """`path` as seen from `cwd`, without `.` and `..`."""
    return posixpath.normpath(posixpath.join(cwd, path)) if path else cwd


# --- Reading --------------------------------------------------------------------------------


def readings(script: str, cwd: str) -> list[Reading]:
    """The paths that the script shows, as far as its words name them."""
    try:
        commands = simple_commands(script)
    except Opaque:
        return []
    found: list[Reading] = []
    for command in commands:
        argv, _ = inner(command)
        name = program(argv)
        if name in SHELLS and len(argv) > 2 and argv[1] in ("-c", "-lc"):
            found += readings(argv[2], cwd)
        elif name == "cd" and not command.dynamic:
            cwd = normalised(cwd, argv[1]) if len(argv) > 1 else cwd
        elif not command.dynamic and not _writes_out(command):
            found += _shown(name, argv, command, cwd)
    alone = len(found) == 1 and sum(program(c.argv) != "cd" for c in commands) == 1
    return [reading if alone else reading._replace(whole=False) for reading in found]


def _writes_out(command: Simple) -> bool:
    return any(
        r.operator in (">", ">>", ">|", "&>") and r.descriptor == 1 for r in command.redirects
    )


def _shown(name: str, argv: list[str], command: Simple, cwd: str) -> Iterator[Reading]:
    if name == "sed":
        if "-i" in argv or any(word.startswith(("-i", "--in-place")) for word in argv):
            return
    elif name not in _SHOWING:
        return
    words = _operands(argv, _VALUED.get(name, ""))
    first = last = None
    if name == "sed":
        script, words = (words[0], words[1:]) if words else ("", [])
        match = re.fullmatch(r"(\d+)(?:,(\d+|\$))?p", script)
        if match is None:
            return
        first = int(match[1])
        last = first if match[2] is None else None if match[2] == "$" else int(match[2])
    elif name == "head":
        first, last = 1, _count(argv)
    bare = name == "cat" and len(argv) == 2 and not command.assignments
    for word in words:
        if word not in ("-", "/dev/null", "/dev/stdin"):
            yield Reading(normalised(cwd, word), first, last, bare)


def _count(argv: Sequence[str]) -> int | None:
    match = re.search(r"(?:^| )-(?:n ?)?(\d+)(?: |$)", " ".join(argv[1:]))
    return int(match[1]) if match else 10


def _operands(argv: Sequence[str], valued: str) -> list[str]:
    """The words that are no options and no values of options."""
    words: list[str] = []
    rest = iter(argv[1:])
    for word in rest:
        if word == "--":
            words += rest
        elif word.startswith("--") or (word.startswith("-") and len(word) > 1):
            if len(word) == 2 and word[1] in valued:
                next(rest, None)
        elif not (word.startswith("+") and argv[0] == "tail"):
            words.append(word)
    return words


# --- Writing --------------------------------------------------------------------------------


def effects(
    script: str, cwd: str, read: Read, *, exit_code: int | None = 0, root: str = "/"
) -> Effects:
    """What the script did to the files below `root`, when its exit code is known to be this.

    What cannot be told is named in `doubts`. A part behind `&&` counts as run where the whole
    succeeded.
    """
    result = Effects()
    try:
        commands = simple_commands(script)
    except Opaque as problem:
        if _only_reads_by_words(script):
            return result
        result.doubts.append(f"{_short(script)} ({problem})")
        return result
    worker = _Worker(result, cwd, read, root)
    for number, command in enumerate(commands):
        failed = exit_code not in (0, None)
        conditional = command.before in ("&&", "||") or command.after == "||"
        last = number == len(commands) - 1
        worker.run(command, certain=not (failed and (conditional or last)))
    return result


def _only_reads_by_words(script: str) -> bool:
    """Whether a script that cannot be followed has but harmless programs and no redirection."""
    if re.search(r"(?<![0-9&=-])>(?!\s*/dev/null|&\d)|<<|\bdo\b.*\b(?:rm|mv|cp|sed -i)\b", script):
        return False
    words = re.findall(r"(?:^|[|;&(\n]|\bdo\b|\bthen\b|\belse\b|\$\()\s*([\w./-]+)", script)
    known = READING | CHECKING | KEYWORDS | {"in"}
    return (
        bool(words)
        and all(posixpath.basename(word) in known for word in words)
        and ("sed -i" not in script and "-delete" not in script and "-exec" not in script)
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:59] + "…"


class _Worker:
    """Does to contents what commands do to files."""

    def __init__(self, result: Effects, cwd: str, read: Read, root: str) -> None:
        self._result, self._cwd, self._outside, self._root = result, cwd, read, root
        self._certain = True

    def read(self, path: str) -> bytes | None:
        contents = self._result.contents
        return contents[path] if path in contents else self._outside(path)

    def _at(self, word: str) -> str:
        return normalised(self._cwd, word)

    def _matters(self, word: str) -> bool:
        """Whether a path that is written to may lie below the root."""
        path = self._at(word)
        inside = path == self._root or path.startswith(self._root.rstrip("/") + "/")
        return (inside or not word.startswith("/")) and not path.startswith(("/dev/", "/proc/"))

    def _write(self, path: str, data: bytes | None) -> None:
        if not self._matters(path):
            return
        self._result.contents[path] = data
        self._result.renamed.pop(path, None)
        if not self._certain:
            self._doubt(f"whether {posixpath.basename(path)} was written, as the command failed")

    def _doubt(self, text: str) -> None:
        if text not in self._result.doubts:
            self._result.doubts.append(text)

    def run(self, command: Simple, *, certain: bool) -> None:
        self._certain = certain
        argv, _ = inner(command)
        name = program(argv)
        targets = [r for r in command.redirects if r.operator in (">", ">>", ">|", "&>", "&>>")]
        targets = [r for r in targets if self._matters(r.target)]
        try:
            act = _ACTS.get(name)
            if act is not None:
                act(self, argv, command, targets)
                return
            if targets:
                self._redirected(argv, name, command, targets)
            if not is_harmless(name, argv, command):
                self._doubt(_short(command.text))
        except (Opaque, patches.Unfitting, UnicodeDecodeError, ValueError) as problem:
            self._doubt(f"{_short(command.text)} ({problem})")

    def _redirected(
        self, argv: list[str], name: str, command: Simple, targets: list[Redirect]
    ) -> None:
        """Output that goes to files: known for some programs, doubted for all others."""
        known = None if command.dynamic or command.before == "|" else _output(name, argv, command)
        for target in targets:
            path = self._at(target.target)
            if known is None or target.descriptor != 1 or target.operator.startswith("&"):
                if self._result.contents.get(path, b"") is not None or self.read(path) is None:
                    self._doubt(f"{_short(command.text)} > {target.target}")
                continue
            before = (self.read(path) or b"") if target.operator == ">>" else b""
            self._write(path, before + known)

    # What single programs do. Each gets the words, the command and its output redirections.

    def cd(self, argv: list[str], command: Simple, _targets: list[Redirect]) -> None:
        if command.dynamic:
            raise Opaque("a folder that is not known")
        if len(argv) > 1 and argv[1] != "-":
            self._cwd = self._at(argv[1])

    def cat(self, argv: list[str], command: Simple, targets: list[Redirect]) -> None:
        words = _operands(argv, "")
        if not targets:
            return
        if command.dynamic or command.before == "|":
            raise Opaque("its output is not known")
        if words and words != ["-"]:
            parts = [self.read(self._at(word)) for word in words]
            if any(part is None for part in parts):
                raise Opaque("its output is not known")
            data = b"".join(part or b"" for part in parts)
        elif command.heredoc is not None:
            data = _bytes(command.heredoc)
        elif not any(redirect.operator == "<" for redirect in command.redirects):
            data = b""
        else:
            raise Opaque("its output is not known")
        for target in targets:
            path = self._at(target.target)
            before = (self.read(path) or b"") if target.operator == ">>" else b""
            self._write(path, before + data)

    def tee(self, argv: list[str], command: Simple, _targets: list[Redirect]) -> None:
        words = [word for word in _operands(argv, "") if self._matters(word)]
        if not words:
            return
        if command.heredoc is None or command.dynamic:
            raise Opaque("its input is not known")
        adds = "-a" in argv or "--append" in argv
        for word in words:
            path = self._at(word)
            before = (self.read(path) or b"") if adds else b""
            self._write(path, before + _bytes(command.heredoc))

    def touch(self, argv: list[str], command: Simple, _targets: list[Redirect]) -> None:
        for path in self._paths(argv, command, "drt"):
            if self.read(path) is None:
                self._write(path, b"")

    def mkdir(self, argv: list[str], command: Simple, _targets: list[Redirect]) -> None:
        del argv, command  # states hold files; a folder comes with the first one in it

    def rm(self, argv: list[str], command: Simple, _targets: list[Redirect]) -> None:
        recursive = any(re.match(r"-\w*[rR]|--recursive", word) for word in argv[1:])
        for path in self._paths(argv, command, ""):
            if self.read(path) is not None:
                self._write(path, None)
            elif recursive:
                raise Opaque("a folder, or nothing")

    def mv(self, argv: list[str], command: Simple, _targets: list[Redirect]) -> None:
        # The folder of the target is taken to be there: scripts make one before they need it.
        source, target, data = self._pair(argv, command)
        self._write(source, None)
        self._write(target, data)
        self._result.renamed[target] = source

    def cp(self, argv: list[str], command: Simple, _targets: list[Redirect]) -> None:
        _, target, data = self._pair(argv, command)
        self._write(target, data)

    def _paths(self, argv: list[str], command: Simple, valued: str) -> list[str]:
        if command.dynamic:
            raise Opaque("paths that are not known")
        return [self._at(word) for word in _operands(argv, valued)]

    def _pair(self, argv: list[str], command: Simple) -> tuple[str, str, bytes]:
        words = self._paths(argv, command, "")
        if len(words) != 2:
            raise Opaque("several paths")
        source, target = words
        data = self.read(source)
        if data is None:
            raise Opaque("a folder, or nothing")
        if self.read(target) is None and (
            argv[-1].endswith(("/", "/."))
            or argv[-1] in (".", "..")
            or "." not in posixpath.basename(target)
        ):
            # Whether a folder is there is not known; a name without suffix may be one.
            if argv[-1].endswith(("/", "/.")) or argv[-1] in (".", ".."):
                target = f"{target}/{posixpath.basename(source)}"
            elif "." in posixpath.basename(source):
                raise Opaque("a folder, or a new file")
        return source, target, data

    def apply_patch(self, argv: list[str], command: Simple, _targets: list[Redirect]) -> None:
        text = command.heredoc if command.heredoc is not None else " ".join(argv[1:])
        self._apply(patches.apply_envelope(text, self._text))

    def patch(self, argv: list[str], command: Simple, _targets: list[Redirect]) -> None:
        text = command.heredoc
        if text is None or command.dynamic:
            raise Opaque("a patch that is not known")
        strip = next((int(w[2:]) for w in argv if re.fullmatch(r"-p\d", w)), 1)
        if patches.is_envelope(text):
            self._apply(patches.apply_envelope(text, self._text))
        else:
            self._apply(patches.apply_multi(text, self._text, strip=strip))

    def git(self, argv: list[str], command: Simple, targets: list[Redirect]) -> None:
        rest = list(argv[1:])
        while rest and rest[0].startswith("-"):
            rest = rest[2:] if rest[0] in ("-C", "-c") else rest[1:]
        verb = rest[0] if rest else ""
        if verb == "apply":
            if any(word in ("--check", "--stat", "--numstat") for word in rest):
                return
            self.patch(argv, command, [])
        elif verb in ("rm", "mv"):
            getattr(self, verb)(rest, command, [])
        elif verb == "stash" and rest[1:2] == ["list"]:
            return
        elif verb not in GIT_READING or "-D" in rest or "--output" in command.text:
            raise Opaque("it may change files")
        if targets:
            self._redirected(argv, "git", command, targets)

    def sed(self, argv: list[str], command: Simple, targets: list[Redirect]) -> None:
        options = [w for w in argv[1:] if re.match(r"-\w*i|--in-place", w)]
        if not options:
            if targets:
                self._redirected(argv, "sed", command, targets)
            return
        if command.dynamic or any((w.startswith("-") and "E" in w) or w == "-r" for w in argv):
            raise Opaque("an expression that is not followed")
        programs, paths = sed.words_of(argv)
        if any(option not in ("-i", "-ie") for option in options):
            raise Opaque("options that are not followed")
        for word in paths:
            path = self._at(word)
            before = self.read(path)
            if before is None:
                raise Opaque("a file that is not known")
            text = before.decode()
            for script in programs:
                text = sed.edited(script, text)
            if text.encode() != before:
                self._write(path, text.encode())

    def python(self, argv: list[str], command: Simple, targets: list[Redirect]) -> None:
        if is_harmless("python", argv, command):
            return
        words = argv[1:]
        if command.dynamic:
            raise Opaque("a script that is not known")
        if words[:1] == ["-c"] and len(words) > 1:
            script = words[1]
        elif command.heredoc is not None and words in ([], ["-"]):
            script = command.heredoc
        else:
            raise Opaque("it may change files")
        read = lambda name: self.read(self._at(name))  # noqa: E731
        scripts.follow(script, read, lambda name, data: self._write(self._at(name), data))
        if targets:
            self._redirected(argv, "python", command, targets)

    def shell(self, argv: list[str], command: Simple, _targets: list[Redirect]) -> None:
        if len(argv) > 2 and argv[1] in ("-c", "-lc"):
            script = argv[2]
        elif command.heredoc is not None and len(argv) == 1:
            script = command.heredoc
        else:
            raise Opaque("it may change files")
        code = 0 if self._certain else 1
        inner = effects(script, self._cwd, self.read, exit_code=code, root=self._root)
        self._result.contents.update(inner.contents)
        self._result.renamed.update(inner.renamed)
        for doubt in inner.doubts:
            self._doubt(doubt)

    def find(self, argv: list[str], command: Simple, _targets: list[Redirect]) -> None:
        del command
        if {"-delete", "-exec", "-execdir", "-ok", "-fprint"} & set(argv):
            inside = (
                [program([word]) for word in argv[argv.index("-exec") + 1 :][:1]]
                if ("-exec" in argv)
                else []
            )
            if "-delete" in argv or not inside or inside[0] not in READING - {"sed", "tee"}:
                raise Opaque("it may change files")

    def _text(self, path: str) -> str | None:
        data = self.read(self._at(path))
        return None if data is None else data.decode()

    def _apply(self, changes: list[patches.Change]) -> None:
        for change in changes:
            path = self._at(change.path)
            self._write(path, None if change.after is None else _bytes(change.after))
            if change.renamed_from is not None:
                self._result.renamed[path] = self._at(change.renamed_from)


_ACTS: dict[str, Callable[[_Worker, list[str], Simple, list[Redirect]], None]] = {
    **dict.fromkeys(("cd", "pushd"), _Worker.cd),
    **{name: getattr(_Worker, name) for name in ("cat", "tee", "touch", "mkdir", "rm", "mv", "cp")},
    **dict.fromkeys(("apply_patch", "applypatch"), _Worker.apply_patch),
    **{name: getattr(_Worker, name) for name in ("patch", "git", "sed", "python", "find")},
    **dict.fromkeys(SHELLS, _Worker.shell),
}


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _output(name: str, argv: list[str], command: Simple) -> bytes | None:
    """What the command prints, where its words say so."""
    if name == "echo":
        words = argv[1:]
        ends, escapes = "\n", False
        while words and re.fullmatch(r"-[neE]+", words[0]):
            ends = "" if "n" in words[0] else ends
            escapes = "e" in words[0]
            words = words[1:]
        text = " ".join(words)
        return _bytes((unescaped(text) if escapes else text) + ends)
    if name == "printf" and len(argv) > 1:
        rest = argv[2:]
        if "%" not in argv[1].replace("%%", ""):
            return _bytes(unescaped(argv[1]).replace("%%", "%"))
        if re.fullmatch(r"%s(?:\\n)?", argv[1]):
            return _bytes("".join(word + unescaped(argv[1][2:]) for word in rest or [""]))
        return None
    if name in (":", "true", "") and command.heredoc is None:
        return b""
    return None
