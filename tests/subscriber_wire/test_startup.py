"""What is told before the first message, and servers that do not keep to the rules."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.pubsub_v1 import DetachSubscriptionRequest, Subscription, UpdateSubscriptionRequest

from pubsub_aio import (
    Confirmation,
    FlowControl,
    InvalidAckIdError,
    Message,
    PermissionDeniedError,
    ReconnectError,
    ShutdownPolicy,
    StartupError,
    StreamPolicy,
    SubscriberClient,
    UnconfirmedError,
)
from pubsub_aio._wire import schema
from pubsub_aio.emulator import Emulator
from pubsub_aio.subscriber.copies import MOST
from tests.subscriber_wire.conftest import (
    MOST_RECEIVED,
    SUBSCRIPTION,
    WITHIN,
    Events,
    Lying,
    Received,
    Site,
    nothing_left_behind,
    received,
    refusing,
    until,
)
from tests.wire import tcp

BOTH = pytest.mark.parametrize("transport", ["grpc", "rest"])
MB = 1_000_000


def outcomes(error: StartupError) -> dict[str, str]:
    """What was checked, and what was found."""
    return {check.name: check.outcome for check in error.checks}


# It begins


async def test_a_subscription_with_no_messages_is_ready_soon(
    site: Site, client: SubscriberClient
) -> None:
    """R2: startup never waits for a first response, for some servers send none."""
    _, name = site.create_pair()
    live = client.subscribe(name, Received())
    await asyncio.wait_for(live.ready(), 4)

    assert live.state == "running"
    assert live.health().ok


async def test_settings_say_where_they_come_from(site: Site, client: SubscriberClient) -> None:
    """R5: what is in force, the server's word included."""
    topic, name = site.create_pair(ack_deadline_seconds=33, enable_message_ordering=True)
    callback = Received()
    live = client.subscribe(name, callback, flow_control=FlowControl(max_messages=10))
    site.publish(topic, "a")
    await until(lambda: callback.messages)
    settings = live.settings

    assert settings["max_messages"].value == 10
    assert settings["max_messages"].source == "argument"
    assert settings["max_bytes"].source == "default"
    assert settings["topic"].value == topic
    assert settings["ack_deadline_seconds"].value == 33
    assert "server" in settings["ack_deadline_seconds"].source
    assert settings["enable_message_ordering"].value is True
    assert settings["enable_exactly_once_delivery"].value is False
    assert settings["transport"].value == site.transport
    assert settings["endpoint"].value == site.address
    live.flow_control = FlowControl(max_messages=20)
    assert live.settings["max_messages"].value == 20


@pytest.mark.only("embedded")  # Google's emulator does not let it be changed
async def test_what_is_changed_on_the_server_is_heeded(
    site: Site, client: SubscriberClient
) -> None:
    """R4 R6 R8: by the stream's own word, or by a look now and then if that is wanted."""
    topic, name = site.create_pair()
    callback = Received()
    refresh: Any = {} if site.transport == "grpc" else {"refresh_interval": 0.05}
    live = client.subscribe(name, callback, **refresh)
    site.publish(topic, "a")
    await until(lambda: callback.messages)
    changed = UpdateSubscriptionRequest(
        subscription=Subscription(name=name, enable_exactly_once_delivery=True),
        update_mask=FieldMask(paths=["enable_exactly_once_delivery"]),
    )
    site.call(site.subscriber.update_subscription, changed)
    site.publish(topic, "b")
    await until(lambda: live.settings["enable_exactly_once_delivery"].value is True)
    await until(lambda: callback.data == [b"a", b"b"])


# It cannot begin


