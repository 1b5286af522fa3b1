"""A worker: jobs are tried, dropped, tried again, dead-lettered, brought back and given up."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pubsub_aio import Deduplicator, FlowControl
from pubsub_aio.jobs import SAME_JOB, Job, JobPolicy, RejectJobError, job_attributes
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.conftest import (
    DEAD_LETTERS,
    NOTHING_LEFT,
    QUEUE,
    RETURNS,
    Performer,
    after,
    fails,
    instant,
    shop,
)
from tests.subscriber.conftest import virtual

pytestmark = pytest.mark.usefixtures("quiet")


# Attempts


@virtual
async def test_a_job_that_succeeds_is_acked(emulator: MemoryEmulator) -> None:
    async with shop(emulator) as it:
        await it.queue.put(b"report", attributes={"month": "may"})
        async with it.working(performer := Performer()):
            await asyncio.sleep(1)

        assert performer.tries == [(0, b"report", 1, 0)]
        assert it.left() == NOTHING_LEFT


@virtual
async def test_a_job_that_fails_is_tried_twelve_times_and_then_given_up(
    emulator: MemoryEmulator,
) -> None:
    """B13-B21: waits of 2 and 4 seconds, dead letter for 3, four rounds, then it is given up."""
    async with shop(emulator) as it:
        await it.queue.put(b"bad")
        async with it.working(performer := Performer(fails)):
            await asyncio.sleep(120)

        rounds = [(0, 2, 6), (9, 11, 15), (18, 20, 24), (27, 29, 33)]
        assert performer.tries == [
            (time, b"bad", attempt, resurrections)
            for resurrections, times in enumerate(rounds)
            for attempt, time in enumerate(times, start=1)
        ]
        assert performer.given_up == [(33, b"bad", "it cannot be done")]
        assert it.left() == NOTHING_LEFT


@virtual
async def test_a_job_that_succeeds_at_last_is_not_tried_again(emulator: MemoryEmulator) -> None:
    async def second_round(job: Job) -> None:
        if job.resurrections == 0 or job.attempt == 1:
            raise ValueError("not yet")

    async with shop(emulator) as it:
        await it.queue.put(b"slow")
        async with it.working(performer := Performer(second_round)):
            await asyncio.sleep(120)

        assert performer.times(b"slow") == [0, 2, 6, 9, 11]
        assert (performer.done, performer.given_up) == ([b"slow"], [])
        assert it.left() == NOTHING_LEFT


@virtual
async def test_a_lease_is_kept_while_a_job_waits_for_its_next_attempt(
    emulator: MemoryEmulator,
) -> None:
    """B13: the counter is the worker's, so the job must not come again meanwhile."""
    policy = JobPolicy(initial_backoff=100, max_backoff=1_000)
    async with shop(emulator, policy=policy) as it:
        await it.queue.put(b"bad")
        async with it.working(performer := Performer(fails)):
            await asyncio.sleep(350)

            assert performer.times(b"bad") == [0, 100, 300, 303]
            (message,) = emulator.messages(QUEUE)
            assert len(message.deliveries) == 1


@virtual
async def test_others_are_tried_while_a_job_waits(emulator: MemoryEmulator) -> None:
    async def bad_fails(job: Job) -> None:
        if job.data == b"bad":
            raise ValueError("it cannot be done")

    async with shop(emulator) as it:
        await it.queue.put(b"bad")
        async with it.working(performer := Performer(bad_fails), concurrency=1):
            await asyncio.sleep(0.5)
            await it.queue.put(b"good")
            await asyncio.sleep(0.5)

            assert [data for _, data, _, _ in performer.tries] == [b"bad", b"good"]


