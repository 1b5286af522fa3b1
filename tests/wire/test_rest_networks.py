"""The REST transport among servers that lie, certificates, credentials and proxies."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import RefreshError, TransportError
from google.oauth2.credentials import Credentials

from pubsub_aio._wire import schema
from pubsub_aio._wire.connection import Connection, resolve
from pubsub_aio._wire.rest import RestTransport
from pubsub_aio.emulator import Emulator
from pubsub_aio.errors import (
    ConfigError,
    NotFoundError,
    PermissionDeniedError,
    ServiceError,
    UnavailableError,
)
from tests.wire import certificates
from tests.wire.certificates import Certificate
from tests.wire.tcp import answering, http, serving

WITHIN = 30.0
SUBSCRIPTION = "projects/p/subscriptions/worker"
ACK = schema.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=["a"]).SerializeToString()
PULL = schema.PullRequest(subscription=SUBSCRIPTION, max_messages=9).SerializeToString()


@contextlib.asynccontextmanager
async def opened(connection: Connection) -> AsyncIterator[RestTransport]:
    transport = RestTransport(connection)
    await transport.open()
    try:
        yield transport
    finally:
        await transport.close()


def plain(address: str) -> Connection:
    return resolve(endpoint=f"http://{address}")


# Answers of others


async def test_a_server_that_cannot_be_reached_is_unavailable() -> None:
    async with opened(plain("127.0.0.1:1")) as transport:
        for rpc, request in (("Acknowledge", ACK), ("Pull", PULL)):
            with pytest.raises(UnavailableError) as caught:
                await transport.call(rpc, request, timeout=WITHIN)
            assert caught.value.code == "UNAVAILABLE"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        pytest.param(http("200 OK", b"<html>sign in"), "UNKNOWN", id="a captive portal"),
        pytest.param(http("200 OK", b""), "UNKNOWN", id="an empty body"),
        pytest.param(http("302 Found", b"", "Location: /"), "UNKNOWN", id="a redirect"),
        pytest.param(http("404 Not Found", b"<html>"), "UNIMPLEMENTED", id="another server"),
        pytest.param(http("502 Bad Gateway", b"<html>"), "UNAVAILABLE", id="a gateway"),
        pytest.param(b"", "UNAVAILABLE", id="nothing"),
        pytest.param(b"\x00\x01garbage\r\n\r\n", "UNAVAILABLE", id="garbage"),
        pytest.param(
            http("200 OK", b"{", "Content-Length: 9"), "UNAVAILABLE", id="a body cut short"
        ),
        pytest.param(
            http("200 OK", b"{}", "Content-Encoding: gzip"), "UNAVAILABLE", id="not what it says"
        ),
        pytest.param(
            http("200 OK", b"zz\r\n", "Transfer-Encoding: chunked"), "UNAVAILABLE", id="bad chunks"
        ),
        pytest.param(
            http("200 OK", b"{}", "X: " + "x" * 100_000), "UNAVAILABLE", id="a huge header"
        ),
    ],
)
@pytest.mark.parametrize("rpc", ["Acknowledge", "Pull"])
async def test_an_answer_that_is_not_the_services_is_an_error_of_ours(
    rpc: str, answer: bytes, code: str
) -> None:
    request = PULL if rpc == "Pull" else ACK
    async with serving(answering(answer)) as address, opened(plain(address)) as transport:
        with pytest.raises(ServiceError) as caught:
            await transport.call(rpc, request, timeout=WITHIN)

    assert caught.value.code == code


async def test_a_pull_whose_answer_began_and_stalled_is_not_taken_for_an_empty_one() -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(http("200 OK", b"{", "Content-Length: 9"))
        await asyncio.Event().wait()

    async with serving(stall) as address, opened(plain(address)) as transport:
        with pytest.raises(UnavailableError) as caught:
            await transport.call("Pull", PULL, timeout=0.2)

    assert caught.value.code == "DEADLINE_EXCEEDED"


# TLS and credentials


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def trusted(certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> Certificate:
    """Our certificate, which programs trust as they trust those of the system."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.chain))
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return certificate


def tls_of(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.chain, certificate.key)
    return context


