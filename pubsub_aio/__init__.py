"""Google Pub/Sub for asyncio.

Names are loaded when first used: importing this package costs nothing, so that the emulator and
the command line start in a blink.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pubsub_aio.admin import (
        AdminClient,
    )
    from pubsub_aio.config import (
        Batching,
        FlowControl,
        QueueLimit,
        RetryPolicy,
        Setting,
        ShutdownPolicy,
        StreamPolicy,
    )
    from pubsub_aio.deduplicator import (
        Deduplicator,
    )
    from pubsub_aio.errors import (
        AlreadyExistsError,
        AlreadySettledError,
        Check,
        ClosedError,
        ConfigError,
        DataDirectoryError,
        DrainTimeoutError,
        ForkedError,
        InvalidAckIdError,
        InvalidRequestError,
        KeyPausedError,
        LeaseExpiredError,
        MissingExtraError,
        NoResponseFromTopicError,
        NotFoundError,
        PermissionDeniedError,
        PublisherStoppedError,
        PublishTimeoutError,
        PubSubError,
        QueueFullError,
        ReconnectError,
        SeedError,
        SeedMistake,
        ServiceError,
        SettleError,
        SparkGoneError,
        StartupError,
        StuckHandlerError,
        TakenBackError,
        UnavailableError,
        UnconfirmedError,
        UnsupportedError,
        WrongLoopError,
    )
    from pubsub_aio.message import (
        Confirmation,
        Message,
    )
    from pubsub_aio.publisher.client import (
        PublisherClient,
    )
    from pubsub_aio.publisher.flight import (
        Flight,
        PublishOptions,
    )
    from pubsub_aio.publisher.listening import (
        PublisherListener,
    )
    from pubsub_aio.publisher.options import (
        PublisherOptions,
    )
    from pubsub_aio.subscriber.arrow import (
        ArrowBatch,
    )
    from pubsub_aio.subscriber.batches import (
        Batch,
    )
    from pubsub_aio.subscriber.client import (
        SubscriberClient,
    )
    from pubsub_aio.subscriber.options import (
        SubscribeOptions,
    )
    from pubsub_aio.subscriber.schedulers import (
        Scheduler,
        ThreadScheduler,
    )
    from pubsub_aio.subscriber.subscription import (
        Subscription,
    )
    from pubsub_aio.subscriber.vitals import (
        Event,
        Health,
    )

__version__ = "0.1.0"

__all__ = [
    "AdminClient",
    "AlreadyExistsError",
    "AlreadySettledError",
    "ArrowBatch",
    "Batch",
    "Batching",
    "Check",
    "ClosedError",
    "ConfigError",
    "Confirmation",
    "DataDirectoryError",
    "Deduplicator",
    "DrainTimeoutError",
    "Event",
    "Flight",
    "FlowControl",
    "ForkedError",
    "Health",
    "InvalidAckIdError",
    "InvalidRequestError",
    "KeyPausedError",
    "LeaseExpiredError",
    "Message",
    "MissingExtraError",
    "NoResponseFromTopicError",
    "NotFoundError",
    "PermissionDeniedError",
    "PubSubError",
    "PublishOptions",
    "PublishTimeoutError",
    "PublisherClient",
    "PublisherListener",
    "PublisherOptions",
    "PublisherStoppedError",
    "QueueFullError",
    "QueueLimit",
    "ReconnectError",
    "RetryPolicy",
    "Scheduler",
    "SeedError",
    "SeedMistake",
    "ServiceError",
    "Setting",
    "SettleError",
    "ShutdownPolicy",
    "SparkGoneError",
    "StartupError",
    "StreamPolicy",
    "StuckHandlerError",
    "SubscribeOptions",
    "SubscriberClient",
    "Subscription",
    "TakenBackError",
    "ThreadScheduler",
    "UnavailableError",
    "UnconfirmedError",
    "UnsupportedError",
    "WrongLoopError",
    "__version__",
]

_HOMES = {
    "config": (
        "Batching",
        "FlowControl",
        "QueueLimit",
        "RetryPolicy",
        "Setting",
        "ShutdownPolicy",
        "StreamPolicy",
    ),
    "errors": (
        "AlreadyExistsError",
        "AlreadySettledError",
        "Check",
        "ClosedError",
        "ConfigError",
        "DataDirectoryError",
        "DrainTimeoutError",
        "ForkedError",
        "InvalidAckIdError",
        "InvalidRequestError",
        "KeyPausedError",
        "LeaseExpiredError",
        "MissingExtraError",
        "NoResponseFromTopicError",
        "NotFoundError",
        "PermissionDeniedError",
        "PubSubError",
        "PublishTimeoutError",
        "PublisherStoppedError",
        "QueueFullError",
        "ReconnectError",
        "SeedError",
        "SeedMistake",
        "ServiceError",
        "SettleError",
        "SparkGoneError",
        "StartupError",
        "StuckHandlerError",
        "TakenBackError",
        "UnavailableError",
        "UnconfirmedError",
        "UnsupportedError",
        "WrongLoopError",
    ),
    "message": (
        "Confirmation",
        "Message",
    ),
    "admin": ("AdminClient",),
    "deduplicator": ("Deduplicator",),
    "publisher.client": ("PublisherClient",),
    "publisher.flight": (
        "Flight",
        "PublishOptions",
    ),
    "publisher.listening": ("PublisherListener",),
    "publisher.options": ("PublisherOptions",),
    "subscriber.arrow": ("ArrowBatch",),
    "subscriber.batches": ("Batch",),
    "subscriber.client": ("SubscriberClient",),
    "subscriber.options": ("SubscribeOptions",),
    "subscriber.schedulers": (
        "Scheduler",
        "ThreadScheduler",
    ),
    "subscriber.subscription": ("Subscription",),
    "subscriber.vitals": (
        "Event",
        "Health",
    ),
}
_HOME_OF = {name: f"pubsub_aio.{home}" for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
