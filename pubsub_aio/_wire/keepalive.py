"""When a gRPC connection that has fallen silent is given up."""

from __future__ import annotations

from dataclasses import dataclass

Options = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keepalive:
    """How long a connection may be silent while somebody waits, before it is asked for a sign.

    A connection can be lost without a word: a router forgets it, a proxy swallows what it is sent.
    gRPC uses such a one for ever, whatever times out on it. A ping tells it from a server that is
    slow. If the ping is not answered, gRPC ends what goes over the connection as UNAVAILABLE, and
    makes another.

    Pings have to be few. By gRPC's defaults, a server that is sent more than three in five minutes
    and has sent nothing meanwhile ends the connection ("too_many_pings"). Where calls are answered
    at once it does not come to that; where silence is the rule, it is for the server to allow it.
    """

    answers: float
    """Seconds of silence where each call is answered at once."""

    waits: float
    """Seconds of silence where a server may have nothing to say."""

    timeout: float = 30.0
    """Seconds for the answer to a ping, which may have to queue behind messages."""

    def where_answered(self) -> Options:
        """The options of a channel for calls that are answered at once."""
        return self._options(self.answers)

    def where_waiting(self) -> Options:
        """The options of a channel for calls that wait for messages."""
        return self._options(self.waits)

    def _options(self, silence: float) -> Options:
        return (
            ("grpc.keepalive_time_ms", round(silence * 1_000)),
            # Not keepalive_timeout_ms: gRPC 1.85 waits a minute whatever that says. As it is, 20
            # seconds, it becomes the TCP_USER_TIMEOUT of the connection where there is one.
            ("grpc.http2.ping_timeout_ms", round(self.timeout * 1_000)),
        )


SERVICE = Keepalive(answers=10.0, waits=30.0)
"""For Google's service: its own clients ping it every 30 seconds."""

EMULATOR = Keepalive(answers=10.0, waits=330.0)
"""For an emulator: Google's ends a connection for pings less than five minutes apart."""
