"""Which endpoint to publish to; those that fail are left alone until they answer again."""

from __future__ import annotations

from collections.abc import Collection


class Endpoints:
    """Endpoints by their numbers, the preferred one first.

    Args:
        count: How many there are.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self.isolated: set[int] = set()
        """Those that have failed and not answered since; they are used only if all have."""

    def choose(self, tried: Collection[int] = ()) -> int:
        """The endpoint for an attempt, after those that were tried; the last one tried is last."""
        candidates = self._candidates()
        for candidate in candidates:
            if candidate not in tried:
                return candidate
        last = list(tried)[-1]
        return next((n for n in candidates if n > last), candidates[0])

    def untried(self, tried: Collection[int]) -> int:
        """How many endpoints are left of those that attempts choose from."""
        return len([n for n in self._candidates() if n not in tried])

    def _candidates(self) -> list[int]:
        return [n for n in range(self._count) if n not in self.isolated] or list(range(self._count))

    def of_key(self, key_hash: int) -> int:
        """The endpoint of an ordering key: always the same, isolated or not."""
        return key_hash % self._count

    def failed(self, endpoint: int) -> bool:
        """An endpoint could not be reached; returns whether it is isolated now and was not."""
        if self._count == 1 or endpoint in self.isolated:
            return False
        self.isolated.add(endpoint)
        return True

    def answered(self, endpoint: int) -> bool:
        """An endpoint has answered; returns whether it was isolated."""
        if endpoint not in self.isolated:
            return False
        self.isolated.discard(endpoint)
        return True
