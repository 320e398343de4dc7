"""Redaction: planted secrets never survive, innocent look-alikes do.

The fakes are put together at run time, so that no scanner takes this file for a leak.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repotrace.redact import (
    PLACEHOLDER,
    WINDOW,
    RedactingStream,
    Redactor,
    is_secret_name,
    restore,
    strip_digests,
)

KEY = b"k" * 32
LETTERS = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY"


def mixed(length: int, seed: int = 0) -> str:
    """Letters and digits without a pattern, as in a token."""
    text = LETTERS * (length // len(LETTERS) + 2)
    return text[seed : seed + length]


def lower(length: int) -> str:
    return ("9f3c1a7be04d2586" * 8)[:length]


PROVIDERS: dict[str, str] = {
    "github-classic": "gh" + "p_" + mixed(36),
    "github-server": "gh" + "s_" + mixed(36, 3),
    "github-fine": "github" + "_pat_" + mixed(22) + "_" + mixed(59, 2),
    "gitlab": "gl" + "pat-" + mixed(20),
    "openai": "sk" + "-proj-" + mixed(48) + "T3BlbkFJ" + mixed(48, 5),
    "openai-old": "sk" + "-" + mixed(20) + "T3BlbkFJ" + mixed(20, 7),
    "anthropic": "sk" + "-ant-api03-" + mixed(93) + "AA",
    "aws": "AK" + "IA" + "QWERTYUIOP234567",
    "google": "AI" + "za" + mixed(35),
    "slack": "xo" + "xb-" + "123456789012-1234567890123-" + mixed(24),
    "stripe": "sk" + "_live_" + mixed(24),
    "npm": "np" + "m_" + mixed(36),
    "pypi": "py" + "pi-AgEIcHlwaS5vcmc" + mixed(70),
    "hugging-face": "h" + "f_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH",
    "sendgrid": "S" + "G." + mixed(22) + "." + mixed(43),
    "digitalocean": "do" + "p_v1_" + lower(64),
    "github-oauth": "gh" + "o_" + mixed(36, 1),
    "github-user": "gh" + "u_" + mixed(36, 2),
    "github-refresh": "gh" + "r_" + mixed(36, 4),
    "aws-session": "AS" + "IA" + "QWERTYUIOP234567",
    "google-access": "ya" + "29." + mixed(60),
    "slack-app": "xa" + "pp-1-" + mixed(11) + "-1234567890123-" + lower(64),
    "stripe-restricted": "rk" + "_live_" + mixed(24),
    "stripe-test": "sk" + "_test_" + mixed(24),
    "twilio": "S" + "K" + lower(32),
    "telegram": "123456789" + ":A" + "A" + mixed(33),
    "databricks": "da" + "pi" + lower(32),
    "vault": "hv" + "s." + mixed(90),
    "shopify": "sh" + "pat_" + lower(32),
    "mailgun": "ke" + "y-" + lower(32),
    "postman": "PM" + "AK-" + lower(24) + "-" + lower(34),
    "linear": "li" + "n_api_" + mixed(40),
    "sentry": "sn" + "tryu_" + lower(64),
    "jwt": "ey" + "JhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + mixed(43),
}

CARRIERS: dict[str, Callable[[str], str]] = {
    "plain": lambda secret: f"using {secret} now",
    "json": lambda secret: json.dumps({"value": secret}),
    "shell": lambda secret: f"export X='{secret}'\n",
    "python": lambda secret: f"Client(auth={secret!r})",
    "header": lambda secret: f"Authorization: Bearer {secret}\r\n",
    "url": lambda secret: f"https://example.org/?q={secret}&page=2",
    "colour": lambda secret: f"\x1b[31m{secret}\x1b[0m",
    "end of line": lambda secret: f"token is {secret}",
    "arguments": lambda secret: repr(["--with", secret]),
    "JSON in JSON": lambda secret: json.dumps(json.dumps({"value": secret})),
    "escaped line end": lambda secret: repr(f"a\n{secret}\nb"),
    "escaped colour": lambda secret: repr(f"\x1b[1;31m{secret}\x1b[0m"),
    "percent-encoded": lambda secret: f"q%3D{secret}%26z",
    "list": lambda secret: f"{secret},{secret};{secret}",
}


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_tokens_of_providers(provider: str, carrier: str) -> None:
    secret = PROVIDERS[provider]
    text = Redactor(key=KEY).redact(CARRIERS[carrier](secret))
    assert secret not in text
    assert PLACEHOLDER.search(text)


# What stands around the secret, the secret.
IN_CONTEXT = [
    ("https://hooks.sl" + "ack.com/services/", "T0AB1CD2E/B0FG3HI4J/" + mixed(24)),
    ("https://discord.com/api/web" + "hooks/123456789012345678/", mixed(68)),
    ("DefaultEndpointsProtocol=https;Account" + "Key=", mixed(86) + "=="),
    ("https://example.blob.example.net/c?sv=1&s" + "ig=", mixed(43) + "%3D"),
    ("machine example.org login ada password ", mixed(12)),
    ("curl -s -u ada:", mixed(12)),
    ("Cookie: theme=dark; sid=", mixed(32)),
    ("Authorization: token ", mixed(20)),
    ("X-Api-Key: ", mixed(20)),
    ("redis://:", mixed(10) + "@cache.example.org/0"),
]


@pytest.mark.parametrize(("before", "secret"), IN_CONTEXT)
def test_secrets_that_their_context_gives_away(before: str, secret: str) -> None:
    text = Redactor(key=KEY).redact(f"{before}{secret}\nnext line\n")
    assert secret.partition("@")[0] not in text
    assert PLACEHOLDER.search(text)
    assert text.endswith("\nnext line\n")


NAMES = ["password", "DB_PASSWORD", "api_key", "clientSecret", "auth_token", "PGPASSWORD", "secret"]
VALUES = [mixed(16), mixed(32), lower(32), "hunter2hunter2", "Tr0ub4dor&3x", "xK9#mP2$vL5"]
ASSIGNMENTS = [
    "{name}={value}",
    "export {name}='{value}'",
    "  {name}: {value}",
    '{{"a": 1, "{name}": "{value}", "b": 2}}',
    "Client({name}='{value}')",
    "tool --{name} {value} -v",
    "tool --{name}={value}",
    "['tool', '--{name}', '{value}']",
    '"{{\\"{name}\\": \\"{value}\\"}}"',
    "\x1b[36m{name}\x1b[0m=\x1b[32m{value}\x1b[0m",
    "<{name}>{value}</{name}>",
    "(b'{name}', b'{value}')",
]


@pytest.mark.parametrize("form", ASSIGNMENTS)
def test_every_way_to_assign_a_secret(form: str) -> None:
    for name in NAMES:
        for value in VALUES:
            text = Redactor(key=KEY).redact(form.format(name=name, value=value))
            assert value[:6] not in text, text
            assert value[-4:] not in text, text
            assert name in text


def test_a_private_key_over_many_lines() -> None:
    body = "\n".join(mixed(64, n % 8) for n in range(20))
    begin, end = "-----BEGIN " + "RSA PRIVATE KEY-----", "-----END " + "RSA PRIVATE KEY-----"
    text = Redactor(key=KEY).redact(f"before\n{begin}\n{body}\n{end}\nafter\n")
    assert mixed(64, 3) not in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("password=" + mixed(16), mixed(16)),
        ('"api_key": "' + mixed(24) + '"', mixed(24)),
        ("--token " + mixed(20), mixed(20)),
        ("db: postgres://app:" + "Xk29vQ81zz" + "@db.example.org/x", "Xk29vQ81zz"),
        ("client_secret: '" + mixed(30) + "'", mixed(30)),
        ("Authorization: Basic " + base64.b64encode(b"user:" + mixed(12).encode()).decode(), ""),
    ],
)
def test_assigned_secrets(text: str, secret: str) -> None:
    masked = Redactor(key=KEY).redact(text)
    assert PLACEHOLDER.search(masked), masked
    if secret:
        assert secret not in masked


INNOCENT = [
    "commit 5303b4f97c12a0b1c2d3e4f5061728394a5b6c7d",
    "id 123e4567-e89b-12d3-a456-426614174000",
    "sha512-" + base64.b64encode(bytes(range(64))).decode(),
    "--hash=sha256:" + lower(64),
    "tests/test_auth.py::test_token_is_refused[sk-learn-case]",
    "skip-ci sk-learn task-runner risk-assessment-of-the-project",
    "Client(api_key='not-a-real-key')",
    "password=changeme",
    "token = os.environ['TOKEN']",
    "TOKEN=${{ secrets.TOKEN }}",
    "secret: <your-secret-here>",
    "api_key = get_api_key()",
    "KeyError: 'password'",
    "https://example.org/a/b?c=d",
    "git@github.example.org:team/project.git",
    "0x7f3c1a7be04d  0x00005581",
    "ssh-keygen -t ed25519",
    "monkey=banana turkey=goose keyboard=azerty",
    "data:image/png;base64," + base64.b64encode(bytes(range(250))).decode(),
    "max_tokens=4096 tokens: 12345 token_count=77",
    'Traceback (most recent call last):\n  File "/usr/lib/python3.12/secrets.py", line 1\n',
]


INNOCENT += (
    Path(__file__).with_name("data").joinpath("redaction/innocent.txt").read_text().split("\n")
)


@pytest.mark.parametrize("text", INNOCENT)
def test_innocent_look_alikes_stay(text: str) -> None:
    assert Redactor(key=KEY).redact(text) == text


def test_the_standard_library_is_innocent() -> None:
    """Real code, full of words such as password and token: next to nothing may be masked."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    redactor = Redactor(key=KEY)
    size = 0
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        size += len(text)
        redactor.redact(text)
    assert size > 2_000_000
    assert redactor.count <= 3


