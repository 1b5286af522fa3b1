"""How those receive who look through the messages of a subscription; not for users."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Unpack

from pubsub_aio.config import FlowControl
from pubsub_aio.message import Message
from pubsub_aio.subscriber.callbacks import WorkerChain
from pubsub_aio.subscriber.client import SubscriberClient
from pubsub_aio.subscriber.engine import Kind
from pubsub_aio.subscriber.messages import MessageCustody
from pubsub_aio.subscriber.options import Options, SubscribeOptions
from pubsub_aio.subscriber.sender import Sender
from pubsub_aio.subscriber.subscription import Subscription


class SideBySide(MessageCustody):
    """Custody where a message does not wait until the one before it, of its key, is settled."""

    def __init__(
        self, sender: Sender, options: Options, report: Callable[[str, str], None]
    ) -> None:
        super().__init__(sender, options, report)
        self.ordered = False

    @property
    def ordered(self) -> bool | None:
        """Whether ordering keys matter: not here, whoever looks through messages sees to it."""
        return False

    @ordered.setter
    def ordered(self, ordered: bool) -> None:
        del ordered
        self._ordered = False
        self._watch()


def look_through(
    client: SubscriberClient,
    subscription: str,
    callback: Callable[[Message], Awaitable[None]],
    *,
    flow_control: FlowControl,
    **options: Unpack[SubscribeOptions],
) -> Subscription:
    """Receive messages, the later ones of an ordering key too while the first is held.

    Callbacks begin in the order in which messages came.
    """
    kind: Kind[Message] = Kind(
        custody=SideBySide, consumer=lambda custody: WorkerChain(callback, custody)
    )
    return client._begin(subscription, kind, flow_control, options)  # noqa: SLF001 - of this package
