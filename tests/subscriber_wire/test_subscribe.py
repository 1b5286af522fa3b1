"""Subscriptions over the wire, the same on each server and transport."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.pubsub_v1 import DeadLetterPolicy, PubsubMessage, RetryPolicy

from pubsub_aio import (
    Batch,
    ConfigError,
    FlowControl,
    Message,
    NotFoundError,
    ServiceError,
    StreamPolicy,
    SubscriberClient,
    Subscription,
    ThreadScheduler,
)
from tests.subscriber_wire.conftest import WITHIN, Events, Received, Site, until

# Created


def dead_letters(site: Site, form: str) -> dict[str, Any]:
    """The same settings, in each form that Google's client takes."""
    topic = site.create_topic()
    if form == "objects":
        return {
            "dead_letter_policy": DeadLetterPolicy(
                dead_letter_topic=topic, max_delivery_attempts=7
            ),
            "retry_policy": RetryPolicy(minimum_backoff=Duration(seconds=20)),
            "message_retention_duration": Duration(seconds=1200),
        }
    if form == "dicts":
        return {
            "dead_letter_policy": {"dead_letter_topic": topic, "max_delivery_attempts": 7},
            "retry_policy": {"minimum_backoff": {"seconds": 20}},
            "message_retention_duration": {"seconds": 1200},
        }
    return {
        "dead_letter_policy": {"dead_letter_topic": topic, "max_delivery_attempts": 7},
        "retry_policy": {"minimum_backoff": timedelta(seconds=20)},
        "message_retention_duration": timedelta(minutes=20),
    }


@pytest.mark.parametrize("form", ["objects", "dicts", "timedeltas"])
async def test_create_subscription_takes_the_arguments_of_googles_client(
    site: Site, client: SubscriberClient, form: str
) -> None:
    """G2: fields of the API by keyword, in whichever form Google's own client takes them."""
    topic, settings = site.create_topic(), dead_letters(site, form)
    made = await client.create_subscription(
        "worker",
        topic,
        ack_deadline_seconds=30,
        retain_acked_messages=True,
        enable_message_ordering=True,
        **settings,
    )
    found = site.get_subscription(site.subscription_name("worker"))

    assert (made.name, made.topic) == (found.name, topic)
    assert made.ack_deadline_seconds == found.ack_deadline_seconds == 30
    assert found.retain_acked_messages
    assert found.enable_message_ordering
    assert found.dead_letter_policy.max_delivery_attempts == 7
    assert found.retry_policy.minimum_backoff == timedelta(seconds=20)
    assert found.message_retention_duration == timedelta(minutes=20)


async def test_what_exists_is_left_as_it_is(site: Site, client: SubscriberClient) -> None:
    """G2: it is created only if it does not exist."""
    topic = site.create_topic()
    first = await client.create_subscription("worker", topic, ack_deadline_seconds=20)
    second = await client.create_subscription("worker", topic, ack_deadline_seconds=40)

    assert first.ack_deadline_seconds == second.ack_deadline_seconds == 20


async def test_an_existing_subscription_of_another_topic_is_refused(
    site: Site, client: SubscriberClient
) -> None:
    """G2: it would bring the wrong messages."""
    topic, other = site.create_topic(), site.create_topic()
    name = site.create_subscription(topic)

    with pytest.raises(ConfigError) as caught:
        await client.create_subscription(name, other)
    assert topic in str(caught.value)
    assert other in str(caught.value)


@pytest.mark.only("embedded")  # no server is asked
@pytest.mark.parametrize(
    ("field", "value"),
    [("ack_deadline", 10), ("ack_deadline_seconds", "soon"), ("retry_policy", {"minimum": 1})],
)
async def test_a_setting_that_cannot_be_is_refused_by_its_name(
    site: Site, client: SubscriberClient, field: str, value: Any
) -> None:
    """G2: a mistake is told where it is made, in a loop too."""
    topic = site.create_topic()
    with pytest.raises(ConfigError, match=field):
        client.create_subscription("worker", topic, **{field: value})


async def test_a_missing_topic_is_told(site: Site, client: SubscriberClient) -> None:
    with pytest.raises(NotFoundError):
        await client.create_subscription("worker", site.topic_name())


