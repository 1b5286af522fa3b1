"""What tests of every part have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulator.conformance import google_emulator


@pytest.fixture(scope="session")
def google_address() -> Iterator[str]:
    """Where Google's emulator listens: one process for the whole session."""
    if google_emulator.command() is None:
        pytest.skip("Google's emulator is not installed")
    with google_emulator.running() as address:
        yield address