def test_real_failures_are_innocent() -> None:
    cases = Path(__file__).parents[2] / "shared" / "cases"
    if not cases.is_dir():
        pytest.skip("the real cases are not beside this checkout")
    for path in sorted(cases.glob("*/expected.txt")):
        text = path.read_text(encoding="utf-8", errors="replace")
        assert Redactor(key=KEY).redact(text) == text, path


def test_values_of_secret_variables_in_every_form() -> None:
    value = "p/W+7&x" + "=Kq?z9" + "Tr4"
    redactor = Redactor(key=KEY, variables={"DEPLOY_TOKEN": value, "EDITOR": "vim-and-more"})
    forms = [value, quote(value, safe=""), base64.b64encode(value.encode()).decode()]
    for form in forms:
        masked = redactor.redact(f"say {form} twice")
        assert form not in masked
        assert "[REDACTED:env-DEPLOY_TOKEN:" in masked
    assert redactor.redact("vim-and-more") == "vim-and-more"


@pytest.mark.parametrize("value", ["short", "true", "password", "12345678", "/usr/local/bin", ""])
def test_values_that_are_no_secret(value: str) -> None:
    redactor = Redactor(key=KEY, variables={"MY_TOKEN": value})
    text = f"a {value} b /usr/local/bin true 12345678 password"
    assert redactor.redact(text) == text


