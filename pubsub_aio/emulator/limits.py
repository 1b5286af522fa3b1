"""What of its quotas each project has used, and what must therefore wait."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

from pubsub_aio.emulator.status import Code, Info, StatusError
from pubsub_aio.emulator.subjects import project_in, subject_of, value

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from pubsub_aio._wire import schema
    from pubsub_aio.emulator.broker import Broker
    from pubsub_aio.emulator.quotas import Quotas

UNIT = 1_000
"""What the service counts in: bytes of a request or a response."""

_MOST_BUCKETS = 1_000
_CLOSE = 1e-6  # seconds: instants since 1970 have no more digits than that
_MILLIS = 1_000


class _Rate(NamedTuple):
    """A quota by its name here, and as the service speaks of it."""

    name: str
    title: str
    per: str
    metric: str
    burst: float = 1.0
    """For how many seconds what was not used is kept."""
    shown: float = 60 / UNIT
    """What the service would show as the limit, for each one a second that it is."""


_PER_REGION = "per minute per region"
_PUBLISH = _Rate(
    "publisher_throughput", "Regional publisher throughput, kB", _PER_REGION, "regionalpublisher"
)
_PULL = _Rate(
    "pull_subscriber_throughput",
    "Regional pull subscriber throughput, kB",
    _PER_REGION,
    "regionalsubscriber",
)
_STREAM = _Rate(
    "streaming_pull_subscriber_throughput",
    "Regional StreamingPull subscriber throughput, kB",
    _PER_REGION,
    "regionalstreamingpullsubscriber",
)
_ACKNOWLEDGE = _Rate(
    "acknowledger_throughput",
    "Regional acknowledger throughput, kB",
    _PER_REGION,
    "regionalacknowledger",
)
_ADMINISTER = _Rate(
    "administrator_operations",
    "Administrator operations",
    "per minute",
    "administrator",
    burst=60.0,
    shown=60.0,
)
_KINDS = {
    "CreateTopic": "topics",
    "CreateSubscription": "subscriptions",
    "CreateSnapshot": "snapshots",
}


class Bucket:
    """Fills with `rate` a second up to `capacity`; what is taken beyond that is owed.

    It keeps only when it will be full, so that a call passes exactly when it was told it would.
    """

    def __init__(self, rate: float, capacity: float) -> None:
        self.full_at = -math.inf
        self._rate = rate
        self._capacity = capacity

    def passes_at(self, cost: float) -> float:
        """From when on so much may be taken; more than it can hold, when it is full."""
        return self.full_at - (self._capacity - min(cost, self._capacity)) / self._rate

    def take(self, cost: float, *, now: float) -> None:
        """Take so much, be it there or not."""
        self.full_at = max(self.full_at, now) + cost / self._rate

    def level(self, now: float) -> float:
        """How much is in it."""
        return self._capacity - max(0.0, self.full_at - now) * self._rate


class Limits:
    """Counts what projects use, and refuses what would be too much."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._buckets: dict[tuple[str, str], Bucket] = {}

    def admit(self, rpc: str, request: Message, broker: Broker, *, now: float) -> None:
        """Refuse a call that would go beyond a quota, and count one that does not."""
        name, _ = subject_of(rpc, request)
        project = project_in(name)
        if rpc == "Publish":
            size = sum(m.ByteSize() for m in cast("schema.PublishRequest", request).messages)
            self._pass(_PUBLISH, project, _units(size), now)
        elif rpc == "Pull":
            self._check(_PULL, project, UNIT, now)  # how much it is shows when it is answered
        elif rpc in ("Acknowledge", "ModifyAckDeadline"):
            self._pass(_ACKNOWLEDGE, project, _units(request.ByteSize()), now)
        elif rpc == "StreamingPull":
            self._check_streams(project, broker)
        else:
            self._pass(_ADMINISTER, project, 1, now)
            self._check_count(rpc, request, project, broker)

    def pulled(self, subscription: str, size: int, *, now: float) -> None:
        """Count what a Pull was answered with."""
        if bucket := self._bucket(_PULL, project_in(subscription), now):
            bucket.take(_units(size), now=now)

    # Streams

    def stream_at(self, subscription: str, *, now: float) -> float:
        """From when on a subscription's streams may be sent messages."""
        bucket = self._bucket(_STREAM, project_in(subscription), now)
        return bucket.passes_at(UNIT) if bucket else now

    def stream_space(self, subscription: str, most: int, *, now: float) -> int:
        """How many bytes of messages may be sent to one of them now."""
        bucket = self._bucket(_STREAM, project_in(subscription), now)
        return min(most, int(bucket.level(now))) if bucket else most

    def streamed(self, subscription: str, size: int, *, now: float) -> None:
        """Count what was sent on a stream."""
        if bucket := self._bucket(_STREAM, project_in(subscription), now):
            bucket.take(_units(size), now=now)

    # Rates

    def _pass(self, rate: _Rate, project: str, cost: float, now: float) -> None:
        self._check(rate, project, cost, now)
        if bucket := self._bucket(rate, project, now):
            bucket.take(cost, now=now)

    def _check(self, rate: _Rate, project: str, cost: float, now: float) -> None:
        bucket = self._bucket(rate, project, now)
        if bucket and (wait := bucket.passes_at(cost) - now) > _CLOSE:
            raise _too_fast(rate, project, getattr(self._quotas, rate.name), wait)

    def _bucket(self, rate: _Rate, project: str, now: float) -> Bucket | None:
        limit = getattr(self._quotas, rate.name)
        if limit is None:
            return None
        bucket = self._buckets.get((rate.name, project))
        if bucket is None:
            self._make_room(now)
            a_second = limit / rate.burst
            bucket = self._buckets[rate.name, project] = Bucket(a_second, limit)
        return bucket

    def _make_room(self, now: float) -> None:
        """Forget buckets that are full, which is as if they were new; if need be, the oldest."""
        if len(self._buckets) < _MOST_BUCKETS:
            return
        self._buckets = {key: b for key, b in self._buckets.items() if b.full_at > now}
        while len(self._buckets) >= _MOST_BUCKETS:
            del self._buckets[next(iter(self._buckets))]

    # Counts

    def _check_count(self, rpc: str, request: Message, project: str, broker: Broker) -> None:
        kind = _KINDS.get(rpc)
        if kind is None or value(request, "name") in broker.tables[kind]:
            return
        limit = getattr(self._quotas, f"{kind}_per_project")
        if limit is not None and _count(broker.tables[kind], project) >= limit:
            raise _too_many(f"{kind}_per_project", limit, project)
        limit = self._quotas.subscriptions_per_topic
        if limit is None or kind != "subscriptions":
            return
        topic = broker.topics.get(value(request, "topic"))
        if topic and len(topic.subscriptions) >= limit:
            raise _too_many("subscriptions_per_topic", limit, topic.config.name)

    def _check_streams(self, project: str, broker: Broker) -> None:
        limit = self._quotas.open_streams
        if limit is None:
            return
        mine = f"{project}/"
        of_project = (s for name, s in broker.subscriptions.items() if name.startswith(mine))
        if sum(len(subscription.streams) for subscription in of_project) >= limit:
            raise StatusError(
                Code.RESOURCE_EXHAUSTED,
                "You have exceeded your StreamingPull connection quota "
                f'(project="{project.partition("/")[2]}"): open_streams is {limit}; close another',
            )