async def test_what_the_server_does_not_accept_is_told(
    site: Site, client: SubscriberClient
) -> None:
    topic = site.create_topic()
    with pytest.raises(ServiceError, match="INVALID_ARGUMENT"):
        await client.create_subscription("worker", topic, ack_deadline_seconds=601)


def test_without_a_loop_create_subscription_blocks_until_it_is_done(site: Site) -> None:
    """G2: as in a plain script."""
    topic = site.create_topic()
    with site.client() as client:
        made = client.create_subscription("worker", topic, ack_deadline_seconds=20)
        again = client.create_subscription("worker", topic)
        with pytest.raises(ConfigError):
            client.create_subscription("worker", site.create_topic())

    assert made.name == again.name == site.subscription_name("worker")
    assert made.ack_deadline_seconds == again.ack_deadline_seconds == 20


async def test_subscribe_waits_for_a_creation_that_nobody_awaited(
    site: Site, client: SubscriberClient
) -> None:
    """G2: the order of the calls is enough."""
    topic = site.create_topic()
    if site.emulator:
        site.emulator.faults.delay("CreateSubscription", 0.3)
    callback = Received()
    created = client.create_subscription("worker", topic)
    live = client.subscribe("worker", callback)
    await until(lambda: created.done() or live.done())
    site.publish(topic, "a")
    await until(lambda: callback.data == [b"a"] or live.done())

    assert not live.done()


async def test_a_creation_that_failed_ends_the_subscription_with_its_cause(
    site: Site, client: SubscriberClient
) -> None:
    client.create_subscription("worker", site.topic_name())
    live = client.subscribe("worker", Received())

    with pytest.raises(NotFoundError, match=r"[Tt]opic"):
        await asyncio.wait_for(live, WITHIN)


# Received and settled


async def test_a_message_is_what_was_published(site: Site, client: SubscriberClient) -> None:
    """G3: and a dead-letter policy makes its attempts count."""
    policy = {"dead_letter_topic": site.create_topic(), "max_delivery_attempts": 5}
    topic, name = site.create_pair(dead_letter_policy=policy)
    began = datetime.now(UTC)
    attributes = {"colour": "blue", "data": "ü"}
    sent = PubsubMessage(data=b"\x00\xff", attributes=attributes, ordering_key="key")
    (message_id,) = site.publish(
        topic,
        sent,
    )
    callback = Received()
    client.subscribe(name, callback)
    await until(lambda: callback.messages)
    (message,) = callback.messages

    assert (message.data, message.attributes) == (b"\x00\xff", attributes)
    assert (message.message_id, message.ordering_key) == (message_id, "key")
    assert message.delivery_attempt == 1
    assert abs(message.publish_time - began) < timedelta(seconds=WITHIN)
    assert message.size > 2


async def test_ack_and_nack_are_plain_calls(site: Site, client: SubscriberClient) -> None:
    """G3 G24 G25: an ack ends it; a nack brings it again at once."""
    topic, name = site.create_pair()
    received = Received()
    answers: list[object] = []

    async def callback(message: Message) -> None:
        received.note(message)
        answers.append(message.nack() if len(answers) == 0 else message.ack())  # type: ignore[func-returns-value]

    began = asyncio.get_running_loop().time()
    live = client.subscribe(name, callback)
    site.publish(topic, "a")
    await until(lambda: live.health().counts.get("acked") == 1)

    assert received.data == [b"a", b"a"]
    assert answers == [None, None]
    assert asyncio.get_running_loop().time() - began < 9  # the ack deadline did not bring it
    assert site.left(name, received.ack_ids) == []


async def test_a_settled_message_is_forgotten(site: Site, client: SubscriberClient) -> None:
    """G25 R25: what is settled, either way, is no longer held; what is not, is."""
    topic, name = site.create_pair()
    held: list[Message] = []

    async def callback(message: Message) -> None:
        held.append(message)

    live = client.subscribe(name, callback)
    site.publish(topic, *"abc")
    await until(lambda: len(held) == 3)
    assert live.health().leased == 3
    first, second, third = held
    first.ack()
    second.nack()
    assert live.health().leased == 1
    await until(lambda: len(held) == 4)
    assert held[3].data == second.data
    third.ack()
    held[3].ack()
    await until(lambda: live.health().counts.get("acked") == 3)

    assert (live.health().leased, live.health().leased_bytes, live.health().received) == (0, 0, 0)


