"""Who wants to know what becomes of messages."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Generic, TypeVar

from pubsub_aio.message import Confirmation, Told

M = TypeVar("M")


class Fates(Generic[M]):
    """Tells who has asked, once, what became of a message. It belongs to its loop.

    It has no more entries than messages are held.
    """

    def __init__(self) -> None:
        self._told: dict[M, Told] = {}

    def watch(self, message: M, told: Told) -> None:
        """Have somebody told what becomes of a message that is held."""
        before = self._told.get(message)
        self._told[message] = told if before is None else _both(before, told)

    def tell(self, messages: Iterable[M], *, acked: bool) -> None:
        """These were acked, or are to come again."""
        if not self._told:
            return
        for message in messages:
            if (told := self._told.pop(message, None)) is not None:
                told(acked)

    def tell_when_confirmed(self, message: M, confirmation: Confirmation) -> None:
        """A message is acked, which counts when the server has confirmed it."""
        if (told := self._told.pop(message, None)) is not None:
            confirmation.add_done_callback(functools.partial(_tell_answer, told))


def _tell_answer(told: Told, done: Future[None]) -> None:
    told(done.exception() is None)


def _both(first: Told, second: Told) -> Told:
    def told(acked: bool) -> None:  # noqa: FBT001 - as they are told
        first(acked)
        second(acked)

    return told
