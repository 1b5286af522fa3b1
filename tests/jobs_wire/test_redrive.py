"""Dead letters over gRPC and REST, on the embedded emulator and on Google's."""

from __future__ import annotations

from typing import Literal

import pytest

from pubsub_aio import AdminClient, ConfigError
from pubsub_aio.jobs.attributes import REDRIVEN
from pubsub_aio.jobs.dead_letters import DeadLetterSubscription, dead_letter_subscriptions
from pubsub_aio.jobs.redrive import peek, purge, redrive
from tests.publisher_wire.conftest import publisher_of
from tests.subscriber_wire.conftest import Site, nothing_left_behind

pytestmark = pytest.mark.timeout(60)


def idle(site: Site) -> float:
    """Seconds until nothing comes any more.

    Google's emulator may give what is given back to a pull that has ended, over REST: then it comes
    again when its deadline of ten seconds has passed.
    """
    return 12.0 if (site.kind, site.transport) == ("google", "rest") else 1.0


async def set_up(site: Site, count: int) -> str:
    """Two topics with a subscription each, and dead letters; returns the subscription of these."""
    buried, orders = site.create_topic_named("buried"), site.create_topic_named("orders")
    letters = site.create_subscription_named("letters", buried)
    site.create_subscription_named("worker", orders)
    async with publisher_of(site) as publisher:
        flights = [
            publisher.publish(buried, b"%d" % number, attributes={"odd": str(number % 2)})
            for number in range(count)
        ]
        for flight in flights:
            await flight.ack
    return letters


async def test_dead_letters_are_shown_moved_and_deleted(site: Site) -> None:
    letters, wait = await set_up(site, 20), idle(site)
    odd, even = 'attributes.odd = "1"', 'attributes.odd = "0"'
    async with nothing_left_behind(), site.client() as subscriber, publisher_of(site) as publisher:
        shown = await peek(subscriber, letters, limit=20, idle=wait)
        moved = await redrive(*(subscriber, publisher, letters), to="orders", where=odd, idle=wait)
        purged = await purge(subscriber, letters, where=even, limit=4, idle=wait)
        left = await peek(subscriber, letters, limit=6, idle=wait)

    assert {one.data for one in shown} == {b"%d" % number for number in range(20)}
    assert (moved.moved, moved.skipped, moved.complete) == (10, 10, True)
    assert (purged.moved, len(left)) == (4, 6)
    ids = {letter.data: letter.id for letter in shown}
    found = [one.message for one in site.pull_now(site.subscription_name("worker"))]
    assert {one.data for one in found} == {b"%d" % number for number in range(1, 20, 2)}
    assert all(one.attributes[REDRIVEN] == ids[one.data] for one in found)


async def test_a_topic_that_nobody_subscribes_to_is_refused(site: Site) -> None:
    letters = await set_up(site, 1)
    site.create_topic_named("lonely")
    async with nothing_left_behind(), site.client() as subscriber, publisher_of(site) as publisher:
        with pytest.raises(ConfigError, match="everything would be lost"):
            await redrive(subscriber, publisher, letters, to="lonely")
        # Google's emulator does not tell a missing topic from one without subscriptions.
        with pytest.raises(ConfigError, match=r"there is no|everything would be lost"):
            await redrive(subscriber, publisher, letters, to="missing")


async def test_subscriptions_that_receive_dead_letters_are_found(site: Site) -> None:
    letters = await set_up(site, 0)
    buried = site.topic_name("buried")
    way: Literal["grpc", "rest"] = "rest" if site.transport == "rest" else "grpc"
    async with AdminClient(
        project=site.project, transport=way, endpoint=f"http://{site.address}"
    ) as admin:
        await admin.create_subscription(
            "failing", "orders", dead_letter_policy={"dead_letter_topic": buried}
        )
        await admin.create_topic("jobs.dead-letter")
        await admin.create_subscription(
            "jobs.dead-letter", "jobs.dead-letter", labels={"pubsub_aio_role": "dead-letter"}
        )
        found = await dead_letter_subscriptions(admin)

    name = site.subscription_name
    jobs = name("jobs.dead-letter")
    assert found == [
        DeadLetterSubscription(jobs, site.topic_name("jobs.dead-letter"), (name("jobs"),), True),
        DeadLetterSubscription(letters, buried, (name("failing"),), False),
    ]
