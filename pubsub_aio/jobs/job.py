"""A job, as those see it who perform it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any, Self

from pubsub_aio.jobs import attributes as names
from pubsub_aio.message import Message


class Job:
    """A message that is to be worked on, and what is known of earlier attempts.

    It is done when its handler returns, and has failed when that raises; whoever handles it does
    not ack.
    """

    # Made for every message: what is read from the message is read when asked for.
    __slots__ = ("attempt", "body", "message")

    message: Message
    """The message that brought it."""

    attempt: int
    """How often it is tried in this round, this time included, as far as is known: a worker that
    dies forgets it, unless the server counts."""

    body: Any
    """Its data as `decode` has made it; there is none without that."""

    @classmethod
    def of(cls, message: Message, *, max_attempts: int = sys.maxsize) -> Self:
        """The job that a message brings, to be tried for the first time since it came.

        What the server counts are deliveries: those that were cut off were attempts, too.
        """
        job = cls()
        job.message = message
        job.attempt = min(message.delivery_attempt or 1, max_attempts)
        return job

    @property
    def data(self) -> bytes:
        """What was published."""
        return self.message.data

    @property
    def attributes(self) -> dict[str, str]:
        """What was published with it, and what the library has added."""
        return self.message.attributes

    @property
    def ordering_key(self) -> str:
        """Jobs with the same key are done one after another in a queue that is FIFO."""
        return self.message.ordering_key

    @property
    def id(self) -> str:
        """Its id, the same each time that it is tried or returns.

        That of the message if it was put without one; then it has another once the server itself
        has made it a dead letter, which does not keep it.
        """
        return self.message.attribute(names.JOB_ID) or self.message.message_id

    @property
    def resurrections(self) -> int:
        """How often it returned from the dead letters."""
        return names.resurrections_of(self.message.attributes)

    @property
    def persistent(self) -> bool:
        """Whether it must be done, however late."""
        return names.is_persistent(self.message.attributes)

    @property
    def expires_at(self) -> datetime | None:
        """Until when it is worth something; none if it does not say, or not so that we know."""
        try:
            seconds = names.expiry_of(self.message.attributes)
        except ValueError:
            return None
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)

    def __repr__(self) -> str:
        return f"Job(id={self.id!r}, attempt={self.attempt}, resurrections={self.resurrections})"
