"""Which names speak of secrets, and which values are none although they stand beside one."""

# ruff: noqa: SIM905 - long lists of words read best as text

from __future__ import annotations

import itertools
import re
from functools import cache
from math import log2

_SECRET_WORDS = frozenset(
    """
    ACCESSKEY APIKEY AUTH AUTHKEY BEARER COOKIE CREDENTIAL CREDENTIALS JWT PASSCODE PASSPHRASE
    PASSWD PASSWORD PASSWORDS PRIVATEKEY SECRET SECRETKEY SECRETS SESSION TOKEN
    """.split()
)
_SECRET_ENDINGS = ("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN", "APIKEY")
_KEY_KINDS = frozenset(
    """
    ACCESS ACCOUNT ADMIN ANTHROPIC API APP AUTH DEEPSEEK DEPLOY ENCRYPTION GEMINI GPG GROQ
    LICENSE MAILGUN MASTER MISTRAL OPENAI OPENROUTER PGP PRIVATE SECRET SENDGRID SERVICE
    SIGNING SSH STORAGE STRIPE WEBHOOK
    """.split()
)
_INNOCENT_ENDINGS = frozenset(
    """
    ADDRESS AGE AGENT ALGORITHM BACKEND CLASS COUNT DESKTOP DIR DISABLED ENABLED ENDPOINT
    EXPIRATION EXPIRED EXPIRES EXPIRY FIELD FILE FILENAME HEADER HELPER HOME HOST INFO LEN
    LENGTH LIMIT MANAGER METHOD MODE NAME NAMES PATH PID POLICY PORT PREFIX PROVIDER REGION
    REQUIRED SCOPE SCOPES SEAT SIZE SOCK SOCKET STORE TIMEOUT TTL TYPE TYPES URI URL VERSION
    VTNR
    """.split()
)
_INNOCENT_STARTS = frozenset(
    """
    DBUS DESKTOP GNOME ITERM KDE PUBLIC SHELL TERM XDG
    """.split()
)


@cache
def _word_pattern() -> re.Pattern[str]:
    return re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def words_of(name: str) -> list[str]:
    """The words of a name in any case style, upper-cased."""
    return [word.upper() for word in _word_pattern().findall(name[:200])]


def is_secret_name(name: str) -> bool:
    """Whether a variable, key or option of this name holds a secret, by its words.

    `GITHUB_TOKEN`, `PGPASSWORD`, `apiKey`, `AWS_SECRET_ACCESS_KEY`: yes. `TOKENIZERS_PARALLELISM`,
    `AUTHOR`, `KEYBOARD`, `SSH_AUTH_SOCK`, `TOKEN_TYPE`, `DESKTOP_SESSION`: no.
    """
    words = words_of(name)
    if not words or words[-1] in _INNOCENT_ENDINGS or words[0] in _INNOCENT_STARTS:
        return False
    if words[-1] == "ID" and not {"ACCESS", "SECRET"} & set(words):
        return False
    if len(words) > 1 and words[-1] in ("PASS", "PWD") and words[0] != "OLD":
        return True
    if any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS) for word in words):
        return True
    return any(a in _KEY_KINDS and b == "KEY" for a, b in itertools.pairwise(words))


def is_secret_variable(name: str, value: str) -> bool:
    """Whether an environment variable holds a secret that is to be masked wherever it appears.

    The address of a web hook is one, too: whoever knows it may post there.
    """
    if is_secret_name(name):
        return is_secret_value(value)
    if "WEBHOOK" not in name.upper().replace("_", ""):
        return False
    words = words_of(name.upper().removesuffix("_URL"))
    is_hook = words[-1:] == ["WEBHOOK"] or words[-2:] == ["WEB", "HOOK"]
    return is_hook and bool(re.match(r"https?://[^/]+/.{6}", value))


def is_assigned_name(name: str) -> bool:
    """Whether what is assigned to `name` is taken for a secret; stricter than for variables."""
    # The id of a session or an agent is what this program's own records are about.
    words = words_of(name)
    return not ({"SESSION", "COOKIE"} & set(words)) or bool({"TOKEN", "SECRET", "KEY"} & set(words))