async def test_a_missing_subscription_fails_at_once_with_what_was_checked(
    site: Site, client: SubscriberClient
) -> None:
    """R1 R3: and with what to do about it."""
    live = client.subscribe("there-is-none", Received())
    with pytest.raises(StartupError) as caught:
        await asyncio.wait_for(live.ready(), WITHIN)
    error = caught.value

    assert live.exception() is error
    assert error.name == site.subscription_name("there-is-none")
    assert outcomes(error) == {
        "credentials": "ok",
        "server reached": "ok",
        "subscription exists": "failed",
        "may consume": "not reached",
    }
    assert "or create it" in str(error)
    for check in error.checks:
        assert check.name in str(error)


async def test_a_wrong_project_fails_at_once(site: Site) -> None:
    """R1 R3: the error names it."""
    site.create_subscription_named("worker", site.create_topic())
    async with (
        nothing_left_behind(),
        SubscriberClient(
            "wrong-project", transport=site.transport, endpoint=f"http://{site.address}"
        ) as client,
    ):
        live = client.subscribe("worker", Received())
        with pytest.raises(StartupError, match="wrong-project") as caught:
            await asyncio.wait_for(live, WITHIN)

    assert outcomes(caught.value)["subscription exists"] == "failed"


@pytest.mark.only("embedded")  # Google's emulator cannot detach
async def test_a_detached_subscription_fails_at_once(site: Site, client: SubscriberClient) -> None:
    """R1 R3: no message will ever come."""
    _, name = site.create_pair()
    site.call(site.publisher.detach_subscription, DetachSubscriptionRequest(subscription=name))
    with pytest.raises(StartupError, match="detached"):
        await asyncio.wait_for(client.subscribe(name, Received()), WITHIN)


@pytest.mark.only("embedded")  # faults can be asked for
@pytest.mark.parametrize("code", ["PERMISSION_DENIED", "UNAUTHENTICATED"])
async def test_who_may_not_consume_is_told_at_once(
    site: Site, client: SubscriberClient, code: str
) -> None:
    """R3: on either way to consume."""
    assert site.emulator
    _, name = site.create_pair()
    rpc = "StreamingPull" if site.transport == "grpc" else "Pull"
    site.emulator.faults.fail(rpc, code, message="go away")
    live = client.subscribe(name, Received())
    with pytest.raises(StartupError, match="go away") as caught:
        await asyncio.wait_for(live, WITHIN)

    assert outcomes(caught.value)["may consume"] == "failed"
    assert outcomes(caught.value)["subscription exists"] == "ok"
    assert isinstance(caught.value.__cause__, PermissionDeniedError)


@pytest.mark.only("embedded")  # faults can be asked for
async def test_who_may_consume_but_not_look_is_only_warned(
    site: Site, client: SubscriberClient
) -> None:
    """R3: roles/pubsub.subscriber alone is enough."""
    assert site.emulator
    topic, name = site.create_pair()
    site.emulator.faults.fail("GetSubscription", "PERMISSION_DENIED")
    callback, events = Received(), Events()
    live = client.subscribe(name, callback, on_event=events)
    site.publish(topic, "a")
    await until(lambda: callback.messages)

    assert not live.done()
    assert "warning" in events.kinds()
    assert "pubsub.subscriptions.get" in next(one.detail for one in events if one.kind == "warning")


async def test_who_may_do_nothing_is_told_all_of_it(lying: Lying) -> None:
    """R3: a refusal to look is no reason, a refusal to consume is."""
    lying.calls["GetSubscription"] = refusing(grpc.StatusCode.PERMISSION_DENIED)

    async def refuse(server: Lying, context: Any) -> None:
        del server
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "may not consume")

    lying.stream = refuse
    async with lying.client() as client:
        with pytest.raises(StartupError, match=r"roles/pubsub\.subscriber") as caught:
            await asyncio.wait_for(client.subscribe(SUBSCRIPTION, Received()), WITHIN)

    assert outcomes(caught.value) == {
        "credentials": "ok",
        "server reached": "ok",
        "subscription exists": "warning",
        "may consume": "failed",
    }


