"""`pubsub-aio dlq`: dead letters are listed, looked at, moved back and deleted."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from typing import Any

from pubsub_aio.cli import dlq_actions as actions
from pubsub_aio.cli.arguments import add_client, add_subscription, count, rate, some_seconds
from pubsub_aio.errors import ConfigError, MissingExtraError

_IDLE = 5.0  # seconds


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser's; returns its own parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "dlq",
        help="list, look at, move back or delete dead letters",
        description="Dead letters: messages that nobody could handle. It goes to "
        "PUBSUB_EMULATOR_HOST if that is set.",
    )
    kinds = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_list(kinds)
    _add_peek(kinds)
    _add_redrive(kinds)
    _add_purge(kinds)
    return parser


# Arguments


def _add_list(kinds: Any) -> None:
    parser = _add(kinds, "list", actions.list_them, "list the subscriptions that have dead letters")
    parser.description = (
        "List the subscriptions of the project that receive dead letters, and whose these are."
    )
    parser.add_argument(
        "--count",
        action="store_true",
        help=f"count what waits, up to {actions.MOST_COUNTED:,} each; no one else gets it then",
    )


def _add_peek(kinds: Any) -> None:
    parser = _add(kinds, "peek", actions.peek_at, "show messages, and leave them where they are")
    parser.description = (
        "Show messages of a subscription. They are given back at once; where the subscription "
        "counts deliveries, this is one."
    )
    add_subscription(parser)
    _add_filter(parser)
    parser.add_argument(
        "--limit", type=count, default=10, metavar="N", help="how many, %(default)s unless told"
    )
    parser.add_argument("--data", action="store_true", help="show all data, not only its beginning")


def _add_redrive(kinds: Any) -> None:
    parser = _add(
        kinds, "redrive", actions.redrive_them, "move dead letters to a topic, to be tried again"
    )
    parser.description = (
        "Move dead letters to a topic, where they are worked on once more. Each is published "
        "first and acknowledged then: none is lost, whenever this is interrupted."
    )
    add_subscription(parser)
    parser.add_argument(
        "--to",
        metavar="TOPIC",
        help="where to; for a queue of this library, back to that queue unless told",
    )
    _add_filter(parser)
    parser.add_argument("--limit", type=count, metavar="N", help="move so many at most")
    parser.add_argument("--rate", type=rate, metavar="R", help="move so many a second at most")
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be moved")
    parser.add_argument(
        "--yes", action="store_true", help="do not ask, even if several subscriptions get them"
    )


def _add_purge(kinds: Any) -> None:
    parser = _add(kinds, "purge", actions.purge_them, "delete messages, for good")
    parser.description = "Delete messages of a subscription, for good."
    add_subscription(parser)
    _add_filter(parser)
    parser.add_argument("--limit", type=count, metavar="N", help="delete so many at most")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _add(
    kinds: Any, name: str, run: Callable[[argparse.Namespace], int], what: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = kinds.add_parser(name, help=what)
    add_client(parser)
    parser.add_argument(
        "--idle",
        type=some_seconds,
        default=_IDLE,
        metavar="SECONDS",
        help="for how long nothing must come until it counts as empty, %(default)g s unless told",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        default=argparse.SUPPRESS,
        help="log what goes on",
    )
    parser.set_defaults(run=lambda options: _checked(parser, options, run))
    return parser


def _add_filter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--filter",
        metavar="F",
        help="which, in Pub/Sub's filter language: 'attributes.kind = \"tea\"'; all unless told",
    )


def _checked(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    run: Callable[[argparse.Namespace], int],
) -> int:
    """Run an action; arguments that cannot be end it before."""
    from pubsub_aio.jobs.sifting import matcher
    from pubsub_aio.subscriber.client import SubscriberClient

    try:
        client = SubscriberClient(options.project, transport=options.transport)
        if hasattr(options, "subscription"):
            options.subscription = client.subscription_name(options.subscription)
    except ConfigError as error:
        parser.error(str(error))
    try:
        if getattr(options, "to", None) is not None:
            options.to = client.topic_name(options.to)
    except ConfigError as error:
        parser.error(f"--to: {str(error).removeprefix('topic: ')}")
    try:
        matcher(getattr(options, "filter", None))
    except ConfigError as error:
        parser.error(f"--filter: {str(error).removeprefix('where: ')}")
    try:
        import rich as _  # noqa: F401 - it is needed by all of them
    except ImportError as error:
        raise MissingExtraError("pubsub-aio dlq", "cli") from error
    if not options.verbose:  # what matters is said here
        logging.disable()
    try:
        return run(options)
    except ConfigError as error:
        named = f"--{error}" if str(error).startswith("to: ") else str(error)
        raise ConfigError(named) from error
