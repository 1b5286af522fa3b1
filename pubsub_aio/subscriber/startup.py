"""What is checked before a subscription begins, so that a mistake is told at once."""

from __future__ import annotations

from pubsub_aio._wire import schema
from pubsub_aio._wire.transport import Transport
from pubsub_aio.errors import Check, ConfigError, ReconnectError, ServiceError, StartupError
from pubsub_aio.subscriber.reconnect import ANSWER_TIMEOUT, FATAL, call_patiently

REMEDIES = {
    "NOT_FOUND": "check the project and the name, or create it",
    "PERMISSION_DENIED": "grant roles/pubsub.subscriber on the subscription to these credentials",
    "UNAUTHENTICATED": "the credentials are missing, expired or not accepted",
    "FAILED_PRECONDITION": "the subscription cannot be pulled from as it is",
    "UNIMPLEMENTED": "the server does not know this call; is the endpoint a Pub/Sub server?",
}

STEPS = ("credentials", "server reached", "subscription exists", "may consume")
"""What is checked, in this order."""


class Startup:
    """Checks a subscription, and remembers what was found.

    Args:
        transport: By which way.
        subscription: Its full name.
        timeout: Seconds within which an unreachable server is tried again.
    """

    def __init__(self, transport: Transport, subscription: str, *, timeout: float) -> None:
        self.checks: list[Check] = []
        self.found: schema.Subscription | None = None
        """What the server says of the subscription, if it may be asked."""
        self._transport = transport
        self._subscription = subscription
        self._timeout = timeout

    async def run(self) -> None:
        """Check everything that can be checked without a stream.

        Raises:
            StartupError: It is no use to go on.
        """
        try:
            await self._transport.open()
        except ConfigError as error:
            self._fail("credentials", str(error), error)
        self.checks.append(Check("credentials", "ok"))
        try:
            self.found = await self._get()
        except ServiceError as error:
            self._judge_get(error)
            return
        self.checks.append(Check("server reached", "ok"))
        self.checks.append(Check("subscription exists", "ok", self.found.topic))
        if self.found.detached:
            self._fail("subscription is attached", "it was detached from its topic; create another")

    async def look(self) -> schema.Subscription:
        """Ask the server for the subscription, once."""
        data = await self._transport.call(
            "GetSubscription", self._request(), timeout=ANSWER_TIMEOUT
        )
        return schema.Subscription.FromString(data)

    def _request(self) -> bytes:
        request = schema.GetSubscriptionRequest(subscription=self._subscription)
        return request.SerializeToString()

    async def _get(self) -> schema.Subscription:
        """Ask for the subscription; again and again while the server cannot be reached."""
        data = await call_patiently(
            self._transport, "GetSubscription", self._request(), timeout=self._timeout
        )
        return schema.Subscription.FromString(data)

    def _judge_get(self, error: ServiceError) -> None:
        """Tell a refusal that does not matter from one that does."""
        if error.code == "PERMISSION_DENIED":
            # Consuming needs less than looking; who may only consume must not be stopped.
            self.checks.append(Check("server reached", "ok"))
            self.checks.append(
                Check(
                    "subscription exists",
                    "warning",
                    "not known, pubsub.subscriptions.get is not granted; settings are taken from "
                    "the stream",
                )
            )
        elif error.code in FATAL:
            self.checks.append(Check("server reached", "ok"))
            remedy = REMEDIES.get(error.code)
            self._fail("subscription exists", f"{error}; {remedy}" if remedy else str(error), error)
        else:
            self._fail(
                "server reached",
                f"{error}; tried for {self._timeout:g} s. Is the endpoint right, and the network?",
                error,
            )

    def refused(self, error: ServiceError | ReconnectError) -> StartupError:
        """The error for a stream that was refused, or could not be opened in time."""
        code = error.code if isinstance(error, ServiceError) else ""
        remedy = REMEDIES.get(code, "see the cause")
        self.checks.append(Check("may consume", "failed", f"{error}; {remedy}"))
        failed = StartupError(self._subscription, self.checks)
        failed.__cause__ = error
        return failed

    def _fail(self, name: str, detail: str, error: Exception | None = None) -> None:
        self.checks.append(Check(name, "failed", detail))
        done = [check.name for check in self.checks]
        self.checks += [Check(each, "not reached") for each in STEPS if each not in done]
        raise StartupError(self._subscription, self.checks) from error
