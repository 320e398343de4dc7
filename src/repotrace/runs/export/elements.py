"""HTML that is safe by the way it is made: what is not `Html` is text, and is escaped."""

from __future__ import annotations

from html import escape

from repotrace.readable import readable, visible


class Html(str):
    """Markup of our own."""

    __slots__ = ()


type Child = Html | str | None


def element(tag: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Html:
    """An element; a trailing `_` of an attribute goes, others become `-`. None leaves out."""
    said = "".join(
        f" {key.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{_quoted(visible(str(value)))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in _VOID:
        return Html(f"<{tag}{said}>")
    return Html(f"<{tag}{said}>{join(*children)}</{tag}>")


def _quoted(text: str) -> str:
    return escape(text, quote=False).replace('"', "&quot;")


def join(*children: Child) -> Html:
    """Children one after the other."""
    return Html(
        "".join(
            child if isinstance(child, Html) else escape(visible(child), quote=False)
            for child in children
            if child is not None
        )
    )


def output(text: str) -> Html:
    """What a command printed, as a person would have seen it."""
    return Html(escape(readable(text), quote=False))


_VOID = frozenset({"meta", "br", "input", "hr"})
