"""Records whose large fields are loaded when they are first read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from pydantic import PrivateAttr, SerializerFunctionWrapHandler, model_serializer

from repotrace.records.base import Record


class LazyRecord(Record):
    """A record some of whose fields may be pending.

    Pending fields are declared like all others and never look different: reading, comparing,
    dumping and pickling load them. Loading may fail as its loader does.
    """

    _pending: Mapping[str, Callable[[], Any]] = PrivateAttr(default_factory=dict)

    @classmethod
    def pending(cls, fields: dict[str, Any], loaders: Mapping[str, Callable[[], Any]]) -> Self:
        """A record of valid `fields`, unchecked; each other field must have a loader."""
        record = cls.__new__(cls)
        object.__setattr__(record, "__dict__", fields)
        object.__setattr__(record, "__pydantic_fields_set__", {*fields, *loaders})
        object.__setattr__(record, "__pydantic_extra__", None)
        object.__setattr__(record, "__pydantic_private__", {"_pending": loaders})
        return record

    def load(self) -> Self:
        """The same record with nothing pending."""
        if self._pending:
            # In the declared order, so that dumps do not tell what was read first.
            fields = {name: getattr(self, name) for name in type(self).model_fields}
            object.__setattr__(self, "__dict__", fields)
        return self

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Reached only for what is not in __dict__. A loader is kept after its use: copies
            # of the record share it.
            private = object.__getattribute__(self, "__pydantic_private__")
            loader = private["_pending"].get(name) if private else None
            if loader is None:
                return super().__getattr__(name)
            return self.__dict__.setdefault(name, loader())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LazyRecord) or type(other) is not type(self):
            return NotImplemented
        return self.load().__dict__ == other.load().__dict__

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[Any, Any]:
        state = self.load().model_copy()
        object.__setattr__(state, "__pydantic_private__", {"_pending": {}})
        return super(LazyRecord, state).__getstate__()

    @model_serializer(mode="wrap")
    def _serialize(self, serialize: SerializerFunctionWrapHandler) -> Any:
        return serialize(self.load())
