"""`pubsub-aio emulator`: a Pub/Sub server in memory."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import signal
from typing import Any

from pubsub_aio.cli.arguments import some_seconds
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
        "--stream-life",
        type=some_seconds,
        metavar="SECONDS",
        default=argparse.SUPPRESS,
        help="seconds after which a stream is ended, 1,800 unless told",
    )
    parser.add_argument(
        "--enforce-iam",
        action="store_true",
        help="refuse calls for which the caller lacks a permission",
    )
    parser.add_argument(
        "--principal",
        metavar="NAME",
        default="owner",
        help="who a caller is that does not say it by the header x-emulator-principal, such as "
        "serviceAccount:EMAIL",
    )
    parser.add_argument(
        "--quota",
        type=_quota,
        metavar="NAME=NUMBER",
        action="append",
        default=argparse.SUPPRESS,
        help="refuse what goes beyond a quota, such as publisher_throughput=1000000 (bytes a "
        "second) or administrator_operations=6000 (a minute); once for each",
    )
    parser.set_defaults(run=lambda options: asyncio.run(_run(options)))
    return parser


def _port(text: str) -> int:
    port = int(text) if text.isdecimal() else -1
    if not 0 <= port <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give a number from 0 to 65535")
    return port


def _quota(text: str) -> tuple[str, float]:
    from pubsub_aio.emulator import Quotas

    name, _, number = text.partition("=")
    name = name.replace("-", "_")
    known = [field.name for field in dataclasses.fields(Quotas)]
    if name not in known:
        raise argparse.ArgumentTypeError(f"{name!r} is no quota; choose from {', '.join(known)}")
    try:
        value = int(number) if number.isdecimal() else float(number)
        Quotas(**{name: value})  # type: ignore[arg-type]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
    return name, value


async def _run(options: argparse.Namespace) -> int:
    from pubsub_aio.emulator import Emulator, Quotas

    host, port = options.host, options.port
    chosen: dict[str, Any] = {}
    if "stream_life" in options:
        chosen["stream_life"] = options.stream_life
    if "quota" in options:
        chosen["quotas"] = Quotas(**dict(options.quota))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C raises KeyboardInterrupt
            loop.add_signal_handler(number, stop.set)
    try:
        async with Emulator(
            host=host,
            port=port,
            history=0,
            enforce_iam=options.enforce_iam,
            principal=options.principal,
            **chosen,
        ) as emulator:
            say(f"Pub/Sub emulator ready on {emulator.address} (gRPC and REST), Ctrl-C stops it")
            say(f"export PUBSUB_EMULATOR_HOST={emulator.address}")
            await stop.wait()
    except OSError as error:
        reason = error.strerror or error
        say(f"cannot listen on {host}:{port}: {reason}; choose another with --host or --port")
        return 1
    say("Pub/Sub emulator stopped")
    return 0
