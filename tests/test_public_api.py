"""The names that users import. A change here is a change for them."""

from __future__ import annotations

import subprocess
import sys

import pubsub_aio
from pubsub_aio import emulator, jobs, testing


def test_the_public_names_are_these() -> None:
    assert pubsub_aio.__all__ == [
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
    assert testing.__all__ == [
        "DeadlockError",
        "LoopClock",
        "MemoryEmulator",
        "MemoryTransport",
        "RunScenario",
        "VirtualTimeLoop",
        "run",
        "run_scenario",
    ]
    assert jobs.__all__ == [
        "SAME_JOB",
        "DeadLetter",
        "DeadLetterSubscription",
        "Janitor",
        "Job",
        "JobPolicy",
        "JobQueue",
        "JobWorker",
        "Place",
        "QueueNames",
        "RejectJobError",
        "Report",
        "Returns",
        "Target",
        "Tick",
        "Timetable",
        "WorkOptions",
        "dead_letter_subscriptions",
        "find_target",
        "job_attributes",
        "peek",
        "purge",
        "redrive",
        "retry_on_server",
    ]
    assert emulator.__all__ == [
        "Ack",
        "Clock",
        "Delivery",
        "Emulator",
        "EmulatorThread",
        "Export",
        "Faults",
        "Iam",
        "Modack",
        "OpenStream",
        "PublishedMessage",
        "Quotas",
        "Seeded",
        "Stall",
        "SystemClock",
        "VirtualClock",
        "export_seed",
    ]


def test_every_public_name_can_be_imported() -> None:
    assert all(getattr(pubsub_aio, name) for name in pubsub_aio.__all__)


def test_without_any_extra_every_public_name_is_there() -> None:
    """So `help(pubsub_aio)` and `from pubsub_aio import *` work with the base install."""
    packages = "aiohttp fastavro gcloud pandas ptars pyarrow pyspark rich"
    code = f"""
import pydoc, sys
sys.modules |= dict.fromkeys({packages!r}.split())
import pubsub_aio
from pubsub_aio import *
print(ArrowBatch.__name__)
print(pydoc.render_doc(pubsub_aio))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("ArrowBatch\nPython Library Documentation: package pubsub_aio")


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = modules_after("import pubsub_aio, pubsub_aio.pytest_plugin")

    assert not loaded & {"grpc", "google.protobuf", "aiohttp", "google.cloud.pubsub_v1"}


def test_the_subscriber_does_without_googles_client_and_without_extras() -> None:
    loaded = modules_after("from pubsub_aio import SubscriberClient; SubscriberClient('p')")

    assert not loaded & {"google.pubsub_v1", "proto", "aiohttp", "pyarrow", "google.auth"}
    assert not loaded & {"opentelemetry", "pubsub_aio.tracing"}


def test_the_publisher_does_without_googles_client_and_without_extras() -> None:
    loaded = modules_after("from pubsub_aio import PublisherClient; PublisherClient('p')")

    assert not loaded & {"google.pubsub_v1", "proto", "aiohttp", "pyarrow", "google.auth"}


def test_the_emulator_does_without_googles_client() -> None:
    loaded = modules_after("import pubsub_aio.emulator")

    assert not loaded & {"google.pubsub_v1", "google.cloud.pubsub_v1", "proto", "aiohttp"}


def modules_after(statement: str) -> set[str]:
    """What is loaded in a fresh process after it."""
    code = f"{statement}; import sys; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())