async def test_a_server_that_is_none_of_pubsub_is_told_at_once() -> None:
    """R3: it answers, but knows no such call."""
    stranger = Lying()
    stranger.calls.clear()
    async with nothing_left_behind(), stranger.serving(), stranger.client() as client:
        with pytest.raises(StartupError, match="is the endpoint a Pub/Sub server"):
            await asyncio.wait_for(client.subscribe("worker", Received()), WITHIN)


@pytest.mark.parametrize(("transport", "timeout"), [("grpc", 2.5), ("rest", 0.5)])
async def test_a_server_that_cannot_be_reached_is_tried_again_and_then_told(
    transport: str, timeout: float
) -> None:
    """R3: within `startup_timeout`; gRPC itself tries again after a second at the soonest."""
    reached = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal reached
        del reader
        reached += 1
        writer.transport.abort()

    async with (
        nothing_left_behind(),
        tcp.serving(hang_up) as address,
        SubscriberClient("p", transport=transport, endpoint=f"http://{address}") as client,
    ):
        live = client.subscribe("worker", Received(), startup_timeout=timeout)
        with pytest.raises(StartupError, match="network") as caught:
            await asyncio.wait_for(live, WITHIN)

    assert outcomes(caught.value) == {
        "credentials": "ok",
        "server reached": "failed",
        "subscription exists": "not reached",
        "may consume": "not reached",
    }
    assert reached > 1


@BOTH
async def test_a_server_that_never_answers_is_told(transport: str) -> None:
    """R3: it takes connections, and that is all."""

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        while await reader.read(1_000):
            pass

    async with (
        nothing_left_behind(),
        tcp.serving(say_nothing) as address,
        SubscriberClient("p", transport=transport, endpoint=f"http://{address}") as client,
    ):
        live = client.subscribe("worker", Received(), startup_timeout=0.5)
        with pytest.raises(StartupError) as caught:
            await asyncio.wait_for(live, WITHIN)

    assert outcomes(caught.value)["server reached"] == "failed"


@BOTH
async def test_a_server_that_comes_up_late_is_waited_for(transport: str) -> None:
    """R3: a service may start before what it needs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    callback = Received()
    async with (
        nothing_left_behind(),
        SubscriberClient("p", transport=transport, endpoint=f"http://127.0.0.1:{port}") as client,
    ):
        live = client.subscribe("worker", callback)
        refused = tcp_refused(port)
        await refused
        async with Emulator(port=port, project="p") as emulator:
            emulator.create_subscription("worker", "orders")
            emulator.publish("orders", b"a")
            await until(lambda: callback.data == [b"a"])
            live.stop()
            await live

            assert emulator.backlog("worker") == 0


async def tcp_refused(port: int) -> None:
    """Return when a connection was refused, as the client's was."""
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_stream_that_says_nothing_counts_as_open(lying: Lying) -> None:
    """R2: after a short while without an error."""
    async with lying.client() as client:
        live = client.subscribe(SUBSCRIPTION, Received())
        await asyncio.wait_for(live.ready(), 4)

        assert live.health().ok
        assert live.health().streams == 1


