"""`pubsub-aio emulator`: a Pub/Sub server in memory, and what it has as a file."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pubsub_aio.cli.arguments import some_seconds
from pubsub_aio.cli.output import say

if TYPE_CHECKING:
    from pubsub_aio.emulator import Emulator, Seeded

_HOST = "PUBSUB_EMULATOR_HOST"
_PROJECTS = ("PUBSUB_PROJECT_ID", "GOOGLE_CLOUD_PROJECT")


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser's; returns its own parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "emulator",
        help="run a Pub/Sub server in memory",
        description="Run a Pub/Sub server in memory, gRPC and REST on one port, until it is "
        "interrupted. It has no credentials: whoever can reach it can use it.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument(
        "--port", type=_port, default=8085, help="port (%(default)s); 0 takes a free one"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="keep everything in this directory, so that it outlives the emulator",
    )
    parser.add_argument(
        "--seed",
        type=Path,
        metavar="FILE.yaml",
        help="topics, subscriptions and schemas that are there from the start",
    )
    parser.add_argument(
        "--stream-life",
        type=some_seconds,
        metavar="SECONDS",
        help="seconds after which a stream is ended (1,800)",
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
        "serviceAccount:EMAIL (%(default)s)",
    )
    parser.add_argument(
        "--quota",
        type=_quota,
        metavar="NAME=NUMBER",
        action="append",
        default=[],
        help="refuse what goes beyond a quota, such as publisher_throughput=1000000 (bytes a "
        "second) or administrator_operations=6000 (a minute); once for each",
    )
    parser.set_defaults(run=lambda options: asyncio.run(_run(options)))
    actions = parser.add_subparsers(title="actions", metavar="[ACTION]")
    _add_export(actions)
    return parser


def _add_export(actions: Any) -> None:
    parser = actions.add_parser(
        "export",
        help="write what a running emulator has as a file for --seed",
        description="Write the topics, subscriptions, schemas and IAM bindings that a running "
        "emulator has in a project as a file for --seed. Messages and snapshots are not in it.",
    )
    parser.add_argument(
        "--address", metavar="HOST:PORT", help=f"the emulator's, {_HOST} unless told"
    )
    parser.add_argument("--project", metavar="NAME", help=f"{' or '.join(_PROJECTS)} unless told")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="where to; standard output unless told"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log what goes on")
    parser.set_defaults(run=_export)


def _port(text: str) -> int:
    port = int(text) if text.isdecimal() else -1
    if not 0 <= port <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give a number from 0 to 65535")
    return port


def _quota(text: str) -> tuple[str, float]:
    from pubsub_aio.emulator import Quotas

    name, given, number = text.partition("=")
    if not given:
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=NUMBER")
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
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C raises KeyboardInterrupt
            loop.add_signal_handler(number, stop.set)
    try:
        async with _emulator(options) as emulator:
            if emulator.seeded:
                say(_told(options.seed, emulator.seeded))
            say(f"Pub/Sub emulator ready on {emulator.address} (gRPC and REST), Ctrl-C stops it")
            say(f"export {_HOST}={emulator.address}")
            if options.data_dir:
                say(f"everything is kept in {options.data_dir}")
            if options.enforce_iam:
                say(f"callers without the header x-emulator-principal are {options.principal}")
            await stop.wait()
    except OSError as error:
        reason = error.strerror or error
        where = f"{options.host}:{options.port}"
        say(f"cannot listen on {where}: {reason}; choose another with --host or --port")
        return 1
    say("Pub/Sub emulator stopped")
    return 0


def _emulator(options: argparse.Namespace) -> Emulator:
    """The emulator that was asked for."""
    from pubsub_aio.emulator import Emulator

    chosen: dict[str, Any] = {}
    if options.stream_life:
        chosen["stream_life"] = options.stream_life
    if options.quota:
        from pubsub_aio.emulator import Quotas

        chosen["quotas"] = Quotas(**dict(options.quota))
    emulator = Emulator(
        host=options.host,
        port=options.port,
        history=0,
        data_dir=options.data_dir,
        seed=options.seed,
        enforce_iam=options.enforce_iam,
        principal=options.principal,
        **chosen,
    )
    emulator.project = _project_around() or emulator.project
    return emulator


def _told(file: Path, seeded: Seeded) -> str:
    """What became of a seed file."""
    names = seeded.created + seeded.changed + seeded.unchanged
    there = [
        f"{len(some)} {what}"
        for some, what in ((seeded.changed, "changed"), (seeded.unchanged, "as they were"))
        if some
    ]
    suffix = f" ({len(seeded.created)} new, {', '.join(there)})" if there else ""
    return f"{file}: {_counted(names)} in {seeded.project}{suffix}"


def _counted(names: Sequence[str]) -> str:
    counts = Counter(name.split("/")[2] for name in names)
    kinds = ("topics", "subscriptions", "schemas")
    parts = [f"{counts[k]} {k[:-1] if counts[k] == 1 else k}" for k in kinds if counts[k]]
    return ", ".join(parts) or "nothing"


def _project_around() -> str:
    """The project that the environment names, if it does."""
    return next((os.environ[name] for name in _PROJECTS if os.environ.get(name)), "")


def _export(options: argparse.Namespace) -> int:
    from pubsub_aio.emulator import export_seed

    address = options.address or os.environ.get(_HOST)
    address = (address or "").removeprefix("http://").rstrip("/")
    if not address:
        say(f"no emulator is named: give its --address HOST:PORT, or set {_HOST}")
        return 1
    project = options.project or _project_around()
    if not project:
        say(f"no project is named: give --project NAME, or set {_PROJECTS[0]}")
        return 1
    export = export_seed(address, project)
    for line in export.left_out:
        say(f"left out: {line}")
    if not export.count:
        say(f"{address} has nothing in project {project}: is it the right one?")
        return 1
    try:
        if options.output is None:
            print(export.text, end="", flush=True)
        else:
            options.output.write_text(export.text, encoding="utf-8")
    except BrokenPipeError:
        raise
    except OSError as error:
        where = options.output or "to standard output"
        say(f"cannot write {where}: {error.strerror or error}; choose another with -o")
        return 1
    return 0
