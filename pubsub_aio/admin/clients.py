"""Google's generated clients: their requests from our arguments, our errors from theirs.

Importing `google.pubsub_v1` takes a third of a second, so this is imported when a client opens.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

import grpc.aio
from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError
from google.pubsub_v1 import PublisherAsyncClient, SchemaServiceAsyncClient, SubscriberAsyncClient
from google.pubsub_v1 import types as google_types
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.schema_service.transports import SchemaServiceGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
from google.rpc.error_details_pb2 import RetryInfo

from pubsub_aio._wire.transport import service_error
from pubsub_aio.errors import ClosedError, ConfigError, ServiceError

Answer = TypeVar("Answer")
Made = TypeVar("Made")

_NO_ANSWER = ("CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "UNKNOWN")
"""Codes that are made up on this side, where the service said nothing."""


class ListRequest(Protocol):
    """A request for a page of something."""

    page_token: str


class GoogleClients:
    """The clients of the three services over one channel.

    Attributes:
        closed: Whether the channel is closed, or being closed.
    """

    types = google_types

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.publisher = PublisherAsyncClient(
            transport=PublisherGrpcAsyncIOTransport(channel=channel)
        )
        self.subscriber = SubscriberAsyncClient(
            transport=SubscriberGrpcAsyncIOTransport(channel=channel)
        )
        self.schemas = SchemaServiceAsyncClient(
            transport=SchemaServiceGrpcAsyncIOTransport(channel=channel)
        )
        self.closed = False

    async def call(
        self, method: Callable[..., Awaitable[Answer]], request: object, *, timeout: float
    ) -> Answer:
        """Make a call of one of the clients, with its retries, within `timeout` seconds."""
        _check_timeout(timeout)
        before = sys.exception()
        try:
            # Theirs limits an attempt; what is tried again would go on for a minute.
            async with asyncio.timeout(timeout):
                return await method(request=request, timeout=timeout)
        except asyncio.CancelledError:
            # A channel that is closed cancels whoever waits for its calls.
            if self.closed and not _being_cancelled():
                raise ClosedError("the client was closed during the call") from None
            raise
        except grpc.aio.UsageError as error:  # it was closed between two attempts
            raise ClosedError("the client was closed during the call") from error
        except (GoogleAPIError, TimeoutError) as error:
            ours = _our_error(error, before, timeout)
            if self.closed and ours.code in _NO_ANSWER:
                raise ClosedError("the client was closed during the call") from error
            raise ours from error

    def make(self, kind: type[Made], settings: Mapping[str, object], **fixed: object) -> Made:
        """A message of Google's: `settings` are the caller's, `fixed` fields are ours.

        Raises:
            ConfigError: A setting is not known, or its value is not one.
        """
        allowed = [field for field in _fields(kind) if field not in fixed]
        for name in settings:
            if name not in allowed:
                raise ConfigError(
                    f"{name}: not a setting of {kind.__name__}; these are: {', '.join(allowed)}"
                )
            _make(kind, {name: settings[name]}, name)
        return _make(kind, {**settings, **fixed}, kind.__name__)


def _check_timeout(timeout: float) -> None:
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not 0 < timeout < math.inf:
        raise ConfigError(f"timeout: must be a number of seconds above 0, not {timeout!r}")


def _fields(kind: type[object]) -> Mapping[str, object]:
    """The fields of one of Google's types, by name."""
    fields: Mapping[str, object] = kind.meta.fields  # type: ignore[attr-defined]
    return fields


def _make(kind: type[Made], fields: Mapping[str, object], blame: str) -> Made:
    try:
        return kind(fields)  # type: ignore[call-arg]
    except KeyError as error:  # the name of an enum's value
        choices = getattr(_fields(kind).get(blame), "enum", None)
        known = f"; these are: {', '.join(choices.__members__)}" if choices else ""
        raise ConfigError(f"{blame}: {error} is not known{known}") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"{blame}: {str(error).rpartition('Underlying error: ')[2]}") from error


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _our_error(error: BaseException, before: BaseException | None, timeout: float) -> ServiceError:
    """A failure as one of ours; `before` is what the caller was handling when it made the call."""
    failure = _failure(error, before)
    if failure is None:
        return service_error("DEADLINE_EXCEEDED", f"no answer within {timeout:g} s")
    code = failure.grpc_status_code.name if failure.grpc_status_code else "UNKNOWN"
    tried = "" if failure is error else f" (tried again for {timeout:g} s)"
    return service_error(code, f"{failure.message}{tried}", retry_delay=_retry_delay(failure))


def _failure(error: BaseException, before: BaseException | None) -> GoogleAPICallError | None:
    """The service's refusal in a chain of errors.

    A retry waits while it handles the refusal. When its time is over during the wait, that refusal
    is only to be found in the context of the cancellation.
    """
    link: BaseException | None = error
    while link is not None and link is not before:
        if isinstance(link, GoogleAPICallError):
            return link
        link = link.__cause__ or link.__context__
    return None


def _retry_delay(failure: GoogleAPICallError) -> float | None:
    """The seconds after which the service invites another try, from its status or our transport."""
    for detail in failure.details:
        if isinstance(detail, RetryInfo):
            return detail.retry_delay.ToNanoseconds() / 1e9
    rpc_error = failure.__cause__
    ours = rpc_error.__cause__ if rpc_error is not None else None
    return ours.retry_delay if isinstance(ours, ServiceError) else None
