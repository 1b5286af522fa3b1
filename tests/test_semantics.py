"""The page of the seed's rows is true: each has a test, and the test names it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "semantics.md"
LINE = re.compile(r"^\| ([A-Z]\d+) \| .+ \| `(.+)::(.+)` \|$", re.MULTILINE)
ROWS = LINE.findall(PAGE.read_text())
BUILT = [
    *(f"B{n}" for n in range(1, 25)),
    *(f"G{n}" for n in range(1, 31)),
    *(f"M{n}" for n in range(1, 31)),
    *(f"P{n}" for n in range(1, 14)),
    # What holds for subscriber and publisher has a line for each.
    *(f"R{n}" for n in range(1, 7) for _ in range(2)),
    *(f"R{n}" for n in range(7, 36)),
]


def test_every_row_that_is_built_is_on_the_page() -> None:
    assert [row for row, _, _ in ROWS] == BUILT


@pytest.mark.parametrize(("row", "file", "test"), ROWS)
def test_the_test_of_a_row_names_it(row: str, file: str, test: str) -> None:
    functions = {
        node.name: ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse((TESTS / file).read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert row in rows_named(functions[test].split(":")[0])


def rows_named(text: str) -> set[str]:
    """The rows that a docstring begins with: single ones, and ranges such as G1-G7."""
    named = set()
    for letter, first, last in re.findall(r"\b([A-Z])(\d+)(?:\s*(?:-|to)\s*[A-Z]?(\d+))?", text):
        named |= {f"{letter}{n}" for n in range(int(first), int(last or first) + 1)}
    return named