def _units(size: int) -> int:
    return max(1, -(-size // UNIT)) * UNIT


def _count(names: Iterable[str], project: str) -> int:
    return sum(name.startswith(f"{project}/") for name in names)


def _too_fast(rate: _Rate, project: str, limit: float, wait: float) -> StatusError:
    wait = math.ceil(wait * _MILLIS) / _MILLIS  # no sooner than it passes
    return StatusError(
        Code.RESOURCE_EXHAUSTED,
        f"Quota exceeded for quota metric '{rate.title}' and limit '{rate.title} {rate.per}' of "
        f"service 'pubsub.googleapis.com' for consumer '{project}': {rate.name} is {limit:g}; "
        f"it passes in {wait:g} s",
        retry_delay=wait,
        info=Info(
            "RATE_LIMIT_EXCEEDED",
            "googleapis.com",
            {
                "consumer": project,
                "quota_limit_value": f"{limit / rate.burst * rate.shown:.0f}",
                "quota_metric": f"pubsub.googleapis.com/{rate.metric}",
                "service": "pubsub.googleapis.com",
            },
        ),
    )


def _too_many(name: str, limit: int, owner: str) -> StatusError:
    kind = name.partition("_")[0]
    return StatusError(
        Code.RESOURCE_EXHAUSTED,
        f"{owner} has as many {kind} as it may: {name} is {limit}; delete one",
    )
