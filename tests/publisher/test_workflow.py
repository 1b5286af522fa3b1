"""The producer's workflow of the seed: startup, topics, endpoints, isolation and return."""

from __future__ import annotations

import asyncio
import contextlib
import pydoc
import re
from collections.abc import AsyncIterator

import pytest

from pubsub_aio import (
    ConfigError,
    Flight,
    InvalidRequestError,
    NoResponseFromTopicError,
    NotFoundError,
    PermissionDeniedError,
    PublisherClient,
    PublisherOptions,
    PublishTimeoutError,
    RetryPolicy,
    StartupError,
)
from pubsub_aio.testing import MemoryEmulator
from tests.publisher.conftest import TOPIC, Answering, Listener, publisher_of, stored
from tests.subscriber.conftest import Tapped, now, virtual


@contextlib.asynccontextmanager
async def two_more(emulator: MemoryEmulator) -> AsyncIterator[tuple[MemoryEmulator, ...]]:
    """The emulator and two others, all with the topic: three endpoints."""
    async with MemoryEmulator() as second, MemoryEmulator() as third:
        sites = (emulator, second, third)
        for site in sites:
            site.create_topic(TOPIC)
        yield sites


def received(sites: tuple[MemoryEmulator, ...]) -> list[list[bytes]]:
    return [stored(site) for site in sites]


# Startup


@virtual
async def test_startup_looks_at_the_topics(emulator: MemoryEmulator) -> None:
    """R1, R2, R5: topics that are named are looked up before anything is published."""
    name = emulator.create_topic(TOPIC, labels={"colour": "red"})
    tap = Tapped(emulator.transport())
    async with publisher_of(emulator, tap, topics=[TOPIC]) as publisher:
        assert [rpc for _, rpc, _ in tap.calls] == ["GetTopic", "TestIamPermissions"]
        found = publisher.settings[name]
        assert found.source == "server, GetTopic"
        assert dict(found.value.labels) == {"colour": "red"}  # type: ignore[attr-defined]
        assert publisher.settings["project"].value == emulator.project
        assert publisher.settings["max_in_flight"].source == "default"
        await publisher.publish(TOPIC, b"x").ack
    assert [rpc for _, rpc, _ in tap.calls][2:] == ["Publish"]


@virtual
async def test_startup_fails_with_all_that_was_checked(emulator: MemoryEmulator) -> None:
    """R3: a missing topic fails it at once."""
    emulator.create_topic(TOPIC)
    missing = f"projects/{emulator.project}/topics/missing"
    publisher = PublisherClient(
        emulator.project, transport=emulator.transport(), topics=[TOPIC, "missing"]
    )
    with pytest.raises(StartupError, match="cannot publish to") as caught:
        await publisher.start()

    outcomes = {check.name: check.outcome for check in caught.value.checks}
    assert outcomes[f"{missing} exists"] == "failed"
    assert outcomes[f"may publish to {missing}"] == "not reached"
    assert outcomes["credentials"] == "ok"
    assert "create_topic" in str(caught.value)
    assert now() == 0


@virtual
async def test_startup_fails_when_publishing_is_not_allowed(emulator: MemoryEmulator) -> None:
    """R3: without the permission to publish it is no use to begin."""
    emulator.create_topic(TOPIC)

    class Denying(Tapped):
        async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
            if rpc == "TestIamPermissions":
                return b""
            return await super().call(rpc, request, timeout=timeout)

    publisher = PublisherClient(
        emulator.project, transport=Denying(emulator.transport()), topics=[TOPIC]
    )
    with pytest.raises(StartupError, match=r"grant roles/pubsub\.publisher"):
        await publisher.start()


