"""The history of chats that Aider keeps: `.aider.chat.history.md`. Each chat in it is a run.

Of times only the start of a chat is told, by the clock on the wall where Aider ran; the time zone
is taken to be the present one. Steps follow each other from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from repotrace.agents.aider import AGENT
from repotrace.errors import ImportFailed
from repotrace.importers.aider_edits import Edit, edits_of, prose
from repotrace.importers.building import Builder, Data, Events, Result, Thread, operation
from repotrace.importers.lines import LINE_LIMIT, Progress, ignore, opened
from repotrace.records.run import OperationType, RunStatus

NAME = "aider"

_START = re.compile(rb"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
_TICK = 1_000_000
"""Nanoseconds between steps, whose moments are not known."""
_LONGEST_QUOTE = 5_000
"""Lines of an output that Aider quoted as one text, so that only the first is marked."""
_CHAT_LIMIT = LINE_LIMIT
"""Bytes of a chat above which the rest of it is left out."""

_TOKENS = re.compile(
    r"Tokens: (?P<sent>[\d.,kM]+) sent"
    r"(?:, (?P<write>[\d.,kM]+) cache write)?(?:, (?P<hit>[\d.,kM]+) cache hit)?"
    r"(?:, (?P<received>[\d.,kM]+) received)?\.?"
    r"(?: Cost: \$(?P<cost>[\d.,]+) (?:message|request|send))?"
)
_MODEL = re.compile(r"(?:Main m|M)odels?: (\S+?),? with (?:\S+ thinking[^,]*, )?(\S+) edit format")
_EDITOR = re.compile(r"Editor model: (\S+) with (\S+) edit format")
_ADDED = re.compile(r"Added (.+) to (?:the chat|read-only files)\.?")
_ASKED_TO_ADD = re.compile(r"Add (?:file|these files) to the chat\?(?:.*:)? [yaYA](?:es|ll)?")
_COMMIT = re.compile(r"Commit ([0-9a-f]{6,40}) (.*)")
_UNDONE = re.compile(r"(?:Removed: |(?:The above c|C)ommit )([0-9a-f]{6,40})(?: .*|$)")
_APPLIED = re.compile(r"Applied edit to (.+)")
_CREATED = re.compile(r"(?:Create new file\?|Allow creation of new file).*\b[yaYA](?:es|ll)?$")
_UNFITTING = re.compile(
    r"#* ?(?:SearchReplaceNoExactMatch: )?This SEARCH block failed to exactly match lines in (.+)"
)
_NOISE = re.compile(
    r"You can use /undo|Tokens: |Applied edit to "
    r"|Add [\d.,]+k? tokens of command output to the chat\?"
)
_OUTPUT = re.compile(r"Added \d+ lines? of output to the chat\.?")
_ERROR = re.compile(r"(?:\w+ )*(?:error: )?litellm\.\w+|\w+(?:Error|Exception): ", re.IGNORECASE)


_RUNNING = ("/run ", "/test", "/git ", "!")
"""What the user says to have something run."""


class Block(NamedTuple):
    """A part of a chat."""

    kind: str
    """user, tool or text."""
    lines: list[str]

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines).strip("\n")


def sniff(head: bytes, path: Path) -> bool:
    """Whether a chat begins there."""
    del path
    return any(_START.fullmatch(line) for line in head.split(b"\n")[:200])


def read(path: Path, *, progress: Progress = ignore) -> Events:
    """The events of all chats in which anything was asked or answered."""
    cwd = str(path.resolve().parent) if path.name.startswith(".aider") else ""
    seen: dict[str, int] = {}
    found = False
    for started, lines in _chats(path, progress):
        blocks = list(_joined(list(_blocks(lines))))
        name = f"{started} {next((line for line in lines if line.startswith('>')), '')}"
        seen[name] = seen.get(name, 0) + 1
        found = True
        if any(block.kind != "tool" for block in blocks):
            digest = sha256(f"{name}\0{seen[name]}".encode()).hexdigest()[:24]
            yield from _Chat(digest, _moment(started), cwd, blocks).events()
    if not found:
        raise ImportFailed(f"{path} holds no chat of Aider.")


def _chats(path: Path, progress: Progress) -> Iterator[tuple[str, list[str]]]:
    """When each chat started, and its lines."""
    started: str | None = None
    lines: list[str] = []
    size = 0
    with opened(path) as stream:
        try:
            while raw := stream.readline(LINE_LIMIT):
                progress(len(raw))
                match = _START.fullmatch(raw)
                if match is not None:
                    if started is not None:
                        yield started, lines
                    started, lines, size = match[1].decode(), [], 0
                elif size < _CHAT_LIMIT:
                    size += len(raw)
                    lines.append(raw.decode(errors="replace").removesuffix("\n"))
        except (OSError, EOFError, ValueError) as error:
            raise ImportFailed(f"{path} cannot be read further: {error}.") from error
    if started is not None:
        yield started, lines


def _moment(started: str) -> int:
    try:
        return int(datetime.fromisoformat(started).astimezone(UTC).timestamp()) * 10**9
    except (ValueError, OverflowError, OSError):
        return 0


def _blocks(lines: Sequence[str]) -> Iterator[Block]:
    """The parts of a chat. Whatever is marked neither as the user's nor as Aider's own is the
    model's."""
    block: Block | None = None
    at = 0
    while at < len(lines):
        kind, shown = _kind(lines, at, block)
        length = _quoted(lines, at) if kind == "tool" and not lines[at].endswith("  ") else 1
        if not (kind == "text" and not shown.strip() and (block is None or block.kind != "text")):
            if block is None or block.kind != kind:
                if block is not None:
                    yield block
                block = Block(kind, [])
            block.lines.append(shown)
            block.lines.extend(line.rstrip() for line in lines[at + 1 : at + length])
        at += length
    if block is not None:
        yield block


