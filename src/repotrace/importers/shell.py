"""A shell script taken apart, as far as that is possible without running it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple


class Redirect(NamedTuple):
    """`2> file`: descriptor, operator, target."""

    descriptor: int
    operator: str
    target: str


@dataclass(slots=True)
class Simple:
    """One simple command."""

    argv: list[str] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    heredoc: str | None = None
    """What is fed to it in the script itself."""
    assignments: list[str] = field(default_factory=list)
    before: str = ""
    """The operator before it: `;` (or a line end), `&&`, `||`, `|`, `&`; empty for the first."""
    after: str = ""
    """The operator behind it."""
    dynamic: bool = False
    """A word of it holds a substitution, so that its value is not known."""

    @property
    def text(self) -> str:
        """The words, for people."""
        return " ".join(self.argv)


class Opaque(ValueError):
    """A script with parts that cannot be followed: a loop, a function, a broken quote."""


_OPERATOR = re.compile(r"&&|\|\||;;|\|&|[;|\n]|&(?!>)")
_BLANKS = re.compile(r"(?:[ \t\r]|\\\n)*")
KEYWORDS = frozenset(
    [
        *(
            "if",
            "then",
            "else",
            "elif",
            "fi",
            "for",
            "while",
            "until",
            "do",
            "done",
            "case",
            "esac",
        ),
        *("select", "function", "{", "}", "[[", "!", "time"),
    ]
)
"""Words that begin or end compound commands."""
_REDIRECT = re.compile(r"(\d*)(<<<|<<-?|>>|>\||>&|<&|<>|>|<|&>>|&>)")
_PLAIN = re.compile(r"[^\s'\"\\$`|&;<>()#*?\[\]{}~!]+")
_ENDS = " \t\r\n;|&<>)"
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
LONGEST = 1 << 20
"""Characters of a script above which it is not taken apart."""
_REMEMBERED = 1 << 16
"""Characters of a script up to which its commands are remembered for a while."""


def simple_commands(script: str) -> list[Simple]:
    """The commands of a script in order. Raises Opaque where its structure cannot be followed.

    Pipes, lists, quotes, redirections and here-documents are understood.
    """
    if len(script) > LONGEST:
        raise Opaque("a very long script")
    # Several ask for the commands of the same script one after another.
    found = _known(script) if len(script) < _REMEMBERED else _read(script)
    if isinstance(found, str):
        raise Opaque(found)
    return list(found)


def _read(script: str) -> tuple[Simple, ...] | str:
    """The commands, or why they cannot be followed."""
    try:
        return tuple(_Reader(script).commands())
    except Opaque as error:
        return str(error)


_known = lru_cache(maxsize=64)(_read)


class _Reader:
    def __init__(self, script: str) -> None:
        self._text = script
        self._at = 0
        self._heredocs: list[tuple[Simple, str, bool, bool]] = []

    def commands(self) -> Iterator[Simple]:
        command, operator = Simple(), ""
        while True:
            found = self._operator()
            if found is None:
                if self._at >= len(self._text):
                    break
                self._word_into(command)
                continue
            if found == "\n":
                self._read_heredocs()
            self._check(command)
            if command.argv or command.redirects or command.assignments:
                command.before, command.after = operator, found
                yield command
                operator = ";" if found == "\n" else found
            elif found not in ("\n", ";", "&"):
                raise Opaque("an operator without a command")
            command = Simple(before=operator)
        self._read_heredocs()
        self._check(command)
        if command.argv or command.redirects or command.assignments:
            command.before = operator
            yield command

    def _check(self, command: Simple) -> None:
        if command.argv and command.argv[0] in KEYWORDS:
            raise Opaque(f"a compound command: {command.argv[0]}")

    def _operator(self) -> str | None:
        """The operator at this place, blanks and comments before it skipped."""
        text = self._text
        while True:
            at = self._at = _BLANKS.match(text, self._at).end()  # type: ignore[union-attr]
            if not text.startswith("#", at) or (at > 0 and text[at - 1] not in " \t\n;&|"):
                break
            end = text.find("\n", at)
            self._at = len(text) if end < 0 else end
        match = _OPERATOR.match(text, at)
        if match is None:
            return None
        self._at = match.end()
        return "|" if match[0] == "|&" else match[0]

    def _word_into(self, command: Simple) -> None:
        if self._text[self._at] in "()":
            raise Opaque("a subshell")
        match = _REDIRECT.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
            self._redirect(command, match[1], match[2])
            return
        word, quoted, dynamic = self._word()
        if not quoted and not command.argv and _ASSIGNMENT.match(word):
            command.assignments.append(word)
            return
        command.dynamic |= dynamic
        command.argv.append(word)

    def _redirect(self, command: Simple, descriptor: str, operator: str) -> None:
        self._skip_blanks()
        if self._at >= len(self._text):
            raise Opaque("a redirection to nothing")
        word, quoted, dynamic = self._word()
        if operator.startswith("<<") and operator != "<<<":
            self._heredocs.append((command, word, quoted, operator == "<<-"))
            return
        if operator == "<<<":
            command.heredoc = word + "\n"
            return
        command.dynamic |= dynamic
        usual = 0 if operator.startswith("<") else 1
        command.redirects.append(Redirect(int(descriptor) if descriptor else usual, operator, word))

    def _skip_blanks(self) -> None:
        while self._at < len(self._text) and self._text[self._at] in " \t":
            self._at += 1

    def _read_heredocs(self) -> None:
        for command, end, quoted, strip_tabs in self._heredocs:
            lines: list[str] = []
            while True:
                if self._at >= len(self._text):
                    break
                stop = self._text.find("\n", self._at)
                stop = len(self._text) if stop < 0 else stop
                line = self._text[self._at : stop]
                self._at = stop + 1
                if strip_tabs:
                    line = line.lstrip("\t")
                if line.rstrip("\r") == end:
                    break
                lines.append(line)
            body = "".join(f"{line}\n" for line in lines)
            if not quoted:
                if re.search(r"(?<!\\)[$`]", body):
                    command.dynamic = True
                body = re.sub(r"\\([$`\\])|\\\n", lambda m: m[1] or "", body)
            command.heredoc = body
        self._heredocs.clear()

    def _word(self) -> tuple[str, bool, bool]:
        """The next word, whether any of it was quoted, whether it depends on the surroundings."""
        parts: list[str] = []
        quoted = dynamic = False
        text = self._text
        while self._at < len(text):
            match = _PLAIN.match(text, self._at)
            if match is not None:
                parts.append(match[0])
                self._at = match.end()
                continue
            char = text[self._at]
            if char == "'":
                parts.append(self._until_quote())
                quoted = True
            elif char == '"':
                inner, depends = self._double_quoted()
                parts.append(inner)
                quoted, dynamic = True, dynamic or depends
            elif char == "\\":
                if text.startswith("\\\n", self._at):
                    self._at += 2
                    continue
                parts.append(text[self._at + 1 : self._at + 2])
                quoted = True
                self._at += 2
            elif char in "$`":
                if text.startswith("$'", self._at):
                    self._at += 1
                    parts.append(_unescaped(self._until_quote(escapes=True)))
                    quoted = True
                    continue
                parts.append(self._substitution())
                dynamic = True
            elif char in "*?[]{}~!#":
                # A pattern that matches files is as unknown as a substitution.
                dynamic = dynamic or char in "*?["
                parts.append(char)
                self._at += 1
            elif char == "(":
                raise Opaque("a function or an array")
            elif char in _ENDS:
                break
            else:  # blanks that are none to a shell
                parts.append(char)
                self._at += 1
        return "".join(parts), quoted, dynamic

    def _until_quote(self, *, escapes: bool = False) -> str:
        start = self._at + 1
        end = start
        while True:
            end = self._text.find("'", end)
            if end < 0:
                raise Opaque("a quote that does not end")
            if not escapes or not _is_escaped(self._text, start, end):
                break
            end += 1
        self._at = end + 1
        return self._text[start:end]

    def _double_quoted(self) -> tuple[str, bool]:
        parts: list[str] = []
        depends = False
        self._at += 1
        text = self._text
        while self._at < len(text):
            char = text[self._at]
            if char == '"':
                self._at += 1
                return "".join(parts), depends
            if char == "\\":
                following = text[self._at + 1 : self._at + 2]
                if following != "\n":
                    parts.append(following if following in '$`"\\' else char + following)
                self._at += 2
            elif char in "$`":
                before = self._at
                found = self._substitution()
                depends = depends or self._at > before + 1
                parts.append(found)
            else:
                stop = re.compile(r'["\\$`]').search(text, self._at)
                end = stop.start() if stop else len(text)
                parts.append(text[self._at : end])
                self._at = end
        raise Opaque("a quote that does not end")

    def _substitution(self) -> str:
        """Skip `$x`, `${x}`, `$(x)`, `` `x` ``; a lone `$` is itself."""
        text, start = self._text, self._at
        if text[start] == "`":
            end = text.find("`", start + 1)
            if end < 0:
                raise Opaque("a substitution that does not end")
            self._at = end + 1
            return text[start : self._at]
        opening = text[start + 1 : start + 2]
        if opening in ("(", "{"):
            closing = ")" if opening == "(" else "}"
            depth, at = 0, start + 1
            while at < len(text):
                depth += (text[at] == opening) - (text[at] == closing)
                at += 1
                if depth == 0:
                    self._at = at
                    return text[start:at]
            raise Opaque("a substitution that does not end")
        match = re.compile(r"\$(?:\w+|[?$!#@*-])").match(text, start)
        self._at = match.end() if match else start + 1
        return text[start : self._at]


def _is_escaped(text: str, start: int, at: int) -> bool:
    count = 0
    while at - count > start and text[at - count - 1] == "\\":
        count += 1
    return count % 2 == 1


_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "e": "\x1b",
}


def _unescaped(text: str) -> str:
    """What `$'…'` and the format of `printf` mean by a backslash."""

    def replaced(match: re.Match[str]) -> str:
        word = match[1]
        if word[0] in "01234567":
            return chr(int(word, 8) & 0xFF)
        if word[0] == "x" and len(word) > 1:
            return chr(int(word[1:], 16))
        return _ESCAPES.get(word, word if word in "\\'\"" else "\\" + word)

    return re.sub(r"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)", replaced, text, flags=re.S)


def unescaped(text: str) -> str:
    """A text with the backslash sequences of `printf` replaced."""
    return _unescaped(text)
