"""Messages that failed alone, when it was not sure that they were to blame."""

from __future__ import annotations

_MOST = 10_000


class Suspects:
    """Remembers messages that failed alone, and whether anything has gone through since.

    A message that failed, and fails again after others went through, is to blame; without that, it
    may as well have been whatever it was handed to.
    """

    def __init__(self) -> None:
        self._successes = 0
        self._seen: dict[str, int] = {}  # successes when they first failed, oldest first

    def worked(self) -> None:
        """Something went through."""
        self._successes += 1

    def blame(self, message_id: str) -> bool:
        """A message failed alone; returns whether it is to blame."""
        if message_id not in self._seen:
            self._seen[message_id] = self._successes
            if len(self._seen) > _MOST:
                del self._seen[next(iter(self._seen))]
        return self._successes > self._seen[message_id]
