"""What becomes of micro-batches, in virtual time and without Spark."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from pubsub_aio import (
    ClosedError,
    ConfigError,
    StuckHandlerError,
    SubscriberClient,
    Subscription,
)
from pubsub_aio.spark.batch import BatchReport, MicroBatch
from pubsub_aio.spark.dead_letters import DeadLetters
from pubsub_aio.spark.runner import BatchPolicy, BatchRunner
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import HOUR, TOPIC, WORKER, client_of, now, publish, virtual

BURIED = "buried"


class Work:
    """A handler: fails with some messages, takes its time, and notes what went through."""

    def __init__(
        self, poison: set[int] | None = None, *, seconds: float = 0.0, stubborn: float = 0.0
    ) -> None:
        self.poison = poison or set()
        self.down_until = 0.0
        self.down_after = 10**9  # calls
        self.error: Exception | None = None
        self.unwanted: set[int] = set()  # to come again, once
        self.unwanted_in_parts = False
        self.seconds = seconds
        self.stubborn = stubborn
        self.calls: list[tuple[float, list[int]]] = []
        self.through: list[int] = []
        self.running = self.peak = 0
        self.ended_at: list[float] = []
        self.gone: Exception | None = None

    async def run(self, batch: MicroBatch) -> Exception | None:
        numbers = [int(data.strip(b"ab")) for data in batch.records.column("data").to_pylist()]
        self.calls.append((round(now(), 1), numbers))
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.running -= 1
        if self.gone:
            raise self.gone
        counts = batch.part_of or not self.unwanted_in_parts
        unwanted = self.unwanted.intersection(numbers) if counts else set()
        self.unwanted -= unwanted
        batch.give_back(numbers.index(number) for number in unwanted)
        down = now() < self.down_until or len(self.calls) > self.down_after
        if down or not self.poison.isdisjoint(numbers):
            return self.error or ValueError(f"cannot work with {numbers[:3]}")
        self.through += numbers
        return None

    async def ended(self, batch: MicroBatch) -> None:
        del batch
        await asyncio.sleep(self.stubborn)
        self.ended_at.append(now())

    def close(self) -> None: ...


class Unprintable(Exception):  # noqa: N818 - it is none to be caught
    def __str__(self) -> str:
        raise IndexError("there is no text")


class Site:
    """A subscription to micro-batches."""

    def __init__(self, emulator: MemoryEmulator, client: SubscriberClient) -> None:
        self.emulator = emulator
        self.client = client
        self.reports: list[BatchReport] = []

    def subscribe(
        self,
        work: Work,
        *,
        max_messages: int = 100,
        max_batch_duration: float = 600,
        bisect: bool = False,
        max_poisonous: int = 10,
        dead_letters: bool = False,
        topic: str = BURIED,
    ) -> Subscription:
        policy = BatchPolicy(
            max_batch_duration=max_batch_duration,
            bisect=bisect,
            max_poisonous=max_poisonous,
            dead_letters=DeadLetters(self.client, topic) if dead_letters else None,
        )
        runner = BatchRunner(work, policy, on_batch=self.reports.append)
        live = self.client.subscribe_arrow(
            WORKER, runner, max_messages=max_messages, max_concurrent=1
        )
        runner.subscription, runner.on_end = live.name, live.fail
        return live

    @property
    def outcomes(self) -> list[tuple[str, int, int]]:
        return [(report.outcome, report.acked, report.nacked) for report in self.reports]

    async def until(self, condition: Callable[[], bool]) -> None:
        await self.emulator.until(condition, timeout=HOUR)

    async def all_done(self) -> None:
        await self.until(lambda: self.emulator.backlog(WORKER) == 0)

    def buried(self) -> list[bytes]:
        return [message.data for message in self.emulator.messages(BURIED)]


@asynccontextmanager
async def site_of(emulator: MemoryEmulator, **settings: object) -> AsyncIterator[Site]:
    emulator.create_subscription(WORKER, TOPIC, **settings)
    emulator.create_topic(BURIED)
    async with client_of(emulator) as client:
        yield Site(emulator, client)


@virtual
async def test_a_batch_that_was_handled_is_acked(emulator: MemoryEmulator) -> None:
    async with site_of(emulator) as site:
        work = Work(seconds=100)
        site.subscribe(work)
        publish(emulator, 30)
        await site.all_done()

        assert work.through == list(range(30))
        (report,) = site.reports
        assert (report.outcome, report.rows, report.acked, report.nacked) == ("acked", 30, 30, 0)
        assert (report.seconds, report.error, report.poisonous) == (100, None, ())
        assert report.size > 30


@virtual
async def test_a_batch_that_failed_comes_again_later_and_later(emulator: MemoryEmulator) -> None:
    """Until it is handled; the first time after a second, in the end after a minute."""
    async with site_of(emulator) as site:
        work = Work()
        work.down_until = 300.0
        site.subscribe(work)
        publish(emulator, 3)
        await site.all_done()

        times = [time for time, _ in work.calls]
        waits = [after - before for before, after in pairwise(times)]
        assert [round(wait) for wait in waits] == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
        assert [outcome for outcome, _, _ in site.outcomes] == ["failed"] * 10 + ["acked"]
        assert all(isinstance(report.error, ValueError) for report in site.reports[:-1])
        assert sorted(work.through) == [0, 1, 2]


@virtual
async def test_after_a_success_a_failure_is_the_first_again(emulator: MemoryEmulator) -> None:
    async with site_of(emulator) as site:
        work = Work()
        site.subscribe(work)
        for _ in range(2):
            work.down_until = now() + 10
            before = len(work.calls)
            publish(emulator, 1)
            await site.all_done()
            times = [time for time, _ in work.calls[before:]]
            assert round(times[1] - times[0]) == 1


@virtual
async def test_a_batch_that_takes_too_long_has_failed(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    """Visibly: it is logged and reported; its messages come again at once."""
    async with site_of(emulator) as site:
        work = Work(seconds=HOUR)
        site.subscribe(work, max_batch_duration=20)
        publish(emulator, 5)
        await site.until(lambda: len(work.calls) == 2)
        work.seconds = 0
        await site.all_done()

        first = site.reports[0]
        assert (first.outcome, first.seconds, first.nacked) == ("timed out", 20, 5)
        assert isinstance(first.error, TimeoutError)
        assert str(first.error) == "it was not done after 20 s"
        assert sorted(work.through) == list(range(5))
        assert "a batch of 5 messages was not done after 20.0 s: 5 come again" in caplog.text


@virtual
async def test_a_batch_that_cannot_be_stopped_keeps_its_place(emulator: MemoryEmulator) -> None:
    """Or ever more of them would run; but what it holds goes back."""
    async with site_of(emulator) as site:
        work = Work(seconds=HOUR, stubborn=15)
        site.subscribe(work, max_batch_duration=20)
        publish(emulator, 5)
        await site.until(lambda: bool(site.reports))
        assert [one.modacks[-1].seconds for one in emulator.messages(TOPIC)] == [1] * 5
        work.seconds = 0
        await site.all_done()

        assert work.ended_at == [pytest.approx(35, abs=1)]
        assert work.calls[1][0] >= 35


@virtual
async def test_a_batch_that_never_ends_ends_the_subscription(emulator: MemoryEmulator) -> None:
    """Whoever watches the process can start another; what came meanwhile goes back."""
    async with site_of(emulator) as site:
        work = Work(seconds=HOUR, stubborn=HOUR)
        live = site.subscribe(work, max_batch_duration=20)
        publish(emulator, 5)
        with pytest.raises(
            StuckHandlerError, match="has not ended 20 s after its batch took too long"
        ):
            await live

        assert now() < 45
        assert len(work.calls) == 1
        assert emulator.outstanding(WORKER) == 0


@virtual
async def test_messages_are_held_as_long_as_their_batch_takes(emulator: MemoryEmulator) -> None:
    """H6: those that wait for it as well."""
    async with site_of(emulator) as site:
        work = Work(seconds=400)
        site.subscribe(work, max_messages=10)
        publish(emulator, 30)
        await site.all_done()

        assert [len(numbers) for _, numbers in work.calls] == [10, 10, 10]
        assert work.through == list(range(30))


@virtual
async def test_a_batch_that_runs_at_the_end_may_finish(emulator: MemoryEmulator) -> None:
    async with site_of(emulator) as site:
        work = Work(seconds=20)
        live = site.subscribe(work)
        publish(emulator, 5)
        await site.until(lambda: work.running == 1)
        live.stop()
        await live

        assert site.outcomes == [("acked", 5, 0)]
        assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_batch_that_does_not_finish_is_given_back(emulator: MemoryEmulator) -> None:
    """At once, for others, and it is no failure."""
    async with site_of(emulator) as site:
        work = Work(seconds=HOUR)
        live = site.subscribe(work)
        publish(emulator, 5)
        await site.until(lambda: work.running == 1)
        live.stop()
        live.stop()
        await live

        assert site.outcomes == [("cancelled", 0, 5)]
        assert [one.modacks[-1].seconds for one in emulator.messages(TOPIC)] == [0] * 5


@virtual
async def test_a_search_that_does_not_finish_is_given_back(emulator: MemoryEmulator) -> None:
    """But for what went through."""
    async with site_of(emulator) as site:
        work = Work({7}, seconds=10)
        live = site.subscribe(work, bisect=True)
        publish(emulator, 8)
        await site.until(lambda: len(work.calls) == 3)
        live.stop()
        live.stop()
        await live

        assert (site.outcomes, work.through) == ([("cancelled", 3, 5)], [1, 2, 3])
        others = [one for one in emulator.messages(TOPIC) if int(one.data) not in work.through]
        assert [one.modacks[-1].seconds for one in others] == [0] * 5


@virtual
async def test_when_spark_is_gone_the_subscription_ends_with_the_error(
    emulator: MemoryEmulator,
) -> None:
    """And what it holds goes back."""
    async with site_of(emulator) as site:
        work = Work()
        work.gone = ConnectionRefusedError("nobody is there")
        live = site.subscribe(work)
        publish(emulator, 5)
        with pytest.raises(ConnectionRefusedError, match="nobody is there"):
            await live

        assert site.outcomes == [("cancelled", 0, 5)]
        assert emulator.outstanding(WORKER) == 0


@virtual
async def test_whoever_listens_may_fail(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    async with site_of(emulator) as site:

        def fail(report: BatchReport) -> None:
            raise ValueError(f"nobody likes {report.outcome}")

        runner = BatchRunner(Work(), BatchPolicy(max_batch_duration=10), on_batch=fail)
        site.client.subscribe_arrow(WORKER, runner)
        publish(emulator, 5)
        await site.all_done()

        assert "on_batch failed" in caplog.text
        assert "nobody likes acked" in caplog.text


@virtual
async def test_a_handler_can_give_back_rows(emulator: MemoryEmulator) -> None:
    """They come again, a second later, and the others are acked."""
    async with site_of(emulator) as site:
        work = Work()
        work.unwanted = {3, 7}
        site.subscribe(work)
        publish(emulator, 10)
        await site.all_done()

        assert [numbers for _, numbers in work.calls] == [list(range(10)), [3, 7]]
        assert site.outcomes == [("acked", 8, 2), ("acked", 2, 0)]


@virtual
async def test_rows_of_a_part_can_be_given_back(emulator: MemoryEmulator) -> None:
    """They are counted from the first of the part."""
    async with site_of(emulator) as site:
        work = Work({0})
        work.unwanted_in_parts = True
        work.unwanted = {6}
        site.subscribe(work, bisect=True, dead_letters=True)
        publish(emulator, 8)
        await site.all_done()

        assert site.outcomes == [("bisected", 7, 1), ("acked", 1, 0)]
        assert work.calls[-1][1] == [6]
        assert site.buried() == [b"0"]


@pytest.mark.parametrize("rows", [[3], [-1], [0, 9]])
def test_rows_that_there_are_not_cannot_be_given_back(rows: list[int]) -> None:
    with pytest.raises(ConfigError, match="rows must be from 0 to 2"):
        MicroBatch(3, lambda: None).give_back(rows)


def test_rows_to_give_back_are_whole_numbers() -> None:
    with pytest.raises(TypeError):
        MicroBatch(3, lambda: None).give_back([1.0])  # type: ignore[list-item]


# Poisonous messages


@virtual
async def test_a_poisonous_message_comes_again_alone(emulator: MemoryEmulator) -> None:
    """After a minute, for it is not the sink that is at fault; the others go through at once."""
    async with site_of(emulator) as site:
        work = Work({7, 31})
        site.subscribe(work, bisect=True)
        ids = publish(emulator, 50)
        await site.until(lambda: len(site.reports) == 2)

        assert sorted(work.through) == [n for n in range(50) if n not in (7, 31)]
        first, second = site.reports
        assert (first.outcome, first.acked, first.nacked) == ("bisected", 48, 2)
        assert first.poisonous == (ids[7], ids[31])
        assert (second.rows, second.acked) == (2, 0)
        assert work.calls[-1][0] == pytest.approx(60, abs=1)


@virtual
async def test_a_poisonous_message_goes_to_the_dead_letter_topic(
    emulator: MemoryEmulator,
) -> None:
    """With where it comes from, what it was, and why; then it is acked."""
    async with site_of(emulator) as site:
        work = Work({7})
        site.subscribe(work, bisect=True, dead_letters=True)
        ids = publish(emulator, 7)
        odd = emulator.publish(TOPIC, b"7", attributes={"colour": "blue"}, ordering_key="a")
        await site.all_done()

        assert sorted(work.through) == list(range(7))
        (buried,) = emulator.messages(BURIED)
        original = emulator.message(odd)
        assert (buried.data, buried.ordering_key) == (b"7", "a")
        published = original.publish_time.isoformat(timespec="milliseconds")
        assert buried.attributes == {
            "colour": "blue",
            "CloudPubSubDeadLetterSourceSubscription": WORKER,
            "CloudPubSubDeadLetterSourceSubscriptionProject": emulator.project,
            "CloudPubSubDeadLetterSourceTopicPublishTime": published.replace("+00:00", "Z"),
            "CloudPubSubDeadLetterSourceDeliveryCount": "1",
            "pubsub_aio_message_id": odd,
            "pubsub_aio_error": "ValueError: cannot work with [7]",
        }
        (report,) = site.reports
        assert (report.outcome, report.acked, report.dead_lettered) == ("bisected", 8, 1)
        assert report.poisonous == (odd,)
        assert ids[0] not in report.poisonous


@virtual
async def test_a_dead_letter_has_no_more_attributes_than_it_may(emulator: MemoryEmulator) -> None:
    """Its own come first; then why it is there, and which it was."""
    async with site_of(emulator) as site:
        work = Work({7})
        site.subscribe(work, bisect=True, dead_letters=True)
        own = {f"key {number}": "x" for number in range(98)}
        emulator.publish(TOPIC, b"7", attributes=own)
        publish(emulator, 3)
        await site.all_done()

        (buried,) = emulator.messages(BURIED)
        assert len(buried.attributes) == 100
        assert own.items() <= buried.attributes.items()
        added = buried.attributes.keys() - own.keys()
        assert added == {"pubsub_aio_error", "pubsub_aio_message_id"}


@virtual
async def test_a_message_that_has_no_room_for_more_is_dead_lettered_as_it_is(
    emulator: MemoryEmulator,
) -> None:
    """One that is as large as a message may be would be refused with every attribute added."""
    async with site_of(emulator) as site:
        emulator.faults.fail("Publish", "INVALID_ARGUMENT")
        site.subscribe(Work({7}), bisect=True, dead_letters=True)
        emulator.publish(TOPIC, b"7", attributes={"colour": "blue"})
        publish(emulator, 3)
        await site.all_done()

        (buried,) = emulator.messages(BURIED)
        assert (buried.data, buried.attributes) == (b"7", {"colour": "blue"})


@virtual
@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("nowhere", "dead_letter_topic: there is no projects/.*/topics/nowhere; create it first"),
        (TOPIC, f"dead_letter_topic: the messages come from projects/.*/topics/{TOPIC}; choose"),
        ("bad name!", "dead_letter_topic: .*bad name!"),
    ],
)
async def test_a_dead_letter_topic_that_cannot_be_ends_the_subscription(
    emulator: MemoryEmulator, topic: str, why: str
) -> None:
    """Before anything is handled: later it would be too late, or go round and round."""
    async with site_of(emulator) as site:
        work = Work({0})
        live = site.subscribe(work, bisect=True, dead_letters=True, topic=topic)
        publish(emulator, 5)
        with pytest.raises(ConfigError, match=why):
            await live

        assert work.calls == []
        assert (emulator.backlog(WORKER), emulator.outstanding(WORKER)) == (5, 0)


@virtual
@pytest.mark.parametrize("code", ["PERMISSION_DENIED", "INTERNAL"])
async def test_who_may_not_look_at_the_dead_letter_topic_may_use_it(
    emulator: MemoryEmulator, code: str
) -> None:
    async with site_of(emulator) as site:
        site.subscribe(Work({7}), bisect=True, dead_letters=True)
        emulator.faults.fail("GetTopic", code, times=100)
        publish(emulator, 10)
        await site.all_done()

        assert site.buried() == [b"7"]


@virtual
async def test_what_cannot_be_dead_lettered_comes_again(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    """Publish first, then ack."""
    async with site_of(emulator) as site:
        emulator.faults.fail("Publish", "PERMISSION_DENIED")
        work = Work({7})
        site.subscribe(work, bisect=True, dead_letters=True)
        publish(emulator, 10)
        await site.until(lambda: len(site.reports) == 1)
        assert site.outcomes == [("bisected", 9, 1)]
        assert "cannot be published to" in caplog.text
        work.poison = set()
        await site.all_done()

        assert sorted(work.through) == list(range(10))
        assert site.buried() == []


@virtual
async def test_a_dead_letter_topic_that_is_slow_to_answer_is_asked_again(
    emulator: MemoryEmulator,
) -> None:
    async with site_of(emulator) as site:
        emulator.faults.fail("Publish", "UNAVAILABLE", times=3)
        site.subscribe(Work({7}), bisect=True, dead_letters=True)
        publish(emulator, 10)
        await site.all_done()

        assert site.buried() == [b"7"]


@virtual
@pytest.mark.parametrize("error", [ValueError("bad \udcff"), Unprintable()])
async def test_whatever_the_error_says_the_subscription_goes_on(
    emulator: MemoryEmulator, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be about bytes that are no text, or fail itself."""
    caplog.set_level(logging.CRITICAL, "pubsub_aio.spark")  # pytest cannot show such text
    async with site_of(emulator) as site:
        work = Work({7})
        work.error = error
        live = site.subscribe(work, bisect=True, dead_letters=True)
        publish(emulator, 10)
        await site.until(lambda: bool(site.reports))

        assert not live.done()
        assert sorted(work.through) == [n for n in range(10) if n != 7]
        (buried,) = emulator.messages(BURIED)
        assert buried.attributes["pubsub_aio_error"].startswith(type(error).__name__)


