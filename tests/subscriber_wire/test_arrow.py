"""Arrow batches over the wire: what was published, in columns, settled at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.pubsub_v1 import PubsubMessage

from pubsub_aio import ArrowBatch, ShutdownPolicy, StreamPolicy, SubscriberClient
from tests.subscriber_wire.conftest import SUBSCRIPTION, WITHIN, Lying, Site, received, until

pa = pytest.importorskip("pyarrow")
pytest.importorskip("ptars")


class Rows:
    """A callback that remembers the rows that came, and acks them."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.ack_ids: list[str] = []

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for records in self.batches for row in records.to_pylist()]

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows]

    def note(self, batch: ArrowBatch) -> None:
        assert len(batch) == batch.records.num_rows == len(batch.ack_ids)
        self.batches.append(batch.records)
        self.ack_ids += batch.ack_ids

    async def __call__(self, batch: ArrowBatch) -> None:
        self.note(batch)
        batch.ack()


async def test_columns_are_what_was_published(site: Site, client: SubscriberClient) -> None:
    policy = {"dead_letter_topic": site.create_topic(), "max_delivery_attempts": 5}
    topic, name = site.create_pair(dead_letter_policy=policy)
    sent = [
        PubsubMessage(data=b"\x00\xff binary", attributes={"colour": "blue", "grün": "ü"}),
        PubsubMessage(attributes={"only": "attributes"}),
        PubsubMessage(data=b"keyed", ordering_key="key"),
        PubsubMessage(data=bytes(100_000)),
    ]
    ids = site.publish(topic, *sent)
    callback = Rows()
    client.subscribe_arrow(name, callback)
    await until(lambda: len(callback.rows) == 4)
    rows = {row["message_id"]: row for row in callback.rows}

    assert callback.batches[0].schema == pa.schema(
        [
            ("message_id", pa.string()),
            ("publish_time", pa.timestamp("us", tz="UTC")),
            ("data", pa.binary()),
            ("attributes", pa.map_(pa.string(), pa.string())),
            ("ordering_key", pa.string()),
            ("delivery_attempt", pa.int32()),
        ]
    )
    assert sorted(rows) == sorted(ids)
    for message_id, message in zip(ids, sent, strict=True):
        row = rows[message_id]
        assert row["data"] == message.data
        assert dict(row["attributes"]) == dict(message.attributes)
        assert row["ordering_key"] == message.ordering_key
        assert row["delivery_attempt"] == 1
        assert row["publish_time"].utcoffset() == timedelta(0)
        assert abs(row["publish_time"] - datetime.now(UTC)) < timedelta(seconds=2 * WITHIN)
        if site.emulator:
            assert row["publish_time"] == site.emulator.message(message_id).publish_time


async def test_an_acked_batch_does_not_come_again(site: Site, client: SubscriberClient) -> None:
    """G24: one call settles all of it."""
    topic, name = site.create_pair()
    texts = [f"{number}" for number in range(500)]
    callback = Rows()
    live = client.subscribe_arrow(name, callback)
    site.publish(topic, *texts)
    await until(lambda: live.health().counts.get("acked") == 500)

    assert sorted(callback.column("data")) == sorted(text.encode() for text in texts)
    assert (live.health().leased, live.health().leased_bytes) == (0, 0)
    assert site.left(name, callback.ack_ids) == []


@pytest.mark.parametrize("how", ["nack", "raise"])
async def test_a_nacked_batch_comes_again(site: Site, client: SubscriberClient, how: str) -> None:
    """G25: and so does one whose callback raised; the subscription goes on."""
    topic, name = site.create_pair()
    callback, refused = Rows(), Rows()

    async def refuse_first(batch: ArrowBatch) -> None:
        if refused.batches:
            await callback(batch)
            return
        refused.note(batch)
        if how == "raise":
            raise ValueError("it is bad the first time")
        batch.nack()

    live = client.subscribe_arrow(name, refuse_first)
    site.publish(topic, *"abc")
    await until(lambda: live.health().counts.get("acked") == 3)

    assert sorted(callback.column("data")) == [b"a", b"b", b"c"]
    assert {*refused.column("data")} <= {*callback.column("data")}
    assert site.left(name, callback.ack_ids) == []


