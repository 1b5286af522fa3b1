"""What is wrong with a definition, or with a message that should fit one."""

from __future__ import annotations

from typing import Self


class SchemaError(ValueError):
    """A definition is no definition, or a message does not fit it.

    Attributes:
        why: What is wrong.
        path: Where: the fields that lead there, from the outermost.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path: list[str] = []

    def within(self, field: str) -> Self:
        """The same error, as it looks from around a field."""
        self.path.insert(0, field)
        return self

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.why}" if self.path else self.why
