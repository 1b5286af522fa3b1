"""Whether a task sees the log of its driver: on a cluster they may run on several machines."""

from __future__ import annotations

import functools
import logging
import socket

from pubsub_aio.errors import WalError
from pubsub_aio.spark.streaming.marks import identity_of
from pubsub_aio.spark.streaming.stores import LocalStore, Store

try:
    from pyspark import TaskContext
except ImportError as error:
    from pubsub_aio.errors import MissingExtraError

    raise MissingExtraError("The Structured Streaming source", "spark") from error

logger = logging.getLogger("pubsub_aio.spark")


def check_same_log(store: Store, wal: str, driver: str) -> None:
    """Make sure that a task sees what its driver does: what it keeps there must be found.

    Args:
        store: What the task sees.
        wal: The id of the log that the driver has.
        driver: The host where that runs.

    Raises:
        WalError: There is no log here, or another one.
    """
    try:
        there = identity_of(store)["wal"]
    except WalError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        there = None
    if there != wal:
        raise _not_here(store, driver)


def _not_here(store: Store, driver: str) -> WalError:
    """What is raised if the log of the driver cannot be seen."""
    return WalError(
        f"walLocation: {store.location} is not on {socket.gethostname()}, where this task runs, "
        f"as it is on {driver}, where the driver does: give a place that all see, such as "
        "gs://BUCKET/FOLDER"
    )


def warn_of_one_disk(store: Store) -> None:
    """Say so if the log is in a folder and the master is a cluster, whose machines may go."""
    task = TaskContext.get()
    master = task.getLocalProperty("spark.master") if task else None
    if isinstance(store, LocalStore) and master and not master.startswith("local"):
        _warn_once(store.location, master)


@functools.cache  # a worker has many tasks
def _warn_once(location: str, master: str) -> None:
    logger.warning(
        "walLocation: %s is a folder, and the master is %s: until the sink has them it is the only "
        "copy of messages that were acknowledged, and it goes with its disk: gs:// or s3:// do not",
        location,
        master,
    )
