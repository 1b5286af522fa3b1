"""Requests in, replies out: the RPCs over the broker, whatever transport they came by."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar
from weakref import WeakKeyDictionary

from google.protobuf.message import DecodeError, Message

from pubsub_aio._wire import schema
from pubsub_aio._wire.rpcs import Rpc
from pubsub_aio.emulator import records
from pubsub_aio.emulator.durations import check_times
from pubsub_aio.emulator.handlers import HANDLERS
from pubsub_aio.emulator.intake import taken_in, taken_in_transformed
from pubsub_aio.emulator.response import MAX_BYTES
from pubsub_aio.emulator.status import Code, StatusError, invalid, not_found
from pubsub_aio.emulator.transformed_delivery import TransformedDelivery
from pubsub_aio.emulator.waking import Waiter, Waking

if TYPE_CHECKING:
    from pubsub_aio.emulator.access import Access
    from pubsub_aio.emulator.broker import Broker
    from pubsub_aio.emulator.clock import Clock
    from pubsub_aio.emulator.limits import Limits
    from pubsub_aio.emulator.response import Consumer
    from pubsub_aio.emulator.subscriptions import Subscription
    from pubsub_aio.emulator.topics import Topic
    from pubsub_aio.emulator.transforming import Transforms

Parsed = TypeVar("Parsed", bound=Message)

log = logging.getLogger("pubsub_aio.emulator")

PULL_PATIENCE = 8.0
"""Seconds that a Pull waits for a message, if its client does not say how long it waits."""

DELIVERY_LAG = 0.02
"""Seconds from a publish to its delivery.