@virtual
async def test_a_sink_that_goes_down_in_the_middle_costs_no_message(
    emulator: MemoryEmulator,
) -> None:
    """Part of the batch went through before; what failed since did not fail by itself."""
    async with site_of(emulator) as site:
        work = Work({63})
        site.subscribe(work, bisect=True, dead_letters=True)
        publish(emulator, 64)
        work.down_after = 2
        await site.until(lambda: bool(site.reports))
        assert site.buried() == []
        work.down_after = 10**9
        await site.all_done()

        assert sorted(work.through) == list(range(63))
        assert site.buried() == [b"63"]


@virtual
@pytest.mark.parametrize(
    ("ordered", "count", "most", "poison", "works"),
    [(True, 8, 1, set(), 2), (False, 3, 1, {1}, 2), (True, 64, 10, {*range(9)}, 20)],
)
async def test_a_search_that_is_given_up_blames_nobody_whose_fault_it_may_not_be(
    emulator: MemoryEmulator, *, ordered: bool, count: int, most: int, poison: set[int], works: int
) -> None:
    """The sink goes down, and then what failed last is the last that is looked for."""
    async with site_of(emulator, enable_message_ordering=ordered) as site:
        work = Work(poison or {count - 1})
        site.subscribe(work, bisect=True, dead_letters=True, max_poisonous=most)
        publish(emulator, count, key="a" if ordered else "")
        work.down_after = works
        await site.until(lambda: bool(site.reports))

        buried = {int(data.strip(b"a")) for data in site.buried()}
        assert buried <= work.poison


