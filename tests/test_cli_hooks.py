"""`repotrace hooks` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import Shell


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made.git("init", "-q")
    return made


def test_hooks_are_installed_shown_and_taken_out(repotrace: Shell) -> None:
    settings = repotrace.cwd / ".claude" / "settings.local.json"
    settings.parent.mkdir()
    settings.write_text('{\n    "model": "opus"\n}\n')

    planned = repotrace("hooks", "install", "claude-code", "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert settings.read_text() == '{\n    "model": "opus"\n}\n'
    done = repotrace("hooks", "install", "claude-code")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert lines[-1] == "wrote .claude/settings.local.json"
    assert lines[:-1] == planned.stdout.decode().splitlines()
    assert lines[:2] == ["--- a/.claude/settings.local.json", "+++ b/.claude/settings.local.json"]
    assert sum("-m repotrace hook claude-code" in line for line in lines) == 6
    assert b"git does not ignore this file" in done.stderr

    again = repotrace("hooks", "install", "claude-code")
    assert (again.returncode, again.stdout) == (0, b"")
    assert b"nothing to change" in again.stderr
    status = repotrace("hooks", "status").stdout.decode()
    assert status == "Claude Code: installed for the project in .claude/settings.local.json\n"

    gone = repotrace("hooks", "uninstall", "claude-code")
    assert gone.returncode == 0, gone.stderr
    assert settings.read_text() == '{\n    "model": "opus"\n}\n'
    assert repotrace("hooks", "status").stdout == b"no hooks are installed\n"
    assert b"nothing to change" in repotrace("hooks", "uninstall", "claude-code").stderr


def test_the_users_settings_of_codex_and_gemini(repotrace: Shell) -> None:
    codex, gemini = repotrace.home / ".codex/hooks.json", repotrace.home / ".gemini/settings.json"
    done = repotrace("hooks", "install", "codex", "--user")
    assert b"wrote ~/.codex/hooks.json" in done.stdout
    assert b"trusted" in done.stderr
    told = json.loads(repotrace("hooks", "install", "gemini", "--user", "--json").stdout)
    (change,) = told["changes"]
    assert (told["schema_version"], change["agent"], change["scope"]) == (1, "gemini-cli", "user")
    assert change["changed"] is True
    (group,) = json.loads(gemini.read_text())["hooks"]["BeforeTool"]
    assert group["hooks"][0]["timeout"] == 30_000  # in its own unit
    (group,) = json.loads(codex.read_text())["hooks"]["PreToolUse"]
    assert group["hooks"][0]["timeout"] == 30
    found = json.loads(repotrace("hooks", "status", "--json").stdout)
    installed = [(h["agent"], h["scope"]) for h in found["hooks"] if h["installed"]]
    assert installed == [("codex", "user"), ("gemini-cli", "user")]
    twice = repotrace("hooks", "install", "codex", "--project")
    assert twice.returncode == 2
    assert b"repotrace hooks uninstall codex --user" in twice.stderr
    repotrace("hooks", "uninstall", "codex", "--user")
    repotrace("hooks", "uninstall", "gemini", "--user")
    assert not codex.exists()
    assert not gemini.parent.exists()


def test_what_cannot_be_done_is_said(repotrace: Shell) -> None:
    settings = repotrace.cwd / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{\n  // mine\n  "ui": {}\n}\n')
    refused = repotrace("hooks", "install", "gemini")
    assert refused.returncode == 2
    assert b"not plain JSON" in refused.stderr
    assert b"nothing was changed" in refused.stderr
    assert b"not plain JSON" in repotrace("hooks", "status").stderr
    assert repotrace("hooks", "install", "aider").returncode == 2
    both = repotrace("hooks", "install", "codex", "--user", "--project")
    assert both.returncode == 2
    assert b"not both" in both.stderr
