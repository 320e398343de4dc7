"""What a secret looks like: the providers' formats, the names of variables, the shape of values.

Knowledge only; `redact` applies it. A provider's rule is a pattern anchored at literals that are
cheap to find. No pattern looks beyond a line end, nor behind its own start: `redact` judges what
stands before it.
"""

from __future__ import annotations

import re
from binascii import Error as NotBase64
from binascii import a2b_base64
from functools import cache

from repotrace.secret_words import (
    is_assigned_name,
    is_placeholder,
    is_plausible,
    is_secret_name,
    is_template,
    words_of,
)

type Found = tuple[int, int, int, str]
"""Start and end of the secret, start of the whole match (with its context), name of the rule."""

# (rule, literals, pattern). The pattern starts at the literal; its group 1, where it has one, is
# the secret. All of these hold a run of at least RUN token characters that includes the literal,
# which `redact` uses to leave most of a text unread.
RUN = 16
TOKENS: tuple[tuple[str, str, str], ...] = (
    ("aws-access-key", "AKIA", r"AKIA[A-Z0-9]{16,}+"),
    ("aws-access-key", "ASIA ABIA ACCA", r"A(?:SIA|BIA|CCA)(?=[A-Z]{0,40}[0-9])[A-Z0-9]{16,}+"),
    ("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{20,}+"),
    ("github-token", "github_pat_", r"github_pat_[A-Za-z0-9_]{20,}+"),
    (
        "gitlab-token",
        "glpat- gldt- glrt- glptt- glcbt- glft- glsoat- glagent- glimt- gloas-",
        r"gl(?:pat|dt|rt|ptt|cbt|ft|soat|agent|imt|oas)-[A-Za-z0-9_.-]{20,}+",
    ),
    ("anthropic-key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{16,}+"),
    ("openai-key", "sk-", r"sk-(?:proj|svcacct|admin|None|or-v1|lf)-[A-Za-z0-9_-]{16,}+"),
    ("openai-key", "sk-", r"sk-(?=[A-Za-z]{0,40}[0-9])[A-Za-z0-9]{20,}+"),
    ("google-key", "AIza", r"AIza[A-Za-z0-9_-]{30,}+"),
    ("google-secret", "GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{20,}+"),
    ("slack-token", "xox", r"xox[abeoprs]-(?=[A-Za-z-]{0,40}[0-9])[A-Za-z0-9-]{12,}+"),
    ("slack-token", "xapp-", r"xapp-[0-9]-[A-Za-z0-9-]{10,}+"),
    ("stripe-key", "sk_live_ rk_live_", r"[sr]k_live_[A-Za-z0-9]{10,}+"),
    ("stripe-key", "sk_test_ rk_test_", r"[sr]k_test_(?=[a-z]{0,40}[A-Z0-9])[A-Za-z0-9]{10,}+"),
    ("stripe-key", "whsec_", r"whsec_[A-Za-z0-9+/=]{24,}+"),
    ("npm-token", "npm_", r"npm_[A-Za-z0-9]{30,}+"),
    ("pypi-token", "pypi-AgE", r"pypi-AgE[A-Za-z0-9_-]{20,}+"),
    ("huggingface-token", "hf_", r"hf_[A-Za-z0-9]{30,}+"),
    ("huggingface-token", "api_org_", r"api_org_[A-Za-z0-9]{30,}+"),
    ("twilio-key", "SK", r"SK[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[a-f0-9]{40,}+"),
    ("databricks-token", "dapi", r"dapi[a-f0-9]{32}(?:-[0-9])?(?![A-Za-z0-9])"),
    ("shopify-token", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}"),
    ("mailgun-key", "key-", r"key-(?=[a-z]{0,31}[0-9])[0-9a-z]{32}(?![A-Za-z0-9_-])"),
    ("postman-key", "PMAK-", r"PMAK-[A-Fa-f0-9]{24}-[A-Fa-f0-9]{34}"),
    ("linear-key", "lin_api_ lin_oauth_", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}+"),
    ("sentry-token", "sntrys_ sntryu_", r"sntry[su]_[A-Za-z0-9_=+/-]{32,}+"),
    ("grafana-token", "glsa_ glc_", r"gl(?:sa|c)_[A-Za-z0-9+/=_]{32,}+"),
    ("docker-token", "dckr_pat_ dckr_oat_", r"dckr_[po]at_[A-Za-z0-9_-]{20,}+"),
    ("atlassian-token", "ATATT3", r"ATATT3[A-Za-z0-9_=-]{30,}+"),
    ("age-key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{40,}+"),
    ("rubygems-key", "rubygems_", r"rubygems_[a-f0-9]{48}"),
    ("tailscale-key", "tskey-", r"tskey-[a-z]{2,12}-[A-Za-z0-9-]{16,}+"),
    ("groq-key", "gsk_", r"gsk_[A-Za-z0-9]{30,}+"),
    ("xai-key", "xai-", r"xai-[A-Za-z0-9]{40,}+"),
    ("replicate-token", "r8_", r"r8_[A-Za-z0-9]{37,}+"),
    ("perplexity-key", "pplx-", r"pplx-[A-Za-z0-9]{32,}+"),
    ("langsmith-key", "lsv2_", r"lsv2_(?:pt|sk)_[A-Za-z0-9_]{32,}+"),
    ("supabase-key", "sbp_ sb_secret_", r"(?:sbp_[a-f0-9]{40}|sb_secret_[A-Za-z0-9_-]{20,}+)"),
    ("notion-token", "ntn_", r"ntn_[A-Za-z0-9]{40,}+"),
    ("figma-token", "figd_", r"figd_[A-Za-z0-9_-]{30,}+"),
    ("planetscale-token", "pscale_", r"pscale_[a-z]{2,8}_[A-Za-z0-9_.-]{30,}+"),
    ("jwt", "eyJ", r"eyJ[A-Za-z0-9_-]{13,2048}+\.[A-Za-z0-9_-]{10,}+(?:\.[A-Za-z0-9_-]+){0,3}+"),
    (
        "private-key",
        "LS0tLS1CRUdJTi",
        r"LS0tLS1CRUdJTi(?:BQUklWQVRF|BSU0EgUFJJVkFU|BFQyBQUklWQVRF|BPUEVOU1NIIFBSSVZB|"
        r"BFTkNSWVBURUQgUFJJVkFU)[A-Za-z0-9+/=]{24,}+",
    ),
)

