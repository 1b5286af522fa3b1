"""The transport over REST: JSON over HTTP/1.1, where a network lets nothing else through.

Calls go through gcloud-aio-pubsub's client and its session, but not through its methods: those lose
ordering keys and nanoseconds of a Pull, pages of a list and attributes named `data`, mistake a `%`
in a name, and have no way to get a topic. The HTTP mapping of `rpcs` carries every unary call.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import ssl
import urllib.request
from typing import TYPE_CHECKING, Any

from pubsub_aio._wire import schema
from pubsub_aio._wire.connection import Connection, find_credentials
from pubsub_aio._wire.forks import ForkGuard
from pubsub_aio._wire.rest_json import Answer, as_http, gave_up, parse, refusal
from pubsub_aio._wire.rpcs import BY_NAME
from pubsub_aio._wire.transport import Capabilities, PullStream, service_error
from pubsub_aio.errors import ClosedError, MissingExtraError, ServiceError, UnsupportedError

try:
    import aiohttp
    import yarl
    from gcloud.aio.pubsub import SubscriberClient
except ImportError as error:
    raise MissingExtraError("the REST transport", "rest") from error

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

_PREFIX = "/v1"
_LARGE = 1 << 20  # bytes of a body that aiohttp sends in pieces, so as not to block the loop
_COMPRESSED_HERE = 1 << 18  # bytes of a body that a thread would cost more than it frees
_GZIP_LEVEL = 1  # of text it leaves a fifth more than level 9 does, in a third of the time


class RestTransport:
    """Calls over HTTP.

    A Pull that finds no message within its timeout is answered with none. The service holds a Pull
    while there are none; who gives up sooner may leave messages leased to nobody until their
    deadline.

    Args:
        connection: Where to, and with which credentials.
    """

    name = "rest"
    can = Capabilities(
        streaming=False,
        server_flow_control=False,
        confirmations=True,
        pings=False,
        compression=True,
    )

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._guard = ForkGuard("client")
        self._client: _Client | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Make it ready; the connections themselves are made by calls."""
        self._guard.check()
        async with self._opening:
            if self._client is not None:
                return
            if not self._connection.needs_credentials:
                self._client = _Client(self._connection)
                return
            credentials, _ = await asyncio.to_thread(find_credentials, self._connection)
            tls = await asyncio.to_thread(_tls)
            url = f"https://{self._connection.target.removesuffix(':443')}/"
            self._client = _Client(self._connection, tls=tls, caller=_Caller(credentials, url))

    async def close(self) -> None:
        """End every call."""
        if self._client is None:
            return
        # A child keeps what it cannot use: aiohttp would end it in the parent's selector too.
        self._guard.check()
        client, self._client = self._client, None
        await client.close()

    async def call(
        self, rpc: str, request: bytes, *, timeout: float, compress: bool = False
    ) -> bytes:
        """Make a unary call."""
        self._guard.check()
        if self._client is None:
            raise ClosedError("the transport is not open: use the client in `async with`")
        method = BY_NAME[rpc]
        if not method.http:
            raise _unsupported(rpc)
        message = getattr(schema, method.request).FromString(request)
        verb, path, body = as_http(method, message)
        answer = await self._client.send(verb, path, body, timeout=timeout, compress=compress)
        if rpc == "Pull" and (answer is None or gave_up(answer)):
            return b""
        if answer is None:
            raise service_error("DEADLINE_EXCEEDED", f"no answer within {timeout:g} seconds")
        if answer.status != 200:
            raise refusal(answer)
        return parse(method, answer.body).SerializeToString()

    def streaming_pull(self) -> PullStream:
        """There are no streams over REST."""
        raise _unsupported("StreamingPull")


def _unsupported(rpc: str) -> UnsupportedError:
    return UnsupportedError(f'REST does not carry {rpc}: use transport="grpc"')


class _Request:
    """What is known of a request under way."""

    waiting = False
    """Whether it was sent and no answer has begun."""


