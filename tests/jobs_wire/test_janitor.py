"""A janitor over gRPC and REST, on the embedded emulator and Google's."""

from __future__ import annotations

import time

import pytest

from pubsub_aio import AdminClient
from pubsub_aio.jobs import JobQueue
from pubsub_aio.jobs.janitor import Janitor
from tests.publisher_wire.conftest import publisher_of
from tests.subscriber_wire.conftest import Site, nothing_left_behind

HOUR = 3_600.0


class Clock:
    """Tells what time it will be."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


def admin_of(site: Site) -> AdminClient:
    return AdminClient(
        project=site.project,
        transport="rest" if site.transport == "rest" else "grpc",
        endpoint=f"http://{site.address}",
    )


@pytest.mark.only("embedded")  # Google's emulator does not change labels
async def test_what_is_out_of_use_is_marked_and_deleted_and_created_again(site: Site) -> None:
    clock = Clock()
    async with (
        nothing_left_behind(),
        site.client() as subscriber,
        publisher_of(site) as publisher,
        admin_of(site) as admin,
    ):
        keeps = JobQueue("keeps", subscriber, publisher)
        await keeps.create()
        full = JobQueue("full", subscriber, publisher, auto_delete=True, clock=clock)
        await full.put(b"january")
        queue = JobQueue("idle", subscriber, publisher, auto_delete=True, clock=clock)
        await queue.create()
        janitor = Janitor(admin, subscriber, clock=clock, pull_timeout=0.3)

        deleted = [await janitor.sweep()]
        for _ in range(2):  # to mark, and to delete
            clock.ahead += HOUR
            deleted.append(await janitor.sweep())
        parent = f"projects/{site.project}"
        assert deleted[:2] == [[], []]
        assert deleted[2][0] == f"{parent}/subscriptions/idle"
        assert sorted(deleted[2][1:]) == [
            f"{parent}/subscriptions/idle.dead-letter",
            f"{parent}/subscriptions/idle.return",
            f"{parent}/topics/idle.dead-letter",
            f"{parent}/topics/idle.return",
        ]

        await queue.put(b"february")
        there = [each.name.rpartition("/")[2] async for each in admin.list_subscriptions()]
        names = [
            f"{name}{end}"
            for name in ("full", "idle", "keeps")
            for end in ("", ".dead-letter", ".return")
        ]
        assert sorted(there) == names
        assert [message.data for message in await subscriber.pull("idle")] == [b"february"]
        assert [message.data for message in await subscriber.pull("full")] == [b"january"]


@pytest.mark.only("google")
async def test_where_labels_cannot_be_changed_nothing_is_deleted(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with (
        site.client() as subscriber,
        publisher_of(site) as publisher,
        admin_of(site) as admin,
    ):
        queue = JobQueue("idle", subscriber, publisher, auto_delete=True, clock=clock)
        await queue.put(b"january")
        for _ in range(3):
            clock.ahead += HOUR
            assert await Janitor(admin, subscriber, clock=clock, pull_timeout=0.3).sweep() == []
        await queue.put(b"february")

        said = [record.getMessage() for record in caplog.records]
        assert sum("auto_delete: the server does not change labels" in line for line in said) == 1
        assert len([each async for each in admin.list_subscriptions()]) == 3
