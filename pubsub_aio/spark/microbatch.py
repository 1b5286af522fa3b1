"""Messages in micro-batches, each a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

from pubsub_aio.config import MIB, FlowControl, ShutdownPolicy, check
from pubsub_aio.errors import ConfigError
from pubsub_aio.spark.batch import BatchReport
from pubsub_aio.spark.dead_letters import DeadLetters
from pubsub_aio.spark.handlers import Handle, SparkHandler
from pubsub_aio.spark.jobs import Jobs
from pubsub_aio.spark.memory import check_memory
from pubsub_aio.spark.runner import BatchPolicy, BatchRunner
from pubsub_aio.subscriber.batches import check_batch
from pubsub_aio.subscriber.client import SubscriberClient
from pubsub_aio.subscriber.options import SubscribeOptions
from pubsub_aio.subscriber.schedulers import check_callback, is_async
from pubsub_aio.subscriber.subscription import Subscription

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OnBatch = Callable[[BatchReport], object]


def microbatches(
    spark: SparkSession,
    client: SubscriberClient,
    subscription: str,
    handle: Handle,
    *,
    max_messages: int = 200_000,
    max_bytes: int = 64 * MIB,
    max_latency: float = 1.0,
    max_in_flight: int = 1,
    max_batch_duration: float = 600.0,
    bisect: bool = False,
    max_poisonous: int = 10,
    dead_letter_topic: str | None = None,
    on_batch: OnBatch | None = None,
    flow_control: FlowControl | None = None,
    **options: Unpack[SubscribeOptions],
) -> Subscription:
    """Receive messages as DataFrames, each handed to a function: acked when it has returned.

    If it raises, the messages come again, a second later at first, then later and later. They are
    held for as long as it takes, up to `max_batch_duration`. What is acked was handled at least
    once: make the sink idempotent by `message_id`.

    If Spark itself is gone, the subscription ends with a `SparkGoneError`.

    Args:
        spark: Where the DataFrames are made.
        client: Receives the messages.
        subscription: Its name.
        handle: Called with each DataFrame and its `MicroBatch`. A plain function runs in a thread;
            an async one in the loop, and must not block it.
        max_messages: How many messages make a batch.
        max_bytes: How many bytes make one, about. Each batch in flight takes about five times as
            much of the driver's memory; with Spark Connect it can be 64 MiB at most.
        max_latency: Seconds that a message waits for others. While `max_in_flight` batches are
            being handled it waits longer, and the next batch becomes larger.
        max_in_flight: How many batches are handled at once. More than one only helps where Spark
            has cores to spare, and only goes with a sink that takes several writers at once. Files
            in one folder do not: rows would be lost, without an error. Where order matters there
            is one at a time.
        max_batch_duration: Seconds after which a batch has failed: its messages come again, and
            its jobs in Spark are cancelled, if `handle` is a plain function. If it has not ended
            after as long again, the subscription ends with a `StuckHandlerError`.
        bisect: When a batch fails, try its halves, and theirs, to find the messages that make
            `handle` fail. They alone come again, after a minute, or are dead-lettered; the others
            go through. If nothing goes through, the messages are not to blame: all come again.
        max_poisonous: How many such messages are looked for in a batch; what is left then comes
            again.
        dead_letter_topic: Where they are published instead. It must exist.
        on_batch: Is told what became of each batch, in the loop.
        flow_control: How much may be held; room for the batches in flight and one more unless told
            otherwise.
        **options: See `SubscribeOptions`. Unless told otherwise, a batch that has begun when the
            subscription is stopped may take all of its `max_batch_duration`.

    Returns:
        The live subscription, which `run_forever` takes.

    Raises:
        ConfigError: Settings that cannot be, or not together.
        SparkGoneError: The session was stopped, or its JVM has died.
    """
    _check_kinds(spark, client, flow_control, bisect=bisect, on_batch=on_batch)
    check_batch(max_messages, max_bytes, max_latency)
    check("max_in_flight", max_in_flight, 1, whole=True)
    check("max_batch_duration", max_batch_duration, 0, above=True)
    check("max_poisonous", max_poisonous, 1, whole=True)
    if dead_letter_topic is not None and not bisect:
        raise ConfigError("dead_letter_topic: only bisect=True finds the messages for it")
    if options.get("auto_ack"):
        raise ConfigError("auto_ack: leave it out, a batch is acked when handle has returned")
    Jobs(spark).check_alive()
    check_memory(spark, max_bytes=max_bytes, max_in_flight=max_in_flight)
    flow = flow_control or flow_for(max_messages, max_bytes, max_in_flight, max_batch_duration)
    _check_fits(flow, max_messages, max_bytes, max_batch_duration)
    policy = BatchPolicy(
        max_batch_duration=max_batch_duration,
        bisect=bisect,
        max_poisonous=max_poisonous,
        dead_letters=None if dead_letter_topic is None else DeadLetters(client, dead_letter_topic),
    )
    options.setdefault("max_overdue_callbacks", max_in_flight)
    options.setdefault("shutdown", ShutdownPolicy(timeout=max_batch_duration))
    handler = SparkHandler(spark, handle, max_in_flight=max_in_flight)
    runner = BatchRunner(handler, policy, on_batch=on_batch)
    live = client.subscribe_arrow(
        subscription,
        runner,
        max_messages=max_messages,
        max_bytes=max_bytes,
        max_latency=max_latency,
        max_concurrent=max_in_flight,
        flow_control=flow,
        **options,
    )
    runner.subscription = live.name
    runner.on_end = live.fail
    live.add_done_callback(lambda _: handler.close())
    return live


def flow_for(
    max_messages: int, max_bytes: int, max_in_flight: int, max_batch_duration: float
) -> FlowControl:
    """A flow control with room for the batches in flight, and one more that is gathered."""
    return FlowControl(
        max_messages=max_messages * max_in_flight,
        max_bytes=max_bytes * (max_in_flight + 1),
        resume_threshold=1.0,
        max_request_batch_size=max_messages,
        # A full batch may wait for two others before its turn.
        max_lease_duration=3 * max_batch_duration,
    )


def _check_kinds(
    spark: object, client: object, flow_control: object, *, bisect: object, on_batch: object
) -> None:
    """Refuse what is something else altogether."""
    for name, value, fits, what in (
        ("spark", spark, hasattr(spark, "createDataFrame"), "a SparkSession"),
        ("client", client, isinstance(client, SubscriberClient), "a SubscriberClient"),
        ("bisect", bisect, isinstance(bisect, bool), "True or False"),
        (
            "flow_control",
            flow_control,
            isinstance(flow_control, FlowControl | None),
            "a FlowControl",
        ),
    ):
        if not fits:
            raise ConfigError(f"{name} must be {what}, not {value!r}")
    if on_batch is not None:
        check_callback(on_batch, "a BatchReport", name="on_batch")
        if is_async(on_batch):
            raise ConfigError("on_batch must be a plain function: nobody waits for it")


def _check_fits(
    flow: FlowControl, max_messages: int, max_bytes: int, max_batch_duration: float
) -> None:
    """Refuse a flow control that no batch could keep to."""
    for name, batch, most, what in (
        (
            "max_messages",
            max_messages,
            flow.max_outstanding_messages,
            "messages at once (max_messages * resume_threshold + max_request_batch_size)",
        ),
        ("max_bytes", max_bytes, flow.max_bytes, "bytes at once"),
        ("max_batch_duration", max_batch_duration, flow.max_lease_duration, "seconds at most"),
    ):
        if batch > most:
            raise ConfigError(
                f"{name}: {batch:,} does not fit into the flow control, which allows {most:,} "
                f"{what}; lower it, or leave flow_control out"
            )