_PLACEHOLDER_WORDS = frozenset(
    """
    a abc access an ant any api auth bad bar basic baz bearer change changeme credential
    credentials default demo dev dummy empty example fake filtered foo for from ghp glpat good
    here hidden in insert invalid is it key key1 keys live local masked me mock my new nil no
    none noop not null old omitted only op our pass passphrase passwd password placeholder
    private proj pw pwd real redacted removed replace sample secret secrets sk some string tbd
    test testing tests the this todo token undefined unset use user username valid value with
    wrong xxx your
    """.split()
)
_COMMON_WORDS = frozenset(
    """
    administrator anonymous automatic basic-auth cinnamon continue development disabled
    enabled external file-based interactive internal kerberos keyring localhost memory-only
    negotiate optional postgres postgresql production required username wayland x11-session
    """.split()
)
_PLACEHOLDER_PARTS = (
    "example",
    "changeme",
    "change-me",
    "placeholder",
    "dummy",
    "redacted",
    "xxxx",
)


def is_placeholder(value: str) -> bool:
    """Whether a value consists of words such as 'not-a-real-key', 'your-token', 'xxxxxxxx'."""
    lower = value.lower()
    words = [word for word in re.split(r"[^a-z]+", lower) if word.strip("x")]
    digits = sum(map(str.isdigit, lower))
    return digits <= 3 and all(word in _PLACEHOLDER_WORDS for word in words)


@cache
def _shapes() -> tuple[re.Pattern[str], ...]:
    word = r"(?:[A-Za-z]{1,24}[0-9]{0,3}|[0-9]+)"
    sources = (
        r"\A(?:\$[A-Za-z_{(]|%[({A-Za-z]|[<{\[*.%])|\$\{|\{\{|%\(|\*{3}|\.{3}|[<>]\Z"
        r"|\{[A-Za-z_.]+\}|\[\^?[A-Za-z0-9]-[A-Za-z0-9]|environ|getenv|process\.env|import\.meta",
        r"\A(?:[A-Za-z]:[\\/]|~?/|\.{1,2}/|[a-z][a-z0-9+.-]*:/)",
        r"[0-9.,:;/+\-_ TZeE%\x80-\xff]*",
        rf"{word}(?:[-_./:@+ ]+{word})*[-_./:@+ ]*",
        r"(?=[^/]*[A-Z])(?=[^/]*[a-z])(?=[^/]*[0-9])[^/]{16,}",
    )
    return tuple(map(re.compile, sources))


def is_template(text: str) -> bool:
    """Whether `text` stands for a value that comes from elsewhere: `${X}`, `<token>`, `***`."""
    return _shapes()[0].search(text) is not None


def _is_place(text: str) -> bool:
    """Whether this is a path or a URL, and no part of it looks like a random string."""
    _, place, _, _, random_part = _shapes()
    return bool(place.match(text)) and not any(map(random_part.fullmatch, text.split("/")))


def is_secret_value(value: str) -> bool:
    """Whether the value of a secret-looking variable is worth masking wherever it appears.

    At least 8 characters, and no path, plain number, template, common word or placeholder.
    """
    text = value.strip()
    if len(text) < 8 or text.lower() in _COMMON_WORDS:
        return False
    if _shapes()[2].fullmatch(text) or is_template(text) or is_placeholder(text):
        return False
    return not _is_place(text)


def _entropy(text: str) -> float:
    size = len(text)
    return -sum(n / size * log2(n / size) for n in (text.count(c) for c in set(text)))


def _is_jumble(text: str) -> bool:
    """Whether letters change case too often for words in camel case."""
    return (
        len(text) >= 12 and text.isalpha() and len(_word_pattern().findall(text)) * 2.6 > len(text)
    )


def is_plausible(value: str, quoted: bool, is_password: bool) -> bool:
    """Whether a value that is assigned to a secret-looking name is one."""
    jumbled = _is_jumble(value.rstrip("=0123456789"))
    if not (jumbled or any(map(str.isdigit, value))) and not (
        is_password and any(c in "!@#$%^&*~?" for c in value)
    ):
        return False
    if len(value) < 8 or any(map(str.isspace, value)) or not is_secret_value(value):
        return False
    lower = value.lower()
    if lower.startswith("[redacted") or any(part in lower for part in _PLACEHOLDER_PARTS):
        return False
    if (
        not jumbled
        and not (is_password and (quoted or "_" not in value))
        and _shapes()[3].fullmatch(value)
    ):
        return len(value) >= 24 and _entropy(value) >= 4.0 and not any(c in value for c in "_-./: ")
    if len(value) < 16:
        return len(set(value)) >= 5
    return _entropy(value) >= 2.8