@pytest.mark.parametrize(
    "name",
    [
        "GITHUB_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "OPENAI_API_KEY",
        "PGPASSWORD",
        "PASSWD",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["TOKENIZERS_PARALLELISM", "PASSENGER", "KEYBOARD", "AUTHOR", "SSH_AUTH_SOCK", "PATH", "HOME"],
)
def test_names_that_only_look_so(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize("name", ["REPOTRACE_WEBHOOK", "TEAM_WEB_HOOK", "SLACK_WEBHOOK_URL"])
def test_the_address_of_a_web_hook_is_masked(name: str) -> None:
    address = "https://chat.example.org/hooks/team-42"
    redactor = Redactor(key=KEY, variables={name: address})
    masked = redactor.redact(f"posting to {address}/now")
    assert masked.startswith(f"posting to [REDACTED:env-{name}:")
    assert masked.endswith("]/now")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WEBHOOK_PORT", "https://chat.example.org/hooks/team-42"),
        ("WEBHOOKS", "https://chat.example.org/hooks/team-42"),
        ("TEAM_WEBHOOK", "https://chat.example.org"),
        ("TEAM_WEBHOOK", "enabled for all"),
    ],
)
def test_what_only_has_to_do_with_web_hooks_stays(name: str, value: str) -> None:
    text = f"it is {value}"
    assert Redactor(key=KEY, variables={name: value}).redact(text) == text


def test_equal_secrets_are_recognisable_and_the_key_matters() -> None:
    one, other = PROVIDERS["github-classic"], PROVIDERS["github-server"]
    redactor = Redactor(key=KEY)
    first, again, second = redactor.redact(one), redactor.redact(one), redactor.redact(other)
    assert first == again != second
    elsewhere = Redactor(key=b"other" * 8).redact(one)
    assert elsewhere != first
    assert strip_digests(elsewhere.encode()) == strip_digests(first.encode())


