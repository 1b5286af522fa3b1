"""What a broker has changed since it was last saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pubsub_aio.emulator.policies import Resource
    from pubsub_aio.emulator.subscriptions import Subscription
    from pubsub_aio.emulator.topics import Topic


class Changes:
    """Marks, not copies: whoever saves looks at what is marked, as it is by then."""

    def __init__(self) -> None:
        self.settings: dict[Resource, None] = {}
        """What was made, changed or deleted, or has another policy."""
        self.traffic: dict[Topic | Subscription, None] = {}
        """Topics with new messages, and subscriptions that have settled some."""
        self.projects = False
        """Whether the policy of a project was set, or a role defined."""

    def __bool__(self) -> bool:
        return bool(self.settings or self.traffic or self.projects)

    def clear(self) -> None:
        """All of it is being saved."""
        self.settings.clear()
        self.traffic.clear()
        self.projects = False
