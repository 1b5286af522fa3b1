"""A StreamingPull as a test sees it: requests go in, responses are read one by one."""

import contextlib
import queue
import threading
import time
from types import TracebackType
from typing import Self

import grpc
import pytest
from google.pubsub_v1 import ReceivedMessage, StreamingPullRequest, StreamingPullResponse

WITHIN = 10.0
"""Seconds of real time in which a server must have done what a test waits for."""

# Google's emulator looks for messages twenty times a second.
_QUIET = 0.5


class Stream:
    """An open StreamingPull. Leaving its `with` cancels it."""

    def __init__(
        self, channel: grpc.Channel, first: dict[str, object], *, heartbeats: bool
    ) -> None:
        self._heartbeats = heartbeats
        self._greeted = False
        self._requests: queue.Queue[StreamingPullRequest | None] = queue.Queue()
        self._responses: queue.Queue[StreamingPullResponse | None] = queue.Queue()
        self._requests.put(StreamingPullRequest(first))
        # The raw stub: the client's own method does not return before the first response.
        streaming_pull = channel.stream_stream(
            "/google.pubsub.v1.Subscriber/StreamingPull",
            request_serializer=StreamingPullRequest.serialize,
            response_deserializer=StreamingPullResponse.deserialize,
        )
        self._call = streaming_pull(iter(self._requests.get, None))
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call.cancel()
        self._requests.put(None)
        self._reader.join()

    def _read(self) -> None:
        with contextlib.suppress(grpc.RpcError):
            for response in self._call:
                self._responses.put(response)
        self._responses.put(None)

    def send(self, **fields: object) -> None:
        self._requests.put(StreamingPullRequest(fields))

    def half_close(self) -> None:
        self._requests.put(None)

    def acknowledge(self, *received: ReceivedMessage) -> None:
        self.send(ack_ids=[delivery.ack_id for delivery in received])

    def modify_ack_deadline(self, *received: ReceivedMessage, seconds: int) -> None:
        self.send(
            modify_deadline_ack_ids=[delivery.ack_id for delivery in received],
            modify_deadline_seconds=[seconds for _ in received],
        )

    def nack(self, *received: ReceivedMessage) -> None:
        self.modify_ack_deadline(*received, seconds=0)

    def response(self) -> StreamingPullResponse:
        """The next response, whatever it carries."""
        try:
            response = self._responses.get(timeout=WITHIN)
        except queue.Empty:
            pytest.fail("the stream is silent")
        if response is None:
            pytest.fail(f"the stream ended: {self._call.code()} {self._call.details()}")
        self._greeted = True
        return response

    def messages(self, count: int) -> list[ReceivedMessage]:
        """Read until `count` deliveries are here, and give all that came with them."""
        received: list[ReceivedMessage] = []
        while len(received) < count:
            received += self.response().received_messages
        return received

    def settle(self) -> list[ReceivedMessage]:
        """Wait until the server has done all it was asked for; gives the deliveries of meanwhile.

        A heartbeat's answer proves that the requests before it are done, and a second one leaves
        time for the deliveries they set off. Google's emulator answers none; there we listen for
        a while.
        """
        if not self._heartbeats:
            return self._listen()
        received: list[ReceivedMessage] = []
        if not self._greeted:
            received += self.response().received_messages
        for _ in range(2):
            self.send()
            while _carries_something(response := self.response()):
                received += response.received_messages
        return received

    def _listen(self) -> list[ReceivedMessage]:
        received: list[ReceivedMessage] = []
        with contextlib.suppress(queue.Empty):
            while response := self._responses.get(timeout=_QUIET):
                received += response.received_messages
        return received

    def ending(self) -> str:
        """The name of the status the stream ends with; responses before it are read away."""
        try:
            while self._responses.get(timeout=WITHIN) is not None:
                pass
        except queue.Empty:
            pytest.fail("the stream does not end")
        name: str = self._call.code().name
        return name

    def details(self) -> str:
        """What the ended stream's status says."""
        details: str = self._call.details()
        return details


def gather(count: int, *streams: Stream) -> list[ReceivedMessage]:
    """Read until `count` deliveries are here from any of these streams, or time is up."""
    received: list[ReceivedMessage] = []
    ends_at = time.monotonic() + WITHIN
    while len(received) < count and time.monotonic() < ends_at:
        for stream in streams:
            received += stream.settle()
    return received


def _carries_something(response: StreamingPullResponse) -> bool:
    """Tell whether a response is more than the answer to a heartbeat."""
    return bool(
        response.received_messages
        or "acknowledge_confirmation" in response
        or "modify_ack_deadline_confirmation" in response
    )
