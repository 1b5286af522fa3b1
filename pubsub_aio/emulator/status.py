"""How the service says no: a canonical code, a message, and sometimes details."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple


class Code(IntEnum):
    """The canonical status codes, by their numbers on the wire."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


_MAX_MESSAGE = 400


class Info(NamedTuple):
    """Why something was refused, for programs; sent as an ErrorInfo."""

    reason: str
    domain: str
    metadata: Mapping[str, str]


class StatusError(Exception):
    """A request is refused, or a stream is ended.

    Attributes:
        code: The canonical code.
        message: What is wrong, naming the field, and what to do about it.
        ack_errors: For each ack id that failed, why; sent as an ErrorInfo.
        retry_delay: Seconds to wait before a retry; sent as a RetryInfo.
        info: Why, for programs.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        ack_errors: Mapping[str, str] | None = None,
        retry_delay: float | None = None,
        info: Info | None = None,
    ) -> None:
        # A refusal may quote what was sent, but gRPC limits how much of it can be sent back.
        message = message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}..."
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.ack_errors = dict(ack_errors or {})
        self.retry_delay = retry_delay
        self.info = info


def invalid(field: str, why: str) -> StatusError:
    """The request's `field` is not acceptable."""
    return StatusError(Code.INVALID_ARGUMENT, f"{field}: {why}")


def not_found(name: str) -> StatusError:
    """There is no resource of that name."""
    return StatusError(Code.NOT_FOUND, f"Resource not found (resource={name}).")


def already_exists(name: str) -> StatusError:
    """The name is taken."""
    return StatusError(Code.ALREADY_EXISTS, f"Resource already exists (resource={name}).")