class Asked:
    """A server that keeps the heads of requests and accepts everything."""

    def __init__(self) -> None:
        self.heads: list[str] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            lines = head.lower().split("\r\n")
            lengths = [line for line in lines if line.startswith("content-length:")]
            if lengths:
                await reader.readexactly(int(lengths[0].partition(":")[2]))
            writer.write(http("200 OK", b"{}"))
            await writer.drain()

    def header(self, name: str) -> list[str | None]:
        """The header in each of the requests."""
        found: list[str | None] = []
        for head in self.heads:
            lines = [line.partition(": ") for line in head.split("\r\n")]
            values = [value for key, _, value in lines if key.lower() == name]
            found.append(values[0] if values else None)
        return found


def token(value: str, **settings: Any) -> Credentials:
    made: Credentials = Credentials(token=value, **settings)  # type: ignore[no-untyped-call]
    return made


async def test_the_callers_token_and_quota_project_arrive_over_tls(trusted: Certificate) -> None:
    asked = Asked()
    async with serving(asked.handle, ssl=tls_of(trusted)) as address:
        credentials = token("secret", quota_project_id="payer")
        async with opened(resolve(endpoint=address, credentials=credentials)) as transport:
            assert await transport.call("Acknowledge", ACK, timeout=WITHIN) == b""

    assert asked.header("authorization") == ["Bearer secret"]
    assert asked.header("x-goog-user-project") == ["payer"]
    assert asked.heads[0].startswith(f"POST /v1/{SUBSCRIPTION}:acknowledge HTTP/1.1")


async def test_an_unknown_certificate_is_refused(certificate: Certificate) -> None:
    asked = Asked()
    async with serving(asked.handle, ssl=tls_of(certificate)) as address:
        connection = resolve(endpoint=address, credentials=token("secret"))
        async with opened(connection) as transport:
            with pytest.raises(UnavailableError, match="certificate"):
                await transport.call("Acknowledge", ACK, timeout=WITHIN)

    assert asked.heads == []


async def test_a_certificate_for_another_host_is_refused(trusted: Certificate) -> None:
    asked = Asked()
    async with serving(asked.handle, host="127.0.0.2", ssl=tls_of(trusted)) as address:
        connection = resolve(endpoint=address, credentials=token("secret"))
        async with opened(connection) as transport:
            with pytest.raises(UnavailableError, match="certificate"):
                await transport.call("Acknowledge", ACK, timeout=WITHIN)

    assert asked.heads == []


async def test_a_token_is_never_sent_in_plain_text() -> None:
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(65_536))
        writer.write(http("200 OK", b"{}"))
        await writer.drain()

    async with serving(listen) as address:
        connection = resolve(endpoint=address, credentials=token("secret"))
        async with opened(connection) as transport:
            with pytest.raises(UnavailableError):
                await transport.call("Acknowledge", ACK, timeout=WITHIN)

    assert [b"HTTP" in data or b"secret" in data for data in heard] == [False]


async def test_an_emulator_gets_no_credentials_and_none_are_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing.json"))
    asked = Asked()
    async with serving(asked.handle) as address:
        connection = resolve(
            environment={"PUBSUB_EMULATOR_HOST": address}, credentials=token("secret")
        )
        async with opened(connection) as transport:
            await transport.call("Acknowledge", ACK, timeout=WITHIN)

    assert asked.header("authorization") == [None]


async def test_without_credentials_a_service_cannot_be_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing.json"))
    transport = RestTransport(resolve(environment={}))
    with pytest.raises(ConfigError, match="GOOGLE_APPLICATION_CREDENTIALS"):
        await transport.open()
    await transport.close()


async def test_anonymous_credentials_add_nothing(trusted: Certificate) -> None:
    asked = Asked()
    anonymous: Any = AnonymousCredentials()  # type: ignore[no-untyped-call]
    async with (
        serving(asked.handle, ssl=tls_of(trusted)) as address,
        opened(resolve(endpoint=address, credentials=anonymous)) as transport,
    ):
        await transport.call("Acknowledge", ACK, timeout=WITHIN)

    assert asked.header("authorization") == [None]


