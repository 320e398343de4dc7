"""A run in whose every field something tries to act."""

from __future__ import annotations

from typing import Any

from recording import NOON, RUN, event

from repotrace.records.blame import (
    Blame,
    BlamedBreak,
    BlamedHunk,
    BlamedStep,
    Evidence,
    SeenByAgent,
)
from repotrace.storage import Store
from repotrace.storage.memo import KeptVerdict

MARK = "inertmark"
"""A word of the payload that has to be readable on every page."""

EVIL = (
    f"{MARK} <script>document.title='owned'</script>"
    "\"'><img src=http://evil.example/x.png onerror=\"document.title='owned'\">"
    "</summary></details></pre></code></td></table></style></title></body></html>"
    "<style>*{display:none}</style><svg/onload=document.title='owned'>"
    "<iframe src=javascript:top.document.title='owned'></iframe><a href=javascript:1>x</a>"
    "<meta http-equiv=refresh content=0;url=http://evil.example/>"
    "<base href=http://evil.example/><form action=http://evil.example/><input autofocus onfocus=1>"
    " [x](javascript:1) ![x](http://evil.example/y.png) @everyone #1 `tick` ``` ~~~ **b** | a | b |"
    " &lt;b&gt; &#60;b&#62; --> <!-- ]]> ${7*7} {{7*7}} \u202etxt\u202c \x1b[31mred\x1b[0m\x07"
)
LINES = (
    f"{EVIL}\n# heading\n```\n</details>\n- item\n\n<b>bold</b>\n===\n> quote\n\n    code {EVIL}\n"
)


def record_hostile(store: Store, *, run: str = RUN) -> None:
    """The run, with states, tests, messages and a verdict."""
    before, after = (f"x = 1\n{LINES}".encode(), f"x = 2\n{LINES}".encode())
    ids = store.snapshots.keep(f"runs/{run}", before, after)

    def say(kind: str, seconds: float, **data: Any) -> Any:
        return event(kind, seconds, run=run, **data)

    message = {"role": EVIL, "content": [
        {"type": "text", "text": LINES}, {"type": "thinking", "text": LINES},
        {"type": "tool_call", "name": EVIL, "arguments": {EVIL: LINES}},
        {"type": "tool_result", "content": LINES}, {"type": EVIL, "x": EVIL},
    ]}  # fmt: skip
    events = [
        say("run_started", 0, task=LINES, task_id=EVIL, agent=EVIL, agent_version=EVIL,
            source="sdk", tags=[EVIL], environment=EVIL, workspace="/w", outcome="failed",
            error=EVIL, base_commit=EVIL, models=[EVIL], attributes={EVIL: EVIL}),
        say("step_started", 1, id="a", step_type=EVIL, description=LINES, reason=LINES,
            input_context=LINES, metadata={"tool": EVIL, EVIL: EVIL}, label=EVIL),
        say("llm", 1, id="l", step_id="a", model=EVIL, provider=EVIL, prompt=LINES, response=LINES,
            messages=[message], response_message=message, purpose=EVIL, error=EVIL, tokens_used=9),
        say("log", 1, step_id="a", level=EVIL, message=LINES, logger=EVIL, data={EVIL: EVIL}),
        say("log", 1, message=LINES),
        say("file_read", 1, step_id="a", file_path=EVIL),
        say("step_ended", 2, id="a", status="failed", error=LINES, output_result=LINES),
        say("step_started", 3, id="b", step_type="edit", description=EVIL, attempt=2, retry_of="a",
            reason=EVIL, parent_id="a"),
        say("file_operation", 3, step_id="b", operation_type="edit", file_path=f"{EVIL}.py",
            before_id=ids[0], after_id=ids[1], lines_added=1, lines_removed=1),
        say("file_operation", 3, step_id="b", operation_type="create", file_path="page.html",
            after_id=ids[1], renamed_from=EVIL),
        say("step_ended", 4, id="b", status=EVIL),
        say("step_started", 5, id="c", step_type="test", description=EVIL, parent_id="a"),
        say("command", 5, id="k", step_id="c", is_test=True,
            command={"argv": ["pytest", EVIL], "exit_code": 1, "stdout": LINES, "stderr": LINES,
                     "cwd": EVIL}),
        say("test", 5, step_id="c", command_id="k", node_id=f"t.py::{EVIL}", outcome="failed",
            message=EVIL, details=LINES),
        say("step_ended", 6, id="c", status="failed"),
        say("run_ended", 7, status="completed"),
    ]  # fmt: skip
    store.runs.add_events(events)
    broken = BlamedBreak(
        steps=(2,), verdict="proven", passes_after=1, fails_after=2, passed=1, failed=1, odds=0.001,
        chance=EVIL, message=EVIL, hunks=(BlamedHunk(path=EVIL, lines=(f"+{EVIL}",)),),
        necessary=True,
    )  # fmt: skip
    blame = Blame(
        id="b1", run_id=run, test=f"t.py::{EVIL}", command=EVIL, verdict="proven", reason=EVIL,
        named=True, until=3, created_at=NOON, breaks=(broken,), message=EVIL, inferred=True,
        steps=(BlamedStep(number=2, step_type="edit", description=EVIL, model=EVIL, reason=EVIL),),
        seen=SeenByAgent(runs=1, first_step=3, first_result=EVIL), notes=(EVIL,),
        evidence=(Evidence(purpose=EVIL, state_id="x", kind="passed", note=EVIL),), executions=4,
    )  # fmt: skip
    kept = KeptVerdict("b1", run, blame.test, "proven", NOON, blame.model_dump(mode="json"))
    store.memo.keep_verdict(kept)