def test_restoring_takes_values_from_the_environment() -> None:
    value = mixed(20)
    masked = Redactor(key=KEY, variables={"MY_TOKEN": value}).redact(f"--with {value}")
    assert restore(masked, {"MY_TOKEN": "new"}) == ("--with new", [])
    assert restore(masked, {})[1] == ["MY_TOKEN"]
    token = Redactor(key=KEY).redact(PROVIDERS["npm"])
    names = restore(token, {})[1]
    assert len(names) == 1
    assert names[0].startswith("REPOTRACE_SECRET_")
    assert restore(token, {names[0]: "there"}) == ("there", [])


def test_what_is_allowed_stays() -> None:
    value, token = mixed(20), PROVIDERS["npm"]
    text = f"{value} {token} {PROVIDERS['slack']}"
    variables = {"MY_TOKEN": value}
    named = Redactor(key=KEY, variables=variables, allow=["MY_TOKEN", "npm-token"]).redact(text)
    assert named.startswith(f"{value} {token} [REDACTED:slack-token:")
    exact = Redactor(key=KEY, variables=variables, allow=[value, token]).redact(text)
    assert exact == named


def test_every_mask_is_counted() -> None:
    redactor = Redactor(key=KEY)
    redactor.redact(f"{PROVIDERS['npm']} and {PROVIDERS['slack']}")
    redactor.redact("nothing")
    assert redactor.count == 2


def test_a_value_inside_a_mask_or_a_longer_secret() -> None:
    token = PROVIDERS["npm"]
    variables = {"A_SECRET": "npm-token", "B_SECRET": token[6:20], "C_SECRET": token[6:30]}
    redactor = Redactor(key=KEY, variables=variables)
    masked = redactor.redact(f"<{token}> {token[6:30]} {token[6:20]}")
    rules = [match[1] for match in PLACEHOLDER.finditer(masked)]
    assert rules == ["npm-token", "env-C_SECRET", "env-B_SECRET"]
    assert redactor.redact(masked) == masked


def test_a_value_of_several_lines() -> None:
    value = "first line 1\nsecond " + mixed(30) + "\nthird 3"
    redactor = Redactor(key=KEY, variables={"SIGNING_SECRET": value})
    data = f"a\n{value}\nb\nfirst line 1\nc\n".encode()
    masked = redactor.redact_bytes(data)[0]
    assert masked.startswith(b"a\n[REDACTED:env-SIGNING_SECRET:")
    assert masked.endswith(b"]\nb\nfirst line 1\nc\n")
    assert in_single_bytes(redactor, data) == masked
    assert b"[REDACTED:env-SIGNING_SECRET:" in redactor.redact_bytes(json.dumps(value).encode())[0]


def test_offsets_follow_the_text() -> None:
    secret = PROVIDERS["npm"]
    raw = f"ab {secret} cd".encode()
    masked, offsets = Redactor(key=KEY).redact_bytes(raw)
    assert offsets.map(0) == 0
    assert masked[offsets.map(3 + len(secret)) :] == b" cd"
    assert offsets.map(len(raw)) == len(masked)
    inside = offsets.map(10)
    assert masked[inside:] == b" cd"


LINES = st.lists(
    st.one_of(
        st.text(max_size=40),
        st.sampled_from([carrier(s) for carrier in CARRIERS.values() for s in PROVIDERS.values()]),
    ),
    max_size=6,
).map("\n".join)


@given(LINES)
@settings(max_examples=150, deadline=None)
def test_redacting_twice_changes_nothing(text: str) -> None:
    redactor = Redactor(key=KEY, variables={"A_TOKEN": mixed(14, 4), "B_SECRET": "REDACTED:npm-x"})
    once = redactor.redact(text)
    assert redactor.redact(once) == once
    for secret in PROVIDERS.values():
        assert secret not in once


@given(st.binary(max_size=300))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_fine(data: bytes) -> None:
    masked, offsets = Redactor(key=KEY).redact_bytes(data)
    assert offsets.map(len(data)) == len(masked)


