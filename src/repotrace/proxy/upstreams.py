"""Where the traffic of an agent goes, and the variables by which it is led through the relay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from repotrace.errors import RepoTraceError


class Variable(NamedTuple):
    """An environment variable that tells agents where a provider is."""

    name: str
    provider: str
    """Its name in the paths of the relay."""
    usual: str
    """The provider, where the user has set nothing; empty: the variable is left alone then."""


VARIABLES = (
    Variable("ANTHROPIC_BASE_URL", "anthropic", "https://api.anthropic.com"),
    Variable("OPENAI_BASE_URL", "openai", "https://api.openai.com/v1"),
    Variable("OPENAI_API_BASE", "openai-api", "https://api.openai.com/v1"),
    Variable("GOOGLE_GEMINI_BASE_URL", "gemini", "https://generativelanguage.googleapis.com"),
    Variable("LLM_BASE_URL", "llm", ""),
)

_SAME = {"OPENAI_API_BASE": "OPENAI_BASE_URL", "OPENAI_BASE_URL": "OPENAI_API_BASE"}
"""The other name of a variable: one that is set counts for both."""


class Upstreams:
    """The address of each provider."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        """`addresses`: the base URL of each provider, by its name. Raises RepoTraceError."""
        self.addresses = {name: _checked(address) for name, address in addresses.items()}

    @classmethod
    def found(cls, environ: Mapping[str, str], given: Iterable[str] = ()) -> Upstreams:
        """What the user has set, `given` before the environment before what is usual.

        Each of `given` is the URL of all providers, or `NAME=URL` of one. Raises RepoTraceError.
        """
        everywhere, named = "", dict[str, str]()
        for text in given:
            name, equals, address = text.partition("=")
            if equals and "/" not in name:
                if name not in {variable.provider for variable in VARIABLES}:
                    known = ", ".join(variable.provider for variable in VARIABLES)
                    raise RepoTraceError(
                        f"No provider is called {name!r}.", hint=f"There are: {known}"
                    )
                named[name] = address
            else:
                everywhere = text
        found = {}
        for variable in VARIABLES:
            address = named.get(variable.provider) or _with_path(everywhere, variable.usual)
            address = address or environ.get(variable.name, "")
            address = address or environ.get(_SAME.get(variable.name, ""), "") or variable.usual
            if address:
                found[variable.provider] = address
        return cls(found)

    def origin(self, provider: str) -> str | None:
        """Scheme and host of a provider; None if it is not known."""
        address = self.addresses.get(provider)
        if address is None:
            return None
        parts = urlsplit(address)
        return f"{parts.scheme}://{parts.netloc}"

    def path(self, provider: str) -> str:
        """What follows the host in the address of a provider, as `/v1`."""
        return urlsplit(self.addresses[provider]).path.rstrip("/")


def is_loopback(origin: str) -> bool:
    """Whether an address is of this machine, so that no proxy of the user stands between."""
    host = urlsplit(origin).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.") or host.endswith(".localhost")


def without_proxy(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables by which a program asks the loopback directly, whatever proxy is set."""
    hosts = ["127.0.0.1", "localhost"]
    found = {}
    for name in ("NO_PROXY", "no_proxy"):
        set_ = [part for part in environ.get(name, "").split(",") if part.strip()]
        if "*" not in set_:
            found[name] = ",".join([*set_, *(host for host in hosts if host not in set_)])
    return found


def _with_path(address: str, usual: str) -> str:
    if not address or urlsplit(address).path.strip("/"):
        return address
    return address.rstrip("/") + urlsplit(usual).path


def _checked(address: str) -> str:
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query
        _ = parts.port
    except ValueError:
        usable = False
    if not usable:
        raise RepoTraceError(
            f"{address!r} is no address of a provider.",
            hint="Write it as https://HOST or http://HOST:PORT/PATH",
        )
    return address
