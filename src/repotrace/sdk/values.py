"""Values of a program as the text that a step keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SIMPLE = (int, float, bool)


def as_text(value: object) -> str | None:
    """Text as it is, structures as JSON, anything else by its `repr`. Never raises."""
    if value is None or isinstance(value, str):
        return value
    try:
        if isinstance(value, bytes | bytearray):
            return bytes(value).decode("utf-8", "replace")
        if isinstance(value, _SIMPLE):
            return str(value)
        if isinstance(value, Mapping | list | tuple):
            import json

            return json.dumps(value, ensure_ascii=False, default=_plain)
        dump = getattr(value, "model_dump_json", None)
        if callable(dump):
            return str(dump())
        return repr(value)
    except Exception as error:  # whatever a foreign object does when it is looked at
        return f"<{type(value).__name__}, unprintable: {type(error).__name__}>"


def _plain(value: object) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) else repr(value)


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
