"""The small version of `nox -s durability`."""

from pathlib import Path

import pytest

from tests.durability.lives import Lives


@pytest.mark.timeout(300)
async def test_nothing_is_lost_comes_back_or_overtakes_when_the_server_is_killed(
    tmp_path: Path,
) -> None:
    lives = Lives(tmp_path / "data", seed=7)
    for _ in range(4):
        await lives.live()
    wrong = await lives.drain()

    assert wrong == []
    assert all(traffic.record.acked for traffic in lives.traffic)
