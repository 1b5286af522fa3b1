"""A subscription: its settings, its deliveries, and the streams that are open on it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pubsub_aio.emulator.deliveries import Deliveries, Rules
from pubsub_aio.emulator.durations import seconds_of
from pubsub_aio.emulator.journal import Source
from pubsub_aio.emulator.log import TopicLog
from pubsub_aio.emulator.pushing import Pushing
from pubsub_aio.emulator.response import Consumer
from pubsub_aio.emulator.settings import parsed_filter
from pubsub_aio.emulator.status import Code, StatusError

if TYPE_CHECKING:
    from pubsub_aio._wire import schema
    from pubsub_aio.emulator.journal import Journal
    from pubsub_aio.emulator.progress import Position
    from pubsub_aio.emulator.topics import Topic


def detached(name: str) -> StatusError:
    """What a detached subscription answers."""
    return StatusError(
        Code.FAILED_PRECONDITION,
        f"{name} is detached from its topic; create another subscription",
    )


def not_pulled(name: str) -> StatusError:
    """What a push subscription answers to those who would pull from it."""
    return StatusError(
        Code.FAILED_PRECONDITION,
        f"{name} is a push subscription; to pull from it, empty its push_config",
    )


class Stream(Consumer):
    """One StreamingPull call."""

    __slots__ = ("caller", "client_id", "ended", "ends_at", "opened_at", "subscription")

    def __init__(
        self,
        number: int,
        subscription: Subscription,
        *,
        client_id: str,
        ack_deadline: float,
        max_messages: int,
        max_bytes: int,
        opened_at: float,
        ends_at: float,
    ) -> None:
        super().__init__(
            number, ack_deadline=ack_deadline, max_messages=max_messages, max_bytes=max_bytes
        )
        self.subscription = subscription
        self.client_id = client_id
        self.opened_at = opened_at
        self.ends_at = ends_at
        self.caller = ""
        """Who opened it, where that matters."""
        self.ended: StatusError | None = None


class Subscription:
    """What the broker knows of one subscription."""

    def __init__(
        self, uid: int, config: schema.Subscription, topic: Topic, journal: Journal, *, now: float
    ) -> None:
        self.uid = uid
        self.config = config
        self.topic = topic
        self.log = topic.log
        self.active_at = now
        self.streams: dict[int, Stream] = {}
        self.pulls = 0
        """Pull calls that are waiting for a message."""
        source = Source(uid, config.name, topic.serial)
        self.deliveries = Deliveries(source, self.log, self._rules(), journal)
        self._acked_from = topic.log.next if config.retain_acked_messages else None
        self.pushing: Pushing | None = None
        """What it pushes; none if it never did."""
        self._see_to_push()
        self._left: dict[str, Stream] = {}  # closed streams that still hold messages, by client id

    @property
    def acked_from(self) -> int | None:
        """The first message that is kept although it was acked, if any are."""
        return self._acked_from

    def go_on(
        self, position: Position, *, acked_from: int | None, epoch: int, active_at: float
    ) -> None:
        """Stand where an earlier life ended; every ack id that it gave is an old one."""
        self.active_at = active_at
        self._acked_from = acked_from
        self.deliveries.leases.epoch = epoch
        self.deliveries.seek(position)

    def configure(self, config: schema.Subscription) -> None:
        """Take over changed settings."""
        if not config.retain_acked_messages:
            self._acked_from = None
        elif self._acked_from is None:
            self._acked_from = self.deliveries.progress.low
        moved = config.push_config.push_endpoint != self.config.push_config.push_endpoint
        self.config = config
        self.deliveries.rules = self._rules()
        self._see_to_push()
        if moved and self.pushing:
            self.pushing.start_over()

    def _see_to_push(self) -> None:
        if not self.config.push_config.push_endpoint:
            return
        pauses = not self.config.HasField("retry_policy")  # which says when each comes again
        if self.pushing is None:
            self.pushing = Pushing(pauses=pauses)
        self.pushing.pauses = pauses

    @property
    def pushes(self) -> bool:
        """Whether its messages are pushed: to an endpoint, as long as it has a topic."""
        connected = self.topic.subscriptions.get(self.config.name) is self
        return connected and bool(self.config.push_config.push_endpoint)

    def _rules(self) -> Rules:
        config, rules = self.config, Rules(filter=parsed_filter(self.config))
        rules.ordered = config.enable_message_ordering
        rules.exactly_once = config.enable_exactly_once_delivery
        if config.HasField("dead_letter_policy"):
            rules.max_attempts = config.dead_letter_policy.max_delivery_attempts
        if config.HasField("retry_policy"):
            rules.min_backoff = seconds_of(config.retry_policy.minimum_backoff)
            rules.max_backoff = seconds_of(config.retry_policy.maximum_backoff)
        return rules

    @property
    def retention(self) -> float:
        """Seconds for which an unacked message is kept: no less than its topic keeps all."""
        return max(seconds_of(self.config.message_retention_duration), self.topic.retention)

    def kept_from(self, now: float) -> int:
        """The first message that can be sought back to although it was acked."""
        kept = self.topic.kept_since(now)
        if self._acked_from is None:
            return kept
        aged = self.log.first_since(now - self.retention)
        return min(kept, max(self._acked_from, aged))

    def needs_from(self, now: float) -> int:
        """The first message that must not be dropped from the log."""
        low = self.deliveries.progress.low
        return low if self._acked_from is None else min(low, self.kept_from(now))

    def oldest_unacked_time(self) -> float | None:
        """When the oldest unacked message was published; none if all are acked."""
        low = self.deliveries.progress.low
        return self.log.time(low) if low < self.log.next else None

    @property
    def expires_at(self) -> float:
        """When it is deleted for want of activity."""
        policy = self.config.expiration_policy
        if self.streams or self.pulls or not policy.HasField("ttl"):
            return math.inf
        return self.active_at + seconds_of(policy.ttl)

    def poll(self, now: float) -> float:
        """Let leases end and messages age out; returns when to look again."""
        oldest = self.oldest_unacked_time()
        if oldest is not None and oldest + self.retention <= now:
            # What is exactly as old as the retention goes, too.
            cutoff = math.nextafter(max(oldest, now - self.retention), math.inf)
            self.deliveries.settle_before(self.log.first_since(cutoff))
            oldest = self.oldest_unacked_time()
        if self.pushing:
            self.pushing.poll(now)
        self.deliveries.poll(now)
        # What is published after now cannot age out before now + retention.
        aged_at = (now if oldest is None else oldest) + self.retention
        next_at = min(self.deliveries.next_at, self.expires_at, aged_at)
        return min(next_at, self.pushing.next_at(now)) if self.pushing else next_at

    # Streams

    def streams_of(self, client_id: str) -> list[Stream]:
        """The open streams of a client that gave an id."""
        return [s for s in self.streams.values() if client_id and s.client_id == client_id]

    def join(self, stream: Stream) -> None:
        """Take in a stream; it takes over what its client still holds from an earlier one."""
        self.streams[stream.number] = stream
        self.deliveries.leases.consumers[stream.number] = stream
        if stream.client_id in self._left:
            self.deliveries.hand_over(self._left.pop(stream.client_id), stream)

    def leave(self, stream: Stream) -> None:
        """Forget a stream; its leases run on until they end or its client comes back."""
        del self.streams[stream.number]
        left = {**self._left, stream.client_id: stream}
        self._left = {client: old for client, old in left.items() if client and old.held_messages}
        kept = [*self.streams.values(), *self._left.values()]
        self.deliveries.leases.consumers = {consumer.number: consumer for consumer in kept}

    def end_streams(self, error: StatusError) -> None:
        """Tell every open stream that it is over."""
        for stream in self.streams.values():
            stream.ended = error

    def detach(self) -> None:
        """Drop all messages, and get no more."""
        if self.config.detached:
            return
        self.config.detached = True
        self.deliveries.settle_before(self.log.next)
        self.log = TopicLog()
        self.log.skip(self.topic.log.next)
        self.deliveries.read_from(self.log)

    def check_pullable(self) -> None:
        """Refuse to deliver from a subscription that is detached or pushes."""
        self.check_attached()
        if self.pushes:
            raise not_pulled(self.config.name)

    def check_attached(self) -> None:
        """Refuse to deliver from a detached subscription."""
        if self.config.detached:
            raise detached(self.config.name)
