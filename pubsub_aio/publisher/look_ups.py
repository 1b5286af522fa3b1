"""Topics that are looked up before the first message to them departs."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator

from pubsub_aio._core.departures import Departures
from pubsub_aio.errors import PubSubError
from pubsub_aio.publisher.flight import Flight
from pubsub_aio.publisher.raising import bare
from pubsub_aio.publisher.topics import Topics

log = logging.getLogger("pubsub_aio.publisher")

_MAX_AT_ONCE = 100


class LookUps:
    """Holds back what goes to a topic until something is known of it.

    Args:
        topics: What is known.
        departures: Where messages wait.
        refused: Called with a topic that cannot be published to, and why.
        news: Called when something may go on.
    """

    def __init__(
        self,
        topics: Topics,
        departures: Departures[Flight],
        *,
        refused: Callable[[str, BaseException], None],
        news: Callable[[], None],
    ) -> None:
        self._topics = topics
        self._departures = departures
        self._refused = refused
        self._news = news
        self._wanted: deque[str] = deque()
        self._pending: set[str] = set()
        self._running = 0

    def want(self, topic: str) -> None:
        """Have a topic looked up that is not known."""
        if topic in self._topics.known or topic in self._pending:
            return
        self._departures.block(topic)
        self._pending.add(topic)
        self._wanted.append(topic)
        self._news()

    def due(self) -> Iterator[Coroutine[object, None, None]]:
        """What is to be done now, each in a task of its own."""
        while self._wanted and self._running < _MAX_AT_ONCE:
            self._running += 1
            yield self._look_up(self._wanted.popleft())

    async def _look_up(self, topic: str) -> None:
        refusal = None
        try:
            await self._topics.learn(topic)
        except Exception as error:
            if not isinstance(error, PubSubError):
                log.exception("%s could not be looked up", topic)
            refusal = bare(error)
        finally:
            self._running -= 1
            self._pending.discard(topic)
        if refusal is None:
            self._departures.unblock(topic)
        else:
            self._refused(topic, refusal)
        self._news()