@virtual
async def test_no_more_jobs_are_tried_at_once_than_told(emulator: MemoryEmulator) -> None:
    """B5: one at a time, whether they come from the queue or return to it."""

    async def takes_long_and_fails_once(job: Job) -> None:
        await asyncio.sleep(4)
        if job.resurrections == 0:
            raise ValueError("not yet")

    policy = JobPolicy(max_attempts=1, dead_letter_ttl=0)
    async with shop(emulator, policy=policy) as it:
        for n in range(5):
            await it.queue.put(b"%d" % n)
        async with it.working(performer := Performer(takes_long_and_fails_once), concurrency=1):
            await asyncio.sleep(60)

        assert (performer.peak, len(performer.tries), len(performer.done)) == (1, 10, 5)


@virtual
async def test_a_plain_function_runs_in_a_thread(emulator: MemoryEmulator) -> None:
    threads: list[int] = []
    async with shop(emulator) as it:
        await it.queue.put(b"report")
        perform = it.queue.worker()(lambda _: threads.append(threading.get_ident()))
        it.subscriber.subscribe(QUEUE, perform)
        await asyncio.sleep(1)

        assert len(threads) == 1
        assert threads[0] != threading.get_ident()
        assert it.left() == NOTHING_LEFT


@virtual
async def test_a_job_that_was_cancelled_by_itself_has_failed(emulator: MemoryEmulator) -> None:
    async def cancels(_: Job) -> None:
        waiting = asyncio.get_running_loop().create_future()
        waiting.cancel()
        await waiting

    async with shop(emulator) as it:
        await it.queue.put(b"odd")
        async with it.working(performer := Performer(cancels)):
            await asyncio.sleep(60)

        assert len(performer.tries) == 12
        assert it.left() == NOTHING_LEFT


@virtual
async def test_where_the_server_counts_deliveries_those_that_were_cut_off_are_attempts(
    emulator: MemoryEmulator,
) -> None:
    """B13: what a crash cut off may be repeated, but not for ever."""
    async with shop(emulator) as it:
        emulator.create_topic("counted")
        policy = {"dead_letter_topic": emulator.create_topic("far"), "max_delivery_attempts": 100}
        emulator.create_subscription("counted", "counted", dead_letter_policy=policy)
        emulator.publish("counted", b"deadly")
        for _ in range(2):  # as if who received it had died
            (message,) = await it.subscriber.pull("counted")
            message.nack()
            await asyncio.sleep(1)
        it.subscriber.subscribe("counted", it.queue.worker()(performer := Performer(fails)))
        await asyncio.sleep(1)

        assert [attempt for _, _, attempt, _ in performer.tries] == [3]
        assert emulator.backlog("counted") == 0
        assert emulator.backlog(DEAD_LETTERS) == 1


# Expiry


def test_expiry_travels_as_milliseconds() -> None:
    """B4: the attribute expires_at, set by who publishes."""
    made = job_attributes(
        {"month": "may"}, persistent=False, ttl=2, job_id="r-7", clock=lambda: 1_000.5
    )

    assert made == {
        "month": "may",
        "expires_at": "1002500",
        "persistent": "false",
        "pubsub_aio_job_id": "r-7",
    }


@virtual
async def test_an_expired_job_is_dropped_and_not_processed(emulator: MemoryEmulator) -> None:
    """B4, B6, B7: on_drop runs, then it is acked."""
    async with shop(emulator) as it:
        await it.queue.put(b"old", persistent=False, ttl=2)
        await asyncio.sleep(2.1)
        async with it.working(performer := Performer()):
            await asyncio.sleep(1)

        assert (performer.tries, performer.dropped) == ([], [(2, b"old")])
        assert it.left() == NOTHING_LEFT


@virtual
async def test_expiry_is_looked_at_when_a_jobs_turn_has_come(emulator: MemoryEmulator) -> None:
    """B5, B6, B12: a job takes four seconds, one at a time; what expired meanwhile is dropped."""
    async with shop(emulator) as it:
        async with it.working(performer := Performer(after(4)), concurrency=1):
            for n in range(10):
                await it.queue.put(b"%d" % n, persistent=False, ttl=2.5)
                await asyncio.sleep(1)
            await asyncio.sleep(10)

        assert performer.done == [b"0", b"2", b"6"]
        assert [data for _, data in performer.dropped] == [b"1", b"3", b"4", b"5", b"7", b"8", b"9"]
        assert it.left() == NOTHING_LEFT


