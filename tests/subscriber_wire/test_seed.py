"""The program that the library is modelled on runs as it stands, but for its imports."""

from __future__ import annotations

import signal
import textwrap

import pytest

from tests.subscriber_wire.conftest import Program, Site

# It does not name a transport: gRPC it is.
pytestmark = pytest.mark.only("grpc")

USAGE = """
.. code-block:: python

    from gcloud.aio.pubsub import SubscriberClient
    from google.cloud.pubsub_v1.subscriber.message import Message

    client = SubscriberClient()
    # create subscription if it doesn't already exist
    client.create_subscription('subscription_name', 'topic_name')

    async def message_callback(message: Message) -> None:
        try:
            # just an example: process the message however you need to here...
            result = handle(message)
            await upload_result(result)
        except Exception:
            message.nack()
        else:
            message.ack()

    # subscribe to the subscription, receiving a Future that acts as a keepalive
    keep_alive = client.subscribe('subscription_name', message_callback)

    # have the client run forever, pulling messages from this subscription,
    # passing them to the specified callback function, and wrapping it in an
    # asyncio task.
    client.run_forever(keep_alive)
"""

CONFIGURATION = """
.. code-block:: python

    example_flow_control = FlowControl(
        max_messages=1,
        resume_threshold=0.8,
        max_request_batch_size=1,
        max_request_batch_latency=0.1,
        max_lease_duration=10,
    )

    keep_alive = client.subscribe(
        'subscription_name',
        message_callback,
        flow_control=example_flow_control
    )
"""

THEIR_IMPORTS = """\
from gcloud.aio.pubsub import SubscriberClient
from google.cloud.pubsub_v1.subscriber.message import Message
"""

OUR_IMPORTS = "from pubsub_aio import SubscriberClient, FlowControl, Message\n"

SUBSCRIBE = "keep_alive = client.subscribe('subscription_name', message_callback)\n"

WORK = """
seen = set()

def handle(message):
    print(message.data.decode(), message.ack_id)
    if message.data == b"bad" and message.message_id not in seen:
        seen.add(message.message_id)
        raise ValueError("it is bad the first time")
    return message.data

async def upload_result(result):
    import asyncio
    await asyncio.sleep(0)

"""


def block(readme: str) -> str:
    """The code of a README's block."""
    return textwrap.dedent(readme.partition(".. code-block:: python\n\n")[2])


def program(*, flow_control: bool = False) -> str:
    """The README's program, with what it leaves to its reader."""
    source = block(USAGE)
    assert source.startswith(THEIR_IMPORTS)
    source = source.replace(THEIR_IMPORTS, OUR_IMPORTS)
    assert SUBSCRIBE in source
    if flow_control:
        source = source.replace(SUBSCRIBE, block(CONFIGURATION))
    return WORK + source


def run(site: Site, source: str) -> Program:
    return Program(source, address=site.address, project=site.project)


def prepare(site: Site) -> tuple[str, str]:
    """An earlier run's topic and subscription: what is published before it starts is kept."""
    topic = site.create_topic_named("topic_name")
    return topic, site.create_subscription_named("subscription_name", topic)


@pytest.mark.parametrize(
    ("flow_control", "end"), [(False, signal.SIGTERM), (True, signal.SIGINT)], ids=["", "limited"]
)
def test_the_program_acks_every_message_and_ends_well(
    site: Site, flow_control: bool, end: signal.Signals
) -> None:
    """G1 G2 G3 G4 G5 G6 G7: with no loop of its own, to a graceful end by a signal."""
    topic, name = prepare(site)
    texts = [f"message-{number}" for number in range(5 if flow_control else 50)]
    site.publish(topic, *texts)
    with run(site, program(flow_control=flow_control)) as running:
        lines = running.says(len(texts))
        running.send(end)

        assert running.ending() == (0, "")
    assert sorted(line.split()[0] for line in lines) == sorted(texts)
    assert site.left(name, [line.split()[1] for line in lines]) == []


def test_the_program_creates_its_subscription(site: Site) -> None:
    """G2: it is created if it does not exist, before anything is received from it."""
    topic = site.create_topic_named("topic_name")
    source = program().replace(SUBSCRIBE, f"print('created')\n{SUBSCRIBE}")
    with run(site, source) as running:
        running.says(1)
        created = site.get_subscription(site.subscription_name("subscription_name"))
        site.publish(topic, "one")
        running.says(2)
        running.send(signal.SIGTERM)

        assert running.ending() == (0, "")
    assert created.topic == topic


@pytest.mark.parametrize("flow_control", [False, True], ids=["", "limited"])
def test_a_message_that_cannot_be_handled_comes_again(site: Site, flow_control: bool) -> None:
    """G3 G25: it is nacked, so that it is neither lost nor waited for."""
    topic, name = prepare(site)
    site.publish(topic, "good", "bad")
    with run(site, program(flow_control=flow_control)) as running:
        lines = running.says(3)
        running.send(signal.SIGTERM)

        assert running.ending() == (0, "")
    assert sorted(line.split()[0] for line in lines) == ["bad", "bad", "good"]
    assert site.left(name, [line.split()[1] for line in lines]) == []
