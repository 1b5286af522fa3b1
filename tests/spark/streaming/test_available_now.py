"""A query with the trigger availableNow: it ends when it has all that was published before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.datasource", reason="the source needs PySpark 4.0")

from pubsub_aio.config import ShutdownPolicy
from pubsub_aio.emulator import EmulatorThread
from pubsub_aio.errors import WalError
from pubsub_aio.spark.streaming import intake, receiver
from pubsub_aio.spark.streaming.receiver import Receiver
from pubsub_aio.spark.streaming.stores import Buffer, LocalStore
from tests.spark.streaming.drivers import (
    Batch,
    Clock,
    Driver,
    Kept,
    beginning,
    options_of,
    publish,
)
from tests.spark.wire import WITHIN, WORKER

# All there is, and no more


@pytest.mark.parametrize("told", [True, False])
def test_all_there_is_comes_though_some_was_sealed_before(
    emulator: EmulatorThread, tmp_path: Path, told: bool
) -> None:
    limits: list[object] = []
    if told:
        kinds = pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.2 tells")
        limits = [kinds.ReadAllAvailable()]
    first = Driver(emulator, tmp_path)
    start = first.reader.initialOffset()
    publish(emulator, b"a")
    first.next(start)
    first.end()
    publish(emulator, b"b", b"c")

    second = Driver(emulator, tmp_path, availableNowIdle="1s")
    start = second.reader.initialOffset()
    end = second.reader.latestOffset(start if told else None, *limits)

    assert second.rows(start, end) == [b"a", b"b", b"c"]
    assert emulator.streams() == []
    second.end()


def test_a_query_that_has_all_receives_no_more(emulator: EmulatorThread, tmp_path: Path) -> None:
    """Spark asks again if another source of the query has not, or if there is state."""
    publish(emulator, b"a")
    driver = Driver(emulator, tmp_path, availableNowIdle="0.5s")
    driver.reader.prepareForTriggerAvailableNow()
    start = driver.reader.initialOffset()
    one = driver.reader.latestOffset(start)
    assert driver.rows(start, one) == [b"a"]
    assert driver.reader.latestOffset(one) == one
    publish(emulator, b"b")

    assert driver.reader.latestOffset(one) == one
    assert (emulator.streams(), emulator.backlog(WORKER)) == ([], 1)
    driver.end()


def test_nothing_is_left_in_the_log(emulator: EmulatorThread, tmp_path: Path) -> None:
    """Not even what was published since: whoever begins anew with another log would not have it."""
    driver = Driver(emulator, tmp_path, availableNowIdle="0.5s", maxRowsPerTrigger="2")
    start = driver.reader.initialOffset()
    driver.reader.prepareForTriggerAvailableNow()
    intake = driver.reader._opened()
    intake.start(ends=True)
    publish(emulator, *b"a b c".split())
    emulator.until(lambda: intake.waiting.rows == 3, timeout=WITHIN)

    one = driver.reader.latestOffset(start)
    assert (one["rows"], emulator.streams()) == (2, [])
    two = driver.reader.latestOffset(one)
    assert (two["rows"], driver.reader.latestOffset(two)) == (3, two)

    driver.end()


def test_nobody_rests_while_everything_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rest may be longer than the silence after which a query ends."""
    monkeypatch.setattr(intake, "_RESTS", ((10, 100.0),))
    kept = Kept(tmp_path, availableNowIdle="1s")
    kept.intake.begin_available_now()

    receiver = kept.receive(Batch(f"{number}") for number in range(30))
    found = kept.all(everything=True)
    receiver.join(WITHIN)

    assert (found, kept.kept) == (30, [True] * 30)


def test_what_was_published_before_has_room_though_the_log_is_full_of_what_came_later(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path, availableNowIdle="1s", maxBytesPerTrigger="1m")
    kept.intake.begin_available_now()
    later = time.time() + 3_600

    def batches() -> Iterator[Batch]:
        number = 0
        while kept.intake._has_room():
            yield Batch(f"later {number}", size=32 << 20, published=later)
            number += 1
        yield Batch("before")

    receiver = kept.receive(batches())
    found = kept.all(everything=False)
    receiver.join(WITHIN)

    assert kept.kept[-1]
    assert found == len(kept.kept)


def test_who_waits_for_room_has_it_when_everything_is_asked_for(tmp_path: Path) -> None:
    """As with the trigger once, when the log is full."""
    kept = Kept(tmp_path, availableNowIdle="0.2s", maxBytesPerTrigger="1m")
    kept.intake.begin_available_now()
    receiver = kept.receive(Batch(f"{number}", size=32 << 20) for number in range(10))
    with kept.intake._changed:
        assert kept.intake._changed.wait_for(lambda: kept.intake._waits_for_room, WITHIN)

    found = kept.all(everything=True)
    receiver.join(WITHIN)

    assert (found, kept.kept) == (10, [True] * 10)


