"""The examples run, and say what they promise; those with Spark are run with the tests of Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SAYS = {
    "basic_jobs.py": ["put 60, performed 16, dropped 44", "never more than 6 waiting"],
    "faults.py": ["nobody knows it", "the publisher knows it"],
    "persistent_jobs.py": [
        *("put 60, performed 52, dropped 2", "given up 6, after attempts: 12"),
    ],
    "publisher.py": [
        *("soup: published at attempt 3", "bread: NoResponseFromTopicError"),
        *("tea: not taken, 'table 7' is paused", "in order: soup, bread, tea"),
    ],
    "worker.py": ["served poison, delivery 2", "stopped, 0 left behind"],
    "virtual_time.py": ["delivery 1 at 00:00", "delivery 2 at 00:10", "delivery 6 at 00:50"],
}
ARGUMENTS = {
    "basic_jobs.py": ["--virtual", "60"],  # an hour of both is in tests/jobs/test_flows.py
    "persistent_jobs.py": ["--virtual", "60"],
}
WITH_SPARK = {
    "demo.py": [
        *("published     50,000", "rows          60,000", "lost               0"),
        *("duplicated    10,000", "once each     50,000", "|bread|        16667|   58334.5|"),
        *("killed with SIGKILL", "duplicated         0"),
    ],
    "streaming.py": ["orders in the files: 1,000"],
    "spark_sink.py": ["rows in the lake: 200, each once", "refused: 1", "b'not an order'"],
}


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == SAYS.keys() | WITH_SPARK.keys()


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs(name: str) -> None:
    said = run(name)

    assert all(line in said for line in SAYS[name]), said


def run(name: str) -> str:
    """What an example prints."""
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *ARGUMENTS.get(name, [])],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