class Renewable(Credentials):
    """Credentials whose token has expired; a new one is handed out when `go` is set."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__(token=None)  # type: ignore[no-untyped-call]
        self.errors = list(errors)
        self.renewed = "fresh"
        self.begun = threading.Event()
        self.go = threading.Event()
        self.threads: list[str] = []

    def refresh(self, _request: object) -> None:
        self.threads.append(threading.current_thread().name)
        self.begun.set()
        assert self.go.wait(WITHIN)
        if self.errors:
            raise self.errors.pop(0)
        self.token = self.renewed


async def test_an_old_token_is_renewed_once_for_all_and_off_the_loop(trusted: Certificate) -> None:
    asked, credentials = Asked(), Renewable()
    async with (
        serving(asked.handle, ssl=tls_of(trusted)) as address,
        opened(resolve(endpoint=address, credentials=credentials)) as transport,
    ):
        with pytest.raises(UnavailableError) as caught:
            await transport.call("Acknowledge", ACK, timeout=0.05)
        patient = [transport.call("Acknowledge", ACK, timeout=WITHIN) for _ in range(5)]
        await asyncio.gather(*patient, asyncio.to_thread(credentials.go.set))

    assert caught.value.code == "DEADLINE_EXCEEDED"
    assert asked.header("authorization") == ["Bearer fresh"] * 5
    assert len(credentials.threads) == 1
    assert credentials.threads != [threading.current_thread().name]


def refused(kind: Any, why: str, **settings: bool) -> Exception:
    made: Exception = kind(why, **settings)  # these have no annotations
    return made


@pytest.mark.parametrize(
    ("failure", "kind", "code"),
    [
        (refused(RefreshError, "revoked"), PermissionDeniedError, "UNAUTHENTICATED"),
        (refused(RefreshError, "later", retryable=True), UnavailableError, "UNAVAILABLE"),
        (refused(TransportError, "no route"), UnavailableError, "UNAVAILABLE"),
    ],
)
async def test_a_token_that_cannot_be_renewed_says_why_and_is_tried_again(
    failure: Exception, kind: type[ServiceError], code: str, trusted: Certificate
) -> None:
    asked, credentials = Asked(), Renewable(failure)
    credentials.go.set()
    async with (
        serving(asked.handle, ssl=tls_of(trusted)) as address,
        opened(resolve(endpoint=address, credentials=credentials)) as transport,
    ):
        with pytest.raises(kind, match=str(failure)) as caught:
            await transport.call("Acknowledge", ACK, timeout=WITHIN)
        await transport.call("Acknowledge", ACK, timeout=WITHIN)

    assert caught.value.code == code
    assert asked.header("authorization") == ["Bearer fresh"]


async def test_a_pull_that_was_never_sent_is_not_taken_for_an_empty_one() -> None:
    async def silence(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with serving(silence) as address:
        connection = resolve(endpoint=address, credentials=token("secret"))
        async with opened(connection) as transport:
            with pytest.raises(UnavailableError) as caught:
                await transport.call("Pull", PULL, timeout=0.2)

    assert caught.value.code == "DEADLINE_EXCEEDED"


async def test_a_transport_closed_while_its_token_is_renewed_ends_the_call() -> None:
    credentials = Renewable()
    async with opened(resolve(endpoint="127.0.0.1:1", credentials=credentials)) as transport:
        calling = asyncio.create_task(transport.call("Acknowledge", ACK, timeout=WITHIN))
        await asyncio.to_thread(credentials.begun.wait, WITHIN)
        await transport.close()
        credentials.go.set()
        with pytest.raises(ServiceError) as caught:
            await calling

    assert caught.value.code == "CANCELLED"


# Proxies


@pytest.mark.parametrize("login", ["", "user:p%40ss@"])
async def test_the_proxy_of_the_environment_is_used_for_the_service(
    login: str, trusted: Certificate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    asked, heads = Asked(), list[str]()

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        host, _, port = head.split(" ")[1].partition(":")
        there, back = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            await asyncio.gather(passing(reader, back), passing(there, writer))
        finally:
            back.close()

    async with serving(asked.handle, ssl=tls_of(trusted)) as address, serving(tunnel) as proxy:
        monkeypatch.setenv("https_proxy", f"http://{login}{proxy}")
        monkeypatch.setenv("no_proxy", "")
        async with opened(resolve(endpoint=address, credentials=token("secret"))) as transport:
            await transport.call("Acknowledge", ACK, timeout=WITHIN)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with opened(resolve(endpoint=address, credentials=token("secret"))) as transport:
            await transport.call("Acknowledge", ACK, timeout=WITHIN)

    assert asked.header("authorization") == ["Bearer secret"] * 2
    assert [head.split(" ")[:2] for head in heads] == [["CONNECT", address]]
    assert ("Proxy-Authorization: Basic dXNlcjpwQHNz" in heads[0]) == bool(login)


async def passing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    with contextlib.suppress(OSError):
        writer.write_eof()


async def test_an_emulator_is_reached_without_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with Emulator() as emulator, opened(plain(emulator.address)) as transport:
        with pytest.raises(NotFoundError):
            await transport.call("Acknowledge", ACK, timeout=WITHIN)
