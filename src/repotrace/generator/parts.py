"""Imports and functions of a generated test, collected as they turn out to be needed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

_ORDER = (
    "run",
    "environment",
    "masked",
    "restored",
    "moved",
    "places",
    "working_folder",
    "virtual_environment",
    "base_python",
    "replaced",
    "hidden",
    "shortened",
    "text",
)
"""From what is told to what it takes."""


@dataclass
class Parts:
    """What the test takes, each thing once."""

    functions: dict[str, list[str]] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    _modules: set[str] = field(default_factory=set)
    _names: set[tuple[str, str]] = field(default_factory=set)

    def use(self, *modules: str) -> None:
        """Import these modules."""
        self._modules.update(modules)

    def use_from(self, module: str, *names: str) -> None:
        """Import these names from a module."""
        self._names.update((module, name) for name in names)

    def add(self, lines: list[str]) -> None:
        """Define a function, unless there is one of its name."""
        name = lines[0].removeprefix("def ").partition("(")[0]
        self.functions.setdefault(name, lines)

    def copy(self, function: Callable[..., object], *modules: str) -> None:
        """Define a copy of `function`, which uses these modules."""
        self.use(*modules)
        self.add(inspect.getsource(function).rstrip().split("\n"))

    def definitions(self) -> list[list[str]]:
        """The functions, as one reads them best."""
        return [self.functions[name] for name in sorted(self.functions, key=_ORDER.index)]

    def import_block(self) -> str:
        """All imports: of the standard library first, then pytest."""
        standard = sorted(self._modules - {"pytest"})
        lines = [f"import {module}" for module in standard]
        for module in sorted({module for module, _ in self._names}):
            names = ", ".join(sorted(name for owner, name in self._names if owner == module))
            lines.append(f"from {module} import {names}")
        blocks = ["\n".join(lines)] if lines else []
        if self.functions:
            blocks.insert(0, "from __future__ import annotations")
        if "pytest" in self._modules:
            blocks.append("import pytest")
        return "\n\n".join(blocks)
