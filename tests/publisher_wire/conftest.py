"""Servers to publish to over the wire: ours, and Google's where it is found."""

from __future__ import annotations

from typing import Unpack

from pubsub_aio import PublisherClient, PublisherOptions
from tests.subscriber_wire.conftest import (
    Site,
    pytest_configure,
    pytest_generate_tests,
    site,
)

__all__ = ["publisher_of", "pytest_configure", "pytest_generate_tests", "site"]


def publisher_of(site: Site, **options: Unpack[PublisherOptions]) -> PublisherClient:
    """A publisher that takes the test's transport to its server."""
    return PublisherClient(
        site.project, transport=site.transport, endpoint=f"http://{site.address}", **options
    )
