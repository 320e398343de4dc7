"""`repotrace proxy`: what it refuses. What it records is tried in test_wire_recording.py."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from running import Shell


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--upstream", "api.openai.com"), "is no address of a provider"),
        (("--upstream", "mistral=https://api.mistral.ai"), "No provider is called 'mistral'"),
        (("--port", "70000"), "--port"),
    ],
)
def test_what_makes_no_sense_is_refused(
    repotrace: Shell, options: tuple[str, ...], words: str
) -> None:
    done = repotrace("proxy", *options)
    assert done.returncode == 2
    assert words in done.stderr.decode()
    assert done.stdout == b""


def test_a_port_that_is_taken_is_said(repotrace: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = repotrace("proxy", "--port", port)
    assert done.returncode == 2
    assert f"Port {port} cannot be listened on" in done.stderr.decode()
