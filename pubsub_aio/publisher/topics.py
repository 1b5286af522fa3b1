"""What is known of topics: looked up once, before the first message to one departs."""

from __future__ import annotations

import asyncio
import logging
import random

from pubsub_aio._core import backoff
from pubsub_aio._wire import schema
from pubsub_aio.errors import (
    Check,
    ConfigError,
    InvalidRequestError,
    NotFoundError,
    ServiceError,
    StartupError,
)
from pubsub_aio.publisher.sites import SILENT, Sites

log = logging.getLogger("pubsub_aio.publisher")

MAX_KNOWN = 10_000
"""Topics that are remembered."""

MAY_PUBLISH = "pubsub.topics.publish"

_NAME_IT_RIGHT = (
    "correct the name: 3 to 255 letters, digits or any of -_.~+%, the first a letter, and not "
    "beginning with goog; the project's may be wrong as well"
)
_ANSWER_TIMEOUT = 5.0
_FIRST_DELAY, _MAX_DELAY = 0.1, 5.0


class Topics:
    """The topics of a publisher, as the server describes them.

    Args:
        sites: Whom to ask.
    """

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self.known: dict[str, schema.Topic | None] = {}
        """What the server says of each topic that was looked up; none if it may not be asked."""

    def forget(self, topic: str) -> None:
        """Look it up again next time."""
        self.known.pop(topic, None)

    async def learn(self, topic: str) -> None:
        """Look a topic up.

        Who may only publish may not look, and a server that does not answer now may answer the
        publish, or not: neither says anything of the topic.

        Raises:
            NotFoundError: There is none.
            InvalidRequestError: There cannot be one of that name.
        """
        try:
            found = await self._get(topic)
        except (NotFoundError, InvalidRequestError) as error:
            missing = isinstance(error, NotFoundError)
            create = "create the topic first, with AdminClient().create_topic()"
            error.add_note(create if missing else _NAME_IT_RIGHT)
            self.forget(topic)
            raise
        except ServiceError as error:
            log.debug("%s cannot be looked up: %s", topic, error)
            found = None
        self._remember(topic, found)

    def _remember(self, topic: str, found: schema.Topic | None) -> None:
        if len(self.known) >= MAX_KNOWN:
            del self.known[next(iter(self.known))]
        self.known[topic] = found

    async def refresh(self, interval: float) -> None:
        """Look all of them up again now and then, until cancelled."""
        while True:
            await asyncio.sleep(interval)
            for topic in list(self.known):
                try:
                    self.known[topic] = await self._get(topic)
                except NotFoundError:
                    self.forget(topic)
                except Exception as error:  # noqa: BLE001 - it is looked up again later
                    log.warning("%s cannot be looked up: %s", topic, error)

    async def _get(self, topic: str) -> schema.Topic:
        request = schema.GetTopicRequest(topic=topic).SerializeToString()
        return schema.Topic.FromString(await self._ask("GetTopic", request, topic))

    async def _ask(self, rpc: str, request: bytes, topic: str) -> bytes:
        """Ask one endpoint after another until one answers."""
        tried: list[int] = []
        while True:
            site = self._sites.endpoints.choose(tried)
            try:
                reply = await self._sites.transports[site].call(
                    rpc, request, timeout=_ANSWER_TIMEOUT
                )
            except ServiceError as error:
                tried.append(site)
                self._sites.failed(site, error, topic)
                if error.code not in SILENT or len(tried) >= len(self._sites):
                    raise
            else:
                self._sites.answered(site)
                return reply

    # Before the publisher begins

    async def check(self, topics: list[str], *, timeout: float) -> list[Check]:
        """Look at everything that a publisher needs.

        Raises:
            StartupError: It is no use to begin.
        """
        checks: list[Check] = []
        try:
            await self._sites.open()
        except ConfigError as error:
            checks.append(Check("credentials", "failed", str(error)))
            raise _failed(topics, checks) from error
        checks.append(Check("credentials", "ok"))
        for topic in topics:
            await self._check(topic, checks, topics, timeout=timeout)
        for site in sorted(self._sites.endpoints.isolated):
            name = self._sites.names[site]
            checks.append(Check(name, "warning", "it does not answer, others are used"))
        return checks

    async def _check(
        self, topic: str, checks: list[Check], topics: list[str], *, timeout: float
    ) -> None:
        name = f"{topic} exists"
        try:
            self._remember(topic, await self._patiently(topic, timeout))
            checks.append(Check(name, "ok"))
        except ServiceError as error:
            if error.code == "PERMISSION_DENIED":
                checks.append(Check(name, "warning", "not known, pubsub.topics.get is not granted"))
                self._remember(topic, None)
            else:
                checks.append(Check(name, "failed", f"{error}; {_remedy(error, timeout)}"))
                raise _failed(topics, checks) from error
        await self._check_permission(topic, checks, topics)

    async def _patiently(self, topic: str, timeout: float) -> schema.Topic:
        """Look a topic up; again and again while nobody answers, for that many seconds."""
        loop = asyncio.get_running_loop()
        ends_at, failures = loop.time() + timeout, 0
        while True:
            try:
                return await self._get(topic)
            except ServiceError as error:
                failures += 1
                chance = random.random()  # noqa: S311 - it spreads load, it guards nothing
                wait = backoff.delay(failures, first=_FIRST_DELAY, most=_MAX_DELAY, chance=chance)
                wait = max(wait, error.retry_delay or 0.0)
                if error.code not in SILENT or loop.time() + wait >= ends_at:
                    raise
                await asyncio.sleep(wait)

    async def _check_permission(self, topic: str, checks: list[Check], topics: list[str]) -> None:
        name = f"may publish to {topic}"
        request = schema.TestIamPermissionsRequest(resource=topic, permissions=[MAY_PUBLISH])
        try:
            reply = await self._ask("TestIamPermissions", request.SerializeToString(), topic)
        except ServiceError as error:
            checks.append(Check(name, "warning", f"not known, {error}"))
            return
        if MAY_PUBLISH in schema.TestIamPermissionsResponse.FromString(reply).permissions:
            checks.append(Check(name, "ok"))
            return
        remedy = "grant roles/pubsub.publisher on the topic to these credentials"
        checks.append(Check(name, "failed", remedy))
        raise _failed(topics, checks)


def _remedy(error: ServiceError, timeout: float) -> str:
    if error.code == "NOT_FOUND":
        return "check the project and the name, or create it with AdminClient().create_topic()"
    if error.code == "INVALID_ARGUMENT":
        return _NAME_IT_RIGHT
    if error.code in SILENT:
        return f"tried for {timeout:g} s. Is the endpoint right, and the network?"
    return "see the cause"


def _failed(topics: list[str], checks: list[Check]) -> StartupError:
    done = {check.name for check in checks}
    steps = [step for topic in topics for step in (f"{topic} exists", f"may publish to {topic}")]
    checks += [Check(step, "not reached") for step in steps if step not in done]
    return StartupError(", ".join(topics) or "topics", checks, action="publish to")
