"""The start of Google's emulator, on a machine where ports are in demand."""

import socket

import pytest

from tests.emulator.conformance import google_emulator
from tests.emulator.conformance.rest import Rest


@pytest.mark.skipif(google_emulator.command() is None, reason="needs Google's emulator")
def test_an_emulator_that_lost_its_port_is_started_on_another() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with google_emulator.running(port=port) as address:
            assert address != f"127.0.0.1:{port}"
            assert Rest(address, timeout=10).put("projects/p-1/topics/topic", {}).status == 200
