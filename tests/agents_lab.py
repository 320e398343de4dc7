"""Real coding agents with a scripted model, as `scripts/test-agents` installs them.

Run as a script, it drives one by hand:

    python tests/agents_lab.py LAB codex [bare|record|proxy|hooks|hooked] [FAULTS]
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHARED = Path(__file__).parents[2] / "shared" / "agents"
SCENARIO = SHARED / "scenario.json"
PATIENCE = 60.0


@dataclass(frozen=True)
class Lab:
    """A folder with the agents in it, as `install.sh` makes it of a copy of `SHARED`."""

    root: Path

    @property
    def server(self) -> Path:
        return self.root / "venvs" / "server" / "bin" / "python"

    def program(self, agent: str) -> Path | None:
        """The agent's own program; None if it is not installed."""
        npm, venvs = self.root / "npm", self.root / "venvs"
        packages = npm / "codex" / "node_modules" / "@openai"
        places = {
            "mini-swe-agent": [venvs / "mini" / "bin" / "mini"],
            "aider": [venvs / "aider" / "bin" / "aider"],
            "openhands": [venvs / "openhands" / "bin" / "openhands"],
            "codex": [
                *packages.glob("codex-linux-x64/vendor/*/*/codex"),
                npm / "codex" / "node_modules" / ".bin" / "codex",
            ],
            "claude-code": [
                npm / "claude/node_modules/@anthropic-ai/claude-code-linux-x64/claude",
            ],
            "gemini-cli": [npm / "gemini/node_modules/.bin/gemini"],
            "opencode": [npm / "opencode/node_modules/opencode-linux-x64/bin/opencode"],
        }[agent]
        return next((path for path in places if path.exists()), None)


@dataclass(frozen=True)
class Session:
    """One run of an agent."""

    code: int
    stdout: bytes
    stderr: bytes
    diff: str
    requests: list[dict[str, Any]]
    """What the model was asked, as its server wrote it down."""
    repository: Path
    home: Path


PROMPT = json.loads(SCENARIO.read_text())["prompt"] if SHARED.is_dir() else ""


def environment(lab: Lab, home: Path) -> dict[str, str]:
    """That of the agents, with nothing of ours."""
    path = [lab.root / "venvs/tools/bin", lab.root / "tools/deb/usr/bin", "/usr/bin", "/bin"]
    who = {"NAME": "Dev", "EMAIL": "dev@example.com"}
    return {
        "HOME": str(home),
        "PATH": os.pathsep.join(map(str, path)),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "USER": "dev",
        "PYTHONDONTWRITEBYTECODE": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        **{f"GIT_{role}_{name}": v for role in ("AUTHOR", "COMMITTER") for name, v in who.items()},
    }


