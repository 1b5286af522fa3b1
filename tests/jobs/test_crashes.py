"""A worker that is killed, at any moment: no job is lost, and a duplicate is recognisable."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from pubsub_aio import Deduplicator
from pubsub_aio.jobs import SAME_JOB, Job, JobPolicy, JobQueue
from pubsub_aio.testing import MemoryEmulator, run_scenario
from tests.jobs.conftest import DEAD_LETTERS, NOTHING_LEFT, shop
from tests.jobs.mortal import Life, MortalTransport

pytestmark = pytest.mark.usefixtures("quiet")

POLICY = JobPolicy(max_attempts=2, max_resurrections=1)
CALLED = ("called", "answered")
ROUNDS = {("bad", 0), ("bad", 1), ("good", 0)}


@dataclass
class Story:
    """What became of three jobs: one succeeds, one always fails, one has expired."""

    tries: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How often each round of each job was tried."""
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each job was done, given up or dropped."""
    left: dict[str, int] = field(default_factory=dict)
    letters: int = 0
    tries_of_the_killed: Counter[tuple[str, int]] = field(default_factory=Counter)
    passed: list[str] = field(default_factory=list)
    killed: bool = False


class Worker:
    """Performs jobs, for as long as its process lives, and writes down what it did."""

    def __init__(self, story: Story, life: Life | None = None) -> None:
        self._story = story
        self._life = life

    async def check(self) -> None:
        if self._life is not None:
            await self._life.check()

    async def perform(self, job: Job) -> None:
        await self.check()
        self._story.tries[job.id, job.resurrections] += 1
        await asyncio.sleep(0.1)
        await self.check()
        if job.id == "bad":
            raise ValueError("it cannot be done")
        self._story.ended[job.id, "done"] += 1

    async def on_drop(self, job: Job) -> None:
        await self.check()
        self._story.ended[job.id, "dropped"] += 1

    async def on_give_up(self, job: Job, _: Exception) -> None:
        await self.check()
        self._story.ended[job.id, "given up"] += 1

    async def work(self, queue: JobQueue, *, dedupe: Deduplicator | None = None) -> None:
        await queue.work(
            self.perform, wrap=dedupe, on_drop=self.on_drop, on_give_up=self.on_give_up
        )


def story_of(*lives: int, dedupe: bool = False) -> Story:
    """What happens if workers are killed at these moments, one after another.

    In the end one takes over that is not killed; it may know duplicates.
    """
    story = Story()

    async def scenario(emulator: MemoryEmulator) -> None:
        async with shop(emulator, policy=POLICY) as it:
            await it.queue.put(b"1", job_id="good")
            await it.queue.put(b"2", job_id="bad")
            await it.queue.put(b"3", job_id="old", persistent=False, ttl=0)
            await asyncio.sleep(0.1)
            for lasts in lives:
                life = Life(lasts)
                await live(emulator, story, life)
                story.passed, story.killed = life.passed, life.over.is_set()
            story.tries_of_the_killed = Counter(story.tries)
            seen = Deduplicator(SAME_JOB) if dedupe else None
            await end_after(60, Worker(story).work(it.queue, dedupe=seen))
            story.left = it.left()
            story.letters = len(emulator.messages(DEAD_LETTERS))

    run_scenario(scenario)
    return story


async def live(emulator: MemoryEmulator, story: Story, life: Life) -> None:
    """Work until the end of a life, or for a minute."""

    async def process() -> None:
        ways = [MortalTransport(emulator.transport(), life) for _ in range(2)]
        async with shop(emulator, transport=ways[0], publishing=ways[1], policy=POLICY) as it:
            await Worker(story, life).work(it.queue)

    running = asyncio.ensure_future(process())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            await life.over.wait()
    for _ in range(3):  # it has no chance to clean up anything, for nothing passes any more
        running.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([running])


async def end_after(seconds: float, work: object) -> None:
    """Let somebody work for a while."""
    working = asyncio.ensure_future(work)  # type: ignore[call-overload]
    await asyncio.sleep(seconds)
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    """Of every life, from the shortest to the one that lasts until all is done."""
    found: list[Story] = []
    while not found or found[-1].killed:
        assert len(found) < 1_000
        found.append(story_of(len(found)))
    return found


def check(story: Story) -> None:
    """All jobs have ended as they should, and nothing else was tried."""
    assert story.left == NOTHING_LEFT
    assert story.ended.keys() == {("good", "done"), ("bad", "given up"), ("old", "dropped")}
    assert story.tries.keys() == ROUNDS


def test_without_a_kill_each_job_ends_once(stories: list[Story]) -> None:
    """B21, H8: a job that fails is tried as often as the policy says, and no more."""
    last = stories[-1]

    assert last.tries == {("good", 0): 1, ("bad", 0): 2, ("bad", 1): 2}
    assert last.ended == {("good", "done"): 1, ("bad", "given up"): 1, ("old", "dropped"): 1}
    assert last.letters == 1


def test_whenever_a_worker_is_killed_no_job_is_lost(stories: list[Story]) -> None:
    """H1, H8: before and after each call to the server, and whatever is under way."""
    for story in stories:
        check(story)
    # It was killed at the moments that matter.
    ends = {story.passed[-1] for story in stories}
    assert {f"{rpc} is {done}" for rpc in ("Publish", "Acknowledge") for done in CALLED} <= ends


def test_a_kill_repeats_no_more_than_a_round(stories: list[Story]) -> None:
    """B13, B21: the counter is the worker's, so a round that was cut off begins anew."""
    for story in stories:
        assert story.tries["bad", 0] <= 2 * POLICY.max_attempts
        assert story.tries["bad", 1] <= 2 * 2 * POLICY.max_attempts
        assert story.tries["good", 0] <= 2


def test_killed_between_dead_letter_and_ack_a_job_is_there_twice_and_known(
    stories: list[Story],
) -> None:
    """B17: published first, then acked. Both copies are the same round, which can be seen."""
    twice = [lasts for lasts, story in enumerate(stories) if story.letters == 2]
    assert twice
    for lasts in twice:
        known = story_of(lasts, dedupe=True)
        tried = known.tries - known.tries_of_the_killed

        check(known)
        assert tried["bad", 1] == POLICY.max_attempts
        assert known.ended["bad", "given up"] == 1


@pytest.mark.parametrize("seed", range(8))
def test_several_kills_in_a_row_lose_nothing(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - it draws moments
    check(story_of(*(chance.randrange(25, 60) for _ in range(4))))
