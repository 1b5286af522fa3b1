"""Messages in batches: gathered, handed over and settled together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import overload

from pubsub_aio._core.batches import Gathering
from pubsub_aio.config import FlowControl, check
from pubsub_aio.message import Message, all_confirmed
from pubsub_aio.subscriber.alarm import Alarm
from pubsub_aio.subscriber.callbacks import WorkerChain
from pubsub_aio.subscriber.custody import Custody

BatchCallback = Callable[["Batch"], Awaitable[object]]


def check_batch(max_messages: int, max_bytes: int, max_latency: float) -> None:
    """Refuse limits of a batch that cannot be."""
    check("max_messages", max_messages, 1, whole=True)
    check("max_bytes", max_bytes, 1, whole=True)
    check("max_latency", max_latency, 0)


def for_batches(max_messages: int, max_bytes: int) -> FlowControl:
    """A flow control with room for four batches, and not less than the usual one."""
    usual = FlowControl()
    return FlowControl(
        max_messages=max(usual.max_messages, 5 * max_messages),
        max_bytes=max(usual.max_bytes, 5 * max_bytes),
        max_request_batch_size=max(usual.max_request_batch_size, max_messages),
    )


class Batch(Sequence[Message]):
    """Messages that are handed over together, in the order they came.

    They can be settled one by one too; `ack` and `nack` are for those that are not settled yet.
    """

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self._messages[index]

    def __repr__(self) -> str:
        return f"Batch({len(self)} messages)"

    @property
    def lease(self) -> object | None:
        """Who keeps it alive; none once all of it is settled. The library's own."""
        for message in self._messages:
            if message.lease is not None:
                return message.lease
        return None

    def ack(self) -> None:
        """Ack every message."""
        for message in self._unsettled():
            message.ack()

    def nack(self, *, delay: float = 0.0) -> None:
        """Nack every message."""
        for message in self._unsettled():
            message.nack(delay=delay)

    async def ack_with_response(self) -> None:
        """Ack every message; returns when the server has confirmed them all.

        Raises:
            ExceptionGroup: Of `SettleError`, one for each that was refused.
        """
        await all_confirmed([message.ack_with_response() for message in self._unsettled()])

    def _unsettled(self) -> list[Message]:
        return [message for message in self._messages if message.lease is not None]


class BatchConsumer:
    """Gathers messages and hands batches to an async callback.

    Args:
        callback: Called with each batch.
        custody: Where the messages come from.
        gathering: When a batch is complete.
    """

    def __init__(
        self, callback: BatchCallback, custody: Custody[Message], gathering: Gathering[Message]
    ) -> None:
        self._custody = custody
        self._gathering = gathering
        self._chain: WorkerChain[Batch] = WorkerChain(callback, self)
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._on_alarm)

    # What the subscription asks of it

    def put(self, messages: list[Message]) -> None:
        """Gather these."""
        now = self._loop.time()
        for message in messages:
            for batch in self._gathering.add(message, size=message.size, now=now):
                self._hand_over(batch)
        self._alarm.set(self._gathering.due_at)

    @property
    def busy(self) -> int:
        """How many callbacks have begun and not ended."""
        return self._chain.busy

    def withdraw(self) -> list[Message]:
        """Take back what has not been begun."""
        waiting = [message for batch in self._chain.withdraw() for message in batch]
        waiting += self._gathering.take()
        self._alarm.set(self._gathering.due_at)
        return waiting

    async def finished(self) -> None:
        """Return when no callback runs."""
        await self._chain.finished()

    async def stop(self, *, timeout: float) -> int:
        """Cancel the callbacks that run; returns how many did not end within the timeout."""
        return await self._chain.stop(timeout=timeout)

    def _on_alarm(self) -> None:
        self._hand_over(self._gathering.take())
        self._alarm.set(self._gathering.due_at)  # that may have let more come

    def _hand_over(self, messages: list[Message]) -> None:
        held = []
        for message in messages:
            if message.lease is not None:
                held.append(message)
            else:  # it was given back while it waited
                self._custody.returned(message)
        if held:
            self._chain.put([Batch(held)])

    # What the callbacks' workers tell it

    @property
    def watch_all(self) -> bool:
        """Whether every callback's end must be told."""
        return self._custody.watch_all

    def returned(self, batch: Batch, /) -> None:
        """A callback ended."""
        for message in batch:
            if message.lease is not None or self._custody.watch_all:
                self._custody.returned(message)

    def raised(self, batch: Batch, error: BaseException, /) -> None:
        """A callback failed: what it has not settled comes again."""
        self._custody.failed(f"a batch of {len(batch)} messages", error)
        for message in batch:
            if message.lease is not None:
                self._custody.nack(message, 0)
            self._custody.returned(message)
