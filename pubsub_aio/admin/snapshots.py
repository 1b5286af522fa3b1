"""Snapshots."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from pubsub_aio.admin.calls import Calls
from pubsub_aio.config import CALL_TIMEOUT

if TYPE_CHECKING:
    from google.pubsub_v1.types import Snapshot


class Snapshots(Calls):
    """What can be done to snapshots."""

    async def create_snapshot(
        self, snapshot: str, subscription: str, *, timeout: float = CALL_TIMEOUT, **settings: object
    ) -> Snapshot:
        """Keep what a subscription has acked, and what it has not, to seek back to.

        Args:
            snapshot: Its name.
            subscription: The subscription's name.
            timeout: Seconds for the call with all its attempts.
            **settings: Fields of `CreateSnapshotRequest`.
        """
        google = self._google
        request = google.make(
            google.types.CreateSnapshotRequest,
            settings,
            name=self._name(snapshot, "snapshots"),
            subscription=self._name(subscription, "subscriptions"),
        )
        return await google.call(google.subscriber.create_snapshot, request, timeout=timeout)

    async def get_snapshot(self, snapshot: str, *, timeout: float = CALL_TIMEOUT) -> Snapshot:
        """The settings of a snapshot."""
        google = self._google
        request = {"snapshot": self._name(snapshot, "snapshots")}
        return await google.call(google.subscriber.get_snapshot, request, timeout=timeout)

    def list_snapshots(
        self, *, project: str | None = None, page_size: int = 0, timeout: float = CALL_TIMEOUT
    ) -> AsyncIterator[Snapshot]:
        """All snapshots of a project, for `async for`.

        Args:
            project: Another than the client's.
            page_size: How many to ask for at a time; zero leaves it to the service.
            timeout: Seconds for each page.
        """
        google = self._google
        request = google.make(
            google.types.ListSnapshotsRequest,
            {"page_size": page_size},
            project=self._parent(project),
        )
        return self._list(google.subscriber.list_snapshots, request, "snapshots", timeout=timeout)

    async def update_snapshot(
        self, snapshot: str, *, timeout: float = CALL_TIMEOUT, **settings: object
    ) -> Snapshot:
        """Change the settings that are given, and leave the others.

        Args:
            snapshot: Its name.
            timeout: Seconds for the call with all its attempts.
            **settings: Fields of `Snapshot`; None returns one to its default.
        """
        google = self._google
        name = self._name(snapshot, "snapshots")
        request = {
            "snapshot": google.make(google.types.Snapshot, settings, name=name),
            "update_mask": {"paths": self._changed(settings)},
        }
        return await google.call(google.subscriber.update_snapshot, request, timeout=timeout)

    async def delete_snapshot(self, snapshot: str, *, timeout: float = CALL_TIMEOUT) -> None:
        """Delete a snapshot."""
        google = self._google
        request = {"snapshot": self._name(snapshot, "snapshots")}
        await google.call(google.subscriber.delete_snapshot, request, timeout=timeout)
