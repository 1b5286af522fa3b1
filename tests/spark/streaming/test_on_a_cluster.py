"""The source on a standalone cluster of two workers, and on local-cluster: an executor dies."""

from __future__ import annotations

from pathlib import Path

from pubsub_aio.emulator import EmulatorThread
from tests.crash.lives import ROOT, Crashes, compare
from tests.spark.streaming.cluster import Cluster, standalone_cluster


def arguments(cluster: Cluster) -> tuple[str, ...]:
    """What a driver is told, so that it runs there."""
    settings = {**cluster.settings, "spark.executorEnv.PYTHONPATH": str(ROOT)}
    told = (f"--setting={name}={value}" for name, value in settings.items())
    return ("--master", cluster.url, *told)


KILLED = "an executor, in the middle of a read"


def test_each_message_is_there_once_though_an_executor_is_killed_in_a_read(tmp_path: Path) -> None:
    with standalone_cluster(tmp_path / "cluster") as cluster, EmulatorThread() as emulator:
        folder = tmp_path / "query"
        crashes = Crashes(folder, emulator, share=500, where=arguments(cluster))
        crashes.executor_while_reading()
        crashes.fetch_task_when_durable()
        found = crashes.drain()
        logs = (cluster.folder / "work").rglob("stderr")
        told = [log.read_text().count("wal is a folder, and the master is spark:") for log in logs]

    assert compare(crashes.published, found) == []
    assert crashes.kills[KILLED] == 1
    assert crashes.kills["a fetch task, segment durable and not acked"] == 1
    assert sum(told) > 0


def test_each_message_is_there_once_with_executors_of_a_local_cluster(tmp_path: Path) -> None:
    with EmulatorThread() as emulator:
        crashes = Crashes(tmp_path, emulator, share=500)
        crashes.executor_while_reading()
        found = crashes.drain()

    assert compare(crashes.published, found) == []
    assert crashes.kills[KILLED] == 1