@virtual
@pytest.mark.parametrize("count", [1, 20])
async def test_where_nothing_goes_through_no_message_is_to_blame(
    emulator: MemoryEmulator, count: int
) -> None:
    """A sink that is down must not cost messages, however often they fail meanwhile."""
    async with site_of(emulator) as site:
        work = Work()
        work.down_until = 100.0
        site.subscribe(work, bisect=True, dead_letters=True)
        publish(emulator, count)
        await site.all_done()

        assert site.buried() == []
        assert sorted(work.through) == list(range(count))
        assert {outcome for outcome, _, _ in site.outcomes} == {"failed", "acked"}


@virtual
async def test_a_message_that_fails_alone_again_and_again_is_to_blame(
    emulator: MemoryEmulator,
) -> None:
    """If others go through meanwhile, though never together with it."""
    async with site_of(emulator) as site:
        work = Work({7})
        site.subscribe(work, bisect=True, dead_letters=True, max_messages=1)
        publish(emulator, 10)
        await site.all_done()

        assert sorted(work.through) == [n for n in range(10) if n != 7]
        assert site.buried() == [b"7"]


@virtual
@pytest.mark.parametrize(
    ("count", "poison"), [(20, {18, 19}), (13, {10, 11, 12}), (13, {0, 1, 2}), (13, {5, 6, 7})]
)
async def test_neighbours_are_to_blame_though_nothing_else_comes(
    emulator: MemoryEmulator, count: int, poison: set[int]
) -> None:
    """Some of the batch is tried after them, wherever they are."""
    async with site_of(emulator) as site:
        work = Work(poison)
        site.subscribe(work, bisect=True, dead_letters=True)
        publish(emulator, count)
        await site.all_done()

        assert site.outcomes == [("bisected", count, 0)]
        assert sorted(site.buried()) == sorted(b"%d" % number for number in poison)
        assert sorted(work.through) == [n for n in range(count) if n not in poison]


