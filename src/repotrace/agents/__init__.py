"""The agents that people use: what their tools mean, and where they keep their sessions."""

from __future__ import annotations

from importlib import import_module

from repotrace.agents.tools import OTHER, Action, Agent, Tool

__all__ = ["AGENTS", "OTHER", "PROGRAMS", "Action", "Agent", "Tool", "agent"]

AGENTS = {
    "claude-code": "repotrace.agents.claude_code",
    "codex": "repotrace.agents.codex",
    "mini-swe-agent": "repotrace.agents.mini_swe_agent",
    "swe-agent": "repotrace.agents.swe_agent",
    "gemini-cli": "repotrace.agents.gemini_cli",
    "aider": "repotrace.agents.aider",
    "cline": "repotrace.agents.cline",
    "inspect": "repotrace.agents.inspect_ai",
    "atif": "repotrace.agents.atif",
    "openhands": "repotrace.agents.openhands",
    "opencode": "repotrace.agents.opencode",
}
"""The module of each agent; its `AGENT` is imported when it is wanted."""

PROGRAMS = {
    "claude": "claude-code",
    "claude-code": "claude-code",
    "codex": "codex",
    "mini": "mini-swe-agent",
    "mini-swe-agent": "mini-swe-agent",
    "minisweagent": "mini-swe-agent",
    "sweagent": "swe-agent",
    "swe-agent": "swe-agent",
    "gemini": "gemini-cli",
    "gemini-cli": "gemini-cli",
    "aider": "aider",
    "aider-chat": "aider",
    "cline": "cline",
    "inspect": "inspect",
    "openhands": "openhands",
    "opencode": "opencode",
    "opencode-ai": "opencode",
}
"""The agent that a program, or the package that it is started from, belongs to."""


def agent(name: str) -> Agent:
    """The agent of this name. Raises KeyError if it is unknown."""
    found: Agent = import_module(AGENTS[name]).AGENT
    return found
