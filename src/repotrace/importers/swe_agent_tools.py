"""The tools of SWE-agent: what an action calls, what it did to files, what it showed of them.

Its editor works on an open file and shows a window of numbered lines; edits replace lines of it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from repotrace import testlogs
from repotrace.agents.swe_agent import TOOLS
from repotrace.agents.tools import Action
from repotrace.importers import programs
from repotrace.importers.building import Data, Result, blob_id, operation, text_of
from repotrace.importers.claims import spoken
from repotrace.importers.effects import normalised
from repotrace.records.run import OperationType

type Record = dict[str, Any]

_WORDS = {
    "open": ("path", "line_number"),
    "goto": ("line_number",),
    "scroll_up": (),
    "scroll_down": (),
    "filemap": ("file_path",),
    "view_image": ("image_file",),
    "find_file": ("file_name", "dir"),
    "search_dir": ("search_term", "dir"),
    "search_file": ("search_term", "file"),
    "create": ("filename",),
    "insert": ("text", "line"),
    "submit": (),
    "exit_forfeit": (),
}
"""What the words behind the name of a tool are."""

_ON_OPEN_FILE = frozenset(["goto", "scroll_up", "scroll_down", "edit", "insert"])
_NUMBERS = frozenset(["line_number", "line", "insert_line", "start_line", "end_line"])
_RANGE_EDIT = re.compile(r"edit\s+(\d+):(\d+)[ \t]*\n(.*)", re.DOTALL)
_HEAD = re.compile(r"^\[File: (.+?) \((\d+) lines total\)\][ \t]*$", re.MULTILINE)
_LINE = re.compile(r"(\d+):(.*)")
_MORE = re.compile(r"\(\d+ more lines (?:above|below)\)")
_NOT_DONE = (
    *("edit has introduced new syntax error", "have NOT been applied", "edit was not applied"),
    *("No changes were made", "No replacement was performed", "not found in displayed lines"),
)
_REFUSING = re.compile(
    r"^(?:No file open|Usage: |Error: |Warning: File .* already exists|File already exists"
    r"|The path .* (?:does not exist|is a directory)|The parent directory .* does not exist"
    r"|Invalid `|Parameter `|No edit history|Unrecognized command|Ran into |Text not found)",
    re.MULTILINE,
)
_TIMED_OUT = re.compile(
    r"^\s*(?:EXECUTION TIMED OUT|The command '.*' was cancelled because it took more than)",
    re.DOTALL,
)
_UNRUN = re.compile(
    r"^\s*(?:Your (?:bash )?command contained syntax errors and was NOT executed"
    r"|Operation '.*' is not supported by this environment"
    r"|Your command was blocked|Your output was not formatted correctly)",
    re.DOTALL,
)
BEHIND = 1 << 40
"""A line that is behind the last one of any file."""


class Window(NamedTuple):
    """Lines of a file that the editor showed."""

    path: str
    total: int
    first: int
    """From 1; 0 if none was shown."""
    lines: tuple[str, ...]
    whole: bool

    @property
    def last(self) -> int:
        """The last line that was shown."""
        return self.first + len(self.lines) - 1


class Asked(NamedTuple):
    """A call of a tool: its name in the vocabulary, its arguments."""

    name: str
    arguments: Record


# --- Calls ----------------------------------------------------------------------------------


def asked_of(action: str, function: Record | None, open_file: str) -> Asked:
    """The tool that an action calls; `function` is the call of the model where it made one."""
    asked = _of_function(function) or _of_text(action) or Asked("bash", {"command": action.strip()})
    if asked.name in _ON_OPEN_FILE or (asked.name == "search_file" and "file" not in asked[1]):
        name = "file" if asked.name == "search_file" else "path"
        if open_file:
            return Asked(asked.name, {name: open_file, **asked.arguments})
    return asked


def _of_function(function: Record | None) -> Asked | None:
    if not function or not isinstance(function.get("name"), str):
        return None
    given = function.get("arguments")
    if not isinstance(given, dict):
        return None
    name = spoken(function["name"], given, TOOLS)
    if name not in TOOLS:
        return None
    if TOOLS[name].action is Action.RUN and not isinstance(given.get("command"), str):
        return None
    return Asked(name, given)


def _of_text(action: str) -> Asked | None:
    text = action.strip("\n")
    match = _RANGE_EDIT.match(text)
    if match is not None:
        body = re.sub(r"(?:^|\n)end_of_edit\s*$", "", match[3])
        lines = {"start_line": int(match[1]), "end_line": int(match[2])}
        return Asked("edit", {**lines, "replacement_text": body})
    name = re.match(r"\s*(\w+)(?=\s|$)", text)
    if name is None or (name[1] not in _WORDS and name[1] not in ("edit", "str_replace_editor")):
        return None
    try:
        words = shlex.split(text)[1:]
    except ValueError:
        return None
    if name[1] == "edit":
        return _edit_of_words(words)
    if name[1] == "str_replace_editor":
        return _editor_of_words(words)
    names = _WORDS[name[1]]
    if len(words) > len(names) or (words and set(words) & {"|", "&&", ";", ">"}):
        return None
    given = {key: _valued(key, word) for key, word in zip(names, words, strict=False)}
    return Asked(name[1], given)


def _edit_of_words(words: Sequence[str]) -> Asked | None:
    if len(words) == 1:
        return Asked("edit", {"text": words[0]})
    if len(words) not in (2, 3):
        return None
    match = re.fullmatch(r"(\d+):(\d+)", words[0])
    if match is not None:
        lines = {"start_line": int(match[1]), "end_line": int(match[2])}
        return Asked("edit", {**lines, "replacement_text": words[1]})
    given: Record = {"search": words[0], "replace": words[1]}
    return Asked("edit", given | ({"replace-all": words[2]} if len(words) > 2 else {}))


def _editor_of_words(words: Sequence[str]) -> Asked | None:
    given: Record = {}
    rest = list(words)
    for key in ("command", "path"):
        if rest and not rest[0].startswith("--"):
            given[key] = rest.pop(0)
    while rest:
        flag = rest.pop(0)
        if not flag.startswith("--") or not rest:
            return None
        key = flag[2:]
        if key == "view_range":
            given[key] = [int(word) for word in rest[:2] if re.fullmatch(r"-?\d+", word)]
            del rest[:2]
        else:
            given[key] = _valued(key, rest.pop(0))
    name = spoken("str_replace_editor", given, TOOLS)
    return Asked(name, given) if name in TOOLS else None


def _valued(key: str, word: str) -> Any:
    return int(word) if key in _NUMBERS and re.fullmatch(r"\d{1,15}", word) else word


# --- Results --------------------------------------------------------------------------------


def plain(text: str) -> str:
    """The text without the carriage returns that a terminal adds."""
    return text.replace("\r\n", "\n")


def windows_of(text: str) -> list[Window]:
    """The windows of files in an observation."""
    found = []
    heads = [*_HEAD.finditer(text)]
    for place, head in enumerate(heads):
        end = heads[place + 1].start() if place + 1 < len(heads) else len(text)
        numbered: list[tuple[int, str]] = []
        more = False
        for line in text[head.end() + 1 : end].split("\n"):
            match = _LINE.fullmatch(line)
            if match is not None and (not numbered or int(match[1]) == numbered[-1][0] + 1):
                numbered.append((int(match[1]), match[2]))
            elif _MORE.fullmatch(line.strip()):
                more = True
            elif numbered or line.strip():
                break
        total = int(head[2])
        first = numbered[0][0] if numbered else 0
        whole = not more and len(numbered) == total and first in (0, 1)
        lines = tuple(line for _, line in numbered)
        found.append(Window(head[1], total, first, lines, whole))
    return found


def result_of(
    asked: Asked, text: str, cwd: str, window: Window | None
) -> tuple[Result, Window | None]:
    """What came back, and the window that the editor shows then; `window` is the one before."""
    shown = windows_of(text)
    newest = shown[-1] if shown else None
    newest = newest._replace(path=normalised(cwd, newest.path)) if newest else None
    action = TOOLS[asked.name].action if asked.name in TOOLS else Action.OTHER
    if _UNRUN.match(text):
        return Result(text, failed=True, refused=True), window
    if action is Action.RUN:
        return _ran(asked, text), window
    if action is not Action.SUBMIT and _is_refusal(text[:4000]):
        return Result(text, failed=True), newest or window
    operations = _operations(asked, cwd, window, newest)
    reads = _reads(newest) if action is Action.READ and newest else ()
    return Result(text, operations=operations, reads=reads), newest or window


def _is_refusal(text: str) -> bool:
    return any(words in text for words in _NOT_DONE) or _REFUSING.search(text) is not None


def _ran(asked: Asked, text: str) -> Result:
    if _TIMED_OUT.match(text):
        return Result(text, failed=True, stdout=text, termination="timeout")
    script = text_of(asked.arguments.get("command"))
    failed = False
    if programs.is_test_command(script):
        # There are no exit codes; the runner tells whether tests failed.
        log = testlogs.parse(text)
        failed = log is not None and bool(log.failures)
    return Result(text, failed=failed, stdout=text)


def _reads(window: Window) -> list[Data]:
    read: Data = {"file_path": window.path, "kind": "read"}
    if window.whole and window.lines:
        # Whether the last line is complete is not shown; it nearly always is.
        content = "\n".join(window.lines) + "\n"
        read["object_id"] = blob_id(content.encode("utf-8", "surrogatepass"))
    elif window.lines:
        read |= {"first_line": window.first, "last_line": window.last}
    return [read]


def _operations(asked: Asked, cwd: str, window: Window | None, newest: Window | None) -> list[Data]:
    tool = TOOLS.get(asked.name)
    if tool is None or tool.action not in (Action.EDIT, Action.WRITE):
        return []
    path = asked.arguments.get(tool.path)
    if not isinstance(path, str) or not path:
        return []
    path = normalised(cwd, path) if cwd else path
    if tool.action is Action.WRITE:
        content = asked.arguments.get(tool.content) if tool.content else None
        if not tool.content:
            # The editor makes an empty file, or one with an empty line.
            content = "\n" if newest is not None and newest.lines else ""
        return [operation(path, OperationType.CREATE, content_after=text_of(content))]
    seen = window if window is not None and window.path == path and window.lines else None
    edit = _editor_edit(asked) if " " in asked.name else _edit(asked, seen)
    edits = {} if edit is None else {"edits": [edit]}
    return [operation(path, OperationType.EDIT, **edits)]


def _edit(asked: Asked, seen: Window | None) -> Record | None:
    given = asked.arguments
    if asked.name == "insert":
        text, line = given.get("text"), given.get("line")
        if not isinstance(text, str):
            return None
        after = line if isinstance(line, int) and not isinstance(line, bool) else BEHIND - 1
        return {"first": after + 1, "last": after, "new": text.removesuffix("\n")}
    if isinstance(given.get("start_line"), int) and isinstance(given.get("end_line"), int):
        text = text_of(given.get("replacement_text"))
        lines = {"first": given["start_line"], "last": given["end_line"]}
        return {**lines, "new": text.removesuffix("\n") if text else None}
    if isinstance(given.get("search"), str):
        edit: Record = {"old": given["search"], "new": text_of(given.get("replace"))}
        if given.get("replace-all") not in (None, False, "", "False", "false"):
            return edit | {"all": True}
        # It replaces what is shown, and there is one such text in it.
        return edit | ({"first": seen.first, "last": seen.last} if seen else {})
    if isinstance(given.get("text"), str) and seen is not None:
        return {"first": seen.first, "last": seen.last, "new": given["text"] or None}
    return None


def _editor_edit(asked: Asked) -> Record | None:
    """A change by the editor that works on any file. It writes tabs as blanks everywhere."""
    given = asked.arguments
    new = text_of(given.get("new_str")).expandtabs()
    if isinstance(given.get("old_str"), str):
        return {"old": given["old_str"].expandtabs(), "new": new, "expand_tabs": True}
    line = given.get("insert_line")
    if isinstance(line, int) and "new_str" in given:
        return {"first": line + 1, "last": line, "new": new, "expand_tabs": True}
    return None
