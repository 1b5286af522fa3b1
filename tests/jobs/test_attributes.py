"""The attributes of a job: what there is room for, and what is refused."""

from __future__ import annotations

import asyncio

import pytest

from pubsub_aio import ConfigError
from pubsub_aio.jobs import JobPolicy, job_attributes
from pubsub_aio.subscriber.dead_letters import ERROR, SOURCE
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.conftest import DEAD_LETTERS, Performer, fails, shop
from tests.subscriber.conftest import virtual


def many(count: int) -> dict[str, str]:
    return {f"a{n}": "v" for n in range(count)}


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"attributes": 5}, "attributes must be a dict of strings, not 5"),
        ({"attributes": [("a", "b")]}, "attributes must be a dict of strings"),
        ({"clock": 5}, "clock must be a function that tells the seconds since 1970, not 5"),
    ],
)
def test_what_cannot_be_is_refused_by_name(settings: dict[str, object], names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        job_attributes(**settings)  # type: ignore[arg-type]


def test_attributes_that_leave_room_for_ours_are_taken() -> None:
    assert len(job_attributes(many(88))) == 89
    assert len(job_attributes(many(86), persistent=False, ttl=2)) == 89


def test_attributes_that_leave_no_room_for_ours_are_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"attributes: must be 88 at most, not 89: the service takes 100, of which .* take 1 "
        "here, and 11 are kept for when the job becomes a dead letter",
    ):
        job_attributes(many(89))
    with pytest.raises(
        ConfigError, match=r"attributes: must be 86 at most, not 87: .* take 3 here"
    ):
        job_attributes(many(87), persistent=False, ttl=2)


@virtual
async def test_the_notes_of_a_dead_letter_fit_beside_as_many_as_are_taken(
    emulator: MemoryEmulator,
) -> None:
    policy = JobPolicy(max_attempts=1)
    async with shop(emulator, policy=policy) as it:
        await it.queue.put(b"bad", attributes=many(86), persistent=False, ttl=1_000)
        async with it.working(Performer(fails)):
            await asyncio.sleep(1)

        (letter,) = emulator.messages(DEAD_LETTERS)
        assert many(86).items() <= letter.attributes.items()
        assert ERROR in letter.attributes
        assert sum(name.startswith(SOURCE) for name in letter.attributes) == 4
