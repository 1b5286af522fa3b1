"""An HTTP server that pushes are sent to, in threads of its own."""

from __future__ import annotations

import http.server
import threading
import time
from collections import deque
from types import TracebackType
from typing import NamedTuple, Self

from tests.emulator.conformance.servers import Server
from tests.emulator.conformance.streams import WITHIN

_AT_ONCE = 128  # connections that may wait to be accepted


class Pushed(NamedTuple):
    """A request as it came."""

    headers: dict[str, str]
    body: bytes
    path: str

    def header(self, name: str) -> str | None:
        """A header, however it is written."""
        found = [value for key, value in self.headers.items() if key.lower() == name.lower()]
        return found[0] if found else None


class _Listener(http.server.ThreadingHTTPServer):
    request_queue_size = _AT_ONCE
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Whoever pushed may have hung up; that is theirs to report."""


class Endpoint:
    """Records what is pushed to it; answers 204 unless told otherwise.

    Attributes:
        requests: What came, in order.
        statuses: The next answers.
        always: The answer when there are no such.
        headers: Headers of every answer.
        takes: Seconds that each answer takes.
        most_at_once: How many requests were under way at the same time, at most.
    """

    def __init__(self) -> None:
        self.requests: list[Pushed] = []
        self.statuses: deque[int] = deque()
        self.always = 204
        self.headers: dict[str, str] = {}
        self.takes = 0.0
        self.most_at_once = 0
        self._under_way = 0
        self._answered = 0
        self._came = threading.Condition()
        self._open = threading.Event()
        self._open.set()
        self._port = 0
        self.start()

    def start(self) -> None:
        """Listen, on the same port as before."""
        self._listener = _Listener(("127.0.0.1", self._port), self._handler())
        self._port = self._listener.server_port
        threading.Thread(target=self._listener.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections; those that are open hang until they are closed."""
        self._listener.shutdown()
        self._listener.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/push?token=1"

    def hold(self) -> None:
        """Answer nothing until `release`."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def wait_for(self, count: int, server: Server | None = None) -> list[Pushed]:
        """Wait until that many requests came; meanwhile time passes on the server."""
        ends_at = time.monotonic() + WITHIN
        while len(self.requests) < count:
            left = ends_at - time.monotonic()
            assert left > 0, f"{len(self.requests)} of {count} pushes came"
            with self._came:
                self._came.wait_for(lambda: len(self.requests) >= count, 0.05)
            if server and len(self.requests) < count:
                server.let_time_pass(0.1)
        return list(self.requests)

    def settle(self, server: Server, subscription: str) -> None:
        """Wait until the server has taken note of every answer so far."""
        ends_at = time.monotonic() + WITHIN
        while self._answered < len(self.requests):
            assert time.monotonic() < ends_at, "requests are not answered"
            with self._came:
                self._came.wait(0.05)
        for _ in range(5):  # what was answered before a call is read before its reply is sent
            server.get_subscription(subscription)

    def _take(self, pushed: Pushed) -> int:
        """Note a request; returns the status to answer, once that is due."""
        with self._came:
            self.requests.append(pushed)
            status = self.statuses.popleft() if self.statuses else self.always
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
            self._came.notify_all()
        self._open.wait()
        time.sleep(self.takes)
        with self._came:
            self._under_way -= 1
        return status

    def _note_answer(self) -> None:
        with self._came:
            self._answered += 1
            self._came.notify_all()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = endpoint._take(Pushed(dict(self.headers.items()), body, self.path))
                self.send_response(status)
                for name, value in endpoint.headers.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", "0")
                try:
                    self.end_headers()
                finally:
                    endpoint._note_answer()

            def do_GET(self) -> None:
                endpoint._take(Pushed(dict(self.headers.items()), b"", "followed"))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
