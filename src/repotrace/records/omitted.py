"""What an exported part of a run does not hold of it."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from repotrace.records.base import Record


class Omitted(Record):
    """What of the run is not in the document."""

    from_step: int | None = None
    to_step: int | None = None
    llm: bool = False
    """Texts of conversations."""
    files: bool = False
    """Contents of files."""
    max_bytes: int | None = None
    """Longer texts are cut, longer contents missing."""

    @classmethod
    def noted(cls, left_out: Mapping[str, object]) -> Omitted:
        """As a home has noted it of a run that came from a file; nothing where that is odd."""
        try:
            return cls.model_validate(left_out)
        except ValidationError:  # somebody changed the note
            return cls()

    @property
    def told(self) -> tuple[str, ...]:
        """What is missing, in words; none for a whole run."""
        facts = (
            (self.from_step is not None, f"steps before {self.from_step}"),
            (self.to_step is not None, f"steps after {self.to_step}"),
            (self.llm, "what models were asked and answered"),
            (self.files, "contents of files"),
            (self.max_bytes is not None, f"the middle of texts over {self.max_bytes} bytes"),
        )
        return tuple(words for is_so, words in facts if is_so)

    def beside(self, other: Omitted) -> Omitted:
        """What is missing in a part of this that lacks `other`."""
        limits = [n for n in (self.max_bytes, other.max_bytes) if n is not None]
        first = [n for n in (self.from_step, other.from_step) if n is not None]
        last = [n for n in (self.to_step, other.to_step) if n is not None]
        return Omitted(
            from_step=max(first, default=None),
            to_step=min(last, default=None),
            llm=self.llm or other.llm,
            files=self.files or other.files,
            max_bytes=min(limits, default=None),
        )
