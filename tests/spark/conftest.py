"""A Spark session, an emulator over the wire, and a sink."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pubsub_aio import SubscriberClient
from pubsub_aio.emulator import Emulator
from tests.spark.wire import BURIED, TOPIC, WORKER, Lake, client_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parent
TIMEOUT = 400
"""Seconds that a test may take: some start a JVM three times, which can be slow."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves sockets to the JVM open before 4.2, and uses distutils before 4.0."""
    ours = [item for item in items if item.path.is_relative_to(FOLDER)]
    for item in ours:
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMEOUT))
        for ignored in (
            "ignore:unclosed <socket:ResourceWarning:socket",
            "ignore:.*distutils:DeprecationWarning",
        ):
            item.add_marker(pytest.mark.filterwarnings(ignored))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of this process, as users get it."""
    from pubsub_aio.spark.sessions import session

    made = session()
    yield made
    made.stop()


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator() as running:
        running.create_subscription(WORKER, TOPIC)
        running.create_topic(BURIED)
        yield running


@pytest.fixture(params=["grpc", "rest"])
async def either_client(
    emulator: Emulator, request: pytest.FixtureRequest
) -> AsyncIterator[SubscriberClient]:
    async with client_of(emulator, transport=request.param) as client:
        yield client


@pytest.fixture
async def client(emulator: Emulator) -> AsyncIterator[SubscriberClient]:
    async with client_of(emulator) as client:
        yield client


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")