async def test_an_answer_of_the_server_can_be_awaited(site: Site, client: SubscriberClient) -> None:
    """G3 G29: what may be waited for is a native awaitable."""
    topic, name = site.create_pair()
    done: list[bytes] = []
    ids: list[str] = []

    async def callback(message: Message) -> None:
        ids.append(message.ack_id)
        if not done:
            done.append(b"nacked")
            await message.nack_with_response()
        else:
            await message.modify_ack_deadline_with_response(60)
            await message.ack_with_response()
            done.append(message.data)

    client.subscribe(name, callback)
    site.publish(topic, "a")
    await until(lambda: done == [b"nacked", b"a"])

    assert site.left(name, ids) == []


async def test_a_callback_that_raises_has_its_message_come_again(
    site: Site, client: SubscriberClient, caplog: pytest.LogCaptureFixture
) -> None:
    """G25: and the subscription goes on."""
    topic, name = site.create_pair()
    received = Received()

    async def callback(message: Message) -> None:
        received.note(message)
        if message.data == b"bad" and received.data.count(b"bad") == 1:
            raise ValueError("it is bad the first time")
        message.ack()

    live = client.subscribe(name, callback)
    site.publish(topic, "bad")
    await until(lambda: received.data == [b"bad", b"bad"])
    site.publish(topic, "good")
    await until(lambda: live.health().counts.get("acked") == 2)

    assert site.left(name, received.ack_ids) == []
    assert "it is bad the first time" in caplog.text


async def test_callbacks_run_at_once_each_in_a_task(site: Site, client: SubscriberClient) -> None:
    """G6: and so what belongs to a task, such as a timeout, is a callback's own."""
    topic, name = site.create_pair()
    together = asyncio.Barrier(3)
    tasks: set[asyncio.Task[object] | None] = set()
    ended: list[str] = []

    async def callback(message: Message) -> None:
        tasks.add(asyncio.current_task())
        await together.wait()
        if message.data == b"a":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
        message.ack()
        ended.append(message.data.decode())

    live = client.subscribe(name, callback)
    site.publish(topic, *"abc")
    await until(lambda: live.health().counts.get("acked") == 3)

    assert len(tasks) == 3
    assert sorted(ended) == ["a", "b", "c"]


async def test_the_keep_alive_is_a_future_that_ends_when_it_is_stopped(
    site: Site, client: SubscriberClient
) -> None:
    """G4: it is done only then."""
    topic, name = site.create_pair()
    callback = Received()
    live = client.subscribe(name, callback)
    site.publish(topic, "a")
    await until(lambda: callback.messages)

    assert isinstance(live, asyncio.Future)
    assert isinstance(live, Subscription)
    assert not live.done()
    live.stop()
    assert await asyncio.wait_for(live, WITHIN) is None  # type: ignore[func-returns-value]
    assert live.state == "stopped"
    assert site.left(name, callback.ack_ids) == []


async def test_a_cancelled_keep_alive_ends_by_its_policy_and_is_cancelled_then(
    site: Site, client: SubscriberClient
) -> None:
    """G4: a callback that has begun ends first."""
    topic, name = site.create_pair()
    began, go_on = asyncio.Event(), asyncio.Event()
    ids: list[str] = []

    async def callback(message: Message) -> None:
        ids.append(message.ack_id)
        began.set()
        await go_on.wait()
        message.ack()

    live = client.subscribe(name, callback)
    site.publish(topic, "a")
    await asyncio.wait_for(began.wait(), WITHIN)
    assert live.cancel()
    await until(lambda: live.state == "stopping")
    assert not live.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(live, WITHIN)

    assert site.left(name, ids) == []


