"""What a broker has changed since it was last saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pubsub_aio.emulator.schemas.registry import VersionedSchema
    from pubsub_aio.emulator.snapshots import Snapshot
    from pubsub_aio.emulator.subscriptions import Subscription
    from pubsub_aio.emulator.topics import Topic

    Resource: TypeAlias = Topic | Subscription | Snapshot | VersionedSchema


class Changes:
    """Marks, not copies: whoever saves looks at what is marked, as it is by then."""

    def __init__(self) -> None:
        self.settings: dict[Resource, None] = {}
        """What was made, changed or deleted."""
        self.traffic: dict[Topic | Subscription, None] = {}
        """Topics with new messages, and subscriptions that have settled some."""

    def __bool__(self) -> bool:
        return bool(self.settings or self.traffic)

    def clear(self) -> None:
        """All of it is being saved."""
        self.settings.clear()
        self.traffic.clear()
