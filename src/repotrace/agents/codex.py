"""Codex."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from repotrace.agents.tools import Action, Agent, Hooks, Proxied, Tool, folder_of

TOOLS = {
    "exec_command": Tool(Action.RUN, command="cmd"),
    "shell": Tool(Action.RUN, command="command"),
    "shell_command": Tool(Action.RUN, command="command"),
    "local_shell": Tool(Action.RUN, command="command"),
    "container.exec": Tool(Action.RUN, command="command"),
    "write_stdin": Tool(Action.OTHER, title="chars"),
    "apply_patch": Tool(Action.PATCH, content="input"),
    "read_file": Tool(Action.READ, path="file_path", first="offset", lines="limit"),
    "list_dir": Tool(Action.LIST, path="dir_path"),
    "grep_files": Tool(Action.SEARCH, path="path", title="pattern"),
    "view_image": Tool(Action.READ, path="path"),
    "update_plan": Tool(Action.PLAN, title="explanation"),
    "web_search": Tool(Action.WEB, title="query"),
    "tool_search": Tool(Action.OTHER, title="query"),
    "spawn_agent": Tool(Action.AGENT, title="message"),
    "send_input": Tool(Action.AGENT, title="message"),
    "send_message": Tool(Action.AGENT, title="message"),
    "followup_task": Tool(Action.AGENT, title="message"),
    "resume_agent": Tool(Action.AGENT, title="id"),
    "close_agent": Tool(Action.OTHER, title="target"),
    "interrupt_agent": Tool(Action.OTHER, title="target"),
    "request_user_input": Tool(Action.ASK),
}


def sessions(environ: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """All sessions, the newest first: they lie in folders by day, whatever they worked on."""
    del folder
    home = folder_of(environ, "CODEX_HOME", ".codex")
    for place in ("sessions", "archived_sessions"):
        found = [
            p for p in (home / place).rglob("rollout-*.jsonl*") if p.suffix in (".jsonl", ".zst")
        ]
        yield from sorted(found, key=lambda path: path.name, reverse=True)


HOOKS = Hooks(
    lambda environ: folder_of(environ, "CODEX_HOME", ".codex") / "hooks.json",
    ".codex/hooks.json",
    ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "SessionEnd"),
    30,
    advice="Codex runs new hooks once you have trusted them; it asks when it starts next",
)


def configured(environ: Mapping[str, str]) -> str | None:
    """The provider that Codex's settings name in place of OpenAI's own address."""
    import tomllib

    path = folder_of(environ, "CODEX_HOME", ".codex") / "config.toml"
    try:
        address = tomllib.loads(path.read_text()).get("openai_base_url")
    except (OSError, ValueError):
        return None
    return f"openai={address}" if isinstance(address, str) and address else None


AGENT = Agent(
    "codex",
    "Codex",
    "codex",
    TOOLS,
    sessions,
    # It does not look at OPENAI_BASE_URL.
    Proxied(("-c", 'openai_base_url="{openai}"'), upstream=configured),
    HOOKS,
    headless=("codex", "exec", "--full-auto", "{prompt}"),
)
