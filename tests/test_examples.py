"""The examples run, and say what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SAYS = {
    "demo.py": ["published      10,000", "received       10,000", "lost                0"],
    "faults.py": ["nobody knows it", "the publisher knows it"],
    "worker.py": ["served poison, delivery 2", "stopped, 0 left behind"],
    "virtual_time.py": ["delivery 1 at 00:00", "delivery 2 at 00:10", "delivery 6 at 00:50"],
}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_runs(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    for line in SAYS[name]:
        assert line in ran.stdout
