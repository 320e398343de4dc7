"""`repotrace version`."""

from __future__ import annotations

import typer

from repotrace import __version__


def version() -> None:
    """Print the installed version"""
    typer.echo(__version__)
