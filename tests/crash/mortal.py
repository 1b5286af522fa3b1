"""The source as it is, in processes that die where a test wants them to.

A test asks for a death by a file in the folder `deaths` beside the log. The first process that
comes to that point takes the file away, and kills with SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from pubsub_aio.spark import PubSubDataSource
from pubsub_aio.spark.streaming import reading
from pubsub_aio.spark.streaming.layout import INCOMING, LOG
from pubsub_aio.spark.streaming.options import SourceOptions
from pubsub_aio.spark.streaming.stores import Buffer, LocalStore

DEATHS = "deaths"
DURABLE, FETCHED, SEALED, READING = "durable", "fetched", "sealed", "reading"
"""The driver after a segment is durable, a fetch task at the same point, the driver after a batch
is sealed, an executor when Spark has half of a task's rows."""

_DRIVER = "tests.crash.driver"
_EXECUTOR = "CoarseGrainedExecutorBackend"


class MortalDataSource(PubSubDataSource):
    """The source; whoever unpickles it has this module, and so may die."""

    @classmethod
    def name(cls) -> str:
        return "mortal"


def beside_the_driver() -> bool:
    """Whether this is the process that speaks for the query, and no task."""
    name = "pyspark.sql.streaming.python_streaming_source_runner"
    return name in sys.modules or name in sys.orig_argv


def is_asked_for(folder: Path, death: str) -> bool:
    wanted = folder.parent / DEATHS / death
    try:
        wanted.rename(wanted.with_suffix(".taken"))
    except FileNotFoundError:
        return False
    return True


def kill_driver() -> None:
    """Kill the driver, its JVM and all that they started, this process too."""
    for parent in psutil.Process().parents():
        if _DRIVER in " ".join(parent.cmdline()):
            kill_tree(parent)
    os.kill(os.getpid(), signal.SIGKILL)


def kill_executor() -> None:
    """Kill the executor that this task belongs to, if it is a process of its own; then this."""
    for parent in psutil.Process().parents():
        if _EXECUTOR in " ".join(parent.cmdline()):
            parent.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def kill_tree(root: psutil.Process) -> None:
    """Kill a process and all below it; JVMs first, so that none sees another die and reacts."""
    with contextlib.suppress(psutil.NoSuchProcess):
        processes = [root, *root.children(recursive=True)]
        names = {process.info["pid"]: process.info["name"] for process in _listed()}
        processes.sort(key=lambda each: names.get(each.pid) != "java")
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.pid != os.getpid():
                    process.kill()


def _listed() -> Iterator[psutil.Process]:
    return psutil.process_iter(["pid", "name"])


_put, _read = LocalStore.put_if_absent, reading.read


def put_if_absent(self: LocalStore, name: str, parts: Sequence[Buffer]) -> bool:
    done = _put(self, name, parts)
    folder = Path(self.location)
    if name.startswith(INCOMING):
        if beside_the_driver() and is_asked_for(folder, DURABLE):
            kill_driver()
        if not beside_the_driver() and is_asked_for(folder, FETCHED):
            os.kill(os.getpid(), signal.SIGKILL)
    if name.startswith(LOG) and is_asked_for(folder, SEALED):
        kill_driver()
    return done


def read(partition: Any, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    for rows in _read(partition, options):
        if is_asked_for(Path(options.wal_location), READING):
            yield rows.slice(0, rows.num_rows // 2)  # Spark has some of them
            kill_executor()
        yield rows


LocalStore.put_if_absent = put_if_absent  # type: ignore[method-assign]
reading.read = read
