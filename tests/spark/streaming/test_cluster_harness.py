"""The cluster of the tests is a real one: it has executors, which can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.spark.streaming.cluster import Cluster, Executor, standalone_cluster, wait_for
from tests.subscriber_wire.conftest import Program

DRIVER = """
import json, os, sys, threading
from pathlib import Path
import psutil, pyarrow as pa
from pubsub_aio.spark import session

held = Path({held!r})
spark = session(master={url!r}, config={settings!r})

def place(batches):
    rows = sum(batch.num_rows for batch in batches)
    while held.exists():
        threading.Event().wait(0.01)
    executor = psutil.Process(os.getppid()).ppid()
    found = {{"rows": rows, "pid": os.getpid(), "executor": executor, "python": sys.executable}}
    yield pa.RecordBatch.from_pylist([found])

shape = "rows long, pid long, executor long, python string"
places = spark.range(100, numPartitions=2).mapInArrow(place, shape).collect()
print(json.dumps([row.asDict() for row in places]), flush=True)
threading.Event().wait()
"""


@contextmanager
def driver(cluster: Cluster, held: Path) -> Iterator[Program]:
    """A program that asks two partitions where they are, once the file `held` is gone."""
    source = DRIVER.format(url=cluster.url, settings=dict(cluster.settings), held=str(held))
    with Program(source, address="none", project="none", warnings="default") as program:
        yield program


def places(program: Program) -> list[dict[str, Any]]:
    wait_for(lambda: program.lines, "the job has ended")
    told: list[dict[str, Any]] = json.loads(program.lines[0])
    return told


def both(cluster: Cluster, *, without: Executor | None = None) -> list[Executor]:
    """Wait until two executors run a task each, and give them."""

    def look() -> list[Executor]:
        found = cluster.executors()
        busy = all(executor.python_workers() for executor in found)
        return found if len(found) == 2 and busy and without not in found else []

    return wait_for(look, "two executors run a task each")


def test_python_functions_run_on_two_executors_with_this_interpreter(tmp_path: Path) -> None:
    with standalone_cluster(tmp_path) as cluster, driver(cluster, tmp_path / "none") as program:
        found = places(program)
        executors = cluster.executors()

        assert len(executors) == len(cluster.workers) == 2
        assert [place["rows"] for place in found] == [50, 50]
        assert {place["python"] for place in found} == {sys.executable}
        assert {place["executor"]: [place["pid"]] for place in found} == {
            executor.pid: executor.python_workers() for executor in executors
        }
        assert {executor.worker for executor in executors} == set(cluster.workers)


def test_an_executor_that_is_killed_is_replaced_and_its_task_runs_again(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    with standalone_cluster(tmp_path) as cluster, driver(cluster, held) as program:
        killed, other = both(cluster)
        killed.kill()
        left, new = both(cluster, without=killed)
        held.unlink()

        assert (left, new.worker) == (other, killed.worker)
        assert {place["executor"] for place in places(program)} == {left.pid, new.pid}


def test_a_job_goes_on_without_a_worker_that_is_killed(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    with standalone_cluster(tmp_path) as cluster, driver(cluster, held) as program:
        both(cluster)
        os.kill(cluster.workers[0], signal.SIGKILL)
        wait_for(lambda: cluster.alive_workers() == 1, "the master misses the worker")
        wait_for(lambda: len(cluster.executors()) == 1, "its executor has ended")
        held.unlink()
        (left,) = cluster.executors()

        assert left.worker == cluster.workers[1]
        assert [place["executor"] for place in places(program)] == [left.pid, left.pid]


def test_nothing_is_left_of_a_cluster_whose_test_fails(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    started: list[int] = []

    def fail() -> None:
        with standalone_cluster(tmp_path) as cluster, driver(cluster, held):
            started.extend((cluster.master, *cluster.workers))
            for executor in both(cluster):
                started.extend((executor.pid, *executor.python_workers()))
                os.kill(executor.pid, signal.SIGSTOP)  # it does not see that all others end
            os.kill(cluster.workers[0], signal.SIGKILL)
            raise ValueError("it fails")

    with pytest.raises(ValueError, match="it fails"):
        fail()

    assert len(started) == 7
    assert alive(started) == []


KILLED = """
import sys, threading
from pathlib import Path
from tests.spark.streaming.cluster import standalone_cluster

with standalone_cluster(Path(sys.argv[1]), workers=1) as cluster:
    print(cluster.master, *cluster.workers, flush=True)
    threading.Event().wait()
"""


def test_nothing_is_left_of_a_cluster_whose_process_is_killed(tmp_path: Path) -> None:
    line = [sys.executable, "-c", KILLED, str(tmp_path)]
    env = os.environ | {"TMPDIR": str(tmp_path)}  # a launcher of Java stays there
    with subprocess.Popen(line, env=env, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout
        started = [int(pid) for pid in program.stdout.readline().split()]
        were = alive(started)
        program.kill()

    assert were == started
    assert len(started) == 2
    wait_for(lambda: not alive(started), "the master and the worker have ended")


def alive(pids: list[int]) -> list[int]:
    """Those that run; one that has ended may wait to be reaped by whoever inherited it."""
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found