def test_what_was_published_before_comes_though_it_is_behind_what_came_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is full, and for as long as nobody listens there is no silence."""
    kept = Kept(tmp_path, availableNowIdle="1s", maxBytesPerTrigger="1m")
    kept.intake.begin_available_now()
    monkeypatch.setattr(intake, "time", clock := Clock())
    later = time.time() + 3_600

    def batches() -> Iterator[Batch]:
        number = 0
        while kept.intake._has_room():
            yield Batch(f"later {number}", size=32 << 20, published=later)
            number += 1
        yield Batch("later and waits for room", published=later)
        yield Batch("before")

    receiver = kept.receive(batches())
    with kept.intake._changed:
        kept.intake._changed.wait_for(lambda: kept.intake._waits_for_room, WITHIN)
    clock.ahead += 100.0
    found = kept.all(everything=False)
    receiver.join(WITHIN)

    assert found == len(kept.kept)
    assert all(kept.kept)


def test_messages_in_hand_are_no_silence_however_slow_the_store_is(
    emulator: EmulatorThread, tmp_path: Path, clock: Clock
) -> None:
    """As when a list of objects is tried again and again."""
    driver, made = beginning(emulator, tmp_path)
    in_hand = threading.Event()
    keep, look = made.keep, made.wal.look

    def noted(batch: Any) -> bool:
        in_hand.set()
        return bool(keep(batch))

    def slow() -> None:
        if not in_hand.is_set():
            publish(emulator, b"a")
            assert in_hand.wait(WITHIN)
            clock.ahead += 100.0
        look()

    made.keep, made.wal.look = noted, slow
    end = driver.next({"seq": 0, "wal": made.wal.id, "query": "q"})

    assert end["rows"] == 1
    driver.end()


def test_what_nobody_has_read_yet_is_no_silence(
    emulator: EmulatorThread, tmp_path: Path, clock: Clock
) -> None:
    """As when the machine was suspended: time has passed, and what was sent is there."""
    driver, made = beginning(emulator, tmp_path)
    publish(emulator, b"a")
    one = driver.next({"seq": 0, "wal": made.wal.id, "query": "q"})  # it gives signs of life
    gate = threading.Event()
    ask: Callable[[], Future[bool]] = made._receiver.all_kept

    def asked() -> Future[bool]:
        gate.set()
        return ask()

    made._receiver.all_kept = asked
    made._receiver._loop.call_soon_threadsafe(gate.wait, WITHIN)
    publish(emulator, b"b")
    clock.ahead += 100.0

    assert driver.reader.latestOffset(one)["rows"] == 2
    driver.end()


def test_all_is_kept_when_the_service_has_given_a_sign_of_life(
    emulator: EmulatorThread, tmp_path: Path
) -> None:
    driver, made = beginning(emulator, tmp_path)
    publish(emulator, b"a")
    emulator.until(lambda: made.waiting.rows == 1, timeout=WITHIN)  # it gives signs of life
    stall = emulator.faults.stall_streams()
    asked = made._receiver.all_kept()
    with pytest.raises(TimeoutError):
        asked.result(0.2)
    stall.resume()

    assert asked.result(WITHIN)
    driver.end()


def test_a_connection_that_is_lost_is_no_answer(emulator: EmulatorThread, tmp_path: Path) -> None:
    driver, made = beginning(emulator, tmp_path)
    publish(emulator, b"a")
    emulator.until(lambda: made.waiting.rows == 1, timeout=WITHIN)  # it gives signs of life
    emulator.faults.stall_streams()
    asked = made._receiver.all_kept()
    emulator.faults.cut_connections()

    assert asked.result(WITHIN) is False
    driver.end()
    assert made._receiver.all_kept().result(0) is False  # and who has ended gives none


class Failing(LocalStore):
    """A folder that is full, as is known only when somebody has waited for it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.may_tell = threading.Event()

    def put_if_absent(self, name: str, parts: Sequence[Buffer]) -> bool:
        if name.startswith("incoming"):
            assert self.may_tell.wait(WITHIN)
            raise OSError(28, "No space left on device")
        return super().put_if_absent(name, parts)


