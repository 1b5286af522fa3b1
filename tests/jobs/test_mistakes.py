"""Workers and jobs that cannot be are refused by name."""

from __future__ import annotations

import pytest

from pubsub_aio import ConfigError
from pubsub_aio.jobs import JobWorker, job_attributes
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.conftest import (
    shop,
)
from tests.subscriber.conftest import virtual

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"drop_timeout": 0}, "drop_timeout must be more than 0"),
        ({"undecodable": "ignore"}, "undecodable must be 'dead_letter' or 'discard'"),
        ({"decode": 7}, "decode must be a function"),
        ({"on_drop": lambda: None}, "on_drop must take a job"),
        ({"on_give_up": lambda _: None}, "on_give_up must take a job and an error"),
        ({"retries": 3}, "retries: there is no such option; there are concurrency"),
        ({"policy": {"max_attempts": 3}}, "policy must be a JobPolicy"),
        ({"clock": 12.0}, "clock must be a function"),
        ({"ensure": lambda: None}, "ensure must be an async function without arguments"),
        ({"fifo": "yes"}, "fifo must be a bool"),
        ({"dead_letter_topic": "x"}, "dead_letter_topic: must have at least 3 characters"),
        ({"dead_letter_topic": "a b c"}, "dead_letter_topic: must begin with a letter"),
        ({"dead_letter_topic": "projects/p/subscriptions/s"}, "topic: must be NAME or"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options: dict[str, object], names: str) -> None:
    given = {"dead_letter_topic": "dead", **options}

    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        async with shop(emulator) as it:
            with pytest.raises(ConfigError, match=names):
                JobWorker(it.publisher, **given)  # type: ignore[arg-type]

    scenario()


@virtual
async def test_a_handler_that_cannot_be_called_so_is_refused(emulator: MemoryEmulator) -> None:
    async with shop(emulator) as it:
        with pytest.raises(ConfigError, match="handler must take a job and nothing else"):
            it.queue.worker()(lambda: None)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"persistent": False}, "ttl: a job that is not persistent needs one"),
        ({"persistent": "no"}, "persistent must be True or False"),
        ({"ttl": -1}, "ttl must be at least 0"),
        ({"ttl": "2"}, "ttl must be a number"),
        ({"job_id": ""}, "job_id must be a string that is not empty"),
        ({"attributes": {"expires_at": "1"}}, "attributes: 'expires_at' is set by"),
        ({"attributes": {"pubsub_aio_error": "1"}}, "'pubsub_aio_error' is set on dead letters"),
        ({"attributes": {"pubsub_aio_job_id": "1"}}, "attributes: 'pubsub_aio_job_id' is set by"),
    ],
)
def test_a_job_that_cannot_be_is_refused_by_name(settings: dict[str, object], names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        job_attributes(**settings)  # type: ignore[arg-type]
