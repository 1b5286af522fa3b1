"""`pubsub-aio emulator`: a Pub/Sub server in memory."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from typing import Any

from pubsub_aio.cli.output import say


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser's; returns its own parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "emulator",
        help="run a Pub/Sub server in memory",
        description="Run a Pub/Sub server in memory, gRPC and REST on one port, until it is "
        "interrupted. It has no credentials: whoever can reach it can use it.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=_port, default=8085, help="port; 0 takes a free one")
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        default=argparse.SUPPRESS,
        help="keep everything in this directory, so that it outlives the emulator",
    )
    parser.set_defaults(run=lambda options: asyncio.run(_run(options)))
    return parser


def _port(text: str) -> int:
    port = int(text) if text.isdecimal() else -1
    if not 0 <= port <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give a number from 0 to 65535")
    return port


async def _run(options: argparse.Namespace) -> int:
    from pubsub_aio.emulator import Emulator

    host, port = options.host, options.port
    data_dir = getattr(options, "data_dir", None)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C raises KeyboardInterrupt
            loop.add_signal_handler(number, stop.set)
    try:
        async with Emulator(host=host, port=port, history=0, data_dir=data_dir) as emulator:
            say(f"Pub/Sub emulator ready on {emulator.address} (gRPC and REST), Ctrl-C stops it")
            say(f"export PUBSUB_EMULATOR_HOST={emulator.address}")
            await stop.wait()
    except OSError as error:
        reason = error.strerror or error
        say(f"cannot listen on {host}:{port}: {reason}; choose another with --host or --port")
        return 1
    say("Pub/Sub emulator stopped")
    return 0
