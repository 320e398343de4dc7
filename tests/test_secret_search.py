"""The quick look at texts: whatever it passes, the thorough search would have passed."""

from __future__ import annotations

import json
import re
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_redact import CARRIERS, IN_CONTEXT, INNOCENT, PROVIDERS, lower, mixed, private_key

from repotrace import secret_rules as rules
from repotrace.redact import WINDOW, Redactor
from repotrace.secret_forms import encode, forms_of
from repotrace.secret_search import QuickLook

KEY = b"k" * 32
VARIABLES = {
    "A_TOKEN": mixed(14, 4),
    "B_SECRET": "p/W+7&x=Kq?z9Tr4",
    "C_PASSWORD": "two\nlines 12",
    "D_API_KEY": "é¿ü" * 4 + "8#",
    "E_TOKEN": "!!##$$%%&&((77",
    "F_TOKEN": mixed(40, 2),
}


def experienced(**more: Any) -> Redactor:
    """A redactor that has seen enough texts to look quickly at the next ones."""
    redactor = Redactor(key=KEY, **more)
    for number in range(100):
        redactor.redact(f"text {number}")
    return redactor


PLAIN = experienced()
KNOWING = experienced(variables=VARIABLES, allow=["npm-token", mixed(24)])


def both_say_the_same(text: str) -> None:
    data = encode(text)
    for redactor in (PLAIN, KNOWING):
        assert encode(redactor.redact(text)) == redactor.redact_bytes(data)[0], text


LITERALS = sorted({literal for rule in rules.PROVIDERS for literal in rule[1].split()})
FORMS = sorted(form.decode("latin-1") for value in VARIABLES.values() for form in forms_of(value))
ESCAPES = ["\\n", "\\x1b[31m", "\x1b[1;31m", "\x1b[0K", "[0;1m", "%0A", "%3D", "\\u001b", "\\\\t"]
VOCABULARY = st.one_of(
    st.sampled_from(LITERALS),
    st.sampled_from([*rules.ASSIGNED, "DB_PASSWORD", "apiKey", "client_secret", "Cookie", "a: "]),
    st.sampled_from(LITERALS).map(str.swapcase),
    st.builds(mixed, st.integers(1, 64), st.integers(0, 31)),
    st.builds(lower, st.integers(8, 64)),
    st.sampled_from(["=", ": ", ' = "', '": "', "'", '"', ",", ";", "--", "-u ", " ", "@", "\n"]),
    st.sampled_from(["https://", "ada:", "example.org", "/", ".", "-", "_", "[", "]", "(", "x1"]),
    st.sampled_from(ESCAPES),
    st.sampled_from(["[REDACTED:npm-token:0123abcd]", "[REDACTED:", "xxxx", "example", "é", "İK"]),
    st.sampled_from([*FORMS, *(form[:-1] for form in FORMS), *(form[1:] for form in FORMS)]),
    st.sampled_from(["token_of_this_session", "TestAuthentication", "the", "1234567890"]),
    st.text(max_size=3),
)


@given(st.lists(VOCABULARY, max_size=12).map("".join))
@settings(max_examples=600, deadline=None)
def test_texts_of_the_words_of_the_rules(text: str) -> None:
    both_say_the_same(text)


def test_a_value_that_ends_at_a_mask() -> None:
    text = "password=hunter2hunter2[REDACTED:jwt:0123abcd]"
    assert "hunter2" not in PLAIN.redact(text)
    both_say_the_same(text)


def test_a_token_at_the_start_of_a_piece() -> None:
    """A long line is masked in pieces; where one begins, a token may."""
    token = PROVIDERS["github-classic"]
    text = "x" * (WINDOW - 8192) + token + " y" * 8192
    assert token not in PLAIN.redact(text)
    both_say_the_same(text)


def simple(source: str) -> str:
    """The pattern without what Hypothesis can't make examples of: possessive, looking ahead."""
    return re.sub(r"\(\?[=!][^()]*\)", "", re.sub(r"([}+*])\+", r"\1", source))


@pytest.mark.parametrize("rule", rules.PROVIDERS, ids=lambda rule: rule[0])
def test_texts_that_a_rule_matches(rule: tuple[str, str, str]) -> None:
    flags = re.IGNORECASE if rule in rules.FOLDED else re.NOFLAG
    before = st.one_of(st.sampled_from(["", " ", "a", "123456789", "é", "\n", "\\"]), VOCABULARY)

    @given(before, st.from_regex(re.compile(simple(rule[2]), flags | re.ASCII)), VOCABULARY)
    @settings(max_examples=25, deadline=None)
    def check(before: str, match: str, after: str) -> None:
        both_say_the_same(before + match + after)

    check()


@pytest.mark.parametrize("carrier", CARRIERS)
def test_tokens_and_look_alikes_in_all_places(carrier: str) -> None:
    secrets = [before + secret for before, secret in IN_CONTEXT]
    for text in (*PROVIDERS.values(), *secrets, *INNOCENT, *FORMS, private_key(4)):
        both_say_the_same(CARRIERS[carrier](text))
        both_say_the_same(json.dumps({"input": text, "name": "write-patch"}))


def pages(folder: Path) -> list[str]:
    text = "".join(
        path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.py"))
    )
    return [text[at : at + 600] for at in range(0, len(text), 600)]


def test_most_pages_of_code_need_no_other_look() -> None:
    """Otherwise it would be right by leaving everything to the thorough search."""
    quick = QuickLook(())
    found = [quick.suspects(page.encode()) for page in pages(Path(sysconfig.get_paths()["stdlib"]))]
    assert len(found) > 3000
    assert sum(suspects == [] for suspects in found) > 0.8 * len(found)


def test_pages_of_code() -> None:
    for page in pages(Path(sysconfig.get_paths()["stdlib"]))[::5]:
        both_say_the_same(page)


def test_real_transcripts_and_failures() -> None:
    folder = Path(__file__).parents[2] / "shared"
    paths = [path for path in folder.glob("*/*/**/*.[tjm]*") if path.is_file()]
    if not paths:
        pytest.skip("the real samples are not beside this checkout")
    for path in sorted(paths):
        text = path.read_text(encoding="utf-8", errors="replace")[:200_000]
        for at in range(0, len(text), 2000):
            both_say_the_same(text[at : at + 2000])
