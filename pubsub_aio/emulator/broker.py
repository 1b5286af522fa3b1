"""The service: topics, subscriptions, snapshots and what passes between them.

Pure: every call is told the time, nothing waits, reads a clock or touches a socket. Whoever drives
it calls `poll` when `next_at` has come, and looks at `changed` after each call to learn which
subscriptions may have something to deliver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pubsub_aio._wire import schema
from pubsub_aio.emulator import ack_ids, settings
from pubsub_aio.emulator.administration import Administration
from pubsub_aio.emulator.journal import Journal
from pubsub_aio.emulator.leases import NO_REFUSALS
from pubsub_aio.emulator.response import MAX_BYTES, Consumer
from pubsub_aio.emulator.snapshots import Snapshot
from pubsub_aio.emulator.status import Code, StatusError, invalid, not_found
from pubsub_aio.emulator.subscriptions import Stream, Subscription
from pubsub_aio.emulator.topics import Topic

STREAM_LIFE = 1_800.0
"""Seconds after which the service ends a stream."""


class Broker(Administration):
    """A Pub/Sub service in memory: its time, its deliveries, its pushes and its streams.

    Args:
        instance: A number that tells this broker's ack ids from another's.
        journal: What remembers events for inspection.
        stream_life: Seconds after which a stream is ended.
    """

    def __init__(
        self, *, instance: int = 0, journal: Journal | None = None, stream_life: float = STREAM_LIFE
    ) -> None:
        super().__init__(instance=instance, journal=journal)
        self._stream_life = stream_life

    # Time

    @property
    def next_at(self) -> float:
        """When `poll` has something to do; infinity for never."""
        return self._alarms.next_at

    def poll(self, now: float) -> None:
        """Let everything happen that is due."""
        for owner in self._alarms.pop_due(now):
            if isinstance(owner, Stream):
                self._poll_stream(owner, now)
            elif isinstance(owner, Topic):
                self._alarms.set(owner, owner.poll(now))
            elif isinstance(owner, Snapshot):
                if owner.expires_at <= now:
                    self._remove_snapshot(owner, now)
                else:
                    self._alarms.set(owner, owner.expires_at)
            elif owner.expires_at <= now:
                self.delete_subscription(owner.config.name, now=now)
            else:
                self._settle(owner, now)

    # Delivering and settling

    def pull(self, subscription: Subscription, *, limit: int, now: float) -> tuple[bytes, bool]:
        """Lease messages for one Pull; see `take`."""
        return self.take(subscription, self.puller(subscription), limit=limit, now=now)

    def puller(self, subscription: Subscription) -> Consumer:
        """Whoever takes messages by one Pull."""
        self._check_exists(subscription)
        subscription.check_pullable()
        deadline = float(subscription.config.ack_deadline_seconds)
        return Consumer(self._next_serial(), ack_deadline=deadline)

    def take(
        self,
        subscription: Subscription,
        consumer: Consumer,
        *,
        limit: int,
        now: float,
        space: int = MAX_BYTES,
        beside: int = 0,
    ) -> tuple[bytes, bool]:
        """Lease messages to a consumer: no more than its fair share of what there is.

        Args:
            subscription: Whose messages.
            consumer: Who gets them.
            limit: How many at most.
            now: The time.
            space: How many bytes the response may have; a message that is larger comes alone.
            beside: Bytes that are in the response already.

        Returns:
            The `received_messages` of a response, and whether there is more to look at already.
        """
        if self.next_at <= now:
            self.poll(now)
        self._check_exists(subscription)
        subscription.active_at = now
        return self._take(subscription, consumer, limit=limit, now=now, space=space, beside=beside)

    def _take(
        self,
        subscription: Subscription,
        consumer: Consumer,
        *,
        limit: int,
        now: float,
        space: int = MAX_BYTES,
        beside: int = 0,
    ) -> tuple[bytes, bool]:
        deliveries = subscription.deliveries
        rivals = len(subscription.streams) + subscription.pulls
        if rivals > 1:
            limit = min(limit, max(1, -(-deliveries.progress.backlog // rivals)))
        payload, more = deliveries.take(consumer, limit=limit, now=now, space=space, beside=beside)
        self._alarms.set(subscription, deliveries.next_at)
        if deliveries.progress.freed:
            self._settle(subscription, now)
        return payload, more

    def acknowledge(
        self,
        subscription: Subscription,
        ids: Sequence[str],
        *,
        now: float,
        refuse: Mapping[int, str] = NO_REFUSALS,
    ) -> dict[str, str]:
        """Settle deliveries; for each id that exactly-once refuses, why.

        `refuse` is a fault: positions to refuse, and why.
        """
        if self.next_at <= now:
            self.poll(now)
        self._check_exists(subscription)
        issued, offsets = ack_ids.decode(ids, subscription.uid)
        deliveries = subscription.deliveries
        failed = deliveries.acknowledge(issued, offsets, now=now, refuse=refuse)
        return self._settled(subscription, ids, failed, now)

    def modify_ack_deadline(
        self,
        subscription: Subscription,
        ids: Sequence[str],
        seconds: int,
        *,
        now: float,
        refuse: Mapping[int, str] = NO_REFUSALS,
    ) -> dict[str, str]:
        """Move deadlines, or give messages back; otherwise as `acknowledge`."""
        most = settings.MAX_ACK_DEADLINE
        if not 0 <= seconds <= most:
            raise invalid("ack_deadline_seconds", f"{seconds} must be between 0 and {most}")
        if self.next_at <= now:
            self.poll(now)
        self._check_exists(subscription)
        issued, offsets = ack_ids.decode(ids, subscription.uid)
        deliveries = subscription.deliveries
        failed = deliveries.modify(issued, offsets, float(seconds), now=now, refuse=refuse)
        return self._settled(subscription, ids, failed, now)

    def count_stale(self, subscription: Subscription, ids: Sequence[str], *, now: float) -> int:
        """How many of these ids hold no lease any more."""
        if self.next_at <= now:
            self.poll(now)
        issued, offsets = ack_ids.decode(ids, subscription.uid)
        return len(subscription.deliveries.leases.match(issued, offsets, NO_REFUSALS)[1])

    def leave_out(self, subscription: Subscription, ack_id: str, *, now: float) -> None:
        """A transform made nothing of what was taken: it is settled and never delivered."""
        if self.subscriptions.get(subscription.config.name) is subscription:
            issued, offsets = ack_ids.decode([ack_id], subscription.uid)
            subscription.deliveries.leave_out(issued, offsets, now=now)
            self._settle(subscription, now)

    def fail(self, subscription: Subscription, ack_id: str, *, now: float) -> None:
        """A transform of what was taken failed: that counts as a nack."""
        if self.subscriptions.get(subscription.config.name) is subscription:
            issued, offsets = ack_ids.decode([ack_id], subscription.uid)
            subscription.deliveries.fail(issued, offsets, now=now)
            self._settle(subscription, now)

    def withdraw(self, subscription: Subscription, ids: Sequence[str], *, now: float) -> None:
        """What was taken is not sent: as if it had not been taken, but for its ack ids."""
        if self.subscriptions.get(subscription.config.name) is subscription:
            issued, offsets = ack_ids.decode(ids, subscription.uid)
            subscription.deliveries.withdraw(issued, offsets)
            self._settle(subscription, now)

    def check_consumer(self, subscription: Subscription, consumer: Consumer) -> None:
        """Refuse to send what was taken some time ago to somebody who may not have it any more."""
        if isinstance(consumer, Stream) and consumer.ended:
            raise consumer.ended
        self._check_exists(subscription)
        subscription.check_pullable()

    def _check_exists(self, subscription: Subscription) -> None:
        """A stream or a Pull may outlive its subscription for a moment."""
        if self.subscriptions.get(subscription.config.name) is not subscription:
            raise not_found(subscription.config.name)

    def begin_pull(self, subscription: Subscription) -> None:
        """Count a Pull that may wait: a subscription that is waited for does not expire."""
        subscription.pulls += 1

    def end_pull(self, subscription: Subscription, *, now: float) -> None:
        """The Pull is over, with messages or without."""
        subscription.pulls -= 1
        if self.subscriptions.get(subscription.config.name) is subscription:
            subscription.active_at = now
            self._alarms.set(subscription, subscription.expires_at)

    def _settled(
        self, subscription: Subscription, ids: Sequence[str], failed: dict[int, str], now: float
    ) -> dict[str, str]:
        subscription.active_at = now
        self._settle(subscription, now)
        if not subscription.config.enable_exactly_once_delivery:
            return {}
        return {ids[at]: reason for at, reason in failed.items()}

    # Pushing

    def push(
        self, subscription: Subscription, *, now: float
    ) -> tuple[schema.ReceivedMessage | None, bool]:
        """Lease the next message to push, if one may be pushed now.

        Returns:
            The message, and whether there is more to look at already.
        """
        if self.next_at <= now:
            self.poll(now)
        pushing = subscription.pushing
        if not (pushing and subscription.pushes and pushing.may_begin(now)):
            return None, False
        # For each message a consumer of its own: so only one of an ordering key is under way.
        deadline = float(subscription.config.ack_deadline_seconds)
        consumer = Consumer(self._next_serial(), ack_deadline=deadline)
        payload, more = self._take(subscription, consumer, limit=1, now=now)
        if not payload:
            return None, more
        received = schema.PullResponse.FromString(payload).received_messages[0]
        pushing.begin(received.ack_id, ends_at=now + deadline)
        self._alarms.set(subscription, pushing.next_at(now))
        return received, more

    def settle_push(
        self, subscription: Subscription, ack_id: str, *, acked: bool, now: float
    ) -> None:
        """Ack a pushed message or give it back, unless the response came too late."""
        if self.next_at <= now:
            self.poll(now)
        pushing = subscription.pushing
        if not (pushing and pushing.finish(ack_id, acked=acked, now=now)):
            return
        if acked:
            self.acknowledge(subscription, [ack_id], now=now)
        else:  # and that is no activity: a subscription whose pushes all fail expires
            issued, offsets = ack_ids.decode([ack_id], subscription.uid)
            subscription.deliveries.modify(issued, offsets, 0.0, now=now)
            self._settle(subscription, now)

    def leave_out_push(self, subscription: Subscription, ack_id: str, *, now: float) -> None:
        """A transform made nothing of what was to be pushed; see `leave_out`."""
        if subscription.pushing and subscription.pushing.drop(ack_id):
            self.leave_out(subscription, ack_id, now=now)

    def withdraw_push(self, subscription: Subscription, ack_id: str, *, now: float) -> None:
        """What was to be pushed is not sent; see `withdraw`."""
        if subscription.pushing and subscription.pushing.drop(ack_id):
            self.withdraw(subscription, [ack_id], now=now)

    # Streams

    def open_stream(
        self,
        name: str,
        *,
        client_id: str,
        ack_deadline: int,
        max_messages: int,
        max_bytes: int,
        now: float,
    ) -> Stream:
        """Open a stream; one of the same client before it is ended, and its messages taken over."""
        subscription = self.subscription(name)
        subscription.check_pullable()
        settings.check_ack_deadline(ack_deadline, "stream_ack_deadline_seconds")
        stream = Stream(
            self._next_serial(),
            subscription,
            client_id=client_id,
            ack_deadline=float(ack_deadline),
            max_messages=max_messages,
            max_bytes=max_bytes,
            opened_at=now,
            ends_at=now + self._stream_life,
        )
        for predecessor in subscription.streams_of(client_id):
            reason = f"another stream took over client_id {client_id!r}"
            self._end_stream(predecessor, StatusError(Code.ABORTED, reason))
            self.close_stream(predecessor, now=now)
        subscription.join(stream)
        subscription.active_at = now
        self._alarms.set(stream, stream.ends_at)
        self.changed[subscription] = None
        return stream

    def _poll_stream(self, stream: Stream, now: float) -> None:
        if stream.ends_at <= now:
            self._end_stream(stream, StatusError(Code.UNAVAILABLE, "the stream's life is over"))
        else:
            self._alarms.set(stream, stream.ends_at)
            self.changed[stream.subscription] = None

    def look_again(self, stream: Stream, at: float) -> None:
        """Let who serves a stream look at it again at that time."""
        self._alarms.set(stream, at)

    def _end_stream(self, stream: Stream, error: StatusError) -> None:
        stream.ended = stream.ended or error
        self.changed[stream.subscription] = None

    def close_stream(self, stream: Stream, *, now: float) -> None:
        """Forget a stream; its leases run on until they end or its client comes back."""
        subscription = stream.subscription
        if stream.number not in subscription.streams:
            return
        self._alarms.forget(stream)
        subscription.leave(stream)
        subscription.active_at = now
        if self.subscriptions.get(subscription.config.name) is subscription:
            self._settle(subscription, now)