@virtual
async def test_who_may_not_look_may_still_publish(emulator: MemoryEmulator) -> None:
    """R3, R9: PERMISSION_DENIED on GetTopic says nothing of the topic."""
    emulator.faults.fail("GetTopic", "PERMISSION_DENIED", times=2)
    async with publisher_of(emulator, topics=[TOPIC]) as publisher:
        assert publisher.settings[f"projects/{emulator.project}/topics/{TOPIC}"].value is None
        await publisher.publish(TOPIC, b"x").ack
        emulator.create_topic("others")
        await publisher.publish("others", b"y").ack
    assert (stored(emulator), stored(emulator, "others")) == ([b"x"], [b"y"])


@virtual
async def test_startup_is_patient_with_a_server_that_does_not_answer(
    emulator: MemoryEmulator,
) -> None:
    """R3: for as long as it is told to be."""
    emulator.create_topic(TOPIC)
    emulator.faults.fail("GetTopic", "UNAVAILABLE", times=3)
    async with publisher_of(emulator, topics=[TOPIC]):
        assert now() > 0
    emulator.faults.fail("GetTopic", "UNAVAILABLE", times=1_000)
    began = now()
    publisher = PublisherClient(
        emulator.project, transport=emulator.transport(), topics=[TOPIC], startup_timeout=10
    )
    with pytest.raises(StartupError, match="Is the endpoint right, and the network"):
        await publisher.start()
    assert 4 < now() - began <= 10


# Topics


@virtual
async def test_a_topic_that_was_refused_is_looked_up_again_for_what_its_listener_publishes(
    emulator: MemoryEmulator,
) -> None:
    """R9."""

    class Again:
        def completed_exceptionally(self, flight: Flight) -> None:
            if flight.data == b"first":
                publisher.publish("missing", b"second")

    tap = Tapped(emulator.transport())
    async with publisher_of(emulator, tap, listener=Again()) as publisher:
        publisher.publish("missing", b"first")
        await asyncio.sleep(1)
    assert [rpc for _, rpc, _ in tap.calls] == ["GetTopic", "GetTopic"]


@virtual
async def test_no_more_than_a_hundred_topics_are_looked_up_at_once(
    emulator: MemoryEmulator,
) -> None:
    """R9."""

    class Counting(Tapped):
        now = most = 0

        async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
            self.now += rpc == "GetTopic"
            self.most = max(self.most, self.now)
            try:
                return await super().call(rpc, request, timeout=timeout)
            finally:
                self.now -= rpc == "GetTopic"

    for number in range(300):
        emulator.create_topic(f"topic-{number}")
    transport = Counting(emulator.transport())
    async with publisher_of(emulator, transport) as publisher:
        flights = [publisher.publish(f"topic-{number}", b"x") for number in range(300)]
        for flight in flights:
            await flight.ack

    assert transport.most == 100


@virtual
async def test_a_topic_is_looked_up_once(emulator: MemoryEmulator) -> None:
    """R9: fetched before the first message to it, then cached."""
    tap = Tapped(emulator.transport())
    async with publisher_of(emulator, tap) as publisher:
        for number in range(3):
            await publisher.publish(TOPIC, b"%d" % number).ack
            await publisher.publish(TOPIC, b"%d" % number, ordering_key="k").ack

    assert [rpc for _, rpc, _ in tap.calls] == ["GetTopic"] + ["Publish"] * 6


@virtual
async def test_many_messages_at_once_do_not_look_a_topic_up_more_than_once(
    emulator: MemoryEmulator,
) -> None:
    """R9: whatever their keys and options are."""
    tap = Tapped(emulator.transport())
    async with publisher_of(emulator, tap) as publisher:
        for number in range(100):
            publisher.publish(TOPIC, b"x", ordering_key=f"k{number}", timeout=10 + number)

    assert len(tap.times("GetTopic")) == 1
    assert len(stored(emulator)) == 100