def _joined(blocks: Sequence[Block]) -> Iterator[Block]:
    """The blocks, the output of each command of the user as one of Aider's own."""
    output: Block | None = None
    for place, block in enumerate(blocks):
        following = blocks[place + 1].lines if place + 1 < len(blocks) else []
        is_answer = block.kind == "text" and any(_TOKENS.match(line) for line in following)
        if output is not None and block.kind != "user" and not is_answer:
            output.lines.extend(block.lines)
            continue
        if output is not None and output.lines:
            yield output
        runs = block.kind == "user" and block.text.startswith(_RUNNING)
        output = Block("tool", []) if runs else None
        yield block
    if output is not None and output.lines:
        yield output


def _kind(lines: Sequence[str], at: int, block: Block | None) -> tuple[str, str]:
    """What a line belongs to, and the line without its mark."""
    line = lines[at]
    marked = line.endswith("  ")
    if line.startswith("####") and marked:
        return "user", line[4:].strip()
    if line.startswith(">") and (marked or line == ">"):
        return "tool", line[1:].rstrip().removeprefix(" ")
    # The mark may be missing where Aider wrote several lines as one; a model quotes as well.
    if line.startswith("> ") and (block is None or block.kind != "text") and _quoted(lines, at) > 1:
        return "tool", line[2:].rstrip()
    return "text", line


def _quoted(lines: Sequence[str], at: int) -> int:
    """How many lines belong to a text that Aider quoted as one; they end with a marked one."""
    for place in range(at + 1, min(len(lines), at + _LONGEST_QUOTE)):
        if lines[place].startswith(("#### ", "> ")) and lines[place].endswith("  "):
            return place - at
        if lines[place].endswith("  "):
            return place - at + 1
    return 1


