"""Names that no state holds, whatever the user's ignore rules say."""

from __future__ import annotations

import fnmatch
import functools
import os
import re

RESERVED = frozenset({b".repotrace", b".git"})
"""Never captured and not worth a word: our own folder, and the repository itself."""

_REGENERABLE = """
__pycache__ .venv node_modules bower_components .tox .nox .mypy_cache .pytest_cache .ruff_cache
.hypothesis .pytype .pyre .ipynb_checkpoints .eggs .gradle .next .nuxt .svelte-kit .turbo
.parcel-cache .nyc_output .terraform .import_linter_cache .direnv
"""
_SECRET = """
.env .env.* .envrc *.pem *.key *.p12 *.pfx *.jks *.keystore *.kdbx *.ppk id_rsa id_dsa id_ecdsa
id_ed25519 .netrc _netrc .pgpass .pypirc .git-credentials .htpasswd service-account*.json
"""
_PUBLIC = ".env.example .env.sample .env.template .env.dist .env.defaults .env.schema"


@functools.cache
def _regenerable() -> frozenset[bytes]:
    return frozenset(_REGENERABLE.encode().split())


@functools.cache
def _secret() -> re.Pattern[bytes]:
    patterns = "|".join(fnmatch.translate(pattern) for pattern in _SECRET.split())
    return re.compile(patterns.encode(), re.IGNORECASE)


@functools.cache
def _notable() -> re.Pattern[bytes]:
    reserved = "|".join(re.escape(os.fsdecode(name)) + r"\Z" for name in sorted(RESERVED))
    return re.compile(reserved.encode() + b"|" + _secret().pattern, re.IGNORECASE)


def is_ordinary(name: bytes) -> bool:
    """Whether no rule here is about files of this name; quick."""
    return _notable().match(name) is None


def is_secret(name: bytes) -> bool:
    """Whether a file or folder of this name is expected to hold credentials."""
    public = name.decode("latin-1").lower() in _PUBLIC.split()
    return not public and _secret().match(name) is not None


def is_regenerable(name: bytes) -> bool:
    """Whether a folder of this name is made by a tool out of other files."""
    return name in _regenerable()


def is_refused_by_git(name: bytes) -> bool:
    """Whether git takes this name for its own folder in disguise."""
    return name.lower() == b".git" and name != b".git"


def exclude_file() -> bytes:
    """What spares git a walk through folders that are left out anyway."""
    return b"/.repotrace/\n.repotrace/\n" + b"".join(
        name + b"/\n" for name in sorted(_regenerable())
    )
