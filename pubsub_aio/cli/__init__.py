"""The `pubsub-aio` command: argument parsing and printing."""

from __future__ import annotations

import argparse
import contextlib
import logging
from collections.abc import Sequence

from pubsub_aio import __version__
from pubsub_aio.cli import dlq, emulator, ingest
from pubsub_aio.cli.output import say
from pubsub_aio.errors import PubSubError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(levelname)s %(message)s")
    if options.verbose:
        logging.getLogger("pubsub_aio").setLevel(logging.DEBUG)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            status: int = options.run(options)
            return status
    except PubSubError as error:
        say(f"pubsub-aio: {error}")
        return 1
    return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pubsub-aio", description="Google Pub/Sub for asyncio.")
    parser.add_argument("--version", action="version", version=f"pubsub-aio {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (emulator, ingest, dlq):
        added = command.add_to(commands)
        added.add_argument("-v", "--verbose", action="store_true", help="log what goes on")
    return parser