class _Chat:
    def __init__(self, name: str, started: int, cwd: str, blocks: list[Block]) -> None:
        self._builder = Builder(NAME, name, AGENT, timed=False)
        self._blocks, self._cwd, self._time = blocks, cwd, started
        self._thread = Thread()
        self._model: str | None = None
        self._form = ""
        self._editor: tuple[str, str] | None = None
        self._editing = False
        """The editor's model answers next."""
        self._test_command = ""
        self._attempts = 1
        self._said = ""
        self._count = 0
        self._done: list[tuple[str, list[Data]]] = []
        """Commits of changes, with the way back from each."""
        self._last = ""
        """The command of the user that the next lines answer."""

    def _tick(self) -> int:
        self._time += _TICK
        return self._time

    def _key(self, kind: str) -> str:
        self._count += 1
        return f"{kind} {self._count}"

    def events(self) -> Events:
        builder = self._builder
        told = [line for block in self._blocks if block.kind == "tool" for line in block.lines]
        version = next((line for line in told if line.startswith("Aider v")), "")
        yield builder.started(
            self._time,
            cwd=self._cwd,
            agent_version=version.removeprefix("Aider v").strip() or None,
            base_commit=_base(told),
        )
        for place, block in enumerate(self._blocks):
            if block.kind == "user":
                yield from self._asked(block.text)
            elif block.kind == "text":
                following = self._blocks[place + 1 : place + 2]
                told = following[0].lines if following and following[0].kind == "tool" else []
                yield from self._answered(block.text, told)
            else:
                yield from self._told(block.lines)
        yield from builder.finished(RunStatus.COMPLETED)

    # --- The user ---------------------------------------------------------------------------

    def _asked(self, text: str) -> Events:
        self._last = ""
        command, _, rest = text.partition(" ")
        if command in ("/ask", "/code", "/architect", "/context") and rest.strip():
            text = rest
        elif text.startswith(("/", "!")):
            self._last = text
            return
        text = text.strip()
        if not text or text == self._said:
            return
        self._said = text
        self._thread.say({"role": "user", "content": text})
        yield from self._builder.prompt(self._key("prompt"), self._tick(), text)

    # --- The model --------------------------------------------------------------------------

    def _answered(self, text: str, told: list[str]) -> Events:
        """An answer, with what Aider says about it next."""
        builder = self._builder
        self._last = ""
        text = text.strip()
        tokens = next((match for line in told if (match := _TOKENS.match(line))), None)
        if tokens is None and any(line.startswith("Retrying in ") for line in told):
            yield builder.log(self._key("partial"), self._tick(), "warning", "An answer broke off.")
            return
        key, asked_at = self._key("answer"), self._tick()
        begun = builder.asking(key, asked_at, self._thread)
        model, form = self._model, self._form
        if self._editing and self._editor:
            model, form = self._editor
        self._editing = False
        answer: Data = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        self._thread.say(answer)
        step_id = ""
        edits = self._edits(text, form, told)
        for path, result in edits:
            name = f"{key} {path}"
            time = self._tick()
            yield from builder.call(name, "edit", {"path": path}, time, reason=prose(text))
            step_id = step_id or builder.step_of(name) or ""
            yield from builder.result(name, self._tick(), result)
        if not step_id:
            step_id = builder.step_named(key, asked_at)
            yield from builder.answered(key, asked_at, self._tick(), text)
        cost = tokens["cost"] if tokens else None
        yield builder.asked(
            key,
            asked_at,
            begun,
            step_id=step_id,
            model=model,
            response_message=answer,
            response=text,
            attempts=self._attempts if self._attempts > 1 else None,
            cost_usd=cost.replace(",", "").rstrip(".") or None if cost else None,
            input_tokens=_count(tokens, "sent"),
            output_tokens=_count(tokens, "received"),
            cache_read_tokens=_count(tokens, "hit"),
            cache_write_tokens=_count(tokens, "write"),
        )
        self._attempts = 1

    def _edits(self, text: str, form: str, told: list[str]) -> list[tuple[str, Result]]:
        """The changes that were applied or failed, by path."""
        applied = [match[1].strip() for line in told if (match := _APPLIED.fullmatch(line))]
        failed = _failed(told)
        if not applied and not failed:
            return []
        created = _created(told)
        wanted: dict[str, list[Edit]] = {}
        for edit in edits_of(text, form):
            path = _meant(edit.path, [*applied, *failed])
            wanted.setdefault(path, []).append(edit._replace(path=path))
        undo: list[Data] = []
        found: list[tuple[str, Result]] = []
        for path in dict.fromkeys([*wanted, *applied, *failed]):
            if path not in applied and not failed:
                continue  # nobody wanted it
            misses = failed.get(path, [])
            edits = [edit for edit in wanted.get(path, []) if _bare(edit.old) not in misses]
            operations = []
            for number, edit in enumerate(edits):
                is_new = path in created and not number
                operations.append(edit.operation(created=is_new))
                undo.insert(0, edit.undone(created=is_new))
            if not operations and path in applied:
                operations = [operation(path, OperationType.EDIT)]
            said = "\n".join(line for line in told if path in line) or "Applied."
            found.append((path, Result(said, failed=bool(misses), operations=operations)))
        commit = next((match[1] for line in told if (match := _COMMIT.match(line))), "")
        self._done.append((commit, undo))
        return found

    # --- Aider itself -----------------------------------------------------------------------

    def _told(self, lines: list[str]) -> Events:
        builder = self._builder
        rest: list[str] = []
        edited = [match[1].strip() for line in lines if (match := _APPLIED.fullmatch(line))]
        commits = 0
        for place, line in enumerate(lines):
            self._announced(line)
            if line.startswith("Retrying in "):
                self._attempts += 1
            if (match := _ADDED.fullmatch(line)) and not _OUTPUT.fullmatch(line):
                yield from self._added(match[1])
            elif _ASKED_TO_ADD.fullmatch(line.rstrip()):
                for path in _named(lines[:place]):
                    yield from self._added(path)
            elif line.startswith("Edit the files?"):
                self._editing = line.rstrip().lower().endswith("y")
            elif match := _COMMIT.match(line):
                commits += 1
                yield builder.log(self._key("commit"), self._tick(), "info", line)
                if commits > 1 and edited:
                    yield from self._linted(match[1], edited)
            elif (match := _UNDONE.match(line)) and self._last.startswith("/undo"):
                yield from self._undone(match[1], line)
            elif line.startswith("Running ") and _OUTPUT.search("\n".join(lines[place:])):
                yield from self._ran("run", line.removeprefix("Running ").strip(), Result())
            elif line.startswith("## Running: "):
                yield from self._lint_failed(line.removeprefix("## Running: "), lines[place + 1 :])
            elif _ERROR.match(line):
                yield builder.log(self._key("error"), self._tick(), "error", line)
            elif not _NOISE.match(line):
                rest.append(line)
        if self._last.startswith(_RUNNING):
            rest.clear()
            yield from self._commanded(self._last, lines)
        elif any(_OUTPUT.fullmatch(line) for line in lines) and edited and self._test_command:
            told = "The tests failed; the history does not hold their output."
            yield from self._ran("test", self._test_command, Result(told, failed=True, stdout=""))
        elif edited and self._test_command and not _failed(lines):
            # Aider runs the tests after each change, and says something only if they fail.
            note = {"inferred": "tests run after each change; nothing was said of a failure"}
            yield from self._ran("test", self._test_command, Result(metadata=note))
        if any(line.strip() for line in rest):
            text = "\n".join(rest).strip()
            yield builder.log(self._key("told"), self._tick(), "info", text)

    def _announced(self, line: str) -> None:
        """Takes in what a line says about models and options."""
        if match := _MODEL.match(line):
            self._model, self._form = match[1].rstrip(","), match[2].rstrip(",")
        elif match := _EDITOR.match(line):
            self._editor = match[1], match[2].rstrip(",")
        elif " --test-cmd " in line and " --auto-test" in line:
            # Where the command ends is not told; the next option follows it.
            self._test_command = re.split(r" --", line.split(" --test-cmd ", 1)[1])[0].strip()

    def _added(self, path: str) -> Events:
        name = self._key("add")
        yield from self._builder.call(name, "add", {"path": path}, self._tick())
        yield from self._builder.result(name, self._tick(), Result("Added to the chat."))

    def _ran(self, tool: str, command: str, result: Result) -> Events:
        name = self._key(tool)
        yield from self._builder.call(name, tool, {"command": command}, self._tick())
        yield from self._builder.result(name, self._tick(), result)

    def _commanded(self, said: str, lines: list[str]) -> Events:
        """A command of the user that ran something."""
        command, _, rest = said.partition(" ")
        if said.startswith("!"):
            command, rest = "/run", said[1:]
        if command == "/test":
            rest = rest.strip() or self._test_command
        if command not in ("/run", "/test", "/git") or not rest.strip():
            return
        rest = f"git {rest}" if command == "/git" else rest.strip()
        failed = command == "/test" and any(_OUTPUT.fullmatch(line) for line in lines)
        shown = "\n".join(
            line for line in lines if not (_OUTPUT.fullmatch(line) or _NOISE.match(line))
        )
        tool = "test" if command == "/test" else "run"
        yield from self._ran(tool, rest, Result(shown, failed=failed))

    def _lint_failed(self, command: str, lines: list[str]) -> Events:
        yield from self._ran("lint", command.strip(), Result("\n".join(lines), failed=True))

    def _linted(self, commit: str, paths: list[str]) -> Events:
        """A second commit of one answer holds what the linter changed."""
        self._done.append((commit, [operation(path, OperationType.EDIT) for path in paths]))
        name = self._key("linted")
        yield from self._builder.call(name, "linter", {"commit": commit}, self._tick())
        changes = [operation(path, OperationType.EDIT) for path in paths]
        told = Result("The linter changed files; how is not told.", operations=changes)
        yield from self._builder.result(name, self._tick(), told)

    def _undone(self, commit: str, line: str) -> Events:
        name = self._key("undo")
        yield from self._builder.call(name, "undo", {"commit": commit}, self._tick())
        back: list[Data] = []
        while any(known == commit for known, _ in self._done):
            known, changes = self._done.pop()
            if known == commit:
                back = changes
        yield from self._builder.result(name, self._tick(), Result(line, operations=back))


