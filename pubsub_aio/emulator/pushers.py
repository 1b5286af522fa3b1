"""Who pushes for which subscription, and until when."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pubsub_aio.emulator.service import Service
    from pubsub_aio.emulator.subscriptions import Subscription
    from pubsub_aio.emulator.tokens import Tokens

log = logging.getLogger("pubsub_aio.emulator")


class Pushers:
    """Keeps a pusher at work for every push subscription, from `start` to `stop`."""

    def __init__(self, service: Service, tokens: Tokens) -> None:
        self._service = service
        self._tokens = tokens
        self._started = False
        # Not a TaskGroup: the emulator may be entered and left by different tasks.
        self._tasks: dict[Subscription, asyncio.Task[None]] = {}
        service.on_push = self._serve

    def start(self) -> None:
        """Begin to push."""
        self._started = True
        broker = self._service.broker
        broker.unserved.update({s: None for s in broker.subscriptions.values() if s.pushes})
        self._serve()

    async def stop(self) -> None:
        """End every request; what was under way is not acknowledged."""
        self._started = False
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _serve(self) -> None:
        """Give a pusher to every subscription that began to push."""
        if not self._started:
            return
        unserved = self._service.broker.unserved
        for subscription in unserved:
            if subscription not in self._tasks:
                task = asyncio.get_running_loop().create_task(self._push(subscription))
                self._tasks[subscription] = task
        unserved.clear()

    async def _push(self, subscription: Subscription) -> None:
        try:
            # Only now: aiohttp takes its time to import.
            from pubsub_aio.emulator.pusher import Pusher

            # It may begin to push again while its pusher ends.
            while subscription.pushes and (pushing := subscription.pushing):
                await Pusher(self._service, subscription, pushing, self._tokens).run()
        except Exception:
            log.exception("pushing for %s failed", subscription.config.name)
        finally:
            del self._tasks[subscription]
