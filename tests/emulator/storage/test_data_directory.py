"""A directory that cannot be used is left as it is, and the error says why."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pubsub_aio import DataDirectoryError
from pubsub_aio._wire import schema
from pubsub_aio.emulator import Emulator, EmulatorThread, SystemClock
from pubsub_aio.emulator.broker import Broker
from pubsub_aio.emulator.storage.store import Store

MARK = "pubsub-aio-emulator.json"
TOPIC, WORKER = "projects/p/topics/orders", "projects/p/subscriptions/worker"


def files_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """What is in a folder, and when it was written."""
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir()}


def logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("log-*.bin"))


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A directory with messages in several files."""
    asyncio.run(use(tmp_path / "used"))
    assert len(logs(tmp_path / "used")) > 3
    return tmp_path / "used"


async def use(folder: Path) -> None:
    broker, clock = Broker(), SystemClock()
    store = Store(folder, broker, clock, segment=3_000)
    await store.open()
    broker.create_topic(schema.Topic(name=TOPIC), now=clock.now())
    subscription = schema.Subscription(name=WORKER, topic=TOPIC)
    broker.create_subscription(subscription, now=clock.now())
    body = schema.PubsubMessage(data=b"tea" * 100).SerializeToString()
    for _ in range(60):
        broker.publish(TOPIC, [body], now=clock.now())
        await store.saved()
    await store.close()


def refused(folder: Path, *, naming: str) -> None:
    """Expect that an emulator does not start there, and touches nothing."""
    before = files_of(folder)
    with pytest.raises(DataDirectoryError, match=naming) as caught, EmulatorThread(data_dir=folder):
        pass
    assert str(folder) in str(caught.value)
    assert files_of(folder) == before


async def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    async with Emulator(data_dir=tmp_path) as emulator:
        emulator.create_topic("orders")
        with pytest.raises(DataDirectoryError, match="in use by another emulator"):
            async with Emulator(data_dir=tmp_path):
                pass
        emulator.create_topic("refunds")
    async with Emulator(data_dir=tmp_path) as emulator:
        for topic in ("orders", "refunds"):
            with pytest.raises(ValueError, match="ALREADY_EXISTS"):
                emulator.create_topic(topic)


def test_a_directory_in_use_by_another_process_is_refused(tmp_path: Path) -> None:
    with EmulatorThread(data_dir=tmp_path):
        ran = subprocess.run(
            [sys.executable, "-m", "pubsub_aio", "emulator", "--port=0", "--data-dir", tmp_path],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert ran.returncode == 1
    assert ran.stderr == (
        f"pubsub-aio: {tmp_path} is in use by another emulator: stop that one, or choose another "
        "directory\n"
    )


def test_a_directory_that_was_left_can_be_used_at_once(used: Path) -> None:
    with EmulatorThread(data_dir=used) as emulator:
        assert emulator.backlog(WORKER) == 60


def test_a_directory_of_another_version_is_refused(used: Path) -> None:
    mark = json.loads((used / MARK).read_text())
    (used / MARK).write_text(json.dumps({**mark, "format": mark["format"] + 1}))

    refused(used, naming="written by another version")


@pytest.mark.parametrize("text", ["", "{}", "[]", "\x00", '"format"'])
def test_a_mark_that_cannot_be_read_is_damage(used: Path, text: str) -> None:
    (used / MARK).write_text(text)

    refused(used, naming=f"{MARK} is damaged")


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("all of it")

    refused(tmp_path, naming="'thesis.txt'")


def test_a_log_without_its_mark_is_refused(used: Path) -> None:
    (used / MARK).unlink()

    refused(used, naming="not an emulator's data directory")


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("all of it")

    with (
        pytest.raises(DataDirectoryError, match="is not a directory"),
        EmulatorThread(data_dir=file),
    ):
        pass
    assert file.read_text() == "all of it"


def test_a_directory_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"{MARK}.new").mkdir()  # in the way of a file

    with pytest.raises(DataDirectoryError, match="irectory"), EmulatorThread(data_dir=tmp_path):
        pass


