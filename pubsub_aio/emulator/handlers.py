"""The RPCs that look things up or change them: request -> broker call -> reply, nothing more."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from pubsub_aio._wire import schema
from pubsub_aio.emulator import resources
from pubsub_aio.emulator.paging import page_of
from pubsub_aio.emulator.schemas.handlers import HANDLERS as SCHEMA_HANDLERS
from pubsub_aio.emulator.status import invalid

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from pubsub_aio.emulator.broker import Broker
    from pubsub_aio.emulator.policies import Resource


def _create_topic(broker: Broker, request: schema.Topic, now: float) -> schema.Topic:
    return broker.create_topic(request, now=now)


def _get_topic(broker: Broker, request: schema.GetTopicRequest, _: float) -> schema.Topic:
    return broker.topic(request.topic).config


def _update_topic(broker: Broker, request: schema.UpdateTopicRequest, now: float) -> schema.Topic:
    return broker.update_topic(request.topic, request.update_mask, now=now)


def _list_topics(
    broker: Broker, request: schema.ListTopicsRequest, _: float
) -> schema.ListTopicsResponse:
    page, token = resources.page(
        broker.topics, request.project, request.page_size, request.page_token
    )
    return schema.ListTopicsResponse(topics=[topic.config for topic in page], next_page_token=token)


def _list_topic_subscriptions(
    broker: Broker, request: schema.ListTopicSubscriptionsRequest, _: float
) -> schema.ListTopicSubscriptionsResponse:
    names = broker.topic(request.topic).subscriptions
    page, token = page_of(names, size=request.page_size, token=request.page_token)
    return schema.ListTopicSubscriptionsResponse(subscriptions=page, next_page_token=token)


def _list_topic_snapshots(
    broker: Broker, request: schema.ListTopicSnapshotsRequest, _: float
) -> schema.ListTopicSnapshotsResponse:
    names = broker.topic(request.topic).snapshots
    page, token = page_of(names, size=request.page_size, token=request.page_token)
    return schema.ListTopicSnapshotsResponse(snapshots=page, next_page_token=token)


def _delete_topic(broker: Broker, request: schema.DeleteTopicRequest, now: float) -> None:
    broker.delete_topic(request.topic, now=now)


def _detach_subscription(
    broker: Broker, request: schema.DetachSubscriptionRequest, now: float
) -> None:
    broker.detach_subscription(request.subscription, now=now)


def _create_subscription(
    broker: Broker, request: schema.Subscription, now: float
) -> schema.Subscription:
    return broker.create_subscription(request, now=now)


def _get_subscription(
    broker: Broker, request: schema.GetSubscriptionRequest, _: float
) -> schema.Subscription:
    return broker.subscription(request.subscription).config


def _update_subscription(
    broker: Broker, request: schema.UpdateSubscriptionRequest, now: float
) -> schema.Subscription:
    return broker.update_subscription(request.subscription, request.update_mask, now=now)


def _list_subscriptions(
    broker: Broker, request: schema.ListSubscriptionsRequest, _: float
) -> schema.ListSubscriptionsResponse:
    page, token = resources.page(
        broker.subscriptions, request.project, request.page_size, request.page_token
    )
    return schema.ListSubscriptionsResponse(
        subscriptions=[subscription.config for subscription in page], next_page_token=token
    )


def _delete_subscription(
    broker: Broker, request: schema.DeleteSubscriptionRequest, now: float
) -> None:
    broker.delete_subscription(request.subscription, now=now)


def _modify_push_config(
    broker: Broker, request: schema.ModifyPushConfigRequest, now: float
) -> None:
    broker.modify_push_config(request.subscription, request.push_config, now=now)


def _create_snapshot(
    broker: Broker, request: schema.CreateSnapshotRequest, now: float
) -> schema.Snapshot:
    config = schema.Snapshot(name=request.name, labels=request.labels)
    return broker.create_snapshot(config, request.subscription, now=now)


def _get_snapshot(broker: Broker, request: schema.GetSnapshotRequest, _: float) -> schema.Snapshot:
    return broker.snapshot(request.snapshot).config


def _update_snapshot(
    broker: Broker, request: schema.UpdateSnapshotRequest, _: float
) -> schema.Snapshot:
    return broker.update_snapshot(request.snapshot, request.update_mask)


def _list_snapshots(
    broker: Broker, request: schema.ListSnapshotsRequest, _: float
) -> schema.ListSnapshotsResponse:
    page, token = resources.page(
        broker.snapshots, request.project, request.page_size, request.page_token
    )
    return schema.ListSnapshotsResponse(
        snapshots=[snapshot.config for snapshot in page], next_page_token=token
    )


def _delete_snapshot(broker: Broker, request: schema.DeleteSnapshotRequest, now: float) -> None:
    broker.delete_snapshot(request.snapshot, now=now)


def _seek(broker: Broker, request: schema.SeekRequest, now: float) -> None:
    target = request.WhichOneof("target")
    if target == "snapshot":
        broker.seek_to_snapshot(request.subscription, request.snapshot, now=now)
    elif target == "time":
        micros = request.time.seconds * 1_000_000 + math.ceil(request.time.nanos / 1_000)
        broker.seek_to_time(request.subscription, micros / 1_000_000, now=now)
    else:
        broker.subscription(request.subscription)
        raise invalid("target", "either time or snapshot is needed")


def _get_iam_policy(broker: Broker, request: schema.GetIamPolicyRequest, _: float) -> schema.Policy:
    resource = _with_policy(broker, request.resource)
    return broker.policies.get(resource, version=request.options.requested_policy_version)


def _set_iam_policy(broker: Broker, request: schema.SetIamPolicyRequest, _: float) -> schema.Policy:
    resource = _with_policy(broker, request.resource)
    if not request.HasField("policy"):
        raise invalid("policy", "must be given; an empty one takes all bindings away")
    return broker.policies.set(resource, request.policy, request.update_mask)


def _with_policy(broker: Broker, name: str) -> Resource:
    """The resource of that name, of any kind that has a policy."""
    kind = "".join(name.split("/")[2:3])
    if kind not in broker.tables:
        kind = "topics"
    return resources.find(broker.tables[kind], name, kind, field="resource")


HANDLERS: dict[str, Callable[..., Message | None]] = {
    "CreateTopic": _create_topic,
    "GetTopic": _get_topic,
    "UpdateTopic": _update_topic,
    "ListTopics": _list_topics,
    "ListTopicSubscriptions": _list_topic_subscriptions,
    "ListTopicSnapshots": _list_topic_snapshots,
    "DeleteTopic": _delete_topic,
    "DetachSubscription": _detach_subscription,
    "CreateSubscription": _create_subscription,
    "GetSubscription": _get_subscription,
    "UpdateSubscription": _update_subscription,
    "ListSubscriptions": _list_subscriptions,
    "DeleteSubscription": _delete_subscription,
    "ModifyPushConfig": _modify_push_config,
    "CreateSnapshot": _create_snapshot,
    "GetSnapshot": _get_snapshot,
    "UpdateSnapshot": _update_snapshot,
    "ListSnapshots": _list_snapshots,
    "DeleteSnapshot": _delete_snapshot,
    "Seek": _seek,
    "GetIamPolicy": _get_iam_policy,
    "SetIamPolicy": _set_iam_policy,
    **SCHEMA_HANDLERS,
}
"""By RPC; a reply of none stands for an empty message."""