@pytest.mark.only("embedded", "google-grpc")  # Google's REST Pull that waits does not hear of it
async def test_the_keep_alive_fails_when_the_subscription_is_deleted(
    site: Site, client: SubscriberClient
) -> None:
    """G4: it is no use to go on."""
    topic, name = site.create_pair()
    callback = Received()
    live = client.subscribe(name, callback)
    site.publish(topic, "a")
    await until(lambda: callback.messages)
    site.subscriber.delete_subscription(subscription=name, retry=None)

    with pytest.raises(NotFoundError):
        await asyncio.wait_for(live, WITHIN)
    assert live.state == "failed"


# Flow control and schedulers


async def test_flow_control_bounds_what_is_held(site: Site, client: SubscriberClient) -> None:
    """G7: the example's limits let one message be held at a time."""
    topic, name = site.create_pair()
    running = most = 0
    received = Received()

    async def callback(message: Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running, live.health().leased)
        await asyncio.sleep(0)
        running -= 1
        await received(message)

    flow = FlowControl(
        max_messages=1,
        resume_threshold=0.8,
        max_request_batch_size=1,
        max_request_batch_latency=0.1,
        max_lease_duration=10,
    )
    live = client.subscribe(name, callback, flow_control=flow)
    site.publish(topic, *"abcd")
    await until(lambda: live.health().counts.get("acked") == 4)

    assert most == 1
    assert sorted(received.data) == [b"a", b"b", b"c", b"d"]


async def test_a_scheduler_decides_where_callbacks_run(
    site: Site, client: SubscriberClient
) -> None:
    """G7: any object that runs them will do."""
    topic, name = site.create_pair()
    received = Received()

    class Noting:
        def __init__(self) -> None:
            self.ran: list[bytes] = []

        async def run(self, callback: object, message: Message) -> None:
            self.ran.append(message.data)
            assert callback is received
            await received(message)

        def close(self) -> None:
            raise AssertionError("it is its maker's to close")

    scheduler = Noting()
    live = client.subscribe(
        name, received, scheduler=scheduler, flow_control=FlowControl(max_messages=5)
    )
    site.publish(topic, *"abc")
    await until(lambda: live.health().counts.get("acked") == 3)

    assert sorted(scheduler.ran) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("given", [True, False], ids=["scheduler", "no scheduler"])
async def test_plain_functions_run_in_threads(
    site: Site, client: SubscriberClient, given: bool
) -> None:
    """G7: where they may block, and can settle their messages."""
    topic, name = site.create_pair()
    threads: set[str] = set()
    together = threading.Barrier(3, timeout=WITHIN)

    def callback(message: Message) -> None:
        threads.add(threading.current_thread().name)
        together.wait()
        message.ack()

    scheduler = ThreadScheduler(max_workers=3) if given else None
    live = client.subscribe(name, callback, scheduler=scheduler)
    site.publish(topic, *"abc")
    await until(lambda: live.health().counts.get("acked") == 3)
    live.stop()
    await live
    if scheduler:
        scheduler.close()

    assert len(threads) == 3
    assert threading.main_thread().name not in threads


# Other ways to receive


async def test_batches_are_settled_at_once(site: Site, client: SubscriberClient) -> None:
    topic, name = site.create_pair()
    data: list[bytes] = []
    ids: list[str] = []

    async def callback(batch: Batch) -> None:
        data.extend(message.data for message in batch)
        ids.extend(message.ack_id for message in batch)
        await batch.ack_with_response()

    live = client.subscribe_batches(name, callback, max_messages=3)
    site.publish(topic, *"abcdefg")
    await until(lambda: live.health().counts.get("acked") == 7)

    assert sorted(data) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    assert site.left(name, ids) == []


async def test_a_batch_whose_callback_raises_comes_again(
    site: Site, client: SubscriberClient
) -> None:
    topic, name = site.create_pair()
    calls = 0

    async def callback(batch: Batch) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("it is bad the first time")
        batch.ack()

    live = client.subscribe_batches(name, callback, max_messages=3, max_latency=0.01)
    site.publish(topic, *"abc")
    await until(lambda: live.health().counts.get("acked") == 3)

    assert calls >= 2


