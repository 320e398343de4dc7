"""Values of a program as the text that a step keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_SIMPLE = (int, float, bool)


def as_text(value: object) -> str | None:
    """Text as it is, structures as JSON, anything else by its `repr`. Never raises."""
    if value is None or type(value) is str:
        return value
    try:
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, bytes | bytearray):
            return bytes(value).decode("utf-8", "replace")
        if isinstance(value, _SIMPLE):
            return str(value)
        if isinstance(value, Mapping | list | tuple):
            import json

            try:
                return json.dumps(value, ensure_ascii=False, default=_plain)
            except (TypeError, ValueError):  # keys that are no text, a list that holds itself
                return repr(value)
        dump = getattr(value, "model_dump_json", None)
        if callable(dump):
            return str(dumped(dump))
        return repr(value)
    except Exception as error:  # whatever a foreign object does when it is looked at
        return f"<{type(value).__name__}, unprintable: {type(error).__name__}>"


def dumped(dump: Callable[..., Any]) -> Any:
    """What a record of Pydantic dumps of itself, without its warnings: they are for its makers."""
    try:
        return dump(warnings=False)
    except TypeError:  # of another make
        return dump()


def is_awaitable(result: object) -> bool:
    """Whether `result` is to be awaited. Never raises."""
    try:
        return hasattr(result, "__await__")
    except Exception:  # a proxy of what is not there
        return False


def failure_of(result: object, step_type: str) -> str | None:
    """What a result says of itself: not passed, or an exit code that is not 0."""
    if result is None or isinstance(result, str | bytes | int | float):
        return None
    try:
        said = result.get("passed") if isinstance(result, dict) else getattr(result, "passed", None)
        code = None
        if step_type in ("command", "test"):
            code = getattr(result, "returncode", None)
    except Exception:  # a proxy of what is not there
        return None
    if said is False:
        return "not passed"
    return f"exit code {code}" if isinstance(code, int) and code != 0 else None


def _plain(value: object) -> Any:
    dump = getattr(value, "model_dump", None)
    return dumped(dump) if callable(dump) else repr(value)


def call_text(function: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """The arguments of a call as text, without `self`; None if there are none."""
    code = getattr(function, "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code is not None else ()
    if args and names and names[0] in ("self", "cls"):
        args, names = args[1:], names[1:]
    if not args and not kwargs:
        return None
    if len(args) == 1 and not kwargs and isinstance(args[0], str):
        return args[0]
    known = {
        (names[number] if number < len(names) else f"*{number}"): value
        for number, value in enumerate(args)
    }
    return as_text({**known, **kwargs})
