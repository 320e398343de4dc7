"""The programs that `kill_test.py` records, kills, starves of disk and plants secrets in.

Each is an ordinary program that uses the SDK. Started as `python victims.py NAME …`; what it did
goes to a pipe, unbuffered and only after the call that recorded it has returned, so that whoever
reads the pipe knows what must be there after a SIGKILL.
"""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
from pathlib import Path

from repotrace import (
    TraceHandler,
    TracingExecutor,
    child_environment,
    record_llm,
    record_log,
    run_command,
    run_tests,
    span,
    trace_agent,
)

# --- What is said, and when -----------------------------------------------------------------


def words(seed: int, step: int, kind: str) -> str:
    """The text that a step of the agent has for input, output or log; some are long."""
    chance = random.Random(f"{seed} {step} {kind}")
    length = chance.choice((3, 40, 40, 200, 200, 1_000, 30_000))
    return f"{kind} {seed}.{step} " + "".join(chance.choices("etaoin shrdlu\n", k=length))


def acknowledge(pipe: int, **facts: object) -> None:
    """Tell what has been recorded; one write, nothing is held back."""
    os.write(pipe, json.dumps(facts).encode() + b"\n")


# --- To be killed ---------------------------------------------------------------------------


def agent(pipe: int, workspace: Path, seed: int, *, states: bool) -> None:
    """Steps without end: model calls, edits of files, tools with steps inside, messages."""

    @trace_agent(name=f"victim-{seed}", workspace=workspace, states=states)
    def work() -> None:
        for number in range(1, 1_000_000):
            kind = ("llm", "edit", "planning", "tool")[number % 4]
            with span(f"step {number}", type=kind, input=words(seed, number, "input")) as step:
                acknowledge(pipe, did="started", id=step.id, step=number, run=step.run_id)
                entry = record_log(words(seed, number, "log"), number=number)
                acknowledge(pipe, did="logged", id=entry, step=number)
                if kind == "llm":
                    call = record_llm(
                        words(seed, number, "answer"), prompt="go on", model="some-model", tokens=7
                    )
                    acknowledge(pipe, did="called", id=call, step=number)
                elif kind == "edit":
                    (workspace / f"file{number % 3}.txt").write_text(words(seed, number, "file"))
                elif kind == "tool":
                    with span(f"inside {number}") as inner:
                        acknowledge(pipe, did="started", id=inner.id, step=-number)
                        inner.output = words(seed, -number, "output")
                    acknowledge(pipe, did="ended", id=inner.id, step=-number)
                step.output = words(seed, number, "output")
            acknowledge(pipe, did="ended", id=step.id, step=number, kind=kind)

    work()


# --- Many at once ---------------------------------------------------------------------------


def conductor(workspace: Path, writers: int, steps: int) -> None:
    """One run, and as many processes as are asked for that write `steps` steps each into it."""

    @trace_agent(name="conductor", workspace=workspace, states=False)
    def work() -> list[int]:
        children = []
        for number in range(writers):
            if number % 3 == 0:  # a fork shares all that this process has open
                child = os.fork()
                if child == 0:
                    try:
                        write_steps(number, steps)
                    finally:
                        os._exit(0)
                children.append(child)
                continue
            threads = 4 if number % 3 == 1 else 1
            command = [sys.executable, __file__, "writer", str(number), str(steps), str(threads)]
            children.append(subprocess.Popen(command, env=child_environment()).pid)
        return [os.waitpid(child, 0)[1] for child in children]

    if any(work()):
        sys.exit("a writer failed")


def write_steps(number: int, steps: int, threads: int = 1) -> None:
    """Steps of one writer, in as many threads as are asked for."""

    def step(which: int) -> None:
        with span(f"writer {number} step {which}", input=f"{which} of {steps}") as one:
            record_log(f"message {number}.{which}")
            one.output = which

    if threads == 1:
        for which in range(steps):
            step(which)
        return
    with TracingExecutor(threads) as pool:
        list(pool.map(step, range(steps)))


# --- A full disk ----------------------------------------------------------------------------