@pytest.mark.parametrize("rpc", ["GetTopic", "Publish"])
@virtual
async def test_a_transport_that_breaks_while_it_looks_around_ends_nothing(
    emulator: MemoryEmulator, rpc: str
) -> None:
    """Neither a look-up, nor a refresh, nor a probe that raises nonsense stops the publisher."""

    class Broken(Tapped):
        broken = False

        async def call(self, name: str, request: bytes, *, timeout: float) -> bytes:
            if self.broken and name in (rpc, "GetTopic"):
                raise ZeroDivisionError("a bug")
            return await super().call(name, request, timeout=timeout)

    emulator.create_topic("others")
    transport = Broken(emulator.transport())
    async with publisher_of(
        emulator, transport, refresh_interval=5, listener=Listener()
    ) as publisher:
        await publisher.publish(TOPIC, b"x").ack
        transport.broken = True
        with pytest.raises(ZeroDivisionError):
            await publisher.publish("others", b"x").ack
        await asyncio.sleep(20)
        transport.broken = False
        await publisher.publish("others", b"y").ack
    assert stored(emulator, "others") == [b"y"]


@virtual
async def test_a_topic_that_is_not_there_fails_the_publish(emulator: MemoryEmulator) -> None:
    """R9: nothing is sent, and the next publish looks again."""
    tap = Tapped(emulator.transport())
    async with publisher_of(emulator, tap) as publisher:
        flight = publisher.publish("later", b"x")
        with pytest.raises(NotFoundError) as caught:
            await flight
        assert any("create the topic first" in note for note in caught.value.__notes__)
        with pytest.raises(NotFoundError):
            await flight.ack
        assert (flight.attempts, flight.published_at) == (0, None)
        emulator.create_topic("later")
        await publisher.publish("later", b"y").ack
    assert stored(emulator, "later") == [b"y"]
    assert tap.times("Publish") == [0]


@virtual
async def test_a_topic_that_cannot_be_is_told_by_what_a_name_may_be(
    emulator: MemoryEmulator,
) -> None:
    """R3, R9: it is no use to create it, whether it is named at the start or later."""
    async with publisher_of(emulator) as publisher:
        with pytest.raises(InvalidRequestError) as caught:
            await publisher.publish("no name at all", b"x")
        (note,) = caught.value.__notes__
        assert "correct the name: 3 to 255 letters" in note
    publisher = PublisherClient(
        emulator.project, transport=emulator.transport(), topics=["no name at all"]
    )
    with pytest.raises(StartupError, match="correct the name: 3 to 255 letters") as refused:
        await publisher.start()
    assert "create" not in str(refused.value)


@virtual
async def test_a_topic_that_cannot_be_looked_up_now_is_published_to(
    emulator: MemoryEmulator,
) -> None:
    """R9: a server that does not answer says nothing of the topic; the publish will tell."""
    emulator.faults.fail("GetTopic", "UNAVAILABLE")
    async with publisher_of(emulator) as publisher:
        await publisher.publish(TOPIC, b"x").ack


