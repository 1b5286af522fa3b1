"""Where dead letters are moved to, and what is refused before anything moves."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from pubsub_aio import (
    ConfigError,
    ServiceError,
)
from pubsub_aio.jobs.redrive import peek, purge, redrive
from pubsub_aio.jobs.sifting import Report
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.dead_letters import (
    BURIED,
    LETTERS,
    ORDERS,
    WORKER,
    clients,
    set_up,
)
from tests.subscriber.conftest import virtual


@virtual
async def test_a_topic_that_fans_out_is_said_before_anything_moves(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    set_up(emulator, 1)
    other = emulator.create_subscription("audit", ORDERS)
    caplog.set_level(logging.WARNING)
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS, dry_run=True)

    assert report.fans_out == (other, f"projects/{emulator.project}/subscriptions/{WORKER}")
    assert "fans out" in caplog.text
    assert "audit, worker" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"to": "missing"}, "to: there is no .*topics/missing; create it"),
        ({"to": "lonely"}, "to: .*topics/lonely has no subscription, everything would be lost"),
        ({"to": BURIED}, f"to: the dead letters come from .*topics/{BURIED}; choose another"),
        ({}, "to: must be given"),
        ({"to": ORDERS, "where": "attributes.a ="}, "where: invalid filter at character 15"),
        ({"to": 7}, "to: must be NAME or projects/PROJECT/topics/NAME, not 7"),
        ({"to": ORDERS, "where": 7}, "where must be a filter, such as .*, or a function that"),
        ({"to": ORDERS, "where": lambda: True}, "where must take a message and nothing else"),
        ({"to": ORDERS, "retry": 5}, "retry must be a RetryPolicy, not 5"),
        ({"to": ORDERS, "dry_run": "no"}, "dry_run must be True or False, not 'no'"),
        ({"to": ORDERS, "where": asyncio.sleep}, "where must be a plain function"),
        ({"to": ORDERS, "limit": 0}, "limit must be at least 1"),
        ({"to": ORDERS, "rate": 0}, "rate must be more than 0"),
        ({"to": ORDERS, "idle": 0}, "idle must be more than 0"),
        ({"to": ORDERS, "max_held": 0}, "max_held must be at least 1"),
        ({"to": ORDERS, "on_progress": 7}, "on_progress must be a function"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_moves(
    arguments: dict[str, Any], named: str
) -> None:
    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        set_up(emulator, 1)
        emulator.create_topic("lonely")
        async with clients(emulator) as (subscriber, publisher):
            with pytest.raises(ConfigError, match=named):
                await redrive(subscriber, publisher, LETTERS, **arguments)

        assert emulator.backlog(LETTERS) == 1

    scenario()


@virtual
async def test_clients_that_are_mixed_up_are_refused(emulator: MemoryEmulator) -> None:
    set_up(emulator)
    async with clients(emulator) as (subscriber, publisher):
        one, other = cast("Any", subscriber), cast("Any", publisher)
        with pytest.raises(ConfigError, match="subscriber must be a SubscriberClient, not"):
            await redrive(other, one, LETTERS, to=ORDERS)
        with pytest.raises(ConfigError, match="publisher must be a PublisherClient, not"):
            await redrive(one, one, LETTERS, to=ORDERS)


@virtual
async def test_a_subscription_that_does_not_exist_is_named(emulator: MemoryEmulator) -> None:
    set_up(emulator)
    async with clients(emulator) as (subscriber, publisher):
        for call in (
            redrive(subscriber, publisher, "missing", to=ORDERS),
            purge(subscriber, "missing"),
            peek(subscriber, "missing"),
        ):
            with pytest.raises(ConfigError, match=r"subscription: there is no .*/missing"):
                await call


@virtual
async def test_who_may_not_look_anything_up_is_not_stopped_by_that(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    set_up(emulator, 2)
    emulator.faults.fail("GetSubscription", "PERMISSION_DENIED", times=2)
    emulator.faults.fail("ListTopicSubscriptions", "PERMISSION_DENIED")
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS)

    assert (report.moved, report.fans_out) == (2, ())
    assert "cannot be looked up: PERMISSION_DENIED" in caplog.text
    assert "who gets what is moved there cannot be looked up" in caplog.text


@virtual
async def test_a_subscription_that_is_deleted_meanwhile_ends_it_with_the_error(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator, 2)
    async with clients(emulator) as (subscriber, publisher), asyncio.TaskGroup() as tasks:
        going = tasks.create_task(_outcome(redrive(subscriber, publisher, LETTERS, to=ORDERS)))
        await asyncio.sleep(2)
        emulator._broker.delete_subscription(
            f"projects/{emulator.project}/subscriptions/{LETTERS}", now=emulator.clock.now()
        )
        emulator._wake()

    assert isinstance(going.result(), ServiceError)


async def _outcome(work: Any) -> object:
    try:
        return await work
    except ServiceError as error:
        return error


@virtual
async def test_who_may_not_look_reckons_with_order(emulator: MemoryEmulator) -> None:
    set_up(emulator, enable_message_ordering=True)
    for data in (b"skip", b"1"):
        emulator.publish(BURIED, data, ordering_key="k")
    for purged in (True, False):
        emulator.faults.fail("GetSubscription", "PERMISSION_DENIED", times=2)
        async with clients(emulator) as (subscriber, publisher):
            if purged:
                report = await purge(subscriber, LETTERS, where=lambda one: one.data != b"skip")
            else:
                report = await redrive(
                    *(subscriber, publisher, LETTERS),
                    to=ORDERS,
                    where=lambda one: one.data != b"skip",
                )

        assert report == Report(skipped=1, held_back=1, ended_by="empty")
