"""The futures of message ids, of flights that have not landed and of those that have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Never, Self


class Ack(asyncio.Future[str]):
    """A future of a flight, which is kept alive by it as soon as somebody waits. The library's own.

    Args:
        held: Where it is held then.
        loop: The publisher's.
    """

    def __init__(self, held: list[Ack], loop: asyncio.AbstractEventLoop | None) -> None:
        super().__init__(loop=loop)
        self._held = held

    def add_done_callback(
        self, fn: Callable[[Self], object], /, *, context: Context | None = None
    ) -> None:
        """Have something called when it is done, as whoever awaits it does."""
        if not self.done():
            self._held.append(self)
        super().add_done_callback(fn, context=context)


class KnownAck(asyncio.Future[str]):
    """A future of a flight that has landed: done from the beginning. The library's own.

    To whoever has it, it is like any other that is done. But asyncio's constructor, which prepares
    for all that may happen to a future, is left out, since nothing will: there is one for each
    message, and it would make each 7 % dearer to publish.
    """

    __slots__ = ("_loop", "_result")

    __init__ = object.__init__

    # Debuggers and the like look at these.
    _loop: asyncio.AbstractEventLoop
    _result: str
    _state = "FINISHED"
    _exception = None
    _callbacks = None  # type: ignore[assignment] # as it is of one that is done
    _log_traceback = False

    def __await__(self) -> Generator[Never, None, str]:
        return self._result
        yield  # type: ignore[unreachable] # which makes it a generator

    __iter__ = __await__

    def result(self) -> str:
        """The message id."""
        return self._result

    def exception(self) -> None:
        """None: it was published."""

    def done(self) -> bool:
        """Yes."""
        return True

    def cancelled(self) -> bool:
        """No."""
        return False

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - as asyncio has it
        """It is too late for that."""
        return False

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The publisher's."""
        return self._loop

    def add_done_callback(
        self, fn: Callable[[Self], object], /, *, context: Context | None = None
    ) -> None:
        """Have something called in the loop's next turn."""
        self._loop.call_soon(fn, self, context=context)

    def remove_done_callback(self, fn: Callable[[Self], object], /) -> int:  # noqa: ARG002
        """None is there."""
        return 0

    def set_result(self, result: str, /) -> Never:  # noqa: ARG002
        """It has one."""
        raise asyncio.InvalidStateError("invalid state")

    def set_exception(self, exception: object, /) -> Never:  # noqa: ARG002
        """It has a result."""
        raise asyncio.InvalidStateError("invalid state")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} finished result={self._result!r}>"
