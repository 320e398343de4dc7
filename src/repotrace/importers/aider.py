"""The history of chats that Aider keeps: `.aider.chat.history.md`. Each chat in it is a run.

Of times only the start of a chat is told, by the clock on the wall where Aider ran; the time zone
is taken to be the present one. Steps follow each other from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice
from pathlib import Path

from repotrace.agents.aider import AGENT
from repotrace.errors import ImportFailed
from repotrace.importers.aider_chats import RUNNING, START, TOKENS, Block, blocks_of, chats
from repotrace.importers.aider_edits import Edit, edits_of, prose
from repotrace.importers.building import Builder, Data, Events, Result, Thread, operation
from repotrace.importers.lines import Damage, Progress, ignore
from repotrace.records.run import OperationType, RunStatus

NAME = "aider"

_TICK = 1_000_000
"""Nanoseconds between steps, whose moments are not known."""
_MODEL = re.compile(r"(?:Main m|M)odels?: (\S+?),? with (?:\S+ thinking[^,]*, )?(\S+) edit format")
_EDITOR = re.compile(r"Editor model: (\S+) with (\S+) edit format")
_ADDED = re.compile(r"Added (.+) to (?:the chat|read-only files)\.?")
_ASKED_TO_ADD = re.compile(r"Add (?:file|these files) to the chat\?(?:.*:)? [yaYA](?:es|ll)?")
_COMMIT = re.compile(r"Commit ([0-9a-f]{6,40}) (.*)")
_UNDONE = re.compile(r"(?:Removed: |(?:The above c|C)ommit )([0-9a-f]{6,40})(?: .*|$)")
_APPLIED = "Applied edit to "
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


_TELLING = re.compile(
    r"Add|Edit |Commit |Removed: |The above |Running |## Running: |Retrying |Tokens: |Applied "
    r"|You can |Main |Model|Editor |.* --test-cmd |.*(?:litellm\.|Error: |Exception: )"
)
"""Whatever `_told` looks at more closely; most lines are none of these."""


def sniff(head: bytes, path: Path) -> bool:
    """Whether a chat begins there."""
    del path
    return any(START.fullmatch(line) for line in head.split(b"\n")[:200])


def read(path: Path, *, progress: Progress = ignore) -> Events:
    """The events of all chats in which anything was asked or answered."""
    cwd = str(path.resolve().parent) if path.name.startswith(".aider") else ""
    seen: dict[str, int] = {}
    found = False
    for started, lines, left in chats(path, progress):
        blocks = blocks_of(lines)
        name = f"{started} {next((line for line in lines if line.startswith('>')), '')}"
        seen[name] = seen.get(name, 0) + 1
        found = True
        if any(block.kind != "tool" for block in blocks):
            digest = sha256(f"{name}\0{seen[name]}".encode()).hexdigest()[:24]
            chat = _Chat(digest, _moment(started), cwd, blocks)
            chat.damage.broken = left
            yield from chat.events()
    if not found:
        raise ImportFailed(f"{path} holds no chat of Aider.")


def _moment(started: str) -> int:
    try:
        return int(datetime.fromisoformat(started).astimezone(UTC).timestamp()) * 10**9
    except (ValueError, OverflowError, OSError):
        return 0


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

    @property
    def damage(self) -> Damage:
        """What is left out of the chat."""
        return self._builder.damage

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
        tokens = next((match for line in told if (match := TOKENS.match(line))), None)
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
        applied = list(_applied(told))
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
        self._done.append((next(_commits(told), ""), undo))
        return found

    # --- Aider itself -----------------------------------------------------------------------

    def _told(self, lines: list[str]) -> Events:
        builder = self._builder
        rest: list[str] = []
        edited = list(_applied(lines))
        has_output = any(_OUTPUT.fullmatch(line) for line in lines)
        linted = next(islice(_commits(lines), 1, 2), None)
        for place, line in enumerate(lines):
            if not _TELLING.match(line):
                rest.append(line)
                continue
            self._announced(line)
            if line.startswith("Retrying in "):
                self._attempts += 1
            if (match := _ADDED.fullmatch(line)) and not _OUTPUT.fullmatch(line):
                yield from self._added(match[1])
            elif _ASKED_TO_ADD.fullmatch(line.rstrip()):
                for path in _named(lines, place):
                    yield from self._added(path)
            elif line.startswith("Edit the files?"):
                self._editing = line.rstrip().lower().endswith("y")
            elif match := _COMMIT.match(line):
                yield builder.log(self._key("commit"), self._tick(), "info", line)
                if match[1] == linted and edited:
                    yield from self._linted(match[1], list(dict.fromkeys(edited)))
                    linted = None
            elif (match := _UNDONE.match(line)) and self._last.startswith("/undo"):
                yield from self._undone(match[1], line)
            elif line.startswith("Running ") and has_output:
                yield from self._ran("run", line.removeprefix("Running ").strip(), Result())
            elif line.startswith("## Running: "):
                yield from self._lint_failed(lines, place)
            elif _ERROR.match(line):
                yield builder.log(self._key("error"), self._tick(), "error", line)
            elif not _NOISE.match(line):
                rest.append(line)
        if self._last.startswith(RUNNING):
            rest.clear()
            yield from self._commanded(self._last, lines)
        elif has_output and edited and self._test_command:
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

    def _lint_failed(self, lines: list[str], place: int) -> Events:
        command = lines[place].removeprefix("## Running: ").strip()
        end = place + 1
        while end < len(lines) and not lines[end].startswith("## Running: "):
            end += 1
        told = "\n".join(lines[place + 1 : end])
        yield from self._ran("lint", command, Result(told, failed=True))

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


def _applied(told: Sequence[str]) -> Iterator[str]:
    """The paths that were changed."""
    return (line.removeprefix(_APPLIED).strip() for line in told if line.startswith(_APPLIED))


def _commits(told: Sequence[str]) -> Iterator[str]:
    """The commits behind a change; what a person had changed is committed before it."""
    edited = False
    for line in told:
        edited = edited or line.startswith(_APPLIED) or bool(_UNFITTING.match(line))
        match = _COMMIT.match(line) if edited else None
        if match is not None:
            yield match[1]


def _base(told: Sequence[str]) -> str | None:
    """The commit before the first change that was committed."""
    first = next(_commits(told), None)
    return None if first is None else f"{first}^"


def _named(lines: Sequence[str], place: int) -> list[str]:
    """The paths that a question asks about, which stand before it."""
    begin = place
    while begin and lines[begin - 1].strip() and " " not in lines[begin - 1].strip():
        begin -= 1
    return [line.strip() for line in lines[begin:place]]


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