async def test_a_batch_is_settled_once(site: Site, client: SubscriberClient) -> None:
    topic, name = site.create_pair()
    callback = Rows()

    async def settle_often(batch: ArrowBatch) -> None:
        await callback(batch)
        batch.nack()
        batch.ack()

    live = client.subscribe_arrow(name, settle_often)
    site.publish(topic, *"abc")
    await until(lambda: live.health().counts.get("acked") == 3)

    assert live.health().leased == 0
    assert site.left(name, callback.ack_ids) == []


async def test_what_is_held_counts_by_row(site: Site, client: SubscriberClient) -> None:
    """R25: and is given back at the end if it was not settled."""
    topic, name = site.create_pair()
    held: list[ArrowBatch] = []

    async def callback(batch: ArrowBatch) -> None:
        held.append(batch)

    live = client.subscribe_arrow(name, callback)
    site.publish(topic, *"abcde")
    await until(lambda: sum(map(len, held)) == 5)
    assert live.health().leased == 5
    live.stop()
    await live

    assert len(site.receive(name, 5)) == 5


async def test_small_batches_are_made_where_they_are_wanted(
    site: Site, client: SubscriberClient
) -> None:
    topic, name = site.create_pair()
    callback = Rows()
    live = client.subscribe_arrow(name, callback, max_messages=1, max_latency=0)
    for text in "abc":
        site.publish(topic, text)
        await until(lambda: callback.column("data")[-1:] == [text.encode()])  # noqa: B023 - awaited
    await until(lambda: live.health().counts.get("acked") == 3)

    assert [records.num_rows for records in callback.batches] == [1, 1, 1]


async def test_with_exactly_once_a_batch_is_confirmed(site: Site, client: SubscriberClient) -> None:
    topic, name = site.create_pair(enable_exactly_once_delivery=True)
    callback = Rows()

    async def confirm(batch: ArrowBatch) -> None:
        await batch.ack_with_response()
        callback.note(batch)

    live = client.subscribe_arrow(name, confirm)
    site.publish(topic, *"abc")
    await until(lambda: len(callback.rows) == 3)

    assert sorted(callback.column("data")) == [b"a", b"b", b"c"]
    assert live.health().leased == 0
    assert site.pull_now(name) == []


@pytest.mark.only("embedded")  # faults can be asked for
async def test_with_exactly_once_rows_whose_receipt_is_refused_are_left_out(
    site: Site, client: SubscriberClient
) -> None:
    """They come again, and once."""
    assert site.emulator
    topic, name = site.create_pair(enable_exactly_once_delivery=True)
    site.emulator.faults.fail_confirmations(name, times=2, permanent=True)
    callback = Rows()
    live = client.subscribe_arrow(name, callback)
    site.publish(topic, *"abcdef")
    await until(lambda: site.emulator and site.emulator.backlog(name) == 0)

    assert sorted(callback.column("data")) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert live.health().leased == 0


async def test_with_ordering_batches_come_one_after_another(
    site: Site, client: SubscriberClient
) -> None:
    """Even if they are of different keys, for a batch may have rows of many."""
    topic, name = site.create_pair(enable_message_ordering=True)
    callback, gate = Rows(), asyncio.Event()
    running = most = 0

    async def hold(batch: ArrowBatch) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        await asyncio.sleep(0)
        await callback(batch)
        running -= 1

    policy = ShutdownPolicy(timeout=0.1)
    live = client.subscribe_arrow(name, hold, max_messages=1, max_latency=0, shutdown=policy)
    for number in range(4):
        site.publish(topic, PubsubMessage(data=b"%d" % number, ordering_key=f"key-{number}"))
        await until(lambda: live.health().counts.get("received") == number + 1)  # noqa: B023
    gate.set()
    await until(lambda: live.health().counts.get("acked") == 4)

    assert most == 1
    assert [records.num_rows for records in callback.batches] == [1, 1, 1, 1]