@virtual
async def test_a_failure_that_passes_costs_nothing(emulator: MemoryEmulator) -> None:
    """It failed as a whole, and goes through in parts."""
    async with site_of(emulator) as site:
        work = Work()
        work.down_until = 0.5
        site.subscribe(work, bisect=True, dead_letters=True)
        await asyncio.sleep(0.46)
        publish(emulator, 10)
        work.seconds = 0.1
        work.down_until = now() + 0.1
        await site.all_done()

        assert sorted(work.through) == list(range(10))
        assert site.buried() == []


@virtual
async def test_no_more_are_looked_for_than_may_be(emulator: MemoryEmulator) -> None:
    """What is left comes again, and is looked through then."""
    async with site_of(emulator) as site:
        work = Work(set(range(20, 60)))
        site.subscribe(work, bisect=True, dead_letters=True, max_poisonous=3)
        publish(emulator, 64)
        await site.until(lambda: len(site.reports) == 1)
        assert site.outcomes == [("bisected", 25, 39)]
        assert sorted(site.buried()) == [b"20", b"21", b"22", b"32"]  # one of those tried last
        while len(site.buried()) < 40:
            emulator.publish(TOPIC, b"99")
            await asyncio.sleep(100)
            assert now() < HOUR

        assert {*work.through} == {*range(20), *range(60, 64), 99}
        assert sorted(site.buried()) == [b"%d" % number for number in range(20, 60)]
        assert emulator.backlog(WORKER) == 0


