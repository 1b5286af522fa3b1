"""The broker against a reference model, on arbitrary sequences of calls.

PUBSUB_AIO_FUZZ_EXAMPLES sets how many sequences are tried; they are then drawn at random, and one
that fails is shrunk, which takes minutes.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pubsub_aio._wire import schema
from pubsub_aio.emulator.broker import Broker
from pubsub_aio.emulator.status import Code, StatusError
from pubsub_aio.emulator.subscriptions import Stream, Subscription
from tests.emulator.reference_model import (
    DAY,
    DEAD,
    STREAM_LIFE,
    Lease,
    Sent,
    Settings,
    SnapshotModel,
    StreamModel,
    SubscriptionModel,
    TopicModel,
    config_of,
    full,
)

EXAMPLES = os.environ.get("PUBSUB_AIO_FUZZ_EXAMPLES")
pytestmark = [pytest.mark.timeout(0)] if EXAMPLES else []

topics = st.sampled_from(["one", "one", "one", "two", DEAD])
seldom = st.integers(0, 5).map(lambda n: n == 5)
names = st.sampled_from(["aaa", "bbb", "ccc"])
which = st.integers(0, 30)
durations = st.sampled_from([1, 5, 9, 10, 18, 20, 40, 60, 61, 300, 590, 6_048])
picks = st.lists(
    st.tuples(st.sampled_from(["leased", "leased", "leased", "any"]), which), min_size=1, max_size=3
)
subscriptions = st.builds(
    Settings,
    ordered=st.sampled_from([True, True, False]),
    exactly_once=st.sampled_from([False, False, True]),
    colour=st.sampled_from([None, None, "red", "blue"]),
    max_attempts=st.sampled_from([0, 5]),
    min_backoff=st.sampled_from([0.0, 0.0, 10.0]),
    max_backoff=st.sampled_from([10.0, 35.0, 600.0]),
    retain_acked=st.booleans(),
    retention=st.sampled_from([600.0, 1_200.0, 604_800.0]),
)
messages = st.lists(
    st.tuples(st.sampled_from(["", "k", "k", "q"]), st.sampled_from(["", "red", "blue"])),
    min_size=1,
    max_size=6,
)


@contextlib.contextmanager
def refused(code: Code) -> Iterator[None]:
    with pytest.raises(StatusError) as caught:
        yield
    assert caught.value.code == code


class BrokerAgainstModel(RuleBasedStateMachine):
    """Every call goes to both, and the answers must agree."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000.0
        self.broker = Broker()
        self.topics: dict[str, TopicModel] = {}
        self.subscriptions: dict[str, SubscriptionModel] = {}
        self.snapshots: dict[str, tuple[SnapshotModel, str | None]] = {}
        self.streams: dict[tuple[SubscriptionModel, str], Stream] = {}
        self.ack_ids: set[str] = set()
        self.offers: dict[tuple[SubscriptionModel, str], int] = {}
        self.count = 0

    # Topics

    @initialize(
        retention=st.sampled_from([0, 600, 600]),
        settings=subscriptions,
        deadline=st.sampled_from([10, 60]),
        batch=messages,
    )
    def begin(
        self, retention: int, settings: Settings, deadline: int, batch: list[tuple[str, str]]
    ) -> None:
        self.create_topic(DEAD, 0)
        self.create_subscription("ddd", DEAD, Settings(), 10)
        self.create_topic("one", retention)
        self.create_subscription("aaa", "one", settings, deadline)
        self.publish("one", batch)

    @rule(name=topics, retention=st.sampled_from([0, 600]))
    @precondition(lambda self: len(self.topics) < 3)
    def create_topic(self, name: str, retention: int) -> None:
        config = schema.Topic(name=full("topics", name))
        if retention:
            config.message_retention_duration.FromSeconds(retention)
        if name in self.topics:
            with refused(Code.ALREADY_EXISTS):
                self.broker.create_topic(config, now=self.now)
        else:
            self.broker.create_topic(config, now=self.now)
            self.topics[name] = TopicModel(name, float(retention))

    @rule(topic=topics, name=names, what=st.integers(0, 8))
    def remove(self, topic: str, name: str, what: int) -> None:
        if what == 0:
            self._delete_topic(topic)
        elif what == 1:
            self._delete_subscription(name)
        elif what == 2:
            self._detach_subscription(name)

    def _delete_topic(self, name: str) -> None:
        if name not in self.topics:
            with refused(Code.NOT_FOUND):
                self.broker.delete_topic(full("topics", name), now=self.now)
        else:
            self.broker.delete_topic(full("topics", name), now=self.now)
            self.topics.pop(name).retention = 0.0

    @rule(name=topics, batch=messages)
    def publish(self, name: str, batch: list[tuple[str, str]]) -> None:
        sent: list[Sent] = []
        for key, colour in batch:
            self.count += 1
            attributes = {"colour": colour} if colour else {}
            sent.append(Sent(b"%d" % self.count, key, attributes, self.now))
        bodies = [
            schema.PubsubMessage(
                data=m.data, ordering_key=m.key, attributes=m.attributes
            ).SerializeToString()
            for m in sent
        ]
        if name not in self.topics:
            with refused(Code.NOT_FOUND):
                self.broker.publish(full("topics", name), bodies, now=self.now)
            return
        first_id = self.broker.publish(full("topics", name), bodies, now=self.now)
        for message_id, message in enumerate(sent, first_id):
            message.message_id = str(message_id)
            self._publish(self.topics[name], message)

    def _publish(self, topic: TopicModel, message: Sent) -> None:
        topic.messages.append(message)
        for subscription in self.subscriptions.values():
            if subscription.topic is topic:
                subscription.receive(message)

    # Subscriptions

    @rule(
        name=names,
        topic=topics,
        settings=subscriptions,
        deadline=st.sampled_from([10, 60]),
    )
    @precondition(lambda self: len(self.subscriptions) < 4)
    def create_subscription(self, name: str, topic: str, settings: Settings, deadline: int) -> None:
        if topic == DEAD:  # in which order it gets messages of a key depends on who gives up first
            settings = Settings(retention=settings.retention, colour=settings.colour)
        config = config_of(name, topic, settings, deadline)
        missing = topic not in self.topics or (settings.max_attempts and DEAD not in self.topics)
        if missing or name in self.subscriptions:
            with refused(Code.NOT_FOUND if missing else Code.ALREADY_EXISTS):
                self.broker.create_subscription(config, now=self.now)
        else:
            self.broker.create_subscription(config, now=self.now)
            model = SubscriptionModel(name, self.topics[topic], settings)
            self.subscriptions[name] = model

    def _real(self, model: SubscriptionModel) -> Subscription:
        return self.broker.subscription(full("subscriptions", model.name))

    def _pick(self, number: int) -> SubscriptionModel:
        """A subscription: mostly one that has something to deliver or settle."""
        models = list(self.subscriptions.values())
        if number % 8:
            models = [model for model in models if model.unsettled] or models
            models = [model for model in models if model.leased or number % 3] or models
        return models[number % len(models)]

    def _delete_subscription(self, name: str) -> None:
        if name not in self.subscriptions:
            with refused(Code.NOT_FOUND):
                self.broker.delete_subscription(full("subscriptions", name), now=self.now)
        else:
            real = self._real(self.subscriptions[name])
            self.broker.delete_subscription(full("subscriptions", name), now=self.now)
            model = self.subscriptions.pop(name)
            self._ended(model, Code.NOT_FOUND)
            with refused(Code.NOT_FOUND):
                self.broker.pull(real, limit=1, now=self.now)

    def _detach_subscription(self, name: str) -> None:
        model = self.subscriptions.get(name)
        if model and not model.detached:
            self.broker.detach_subscription(full("subscriptions", model.name), now=self.now)
            model.detach()
            self._ended(model, Code.FAILED_PRECONDITION)

    def _ended(self, model: SubscriptionModel, code: Code) -> None:
        """Every stream of the subscription was told so; close it, as its server does."""
        for key in [key for key in self.streams if key[0] is model]:
            stream = self.streams.pop(key)
            assert stream.ended is not None
            assert stream.ended.code == code
            self.broker.close_stream(stream, now=self.now)

    # Delivering

    @rule(number=which, limit=st.sampled_from([1, 2, 3, 1_000]))
    @precondition(lambda self: self.subscriptions)
    def pull(self, number: int, limit: int) -> None:
        model = self._pick(number)
        real = self._real(model)
        if model.detached:
            with refused(Code.FAILED_PRECONDITION):
                self.broker.pull(real, limit=limit, now=self.now)
            return
        self._pull(model, real, limit)

    def _pull(self, model: SubscriptionModel, real: Subscription, limit: int) -> None:
        payload, more = self.broker.pull(real, limit=limit, now=self.now)
        assert not more
        self.count += 1
        deadline = float(real.config.ack_deadline_seconds)
        self._delivered(model, f"pull {self.count}", payload, limit, deadline)

    def _delivered(
        self, model: SubscriptionModel, owner: str, payload: bytes, limit: int, deadline: float
    ) -> None:
        """Check a response message by message, and follow it."""
        least = min(limit, len(model.due(owner, self.now, for_sure=True)))
        received = schema.PullResponse.FromString(payload).received_messages
        assert len(received) <= limit
        if len(model.streams) > 1:
            assert received or not least
        else:
            assert len(received) >= least
        for item in received:
            message = item.message
            time = message.publish_time.ToNanoseconds() / 1e9
            attributes = dict(message.attributes)
            sent = Sent(message.data, message.ordering_key, attributes, time, message.message_id)
            copy = model.find(sent)
            assert copy is not None, f"{model.name} was never sent {sent}"
            assert copy in model.due(owner, self.now, for_sure=False)
            attempt = item.delivery_attempt
            if model.settings.max_attempts:
                assert copy.least_attempt <= attempt <= copy.total + 1
            else:
                assert attempt == 0
            assert item.ack_id not in self.ack_ids
            self.ack_ids.add(item.ack_id)
            model.deliver(copy, Lease(item.ack_id, self.now + deadline, owner), attempt)

    @rule(number=which, times=st.integers(1, 5), wait=st.sampled_from([0, 0, 20, 40]))
    @precondition(lambda self: any(model.unsettled for model in self.subscriptions.values()))
    def bounce(self, number: int, times: int, wait: int) -> None:
        """Nack whatever comes, several times over."""
        model = self._pick(number)
        real = self._real(model)
        for _ in range(0 if model.detached else times):
            self._pull(model, real, 1_000)
            ids = [copy.lease.ack_id for copy in model.leased if copy.lease]
            if not ids:
                break
            failed = self.broker.modify_ack_deadline(real, ids, 0, now=self.now)
            assert failed == model.modify(ids, 0.0, self.now)
            self._forward()
            self.agree()
            if wait:
                self.advance(wait, late=False, long=False)

    @rule(
        number=which,
        client_id=st.sampled_from(["", "x", "y"]),
        deadline=st.sampled_from([10, 60, 600]),
        max_messages=st.sampled_from([-1, 0, 1, 2, 5]),
        max_bytes=st.sampled_from([0, 0, 1]),
    )
    @precondition(lambda self: self.subscriptions)
    def open_stream(
        self, number: int, client_id: str, deadline: int, max_messages: int, max_bytes: int
    ) -> None:
        model = self._pick(number)
        with refused(Code.FAILED_PRECONDITION) if model.detached else contextlib.nullcontext():
            stream = self.broker.open_stream(
                full("subscriptions", model.name),
                client_id=client_id,
                ack_deadline=deadline,
                max_messages=max_messages,
                max_bytes=max_bytes,
                now=self.now,
            )
        if model.detached:
            return
        self.count += 1
        owner = f"client {client_id}" if client_id else f"stream {self.count}"
        predecessor = self.streams.get((model, owner))
        if predecessor:
            assert predecessor.ended is not None
            assert predecessor.ended.code == Code.ABORTED
        self.streams[model, owner] = stream
        ends_at = self.now + STREAM_LIFE
        model.streams[owner] = StreamModel(
            owner, client_id, float(deadline), max_messages, max_bytes, ends_at
        )
        self._take(model, model.streams[owner], stream)

    def _pick_stream(self, number: int) -> tuple[SubscriptionModel, StreamModel, Stream]:
        model, owner = list(self.streams)[number % len(self.streams)]
        return model, model.streams[owner], self.streams[model, owner]

    @rule(number=which)
    @precondition(lambda self: self.streams)
    def take(self, number: int) -> None:
        self._take(*self._pick_stream(number))

    def _take(self, model: SubscriptionModel, stream: StreamModel, real: Stream) -> None:
        limit = max(0, model.room(stream))
        payload, more = self.broker.take(real.subscription, real, limit=1_000, now=self.now)
        assert not more
        self._delivered(model, stream.owner, payload, limit, stream.ack_deadline)

    @rule(number=which)
    @precondition(lambda self: self.streams)
    def close_stream(self, number: int) -> None:
        model, stream, real = self._pick_stream(number)
        self.broker.close_stream(real, now=self.now)
        del self.streams[model, stream.owner], model.streams[stream.owner]

    # Settling

    def _ids(self, model: SubscriptionModel, picked: list[tuple[str, int]]) -> list[str]:
        """Ack ids of the subscription: current ones, or any that it ever issued."""
        leased = [copy.lease.ack_id for copy in model.leased if copy.lease]
        issued = list(model.issued)
        found = []
        for kind, number in picked:
            pool = leased if kind == "leased" and leased else issued
            found += [pool[number % len(pool)]] if pool else []
        return found

    @rule(number=which, picked=picks)
    @precondition(lambda self: any(model.issued for model in self.subscriptions.values()))
    def acknowledge(self, number: int, picked: list[tuple[str, int]]) -> None:
        model = self._pick(number)
        if ids := self._ids(model, picked):
            failed = self.broker.acknowledge(self._real(model), ids, now=self.now)
            assert failed == model.acknowledge(ids)

    @rule(number=which, picked=picks, nacked=picks)
    @precondition(lambda self: any(model.unsettled for model in self.subscriptions.values()))
    def work(
        self, number: int, picked: list[tuple[str, int]], nacked: list[tuple[str, int]]
    ) -> None:
        """Pull, acknowledge some, and sometimes give some back."""
        self.pull(number, 1_000)
        self.agree()
        self.acknowledge(number, picked)
        self.agree()
        if number % 2:
            self.nack(number, nacked)

    @rule(number=which, picked=picks)
    @precondition(lambda self: any(model.issued for model in self.subscriptions.values()))
    def nack(self, number: int, picked: list[tuple[str, int]]) -> None:
        self._modify(number, picked, 0)

    @rule(number=which, picked=picks, seconds=st.sampled_from([1, 5, 60, 600]))
    @precondition(lambda self: any(model.issued for model in self.subscriptions.values()))
    def extend(self, number: int, picked: list[tuple[str, int]], seconds: int) -> None:
        self._modify(number, picked, seconds)

    def _modify(self, number: int, picked: list[tuple[str, int]], seconds: int) -> None:
        model = self._pick(number)
        if ids := self._ids(model, picked):
            real = self._real(model)
            failed = self.broker.modify_ack_deadline(real, ids, seconds, now=self.now)
            assert failed == model.modify(ids, float(seconds), self.now)
            self._forward()

    @rule(number=which, foreign=which, picked=picks, seconds=st.sampled_from([None, 0, 60]))
    @precondition(lambda self: self.subscriptions)
    def refuse(
        self, number: int, foreign: int, picked: list[tuple[str, int]], seconds: int | None
    ) -> None:
        """An id that was never issued for the subscription, and none of the others is touched."""
        model = self._pick(number)
        others = [*sorted(self.ack_ids - set(model.issued)), "", "garbage", "0" * 48, "\u00e9"]
        ids = [*self._ids(model, picked), others[foreign % len(others)]]
        with refused(Code.INVALID_ARGUMENT):
            if seconds is None:
                self.broker.acknowledge(self._real(model), ids, now=self.now)
            else:
                self.broker.modify_ack_deadline(self._real(model), ids, seconds, now=self.now)

    def _forward(self) -> None:
        """Publish what was given up to the dead-letter topic, if that exists."""
        for model in list(self.subscriptions.values()):
            dead, model.dead = model.dead, []
            for copy in dead if DEAD in self.topics else []:
                model.settle(copy)
                self._publish(self.topics[DEAD], model.forwarded(copy, self.now))

    # Snapshots and seeking

    @rule(number=which, name=st.sampled_from(["sn1", "sn2"]), delete=seldom)
    @precondition(lambda self: self.subscriptions)
    def snapshot(self, number: int, name: str, delete: bool) -> None:
        if delete:
            self._delete_snapshot(name)
            return
        model = self._pick(number)
        config = schema.Snapshot(name=full("snapshots", name))
        source = full("subscriptions", model.name)
        snapshot = model.snapshot(self.now)
        code = None
        if model.detached or (name not in self.snapshots and not snapshot):
            code = Code.FAILED_PRECONDITION
        elif name in self.snapshots:
            code = Code.ALREADY_EXISTS
        with refused(code) if code else contextlib.nullcontext():
            config = self.broker.create_snapshot(config, source, now=self.now)
        if not code and snapshot:
            expires_at = config.expire_time.ToNanoseconds() / 1e9
            if model.settings.colour:  # an unexamined message may count as the oldest unacked one
                snapshot.expires_at = expires_at
            assert expires_at == snapshot.expires_at
            self.snapshots[name] = snapshot, model.settings.colour

    def _delete_snapshot(self, name: str) -> None:
        known = self.snapshots.pop(name, None)
        with contextlib.nullcontext() if known else refused(Code.NOT_FOUND):
            self.broker.delete_snapshot(full("snapshots", name), now=self.now)

    @rule(number=which, name=st.sampled_from(["sn1", "sn2"]))
    @precondition(lambda self: self.subscriptions and self.snapshots)
    def seek_to_snapshot(self, number: int, name: str) -> None:
        model = self._pick(number)
        snapshot, colour = self.snapshots.get(name, (None, None))
        if colour not in (None, model.settings.colour):
            return  # whether what one filter let pass is unacked for another is nowhere said
        code = None
        if snapshot is None:
            code = Code.NOT_FOUND
        elif model.detached or model.topic is not snapshot.topic:
            code = Code.FAILED_PRECONDITION
        with refused(code) if code else contextlib.nullcontext():
            self.broker.seek_to_snapshot(
                full("subscriptions", model.name), full("snapshots", name), now=self.now
            )
        if not code and snapshot:
            model.seek_to_snapshot(snapshot, self.now)

    @rule(
        number=st.integers(1, 8),
        ago=st.sampled_from([-60, -1, 0, 1, 10, 60, 300, 599, 600, 2_000]),
    )
    @precondition(lambda self: self.subscriptions)
    def seek_to_time(self, number: int, ago: int) -> None:
        models = list(self.subscriptions.values())
        models = [model for model in models if any(copy.acked for copy in model.copies)] or models
        model = models[number % len(models)]
        name, time = full("subscriptions", model.name), self.now - ago
        if model.detached:
            with refused(Code.FAILED_PRECONDITION):
                self.broker.seek_to_time(name, time, now=self.now)
        else:
            self.broker.seek_to_time(name, time, now=self.now)
            model.seek_to_time(time, self.now)

    # Time

    def _next_at(self) -> float:
        times = [model.next_at for model in self.subscriptions.values()]
        times += [stream.ends_at for m, o in self.streams for stream in [m.streams[o]]]
        times += [snapshot.expires_at for snapshot, _ in self.snapshots.values()]
        return min(times, default=math.inf)

    @rule(seconds=durations, late=st.booleans(), long=seldom)
    def advance(self, seconds: float, late: bool, long: bool) -> None:
        """Let time pass; `late` if the broker is polled only at the end of it."""
        target = self.now + seconds + (7 * DAY if long else 0)
        while not (late or long) and self.broker.next_at <= target:
            self._poll(self.broker.next_at)
        self._poll(target)

    def _poll(self, now: float) -> None:
        self.now = now
        self.broker.poll(now)
        assert self.broker.next_at > now
        for model in self.subscriptions.values():
            model.poll(now)
        self._forward()
        self.snapshots = {n: s for n, s in self.snapshots.items() if s[0].expires_at > now}
        for (model, owner), stream in list(self.streams.items()):
            if owner not in model.streams:
                assert stream.ended is not None
                assert stream.ended.code == Code.UNAVAILABLE
                self.broker.close_stream(stream, now=now)
                del self.streams[model, owner]
        self._woken()

    # What always holds

    @invariant()
    def agree(self) -> None:
        assert {full("subscriptions", name) for name in self.subscriptions} == set(
            self.broker.subscriptions
        )
        assert {full("snapshots", name) for name in self.snapshots} == set(self.broker.snapshots)
        for model in self.subscriptions.values():
            real = self._real(model)
            backlog, least = real.deliveries.progress.backlog, len(model.unsettled)
            unfit = sum(not model.matches(copy.sent) for copy in model.copies)
            assert least <= backlog <= least + unfit
            assert real.deliveries.outstanding == len(model.leased)
        for (model, owner), stream in self.streams.items():
            assert not stream.ended
            assert stream.held_messages == model.held(owner)
        assert self.now < self.broker.next_at <= self._next_at()
        self._woken()

    def _woken(self) -> None:
        """Who has something to take now and had nothing before was told."""
        told, before = set(self.broker.changed), self.offers
        self.broker.changed.clear()
        self.offers = {}
        for model in self.subscriptions.values():
            for owner in [*model.streams, "a Pull"]:
                due = len(model.due(owner, self.now, for_sure=True))
                if owner in model.streams:
                    due = min(due, model.room(model.streams[owner]))
                self.offers[model, owner] = due
                if due > 0 and before.get((model, owner), due) <= 0:
                    assert self._real(model) in told

    def teardown(self) -> None:
        """Nothing is lost: what is not settled can be had."""
        for model in list(self.subscriptions.values()):
            for _ in range(100):
                if not model.unsettled:
                    break
                self._pull(model, self._real(model), 1_000)
                ids = [copy.lease.ack_id for copy in model.leased if copy.lease]
                if ids:
                    assert not self.broker.acknowledge(self._real(model), ids, now=self.now)
                    model.acknowledge(ids)
                else:
                    self._poll(self.broker.next_at)
                self.agree()
            assert not model.unsettled


TestBrokerAgainstModel = BrokerAgainstModel.TestCase
TestBrokerAgainstModel.settings = settings(
    max_examples=int(EXAMPLES or 200),
    stateful_step_count=40,
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    phases=[Phase.generate] + [Phase.shrink] * bool(EXAMPLES),
    suppress_health_check=list(HealthCheck),
)