async def test_messages_come_one_by_one_to_a_loop(site: Site, client: SubscriberClient) -> None:
    topic, name = site.create_pair()
    received = Received()
    site.publish(topic, *"abc")
    async with contextlib.aclosing(client.messages(name)) as messages:
        async for message in messages:
            await received(message)
            if len(received.messages) == 3:
                break

    assert sorted(received.data) == [b"a", b"b", b"c"]
    assert site.left(name, received.ack_ids) == []


async def test_what_a_loop_did_not_take_is_given_back(site: Site, client: SubscriberClient) -> None:
    topic, name = site.create_pair()
    site.publish(topic, *"abc")
    messages = client.messages(name)
    first = await anext(messages)
    first.ack()
    await messages.aclose()

    left = site.receive(name, 2)
    assert sorted([first.data, *(one.message.data for one in left)]) == [b"a", b"b", b"c"]


@pytest.mark.only("embedded-grpc")  # others do not tell which streams are open
async def test_leaving_a_loop_ends_its_subscription(site: Site, client: SubscriberClient) -> None:
    assert site.emulator
    topic, name = site.create_pair()
    site.publish(topic, "a")
    async for message in client.messages(name):
        message.ack()
        break
    await until(lambda: site.emulator and not site.emulator.streams(name))
    await until(lambda: site.emulator and site.emulator.backlog(name) == 0)


async def test_auto_ack_acks_what_returns(site: Site, client: SubscriberClient) -> None:
    topic, name = site.create_pair()
    received = Received()

    async def callback(message: Message) -> None:
        received.note(message)

    live = client.subscribe(name, callback, auto_ack=True)
    site.publish(topic, *"abc")
    await until(lambda: live.health().counts.get("acked") == 3)

    assert site.left(name, received.ack_ids) == []


# Ordering and exactly-once


async def test_messages_of_a_key_come_in_order_one_at_a_time(
    site: Site, client: SubscriberClient
) -> None:
    topic, name = site.create_pair(enable_message_ordering=True)
    order: dict[str, list[int]] = {"a": [], "b": []}
    running: set[str] = set()

    async def callback(message: Message) -> None:
        key = message.ordering_key
        assert key not in running
        running.add(key)
        await asyncio.sleep(0)
        running.remove(key)
        order[key].append(int(message.data))
        message.ack()

    for number in range(20):
        sent = [PubsubMessage(data=b"%d" % number, ordering_key=key) for key in order]
        site.publish(topic, *sent)
    live = client.subscribe(name, callback)
    await until(lambda: live.health().counts.get("acked") == 40)

    assert order == {"a": list(range(20)), "b": list(range(20))}


async def test_a_nacked_message_of_a_key_comes_again_before_later_ones(
    site: Site, client: SubscriberClient
) -> None:
    topic, name = site.create_pair(enable_message_ordering=True)
    order: list[int] = []

    async def callback(message: Message) -> None:
        order.append(int(message.data))
        if order == [0, 1]:
            message.nack()
        else:
            message.ack()

    site.publish(
        topic, *(PubsubMessage(data=b"%d" % number, ordering_key="a") for number in range(5))
    )
    live = client.subscribe(name, callback)
    await until(lambda: live.health().counts.get("acked", 0) >= 5, timeout=20)

    assert order[:2] == [0, 1]
    assert order[-4:] == [1, 2, 3, 4]


async def test_with_exactly_once_an_ack_is_confirmed(site: Site, client: SubscriberClient) -> None:
    topic, name = site.create_pair(enable_exactly_once_delivery=True)
    received = Received()

    async def callback(message: Message) -> None:
        await message.ack_with_response()
        received.note(message)

    live = client.subscribe(name, callback)
    site.publish(topic, *"abc")
    await until(lambda: len(received.messages) == 3)

    assert sorted(received.data) == [b"a", b"b", b"c"]
    assert live.settings["enable_exactly_once_delivery"].value is True
    assert site.pull_now(name) == []


# Where messages come from


