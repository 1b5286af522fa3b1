"""The `pubsub-aio` command: argument parsing and printing."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Sequence

from pubsub_aio import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(levelname)s %(message)s")
    if options.verbose:
        logging.getLogger("pubsub_aio").setLevel(logging.DEBUG)
    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(_emulator(options.host, options.port))
    return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pubsub-aio", description="Google Pub/Sub for asyncio.")
    parser.add_argument("--version", action="version", version=f"pubsub-aio {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    emulator = commands.add_parser(
        "emulator",
        help="run a Pub/Sub server in memory",
        description="Run a Pub/Sub server in memory, gRPC and REST on one port, until it is "
        "interrupted. It has no credentials: whoever can reach it can use it.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    emulator.add_argument("--host", default="127.0.0.1", help="address to listen on")
    emulator.add_argument("--port", type=_port, default=8085, help="port; 0 takes a free one")
    emulator.add_argument("-v", "--verbose", action="store_true", help="log what goes on")
    return parser


def _port(text: str) -> int:
    port = int(text) if text.isdecimal() else -1
    if not 0 <= port <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give a number from 0 to 65535")
    return port


async def _emulator(host: str, port: int) -> int:
    from pubsub_aio.emulator import Emulator

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C raises KeyboardInterrupt
            loop.add_signal_handler(number, stop.set)
    try:
        async with Emulator(host=host, port=port, history=0) as emulator:
            _say(f"Pub/Sub emulator ready on {emulator.address} (gRPC and REST), Ctrl-C stops it")
            _say(f"export PUBSUB_EMULATOR_HOST={emulator.address}")
            await stop.wait()
    except OSError as error:
        reason = error.strerror or error
        _say(f"cannot listen on {host}:{port}: {reason}; choose another with --host or --port")
        return 1
    _say("Pub/Sub emulator stopped")
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
