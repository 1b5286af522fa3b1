"""Calls to a broker, as the service makes them for its clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pubsub_aio._wire import schema
from pubsub_aio.emulator.durations import check_times
from pubsub_aio.emulator.handlers import HANDLERS
from pubsub_aio.emulator.status import Code, StatusError

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from pubsub_aio.emulator.broker import Broker

SHOW_CONDITIONS = 3
"""The version of policies that may have conditions."""

Check = Callable[[schema.Topic | schema.Subscription], None]
"""Refuses settings with StatusError."""


def nothing(_: schema.Topic | schema.Subscription) -> None:
    """Refuse nothing."""


class Calls:
    """A broker, called at one time."""

    def __init__(self, broker: Broker, now: float, check: Check = nothing) -> None:
        self.broker = broker
        self._now = now
        self._check = check

    def __call__(self, rpc: str, request: Message) -> Any:
        """Make a call; the request is the broker's then. StatusError if it is refused."""
        check_times(request)
        if isinstance(request, schema.Topic | schema.Subscription):
            self._check(request)
        return HANDLERS[rpc](self.broker, request, self._now)

    def find(self, rpc: str, request: Message) -> Any:
        """What a call finds; none if it is not there."""
        try:
            return self(rpc, request)
        except StatusError as refusal:
            if refusal.code != Code.NOT_FOUND:
                raise
            return None

    def topic(self, name: str) -> schema.Topic | None:
        """A topic, if it is there."""
        found: schema.Topic | None = self.find("GetTopic", schema.GetTopicRequest(topic=name))
        return found

    def subscription(self, name: str) -> schema.Subscription | None:
        """A subscription, if it is there."""
        request = schema.GetSubscriptionRequest(subscription=name)
        found: schema.Subscription | None = self.find("GetSubscription", request)
        return found

    def revisions(self, name: str) -> list[schema.Schema]:
        """The revisions of a schema, the oldest first; none if it is not there."""
        revisions: list[schema.Schema] = []
        token = ""
        while True:
            request = schema.ListSchemaRevisionsRequest(name=name, view="FULL", page_token=token)
            page = self.find("ListSchemaRevisions", request)
            if page is None:
                return []
            revisions += page.schemas
            token = page.next_page_token
            if not token:
                return revisions[::-1]

    def policy(self, resource: str) -> schema.Policy | None:
        """The policy of a resource, if that is there, or of a project."""
        if is_project(resource):
            return self.broker.policies.of(resource)
        request = schema.GetIamPolicyRequest(resource=resource)
        request.options.requested_policy_version = SHOW_CONDITIONS
        found: schema.Policy | None = self.find("GetIamPolicy", request)
        return found

    def set_policy(self, resource: str, policy: schema.Policy) -> None:
        """Set the policy of a resource, or of a project."""
        if is_project(resource):
            self.broker.policies.set(resource, policy, schema.FieldMask())
        else:
            self("SetIamPolicy", schema.SetIamPolicyRequest(resource=resource, policy=policy))


def is_project(resource: str) -> bool:
    """Whether it is `projects/P` and not something in it."""
    return resource.count("/") == 1