The service's publishers are answered well before anybody receives the message, and tests, those of
Google's clients among them, rely on it. The lag also lets single publishes gather in one response.
"""

_CHANGE_NOTHING = frozenset(
    {
        *("GetTopic", "ListTopics", "ListTopicSubscriptions", "ListTopicSnapshots"),
        *("GetSubscription", "ListSubscriptions", "Pull", "ModifyAckDeadline"),
        *("GetSnapshot", "ListSnapshots", "GetIamPolicy", "TestIamPermissions"),
        *("GetSchema", "ListSchemas", "ListSchemaRevisions", "ValidateSchema", "ValidateMessage"),
    }
)
"""RPCs after which there is nothing to save."""

_EXACTLY_ONCE_FAILURE = "Some acknowledgement ids in the request failed; see the ErrorInfo."
_MOST_NAMED = 80
"""Refused ack ids that are named: gRPC clients that set nothing take 8 KB of trailers."""


class _Faults(Protocol):
    def next_call(self, rpc: str) -> tuple[float, StatusError | None, bool]: ...

    def next_confirmations(self, subscription: Subscription, count: int) -> dict[int, str]: ...


class _Store(Protocol):
    def check(self) -> None: ...

    async def saved(self) -> None: ...


class Service(Waking):
    """Answers calls. It reads the clock, waits where the API waits, and wakes who must go on."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        faults: _Faults,
        transforms: Transforms,
        *,
        enforce_iam: bool = False,
        limits: Limits | None = None,
        delivery_lag: float = DELIVERY_LAG,
    ) -> None:
        super().__init__(broker, delivery_lag=delivery_lag)
        self.transforms = transforms
        self.clock = clock
        self.enforce_iam = enforce_iam
        self.limits = limits
        self.working = 0
        """Calls that are being answered, but for those that wait, and scripts of pushes."""
        self.store: _Store | None = None
        """What keeps what changes, if anything does."""
        self._faults = faults
        if enforce_iam:
            self.on_policies_changed = self.access.recheck
        self._turns: WeakKeyDictionary[Topic, asyncio.Lock] = WeakKeyDictionary()
        """Whose turn it is to publish messages with ordering keys, where transforms come first."""

    @cached_property
    def access(self) -> Access:
        """Who may do what; loaded when that is first asked."""
        from pubsub_aio.emulator.access import Access

        return Access(self.broker, enforced=self.enforce_iam)

    def asks_who(self, rpc: str) -> bool:
        """Whether it matters to a call whose it is."""
        return self.enforce_iam or rpc == "TestIamPermissions"

    # Calls

    async def call(
        self,
        rpc: Rpc,
        data: bytes,
        *,
        patience: float = PULL_PATIENCE,
        principal: str | None = None,
    ) -> bytes:
        """Answer a call.

        Args:
            rpc: Which RPC; any but StreamingPull.
            data: The request as protobuf bytes.
            patience: How long a Pull may wait for a message.
            principal: Who the caller says it is, if that matters: see `asks_who`.

        Raises:
            StatusError: The call is refused.
        """
        delay, error, applied = self._faults.next_call(rpc.name)
        if delay:
            await self.delay(delay)
        if error and not applied:
            raise error
        self.working += 1
        try:
            reply = await self._answer_and_save(rpc, data, patience, principal)
            log.debug("%s: ok", rpc.name)
        except StatusError as refusal:
            log.debug("%s: %s", rpc.name, refusal)
            raise error or refusal from None
        except Exception as bug:
            log.exception("%s failed", rpc.name)
            raise fault_in_emulator(bug) from bug
        finally:
            self.working -= 1
            self.wake()
        if error:
            raise error
        return reply

    async def _answer_and_save(
        self, rpc: Rpc, data: bytes, patience: float, principal: str | None
    ) -> bytes:
        store = self.store  # it is let go of when the emulator stops, perhaps in between
        if store is None or rpc.name in _CHANGE_NOTHING:
            return await self._answer(rpc, data, patience, principal)
        store.check()
        try:
            return await self._answer(rpc, data, patience, principal)
        finally:  # a refusal, too, may rest on what is not on disk yet
            await store.saved()

    async def _answer(self, rpc: Rpc, data: bytes, patience: float, principal: str | None) -> bytes:
        records.check_request_size(data)
        request = parse(getattr(schema, rpc.request), data)
        if self.enforce_iam or self.limits:
            self.admit(rpc.name, request, principal)
        if rpc.name == "Publish":
            return await self._publish(request, data)
        if rpc.name == "Pull":
            return await self._pull(request, patience)
        if rpc.name == "Acknowledge":
            return self._acknowledge(request)
        if rpc.name == "ModifyAckDeadline":
            return self._modify_ack_deadline(request)
        if rpc.name == "TestIamPermissions":
            return self.access.tested(request, principal).SerializeToString()
        check_times(request)
        if (config := _with_transforms(request)) is not None:
            await self.transforms.check(config)
        reply = HANDLERS[rpc.name](self.broker, request, self.clock.now())
        return reply.SerializeToString() if reply else b""

    def admit(self, rpc: str, request: Message, principal: str | None) -> str:
        """Refuse a call that its caller may not make, or not now; returns the caller."""
        caller = self.access.admit(rpc, request, principal) if self.enforce_iam else ""
        if self.limits:
            self.limits.admit(rpc, request, self.broker, now=self.clock.now())
        return caller

    async def delay(self, seconds: float) -> None:
        """Let that much time pass; that somebody waits is something that happened."""
        self.stir()
        await self.clock.sleep(seconds)

    # The busy RPCs

    async def _publish(self, request: schema.PublishRequest, data: bytes) -> bytes:
        topic = self.broker.topic(request.topic)
        bodies = records.bodies_of(data)
        records.check_messages(request, records.doubtful(data, bodies))
        if topic.config.message_transforms:
            keyed = any(message.ordering_key for message in request.messages)
            async with self._turn(topic) if keyed else contextlib.nullcontext():
                return await self._publish_transformed(topic, bodies)
        bodies = taken_in(topic, bodies)
        first_id = self.broker.publish(request.topic, bodies, now=self.clock.now())
        self.wake_later()
        return records.publish_response(first_id, len(bodies))

    def _turn(self, topic: Topic) -> asyncio.Lock:
        return self._turns.setdefault(topic, asyncio.Lock())

    async def _publish_transformed(self, topic: Topic, bodies: list[bytes]) -> bytes:
        """The same where transforms come first: one that fails refuses all messages."""
        made = await self.transforms.published(topic.config, bodies)
        name = topic.config.name
        if self.broker.topics.get(name) is not topic:
            raise not_found(name)
        kept = taken_in_transformed(topic, made)
        first_id = self.broker.publish_some(name, kept, now=self.clock.now())
        self.wake_later()
        return records.publish_response(first_id, len(kept))

    async def take(
        self,
        subscription: Subscription,
        consumer: Consumer,
        *,
        limit: int,
        space: int = MAX_BYTES,
    ) -> tuple[bytes, bool]:
        """Lease messages to a consumer, as the subscription's transforms make them.

        See the broker's `take`.

        Returns:
            The `received_messages` of a response, and whether there is more to look at already.
        """
        if subscription.config.message_transforms:
            transform = self.transforms.of(subscription.config)
            if transform:
                clock = self.clock.now
                delivery = TransformedDelivery(self.broker, subscription, transform, now=clock)
                return await delivery.take(consumer, limit=limit, space=space)
        now = self.clock.now()
        return self.broker.take(subscription, consumer, limit=limit, now=now, space=space)

    async def _pull(self, request: schema.PullRequest, patience: float) -> bytes:
        if request.max_messages < 1:
            raise invalid("max_messages", f"{request.max_messages} must be at least 1")
        subscription = self.broker.subscription(request.subscription)
        if request.return_immediately:
            patience = 0.0
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + patience
        self.broker.begin_pull(subscription)
        try:
            with self.waiter(subscription) as waiter:
                while True:
                    consumer = self.broker.puller(subscription)
                    payload, more = await self.take(
                        subscription, consumer, limit=request.max_messages
                    )
                    if payload or not (more or patience) or (patience and loop.time() > ends_at):
                        return self._pulled(request, payload)
                    if more:
                        await asyncio.sleep(0)
                    else:
                        self.wake()
                        await self._wait(waiter, until=ends_at)
        except TimeoutError:
            return self._pulled(request, b"")
        finally:
            self.broker.end_pull(subscription, now=self.clock.now())

    def _pulled(self, request: schema.PullRequest, payload: bytes) -> bytes:
        if self.limits:
            self.limits.pulled(request.subscription, len(payload), now=self.clock.now())
        return payload

    async def _wait(self, waiter: Waiter, *, until: float) -> None:
        self.working -= 1
        try:
            async with asyncio.timeout_at(until):
                await waiter.wait()
        finally:
            self.working += 1

    def acknowledge(self, subscription: Subscription, ids: list[str]) -> dict[str, str]:
        """Settle deliveries; for each id that exactly-once refuses, why."""
        refuse = self._faults.next_confirmations(subscription, len(ids))
        return self.broker.acknowledge(subscription, ids, now=self.clock.now(), refuse=refuse)

    def modify(self, subscription: Subscription, ids: list[str], seconds: int) -> dict[str, str]:
        """Move deadlines; for each id that exactly-once refuses, why."""
        refuse = self._faults.next_confirmations(subscription, len(ids))
        now = self.clock.now()
        return self.broker.modify_ack_deadline(subscription, ids, seconds, now=now, refuse=refuse)

    def _acknowledge(self, request: schema.AcknowledgeRequest) -> bytes:
        subscription = self.broker.subscription(request.subscription)
        ids = _ids(request)
        self._check_many(subscription, ids)
        return _confirm(self.acknowledge(subscription, ids))

    def _modify_ack_deadline(self, request: schema.ModifyAckDeadlineRequest) -> bytes:
        subscription = self.broker.subscription(request.subscription)
        ids = _ids(request)
        self._check_many(subscription, ids)
        return _confirm(self.modify(subscription, ids, request.ack_deadline_seconds))

    def _check_many(self, subscription: Subscription, ids: list[str]) -> None:
        """Refuse a request of which more ids would be refused than can be named, as a whole."""
        if len(ids) <= _MOST_NAMED or not subscription.config.enable_exactly_once_delivery:
            return
        if self.broker.count_stale(subscription, ids, now=self.clock.now()) > _MOST_NAMED:
            raise invalid(
                "ack_ids",
                f"more than {_MOST_NAMED} of them are not valid any more, so that nothing was "
                "done; send fewer at once to learn which",
            )


