"""Topics, subscriptions, snapshots and schemas: create, get, list, update and delete; policies."""

from __future__ import annotations

from pubsub_aio.admin.policies import Policies
from pubsub_aio.admin.schemas import Schemas
from pubsub_aio.admin.snapshots import Snapshots
from pubsub_aio.admin.subscriptions import Subscriptions
from pubsub_aio.admin.topics import Topics

__all__ = ["AdminClient"]


class AdminClient(Topics, Subscriptions, Snapshots, Schemas, Policies):
    """Makes, reads, changes and deletes topics, subscriptions, snapshots and schemas.

    It reads and changes IAM policies of topics and subscriptions, too.

    Open it with `async with`. Names may be short, or full (`projects/PROJECT/topics/NAME`).
    Settings are given as keywords, named as the fields of Google's `Topic`, `Subscription` and
    `Snapshot`; what these types take is taken here: dicts, objects, `timedelta`. Answers are
    Google's types too, from `google.pubsub_v1.types`.

    A call that fails in passing is tried again, by the rules of Google's own client, until its
    `timeout` is over. Then, and for every other refusal, it raises a `ServiceError`:
    `NotFoundError`, `AlreadyExistsError` and others. A `ConfigError` says that an argument cannot
    be as it is; nothing was sent then.

    Args:
        project: The project of short names; otherwise the environment tells it
            (`GOOGLE_CLOUD_PROJECT`).
        transport: `"grpc"`, `"rest"`, or a transport, which is opened and closed with the client.
        endpoint: `host:port` of the service; with `http://` before it, an emulator without TLS.
        region: A region such as `europe-west1`, for its locational endpoint.
        credentials: Whose name the calls are made in; otherwise found as Google's libraries do.
    """
