"""The `pubsub-aio` command: argument parsing and printing."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Sequence

from pubsub_aio import __version__
from pubsub_aio.cli import dlq, emulator, ingest
from pubsub_aio.cli.output import say
from pubsub_aio.errors import PubSubError

_INTERRUPTED = 130  # as shells tell of SIGINT
_NOBODY_READS = 141  # and of SIGPIPE, which ends others whose output goes to `head`


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(levelname)s %(message)s")
    if options.verbose:
        logging.getLogger("pubsub_aio").setLevel(logging.DEBUG)
    try:
        return _status_of(options)
    except BrokenPipeError:
        _write_no_more()
        return _NOBODY_READS


def _status_of(options: argparse.Namespace) -> int:
    try:
        with contextlib.suppress(KeyboardInterrupt):
            status: int = options.run(options)
            sys.stdout.flush()  # here it can be told that nobody reads it
            return status
    except PubSubError as error:
        say(f"pubsub-aio: {error}")
        return 1
    return _INTERRUPTED


def _write_no_more() -> None:
    """Let go of what could not be written: it would be tried again at the end of the program."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pubsub-aio", description="Google Pub/Sub for asyncio.")
    parser.add_argument("--version", action="version", version=f"pubsub-aio {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (emulator, ingest, dlq):
        added = command.add_to(commands)
        added.add_argument("-v", "--verbose", action="store_true", help="log what goes on")
    return parser