@virtual
async def test_an_expired_job_is_not_tried_again(emulator: MemoryEmulator) -> None:
    """B12: what has failed once is dropped as well, if it has expired by the next attempt."""
    async with shop(emulator) as it:
        await it.queue.put(b"bad", persistent=False, ttl=3)
        async with it.working(performer := Performer(fails)):
            await asyncio.sleep(60)

        assert performer.times(b"bad") == [0, 2]
        assert performer.dropped == [(6, b"bad")]


@virtual
async def test_a_persistent_job_is_always_processed(emulator: MemoryEmulator) -> None:
    """B9, B12: however old it is."""
    async with shop(emulator) as it:
        await it.queue.put(b"old", persistent=True, ttl=2)
        await asyncio.sleep(3_600)
        async with it.working(performer := Performer()):
            await asyncio.sleep(1)

        assert (performer.done, performer.dropped) == ([b"old"], [])


@virtual
async def test_a_drop_is_not_undone_by_what_is_told_of_it(emulator: MemoryEmulator) -> None:
    """B7: on_drop is time-boxed, and its errors are contained."""
    called: list[bytes] = []

    async def on_drop(job: Job) -> None:
        called.append(job.data)
        if job.data == b"raises":
            raise RuntimeError("nobody cares")
        await asyncio.sleep(3_600)

    async with shop(emulator) as it:
        for data in (b"raises", b"hangs"):
            await it.queue.put(data, persistent=False, ttl=0)
        await asyncio.sleep(1)
        async with it.working(Performer(), on_drop=on_drop, drop_timeout=0.5):
            await asyncio.sleep(1)
            left = it.left()

        assert (called, left) == ([b"raises", b"hangs"], NOTHING_LEFT)


@virtual
async def test_an_expiry_that_nobody_can_read_drops_nothing(
    emulator: MemoryEmulator,
) -> None:
    async with shop(emulator) as it:
        for text in ("tomorrow", "-1", "9" * 40, "1e3", "²"):
            marks = {"expires_at": text, "persistent": "false"}
            emulator.publish(QUEUE, text.encode(), attributes=marks)
        async with it.working(performer := Performer()):
            await asyncio.sleep(1)

        assert (len(performer.done), performer.dropped) == (5, [])


# The end


@virtual
async def test_a_job_that_is_rejected_is_given_up_at_once(emulator: MemoryEmulator) -> None:
    async def rejects(_: Job) -> None:
        raise RejectJobError("there is no such customer")

    async with shop(emulator) as it:
        await it.queue.put(b"wrong")
        async with it.working(performer := Performer(rejects)):
            await asyncio.sleep(60)

        assert len(performer.tries) == 1
        assert performer.given_up == [(0, b"wrong", "there is no such customer")]
        assert it.left() == NOTHING_LEFT


@virtual
async def test_a_job_is_gone_only_when_its_end_was_told(emulator: MemoryEmulator) -> None:
    """B20: if on_give_up fails, the job comes again, and it is called again."""
    calls: list[float] = []

    async def on_give_up(_: Job, error: Exception) -> None:
        calls.append(instant())
        if len(calls) < 3:
            raise OSError("the disk is full") from error

    async with shop(emulator, policy=JobPolicy(max_attempts=1, max_resurrections=0)) as it:
        await it.queue.put(b"bad")
        async with it.working(Performer(fails), on_give_up=on_give_up):
            await asyncio.sleep(60)

        assert calls == [0, 10, 20]
        assert it.left() == NOTHING_LEFT