def unlucky(pipe: int, workspace: Path, steps: int) -> None:
    """Goes on while the disk is full, waits for room, goes on; its result must be right."""

    @trace_agent(name="unlucky", workspace=workspace, states=False)
    def work() -> int:
        total = 0
        for number in range(steps):
            if number == steps - 5:
                acknowledge(pipe, waiting=True)
                sys.stdin.readline()
            with span(f"step {number}", input="x" * 5_000) as step:
                record_log(f"message {number}")
                total += number
                step.output = "y" * 5_000
        return total

    print(f"the sum is {work()}")
    sys.exit(3)


def editor(pipe: int, workspace: Path) -> None:
    """Edits what does not fit on the disk, then, when there is room, what does."""

    @trace_agent(name="editor", workspace=workspace)
    def work() -> None:
        with span("too large", type="edit"):
            (workspace / "large.bin").write_bytes(random.Random(1).randbytes(6 << 20))
        acknowledge(pipe, waiting=True)
        sys.stdin.readline()
        with span("small", type="edit"):
            (workspace / "large.bin").unlink()
            (workspace / "small.txt").write_text("small\n")

    work()
    print("edited")


# --- Secrets --------------------------------------------------------------------------------


def careless(workspace: Path, secrets: dict[str, str]) -> None:
    """Says every secret wherever a program can say something."""
    token, password, key = secrets["token"], secrets["password"], secrets["private_key"]
    named, loaded = secrets.pop("named"), secrets.pop("loaded")
    everything = "\n".join(secrets.values())
    logger = logging.getLogger("careless")
    logger.addHandler(TraceHandler())
    (workspace / "settings.env").write_text(everything)

    class Client:
        def __repr__(self) -> str:
            return f"Client(password={password!r}, token={token!r})"

    @trace_agent(name="careless", workspace=workspace, note=everything)
    def work(task: str) -> str:
        with span("prompt", type="llm", input=everything, header=secrets["bearer"]) as call:
            record_llm(
                everything,
                messages=[
                    {"role": "system", "content": f"Connect to {secrets['url']}"},
                    {"role": "user", "content": [{"type": "text", "text": key}]},
                    {"role": "tool", "content": json.dumps({"password": password, "t": token})},
                ],
                model="some-model",
            )
            call.output = {"nested": [Client(), {"DEPLOY_PASSWORD": password}, {token: token}]}
        os.environ["LATE_PASSWORD"] = loaded
        with span("loaded", input=f"as late as this: {loaded}", password=named):
            record_log(loaded, env=[{"name": "DB_PASSWORD", "value": named}], password=[named])
            record_log(f"mysql --password={named}", argv=["mysql", "--password", named])
        del os.environ["LATE_PASSWORD"]
        with span(f"name {token}", type="tool", api_key=token) as tool:
            tool.output = f"after {loaded}"
            tool.set(
                **{token: "a name"},
                reason=f"because {password}",
                when={"authorization": secrets["bearer"]},
            )
            record_log("data", entries=[everything, {"token": token, token: [token]}], at=Client())
            logger.warning("connecting to %s", secrets["url"])
            try:
                raise ValueError(f"cannot log in with {password} and {token}")
            except ValueError:
                logger.exception("failed")
        run_command(f"cat settings.env; echo {token} >&2; exit 3")
        run_command(["printenv", "DEPLOY_PASSWORD"], input=everything)
        (workspace / "test_secret.py").write_text(
            "import os\n"
            "def test_secret():\n"
            "    words = open('settings.env').read()\n"
            "    print(words)\n"
            "    assert os.environ['DEPLOY_PASSWORD'] == words\n"
        )
        run_tests([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"])
        try:
            with span("fails", type="edit"):
                (workspace / "key.txt").write_text(key)
                raise RuntimeError(f"{key}\nleft {token}")
        except RuntimeError:
            pass
        return everything

    work(everything)


def main() -> None:
    name, *rest = sys.argv[1:]
    if name == "agent":
        pipe, workspace, seed, states = rest
        agent(int(pipe), Path(workspace), int(seed), states=states == "states")
    elif name == "conductor":
        conductor(Path(rest[0]), int(rest[1]), int(rest[2]))
    elif name == "writer":
        write_steps(*map(int, rest))
    elif name == "unlucky":
        unlucky(int(rest[0]), Path(rest[1]), int(rest[2]))
    elif name == "editor":
        editor(int(rest[0]), Path(rest[1]))
    elif name == "careless":
        careless(Path(rest[0]), json.load(sys.stdin))


if __name__ == "__main__":
    main()