def _base(told: Sequence[str]) -> str | None:
    """The commit before the first change that was committed."""
    edited = False
    for line in told:
        edited = edited or bool(_APPLIED.fullmatch(line) or _UNFITTING.match(line))
        match = _COMMIT.match(line)
        if edited and match is not None:
            return f"{match[1]}^"
    return None


def _named(lines: Sequence[str]) -> list[str]:
    """The paths that a question asks about, which stand before it."""
    found: list[str] = []
    for line in reversed(lines):
        if not line.strip() or " " in line.strip():
            break
        found.insert(0, line.strip())
    return found


def _failed(told: Sequence[str]) -> dict[str, list[str]]:
    """By path, the lines that were not found in it, without the space in them."""
    found: dict[str, list[str]] = {}
    path = ""
    lines: list[str] | None = None
    for line in told:
        if match := _UNFITTING.match(line):
            path = match[1].strip()
            found.setdefault(path, [])
        elif path and re.fullmatch(r"\s*<{5,9} SEARCH\s*", line):
            lines = []
        elif lines is not None and re.fullmatch(r"\s*={5,9}\s*", line):
            found[path].append(_bare("\n".join(lines)))
            lines = None
        elif lines is not None:
            lines.append(line)
    return found


def _bare(text: str) -> str:
    return "".join(text.split())


def _created(told: Sequence[str]) -> set[str]:
    """Paths that were not there before."""
    found = set()
    for place, line in enumerate(told):
        if not _CREATED.match(line.strip()):
            continue
        match = re.search(r"new file (\S+?)\??(?: |$)", line)
        if match and not line.startswith("Create new file?"):
            found.add(match[1])
        elif place:
            found.add(told[place - 1].strip())
    return found


def _meant(path: str, known: Sequence[str]) -> str:
    """The path that Aider takes a name in an answer for."""
    if path in known:
        return path
    ending = [name for name in dict.fromkeys(known) if name.split("/")[-1] == path.split("/")[-1]]
    return ending[0] if len(ending) == 1 else path


def _count(match: re.Match[str] | None, name: str) -> int | None:
    """A number of tokens; Aider rounds those above a thousand."""
    text = match[name] if match is not None else None
    if not text:
        return None
    factor = {"k": 1000, "M": 1_000_000}.get(text[-1], 1)
    try:
        return round(float(text.rstrip("kM.").replace(",", "")) * factor)
    except (ValueError, OverflowError):
        return None
