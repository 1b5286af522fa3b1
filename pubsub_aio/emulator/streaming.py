"""One StreamingPull call: requests in, deliveries and confirmations out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from pubsub_aio._wire import schema
from pubsub_aio.emulator import settings
from pubsub_aio.emulator.deliveries import UNORDERED_ACK_ID
from pubsub_aio.emulator.leases import INVALID_ACK_ID
from pubsub_aio.emulator.response import MAX_BYTES, MAX_MESSAGES
from pubsub_aio.emulator.service import Service, parse
from pubsub_aio.emulator.status import StatusError, invalid
from pubsub_aio.emulator.waking import Waiter

if TYPE_CHECKING:
    from pubsub_aio.emulator.faults import Faults
    from pubsub_aio.emulator.subscriptions import Stream

    Confirmation = (
        schema.StreamingPullResponse.AcknowledgeConfirmation
        | schema.StreamingPullResponse.ModifyAckDeadlineConfirmation
    )

log = logging.getLogger("pubsub_aio.emulator")

_MAX_REPLIES = 100  # confirmations that wait to be written before reading pauses


class StreamSession:
    """Serves one stream over two functions, so that any transport can carry it.

    Args:
        service: Who answers.
        faults: What goes wrong.
        read: Returns the next request's bytes; none when the client sends no more.
        write: Sends a response's bytes; ConnectionError if the client is gone.
        principal: Who the caller says it is, if that matters.
    """

    def __init__(
        self,
        service: Service,
        faults: Faults,
        *,
        read: Callable[[], Awaitable[bytes | None]],
        write: Callable[[bytes], Awaitable[None]],
        principal: str | None = None,
    ) -> None:
        self._service = service
        self._faults = faults
        self._read = read
        self._write = write
        self._principal = principal
        self._replies: deque[bytes] = deque()
        self._room = asyncio.Event()
        self._finished = False

    async def run(self) -> None:
        """Serve the stream to its end.

        Raises:
            StatusError: How it ended, unless the client ended it.
        """
        data = await self._read()
        if data is None:
            raise invalid("subscription", "the first request must name one")
        delay, error, _ = self._faults.next_call("StreamingPull")
        if delay:
            await self._service.delay(delay)
        if error:
            raise error
        first = parse(schema.StreamingPullRequest, data)
        stream = self._open(first)
        try:
            with self._service.waiter(stream.subscription) as waiter:
                await self._serve(stream, first, waiter)
        finally:
            self._service.broker.close_stream(stream, now=self._service.clock.now())
            self._service.wake()
        if stream.ended:
            log.debug("StreamingPull on %s: %s", first.subscription, stream.ended)
            raise stream.ended
        log.debug("StreamingPull on %s: ended by its client", first.subscription)

    def _open(self, first: schema.StreamingPullRequest) -> Stream:
        if not first.subscription:
            raise invalid("subscription", "the first request must name one")
        caller = self._service.admit("StreamingPull", first, self._principal)
        stream = self._service.broker.open_stream(
            first.subscription,
            client_id=first.client_id,
            ack_deadline=first.stream_ack_deadline_seconds,
            max_messages=first.max_outstanding_messages,
            max_bytes=first.max_outstanding_bytes,
            now=self._service.clock.now(),
        )
        stream.caller = caller
        self._service.wake()
        log.debug("StreamingPull on %s: opened", first.subscription)
        return stream

    async def _serve(
        self, stream: Stream, first: schema.StreamingPullRequest, waiter: Waiter
    ) -> None:
        self._replies.append(_properties(stream))
        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(self._read_requests(stream, first, waiter))
            with contextlib.suppress(ConnectionError):
                await self._write_responses(stream, waiter)
            reader.cancel()

    # Out

    async def _write_responses(self, stream: Stream, waiter: Waiter) -> None:
        """Write what there is to write until the stream has ended."""
        name = stream.subscription.config.name
        while not stream.ended and not (self._finished and not self._replies):
            waiter.stuck = self._faults.stalls(name, "responses")
            if waiter.stuck:
                await waiter.wait()
                continue
            if self._replies:
                await self._write(self._replies.popleft())
                self._room.set()
                continue
            try:
                payload, more = await self._take(stream)
            except StatusError as error:  # while a transform ran
                stream.ended = stream.ended or error
                continue
            finally:
                self._service.wake()
            if payload:
                await self._write(payload + _properties(stream))
            elif more:
                await asyncio.sleep(0)
            else:
                await waiter.wait()

    async def _take(self, stream: Stream) -> tuple[bytes, bool]:
        """What there is for the stream; where a quota is used up, nothing until it is not."""
        service, limits, target = self._service, self._service.limits, stream.subscription
        if limits is None:
            return await service.take(target, stream, limit=MAX_MESSAGES)
        name, now = target.config.name, service.clock.now()
        if (at := limits.stream_at(name, now=now)) > now:
            service.broker.look_again(stream, at)
            return b"", False
        space = limits.stream_space(name, MAX_BYTES, now=now)
        payload, more = await service.take(target, stream, limit=MAX_MESSAGES, space=space)
        if payload:
            limits.streamed(name, len(payload), now=service.clock.now())
        return payload, more

    # In

    async def _read_requests(
        self, stream: Stream, first: schema.StreamingPullRequest, waiter: Waiter
    ) -> None:
        """Heed requests until the client sends no more or one is refused."""
        heartbeats = first.protocol_version >= 1
        name = stream.subscription.config.name
        try:
            await self._answer(stream, first)
            while (data := await self._read()) is not None:
                await self._faults.while_stalled(name, "requests")
                request = parse(schema.StreamingPullRequest, data)
                _check_later(request)
                if request.stream_ack_deadline_seconds:
                    stream.ack_deadline = float(request.stream_ack_deadline_seconds)
                await self._answer(stream, request)
                if heartbeats and not data:
                    self._replies.append(b"")
                waiter.event.set()
                while len(self._replies) > _MAX_REPLIES:
                    self._room.clear()
                    await self._room.wait()
        except StatusError as error:
            stream.ended = stream.ended or error
        finally:
            self._finished = True
            waiter.event.set()

    async def _answer(self, stream: Stream, request: schema.StreamingPullRequest) -> None:
        """Carry out a request, and confirm it where that was asked for."""
        confirmation = self._heed(stream, request)
        if confirmation and stream.subscription.config.enable_exactly_once_delivery:
            if self._service.store and request.ack_ids:
                await self._service.store.saved()
            self._replies.append(confirmation + _properties(stream))

    def _heed(self, stream: Stream, request: schema.StreamingPullRequest) -> bytes:
        """Carry out the acks and deadlines of a request; returns what confirms them."""
        response = schema.StreamingPullResponse()
        if request.ack_ids:
            ids = list(request.ack_ids)
            refused = self._service.acknowledge(stream.subscription, ids)
            _confirm(response.acknowledge_confirmation, ids, refused)
        if len(request.modify_deadline_ack_ids) != len(request.modify_deadline_seconds):
            raise invalid(
                "modify_deadline_seconds", "must have as many entries as modify_deadline_ack_ids"
            )
        by_seconds: dict[int, list[str]] = {}
        pairs = zip(request.modify_deadline_seconds, request.modify_deadline_ack_ids, strict=True)
        for seconds, ack_id in pairs:
            by_seconds.setdefault(seconds, []).append(ack_id)
        for seconds, ids in by_seconds.items():
            refused = self._service.modify(stream.subscription, ids, seconds)
            _confirm(response.modify_ack_deadline_confirmation, ids, refused)
        self._service.wake()
        return response.SerializeToString()


def _check_later(request: schema.StreamingPullRequest) -> None:
    """Refuse what only the first request may carry."""
    for field in (
        "subscription",
        "client_id",
        "max_outstanding_messages",
        "max_outstanding_bytes",
        "protocol_version",
    ):
        if getattr(request, field):
            raise invalid(field, "may only be set in the first request of a stream")
    if request.stream_ack_deadline_seconds:
        settings.check_ack_deadline(
            request.stream_ack_deadline_seconds, "stream_ack_deadline_seconds"
        )


def _confirm(confirmation: Confirmation, ids: list[str], refused: dict[str, str]) -> None:
    for ack_id in ids:
        reason = refused.get(ack_id)
        if reason is None:
            confirmation.ack_ids.append(ack_id)
        elif reason == INVALID_ACK_ID:
            confirmation.invalid_ack_ids.append(ack_id)
        elif reason == UNORDERED_ACK_ID and hasattr(confirmation, "unordered_ack_ids"):
            confirmation.unordered_ack_ids.append(ack_id)
        else:
            confirmation.temporary_failed_ack_ids.append(ack_id)


def _properties(stream: Stream) -> bytes:
    """The `subscription_properties` of a response; clients read them in every one."""
    config = stream.subscription.config
    properties = schema.StreamingPullResponse.SubscriptionProperties(
        exactly_once_delivery_enabled=config.enable_exactly_once_delivery,
        message_ordering_enabled=config.enable_message_ordering,
    )
    return schema.StreamingPullResponse(subscription_properties=properties).SerializeToString()
