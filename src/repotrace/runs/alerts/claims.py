"""When somebody says that the tests pass: the patterns, and what takes such words back.

A sentence counts if it matches one of `CLAIMS` and nothing of `HEDGES` stands in it before the
match: "all tests pass" is a claim, "make sure that all tests pass" and "once the tests pass" are
not. `docs/alerts.md` publishes both lists.
"""

from __future__ import annotations

import re

_TESTS = r"(?:unit |integration |regression |existing |new |remaining |other |relevant )*tests?"

_PASS = r"(?:pass(?:ed|es|ing)?|green|succeed(?:ed|s)?)"
_ARE = r"(?:(?:is|are|have|has|do|does|now|all|again|still|successfully) )*"

CLAIMS = (
    # all tests pass, the tests are now passing, every test is green, both tests have passed
    r"\b(?:all|every|the|both|these|those|our|\d+)\b[^.!?\n]{0,30}?"
    rf"\b{_TESTS}(?: suites?| cases?)? {_ARE}{_PASS}\b",
    # tests pass, tests now pass
    rf"^\W*{_TESTS} {_ARE}{_PASS}\b",
    # the test suite passes, the suite is green, the suite runs clean
    r"\b(?:test )?suite (?:(?:is|has|now|runs) )*(?:pass(?:ed|es|ing)?|green|clean(?:ly)?)\b",
    # 12 passed, 12/12 tests passing, 12 tests pass
    r"\b\d+(?: ?(?:/|of|out of) ?\d+)?(?: tests?)? (?:now )?pass(?:ed|es|ing)?\b",
    # everything passes, everything is green
    r"\beverything (?:is |now )*(?:pass(?:es|ed|ing)?|green)\b",
    # pytest passes, npm test is green
    r"\b(?:pytest|unittest|tox|npm test|go test|cargo test) (?:now |run )*"
    r"(?:pass(?:es|ed)|is green)\b",
)

HEDGES = (
    r"\b(?:if|once|when|whenever|until|unless|whether|before|so that|in order|as soon as)\b",
    r"\b(?:should|would|could|will|shall|might|may|must|needs? to|have to|has to|going to)\b",
    r"\b(?:make|making|made) sure\b|\b(?:ensure|verify|check|expect|want|hope|try|see that)\b",
    r"(?<!can )\bconfirm\b",
    r"\b(?:not|never|none|cannot|without|instead of|no tests?)\b|n['\u2019]t\b",
    r"\b(?:let me|let['\u2019]s|let us|i['\u2019]ll|please|to (?:get|have|let|make))\b",
)

_CLAIM = re.compile("|".join(f"(?:{pattern})" for pattern in CLAIMS), re.IGNORECASE | re.MULTILINE)
_HEDGE = re.compile("|".join(HEDGES), re.IGNORECASE)
_FAILED = re.compile(r"\b[1-9]\d* (?:failed|failing|errors?|failures?)\b", re.IGNORECASE)
_BUT = re.compile(r"\b(?:but|except|apart from|however|although)\b", re.IGNORECASE)
_SENTENCE = re.compile(r"[^.!?\n]+(?:\.(?=\S)[^.!?\n]*)*[.!?]?")
_CODE = re.compile(r"```.*?(?:```|\Z)|^(?: {4}|\t|>).*$", re.DOTALL | re.MULTILINE)


def claim_in(text: str) -> str | None:
    """The last sentence of `text` that says that the tests pass; None if none does.

    Code blocks and quotations say nothing.
    """
    found = None
    for sentence in _SENTENCE.findall(_CODE.sub("\n", text)):
        words = " ".join(sentence.replace("*", "").replace("`", "").replace("_", " ").split())
        if _is_claim(words):
            found = words
    return found


def _is_claim(sentence: str) -> bool:
    match = _CLAIM.search(sentence)
    if match is None or sentence.endswith("?") or _FAILED.search(sentence):
        return False
    if _BUT.search(sentence, match.end()):
        return False
    return _HEDGE.search(sentence, 0, match.end()) is None
