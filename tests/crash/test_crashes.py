"""The source delivers exactly once; `nox -s crash` kills more often, and in more ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub_aio.emulator import EmulatorThread
from tests.crash.lives import Crashes, compare

PUBLISHED = {"1": "tea", "2": "soup"}
ROWS = [("1", "tea", 0), ("2", "soup", 1)]


@pytest.mark.timeout(500)
def test_each_message_is_in_the_sink_once_wherever_the_query_is_killed(tmp_path: Path) -> None:
    """H10: four kills, each at a point where something could be lost or doubled."""
    with EmulatorThread() as emulator:
        crashes = Crashes(tmp_path, emulator, share=500)
        crashes.driver_when_durable()
        crashes.driver_when_sealed()
        crashes.driver_between_sink_and_commit()
        crashes.fetch_task_when_durable()
        found = crashes.drain()

    assert compare(crashes.published, found) == []
    assert sum(crashes.kills.values()) >= 4
    assert crashes.duplicates >= 500  # of the segment that was durable and not acked


def test_what_is_as_published_is_right() -> None:
    assert compare(PUBLISHED, ROWS) == []


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (ROWS[:1], ["lost: 2"]),
        ([*ROWS, ("1", "tea", 2)], ["2 times: 1"]),
        ([*ROWS, ("3", "cake", 2)], ["never published: 3"]),
        ([ROWS[0], ("2", "tea", 1)], ["with other data: 2"]),
        ([ROWS[0], ("2", "soup", 0)], ["sequence 0 twice"]),
    ],
)
def test_what_is_lost_or_doubled_is_told(rows: list[tuple[str, str, int]], told: list[str]) -> None:
    assert compare(PUBLISHED, rows) == told
