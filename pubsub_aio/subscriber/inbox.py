"""Messages for `async for`: they wait here until they are asked for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable

from pubsub_aio.message import Message
from pubsub_aio.subscriber.custody import Custody
from pubsub_aio.subscriber.subscription import Subscription


class Inbox:
    """Holds leased messages until somebody takes them; as many as the flow control allows."""

    def __init__(self) -> None:
        self.custody: Custody[Message] | None = None
        self._messages: deque[Message] = deque()
        self._current: Message | None = None
        self._came = asyncio.Event()

    def attach(self, custody: Custody[Message]) -> Inbox:
        """Know where the messages come from."""
        self.custody = custody
        return self

    # What the subscription asks of it

    def put(self, messages: list[Message]) -> None:
        """Take these."""
        self._messages.extend(messages)
        self._came.set()

    @property
    def busy(self) -> int:
        """Whether a message is being worked on."""
        return int(self._current is not None)

    def withdraw(self) -> list[Message]:
        """Take back what nobody has asked for."""
        messages = list(self._messages)
        self._messages.clear()
        return messages

    async def finished(self) -> None:
        """Who takes messages stops to when the subscription ends: there is nothing to wait for."""

    async def stop(self, *, timeout: float) -> int:
        """Whoever works on a message goes on, but holds it no more."""
        del timeout
        self._let_go()
        return 0

    # What the loop asks of it

    async def messages(self, begin: Callable[[], Subscription]) -> AsyncGenerator[Message, None]:
        """Every message in turn, until the subscription ends; leaving the loop ends it."""
        live = begin()
        live.add_done_callback(lambda _: self._came.set())
        try:
            while True:
                while self._messages:
                    message = self._messages.popleft()
                    if message.lease is None:  # given back while it waited
                        self._returned(message)
                        continue
                    self._current = message
                    yield message
                    self._done()  # who asks for the next one is done with this
                if live.done():
                    live.result()
                    return
                self._came.clear()
                await self._came.wait()
        finally:
            self._let_go()
            live.stop()
            await asyncio.wait([live])
            if not live.cancelled():
                live.exception()  # it was raised above, or nobody is there to hear it

    def _done(self) -> None:
        """The message that was worked on is done with."""
        message, self._current = self._current, None
        if message is not None:
            self._returned(message)

    def _let_go(self) -> None:
        """Nobody will say any more what became of the message that was worked on."""
        message, self._current = self._current, None
        if message is not None and self.custody is not None:
            if message.lease is not None:
                self.custody.nack(message, 0)
            self.custody.returned(message)

    def _returned(self, message: Message) -> None:
        if self.custody is not None:
            self.custody.returned(message)
