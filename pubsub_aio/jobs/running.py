"""Several subscriptions that begin and end together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from pubsub_aio.subscriber.loops import on_signals
from pubsub_aio.subscriber.subscription import Subscription


async def run_together(
    live: Sequence[Subscription],
    meanwhile: Coroutine[Any, Any, None],
    *,
    signals: bool,
    on_stop: Callable[[], None],
) -> None:
    """Return when one of these has ended, or when cancelled; the others have been ended by then.

    Args:
        live: The subscriptions.
        meanwhile: What else is to run as long as they do.
        signals: Whether SIGINT and SIGTERM end them, too.
        on_stop: Called when they are about to be ended.

    Raises:
        PubSubError: What one of them has ended with.
    """

    def stop() -> None:
        on_stop()
        for subscription in live:
            subscription.stop()

    loop = asyncio.get_running_loop()
    with on_signals(loop, stop) if signals else contextlib.nullcontext():
        async with asyncio.TaskGroup() as tasks:
            beside = tasks.create_task(meanwhile)
            try:
                await asyncio.wait(live, return_when=asyncio.FIRST_COMPLETED)
            finally:
                beside.cancel()
                on_stop()
                await _end(live)
    for subscription in live:
        if not subscription.cancelled():
            subscription.result()


async def _end(live: Sequence[Subscription]) -> None:
    """Have all end as they should; who is cancelled meanwhile has them end at once."""
    for subscription in live:
        if not subscription.stopping:
            subscription.stop()
    try:
        await asyncio.wait(live)
    except asyncio.CancelledError:
        for subscription in live:
            subscription.stop()
        await asyncio.wait(live)
        raise