@pytest.mark.only("embedded-grpc")  # others do not tell which streams are open
async def test_streams_are_opened_each_with_an_id_of_its_own(
    site: Site, client: SubscriberClient
) -> None:
    """R23 R35: the id says which host, process and stream it is, and nobody else has it."""
    assert site.emulator
    topic, name = site.create_pair()
    callback = Received()
    live = client.subscribe(name, callback, streams=StreamPolicy(streams=3))
    other = client.subscribe(name, callback)
    await until(lambda: live.health().streams == 3 and other.health().streams == 1)
    ids = [stream.client_id for stream in site.emulator.streams(name)]
    site.publish(topic, *"abcdef")
    await until(lambda: len(callback.messages) == 6)

    assert len(ids) == len(set(ids)) == 4
    for one in ids:
        host, process, number, unique = one.split("@")
        assert host
        assert process.isdigit()
        assert number.isdigit()
        assert len(unique) >= 16
    assert set(live.settings["client_ids"].value) < set(ids)  # type: ignore[call-overload]


@pytest.mark.only("embedded-grpc")  # others do not tell which streams are open
async def test_a_reopened_stream_keeps_its_id(site: Site, client: SubscriberClient) -> None:
    """R35: so that the server knows it for the same."""
    assert site.emulator
    topic, name = site.create_pair()
    callback, events = Received(), Events()
    live = client.subscribe(
        name, callback, on_event=events, streams=StreamPolicy(first_delay=0.001)
    )
    await live.ready()
    (before,) = site.emulator.streams(name)
    assert site.emulator.faults.cut_streams(name) == 1
    await until(lambda: events.states() == ["running", "reconnecting", "running"])
    (after,) = site.emulator.streams(name)
    live.flow_control = FlowControl(max_messages=10)
    await until(
        lambda: (
            [one.opened for one in site.emulator.streams(name)] not in ([], [after.opened])
            if site.emulator
            else False
        )
    )
    (changed,) = site.emulator.streams(name)
    site.publish(topic, "a")
    await until(lambda: callback.data == [b"a"])

    assert before.opened < after.opened < changed.opened
    assert before.client_id == after.client_id == changed.client_id


@pytest.mark.only("embedded-rest")  # only where messages are pulled, and faults can be asked for
async def test_a_pull_that_the_server_is_too_busy_for_is_soon_repeated(
    site: Site, client: SubscriberClient
) -> None:
    """R24: after 20 ms, and it is no failure."""
    assert site.emulator
    topic, name = site.create_pair()
    callback, events = Received(), Events()
    site.publish(topic, "a")
    site.emulator.faults.fail("Pull", "RESOURCE_EXHAUSTED", times=20)
    began = asyncio.get_running_loop().time()
    client.subscribe(name, callback, on_event=events)
    await until(lambda: callback.messages)

    assert 20 * 0.02 <= asyncio.get_running_loop().time() - began < 4
    assert events.states() == ["running"]


@pytest.mark.only("embedded-grpc")  # faults can be asked for
async def test_a_stream_that_the_server_is_too_busy_for_is_opened_again(
    site: Site, client: SubscriberClient
) -> None:
    """R24: when the server says, if it says so."""
    assert site.emulator
    topic, name = site.create_pair()
    callback = Received()
    site.publish(topic, "a")
    site.emulator.faults.fail("StreamingPull", "RESOURCE_EXHAUSTED", retry_delay=0.5)
    began = asyncio.get_running_loop().time()
    client.subscribe(name, callback, streams=StreamPolicy(first_delay=0.001))
    await until(lambda: callback.messages)

    assert 0.5 <= asyncio.get_running_loop().time() - began < 4


# Names


@pytest.mark.parametrize("named", ["argument", "environment", "in full"])
async def test_the_project_comes_from_where_it_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """G1: and the server's address from the environment."""
    topic = site.create_topic()
    name = site.create_subscription_named("worker", topic)
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", site.address)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "another-project")
    if named == "environment":
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", site.project)
    project = site.project if named == "argument" else None
    callback = Received()
    site.publish(topic, "a")
    async with SubscriberClient(project, transport=site.transport) as client:
        live = client.subscribe(name if named == "in full" else "worker", callback)
        await until(lambda: callback.messages)

        assert live.name == name
        assert live.settings["endpoint"].value == site.address
        assert "PUBSUB_EMULATOR_HOST" in live.settings["endpoint"].source
