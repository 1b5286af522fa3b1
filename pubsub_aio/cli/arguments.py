"""Arguments that more than one command takes."""

from __future__ import annotations

import argparse
import math


def add_client(parser: argparse.ArgumentParser) -> None:
    """Add those by which a client is made."""
    parser.add_argument("--project", metavar="NAME", help="project of short names")
    parser.add_argument(
        "--transport", choices=("grpc", "rest"), default="grpc", help="grpc unless told"
    )


def add_subscription(parser: argparse.ArgumentParser) -> None:
    """Add the name of a subscription."""
    parser.add_argument("subscription", metavar="SUBSCRIPTION", help="name, full or short")


def count(text: str) -> int:
    """A number of messages."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of messages: give 1 or more")
    return number


def seconds(text: str) -> float:
    """A number of seconds, zero or more."""
    number = _number(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def some_seconds(text: str) -> float:
    """A number of seconds, and not zero."""
    return _positive(text, "seconds")


def rate(text: str) -> float:
    """A number of messages a second."""
    return _positive(text, "messages a second")


def _positive(text: str, what: str) -> float:
    number = _number(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of {what} above 0")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