@virtual
async def test_the_search_ends_with_the_time_that_a_batch_has(emulator: MemoryEmulator) -> None:
    """What went through by then is acked."""
    async with site_of(emulator) as site:
        work = Work({63}, seconds=10)
        site.subscribe(work, bisect=True, max_batch_duration=35)
        publish(emulator, 64)
        await site.until(lambda: len(site.reports) == 1)

        (report,) = site.reports
        assert (report.outcome, report.acked, report.seconds) == ("timed out", 61, 35)
        assert isinstance(report.error, ValueError)
        work.poison = set()
        await site.all_done()
        assert sorted(work.through) == list(range(64))


@virtual
async def test_where_order_matters_a_dead_letter_lets_the_next_go_on(
    emulator: MemoryEmulator,
) -> None:
    """H3: each goes through once, in order."""
    async with site_of(emulator, enable_message_ordering=True) as site:
        work = Work({0, 1, 11})
        site.subscribe(work, bisect=True, dead_letters=True)
        publish(emulator, 20, key="a")
        await site.all_done()

        assert work.through == [n for n in range(20) if n not in (0, 1, 11)]
        assert site.buried() == [b"a0", b"a1", b"a11"]


@virtual
async def test_where_order_matters_a_dead_letter_is_published_until_it_is_there(
    emulator: MemoryEmulator,
) -> None:
    """H3: others went through behind it, so it must not come again."""
    async with site_of(emulator, enable_message_ordering=True) as site:
        emulator.faults.fail("Publish", "PERMISSION_DENIED", times=5)
        work = Work({3})
        site.subscribe(work, bisect=True, dead_letters=True)
        publish(emulator, 10, key="a")
        await site.all_done()

        assert work.through == [n for n in range(10) if n != 3]
        assert site.buried() == [b"a3"]
        assert 31 <= site.reports[0].seconds < 33  # 1, 2, 4, 8 and 16 s


