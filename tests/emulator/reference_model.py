"""What a subscription may and must deliver, the plain way: one object a message, searched in full.

Made from the service's documentation, not from the broker. Where several outcomes are legal, the
model says what is allowed (`may`) and what is due (`must`), and follows what was delivered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from pubsub_aio._wire import schema

DEAD = "dead"
"""The topic for what was given up."""

DAY = 86_400.0
STREAM_LIFE = 1_800.0
INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"
UNORDERED = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"


@dataclass
class Sent:
    """A published message; the id of one that was forwarded is learnt from its first delivery."""

    data: bytes
    key: str
    attributes: dict[str, str]
    time: float
    message_id: str = ""


@dataclass(eq=False)
class TopicModel:
    name: str
    retention: float = 0.0
    messages: list[Sent] = field(default_factory=list)


@dataclass(eq=False)
class Lease:
    ack_id: str
    ends_at: float
    owner: str


@dataclass(eq=False)
class Copy:
    """One subscription's view of one message."""

    sent: Sent
    acked: bool = False
    received: bool = True
    """Whether it came while the subscription existed; others can only be sought back to."""
    early: bool = False
    """Acked before one that comes first in its key."""
    lease: Lease | None = None
    deliveries: int = 0
    """Since the last seek; `total` counts those before it, too."""
    total: int = 0
    attempt: int = 0
    least_attempt: int = 1
    may_at: float = 0.0
    must_at: float = 0.0

    @property
    def out(self) -> bool:
        return self.lease is not None or self.early


@dataclass(frozen=True, kw_only=True)
class Settings:
    ordered: bool = False
    exactly_once: bool = False
    colour: str | None = None
    max_attempts: int = 0
    min_backoff: float = 0.0
    max_backoff: float = 0.0
    retain_acked: bool = False
    retention: float = 600.0


@dataclass(eq=False)
class StreamModel:
    owner: str
    client_id: str
    ack_deadline: float
    max_messages: int
    max_bytes: int
    ends_at: float


@dataclass(eq=False)
class SnapshotModel:
    topic: TopicModel
    unacked: list[Sent]
    taken_after: int
    """How many messages its topic had; it holds every later one, too."""
    expires_at: float


