"""Ack ids: which subscription, which delivery, which message, in 48 hex digits.

The width is fixed, so that a stored message can be framed before its ack id is known, and so that
thousands of ids are encoded or decoded in a few calls.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

from pubsub_aio.emulator.status import invalid

LENGTH = 48
_WORDS = 3


def encode(subscription: int, delivery: int, start: int, stop: int) -> list[bytes]:
    """The ids of one delivery of each message from `start` up to `stop`."""
    words = array("Q", (subscription, delivery, 0)) * (stop - start)
    words[2::_WORDS] = array("Q", range(start, stop))
    if sys.byteorder == "little":
        words.byteswap()
    digits = words.tobytes().hex().encode()
    return [digits[at : at + LENGTH] for at in range(0, len(digits), LENGTH)]


def decode(ids: Sequence[str], subscription: int) -> tuple[array[int], array[int]]:
    """The deliveries and offsets that `ids` stand for.

    Raises:
        StatusError: INVALID_ARGUMENT for an id that this subscription cannot have issued.
    """
    if not ids:
        return array("Q"), array("Q")
    try:
        words = array("Q", bytes.fromhex("".join(ids)))
        if len(words) != _WORDS * len(ids) or set(map(len, ids)) != {LENGTH}:
            raise ValueError
    except (ValueError, UnicodeError):
        raise _garbage(ids) from None
    if sys.byteorder == "little":
        words.byteswap()
    if words[::_WORDS].count(subscription) != len(ids):
        raise _garbage(ids, subscription)
    return words[1::_WORDS], words[2::_WORDS]


def delivery(epoch: int, issue: int) -> int:
    """How often the subscription was sought and the message delivered, in one number."""
    return (epoch << 32) + issue


def attempt(delivery: int) -> int:
    """How often the message had been delivered, from that number."""
    return delivery & 0xFFFF_FFFF


def _garbage(ids: Sequence[str], subscription: int | None = None) -> Exception:
    """An error that shows the first id that is wrong."""
    for ack_id in ids:
        try:
            words = bytes.fromhex(ack_id)
        except ValueError:
            break
        if len(ack_id) != LENGTH or len(words) != LENGTH // 2:
            break
        if subscription is not None and int.from_bytes(words[:8], "big") != subscription:
            break
    else:
        ack_id = ids[0]
    return invalid("ack_ids", f"{ack_id[:80]!r} was never issued for this subscription")
