"""What is held: a message, or many of them as one."""

from __future__ import annotations

from typing import Protocol, Self

from pubsub_aio._core.lanes import Place


class Held(Protocol):
    """What custody knows of a message."""

    lease: object | None

    @property
    def message_id(self) -> str:
        """What it has in common with its copies."""

    @property
    def ordering_key(self) -> str:
        """What it must not overtake."""

    @property
    def place(self) -> Place:
        """Where it is among the messages of its key."""

    @property
    def ack_id(self) -> str:
        """The id of this delivery."""

    @property
    def size(self) -> int:
        """Its bytes."""

    def renew_with(self, copy: Self) -> None:
        """Take over the ack id of another delivery of the same message, and leave it the own."""
