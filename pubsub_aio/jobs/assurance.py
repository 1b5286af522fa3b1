"""That somebody keeps what is published: a topic without a subscription loses it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pubsub_aio.errors import ClosedError, ConfigError, PubSubError
from pubsub_aio.subscriber.schedulers import is_async

log = logging.getLogger("pubsub_aio.jobs")

Ensure = Callable[[], Awaitable[object]]
"""Creates topics and their subscriptions, as far as they are missing."""

_SAY_EVERY = 60  # times that it was looked in vain


class Assurance:
    """Sees to it that topics have their subscriptions: once, and again when there is a doubt.

    Args:
        ensure: Creates what is missing; none if that is for somebody else to do.

    Raises:
        ConfigError: It cannot be awaited.
    """

    def __init__(self, ensure: Ensure | None) -> None:
        if ensure is not None and not is_async(ensure):
            raise ConfigError(f"ensure must be an async function without arguments, not {ensure!r}")
        self._ensure = ensure
        self._sure = ensure is None
        self._doubts = 0
        self._looking = asyncio.Lock()
        self._looks = self._in_vain = 0

    async def __call__(self) -> None:
        """Look now.

        Raises:
            PubSubError: What is missing cannot be created.
        """
        if self._ensure is None:
            return
        doubts = self._doubts
        try:
            await self._ensure()
            self._sure = self._doubts == doubts
        finally:
            self._looks += 1

    def doubt(self) -> None:
        """Be sure of nothing until the next look: something may be gone."""
        self._sure = self._ensure is None
        self._doubts += 1

    async def is_given(self) -> bool:
        """Whether it is sure by now; one look is enough for all that wait for it."""
        if not self._sure:
            looks = self._looks
            async with self._looking:
                if not self._sure and self._looks == looks:
                    await self._look()
        return self._sure

    async def _look(self) -> None:
        try:
            await self()
        except ClosedError:
            raise
        except PubSubError as error:
            if self._in_vain % _SAY_EVERY == 0:
                log.warning("nothing is published until somebody is sure to keep it: %s", error)
            self._in_vain += 1
        else:
            self._in_vain = 0