class SubscriptionModel:
    """What is settled, leased and due in one subscription."""

    def __init__(self, name: str, topic: TopicModel, settings: Settings) -> None:
        self.name = name
        self.topic = topic
        self.settings = settings
        self.detached = False
        self.copies: list[Copy] = [Copy(m, acked=True, received=False) for m in topic.messages]
        self.streams: dict[str, StreamModel] = {}
        self.issued: dict[str, Copy] = {}
        self.dead: list[Copy] = []
        """Messages to forward: whoever drives the model knows whether the topic exists."""

    def matches(self, sent: Sent) -> bool:
        return self.settings.colour in (None, sent.attributes.get("colour"))

    def receive(self, sent: Sent) -> None:
        self.copies.append(Copy(sent, acked=self.detached or not self.matches(sent)))

    @property
    def unsettled(self) -> list[Copy]:
        return [copy for copy in self.copies if not copy.acked]

    @property
    def leased(self) -> list[Copy]:
        return [copy for copy in self.copies if copy.lease]

    def held(self, owner: str) -> int:
        return sum(copy.lease.owner == owner for copy in self.leased if copy.lease)

    def lane(self, copy: Copy) -> list[Copy]:
        """The unsettled messages of the copy's key, in order; itself alone if it is not ordered."""
        if not self.settings.ordered or not copy.sent.key:
            return [copy]
        return [other for other in self.unsettled if other.sent.key == copy.sent.key]

    # Delivering

    def due(self, owner: str, now: float, *, for_sure: bool) -> list[Copy]:
        """What this consumer may have now, or, `for_sure`, must get if it has room."""
        found: list[Copy] = []
        for copy in self.unsettled:
            lane = self.lane(copy)
            before = lane[: lane.index(copy)]
            if copy.out or any(other.lease and other.lease.owner != owner for other in lane):
                continue
            if all(other.out or other in found for other in before):
                at = copy.must_at if for_sure else copy.may_at
                if at <= now:
                    found.append(copy)
        return found

    def room(self, stream: StreamModel) -> int:
        held = self.held(stream.owner)
        if stream.max_bytes:  # the model knows only a limit that any message reaches
            return int(held == 0)
        return stream.max_messages - held if stream.max_messages > 0 else 1_000

    def find(self, delivered: Sent) -> Copy | None:
        """The copy of a message that was delivered."""
        for copy in self.copies:
            if copy.sent == delivered:
                return copy
        for copy in self.copies:
            if not copy.sent.message_id and delivered == replace(
                copy.sent, message_id=delivered.message_id
            ):
                copy.sent.message_id = delivered.message_id
                return copy
        return None

    def deliver(self, copy: Copy, lease: Lease, attempt: int) -> None:
        """Follow a delivery, which must have been due."""
        copy.lease = lease
        copy.deliveries += 1
        copy.total += 1
        copy.attempt = attempt
        self.issued[lease.ack_id] = copy

    # Settling

    def acknowledge(self, ack_ids: list[str]) -> dict[str, str]:
        """Settle deliveries; which of the ids fail and why, if the subscription tells."""
        current, failed = self._current(ack_ids)
        for copy in current:
            if copy.lease is None:
                continue
            lane = self.lane(copy)
            if lane[0] is not copy and self.settings.exactly_once:
                failed[copy.lease.ack_id] = UNORDERED
                continue
            copy.lease, copy.early = None, True
            for first in lane:
                if not first.early:
                    break
                first.early, first.acked = False, True
        return failed if self.settings.exactly_once else {}

    def modify(self, ack_ids: list[str], seconds: float, now: float) -> dict[str, str]:
        """Move deadlines or give messages back; which of the ids fail and why, if it tells."""
        current, failed = self._current(ack_ids)
        for copy in current:
            if copy.lease and seconds:
                copy.lease.ends_at = now + seconds
            elif copy.lease:
                self._give_back(copy, now)
        return failed if self.settings.exactly_once else {}

    def _current(self, ack_ids: list[str]) -> tuple[list[Copy], dict[str, str]]:
        """The deliveries that still hold a lease, in the order of their publishing."""
        current = [copy for copy in self.leased if copy.lease and copy.lease.ack_id in ack_ids]
        valid = {copy.lease.ack_id for copy in current if copy.lease}
        return current, {ack_id: INVALID for ack_id in ack_ids if ack_id not in valid}

    def _give_back(self, copy: Copy, now: float) -> None:
        """It was not acked: it comes again after its backoff, and all after it in its key."""
        policy = self.settings
        doubled = policy.min_backoff * 2.0 ** (copy.deliveries - 1)
        backoff = min(doubled, policy.max_backoff)
        lane = self.lane(copy)
        for later in lane[lane.index(copy) :]:
            later.lease, later.early = None, False
            later.may_at = min(later.may_at, now + backoff)
            later.must_at = max(later.must_at, now + backoff)
        copy.may_at = now + backoff
        copy.least_attempt += 1
        if 0 < policy.max_attempts <= copy.attempt:
            self.dead.append(copy)

    def forwarded(self, copy: Copy, now: float) -> Sent:
        """What the dead-letter topic gets."""
        published = schema.Timestamp(seconds=int(copy.sent.time)).ToDatetime()
        prefix = "CloudPubSubDeadLetterSource"
        attributes = copy.sent.attributes | {
            f"{prefix}DeliveryCount": str(copy.attempt),
            f"{prefix}Subscription": self.name,
            f"{prefix}SubscriptionProject": "p",
            f"{prefix}TopicPublishTime": f"{published.isoformat(timespec='milliseconds')}Z",
        }
        return Sent(copy.sent.data, copy.sent.key, attributes, now)

    # Time

    @property
    def next_at(self) -> float:
        """When something happens unless somebody acts before."""
        times = [copy.lease.ends_at for copy in self.leased if copy.lease]
        times += [copy.sent.time + self.settings.retention for copy in self.unsettled]
        return min(times, default=math.inf)

    def poll(self, now: float) -> None:
        """Let messages age out and leases end."""
        for copy in self.unsettled:
            if copy.sent.time + self.settings.retention <= now:
                self.settle(copy)
        for copy in self.leased:
            if copy.lease and copy.lease.ends_at <= now:
                self._give_back(copy, now)
        for owner, stream in list(self.streams.items()):
            if stream.ends_at <= now:
                del self.streams[owner]

    def settle(self, copy: Copy) -> None:
        """It needs no delivery any more, for another reason than an ack."""
        copy.lease, copy.early, copy.acked = None, False, True

    def detach(self) -> None:
        self.detached = True
        self.streams.clear()
        for copy in self.copies:
            self.settle(copy)

    # Seeking

    def snapshot(self, now: float) -> SnapshotModel | None:
        """A snapshot; none if it would be too short-lived."""
        unacked = [copy.sent for copy in self.unsettled]
        age = now - min((sent.time for sent in unacked), default=now)
        if 7 * DAY - age < 3_600:
            return None
        expires_at = now + 7 * DAY - age
        return SnapshotModel(self.topic, unacked, len(self.topic.messages), expires_at)

    def seek_to_snapshot(self, snapshot: SnapshotModel, now: float) -> None:
        kept = snapshot.unacked + self.topic.messages[snapshot.taken_after :]
        for copy in self.copies:
            self.begin_anew(copy)
            copy.acked = not any(copy.sent is sent for sent in kept)
        self._drop_unfit(now)

    def seek_to_time(self, time: float, now: float) -> None:
        for copy in self.copies:
            self.begin_anew(copy)
            if copy.sent.time < time:
                copy.acked = True
            elif self._kept(copy, now):
                copy.acked = False
        self._drop_unfit(now)

    def _kept(self, copy: Copy, now: float) -> bool:
        """Whether a message is still there although it was acked."""
        if self.topic.retention and copy.sent.time >= now - self.topic.retention:
            return True
        return self.settings.retain_acked and copy.received

    def begin_anew(self, copy: Copy) -> None:
        """A seek ends leases, and deliveries are counted from the start, or go on."""
        copy.lease, copy.early, copy.deliveries = None, False, 0
        copy.may_at, copy.must_at, copy.least_attempt = 0.0, 0.0, 1

    def _drop_unfit(self, now: float) -> None:
        for copy in self.unsettled:
            aged = copy.sent.time + self.settings.retention <= now
            if aged or not self.matches(copy.sent):
                copy.acked = True


def full(kind: str, name: str) -> str:
    return f"projects/p/{kind}/{name}"


def config_of(name: str, topic: str, wanted: Settings, ack_deadline: int) -> schema.Subscription:
    config = schema.Subscription(
        name=full("subscriptions", name),
        topic=full("topics", topic),
        ack_deadline_seconds=ack_deadline,
        enable_message_ordering=wanted.ordered,
        enable_exactly_once_delivery=wanted.exactly_once,
        retain_acked_messages=wanted.retain_acked,
        filter=f'attributes.colour = "{wanted.colour}"' if wanted.colour else "",
        expiration_policy=schema.ExpirationPolicy(),
    )
    config.message_retention_duration.FromSeconds(int(wanted.retention))
    if wanted.min_backoff:
        config.retry_policy.minimum_backoff.FromSeconds(int(wanted.min_backoff))
        config.retry_policy.maximum_backoff.FromSeconds(int(wanted.max_backoff))
    if wanted.max_attempts:
        config.dead_letter_policy.dead_letter_topic = full("topics", DEAD)
        config.dead_letter_policy.max_delivery_attempts = wanted.max_attempts
    return config