@BOTH
async def test_a_client_can_be_closed_while_it_waits_for_a_server(transport: str) -> None:
    """R3: at once, whatever `startup_timeout` is."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        endpoint = f"http://127.0.0.1:{port}"
        async with nothing_left_behind():
            client = SubscriberClient("p", transport=transport, endpoint=endpoint)
            live = client.subscribe("worker", Received(), startup_timeout=600)
            await asyncio.sleep(0)
            assert live.state == "starting"
            await asyncio.wait_for(client.aclose(), 5)

            assert live.done()


async def test_a_web_page_is_no_server(caplog: pytest.LogCaptureFixture) -> None:
    """R3: as a network with a login page answers."""
    page = tcp.answering(tcp.http("200 OK", b"<html>Welcome</html>"))
    async with (
        nothing_left_behind(),
        tcp.serving(page) as address,
        SubscriberClient("p", transport="rest", endpoint=f"http://{address}") as client,
    ):
        live = client.subscribe("worker", Received(), startup_timeout=0.3)
        with pytest.raises(StartupError, match="Welcome") as caught:
            await asyncio.wait_for(live, WITHIN)

    assert outcomes(caught.value)["server reached"] == "failed"
    assert "Welcome" in caplog.text


# A server that lies


def each_once(*responses: bytes) -> Any:
    """A stream that sends these, on the first stream only, and stays open."""
    waiting = list(responses)

    async def stream(server: Lying, context: Any) -> None:
        del server
        while waiting:
            await context.write(waiting.pop(0))
        await asyncio.Event().wait()

    return stream


async def test_more_messages_than_the_server_was_told_are_given_back(lying: Lying) -> None:
    """R25: what is held stays within its bounds, and nothing is lost."""
    flow = FlowControl(max_messages=100, max_request_batch_size=20)
    sent = [[received() for _ in range(500)] for _ in range(20)]
    lying.stream = each_once(*(lying.response(*messages) for messages in sent))
    gate = asyncio.Event()
    most_leased = most_received = 0

    async def callback(message: Message) -> None:
        nonlocal most_leased, most_received
        health = live.health()
        most_leased = max(most_leased, health.leased)
        most_received = max(most_received, health.received)
        await gate.wait()
        message.ack()

    async with lying.client() as client:
        live = client.subscribe(SUBSCRIPTION, callback, flow_control=flow)
        await until(lambda: lying.nacked)
        gate.set()
        await until(lambda: len(lying.acked) + len(lying.nacked) == 10_000)

    ids = {one.ack_id for messages in sent for one in messages}
    assert lying.opened[0].max_outstanding_messages == 100
    assert {*lying.acked} | {*lying.nacked} == ids
    assert {*lying.acked}.isdisjoint(lying.nacked)
    assert 80 <= most_leased <= 100
    assert 100 < most_received <= MOST_RECEIVED


async def test_bytes_that_are_no_response_end_the_stream_and_not_the_subscription(
    lying: Lying,
) -> None:
    """R25: it is opened again, and what comes then is received."""
    callback, events = Received(), Events()
    first = received(b"first")
    answers = [b"\xff\xff garbage", b"\x0a\x7f", lying.response(first)]
    lying.stream = each_once(*answers)

    async def stream(server: Lying, context: Any) -> None:
        del server
        await context.write(answers[min(len(lying.opened), len(answers)) - 1])
        await asyncio.Event().wait()

    lying.stream = stream
    async with lying.client() as client:
        live = client.subscribe(
            SUBSCRIPTION, callback, on_event=events, streams=StreamPolicy(first_delay=0.001)
        )
        await until(lambda: lying.acked == [first.ack_id])
        assert not live.done()

    assert callback.data == [b"first"]
    assert "cannot be read" in str(live.health().last_error)


async def test_a_message_without_an_ack_id_costs_the_others_nothing(lying: Lying) -> None:
    """G24: a request that is refused for one id is sent for the others."""
    good = [received() for _ in range(10)]
    bad = received(b"bad", ack_id="")

    async def acknowledge(request: bytes, context: Any) -> bytes:
        ids = schema.AcknowledgeRequest.FromString(request).ack_ids
        if "" in ids:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Invalid ack id")
        lying.acked.extend(ids)
        return b""

    lying.calls["Acknowledge"] = acknowledge
    lying.stream = each_once(lying.response(*good[:5], bad, *good[5:]))
    callback = Received()
    async with lying.client() as client:
        live = client.subscribe(SUBSCRIPTION, callback)
        await until(lambda: len(lying.acked) == 10)
        await until(lambda: live.health().leased == 0 and live.health().unsent == 0)

    assert {*lying.acked} == {one.ack_id for one in good}


async def test_an_ack_id_that_the_server_refuses_costs_the_others_nothing(lying: Lying) -> None:
    """G24: whoever waits for an answer hears which it is."""
    messages = [received(b"%d" % number) for number in range(100)]
    bad = messages[42].ack_id

    async def acknowledge(request: bytes, context: Any) -> bytes:
        ids = schema.AcknowledgeRequest.FromString(request).ack_ids
        if bad in ids:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Invalid ack id")
        lying.acked.extend(ids)
        return b""

    lying.calls["Acknowledge"] = acknowledge
    lying.stream = each_once(lying.response(*messages))
    confirmed: list[bytes] = []
    refused: list[bytes] = []

    async def callback(message: Message) -> None:
        try:
            await message.ack_with_response()
        except InvalidAckIdError:
            refused.append(message.data)
        else:
            confirmed.append(message.data)

    async with lying.client() as client:
        client.subscribe(SUBSCRIPTION, callback)
        await until(lambda: len(confirmed) + len(refused) == 100)

    assert refused == [b"42"]
    assert sorted(lying.acked) == sorted(one.ack_id for one in messages if one.ack_id != bad)


async def test_a_message_that_comes_over_and_over_is_worked_on_once(lying: Lying) -> None:
    """G22: while it is held it is recognised; its last deliveries are settled, the newest too."""
    copies = [received(b"same", message_id="m") for _ in range(50)]
    lying.stream = each_once(*(lying.response(one, one) for one in copies))
    gate = asyncio.Event()
    callback = Received()

    async def hold(message: Message) -> None:
        await gate.wait()
        await callback(message)

    async with lying.client() as client:
        live = client.subscribe(SUBSCRIPTION, hold)
        await until(lambda: live.health().counts.get("received") == 100)
        assert (live.health().leased, live.health().running) == (1, 1)
        gate.set()
        await until(lambda: lying.acked)
        await until(lambda: live.health().unsent == 0)

        assert live.health().leased == 0
    assert callback.data == [b"same"]
    assert sorted(lying.acked) == sorted(copy.ack_id for copy in copies[-MOST:])


async def test_messages_without_an_id_are_not_copies_of_one_another(lying: Lying) -> None:
    """G22: each is worked on, and settled by its own delivery."""
    messages = [received(b"%d" % number, message_id="") for number in range(5)]
    lying.stream = each_once(lying.response(*messages[:3]), lying.response(*messages[3:]))
    gate = asyncio.Event()
    callback = Received()

    async def hold(message: Message) -> None:
        await gate.wait()
        await callback(message)

    policy = ShutdownPolicy(timeout=0.1)
    async with lying.client() as client:
        live = client.subscribe(SUBSCRIPTION, hold, shutdown=policy)
        await until(lambda: live.health().counts.get("received") == 5)
        gate.set()
        await until(lambda: len(lying.acked) == 5)

    assert sorted(callback.data) == [b"0", b"1", b"2", b"3", b"4"]
    assert sorted(lying.acked) == sorted(one.ack_id for one in messages)


async def test_a_message_that_comes_again_after_its_ack_is_acked_again(lying: Lying) -> None:
    """G27: at least once."""
    first, second = received(b"a", message_id="m"), received(b"a", message_id="m")

    async def stream(server: Lying, context: Any) -> None:
        await context.write(server.response(first))
        await until(lambda: server.acked)
        await context.write(server.response(second))
        await asyncio.Event().wait()

    lying.stream = stream
    callback = Received()
    async with lying.client() as client:
        client.subscribe(SUBSCRIPTION, callback)
        await until(lambda: lying.acked == [first.ack_id, second.ack_id])

    assert callback.data == [b"a", b"a"]


async def test_acks_that_are_never_answered_delay_nothing_and_end_in_time(lying: Lying) -> None:
    """G27: messages go on coming; the end is bounded, and whoever waits is told."""

    async def acknowledge(request: bytes, context: Any) -> bytes:
        del request, context
        await asyncio.Event().wait()
        raise AssertionError

    lying.calls["Acknowledge"] = acknowledge
    sent = [received(b"%d" % number) for number in range(200)]
    lying.stream = each_once(*(lying.response(one) for one in sent))
    came: list[bytes] = []
    answers: list[Confirmation] = []

    async def callback(message: Message) -> None:
        came.append(message.data)
        answers.append(message.ack_with_response())

    shutdown = ShutdownPolicy(timeout=0.2, flush_timeout=0.2)
    async with lying.client() as client:
        live = client.subscribe(SUBSCRIPTION, callback, shutdown=shutdown)
        await until(lambda: len(came) == 200)
        began = asyncio.get_running_loop().time()
        live.stop()
        await asyncio.wait_for(live, WITHIN)

        assert asyncio.get_running_loop().time() - began < 3
    assert {type(answer.exception(timeout=0)) for answer in answers} == {UnconfirmedError}


async def test_acks_that_are_never_answered_stop_the_leasing(lying: Lying) -> None:
    """G27: what waits to be sent is bounded, and `health` says so."""

    async def acknowledge(request: bytes, context: Any) -> bytes:
        del request, context
        await asyncio.Event().wait()
        raise AssertionError

    lying.calls["Acknowledge"] = acknowledge
    flow = FlowControl(max_messages=1_000)
    sent = [lying.response(*(received() for _ in range(1_000))) for _ in range(30)]
    lying.stream = each_once(*sent)
    callback = Received()
    shutdown = ShutdownPolicy(timeout=0.2, flush_timeout=0.2)
    async with lying.client() as client:
        live = client.subscribe(SUBSCRIPTION, callback, flow_control=flow, shutdown=shutdown)
        await until(lambda: not live.health().ok and live.state == "running")
        health = live.health()

    assert any("wait for the server" in reason for reason in health.reasons)
    assert health.unsent < 15_000
    assert health.received <= MOST_RECEIVED
    assert len(callback.messages) < 15_000


@pytest.mark.parametrize(
    ("worked", "code"),
    [(False, grpc.StatusCode.UNAVAILABLE), (True, grpc.StatusCode.INTERNAL), (True, None)],
    ids=["never worked", "worked before", "worked and ended well"],
)
async def test_streams_that_end_at_once_are_tried_until_the_time_is_up(
    lying: Lying, worked: bool, code: grpc.StatusCode | None
) -> None:
    """R3 R27: with growing pauses, and then the cause is told."""

    async def end(server: Lying, context: Any) -> None:
        if worked and len(server.opened) == 1:
            await context.write(server.response())
        if code is not None:
            await context.abort(code, "not for long")

    lying.stream = end
    timeouts = (0.6, 30) if worked else (30, 0.6)
    policy = StreamPolicy(first_delay=0.02, max_delay=0.2, reconnect_budget=timeouts[0])
    async with lying.client() as client:
        live = client.subscribe(
            SUBSCRIPTION, Received(), streams=policy, startup_timeout=timeouts[1]
        )
        with pytest.raises(ReconnectError if worked else StartupError) as caught:
            await asyncio.wait_for(live, WITHIN)

    cause = str(caught.value.__cause__)
    assert "not for long" in cause or "ended" in cause or "no stream" in cause
    assert 4 <= len(lying.opened) <= 20


async def test_streams_that_are_greeted_and_ended_are_not_hurried(lying: Lying) -> None:
    """R27: a greeting is no message, and so the pauses grow."""

    async def end(server: Lying, context: Any) -> None:
        await context.write(server.response())

    lying.stream = end
    policy = StreamPolicy(first_delay=0.05, max_delay=30)
    async with lying.client() as client:
        live = client.subscribe(SUBSCRIPTION, Received(), streams=policy)
        await until(lambda: len(lying.opened) == 4)  # after 0.175 s at the soonest
        assert not live.done()
        began = asyncio.get_running_loop().time()
        await until(lambda: len(lying.opened) == 5)
        assert asyncio.get_running_loop().time() - began >= 0.15


async def test_streams_that_end_after_each_message_lose_none(lying: Lying) -> None:
    """R27: each brought something, so the pauses do not grow."""
    sent = [received(b"%d" % number) for number in range(20)]

    async def one(server: Lying, context: Any) -> None:
        if len(server.opened) <= len(sent):
            await context.write(server.response(sent[len(server.opened) - 1]))
            return
        await asyncio.Event().wait()

    lying.stream = one
    callback = Received()
    async with lying.client() as client:
        live = client.subscribe(
            SUBSCRIPTION, callback, streams=StreamPolicy(first_delay=0.001, max_delay=30)
        )
        await until(lambda: len(lying.acked) == 20)
        assert not live.done()

    assert callback.data == [b"%d" % number for number in range(20)]
    assert len({request.client_id for request in lying.opened}) == 1


async def test_responses_of_twenty_megabytes_are_received_within_the_bound(lying: Lying) -> None:
    """R25 G17: one message more than the limit at most is held."""
    size, limit = 20 * MB, 50 * MB
    sent = [received(bytes(size)) for _ in range(6)]
    lying.stream = each_once(*(lying.response(one) for one in sent))
    gate = asyncio.Event()
    flow = FlowControl(max_bytes=limit, max_request_batch_size=1)
    most = 0
    sizes: list[int] = []

    async def callback(message: Message) -> None:
        nonlocal most
        most = max(most, live.health().leased_bytes)
        await gate.wait()
        sizes.append(len(message.data))
        message.ack()

    async with lying.client() as client:
        live = client.subscribe(SUBSCRIPTION, callback, flow_control=flow)
        await until(lambda: live.health().received >= 2)
        gate.set()
        await until(lambda: len({*lying.acked, *lying.nacked}) == 6)

    assert sizes
    assert set(sizes) == {size}
    assert most <= 0.8 * limit + size + 1_000


@pytest.mark.only("embedded")  # faults can be asked for
async def test_a_server_that_stops_to_answer_does_not_hold_up_the_end(site: Site) -> None:
    """R27: connections stay open, and nothing comes through them."""
    assert site.emulator
    topic, name = site.create_pair()
    callback = Received()
    shutdown = ShutdownPolicy(timeout=0.2, flush_timeout=0.2)
    async with nothing_left_behind():
        client = site.client()
        live = client.subscribe(name, callback, shutdown=shutdown)
        site.publish(topic, "a")
        await until(lambda: callback.messages)
        with site.emulator.faults.stall_connections():
            await asyncio.wait_for(client.aclose(), 5)

        assert live.done()


async def test_ordering_is_kept_while_nobody_has_told_whether_it_matters(lying: Lying) -> None:
    """R4: neither the server, which may not be asked, nor the stream."""
    lying.calls["GetSubscription"] = refusing(grpc.StatusCode.PERMISSION_DENIED)
    messages = [received(b"%d" % number) for number in range(5)]
    for one in messages:
        one.message.ordering_key = "key"
    response = schema.StreamingPullResponse(received_messages=messages)
    lying.stream = each_once(response.SerializeToString())
    running = most = 0
    order: list[bytes] = []

    async def callback(message: Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        order.append(message.data)
        running -= 1
        message.ack()

    async with lying.client() as client:
        client.subscribe(SUBSCRIPTION, callback)
        await until(lambda: len(lying.acked) == 5)

    assert most == 1
    assert order == [b"0", b"1", b"2", b"3", b"4"]


async def test_extensions_that_are_refused_end_nothing(lying: Lying) -> None:
    """G27: the message is worked on and acked all the same."""
    lying.calls["ModifyAckDeadline"] = refusing(grpc.StatusCode.INTERNAL)
    message = received(b"a")
    lying.stream = each_once(lying.response(message))
    gate = asyncio.Event()

    async def callback(message: Message) -> None:
        await gate.wait()
        message.ack()

    async with lying.client() as client:
        live = client.subscribe(SUBSCRIPTION, callback)
        await until(lambda: live.health().counts.get("extended"))
        gate.set()
        await until(lambda: lying.acked == [message.ack_id])

        assert not live.done()
