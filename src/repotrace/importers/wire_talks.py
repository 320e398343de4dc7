"""Which conversation a request belongs to: told by the ids in it, for its bytes are not those of
the request before, even where it goes on with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from repotrace.importers.values import text_of
from repotrace.importers.wire_answers import Answer
from repotrace.importers.wire_requests import Ask

type Record = dict[str, Any]


@dataclass(slots=True)
class Turn:
    """One request of a conversation, with the times that it was sent."""

    key: str
    step_id: str
    time: int
    ask: Ask
    attempts: int = 1
    problem: str | None = None
    """Why the last attempt failed."""
    partial: Answer | None = None
    """What came of it before."""
    seconds: float | None = None
    """How long the last attempt took."""
    answered: bool = False
    calls: list[str] = field(default_factory=list)
    """Ids of the calls that the answer asked for."""
    changing: list[str] = field(default_factory=list)
    """Steps of those that may change files; the turn's own, if the answer itself holds changes."""

    @property
    def failed(self) -> bool:
        return self.problem is not None and not self.answered


@dataclass(slots=True)
class Talk:
    """A conversation with a model."""

    name: str
    session: str = ""
    thread: str = ""
    is_side: bool = False
    """Not the work itself: a title, a router, a message for a commit."""
    parent_step: str = ""
    """The call of a tool that started it, if it is a sub-agent's."""
    has_tools: bool = False
    turns: int = 0
    """Turns that were answered."""
    turn: Turn | None = None
    """The newest."""
    asked: int = 0
    has_task: bool = False
    """The run was told what a person wants."""
    shown: tuple[str, list[Record]] | None = None
    """The model call that was told of last, and the messages that it was shown."""
    messages: list[Record] = field(default_factory=list)
    """Of the newest request, and its answer once there is one."""
    response_id: str = ""
    newest: int = 0
    """Says which conversation went on last."""
    told_prompts: set[str] = field(default_factory=set)
    """Digests of what the user said."""
    _by_id: dict[str, int] = field(default_factory=dict)
    _by_text: dict[str, int] = field(default_factory=dict)

    def answered(self, answer: Answer) -> None:
        """Remember what tells this conversation from others."""
        self.turns += 1
        for call in answer.calls:
            if call.id and not call.id.startswith("#"):
                self._by_id[call.id] = self.turns
        if answer.text.strip():
            self._by_text[_digest(answer.text)] = self.turns
        self.response_id = answer.id or self.response_id

    def matches(self, ask: Ask) -> tuple[int, int]:
        """How well a request fits: the newest answer of ours in it, and how many there are."""
        newest = count = 0
        for message in ask.messages:
            if message["role"] != "assistant":
                continue
            places = [self._by_id.get(name, 0) for name in call_ids(message)]
            if not places:
                places = [self._by_text.get(_digest(words_of(message)), 0)]
            found = max(places)
            newest, count = max(newest, found), count + (found > 0)
        return newest, count

    def is_repeated(self, ask: Ask) -> bool:
        """Whether this is the request that has just failed, once more."""
        turn = self.turn
        return turn is not None and turn.failed and is_same(turn.ask, ask)


def is_same(one: Ask, other: Ask) -> bool:
    """Whether two requests ask the same. Marks for caches may have moved between their messages."""
    if len(one.messages) != len(other.messages) or one.api != other.api:
        return False
    return one.messages[-1:] == other.messages[-1:] and one.messages[:1] == other.messages[:1]


def call_ids(message: Record) -> list[str]:
    """The ids of the calls in a message that providers gave."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    ids = [text_of(part.get("id")) for part in parts if part.get("type") == "tool_call"]
    return [name for name in ids if name and not name.startswith("#")]


def words_of(message: Record) -> str:
    """What a message says."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n\n".join(p["text"] for p in content or () if p.get("type") == "text" and p["text"])


def belonging(talks: Iterable[Talk], ask: Ask) -> tuple[Talk | None, bool]:
    """The conversation that a request goes on with, and whether it repeats one that failed."""
    known = sorted(talks, key=lambda talk: talk.newest, reverse=True)
    for talk in known:
        if talk.is_repeated(ask) and (not ask.session or ask.session == talk.session):
            return talk, True
    if ask.thread:
        for talk in known:
            if talk.thread == ask.thread and bool(ask.tools) == talk.has_tools:
                return talk, False
    if ask.previous:
        found = next((talk for talk in known if talk.response_id == ask.previous), None)
        if found is not None:
            return found, False
    best: tuple[bool, int, int] = (False, 0, 0)
    chosen = None
    for talk in known:
        if ask.session and talk.session and ask.session != talk.session:
            continue
        newest, count = talk.matches(ask)
        fit = (newest == talk.turns, count, talk.newest)
        if count and fit > best:
            best, chosen = fit, talk
    return chosen, False


def kept(before: list[Record], after: list[Record]) -> int:
    """How many messages two lists begin with that are the same."""
    count = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        count += 1
    return count


def _digest(text: str) -> str:
    return hashlib.sha256(" ".join(text.split()).encode("utf-8", "surrogatepass")).hexdigest()


def said(ask: Ask) -> list[str]:
    """What a user said since the last answer, without what agents add to it by themselves."""
    found: list[str] = []
    for message in reversed(ask.messages):
        if message["role"] == "assistant":
            break
        if message["role"] != "user":
            continue
        texts = [text_of(part.get("text")) for part in message["content"]]
        found += [text for text in reversed(texts) if text.strip() and not _is_added(text)]
    return found[::-1]


_ADDED = (
    *("<system-reminder>", "<environment_context>", "<user_instructions>", "# AGENTS.md"),
    *("<session_context>", "<permissions", "<EXTRA_INFO>", "<hook_context>", "[elided:"),
    *("<INSTRUCTIONS>", "<turn_aborted>", "<skills_instructions>", "<recommended_"),
)


def _is_added(text: str) -> bool:
    return text.lstrip().startswith(_ADDED)


def digest_of(value: Any) -> str:
    """A name for a value that is JSON."""
    return _digest(json.dumps(value, sort_keys=True, default=str))