_USER_INFO = r"[^\s/?#:@\"'<>`\\]{0,128}"
# These are found by other literals, which must be in the text as they are.
CONTEXTS: tuple[tuple[str, str, str], ...] = (
    ("url-password", ":// :\\/\\/", rf":(?:\\?/){{2}}{_USER_INFO}:([^\s/?\"'<>`\\]{{1,512}})@"),
    ("url-token", ":// :\\/\\/", r":(?:\\?/){2}((?=[A-Za-z_-]{0,99}[0-9])[A-Za-z0-9_-]{20,}+)@"),
    ("google-token", "ya29.", r"ya29\.[A-Za-z0-9_-]{20,}+"),
    ("sendgrid-key", "SG.", r"SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+"),
    ("vault-token", "hvs. hvb. hvr.", r"hv[sbr]\.[A-Za-z0-9_-]{20,}+"),
    (
        "slack-webhook",
        "hooks.slack.com",
        r"hooks\.slack\.com\\?/(?:services|workflows|triggers)\\?/([A-Za-z0-9+/\\]{20,}+)",
    ),
    ("discord-webhook", "/api/webhooks/", r"/api/webhooks/[0-9]{15,}/([A-Za-z0-9_-]{30,}+)"),
    ("azure-key", "AccountKey= AccessKey=", r"A[a-z]+Key=([A-Za-z0-9+/]{30,}+={0,2})"),
    ("azure-signature", "sig=", r"sig=([A-Za-z0-9%+/]{40,}+={0,2})"),
    ("telegram-token", ":AA", r":AA[A-Za-z0-9_-]{32,}+"),
    (
        "private-key",
        "-----BEGIN ",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:[^\n-]|-(?!----)){4,16384}+-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"|(?:\\+[nr]|[A-Za-z0-9+/=]){24,}+)",
    ),
    (
        "curl-user",
        "curl ",
        r"curl[^\n]{0,512}?[ \t](?:-u|--user)[ =]?[\"']?[^\s:\"']+:([^\s\"']{4,})",
    ),
    ("netrc-password", "machine ", r"machine +\S+ +login +\S+ +password +(\S{4,})"),
)

# As above, but found in the lower-cased text.
_SCHEME = r"(?:bearer|basic|token|apikey|api-key|bot)"
FOLDED: tuple[tuple[str, str, str], ...] = (
    (
        "authorization",
        "authorization",
        r"authorization\\{0,3}[\"']?[ \t]*[:=,][ \t]*b?\\{0,3}[\"']?"
        rf"{_SCHEME}[ \t]+([^\s\"',;\\]{{8,}}+)",
    ),
    ("bearer", "bearer ", r"bearer[ \t]+((?=[a-z._~+/=-]{0,64}[0-9])[a-z0-9._~+/=-]{16,}+)"),
    ("basic", "basic ", r"basic[ \t]+([a-z0-9+/]{8,}+={0,2})"),
    (
        "cookie",
        "cookie",
        r"cookie\\{0,3}[\"']?[ \t]*[:=,][ \t]*b?\\{0,3}[\"']?"
        r"([^\s\"';=]{1,128}+=[^\"'\n\\]+)",
    ),
    ("discord-token", "discord", r"discord[^\n]{0,64}?([mno][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,})"),
)
PROVIDERS = TOKENS + CONTEXTS + FOLDED

