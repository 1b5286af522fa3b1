"""One trial of one client, in a process of its own.

    python -m tests.bench.subscriber_clients '{"client": "bare grpc.aio", "kind": "cpu", ...}'

The argument holds the client's name and the fields of a `Trial`. One line of JSON is printed, with
what was measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping

from tests.bench import subscriber_ours, subscriber_rivals
from tests.bench.subscriber_trial import Figures, Trial

GOOGLE = "google-cloud-pubsub"
AIO = "gcloud-aio-pubsub"
BARE = "bare grpc.aio"
OURS = "pubsub-aio"
SUSPENDS = "pubsub-aio, callback suspends"
ARROW = "pubsub-aio, Arrow"
HELD = "pubsub-aio, leases held"

Client = Callable[[Trial], Awaitable[Figures]]

CLIENTS: dict[str, Client] = {
    GOOGLE: subscriber_rivals.google,
    AIO: subscriber_rivals.gcloud_aio,
    BARE: subscriber_rivals.bare,
    OURS: subscriber_ours.callback,
    SUSPENDS: subscriber_ours.suspends,
    ARROW: subscriber_ours.arrow,
    HELD: subscriber_ours.held,
}


async def main(clients: Mapping[str, Client]) -> None:
    """Run the trial that the argument describes, of one of these clients."""
    asked = json.loads(sys.argv[1])
    client = clients[asked.pop("client")]
    trial = Trial(**asked)
    os.environ["PUBSUB_EMULATOR_HOST"] = trial.grpc
    trial.create()
    figures = await client(trial)
    trial.check()
    print(json.dumps(figures))


if __name__ == "__main__":
    asyncio.run(main(CLIENTS))