@virtual
async def test_other_topics_do_not_wait_for_one_that_is_looked_up(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_topic("slow")
    async with publisher_of(emulator) as publisher:
        await publisher.publish(TOPIC, b"x").ack
        emulator.faults.delay("GetTopic", 3)
        slow = publisher.publish("slow", b"x")
        await publisher.publish(TOPIC, b"y").ack
        assert now() == 0
        await slow.ack
        assert now() == 3


@virtual
async def test_looking_topics_up_may_be_left_out(emulator: MemoryEmulator) -> None:
    tap = Tapped(emulator.transport())
    async with publisher_of(emulator, tap, check_topics=False) as publisher:
        await publisher.publish(TOPIC, b"x").ack
        with pytest.raises(NotFoundError):
            await publisher.publish("missing", b"x").ack

    assert tap.times("GetTopic") == []


@virtual
async def test_topics_are_refreshed_when_asked_for(emulator: MemoryEmulator) -> None:
    """R4, R6: off unless told; then what the server says anew is known."""
    name = emulator.create_topic(TOPIC)
    tap = Tapped(emulator.transport())
    async with publisher_of(emulator, tap, refresh_interval=30) as publisher:
        await publisher.publish(TOPIC, b"x").ack
        assert not publisher.settings[name].value.labels  # type: ignore[attr-defined]
        await change_labels(emulator, name, {"new": "label"})
        await asyncio.sleep(65)
        assert dict(publisher.settings[name].value.labels) == {"new": "label"}  # type: ignore[attr-defined]
    assert tap.times("GetTopic") == [0, 30, 60]


async def change_labels(emulator: MemoryEmulator, name: str, labels: dict[str, str]) -> None:
    from pubsub_aio._wire import schema

    transport = emulator.transport()
    await transport.open()
    request = schema.UpdateTopicRequest(
        topic=schema.Topic(name=name, labels=labels), update_mask={"paths": ["labels"]}
    )
    await transport.call("UpdateTopic", request.SerializeToString(), timeout=5)
    await transport.close()


# Endpoints


@virtual
async def test_the_first_endpoint_is_used_while_it_answers(emulator: MemoryEmulator) -> None:
    """R10, R12: of several candidates the preferred one."""
    async with (
        two_more(emulator) as sites,
        publisher_of(emulator, [site.transport() for site in sites]) as publisher,
    ):
        for number in range(3):
            await publisher.publish(TOPIC, b"%d" % number).ack

        assert received(sites) == [[b"0", b"1", b"2"], [], []]
        assert len(publisher.settings["endpoints"].value) == 3  # type: ignore[arg-type]


@virtual
async def test_the_next_attempt_goes_to_the_next_endpoint_at_once(
    emulator: MemoryEmulator,
) -> None:
    """R15, R16, R20: a failing endpoint is isolated; an untried one needs no wait."""
    async with two_more(emulator) as sites:
        emulator.faults.fail("Publish", "UNAVAILABLE", times=100)
        sites[1].faults.fail("Publish", "UNAVAILABLE", times=100)
        transports = [site.transport() for site in sites]
        async with publisher_of(emulator, transports, retry=RetryPolicy()) as publisher:
            first = publisher.publish(TOPIC, b"first")
            await first.ack
            assert (now(), first.attempts) == (0, 3)
            second = publisher.publish(TOPIC, b"second")
            await second.ack
            assert second.attempts == 1
        assert received(sites) == [[], [], [b"first", b"second"]]


@virtual
async def test_without_a_policy_only_one_endpoint_is_tried(emulator: MemoryEmulator) -> None:
    """R13, R15: the publish fails; the next one goes elsewhere, for the endpoint is isolated."""
    async with two_more(emulator) as sites:
        emulator.faults.fail("Publish", "UNAVAILABLE")
        transports = [site.transport() for site in sites]
        async with publisher_of(emulator, transports) as publisher:
            with pytest.raises(NoResponseFromTopicError):
                await publisher.publish(TOPIC, b"first").ack
            await publisher.publish(TOPIC, b"second").ack
        assert received(sites) == [[], [b"second"], []]


@virtual
async def test_an_endpoint_returns_when_a_probe_finds_it_again(emulator: MemoryEmulator) -> None:
    """R17: every ten seconds an isolated endpoint is asked; an answer ends its isolation."""
    async with two_more(emulator) as sites:
        transports = [site.transport() for site in sites]
        async with publisher_of(emulator, transports, retry=RetryPolicy()) as publisher:
            await publisher.publish(TOPIC, b"0").ack
            down = emulator.faults.refuse_connections()
            emulator.faults.cut_connections()
            await publisher.publish(TOPIC, b"1").ack
            await asyncio.sleep(25)
            await publisher.publish(TOPIC, b"2").ack
            down.resume()
            await asyncio.sleep(3)
            await publisher.publish(TOPIC, b"3").ack
            await asyncio.sleep(3)  # a probe was due at 30 seconds
            await publisher.publish(TOPIC, b"4").ack
        assert received(sites) == [[b"0", b"4"], [b"1", b"2", b"3"], []]


@virtual
async def test_a_probe_that_is_refused_is_an_answer(emulator: MemoryEmulator) -> None:
    """R17: who may only publish may not look at the topic; the endpoint lives all the same."""
    async with two_more(emulator) as sites:
        transports = [site.transport() for site in sites]
        async with publisher_of(
            emulator, transports, retry=RetryPolicy(), probe_interval=2
        ) as publisher:
            await publisher.publish(TOPIC, b"0").ack
            emulator.faults.fail("Publish", "UNAVAILABLE")
            await publisher.publish(TOPIC, b"1").ack
            emulator.faults.fail("GetTopic", "PERMISSION_DENIED")
            await asyncio.sleep(2.5)
            await publisher.publish(TOPIC, b"2").ack
        assert received(sites) == [[b"0", b"2"], [b"1"], []]


@virtual
async def test_a_server_that_does_not_answer_is_logged_once(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    """And once that it answers again; a refusal is an answer, and no news."""
    async with publisher_of(emulator, listener=Listener()) as publisher:
        for _ in range(2):
            caplog.clear()
            emulator.faults.fail("Publish", "UNAVAILABLE", times=5, message="why")
            for _ in range(5):
                with pytest.raises(NoResponseFromTopicError):
                    await publisher.publish(TOPIC, b"x").ack
            assert caplog.messages == ["memory 0 does not answer: UNAVAILABLE: why"]
            for _ in range(3):
                await publisher.publish(TOPIC, b"x").ack
            emulator.faults.fail("Publish", "PERMISSION_DENIED")
            with pytest.raises(PermissionDeniedError):
                await publisher.publish(TOPIC, b"x").ack
            assert caplog.messages[1:] == ["memory 0 answers again"]
            assert {record.levelname for record in caplog.records} == {"WARNING"}


@virtual
async def test_an_endpoint_that_does_not_answer_is_logged_once_however_often_it_is_probed(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_more(emulator) as sites:
        transports = [site.transport() for site in sites]
        async with publisher_of(emulator, transports, retry=RetryPolicy()) as publisher:
            emulator.faults.refuse_connections()
            sites[1].faults.fail("Publish", "UNAVAILABLE")
            for _ in range(60):
                await publisher.publish(TOPIC, b"x").ack
                await asyncio.sleep(1)
    assert [line.split(":")[0] for line in caplog.messages] == [
        *("memory 0 does not answer", "memory 1 does not answer", "memory 1 answers again")
    ]


@virtual
async def test_if_all_are_isolated_all_are_used(emulator: MemoryEmulator) -> None:
    """R17: it is better to try than not to."""
    async with two_more(emulator) as sites:
        for site in sites:
            site.faults.fail("Publish", "UNAVAILABLE")
        transports = [site.transport() for site in sites]
        async with publisher_of(emulator, transports, retry=RetryPolicy(retries=3)) as publisher:
            flight = publisher.publish(TOPIC, b"x")
            await flight.ack

            assert (flight.attempts, now()) == (4, 0.25)
        assert received(sites) == [[b"x"], [], []]


@virtual
async def test_flow_control_does_not_isolate(emulator: MemoryEmulator) -> None:
    """R20: an endpoint that asks to wait answers; it is asked again when the wait is over."""
    async with two_more(emulator) as sites:
        emulator.faults.fail("Publish", "RESOURCE_EXHAUSTED", retry_delay=2)
        transports = [site.transport() for site in sites]
        async with publisher_of(emulator, transports, retry=RetryPolicy()) as publisher:
            await publisher.publish(TOPIC, b"x").ack
            await publisher.publish(TOPIC, b"y").ack
            assert now() == 2
        assert received(sites) == [[b"x", b"y"], [], []]


@virtual
async def test_an_ordering_key_stays_on_its_endpoint(emulator: MemoryEmulator) -> None:
    """R19: chosen by SipHash, the same in each process, isolated or not, and never rotated."""
    keys = [f"key-{number}" for number in range(30)]
    async with two_more(emulator) as sites:
        transports = [site.transport() for site in sites]
        async with publisher_of(emulator, transports, retry=RetryPolicy()) as publisher:
            for key in keys:
                await publisher.publish(TOPIC, key.encode(), ordering_key=key).ack
        first = received(sites)
        assert all(first)  # spread over all three
        expected = [siphash_2_4(key.encode()) % 3 for key in keys]
        assert [
            [data in there for there in first].index(True)
            for data in (key.encode() for key in keys)
        ] == expected

        async with publisher_of(emulator, transports, retry=RetryPolicy()) as publisher:
            emulator.faults.fail("Publish", "UNAVAILABLE", times=2)
            key = keys[expected.index(0)]
            flight = publisher.publish(TOPIC, b"again", ordering_key=key)
            await flight.ack
            assert (flight.attempts, now()) == (3, 0.5)
        assert stored(emulator)[-1] == b"again"


def siphash_2_4(data: bytes) -> int:
    """SipHash as its paper has it, with a key of zeros, to hold the library's choice against."""
    mask = 2**64 - 1

    def rotate(value: int, by: int) -> int:
        return ((value << by) | (value >> (64 - by))) & mask

    state = [0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573]

    def rounds(count: int) -> None:
        v0, v1, v2, v3 = state
        for _ in range(count):
            v0 = (v0 + v1) & mask
            v1 = rotate(v1, 13) ^ v0
            v0 = rotate(v0, 32)
            v2 = (v2 + v3) & mask
            v3 = rotate(v3, 16) ^ v2
            v0 = (v0 + v3) & mask
            v3 = rotate(v3, 21) ^ v0
            v2 = (v2 + v1) & mask
            v1 = rotate(v1, 17) ^ v2
            v2 = rotate(v2, 32)
        state[:] = [v0, v1, v2, v3]

    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) & 255])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        state[3] ^= word
        rounds(2)
        state[0] ^= word
    state[2] ^= 0xFF
    rounds(4)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def test_the_other_siphash_is_that_of_the_paper() -> None:
    """The paper's own example has another key; the empty text with zeros is well known."""
    assert siphash_2_4(b"") == 0x1E924B9D737700D7