def command(lab: Lab, agent: str, home: Path, port: int) -> tuple[list[str], dict[str, str]]:
    """The command line of an agent, and the variables that point it to the scripted model."""
    program = str(lab.program(agent))
    base = f"http://127.0.0.1:{port}"
    if agent == "mini-swe-agent":
        env = {
            "OPENAI_API_BASE": f"{base}/v1",
            "OPENAI_API_KEY": "sk-test",
            "MSWEA_CONFIGURED": "true",
            "MSWEA_SILENT_STARTUP": "1",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        words = ["--yolo", "--exit-immediately", "-m", "openai/gpt-5", "-t", PROMPT]
        return [program, *words, "-o", str(home / "trajectory.traj.json")], env
    if agent == "codex":
        (home / ".codex").mkdir(exist_ok=True)
        (home / ".codex" / "config.toml").write_text(_CODEX.format(base=base))
        (home / ".codex" / "auth.json").write_text('{"OPENAI_API_KEY": "sk-test"}')
        return [program, "exec", "--json", PROMPT], {
            "OPENAI_API_KEY": "sk-test",
            "CODEX_API_KEY": "sk-test",
        }
    if agent == "claude-code":
        tools = "Read,Grep,Glob,Edit,Write,Bash(python -m pytest:*)"
        words = ["-p", PROMPT, "--output-format", "stream-json", "--verbose"]
        return [program, *words, "--allowedTools", tools], {
            "ANTHROPIC_BASE_URL": base,
            "ANTHROPIC_API_KEY": "sk-test",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
        }
    if agent == "gemini-cli":
        (home / ".gemini").mkdir(exist_ok=True)
        (home / ".gemini" / "settings.json").write_text(_GEMINI)
        words = ["-p", PROMPT, "--approval-mode", "yolo", "--output-format", "stream-json"]
        return [program, *words], {
            "GOOGLE_GEMINI_BASE_URL": base,
            "GEMINI_API_KEY": "sk-test",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }
    if agent == "aider":
        options = (
            "--no-analytics --analytics-disable --no-check-update --no-show-release-notes"
            " --no-show-model-warnings --no-detect-urls --no-gitignore --yes-always --auto-test"
        )
        models = ["--model", "openai/gpt-4o", "--weak-model", "openai/gpt-4o-mini"]
        words = ["--message", PROMPT, "--test-cmd", "python -m pytest -q", *options.split()]
        return [program, *models, *words], {
            "OPENAI_API_BASE": f"{base}/v1",
            "OPENAI_API_KEY": "sk-test",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
    if agent == "openhands":
        return [program, "--headless", "--json", "--override-with-envs", "-t", PROMPT], {
            "LLM_MODEL": "openai/gpt-4o",
            "LLM_API_KEY": "sk-test",
            "LLM_BASE_URL": f"{base}/v1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OPENHANDS_SUPPRESS_BANNER": "1",
            "OPENHANDS_WORK_DIR": str(home / "invoice"),
            "DO_NOT_TRACK": "1",
            "POSTHOG_DISABLED": "1",
        }
    assert agent == "opencode"
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "opencode.json").write_text(_OPENCODE % f"{base}/v1")
    words = ["run", "--model", "scripted/scripted-1", "--format", "json", PROMPT]
    return [program, *words], {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    }


_CODEX = """\
model = "gpt-5.5"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
openai_base_url = "{base}/v1"

[analytics]
enabled = false

[feedback]
enabled = false
"""

_GEMINI = """\
{"security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}},
 "privacy": {"usageStatisticsEnabled": false}, "telemetry": {"enabled": false},
 "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false}}
"""

_OPENCODE = """\
{"autoupdate": false, "share": "disabled", "snapshot": true,
 "permission": {"edit": "allow", "bash": "allow", "external_directory": "allow"},
 "provider": {"scripted": {"npm": "@ai-sdk/openai-compatible", "name": "Scripted",
   "options": {"baseURL": "%s", "apiKey": "sk-test"},
   "models": {"scripted-1": {"name": "Scripted 1",
     "limit": {"context": 200000, "output": 8192}}}}}}
"""


@contextmanager
def scripted_model(
    lab: Lab,
    agent: str,
    repository: Path,
    log: Path,
    faults: str | None = None,
    scenario: Path = SCENARIO,
) -> Iterator[int]:
    """The port of a model that plays the scenario."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    words = ["--profile", agent, "--cwd", str(repository), "--port", str(port), "--log", str(log)]
    words += ["--scenario", str(scenario)]
    if faults is not None:
        words += ["--faults", str(SHARED / "faults" / f"{faults}.json")]
    server = subprocess.Popen([lab.server, SHARED / "scripted_llm.py", *words])
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if time.monotonic() > deadline or server.poll() is not None:
                raise AssertionError("the scripted model does not answer")
            time.sleep(0.02)
        yield port
    finally:
        server.terminate()
        server.wait()


def drive(
    lab: Lab,
    agent: str,
    folder: Path,
    *,
    record: tuple[str, ...] | None = None,
    faults: str | None = None,
    hooks: str | None = None,
    scenario: Path = SCENARIO,
) -> Session:
    """Have the agent work in a new repository in `folder`, under `repotrace record` if its options
    are given; with our hooks, by the name that they are installed by."""
    home = folder / "dev"
    repository = home / "invoice"
    home.mkdir(parents=True)
    shutil.copytree(SHARED / "invoice-template", repository)
    env = environment(lab, home)
    # Codex runs commands in a login shell.
    (home / ".profile").write_text(f"export PATH={lab.root}/venvs/tools/bin:$PATH\n")

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=repository, env=env, check=True, capture_output=True, text=True
        )
        return done.stdout

    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-q", "-m", "Export invoices with due dates")
    first = git("rev-parse", "HEAD").strip()
    log = folder / "llm.jsonl"
    with scripted_model(lab, agent, repository, log, faults, scenario) as port:
        words, variables = command(lab, agent, home, port)
        if hooks is not None:
            install = [sys.executable, "-m", "repotrace", "hooks", "install", hooks, "--user"]
            subprocess.run(install, cwd=repository, env=env, check=True, capture_output=True)
        if record is not None:
            words = [sys.executable, "-m", "repotrace", "record", *record, "--", *words]
        done = subprocess.run(
            words,
            cwd=repository,
            env=env | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=240,
            check=False,
        )
    requests = [json.loads(line) for line in log.read_text().splitlines()]
    diff = git("diff", first)
    return Session(done.returncode, done.stdout, done.stderr, diff, requests, repository, home)


if __name__ == "__main__":
    lab_root, name, *rest = sys.argv[1:]
    chosen = rest[0] if rest else "record"
    ways = {"bare": None, "record": (), "proxy": ("--proxy",), "hooked": (), "hooks": None}
    how = ways[chosen]
    short = {"claude-code": "claude-code", "codex": "codex", "gemini-cli": "gemini"}
    place = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    session = drive(
        Lab(Path(lab_root)),
        name,
        place,
        record=how,
        faults=rest[1] if len(rest) > 1 else None,
        hooks=short.get(name) if chosen.startswith("hook") else None,
    )
    sys.stdout.write(f"{place}\nexit code {session.code}, {len(session.requests)} requests\n")
    sys.stdout.write(session.stdout.decode()[-1500:] + session.stderr.decode()[-3000:])
    sys.stdout.write(session.diff)
