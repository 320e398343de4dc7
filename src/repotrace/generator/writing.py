"""From a failure to the file of its test."""

from __future__ import annotations

import ast
import keyword
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from repotrace.config import UserRule
from repotrace.errors import ReportExists, RepoTraceError
from repotrace.generator.expectation import Check
from repotrace.generator.module import source_of
from repotrace.generator.needs import Expect, Needs, needs_of
from repotrace.generator.reproduction import Reproduction, as_reproduction
from repotrace.records.bug import BugReport
from repotrace.records.trace import Trace
from repotrace.storage.files import write_document

type Source = Reproduction | Trace | BugReport


class InvalidTestName(RepoTraceError, ValueError):
    """A name that no test function can have."""


def generate_test(
    source: Source,
    *,
    function_name: str | None = None,
    match_output: bool = True,
    exact: bool = False,
    expect: Literal["failure", "fixed"] = "failure",
    path: Path | str | None = None,
    user_rules: Sequence[UserRule] = (),
) -> str:
    """The source of a standalone pytest test for `source`.

    The test runs the recorded command and passes while it behaves as recorded, whatever is
    volatile in its output left aside; with `expect="fixed"` it passes once the command no
    longer fails. Without `match_output` only the exit code counts; with `exact` every byte
    of the output. `path`: where the file will be, from which the test finds the folder to
    run in. `function_name` is by default `test_regression_<id>`. `user_rules`: what may differ
    beyond that, as in the settings of the project.

    Raises NoCommand if `source` holds no command, InvalidTestName (both are ValueErrors),
    TypeError for another source, RepoTraceError if there is nothing that a test could check.
    """
    reproduction = as_reproduction(source)
    needs = needs_of(
        reproduction,
        path=None if path is None else Path(path),
        match_output=match_output,
        exact=exact,
        expect=expect,
        user_rules=user_rules,
    )
    _check_checkable(needs)
    name = function_name if function_name is not None else _default_name(reproduction)
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InvalidTestName(
            f"{name!r} is no name for a function.", hint="Give another with: --name test_NAME"
        )
    text = source_of(needs, name, _closing(needs))
    tree = ast.parse(text)
    if _defined(tree)[name] != 1:
        raise InvalidTestName(
            f"{name!r} already means something else in the test.",
            hint="Give another with: --name test_NAME",
        )
    compile(tree, "<generated test>", "exec")
    return text


def write_test(
    source: Source,
    path: Path | str,
    *,
    function_name: str | None = None,
    match_output: bool = True,
    exact: bool = False,
    expect: Literal["failure", "fixed"] = "failure",
    overwrite: bool = False,
    user_rules: Sequence[UserRule] = (),
) -> Path:
    """Write `generate_test` to `path`, at once, making its folders. Returns the path.

    Raises ReportExists (a FileExistsError) if the file exists and `overwrite` is false,
    RepoTraceError if it cannot be written, and what `generate_test` raises.
    """
    destination = Path(path)
    text = generate_test(
        source,
        function_name=function_name,
        match_output=match_output,
        exact=exact,
        expect=expect,
        path=destination,
        user_rules=user_rules,
    )
    try:
        write_document(destination, text, overwrite=overwrite)
    except FileExistsError as error:
        raise ReportExists(
            f"{destination} already exists.", hint="Replace it with: --overwrite"
        ) from error
    except OSError as error:
        raise RepoTraceError(f"{destination} cannot be written: {error.strerror}.") from error
    return destination


def describe(source: Source, expect: Literal["failure", "fixed"]) -> str:
    """One line that says when the generated test passes."""
    failed = as_reproduction(source).recorded.failed
    return _meaning(failed=failed, expect=expect)


def _meaning(*, failed: bool, expect: Expect) -> str:
    if expect == "fixed":
        if failed:
            return "the test fails until the failure is fixed"
        return "the test fails until the output changes"
    if failed:
        return "the test passes while the failure stays the same"
    return "the test passes while the command behaves as recorded"


def _closing(needs: Needs) -> str:
    text = _meaning(failed=needs.run.failed, expect=needs.expect)
    return f"{text[0].upper()}{text[1:]}."


def _default_name(reproduction: Reproduction) -> str:
    slug = re.sub(r"[^0-9a-zA-Z]+", "_", reproduction.report_id or "").strip("_").lower()
    return f"test_regression_{slug[:57] or 'captured'}"


def _check_checkable(needs: Needs) -> None:
    """Raises RepoTraceError for a test that would pass, or fail, whatever happens."""
    checks = {stream.check for stream in needs.expectation.streams}
    if needs.expect == "fixed" and not needs.run.failed and Check.EQUAL not in checks:
        raise RepoTraceError(
            "The command succeeded and its output is not compared, so nothing tells a fix.",
            hint="Leave --exit-code-only or --expect fixed out.",
        )
    if not needs.exit_code_known and not checks & {Check.EQUAL, Check.BEGINNING}:
        raise RepoTraceError(
            "The exit code was not recorded, so there is nothing to check.",
            hint="Capture the command again with: repotrace capture COMMAND…",
        )


def _defined(tree: ast.Module) -> Counter[str]:
    """How often each name is given a meaning at the top of the module."""
    names: Counter[str] = Counter()
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name):
                names[name] += 1
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names.update(alias.name for alias in aliases)
            case ast.Assign(targets=[ast.Name(id=name)]):
                names[name] += 1
    return names