@given(st.text("abc XYZ019_-=:/.\n\"'é", max_size=200))
@settings(max_examples=150, deadline=None)
def test_what_no_rule_matches_stays_byte_for_byte(text: str) -> None:
    redactor = Redactor(key=KEY)
    masked = redactor.redact(text)
    assert (masked == text) == (redactor.count == 0)
    pieces = PLACEHOLDER.split(masked)[::3]
    at = 0
    for piece in pieces:
        at = text.index(piece, at) + len(piece)


def in_single_bytes(redactor: Redactor, data: bytes) -> bytes:
    stream = RedactingStream(redactor)
    return b"".join(stream.feed(data[n : n + 1]) for n in range(len(data))) + stream.close()


def private_key(lines: int) -> str:
    body = "\n".join(mixed(64, n % 8) for n in range(lines))
    return "-----BEGIN " + f"PRIVATE KEY-----\n{body}\n-----END " + "PRIVATE KEY-----"


PIECES = st.lists(
    st.one_of(
        LINES,
        st.sampled_from(["\n", "", "-----BEGIN ", "password=", "token: '", private_key(6)]),
        st.sampled_from([secret[:20] for secret in PROVIDERS.values()]),
    ),
    max_size=5,
).map("".join)


@given(PIECES, st.lists(st.integers(0, 900), max_size=8))
@settings(max_examples=150, deadline=None)
def test_a_stream_in_any_pieces_is_masked_like_the_whole(text: str, cuts: list[int]) -> None:
    data = text.encode("utf-8", "surrogatepass")
    redactor = Redactor(key=KEY, variables={"A_TOKEN": mixed(14, 4), "B_SECRET": "two\nlines 12"})
    whole = redactor.redact_bytes(data)[0]
    stream = RedactingStream(redactor)
    bounds = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [stream.feed(data[a:b]) for a, b in pairwise(bounds)]
    assert b"".join(pieces) + stream.close() == whole
    assert in_single_bytes(redactor, data) == whole


@pytest.mark.parametrize("secret", [*PROVIDERS.values(), private_key(4)])
def test_no_cut_lets_a_secret_through(secret: str) -> None:
    data = f"before {secret} after\n".encode()
    redactor = Redactor(key=KEY)
    whole = redactor.redact_bytes(data)[0]
    for cut in range(len(data) + 1):
        stream = RedactingStream(redactor)
        assert stream.feed(data[:cut]) + stream.feed(data[cut:]) + stream.close() == whole


@pytest.mark.parametrize("offset", [0, 40_000, 57_300, 57_340, 65_500, 65_530, 131_000])
@pytest.mark.parametrize("filler", ["ab, ", "0123456789abcdef", "é"])
def test_a_line_longer_than_the_window(filler: str, offset: int) -> None:
    """Such a line is masked in pieces, and held back no longer than a piece."""
    token = PROVIDERS["github-classic"]
    text = (filler * WINDOW)[:offset] + f" {token} " + (filler * WINDOW)[: 2 * WINDOW]
    data = text.encode()
    redactor = Redactor(key=KEY)
    masked = redactor.redact_bytes(data)[0]
    assert PLACEHOLDER.sub(token, masked.decode()) == text
    assert redactor.count == 1
    stream = RedactingStream(redactor)
    out, held = b"", 0
    for at in range(0, len(data), 1000):
        out += stream.feed(data[at : at + 1000])
        held = max(held, at + 1000 - len(out))
    assert out + stream.close() == masked
    assert held < WINDOW + 2000
    assert redactor.redact_bytes(masked)[0] == masked


def test_a_secret_longer_than_the_window() -> None:
    body = base64.b64encode(bytes(n * n % 251 for n in range(150_000))).decode()
    redactor = Redactor(key=KEY)
    text = f'x {{"api_key": "{body}", "b": 1}}\n'
    masked = redactor.redact(text)
    assert len(masked) < 200
    assert masked.endswith('", "b": 1}\n')
    key = private_key(3000)
    masked = redactor.redact(f"a\n{key}\nb\n")
    assert len(masked) < 400
    assert in_single_bytes(redactor, f"a\n{key}\nb\n".encode()) == masked.encode()


def test_it_needs_the_standard_library_only() -> None:
    code = (
        "import sys; import repotrace.redact\n"
        "known = sys.stdlib_module_names | {'repotrace'}\n"
        "print(sorted({m.partition('.')[0] for m in sys.modules} - known - {'__main__'}))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