# Words in names to which a secret is assigned, lower-cased; `assignment` judges the whole name.
ASSIGNED = [
    "passw",
    "passphrase",
    "secret",
    "token",
    "_key",
    "-key",
    "apikey",
    "accesskey",
    "privatekey",
    "_pass",
    "pwd",
    "credential",
    "auth",
]

_COLOUR = rb"(?:(?:\x1b|\\x1b|\\u001b|\\033)\[[0-9;]{0,12}m)"
_ESCAPE_BEFORE = (
    rb"(?:\x1b\[[0-9;]{0,12}[A-Za-z]|\[[0-9;]{1,12}m|\\[abfnrtv0]|%[0-9A-Fa-f]{2}"
    rb"|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4})\Z"
)
_KEY_CHARACTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_ALNUM = frozenset(_KEY_CHARACTERS[:-2])
_ASSIGN = (
    rb"[A-Za-z0-9_-]{0,40}+" + _COLOUR + rb"{0,3}(?P<close>\\{0,3}[\"'`])?\]?[ \t]{0,8}"
    rb"(?P<sep>:=|=>|={1,3}|:|%3[Dd]|,(?=[ \t]{0,4}[bru]?\\{0,3}[\"'])|>(?=[^<>\n]{8,}</)|)"
    rb"[ \t]{0,8}" + _COLOUR + rb"{0,3}(?:[bBrRuUfF]{0,2}(?P<quote>\\{0,3}[\"'`]))?"
)
JUDGED = 512
"""How much of a long value is looked at to tell whether it is a secret."""

_BARE = rb"[^\s\"'`,;&<>()\[\]{}|\\\x1b]{8,512}+"
_REST = rb"[^\s\"'`]+"
_SHELL_BARE = rb"[^\s\"'`;&<>|\\\x1b]{8,512}+"


@cache
def compiled(source: bytes) -> re.Pattern[bytes]:
    """The pattern, compiled when first asked for."""
    return re.compile(source)


@cache
def _provider_pattern(source: str, folded: bool) -> re.Pattern[bytes]:
    return re.compile(source.encode(), re.IGNORECASE if folded else 0)


def provider(index: int, data: bytes, low: int, at: int, high: int) -> Found | int | None:
    """The match of PROVIDERS[index] whose literal stands at `at`, seeing data[low:high] only.

    Of a match that is a mere placeholder, the end: no more need be looked for before it.
    """
    name, _, source = PROVIDERS[index]
    is_token = index < len(TOKENS)
    if is_token and not compiled(rb"[A-Za-z0-9_-]{%d}" % RUN).match(data, at, high):
        return None
    if (is_token or name in _EDGED) and not _at_edge(data, low, at):
        return None
    match = _provider_pattern(source, index >= len(TOKENS) + len(CONTEXTS)).match(data, at, high)
    if match is None:
        return None
    begin = at
    if name == "telegram-token":
        digits = data[max(low, at - 10) : at]
        begin = at - (len(digits) - len(digits.rstrip(b"0123456789")))
        if at - begin < 8:
            return None
    start, end = match.span(1) if match.re.groups else (begin, match.end())
    return (start, end, begin, name) if _is_real(name, data[start:end]) else end


_EDGED = frozenset({"google-token", "sendgrid-key", "vault-token", "bearer", "basic"})


def _at_edge(data: bytes, low: int, at: int) -> bool:
    """Whether a word may start here: no letter before it, save one that belongs to an escape."""
    if at == low or data[at - 1] not in _ALNUM:
        return True
    return compiled(_ESCAPE_BEFORE).search(data, max(low, at - 16), at) is not None


def _is_real(rule: str, secret: bytes) -> bool:
    """Whether a match of a provider's rule is meant: not a template, not a placeholder."""
    if rule == "basic":
        try:
            return b":" in a2b_base64(secret)
        except NotBase64:
            return False
    if rule == "private-key":
        return len(set(secret)) >= 30 or secret.startswith(b"LS0t")
    text = secret[:JUDGED].decode("latin-1")
    if rule == "cookie":
        return any(
            len(part) >= 16 and any(map(str.isdigit, part)) for part in re.split(r"[=;\s]", text)
        )
    return not (is_template(text) or is_placeholder(text))