def test_a_directory_in_which_no_log_can_be_made_is_refused(tmp_path: Path) -> None:
    with EmulatorThread(data_dir=tmp_path):
        pass
    following = int(logs(tmp_path)[-1].stem.removeprefix("log-")) + 1
    (tmp_path / f"log-{following:010}.bin.new").mkdir()

    with (
        pytest.raises(DataDirectoryError, match="cannot be written to"),
        EmulatorThread(data_dir=tmp_path),
    ):
        pass


def test_a_missing_directory_is_made(tmp_path: Path) -> None:
    with EmulatorThread(data_dir=tmp_path / "a" / "b") as emulator:
        emulator.create_topic("orders")

    assert logs(tmp_path / "a" / "b")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [Path.unlink, cut, flip], ids=["missing", "shorter", "changed"])
def test_an_older_file_that_is_not_what_it_was_is_damage(
    used: Path, harm: Callable[[Path], object]
) -> None:
    older = logs(used)[-2]
    harm(older)

    refused(used, naming=f"{older.name} is damaged")


def test_a_change_in_the_latest_file_is_damage(used: Path) -> None:
    flip(logs(used)[-1])

    refused(used, naming="is damaged: byte")


def test_a_directory_without_its_log_is_damage(used: Path) -> None:
    for path in logs(used):
        path.unlink()

    refused(used, naming="is damaged: it is missing")


def test_a_directory_without_its_latest_file_is_damage(used: Path) -> None:
    logs(used)[-1].unlink()

    refused(used, naming="is damaged: it is missing")


def test_a_bit_that_flipped_at_the_end_is_damage_if_it_was_ended(used: Path) -> None:
    latest = logs(used)[-1]
    data = bytearray(latest.read_bytes())
    data[-1] ^= 1
    latest.write_bytes(data)

    refused(used, naming=f"{latest.name} is damaged: byte")


def test_a_start_that_was_killed_before_it_began_a_log_is_no_damage(used: Path) -> None:
    for path in logs(used):
        path.unlink()
    mark = json.loads((used / MARK).read_text())
    (used / MARK).write_text(json.dumps({**mark, "latest": 0, "ended_at": None}))
    (used / "lost+found").mkdir()

    with EmulatorThread(data_dir=used) as emulator:
        emulator.create_topic("orders")


def test_an_empty_latest_file_is_damage(used: Path) -> None:
    logs(used)[-1].write_bytes(b"")

    refused(used, naming="its beginning is missing")


def test_a_file_under_the_name_of_another_is_damage(used: Path) -> None:
    latest = logs(used)[-1]
    latest.rename(latest.with_name("log-0000000099.bin"))

    refused(used, naming="log-0000000099.bin is damaged")


def test_what_was_being_written_when_it_was_killed_is_no_damage(used: Path) -> None:
    latest = logs(used)[-1]
    latest.write_bytes(latest.read_bytes() + b"\xabPSL\x01\x02")
    mark = json.loads((used / MARK).read_text())
    (used / MARK).write_text(json.dumps({**mark, "ended_at": None}))
    latest.with_name("log-0000000099.bin.new").write_bytes(b"begun")

    with EmulatorThread(data_dir=used) as emulator:
        assert emulator.backlog(WORKER) == 60


def test_nothing_can_be_created_before_the_start(tmp_path: Path) -> None:
    emulator = Emulator(data_dir=tmp_path)
    emulator.create_topic("orders")

    with pytest.raises(RuntimeError, match="before the emulator starts"):
        asyncio.run(emulator.__aenter__())


def test_an_emulator_starts_once(tmp_path: Path) -> None:
    emulator = EmulatorThread(data_dir=tmp_path)
    with emulator:
        pass

    with pytest.raises(RuntimeError, match="make another"), emulator:
        pass
