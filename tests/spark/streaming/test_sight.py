"""A task that does not see the log of its driver acks nothing, and says so."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from pubsub_aio.emulator import EmulatorThread
from pubsub_aio.errors import DataLossError, WalError
from pubsub_aio.spark.streaming.fetching import fetch
from pubsub_aio.spark.streaming.options import SourceOptions, source_options
from pubsub_aio.spark.streaming.pieces import Piece
from pubsub_aio.spark.streaming.reading import PiecesPartition, read
from pubsub_aio.spark.streaming.segments import Chunk
from pubsub_aio.spark.streaming.stores import LocalStore
from tests.spark.streaming.logs import opened
from tests.spark.wire import TOPIC, WORKER

ELSEWHERE = (
    rf"^walLocation: .*/wal is not on {socket.gethostname()}, where this task runs, as it is on "
    "driver-1, where the driver does: give a place that all see, such as gs://BUCKET/FOLDER$"
)


def options_of(folder: Path, emulator: EmulatorThread) -> SourceOptions:
    return source_options(
        {
            "subscription": WORKER,
            "project": emulator.project,
            "endpoint": f"http://{emulator.address}",
            "walLocation": str(folder / "wal"),
            "maxFetchPeriod": "1s",
        }
    )


def test_a_task_that_sees_no_log_or_another_one_fetches_nothing(tmp_path: Path) -> None:
    with EmulatorThread() as emulator:
        emulator.create_subscription(WORKER, TOPIC)
        emulator.publish(TOPIC, b"tea")
        options = options_of(tmp_path, emulator)
        with pytest.raises(WalError, match=ELSEWHERE):
            fetch(options, "the driver's", 100, driver="driver-1")
        assert not (tmp_path / "wal").exists()
        opened(LocalStore(tmp_path / "wal"))
        with pytest.raises(WalError, match=ELSEWHERE):
            fetch(options, "the driver's", 100, driver="driver-1")

        assert emulator.backlog(WORKER) == 1


def test_a_task_that_sees_the_log_fetches(tmp_path: Path) -> None:
    with EmulatorThread() as emulator:
        emulator.create_subscription(WORKER, TOPIC)
        emulator.publish(TOPIC, b"tea")
        wal = opened(LocalStore(tmp_path / "wal"))

        assert fetch(options_of(tmp_path, emulator), wal.id, 100, driver="driver-1") == 1
        assert emulator.backlog(WORKER) == 0
        wal.look()
        assert wal.waiting.rows == 1


def test_a_log_that_cannot_be_read_is_not_taken_for_another(tmp_path: Path) -> None:
    with EmulatorThread() as emulator:
        opened(LocalStore(tmp_path / "wal"))
        (tmp_path / "wal" / "wal.json").write_bytes(b"damaged")

        with pytest.raises(WalError, match=r"wal.json cannot be read: its checksum is another"):
            fetch(options_of(tmp_path, emulator), "the driver's", 100, driver="driver-1")


def test_rows_that_are_on_another_machine_are_not_taken_for_lost(tmp_path: Path) -> None:
    piece = Piece("incoming/1.segment", Chunk(0, 1, 1, ""), 0, 1, (), 0)
    partition = PiecesPartition(0, [piece], "wal")
    partition.host = "driver-1"
    with EmulatorThread() as emulator:
        options = options_of(tmp_path, emulator)

        with pytest.raises(WalError, match=ELSEWHERE):
            next(read(partition, options))


@pytest.mark.parametrize("host", ["driver-1", socket.gethostname()])
def test_rows_that_the_driver_does_not_see_either_are_lost(tmp_path: Path, host: str) -> None:
    wal = opened(LocalStore(tmp_path / "wal"))
    piece = Piece("incoming/1.segment", Chunk(0, 1, 1, ""), 0, 1, (), 0)
    partition = PiecesPartition(0, [piece], wal.id)
    partition.host = host
    with EmulatorThread() as emulator:
        options = options_of(tmp_path, emulator)

        with pytest.raises(DataLossError, match=r"1.segment is missing. .* failOnDataLoss"):
            next(read(partition, options))
        assert [*read(partition, replace(options, fail_on_data_loss=False))] == []
