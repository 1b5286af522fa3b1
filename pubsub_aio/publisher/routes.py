"""Which queue a message goes to, and on which terms."""

from __future__ import annotations

from collections.abc import Callable

from pubsub_aio._core.outgoing import Batch, Lane
from pubsub_aio._wire import names
from pubsub_aio.config import MAX_SECONDS, RetryPolicy, check
from pubsub_aio.errors import ConfigError, KeyPausedError
from pubsub_aio.publisher.flight import Flight, Terms
from pubsub_aio.publisher.options import UNSET, Options, Unset, check_retry
from pubsub_aio.publisher.queue import Queue

_MAX_LANES = 10_000
_MAX_TERMS = 1_000


class Routes:
    """Finds lanes and terms, and remembers the usual ones.

    Args:
        options: The publisher's.
        queue: Where the lanes are.
        project: The project of short names, if it is known.
        look_up: Called with the full name of each topic before anything is added to a lane of it;
            none if topics are not looked up.
    """

    def __init__(
        self,
        options: Options,
        queue: Queue,
        project: str | None,
        look_up: Callable[[str], None] | None,
    ) -> None:
        self._options = options
        self._queue = queue
        self._project = project
        self._look_up = look_up
        self._tidy_at = _MAX_LANES
        self._known_terms: dict[tuple[RetryPolicy | Unset | None, float | Unset | None], Terms] = {}
        self.usual = self._make_terms(UNSET, UNSET)
        """The terms of a message without any of its own."""
        self.lent: dict[str, Batch[Flight]] = {}
        """Open batches of messages on these terms and without an ordering key, by topics as given.
        They are added to as long as they are here."""

    def full_name(self, topic: str) -> str:
        """The full name of a topic."""
        return names.full_name(topic, "topics", self._project)

    def place(self, topic: str, ordering_key: str) -> tuple[str, str]:
        """The full name of a topic, and an ordering key that can be one.

        Raises:
            ConfigError: One of them cannot be.
        """
        if not isinstance(ordering_key, str):
            raise ConfigError(f"ordering_key must be a string, not {ordering_key!r}")
        return self.full_name(topic), ordering_key

    def lane(self, topic: str, ordering_key: str, terms: Terms) -> Lane[Flight]:
        """The lane of a message; add to it at once.

        Raises:
            ConfigError: There is none for such a message.
            KeyPausedError: It is paused.
        """
        name = self.full_name(topic)
        if ordering_key and not self._options.enable_message_ordering:
            raise ConfigError(
                "ordering_key: this publisher has enable_message_ordering=False; leave the key "
                "out, or enable it"
            )
        departures = self._queue.departures
        if len(departures) >= self._tidy_at:
            departures.forget_idle()
            self._tidy_at = max(_MAX_LANES, 2 * len(departures))
        if ordering_key and departures.all_paused:
            raise KeyPausedError(name, ordering_key, like_all=True)
        if self._look_up is not None:
            self._look_up(name)
        lane = departures.lane(name, ordering_key or "", terms)
        if lane.paused_by is not None:
            raise KeyPausedError(name, ordering_key) from lane.paused_by
        return lane

    def terms(self, retry: RetryPolicy | Unset | None, timeout: float | Unset | None) -> Terms:
        """The terms of a message, the same ones for the same arguments.

        Raises:
            ConfigError: They cannot be.
        """
        if retry is UNSET and timeout is UNSET:
            return self.usual
        try:
            terms = self._known_terms.get((retry, timeout))
        except TypeError:
            terms = None  # what cannot be looked up is refused below
        if terms is None:
            terms = self._make_terms(retry, timeout)
            if len(self._known_terms) >= _MAX_TERMS:
                self._known_terms.clear()
            self._known_terms[retry, timeout] = terms
        return terms

    def _make_terms(
        self, retry: RetryPolicy | Unset | None, timeout: float | Unset | None
    ) -> Terms:
        policy = self._options.retry if isinstance(retry, Unset) else retry
        limit = self._options.wait_timeout if isinstance(timeout, Unset) else timeout
        if limit is not None:
            check("timeout", limit, 0, MAX_SECONDS, above=True)
        check_retry(policy, limit)
        own_deadline = policy.deadline if policy is not None else None
        own_policy = not isinstance(retry, Unset) and isinstance(timeout, Unset)
        if own_deadline is not None and (limit is None or own_policy):
            limit = own_deadline
        return Terms(policy, limit, self._queue)
