"""What the docs show is true: programs and tests run as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


def test_the_tutorial_runs_as_it_stands(tmp_path: Path) -> None:
    service, *tests = blocks("tutorial.md")
    (tmp_path / "orders.py").write_text(service)
    (tmp_path / "test_orders.py").write_text("\n\n".join(tests))

    said = run_pytest(tmp_path)

    assert "4 passed" in said, said


@pytest.mark.parametrize(
    ("page", "count"),
    [
        ("test-in-virtual-time.md", 2),
        ("test-permissions-and-quotas.md", 2),
        ("test-with-pytest.md", 1),
    ],
)
def test_tests_that_are_shown_whole_pass(tmp_path: Path, page: str, count: int) -> None:
    """Those that import what they use."""
    whole = [
        block
        for block in blocks(f"how-to/{page}")
        if re.match(r"import .*def test_", block, re.DOTALL)
    ]
    for number, block in enumerate(whole):
        (tmp_path / f"test_{number}.py").write_text(block)

    said = run_pytest(tmp_path)

    assert f"{count} passed" in said, said


def blocks(page: str) -> list[str]:
    """The Python code of a page."""
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def run_pytest(folder: Path) -> str:
    """What pytest says of the tests in a folder."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return ran.stdout
