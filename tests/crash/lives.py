"""A query that is killed over and over, at every point where something could be lost or doubled."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from pubsub_aio.emulator import EmulatorThread
from tests.crash.mortal import DEATHS, DURABLE, FETCHED, READING, SEALED, kill_tree

ROOT = Path(__file__).parents[2]
TOPIC, SUBSCRIPTION = "orders", "lake"
WITHIN = 100.0
"""Seconds in which something must have happened."""
_LOOK_AGAIN = 0.0005
_PAUSE = threading.Event()


def until(condition: Callable[[], bool], what: str) -> None:
    """Return as soon as the condition holds."""
    late = time.monotonic() + WITHIN
    while not condition():
        if time.monotonic() > late:
            raise TimeoutError(f"not within {WITHIN:g} s: {what}")
        _PAUSE.wait(_LOOK_AGAIN)


@dataclass
class Crashes:
    """A subscription, a query that reads it, and the deaths of its processes."""

    folder: Path
    emulator: EmulatorThread
    share: int
    """Messages that are published for each life of the driver."""
    where: tuple[str, ...] = ()
    """Arguments of drivers: on which cluster they run."""
    chance: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311
    published: dict[str, str] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.emulator.create_subscription(SUBSCRIPTION, TOPIC, ack_deadline_seconds=10)
        (self.folder / DEATHS).mkdir(parents=True)

    # What the server does

    def publish(self, count: int = 0) -> None:
        """Publish some messages; some of them will come twice, and some acks are lost."""
        first, count = len(self.published), count or self.share

        def publish() -> None:
            server = self.emulator._emulator
            for number in range(first, first + count):
                text = f"order {number}"
                self.published[server.publish(TOPIC, text.encode())] = text

        self.emulator.call(publish)
        few = max(1, count // 20)
        self.emulator.faults.duplicate(SUBSCRIPTION, times=few)
        self.emulator.faults.lose_acks(SUBSCRIPTION, times=few)

    # Drivers

    def start(self, *more: str, **options: object) -> subprocess.Popen[bytes]:
        """A driver of the query."""
        options = {
            "subscription": SUBSCRIPTION,
            "project": self.emulator.project,
            "endpoint": f"http://{self.emulator.address}",
            "maxRowsPerTrigger": max(1, self.share // 4),
            **options,
        }
        given = [f"--option={name}={value}" for name, value in options.items()]
        line = [
            sys.executable,
            "-m",
            "tests.crash.driver",
            str(self.folder),
            *self.where,
            *more,
            *given,
        ]
        with (self.folder / "drivers.log").open("ab") as log:
            return subprocess.Popen(line, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)

    @contextmanager
    def life(self, *more: str, **options: object) -> Iterator[subprocess.Popen[bytes]]:
        """A driver that ends with this, however it comes."""
        self.publish()
        driver = self.start(*more, **options)
        try:
            yield driver
        finally:
            kill(driver)

    def batches(self) -> int:
        """How many batches Spark has finished."""
        return last_number(self.folder / "checkpoint" / "commits")

    def a_batch_more(self, driver: subprocess.Popen[bytes]) -> None:
        """Wait for a batch to be finished."""
        before = self.batches()
        until(lambda: self.batches() > before or driver.poll() is not None, "a batch")
        assert driver.poll() is None, "the driver has ended"

    # Deaths

    def driver_at_any_time(self) -> None:
        """The driver, at no particular moment."""
        with self.life() as driver:
            self.a_batch_more(driver)
            _PAUSE.wait(self.chance.random() * 0.3)
            self.kills["the driver, at any time"] += kill(driver)

    def _driver_at(self, death: str, told: str) -> None:
        """The driver, as it comes to a point."""
        (self.folder / DEATHS / death).touch()
        with self.life() as driver:
            until(lambda: driver.poll() is not None, told)
            assert self.taken(death)
            self.kills[told] += 1

    def _task_at(self, death: str, told: str, *more: str, **options: object) -> None:
        """What runs a task, as it comes to a point; the driver goes on, and is killed then."""
        with self.life(*more, **options) as driver:
            self.a_batch_more(driver)
            (self.folder / DEATHS / death).touch()
            self.publish()
            until(lambda: self.taken(death) or driver.poll() is not None, told)
            assert driver.poll() is None, "the driver has ended"
            self.kills[told] += 1
            self.publish()
            self.a_batch_more(driver)
            self.kills["the driver, at any time"] += kill(driver)

    def taken(self, death: str) -> bool:
        """Whether somebody has died as asked."""
        taken = (self.folder / DEATHS / death).with_suffix(".taken")
        return taken.exists() and not taken.with_suffix("").exists()

    def driver_between_sink_and_commit(self) -> None:
        """The driver, when the sink has a batch and Spark's commit log has not."""
        sink, commits = self.folder / "lake" / "_spark_metadata", self.folder / "checkpoint/commits"
        while True:
            with self.life() as driver:
                self.a_batch_more(driver)
                self.publish()
                until(lambda: last_number(sink) > last_number(commits), "a batch in the sink")
                kill(driver)
            if last_number(sink) > last_number(commits):
                self.kills["the driver, between sink and commit log"] += 1
                return

    def two_drivers(self) -> None:
        """Two drivers at once; the one that goes on is killed as well."""
        with self.life() as first:
            self.a_batch_more(first)
            second = self.start()
            try:
                while first.poll() is None and second.poll() is None:
                    self.publish(max(1, self.share // 50))
                    self._either_goes_on(first, second)
                self.kills["one of two drivers at once"] += kill(first) + kill(second)
            finally:
                kill(second)

    def _either_goes_on(self, *drivers: subprocess.Popen[bytes]) -> None:
        before = self.batches()
        until(
            lambda: self.batches() > before or any(each.poll() is not None for each in drivers),
            "one of two drivers to go on",
        )

    def driver_when_durable(self) -> None:
        """The driver, when a segment is durable and its messages are not acked."""
        self._driver_at(DURABLE, "the driver, segment durable and not acked")

    def driver_when_sealed(self) -> None:
        """The driver, when a batch is in the log and Spark's offset log has it not."""
        self._driver_at(SEALED, "the driver, sealed and not in the offset log")

    def fetch_task_when_durable(self) -> None:
        """A task that fetches, when a segment is durable and its messages are not acked."""
        options = {"numFetchPartitions": 1, "maxFetchPeriod": "5s"}
        self._task_at(FETCHED, "a fetch task, segment durable and not acked", **options)

    def executor_while_reading(self) -> None:
        """An executor, which is a process of its own, in the middle of a read."""
        cluster = () if self.where else ("--master", "local-cluster[2,1,512]")
        self._task_at(READING, "an executor, in the middle of a read", *cluster)

    @property
    def deaths(self) -> list[Callable[[], None]]:
        """All of them; each kills once or more."""
        return [
            self.driver_at_any_time,
            self.driver_when_durable,
            self.driver_when_sealed,
            self.fetch_task_when_durable,
            self.driver_between_sink_and_commit,
            self.executor_while_reading,
            self.two_drivers,
        ]

    # The end

    def drain(self) -> list[tuple[str, str, int]]:
        """Let the query run until nothing is left; returns what is in the files."""
        while True:
            driver = self.start("--until-empty", availableNowIdle="12s", maxRowsPerTrigger=50_000)
            if driver.wait(WITHIN):
                raise RuntimeError((self.folder / "drivers.log").read_text()[-5_000:])
            if not self.emulator.backlog(SUBSCRIPTION):
                found: list[tuple[str, str, int]] = json.loads(
                    (self.folder / "found.json").read_text()
                )
                return found

    @property
    def duplicates(self) -> int:
        """How many messages came again and were dropped."""
        offsets = sorted((self.folder / "checkpoint" / "offsets").glob("[0-9]*"), key=number_of)
        told = json.loads(offsets[-1].read_text().splitlines()[-1])
        return int(told["duplicatesDropped"])


def kill(driver: subprocess.Popen[bytes]) -> int:
    """Kill a driver with all that it started; returns 1, or 0 if it had ended."""
    running = driver.poll() is None
    if running:
        kill_tree(psutil.Process(driver.pid))
    driver.wait(WITHIN)
    return int(running)


def number_of(file: Path) -> int:
    """The number in a file's name, `7` or `9.compact`; -1 if there is none."""
    name = file.name.partition(".")[0]
    return int(name) if name.isdecimal() else -1


def last_number(folder: Path) -> int:
    """The last number in a folder of Spark's; -1 if there is none."""
    if not folder.is_dir():
        return -1
    return max((number_of(file) for file in folder.iterdir()), default=-1)


def compare(published: dict[str, str], found: list[tuple[str, str, int]]) -> list[str]:
    """What is wrong, message by message; nothing if each is there once."""
    counts = Counter(message_id for message_id, _, _ in found)
    wrong = [f"lost: {message_id}" for message_id in published.keys() - counts.keys()]
    wrong += [f"{count} times: {message_id}" for message_id, count in counts.items() if count > 1]
    wrong += [f"never published: {message_id}" for message_id in counts.keys() - published.keys()]
    wrong += [
        f"with other data: {message_id}"
        for message_id, data, _ in found
        if published.get(message_id, data) != data
    ]
    sequences = Counter(sequence for _, _, sequence in found)
    wrong += [f"sequence {number} twice" for number, count in sequences.items() if count > 1]
    return sorted(wrong)
