"""A session that knows the source and the sink, an emulator beside the test, and a query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pubsub_aio.emulator import EmulatorThread
from tests.spark.wire import TOPIC, WORKER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.streaming.drivers import Clock
    from tests.spark.streaming.queries import Query


@pytest.fixture(scope="session")
def session(spark: SparkSession) -> SparkSession:
    from pubsub_aio.spark import PubSubAioDataSource, PubSubDataSource

    spark.dataSource.register(PubSubDataSource)
    spark.dataSource.register(PubSubAioDataSource)
    return spark


@pytest.fixture
def emulator() -> Iterator[EmulatorThread]:
    """One beside the thread of the test, which waits for Spark."""
    with EmulatorThread() as running:
        running.create_subscription(WORKER, TOPIC)
        yield running


@pytest.fixture
def query(session: SparkSession, emulator: EmulatorThread, tmp_path: Path) -> Query:
    from tests.spark.streaming.queries import Query

    return Query(session, emulator, tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """That of the silence."""
    from pubsub_aio.spark.streaming import intake
    from tests.spark.streaming.drivers import Clock

    made = Clock()
    monkeypatch.setattr(intake, "time", made)
    return made