def fault_in_emulator(bug: Exception) -> StatusError:
    """What a client is told when the emulator itself is wrong."""
    return StatusError(Code.INTERNAL, f"a fault in the emulator: {bug!r}")


def parse(message_class: type[Parsed], data: bytes) -> Parsed:
    """A request's bytes as its message."""
    try:
        return message_class.FromString(data)
    except DecodeError as error:
        name = message_class.DESCRIPTOR.name
        raise invalid("request", f"not a valid {name}: {error}") from error


def _with_transforms(request: Message) -> schema.Topic | schema.Subscription | None:
    """The topic or subscription whose transforms a request sets, if it does."""
    if isinstance(request, schema.Topic | schema.Subscription):
        return request
    if isinstance(request, schema.UpdateTopicRequest):
        return request.topic if "message_transforms" in request.update_mask.paths else None
    if isinstance(request, schema.UpdateSubscriptionRequest):
        return request.subscription if "message_transforms" in request.update_mask.paths else None
    return None


def _ids(request: schema.AcknowledgeRequest | schema.ModifyAckDeadlineRequest) -> list[str]:
    if not request.ack_ids:
        raise invalid("ack_ids", "at least one is needed")
    return list(request.ack_ids)


def _confirm(refused: dict[str, str]) -> bytes:
    """An empty reply, unless something was refused."""
    if refused:
        named = refused if len(refused) <= _MOST_NAMED else None
        raise StatusError(Code.INVALID_ARGUMENT, _EXACTLY_ONCE_FAILURE, ack_errors=named)
    return b""
