"""Servers for jobs over the wire: ours, and Google's where it is found."""

from __future__ import annotations

from tests.subscriber_wire.conftest import (
    pytest_configure,
    pytest_generate_tests,
    site,
)

__all__ = ["pytest_configure", "pytest_generate_tests", "site"]