@virtual
async def test_where_order_matters_what_is_behind_comes_again_and_is_counted(
    emulator: MemoryEmulator,
) -> None:
    async with site_of(emulator, enable_message_ordering=True) as site:
        work = Work()
        work.unwanted = {3}
        site.subscribe(work)
        publish(emulator, 10, key="a")
        await site.all_done()

        assert site.outcomes == [("acked", 3, 7), ("acked", 7, 0)]
        assert work.calls[-1][1] == list(range(3, 10))


@virtual
async def test_rows_are_given_back_before_the_handler_returns_or_not_at_all(
    emulator: MemoryEmulator,
) -> None:
    """Nobody would have them come again."""
    kept: list[MicroBatch] = []

    class Keeping(Work):
        async def run(self, batch: MicroBatch) -> Exception | None:
            kept.append(batch)
            return await super().run(batch)

    async with site_of(emulator) as site:
        site.subscribe(Keeping({3}), bisect=True, dead_letters=True)
        publish(emulator, 10)
        await site.all_done()
        assert len(kept) > 3
        for batch in kept:
            with pytest.raises(ClosedError, match="before the handler returns"):
                batch.give_back([0])


@virtual
async def test_where_order_matters_a_poisonous_message_keeps_back_its_own_key_alone(
    emulator: MemoryEmulator,
) -> None:
    """H4: what is behind it comes again with it; the rest goes through."""
    async with site_of(emulator, enable_message_ordering=True) as site:
        work = Work({2})
        site.subscribe(work, bisect=True)
        for number in range(20):
            emulator.publish(TOPIC, b"%d" % number, ordering_key="ab"[number % 2])
        await site.until(lambda: len(site.reports) == 1)
        assert site.outcomes == [("bisected", 11, 9)]
        assert sorted(work.through) == [0, *range(1, 20, 2)]
        for number in range(20, 30):
            emulator.publish(TOPIC, b"%d" % number, ordering_key="ab"[number % 2])
        await site.until(lambda: len(site.reports) == 2)
        assert site.outcomes[1:] == [("bisected", 5, 14)]
        assert sorted(work.through) == [0, *range(1, 30, 2)]
        work.poison = set()
        await site.all_done()

        for key in (0, 1):
            assert [n for n in work.through if n % 2 == key] == list(range(key, 30, 2))


@virtual
async def test_where_order_matters_nothing_overtakes_what_comes_again(
    emulator: MemoryEmulator,
) -> None:
    """H3: the first that is poisonous is tried again before anything behind it."""
    async with site_of(emulator, enable_message_ordering=True) as site:
        work = Work({3, 11})
        site.subscribe(work, bisect=True)
        publish(emulator, 20, key="a")
        await site.until(lambda: len(site.reports) == 3)
        assert work.through == [0, 1, 2]
        work.poison = set()
        await site.all_done()

        assert work.through == list(range(20))
