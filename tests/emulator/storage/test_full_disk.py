"""While the disk takes nothing more, changes are refused; then all goes on."""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from pubsub_aio._wire import schema

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit to fill a disk")

TOPIC, WORKER = "projects/p/topics/orders", "projects/p/subscriptions/worker"
WITHIN = 30.0


class Emulator:
    """An emulator in a process, whose files can be limited in size as by a full disk."""

    def __init__(self, process: subprocess.Popen[str], channel: grpc.Channel) -> None:
        self.process = process
        self._channel = channel

    def limit_files(self, size: int) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        soft = hard if size < 0 else size
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (soft, hard))

    def call(self, rpc: str, request: schema.Message) -> bytes:
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes]
        method = self._channel.unary_unary(f"/google.pubsub.v1.{rpc}")
        return method(request.SerializeToString(), timeout=WITHIN)

    def publish(self, data: bytes) -> None:
        request = schema.PublishRequest(topic=TOPIC, messages=[schema.PubsubMessage(data=data)])
        self.call("Publisher/Publish", request)

    def pulled(self) -> list[bytes]:
        return [received.message.data for received in self.received()]

    def received(self) -> list[schema.ReceivedMessage]:
        request = schema.PullRequest(subscription=WORKER, max_messages=1_000)
        request.return_immediately = True
        response = schema.PullResponse.FromString(self.call("Subscriber/Pull", request))
        return list(response.received_messages)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Emulator]:
    process = subprocess.Popen(
        [sys.executable, "-m", "pubsub_aio", "emulator", "--port=0", "--data-dir", str(folder)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        address = next(
            line.partition("=")[2].strip() for line in process.stderr if line.startswith("export")
        )
        with grpc.insecure_channel(address) as channel:
            yield Emulator(process, channel)
    finally:
        process.kill()
        process.communicate()


def test_a_refusal_of_some_ids_waits_for_the_disk_as_an_answer_does(tmp_path: Path) -> None:
    with running(tmp_path) as emulator:
        emulator.call("Publisher/CreateTopic", schema.Topic(name=TOPIC))
        exactly_once = schema.Subscription(
            name=WORKER, topic=TOPIC, enable_exactly_once_delivery=True
        )
        emulator.call("Subscriber/CreateSubscription", exactly_once)
        emulator.publish(b"one")
        emulator.publish(b"two")
        stale, good = emulator.received()
        emulator.call(
            "Subscriber/Acknowledge",
            schema.AcknowledgeRequest(subscription=WORKER, ack_ids=[stale.ack_id]),
        )
        emulator.limit_files(1)
        with pytest.raises(grpc.RpcError) as caught:
            emulator.call(
                "Subscriber/Acknowledge",
                schema.AcknowledgeRequest(subscription=WORKER, ack_ids=[stale.ack_id, good.ack_id]),
            )

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    with running(tmp_path) as emulator:
        assert emulator.pulled() == [b"two"]


def test_what_cannot_be_saved_is_refused_and_then_saved(tmp_path: Path) -> None:
    answered: list[bytes] = []
    refusals: list[grpc.RpcError] = []
    with running(tmp_path) as emulator:
        emulator.call("Publisher/CreateTopic", schema.Topic(name=TOPIC))
        emulator.call(
            "Subscriber/CreateSubscription", schema.Subscription(name=WORKER, topic=TOPIC)
        )
        emulator.publish(b"before")
        answered.append(b"before")
        emulator.limit_files(5_000)
        number = 0
        while len(refusals) < 3:
            number += 1
            data = b"%d " % number + b"x" * 300
            try:
                emulator.publish(data)
                answered.append(data)
            except grpc.RpcError as error:
                refusals.append(error)
        # What changes nothing is still answered.
        assert schema.Topic.FromString(
            emulator.call("Publisher/GetTopic", schema.GetTopicRequest(topic=TOPIC))
        )
        emulator.limit_files(-1)
        while True:
            with contextlib.suppress(grpc.RpcError):
                emulator.publish(b"after")
                break
        answered.append(b"after")

    assert {error.code() for error in refusals} == {grpc.StatusCode.UNAVAILABLE}
    assert all(str(tmp_path) in str(error.details()) for error in refusals)
    assert "File too large" in str(refusals[0].details())
    assert len(answered) > 5
    with running(tmp_path) as emulator:
        assert set(answered) <= set(emulator.pulled())