def test_a_job_that_is_given_up_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """B20: with its id and what it failed with, and without its data."""

    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        async with shop(emulator, policy=JobPolicy(max_attempts=1, max_resurrections=0)) as it:
            await it.queue.put(b"secret", job_id="r-7")
            async with it.working(Performer(fails)):
                await asyncio.sleep(1)

    scenario()

    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.name == "pubsub_aio.jobs"
    assert record.message == "Job(id='r-7', attempt=1, resurrections=0) is given up"
    assert "it cannot be done" in caplog.text
    assert "secret" not in caplog.text


# Together with others


@virtual
async def test_duplicates_of_a_job_are_recognised_and_its_return_is_none(
    emulator: MemoryEmulator,
) -> None:
    """A deduplicator around a worker drops copies of a round, and no other round."""
    dedupe = Deduplicator(SAME_JOB)
    async with shop(emulator, policy=JobPolicy(max_attempts=1, max_resurrections=2)) as it:
        perform = dedupe(it.queue.worker()(performer := Performer(fails)))
        for name in (QUEUE, RETURNS):
            it.subscriber.subscribe(name, perform)
        it.subscriber.subscribe(DEAD_LETTERS, it.queue.returns())
        for _ in range(3):
            await it.queue.put(b"bad", job_id="r-7")
        await asyncio.sleep(30)

        assert [resurrections for _, _, _, resurrections in performer.tries] == [0, 1, 2]
        assert dedupe.dropped == 2


@virtual
async def test_a_worker_fits_any_source_of_messages(emulator: MemoryEmulator) -> None:
    """It is a function from handler to handler."""
    async with shop(emulator) as it:
        for n in range(3):
            await it.queue.put(b"%d" % n)
        perform = it.queue.worker()(performer := Performer())
        async for message in it.subscriber.messages(QUEUE):
            await perform(message)
            if len(performer.done) == 2:
                break
        (pulled,) = await it.subscriber.pull(QUEUE)
        await perform(pulled)
        await asyncio.sleep(1)

        assert performer.done == [b"0", b"1", b"2"]
        assert it.left() == NOTHING_LEFT


@virtual
async def test_a_job_whose_lease_has_ended_is_not_a_dead_letter(emulator: MemoryEmulator) -> None:
    """It comes again anyway; it would be there twice."""

    async def gives_back_and_fails(job: Job) -> None:
        job.message.nack(delay=600)
        raise ValueError("it cannot be done")

    async with shop(emulator, policy=JobPolicy(max_attempts=1)) as it:
        await it.queue.put(b"bad")
        async with it.working(Performer(gives_back_and_fails)):
            await asyncio.sleep(60)

        assert len(emulator.messages(DEAD_LETTERS)) == 0
        assert emulator.backlog(QUEUE) == 1


@virtual
async def test_a_job_whose_lease_ends_while_it_waits_for_its_turn_is_not_tried(
    emulator: MemoryEmulator,
) -> None:
    leases: list[object] = []

    async def slow(job: Job) -> None:
        leases.append(job.message.lease)
        await asyncio.sleep(30)

    async with shop(emulator, policy=JobPolicy(max_attempts=1)) as it:
        await it.queue.put(b"first")
        await it.queue.put(b"second")
        flow = FlowControl(max_lease_duration=20)
        perform = it.queue.worker(concurrency=1)(slow)
        it.subscriber.subscribe(QUEUE, perform, flow_control=flow)
        await asyncio.sleep(100)

        assert len(leases) > 1
        assert None not in leases


@virtual
async def test_a_job_whose_lease_has_ended_is_not_given_up(emulator: MemoryEmulator) -> None:
    """It may be that somebody else succeeds."""

    async def gives_back_and_fails(job: Job) -> None:
        job.message.nack(delay=600)
        raise ValueError("it cannot be done")

    async with shop(emulator, policy=JobPolicy(max_attempts=1, max_resurrections=0)) as it:
        await it.queue.put(b"bad")
        async with it.working(performer := Performer(gives_back_and_fails)):
            await asyncio.sleep(60)

        assert performer.given_up == []
