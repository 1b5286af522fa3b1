"""A flight: one message on its way to a topic, as its publisher sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from weakref import ref

from pubsub_aio._core.outgoing import Batch
from pubsub_aio._wire import publishing
from pubsub_aio.config import RetryPolicy
from pubsub_aio.publisher.acks import Ack, KnownAck
from pubsub_aio.publisher.raising import twin

if TYPE_CHECKING:
    from pubsub_aio.publisher.queue import Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """What a message was published with, beside its data and attributes."""

    ordering_key: str = ""
    """Messages of one key are published in order."""

    retry: RetryPolicy | None = None
    """When it is sent again; none for never."""

    timeout: float | None = None
    """Seconds from its departure within which it must be answered; none for no limit."""


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What the messages of a batch have in common. The library's own."""

    retry: RetryPolicy | None
    timeout: float | None
    queue: Queue


class Interest:
    """Who is interested in a flight; most have none who must be told. The library's own."""

    __slots__ = ("acks", "held", "leaving", "spans")

    def __init__(self) -> None:
        self.acks: list[ref[Ack]] = []
        """Done when its fate is known, one for each who asked, as long as somebody knows it."""
        self.held: list[Ack] = []
        """Those of them that somebody waits for, if it were only a task that nobody knows."""
        self.leaving: list[asyncio.Future[None]] = []
        """Done when it has left the queue, one for each who waits for that."""
        self.spans: object = None
        """Its trace."""

    def pending(self) -> list[Ack]:
        """The futures that are to be done, but for those of who gave up or did not care."""
        return [ack for each in self.acks if (ack := each()) is not None and not ack.done()]

    def new_ack(self, loop: asyncio.AbstractEventLoop | None) -> Ack:
        """Another future."""
        asked = len(self.acks)
        if asked & (asked - 1) == 0:  # now and then what is of no use is forgotten
            self.acks = [ref(ack) for ack in self.pending()]
            self.held[:] = [ack for ack in self.held if not ack.done()]
        ack = Ack(self.held, loop)
        self.acks.append(ref(ack))
        return ack


class Flight:
    """A message that was given to a publisher.

    Await it until the message is on its way; if all who do are cancelled before that, and nobody
    waits for its `ack`, the message is taken back. `ack` is the future of its message id.

        flight = await publisher.publish("orders", b"tea")
        message_id = await flight.ack
    """

    # There are many, and they live for a while: what they do not hold costs nothing.
    __slots__ = ("_id", "batch", "index", "interest")

    batch: Batch[Flight]
    """With which others it goes, and what became of them. The library's own."""

    index: int
    """Its place among these. The library's own."""

    interest: Interest | None
    """Who is interested. The library's own."""

    # What it is

    @property
    def _terms(self) -> Terms:
        terms = self.batch.options
        assert isinstance(terms, Terms)  # noqa: S101 - tells the type checker
        return terms

    @property
    def id(self) -> str:
        """Its own id, `<id_prefix>-<number>`; the message's id on the server is `ack`'s result.

        Numbers are given as ids are asked for, from 1 on: most flights need none, and which number
        a flight has says nothing of its place.
        """
        try:
            return self._id
        except AttributeError:
            return self.take_id(self._terms.queue)

    def take_id(self, queue: Queue) -> str:
        """Have an id, of a publisher whose queue that is. The library's own."""
        with queue.naming:  # another thread may ask for it too
            if not hasattr(self, "_id"):
                self._id = queue.new_id()
        return self._id

    @property
    def topic(self) -> str:
        """The full name of the topic."""
        return self.batch.lane.topic

    @property
    def ordering_key(self) -> str:
        """The ordering key, empty for none."""
        return self.batch.lane.ordering_key

    @property
    def data(self) -> bytes:
        """What is published."""
        return publishing.decode(self.batch.wires[self.index]).data

    @property
    def attributes(self) -> dict[str, str]:
        """What goes with it, without what the publisher adds; a new dict each time."""
        attributes = dict(publishing.decode(self.batch.wires[self.index]).attributes)
        for added in self._terms.queue.adds:
            attributes.pop(added, None)
        return attributes

    @property
    def options(self) -> PublishOptions:
        """What it was published with."""
        terms = self._terms
        return PublishOptions(
            ordering_key=self.ordering_key, retry=terms.retry, timeout=terms.timeout
        )

    @property
    def publish_time(self) -> datetime | None:
        """When it departed; none as long as it has not."""
        time = self.batch.publish_time
        return time if isinstance(time, datetime) else None

    @property
    def published_at(self) -> float | None:
        """The same by the clock of the event loop, which timeouts go by."""
        return self.batch.published_at

    @property
    def attempts(self) -> int:
        """How many times it was sent so far."""
        return self.batch.attempts

    # What becomes of it

    @property
    def ack(self) -> asyncio.Future[str]:
        """The future of its message id, which raises if it was not published.

        Each time it is another one, so that whoever gives up waiting changes nothing for others.
        """
        batch = self.batch
        ids = batch.message_ids
        if ids is not None:  # as for most of a batch when the first of it is awaited
            known: KnownAck = KnownAck()
            # A call would cost as much as all of this.
            known._result = ids[self.index]  # noqa: SLF001
            known._loop = batch.options.queue.loop  # type: ignore[attr-defined] # noqa: SLF001
            return known
        ack = self.interest_of().new_ack(self._terms.queue.loop)
        batch.asked_for = True
        self.tell()
        if ack.done():  # of what was known before nobody need complain that nobody looked at it
            ack.exception()
        return ack

    @property
    def is_asked_for(self) -> bool:
        """Whether somebody waits for its fate. The library's own."""
        return self.interest is not None and bool(self.interest.pending())

    def interest_of(self) -> Interest:
        """Who is interested, from now on at least. The library's own."""
        if self.interest is None:
            self.interest = Interest()
        return self.interest

    def tell(self) -> None:
        """Have the futures done if the fate is known. The library's own."""
        batch = self.batch
        if self.interest is None or (batch.message_ids is None and batch.error is None):
            return
        for ack in self.interest.pending():
            if batch.message_ids is not None:
                ack.set_result(batch.message_ids[self.index])
            elif batch.error is not None:
                ack.set_exception(twin(batch.error))
        self.interest.acks.clear()
        self.interest.held.clear()

    @property
    def message_id(self) -> str | None:
        """The id that the server gave it; none as long as it has not."""
        ids = self.batch.message_ids
        return ids[self.index] if ids is not None else None

    @property
    def error(self) -> BaseException | None:
        """Why it was not published, if it was not."""
        return self.batch.error

    # Waiting for it to leave

    def __await__(self) -> Generator[object, None, Flight]:
        if not self.batch.gone:
            queue = self._terms.queue
            leaving = queue.wait(self)
            try:
                yield from leaving
            except asyncio.CancelledError:
                queue.wait_no_more(self, leaving)
                raise
        batch = self.batch
        if batch.published_at is None and batch.error is not None:
            raise twin(batch.error)
        return self

    def __repr__(self) -> str:
        if self.message_id is not None:
            state = f"acked as {self.message_id}"
        elif self.error is not None:
            state = f"failed: {self.error}"
        else:
            state = "queued" if self.published_at is None else "in flight"
        return f"<Flight {self.id} to {self.topic}: {state}>"
