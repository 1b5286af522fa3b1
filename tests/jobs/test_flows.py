"""An hour of the seed's two flows, in virtual time: what becomes of every job is counted."""

from __future__ import annotations

import logging
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pubsub_aio.emulator.clock import START
from pubsub_aio.jobs import Job
from pubsub_aio.testing import run_scenario
from tests.subscriber.conftest import now

EXAMPLES = Path(__file__).parents[2] / "examples"
HOUR = 3_600
ON_ITS_WAY = 0.25
"""Seconds that a message, an ack and a return take together, at the most."""


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """To write down what fails in an hour takes longer than the hour."""
    caplog.set_level(logging.CRITICAL, logger="pubsub_aio")


def example(name: str) -> dict[str, Any]:
    """What an example is made of."""
    return runpy.run_path(str(EXAMPLES / name))


def run_an_hour(parts: dict[str, Any], jobs: Any) -> None:
    run_scenario(lambda emulator: parts["in_memory"](emulator, jobs, HOUR))


def test_an_hour_of_basic_jobs() -> None:
    """B2-B6, B8, B12: a job a second, each takes four; what has expired is dropped, never begun.

    Who is free takes the first job that is still worth something, which one is for two seconds and
    no longer. So one in four is performed.
    """
    parts = example("basic_jobs.py")
    jobs = parts["BasicJobs"](say=lambda _: None)
    began: list[float] = []
    perform = jobs.perform

    async def noting(job: Job) -> None:
        began.append(now())
        await perform(job)

    jobs.perform = noting
    run_an_hour(parts, jobs)

    assert jobs.put == HOUR
    assert jobs.dropped == sorted({*range(HOUR)} - {*jobs.performed})
    assert (len(jobs.performed), len(jobs.dropped)) == (901, 2_699)
    assert jobs.backlog <= 6  # one is performed, and what came in those four seconds waits
    expected, free_at = -1, 0.0
    for at, number in zip(began, jobs.performed, strict=True):
        assert 0 <= at - free_at < ON_ITS_WAY
        # The first that has not expired; a job has the number of the second when it was put.
        expected = next(each for each in range(expected + 1, HOUR) if not at > each + 2)
        assert (number, number <= at) == (expected, True)
        free_at = at + 4


def test_an_hour_of_persistent_jobs() -> None:
    """B9-B21: which are dropped, which are tried how often, and when."""
    parts = example("persistent_jobs.py")
    jobs = parts["PersistentJobs"](say=lambda _: None)
    run_an_hour(parts, jobs)

    counters = set(range(1, HOUR + 1))
    bad = {counter for counter in counters if counter % 10 == 1}
    # The worker begins after 5.5 seconds: of what may be dropped, 2 and 4 have expired by then.
    assert jobs.dropped == [2, 4]
    assert Counter(jobs.performed) == Counter(counters - bad - {2, 4})
    assert Counter(jobs.given_up) == Counter(bad)
    waits = [0, 2, 6, 9, 11, 15, 18, 20, 24, 27, 29, 33]
    for counter in bad:
        begins = max(5.5, counter - 1)
        due = [begins + wait for wait in waits]
        tried = [at - START for at in jobs.tries[counter]]
        assert len(tried) == len(due)
        assert all(0 <= at - by < ON_ITS_WAY for at, by in zip(tried, due, strict=True)), tried
    assert {len(jobs.tries[counter]) for counter in counters - bad - {2, 4}} == {1}