@virtual
async def test_the_startup_goes_on_with_the_endpoints_that_answer(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    """R1, R3: one that does not is left alone from the beginning."""
    async with two_more(emulator) as sites:
        emulator.faults.fail("GetTopic", "UNAVAILABLE", times=10)
        transports = [site.transport() for site in sites]
        async with publisher_of(emulator, transports, topics=[TOPIC]) as publisher:
            await publisher.publish(TOPIC, b"x").ack
        assert received(sites) == [[], [b"x"], []]
    assert "memory 0: warning - it does not answer, others are used" in caplog.text


def test_endpoints_are_named_by_regions_or_addresses() -> None:
    """R10: Pub/Sub's locational endpoints, or any."""
    regions = PublisherClient("p", region=["europe-west1", "us-east4"])
    addresses = PublisherClient("p", endpoint=["http://localhost:1", "other:2"])
    one = PublisherClient("p", region="europe-west1")

    assert regions.settings["endpoints"].value == (
        *("europe-west1-pubsub.googleapis.com:443", "us-east4-pubsub.googleapis.com:443"),
    )
    assert addresses.settings["endpoints"].value == ("localhost:1", "other:2")
    assert one.settings["endpoints"].source == "the argument region"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"region": []}, "region must be .*, or a list of different ones, not "),
        ({"endpoint": ["a:1", "a:1"]}, "endpoint must be host:port, .* or a list of different"),
        ({"endpoint": ["a:1"], "region": ["b"]}, "endpoint and region cannot both be given"),
        ({"transport": []}, "transport: there must be one at least"),
        ({"transport": "carrier pigeon"}, "transport: must be 'grpc', 'rest' or a transport"),
    ],
)
def test_endpoints_that_cannot_be_are_refused(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        PublisherClient("p", **arguments)  # type: ignore[arg-type]


@virtual
async def test_a_transport_that_fails_in_another_way_fails_its_batch_alone(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is wrong with a transport, the publisher goes on."""

    class Broken(Tapped):
        broken = True

        async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
            if rpc == "Publish" and self.broken:
                raise ZeroDivisionError("a bug")
            return await super().call(rpc, request, timeout=timeout)

    transport = Broken(emulator.transport())
    async with publisher_of(emulator, transport) as publisher:
        with pytest.raises(ZeroDivisionError):
            await publisher.publish(TOPIC, b"x").ack
        transport.broken = False
        await publisher.publish(TOPIC, b"y").ack
    assert "could not be sent" in caplog.text


@pytest.mark.parametrize("reply", [b"", b"\n\x011\n\x012", b"\xff\xff"])
@virtual
async def test_an_answer_that_does_not_fit_is_an_error(
    emulator: MemoryEmulator, reply: bytes
) -> None:
    """Too few ids, too many, or nonsense: no message gets the id of another."""

    class Lying(Tapped):
        async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
            answer = await super().call(rpc, request, timeout=timeout)
            return reply if rpc == "Publish" else answer

    listener = Listener()
    async with publisher_of(emulator, Lying(emulator.transport()), listener=listener) as publisher:
        with pytest.raises(Exception, match="DATA_LOSS: the answer does not fit the messages"):
            await publisher.publish(TOPIC, b"x").ack
    assert listener.events() == ["published", "completed_exceptionally"]


@virtual
async def test_an_endpoint_that_says_nothing_is_isolated(emulator: MemoryEmulator) -> None:
    """R15: what was sent to it times out, what follows goes elsewhere."""
    async with two_more(emulator) as sites:
        transports = [site.transport() for site in sites]
        async with publisher_of(emulator, transports) as publisher:
            await publisher.publish(TOPIC, b"before").ack
            with emulator.faults.stall_connections():
                with pytest.raises(PublishTimeoutError):
                    await publisher.publish(TOPIC, b"lost").ack
                await publisher.publish(TOPIC, b"after").ack
        assert received(sites) == [[b"before"], [b"after"], []]


@virtual
async def test_silence_that_is_worth_another_attempt_leaves_time_for_it(
    emulator: MemoryEmulator,
) -> None:
    """R15, R16: each endpoint has its share of the flight's time."""
    async with two_more(emulator) as sites:
        transports = [site.transport() for site in sites]
        again = RetryPolicy(codes=frozenset({"DEADLINE_EXCEEDED"}))
        async with publisher_of(emulator, transports, retry=again, wait_timeout=6) as publisher:
            await publisher.publish(TOPIC, b"before").ack
            with emulator.faults.stall_connections(), sites[1].faults.stall_connections():
                await publisher.publish(TOPIC, b"x").ack
                assert now() == 4
        assert received(sites) == [[b"before"], [], [b"x"]]


@virtual
async def test_an_endpoint_is_not_blamed_for_the_time_that_others_took(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    """R15."""
    async with two_more(emulator) as sites:
        first = Answering(emulator.transport(), (4.9, "UNAVAILABLE"))
        second = Answering(sites[1].transport(), (1, None))
        async with publisher_of(emulator, [first, second], retry=RetryPolicy()) as publisher:
            with pytest.raises(PublishTimeoutError):
                await publisher.publish(TOPIC, b"x").ack
            await asyncio.sleep(1)

            silent = [record.args for record in caplog.records if "does not answer" in record.msg]
            assert [args[0] for args in silent if isinstance(args, tuple)] == ["tapped 0"]


# What is told of it


def test_help_says_what_each_option_means() -> None:
    told = pydoc.plain(pydoc.render_doc(PublisherOptions))

    for name in PublisherOptions.__annotations__:
        assert re.search(rf"\|      {name}: \w", told), name