async def test_with_ordering_the_rows_of_a_key_are_in_order(
    site: Site, client: SubscriberClient
) -> None:
    """Within a batch, and across them."""
    topic, name = site.create_pair(enable_message_ordering=True)
    callback = Rows()
    for number in range(30):
        sent = [PubsubMessage(data=b"%d" % number, ordering_key=key) for key in "ab"]
        site.publish(topic, *sent)
    live = client.subscribe_arrow(name, callback, max_messages=5)
    await until(lambda: live.health().counts.get("acked") == 60)

    for key in "ab":
        order = [int(row["data"]) for row in callback.rows if row["ordering_key"] == key]
        assert order == list(range(30))


@pytest.mark.only("embedded-grpc")
async def test_with_ordering_thousands_of_rows_can_be_given_back(
    site: Site, client: SubscriberClient
) -> None:
    """That takes several requests, and after each answer reading may begin anew."""
    topic, name = site.create_pair(enable_message_ordering=True)
    for start in range(0, 9_000, 1_000):
        numbers = range(start, start + 1_000)
        site.publish(topic, *(PubsubMessage(data=b"%d" % n, ordering_key="k") for n in numbers))
    callback = Rows()

    async def nack_first(batch: ArrowBatch) -> None:
        await asyncio.sleep(0.3)  # while more come
        if callback.batches:
            await callback(batch)
        else:
            callback.note(batch)
            batch.nack()

    live = client.subscribe_arrow(name, nack_first)
    await until(lambda: live.done() or live.health().counts.get("acked") == 9_000, timeout=30)
    given_back = callback.batches[0].num_rows
    order = [int(data) for data in callback.column("data")]

    assert order == [*range(given_back), *range(9_000)]


GARBAGE = {
    "bytes": b"\x0a\x04\xff\xff\xff\xff",
    "text": b"\x0a\x08\x0a\x02\xff\xfe\x12\x02\x0a\x00",  # an ack id that is not UTF-8
}


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("max_messages", [1, 2_000], ids=["at once", "gathered"])
async def test_bytes_that_are_no_message_cost_the_others_nothing(
    lying: Lying, garbage: str, max_messages: int
) -> None:
    """R25: what can be read is received, and the subscription goes on."""
    messages = [received(b"%d" % number) for number in range(3)]
    before, after, later = (lying.response(one) for one in messages)

    async def stream(server: Lying, context: Any) -> None:
        if len(server.opened) == 1:
            for response in (before, GARBAGE[garbage], after):
                await context.write(response)
            await until(lambda: len(server.acked) + len(server.nacked) == 2 or server.opened[1:])
        await context.write(later)
        await asyncio.Event().wait()

    lying.stream = stream
    callback = Rows()
    policy = StreamPolicy(first_delay=0.01)
    async with lying.client() as client:
        live = client.subscribe_arrow(
            SUBSCRIPTION, callback, max_messages=max_messages, streams=policy
        )
        await until(lambda: messages[2].ack_id in lying.acked or live.done())

        assert not live.done()
    settled = {*lying.acked, *lying.nacked}
    assert messages[0].ack_id in settled


@pytest.mark.parametrize("missing", ["pyarrow", "ptars"])
def test_what_is_not_installed_is_told_with_its_cure(missing: str) -> None:
    program = f"""
import asyncio, sys
sys.modules[{missing!r}] = None

from pubsub_aio import MissingExtraError, SubscriberClient

async def main():
    async def callback(batch): ...
    async with SubscriberClient("p", endpoint="http://127.0.0.1:1") as client:
        try:
            client.subscribe_arrow("worker", callback)
        except MissingExtraError as error:
            print(error.extra, error)

asyncio.run(main())
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ran.stdout.startswith("spark "), ran.stderr
    assert 'pip install "pubsub-aio[spark]"' in ran.stdout
    assert (ran.returncode, ran.stderr) == (0, "")
