"""A load server: the service's subscriber calls with as little CPU a message as can be.

    python -m tests.bench.subscriber_server

It prints its two addresses, for gRPC and for REST. `/bench/<subscription>` on the second is how a
subscription is made, fed and reported on. Requests and responses stay bytes, see `Feed`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable

from aiohttp import web

from pubsub_aio._wire import schema
from tests.bench.http2 import Call, Stream
from tests.bench.load_server import serve
from tests.bench.subscriber_feed import Feed

_UNLIMITED = 10**9
_PULL_TIMEOUT = 5.0
_RUN_TIMEOUT = 60.0
_ANSWER = schema.StreamingPullResponse(
    subscription_properties=schema.StreamingPullResponse.SubscriptionProperties()
).SerializeToString()


class Calls:
    """The calls over gRPC."""

    def __init__(self, feeds: dict[str, Feed]) -> None:
        self._feeds = feeds
        self.streams: dict[str, Callable[[Call], Stream]] = {
            "StreamingPull": lambda call: Pulling(call, feeds)
        }
        self.unary: dict[str, Callable[[bytes], bytes]] = {
            "Acknowledge": self.acknowledge,
            "ModifyAckDeadline": self.modify_ack_deadline,
            "GetSubscription": self.get_subscription,
        }

    def acknowledge(self, request: bytes) -> bytes:
        """Count acks."""
        self._feeds[_acknowledge(request).subscription].ack(request)
        return b""

    def modify_ack_deadline(self, request: bytes) -> bytes:
        """Count changes of a deadline."""
        asked = _modify_ack_deadline(request)
        self._feeds[asked.subscription].modack(request, nack=not asked.ack_deadline_seconds)
        return b""

    def get_subscription(self, request: bytes) -> bytes:
        """Describe a subscription."""
        name = schema.GetSubscriptionRequest.FromString(request).subscription
        made = schema.Subscription(
            name=name, topic="projects/bench/topics/topic", ack_deadline_seconds=10
        )
        return made.SerializeToString()


class Pulling:
    """A StreamingPull: it sends while there is room, and answers each sign of life."""

    def __init__(self, call: Call, feeds: dict[str, Feed]) -> None:
        self._call = call
        self._feeds = feeds
        self._feed: Feed | None = None
        self._limit = _UNLIMITED
        self._answers = 0

    def received(self, message: bytes) -> None:
        """Heed a request; the first opens the stream."""
        request = schema.StreamingPullRequest.FromString(message)
        if self._feed is None:
            self._limit = request.max_outstanding_messages or _UNLIMITED
            self._feed = self._feeds[request.subscription]
            self._feed.listeners.add(self.writable)
        elif request.ack_ids:
            # As a request of its own: the ids of acks and of new deadlines are not to be mixed.
            acked = schema.AcknowledgeRequest(ack_ids=request.ack_ids)
            self._feed.ack(acked.SerializeToString())
        elif not request.modify_deadline_ack_ids:
            self._answers += 1
        changes = zip(request.modify_deadline_ack_ids, request.modify_deadline_seconds, strict=True)
        for ack_id, seconds in changes:
            self._feed.modack(ack_id.encode(), nack=not seconds)
        self.writable()

    def writable(self) -> None:
        """Send what there is to send."""
        while self._feed is not None and self._call.idle:
            if self._answers:
                self._answers -= 1
                self._call.send(_ANSWER)
            elif self._feed.has_room(self._limit):
                self._call.send(self._feed.take())
            else:
                break

    def closed(self) -> None:
        """Send nothing more."""
        if self._feed is not None:
            self._feed.listeners.discard(self.writable)
        self._feed = None


_FIRST_ID = {field: re.compile(re.escape(bytes([field << 3 | 2, 184, 1]))) for field in (2, 4)}
"""Where the first ack id, 184 bytes of that field, begins in an encoded request."""


def _acknowledge(request: bytes) -> schema.AcknowledgeRequest:
    """The request without its ids: what stands before them tells what is needed."""
    head = _FIRST_ID[2].split(request, maxsplit=1)[0]
    return schema.AcknowledgeRequest.FromString(head or request)


def _modify_ack_deadline(request: bytes) -> schema.ModifyAckDeadlineRequest:
    head = _FIRST_ID[4].split(request, maxsplit=1)[0]
    asked = schema.ModifyAckDeadlineRequest.FromString(head)
    if asked.subscription and asked.ack_deadline_seconds:
        return asked
    return schema.ModifyAckDeadlineRequest.FromString(request)


class Rest:
    """The calls over REST, and those that steer the server."""

    def __init__(self, feeds: dict[str, Feed]) -> None:
        self._feeds = feeds

    def application(self) -> web.Application:
        """What aiohttp serves."""
        name = "{name:projects/[^/:]+/subscriptions/[^/:]+}"
        application = web.Application(client_max_size=2**24)
        application.add_routes(
            [
                web.get(f"/v1/{name}", self.get_subscription),
                web.post(f"/v1/{name}:pull", self.pull),
                web.post(f"/v1/{name}:acknowledge", self.acknowledge),
                web.post(f"/v1/{name}:modifyAckDeadline", self.modify_ack_deadline),
                web.put(f"/bench/{name}", self.create),
                web.get(f"/bench/{name}", self.totals),
                web.post(f"/bench/{name}", self.run),
                web.delete(f"/bench/{name}", self.delete),
            ]
        )
        return application

    def _feed(self, request: web.Request) -> Feed:
        return self._feeds[request.match_info["name"]]

    async def get_subscription(self, request: web.Request) -> web.Response:
        """Describe a subscription."""
        return web.json_response(
            {
                "name": request.match_info["name"],
                "topic": "projects/bench/topics/topic",
                "ackDeadlineSeconds": 10,
            }
        )

    async def pull(self, request: web.Request) -> web.Response:
        """Answer with messages as soon as there are some."""
        feed = self._feed(request)
        most = json.loads(await request.read())["maxMessages"]
        try:
            async with asyncio.timeout(_PULL_TIMEOUT):
                await feed.until(lambda: feed.left > 0)
        except TimeoutError:
            pass  # a pull of nothing is answered too
        return web.Response(body=feed.take_json(most), content_type="application/json")

    async def acknowledge(self, request: web.Request) -> web.Response:
        """Count acks."""
        self._feed(request).ack(await request.read())
        return web.json_response({})

    async def modify_ack_deadline(self, request: web.Request) -> web.Response:
        """Count changes of a deadline."""
        body = await request.read()
        self._feed(request).modack(body, nack=not json.loads(body)["ackDeadlineSeconds"])
        return web.json_response({})

    async def create(self, request: web.Request) -> web.Response:
        """Make a subscription as the body says: the arguments of a Feed."""
        self._feeds[request.match_info["name"]] = Feed(**await request.json())
        return web.json_response({})

    async def totals(self, request: web.Request) -> web.Response:
        """Answer with what was counted."""
        return web.json_response(self._feed(request).totals())

    async def run(self, request: web.Request) -> web.Response:
        """Send `count` more, wait for their acks, and answer with what was counted meanwhile."""
        feed = self._feed(request)
        before = feed.totals()
        try:
            async with asyncio.timeout(_RUN_TIMEOUT):
                await feed.run(int(request.query["count"]))
        except TimeoutError:
            raise web.HTTPGatewayTimeout(
                text=f"not all was acknowledged in {_RUN_TIMEOUT:g} s: {feed.totals()}"
            ) from None
        after = feed.totals()
        return web.json_response({key: after[key] - before[key] for key in after})

    async def delete(self, request: web.Request) -> web.Response:
        """Answer with everything that was counted, and forget it."""
        feed = self._feeds.pop(request.match_info["name"])
        return web.json_response({**feed.totals(), "wrong": feed.wrong()})


async def main() -> None:
    """Serve until the process is ended."""
    feeds: dict[str, Feed] = {}
    await serve(Calls(feeds), Rest(feeds).application())


if __name__ == "__main__":
    asyncio.run(main())
