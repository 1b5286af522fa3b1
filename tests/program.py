"""`pubsub-aio`, as tests run it in a process of its own."""

from __future__ import annotations

import sys

_PROGRAM = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("pubsub_aio", run_name="__main__")
"""
"""`python -m pubsub_aio`, which heeds Ctrl-C also where tests run in the background."""

PUBSUB_AIO = [sys.executable, "-c", _PROGRAM]
"""The beginning of a command line."""
