"""Messages that failed alone, and whether that was their own fault."""

from __future__ import annotations

_MOST = 10_000


class Suspects:
    """Remembers messages that failed alone, and whether anything has gone through since.

    Only then are they to blame: otherwise it may as well have been what they were handed to.
    """

    def __init__(self) -> None:
        self._successes = 0
        self._seen: dict[str, int] = {}  # successes when they first failed, oldest first

    def something_worked(self) -> None:
        """Something went through."""
        self._successes += 1

    def failed_alone(self, message_id: str) -> None:
        """A message was tried alone and failed."""
        self._seen.setdefault(message_id, self._successes)
        if len(self._seen) > _MOST:
            del self._seen[next(iter(self._seen))]

    def are_to_blame(self, message_id: str) -> bool:
        """Whether something has gone through since a message failed alone."""
        return self._successes > self._seen.get(message_id, self._successes)
