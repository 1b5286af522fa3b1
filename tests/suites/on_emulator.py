"""A pytest plugin: Google's own tests, on an emulator of ours.

It is a process of its own, as one of the tests counts the sockets of its process.
"""

import importlib
import os
import subprocess
import sys
from typing import Any

import google.auth
import pytest
from google.auth.credentials import AnonymousCredentials

_PROJECT = "suites"


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # workers inherit the address
        _start(config)
    anonymous = AnonymousCredentials()  # type: ignore[no-untyped-call]
    google.auth.default = lambda *_, **__: (anonymous, _PROJECT)
    for service, name in (("publisher", "Publisher"), ("subscriber", "Subscriber")):
        _speak_http(service, f"{name}RestTransport")


def _start(config: pytest.Config) -> None:
    command = [sys.executable, "-m", "pubsub_aio", "emulator", "--port", "0"]
    emulator = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def stop() -> None:
        emulator.terminate()
        emulator.communicate()  # and closes what it wrote to

    config.add_cleanup(stop)
    for line in emulator.stderr or ():
        if line.startswith("export PUBSUB_EMULATOR_HOST="):
            os.environ["PUBSUB_EMULATOR_HOST"] = line.strip().partition("=")[2]
            return
    raise RuntimeError("the emulator did not start")


def _speak_http(service: str, transport: str) -> None:
    """Let Google's client reach an emulator over REST.

    With PUBSUB_EMULATOR_HOST it hands every transport a gRPC channel, which the one for REST does
    not take, and that one would speak HTTPS.
    """
    kind = getattr(
        importlib.import_module(f"google.pubsub_v1.services.{service}.transports.rest"), transport
    )
    original = kind.__init__

    def without_channel(self: Any, *, channel: Any = None, **given: Any) -> None:
        del channel
        original(self, **{**given, "url_scheme": "http"})

    kind.__init__ = without_channel
