"""This library's client, in each of the ways that are measured."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from tests.bench.subscriber_feed import SIZE, STAMP
from tests.bench.subscriber_trial import MOST_HELD, PROJECT, WINDOW, Figures, Trial

if TYPE_CHECKING:
    from pubsub_aio import Message
    from pubsub_aio.subscriber.arrow import ArrowBatch


async def callback(trial: Trial) -> Figures:
    """An async callback that never waits, default settings."""
    from pubsub_aio import SubscriberClient

    seen = trial.seen

    async def untimed(message: Message) -> None:
        seen.append(len(message.data))
        message.ack()

    async def timed(message: Message) -> None:
        seen.append(time.monotonic_ns() - int(message.data[:STAMP]))
        message.ack()

    async with SubscriberClient(project=PROJECT) as client:
        chosen = timed if trial.kind == "latency" else untimed
        return await trial.measure_beside(client.subscribe(trial.subscription, chosen))


async def suspends(trial: Trial) -> Figures:
    """A callback that waits once, as one that calls another service would."""
    from pubsub_aio import SubscriberClient

    seen = trial.seen

    async def on_message(message: Message) -> None:
        seen.append(len(message.data))
        await asyncio.sleep(0)
        message.ack()

    async with SubscriberClient(project=PROJECT) as client:
        return await trial.measure_beside(client.subscribe(trial.subscription, on_message))


async def arrow(trial: Trial) -> Figures:
    """Record batches, default settings."""
    from pubsub_aio import SubscriberClient

    seen = trial.seen

    async def on_batch(batch: ArrowBatch) -> None:
        # The bytes of a whole column are one step in Arrow: what is noted is rows of that size.
        seen.extend([SIZE] * batch.records.num_rows)
        batch.ack()

    async with SubscriberClient(project=PROJECT) as client:
        return await trial.measure_beside(client.subscribe_arrow(trial.subscription, on_batch))


async def held(trial: Trial) -> Figures:
    """The first messages are kept, and traffic passes them by.

    Everything but the number held is the same for any number. In a trial of traffic a lease lasts
    so long that none is renewed meanwhile; a trial of renewals has the default settings for that.
    """
    from pubsub_aio import FlowControl, SubscriberClient

    kept: list[Message] = []
    seen, most = trial.seen, trial.held

    async def on_message(message: Message) -> None:
        seen.append(len(message.data))
        if len(kept) < most:
            kept.append(message)
        else:
            message.ack()

    def settle() -> None:
        for message in kept:
            message.ack()

    limit = (MOST_HELD + WINDOW) * 5 // 4  # leasing goes on below four fifths of it
    flow_control = (
        FlowControl(max_messages=limit)
        if trial.kind == "renewals"
        else FlowControl(max_messages=limit, min_duration_per_lease_extension=600)
    )
    async with SubscriberClient(project=PROJECT) as client:
        keep_alive = client.subscribe(trial.subscription, on_message, flow_control=flow_control)
        return await trial.measure_beside(keep_alive, settle=settle)