class _Client(SubscriberClient):
    """gcloud-aio's client, with google-auth's credentials and a session that loses nothing."""

    def __init__(
        self,
        connection: Connection,
        *,
        tls: ssl.SSLContext | None = None,
        caller: _Caller | None = None,
    ) -> None:
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_mark_sent)
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls or True),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "pubsub-aio"},
            trace_configs=[trace],
        )
        shared: Any = self._http  # annotated as the session of its synchronous twin
        # Without a token gcloud-aio looks for credentials of its own, even for an emulator.
        unused: Any = object()
        super().__init__(
            token=unused,
            session=shared,
            api_root=f"http{'s' * connection.tls}://{connection.target}{_PREFIX}",
            api_is_dev=not connection.tls,
        )
        self._caller = caller
        self._proxy = _proxy_for(connection.target) if connection.tls else {}

    async def close(self) -> None:
        """End every request."""
        if self._caller is not None:
            self._caller.close()
        await self._http.close()

    async def send(
        self, verb: str, path: str, body: bytes, *, timeout: float, compress: bool = False
    ) -> Answer | None:
        """Send a request; None if it was sent and no answer began in time.

        Raises:
            ServiceError: The server cannot be reached, or the credentials cannot be refreshed.
        """
        request = _Request()
        try:
            async with asyncio.timeout(timeout):
                return await self._send(verb, path, body, request, compress=compress)
        except TimeoutError as error:
            if request.waiting:
                return None
            raise service_error(
                "DEADLINE_EXCEEDED", f"not sent and answered within {timeout:g} seconds"
            ) from error
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            if self._http.closed:
                raise _closed() from error
            if isinstance(error, RuntimeError):
                raise
            raise service_error("UNAVAILABLE", str(error) or type(error).__name__) from error
        except asyncio.CancelledError:
            # aiohttp cancels what waits for a connection when it is closed.
            task = asyncio.current_task()
            if self._http.closed and task is not None and not task.cancelling():
                raise _closed() from None
            raise

    async def _send(
        self, verb: str, path: str, body: bytes, request: _Request, *, compress: bool
    ) -> Answer:
        headers = await self._headers()
        if compress:
            body = await _gzipped(body)
            headers["Content-Encoding"] = "gzip"
        response = await self.session.request(
            verb,
            self._api_root + path.removeprefix(_PREFIX),
            headers,
            auto_raise_for_status=False,
            data=io.BytesIO(body) if len(body) > _LARGE else body or None,
            timeout=aiohttp.ClientTimeout(),  # the caller's covers the credentials too
            allow_redirects=False,
            trace_request_ctx=request,
            **self._proxy,
        )
        request.waiting = False
        async with response:
            return Answer(response.status, response.headers, await response.read())

    async def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._caller is not None:
            headers.update(await self._caller.headers())
        return headers


async def _gzipped(body: bytes) -> bytes:
    """A body compressed; a large one in a thread, whose work is for nothing if nobody waits."""
    if len(body) <= _COMPRESSED_HERE:
        return _gzip(body)
    return await asyncio.to_thread(_gzip, body)


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, compresslevel=_GZIP_LEVEL, mtime=0)


class _Caller:
    """Says who is calling."""

    def __init__(self, credentials: Credentials, url: str) -> None:
        from google.auth.transport.requests import Request

        self._credentials = credentials
        self._url = url
        self._token_request = Request()
        self._refreshing: asyncio.Future[dict[str, str]] | None = None

    def close(self) -> None:
        """Close what tokens are asked for with."""
        self._token_request.session.close()

    async def headers(self) -> dict[str, str]:
        """What the caller's credentials add to a request.

        If the token is old, another is fetched first, once for all who wait; that goes on when
        nobody waits any more, for a thread cannot be cancelled.
        """
        from google.auth.exceptions import GoogleAuthError

        if self._credentials.valid:
            return self._signed()
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().run_in_executor(None, self._signed)
        await asyncio.wait([refreshing := self._refreshing])
        try:
            return refreshing.result()
        except GoogleAuthError as error:
            code = "UNAVAILABLE" if _may_pass(error) else "UNAUTHENTICATED"
            raise service_error(code, f"credentials: {error}") from error

    def _signed(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        sign: Any = self._credentials.before_request  # it has no annotations
        sign(self._token_request, "POST", self._url, headers)
        return headers


def _may_pass(error: Exception) -> bool:
    from google.auth.exceptions import TransportError

    return isinstance(error, TransportError) or bool(getattr(error, "retryable", False))


def _closed() -> ServiceError:
    return service_error("CANCELLED", "the transport was closed")


async def _mark_sent(_session: aiohttp.ClientSession, context: Any, _what: object) -> None:
    context.trace_request_ctx.waiting = True


def _tls() -> ssl.SSLContext:
    """Certificates are verified, by the authorities that the environment names now.

    aiohttp's own context knows those of the time when it was imported.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _proxy_for(target: str) -> dict[str, Any]:
    """The proxy that the environment names, as arguments of a request.

    aiohttp's own `trust_env` would add the credentials of ~/.netrc to ours, and fail.
    """
    proxy = urllib.request.getproxies().get("https")
    if not proxy or urllib.request.proxy_bypass(target):
        return {}
    url = yarl.URL(proxy)
    if url.user is None:
        return {"proxy": url}
    login = base64.b64encode(f"{url.user}:{url.password or ''}".encode()).decode()
    headers = {"Proxy-Authorization": f"Basic {login}"}
    return {"proxy": url.with_user(None), "proxy_headers": headers}
