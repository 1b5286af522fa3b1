"""A load server: the service's Publish with as little CPU a message as can be.

    python -m tests.bench.publisher_server

It prints its two addresses, for gRPC and for REST. `/bench/<topic>` on the second is how a topic is
made and reported on. See `Inbox` for what it does with a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from pubsub_aio._wire import schema
from tests.bench.http2 import Call, Stream
from tests.bench.load_server import serve
from tests.bench.publisher_inbox import Inbox

_TOPIC_FIELD = 1 << 3 | 2


class Calls:
    """The calls over gRPC."""

    def __init__(self, inboxes: dict[str, Inbox]) -> None:
        self._inboxes = inboxes
        self.streams: dict[str, Callable[[Call], Stream]] = {}
        self.unary: dict[str, Callable[[bytes], bytes]] = {
            "Publish": self.publish,
            "GetTopic": self.get_topic,
        }

    def publish(self, request: bytes) -> bytes:
        """Count messages."""
        return self._inboxes[_topic(request)].publish(request)

    def get_topic(self, request: bytes) -> bytes:
        """Describe a topic."""
        name = schema.GetTopicRequest.FromString(request).topic
        return schema.Topic(name=name).SerializeToString()


def _topic(request: bytes) -> str:
    """The topic of an encoded request; most clients write it first, and it is short."""
    if request[0] == _TOPIC_FIELD and request[1] < 128:
        return request[2 : 2 + request[1]].decode()
    return schema.PublishRequest.FromString(request).topic


class Rest:
    """The calls over REST, and those that steer the server."""

    def __init__(self, inboxes: dict[str, Inbox]) -> None:
        self._inboxes = inboxes

    def application(self) -> web.Application:
        """What aiohttp serves."""
        name = "{name:projects/[^/:]+/topics/[^/:]+}"
        application = web.Application(client_max_size=2**24)
        application.add_routes(
            [
                web.post(f"/v1/{name}:publish", self.publish),
                web.put(f"/bench/{name}", self.create),
                web.get(f"/bench/{name}", self.totals),
                web.post(f"/bench/{name}", self.note_ids),
                web.delete(f"/bench/{name}", self.delete),
            ]
        )
        return application

    def _inbox(self, request: web.Request) -> Inbox:
        return self._inboxes[request.match_info["name"]]

    async def publish(self, request: web.Request) -> web.Response:
        """Count messages."""
        answer = self._inbox(request).publish_json(await request.read())
        return web.Response(body=answer, content_type="application/json")

    async def create(self, request: web.Request) -> web.Response:
        """Make a topic as the body says: the arguments of an Inbox."""
        name = request.match_info["name"]
        self._inboxes[name] = Inbox(name, **await request.json())
        return web.json_response({})

    async def totals(self, request: web.Request) -> web.Response:
        """Answer with what was counted."""
        return web.json_response(self._inbox(request).totals())

    async def note_ids(self, request: web.Request) -> web.Response:
        """Take the message ids that the client has got."""
        self._inbox(request).ids = await request.text()
        return web.json_response({})

    async def delete(self, request: web.Request) -> web.Response:
        """Read everything that came, answer with the totals, and forget it."""
        return web.json_response(self._inboxes.pop(request.match_info["name"]).checked())


async def main() -> None:
    """Serve until the process is ended."""
    inboxes: dict[str, Inbox] = {}
    await serve(Calls(inboxes), Rest(inboxes).application())


if __name__ == "__main__":
    asyncio.run(main())
