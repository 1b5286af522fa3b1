"""The tutorial is true: its programs and its tests run as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TUTORIAL = Path(__file__).parent.parent / "docs" / "tutorial.md"


def test_the_tutorial_runs_as_it_stands(tmp_path: Path) -> None:
    service, *tests = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    (tmp_path / "orders.py").write_text(service)
    (tmp_path / "test_orders.py").write_text("\n\n".join(tests))

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert "4 passed" in ran.stdout, ran.stdout
