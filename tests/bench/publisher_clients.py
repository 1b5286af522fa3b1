"""One trial of one client, in a process of its own.

    python -m tests.bench.publisher_clients '{"client": "bare grpc.aio", "kind": "cpu", ...}'

The argument holds the client's name and the fields of a `Trial`. One line of JSON is printed, with
what was measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable

from tests.bench import publisher_ours, publisher_rivals
from tests.bench.publisher_trial import Figures, Trial

GOOGLE = "google-cloud-pubsub"
TUNED = "google-cloud-pubsub, tuned"
AIO = "gcloud-aio-pubsub"
BARE = "bare grpc.aio"
OURS = "pubsub-aio"
MANY = "pubsub-aio, publish_many"
MANAGED = "pubsub-aio, managed"

CLIENTS: dict[str, Callable[[Trial], Awaitable[Figures]]] = {
    GOOGLE: publisher_rivals.google,
    TUNED: publisher_rivals.google,
    AIO: publisher_rivals.gcloud_aio,
    BARE: publisher_rivals.bare,
    OURS: publisher_ours.throughput,
    MANY: publisher_ours.many,
    MANAGED: publisher_ours.managed,
}


async def main() -> None:
    """Run the trial that the argument describes."""
    asked = json.loads(sys.argv[1])
    client = CLIENTS[asked.pop("client")]
    trial = Trial(**asked)
    os.environ["PUBSUB_EMULATOR_HOST"] = trial.grpc
    print(json.dumps(await client(trial)))


if __name__ == "__main__":
    asyncio.run(main())
