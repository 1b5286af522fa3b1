"""The examples that need Spark run, and say what they promise."""

from __future__ import annotations

import pytest

from tests.test_examples import WITH_SPARK, run


@pytest.mark.parametrize("name", WITH_SPARK)
def test_an_example_runs(name: str) -> None:
    said = run(name)

    assert all(line in said for line in WITH_SPARK[name]), said
