"""Notices that the process was forked: gRPC and sockets do not survive it."""

from __future__ import annotations

import os

from pubsub_aio.errors import ForkedError

_generation = 0
_grpc_used_in: int | None = None


def _forked() -> None:
    global _generation  # noqa: PLW0603 - what a fork hook can change is a module's state
    _generation += 1


if hasattr(os, "register_at_fork"):  # not on Windows, where there is no fork
    os.register_at_fork(after_in_child=_forked)


def using_grpc() -> None:
    """Be told that gRPC is used; it cannot be any more in a child of a process that has used it.

    Raises:
        ForkedError: Instead of the hang that would follow.
    """
    global _grpc_used_in  # noqa: PLW0603 - it is a matter of the process
    if _grpc_used_in is None:
        _grpc_used_in = _generation
    elif _grpc_used_in != _generation:
        raise ForkedError(
            "a client was opened before this process was forked, and gRPC works in the child no "
            "more: open clients after the fork only, or start the process by spawn"
        )


class ForkGuard:
    """Belongs to something that was opened in one process and must not be used in its child."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._made_in = _generation

    def check(self) -> None:
        """Raise in a child of the process that made it.

        Raises:
            ForkedError: Instead of the hang that would follow.
        """
        if self._made_in != _generation:
            raise ForkedError(
                f"this {self._what} was opened before a fork and cannot be used in the child "
                "process: open another after the fork"
            )