@cache
def _line_patterns() -> tuple[re.Pattern[bytes], ...]:
    sources = (
        rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:\\[nr]|[\s\"',+)\\]|"
        + _COLOUR
        + rb")*\Z",
        rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----",
        rb"(?:\A|[\s>|+:\"'`-])[A-Za-z0-9+/]{40,}={0,2}(?:\\[nr]|[\s\"',+)\\]|"
        + _COLOUR
        + rb")*\Z",
        rb"\A(?:[^\n]{0,60}[ \t>|+-])?(?:[A-Za-z-]{1,30}: [^\n]{0,100}|\S{0,130})\s*\Z",
    )
    return tuple(map(re.compile, sources))


KEY_LIMIT = 65536
"""The longest key that is masked as one piece; a longer one becomes several placeholders."""

ENDED, FULL, OPEN = range(3)
"""Of a private key: its end was seen, KEY_LIMIT was reached, the text stopped first."""


def key_block(data: bytes, begin: int, high: int, *, inside: bool) -> tuple[int, int] | None:
    """Where the private key that starts at `begin` ends, and how: ENDED, FULL or OPEN.

    `data[:high]` holds complete lines. None if there is no key here. With `inside`, `begin` is the
    start of a line in the middle of a key.
    """
    first, last, body, loose = _line_patterns()
    at, seen, unsure = begin, inside, 0
    confirmed = begin
    if not inside:
        at = _line_end(data, begin, high)
        if first.match(data, begin, at) is None:
            return None
    while at < high:
        stop = _line_end(data, at, high)
        if ending := last.search(data, at, stop):
            return (ending.end(), ENDED) if len(set(data[begin:at])) >= 30 or inside else None
        line = data[at:stop]
        if len(line) <= 1024 and body.search(line):
            seen, unsure, confirmed = True, 0, stop - (data[stop - 1] == 10)
            if confirmed - begin >= KEY_LIMIT:
                return confirmed, FULL
        elif unsure == 8 or not loose.match(line):
            return (confirmed, ENDED) if seen and confirmed > begin else None
        else:
            unsure += 1
        at = stop
    return confirmed, OPEN


def _line_end(data: bytes, at: int, high: int) -> int:
    return data.find(b"\n", at, high) + 1 or high


def assignment(data: bytes, low: int, at: int, high: int) -> Found | None:
    """The value that is assigned to a secret-looking name which holds the word at `at`."""
    high = _line_end(data, at, high)
    match = compiled(_ASSIGN).match(data, at, high)
    if match is None:
        return None
    before = data[max(low, at - 64) : at]
    begin = at - (len(before) - len(before.rstrip(_KEY_CHARACTERS)))
    name_end = at + len(data[at : at + 48]) - len(data[at : at + 48].lstrip(_KEY_CHARACTERS))
    name = data[begin : min(name_end, high)].decode("ascii")
    separator = match["sep"]
    if not separator and not (name.startswith("--") and data[match.end("sep") - 1] in b" \t"):
        return None
    if separator == b"," and not match["close"]:
        return None
    if colour := compiled(rb"\[[0-9;]{1,12}m(?=[A-Za-z0-9_-]*\Z)").search(before):
        name = name[max(0, colour.end() - (len(before) - (at - begin))) :]
    # Behind a literal escape ("\n" in a repr) the name starts with a letter too many.
    if begin > low and data[begin - 1] == 0x5C and name[:1] in "nrt":
        name = name[1:]
    if not is_secret_name(name) or not is_assigned_name(name):
        return None
    start = match.end()
    in_shell = name.isupper() and data[start - 1] == 0x3D
    stop, quoted = _value_end(data, match["quote"], start, high, shell=in_shell)
    value = data[start : min(stop, start + JUDGED)].decode("latin-1")
    words = words_of(name)
    if words[-2:] == ["ACCESS", "KEY"] and compiled(rb"[A-Za-z0-9/+]{40}").fullmatch(
        data, start, stop
    ):
        return start, stop, begin, "aws-secret-key"
    is_call = not quoted and data[stop : stop + 1] in (b"(", b"[") and stop < high
    if is_call or not is_plausible(value, quoted, any("PASS" in word for word in words)):
        return None
    if not quoted and stop == start + JUDGED and (rest := compiled(_REST).match(data, stop, high)):
        stop = rest.end()
    return start, stop, begin, "assigned"


def _value_end(
    data: bytes, quote: bytes | None, start: int, high: int, *, shell: bool
) -> tuple[int, bool]:
    if quote:
        last = min(high, start + JUDGED)
        end = data.find(quote, start, last)
        while end > start and len(quote) == 1 and data[end - 1] == 0x5C:
            end = data.find(quote, end + 1, last)
        if end >= 0:
            return end, True
    match = compiled(_SHELL_BARE if shell and not quote else _BARE).match(data, start, high)
    return (match.end() if match else start), False
