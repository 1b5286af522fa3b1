"""Sends a batch: attempt after attempt, from one endpoint to the next, until its fate is known."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import cast

from pubsub_aio._core.attempts import FLOW_CONTROL, Again, Attempts
from pubsub_aio._core.compression import pays
from pubsub_aio._core.outgoing import Batch, Lane
from pubsub_aio._wire import publishing
from pubsub_aio._wire.transport import CompressingTransport, service_error
from pubsub_aio.config import CALL_TIMEOUT, RetryPolicy
from pubsub_aio.errors import (
    InvalidRequestError,
    KeyPausedError,
    NoResponseFromTopicError,
    PublishTimeoutError,
    ServiceError,
)
from pubsub_aio.publisher.flight import Flight, Terms
from pubsub_aio.publisher.raising import bare
from pubsub_aio.publisher.sites import Sites
from pubsub_aio.publisher.traces import Traces

log = logging.getLogger("pubsub_aio.publisher")

MAX_REFUSED = 10
"""Messages of a batch that are looked for one by one when the service refuses the batch."""

SILENCE = "DEADLINE_EXCEEDED"

Fate = list[str] | BaseException
"""The message ids of a batch, or why there are none."""

Landing = tuple[Batch[Flight], Fate]


class Sending:
    """Sends batches.

    Args:
        sites: Where to.
        compress_above: Bytes from which on compression is considered; none for never.
        parted: Told when a batch is parted in two: the new one, which goes first, and the other.
        landed: Told what became of a batch, or part of one, and of those that it took with it.
        sent: Told of the lane of an ordering key when nothing of it is on its way any more.
        traces: Note it too, if there are any.
    """

    def __init__(
        self,
        sites: Sites,
        *,
        compress_above: int | None,
        parted: Callable[[Batch[Flight], Batch[Flight]], None],
        landed: Callable[[Sequence[Landing]], None],
        sent: Callable[[Lane[Flight]], None],
        traces: Traces | None,
    ) -> None:
        self._sites = sites
        self._traces = traces
        self._compress_above = compress_above
        self._parted = parted
        self._landed = landed
        self._sent = sent

    async def send(self, batch: Batch[Flight]) -> None:
        """Send a batch to its end; when it is refused, those of its messages that are not."""
        lane, waiting = batch.lane, [batch]
        try:
            await self._send(waiting)
        except Exception as error:
            log.exception("%s: a batch could not be sent", lane.topic)
            fate = bare(error)
            self._landed([(left, fate) for left in reversed(waiting)])
        if lane.ordering_key:
            self._sent(lane)

    async def _send(self, waiting: list[Batch[Flight]]) -> None:
        """Send batches, the last one first, until none waits."""
        loop, refused = asyncio.get_running_loop(), 0
        while waiting:
            batch = waiting[-1]
            if batch.error is not None:  # it has timed out, and is not sent any more
                waiting.pop()
                continue
            fate = await self._fate(batch)
            if isinstance(fate, InvalidRequestError):
                in_time = batch.error is None and loop.time() < batch.ends_at
                if len(batch) > 1 and refused < MAX_REFUSED and in_time:
                    first = batch.split((len(batch) + 1) // 2)
                    self._parted(first, batch)
                    waiting.append(first)
                    continue
                refused += 1
            waiting.pop()
            landings: list[Landing] = [(batch, fate)]
            if isinstance(fate, BaseException) and batch.lane.ordering_key:
                # What follows must not overtake it.
                paused = KeyPausedError(batch.lane.topic, batch.lane.ordering_key)
                paused.__cause__ = fate
                landings += ((left, paused) for left in reversed(waiting))
                waiting.clear()
            self._landed(landings)

    async def _fate(self, batch: Batch[Flight]) -> Fate:
        """The message ids of a batch, or why there are none."""
        try:
            return await self._attempt(batch)
        except Exception as error:
            if not isinstance(error, ServiceError | PublishTimeoutError):
                log.exception("%s: a batch could not be sent", batch.lane.topic)
            return bare(error)

    async def _attempt(self, batch: Batch[Flight]) -> list[str]:
        loop = asyncio.get_running_loop()
        terms = batch.options
        assert isinstance(terms, Terms)  # noqa: S101 - tells the type checker
        topic, key = batch.lane.topic, batch.lane.ordering_key
        attempts = Attempts(terms.retry, ends_at=batch.ends_at)
        endpoints = self._sites.endpoints
        tried: list[int] = []
        while True:
            site = self._sites.of_key(key) if key else endpoints.choose(tried)
            untried = 1 if key else endpoints.untried(tried)
            began = loop.time()
            try:
                timeout = _attempt_timeout(terms, left=batch.ends_at - began, untried=untried)
                return await self._traced_call(batch, site, timeout)
            except asyncio.CancelledError:
                self._blame(batch, site, seconds=loop.time() - began)
                raise
            except ServiceError as error:
                batch.trouble = bare(error)
                if error.code != FLOW_CONTROL:  # who asks to wait is asked again
                    tried.append(site)
                self._sites.failed(site, error, topic)
                verdict = attempts.failed(
                    error.code,
                    error.retry_delay,
                    untried=not key and endpoints.untried(tried) > 0,
                    now=loop.time(),
                    chance=random.random(),  # noqa: S311 - it spreads load, it guards nothing
                )
                # A flight that has timed out meanwhile is not sent again.
                if batch.error is not None or not isinstance(verdict, Again):
                    no_time = not isinstance(verdict, Again) and verdict.why == "no time"
                    raise _final(batch, error, no_time=no_time) from error
                await asyncio.sleep(verdict.wait)
                if batch.error is not None:
                    raise

    def _blame(self, batch: Batch[Flight], site: int, *, seconds: float) -> None:
        """An attempt ended without an answer; if it had time enough, its endpoint is silent."""
        late = batch.error
        if isinstance(late, PublishTimeoutError) and seconds >= late.seconds / 2:
            silence = service_error(SILENCE, f"no answer for {seconds:g} s")
            self._sites.failed(site, silence, batch.lane.topic)

    async def _traced_call(self, batch: Batch[Flight], site: int, timeout: float) -> list[str]:
        if self._traces is None:
            return await self._call(batch, site, timeout)
        request = self._traces.sent(batch)
        try:
            ids = await self._call(batch, site, timeout)
        except BaseException as error:
            self._traces.answered(request, batch, error)
            raise
        self._traces.answered(request, batch, ids)
        return ids

    async def _call(self, batch: Batch[Flight], site: int, timeout: float) -> list[str]:
        batch.attempts += 1
        transport = self._sites.transports[site]
        request = publishing.request(batch.lane.topic, batch.wires)
        least = self._compress_above
        if least is not None and transport.can.compression and len(request) >= least:
            smaller = cast("CompressingTransport", transport)
            reply = await smaller.call("Publish", request, timeout=timeout, compress=pays(request))
        else:
            reply = await transport.call("Publish", request, timeout=timeout)
        self._sites.answered(site)
        ids = publishing.message_ids(reply, len(batch.wires))
        if ids is None:
            raise service_error("DATA_LOSS", "the answer does not fit the messages")
        return ids


def _attempt_timeout(terms: Terms, *, left: float, untried: int) -> float:
    """Seconds for one attempt.

    A flight's own time is not kept by this: that of an attempt is longer, so that what happens to a
    message of an ordering key after its time is still known. But where silence is worth another
    attempt, and there are several endpoints, each of them has its share of the time.

    Args:
        terms: Those of the batch.
        left: Seconds that are left of the flight's time.
        untried: Endpoints that were not tried yet.
    """
    policy: RetryPolicy | None = terms.retry
    most = CALL_TIMEOUT if terms.timeout is None else left + terms.timeout
    if policy is None:
        return most
    if untried > 1 and SILENCE in policy.codes:
        most = min(most, left / untried)
    if policy.attempt_timeout is None:
        return most
    return policy.attempt_timeout if terms.timeout is None else min(policy.attempt_timeout, most)


def _final(batch: Batch[Flight], error: ServiceError, *, no_time: bool) -> Exception:
    """What the attempts come to in the end."""
    topic = batch.lane.topic
    if no_time:
        seconds = batch.ends_at - (batch.published_at or 0.0)
        return PublishTimeoutError(topic, seconds=seconds, attempts=batch.attempts)
    if error.code == "UNAVAILABLE":
        return NoResponseFromTopicError(topic, error.message, attempts=batch.attempts)
    return error