def test_what_cannot_be_kept_at_the_very_end_is_an_error(
    emulator: EmulatorThread, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "store_at", lambda location: Failing(Path(location)))
    publish(emulator, b"a")
    driver, made = beginning(emulator, tmp_path)
    store = made.wal.store
    ask: Callable[[], Future[bool]] = made._receiver.all_kept

    def asked() -> Future[bool]:
        store.may_tell.set()
        return ask()

    made._receiver.all_kept = asked
    emulator.until(lambda: made._receiver._live.health().leased == 1, timeout=WITHIN)
    clock.ahead += 100.0

    with pytest.raises(WalError, match="No space left on device"):
        driver.reader.latestOffset({"seq": 0, "wal": made.wal.id, "query": "q"})
    driver.end()
    assert emulator.backlog(WORKER) == 1


def test_it_ends_though_messages_keep_coming(tmp_path: Path) -> None:
    """As fast as Spark reads them: nothing is sealed ahead then."""
    kept = Kept(tmp_path, availableNowIdle="0.2s", maxRowsPerTrigger="2")
    kept.intake.begin_available_now()
    later = time.time() + 3_600
    kept.receive([Batch("before")]).join(WITHIN)

    seq = 0
    while seq < 20 and (batch := kept.intake.latest(seq, everything=False, patient=True)):
        kept.receive([Batch(*f"{seq}a {seq}b {seq}c".split(), published=later)]).join(WITHIN)
        kept.intake.pieces(seq, batch.seq)
        kept.intake._chores.submit(int).result(WITHIN)  # what is sealed ahead is sealed
        seq = batch.seq
    kept.intake.release()

    assert seq == 1


class Told:
    """A keeper that notes what it is told of the connection."""

    def __init__(self) -> None:
        self.connections: list[bool] = []

    def keep(self, _: object) -> bool:
        raise NotImplementedError

    def rest(self) -> None:
        raise NotImplementedError

    def release(self) -> None:
        pass

    def connection(self, *, works: bool) -> None:
        self.connections.append(works)


def test_it_is_told_when_the_connection_is_lost_and_works_again(
    emulator: EmulatorThread, tmp_path: Path
) -> None:
    told = Told()
    made = Receiver(options_of(tmp_path, emulator), told, wal="", seek=False)
    made.start()
    refused = emulator.faults.refuse_connections()
    emulator.faults.cut_connections()
    emulator.until(lambda: told.connections == [True, False], timeout=WITHIN)
    refused.resume()

    emulator.until(lambda: told.connections == [True, False, True], timeout=WITHIN)
    made.stop()


class Panicking(Told):
    """A keeper whose extension, as those in Rust do, raises what is no Exception."""

    def keep(self, _: object) -> bool:
        raise PanicError


class PanicError(BaseException):
    """As those are."""


def test_what_is_no_exception_ends_it_too(emulator: EmulatorThread, tmp_path: Path) -> None:
    made = Receiver(options_of(tmp_path, emulator), Panicking(), wal="", seek=False)
    made.start()
    publish(emulator, b"a")

    emulator.until(lambda: made.error is not None, timeout=WITHIN)
    with pytest.raises(RuntimeError, match="has ended: PanicError"):
        made.stop()


class Stuck(Told):
    """A keeper that does not come back."""

    def __init__(self) -> None:
        super().__init__()
        self.is_called, self.may_return = threading.Event(), threading.Event()

    def keep(self, _: object) -> bool:
        self.is_called.set()
        return not self.may_return.wait(WITHIN)


def test_a_receiver_that_does_not_end_is_an_error(
    emulator: EmulatorThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "_SHUTDOWN", ShutdownPolicy(timeout=0.1, flush_timeout=0.1))
    stuck = Stuck()
    made = Receiver(options_of(tmp_path, emulator), stuck, wal="", seek=False)
    made.start()
    publish(emulator, b"a")
    assert stuck.is_called.wait(WITHIN)

    with pytest.raises(RuntimeError, match=r"has not ended within 0\.2 s: end the process"):
        made.stop()
    stuck.may_return.set()
    made._thread.join(WITHIN)


def test_tasks_fetch_only_while_the_query_receives(
    emulator: EmulatorThread, tmp_path: Path
) -> None:
    """Not when it has all, and not in a batch of before: the subscription may be gone."""
    publish(emulator, b"a")
    driver = Driver(emulator, tmp_path, numFetchPartitions="2")
    start = driver.reader.initialOffset()
    one = driver.next(start)
    assert driver.fetchers(start, one) == 2
    driver.end()

    again = Driver(emulator, tmp_path, numFetchPartitions="2", availableNowIdle="1s")
    assert again.fetchers(start, one) == 0
    publish(emulator, b"b")
    two = again.reader.latestOffset()

    assert two["rows"] == 2
    assert again.fetchers(one, two) == 0
    again.end()
