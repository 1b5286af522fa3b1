"""A load server in a process of its own: how it is served, started and steered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.bench.http2 import Connection, Service

if TYPE_CHECKING:
    from aiohttp import web

_TIMEOUT = 90.0
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**40)}
"""Memory that was used once is used again: to be given it by the system costs more than the rest
of what a server does with a long request."""


async def serve(service: Service, application: web.Application) -> None:
    """Serve gRPC and REST until the process is ended; prints the two addresses first."""
    from aiohttp import web

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(service), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    rest_port = runner.addresses[0][1]
    print(json.dumps({"grpc": f"127.0.0.1:{port}", "rest": f"127.0.0.1:{rest_port}"}), flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def serving(module: str) -> Iterator[dict[str, str]]:
    """The addresses of the server in a module, which runs meanwhile."""
    command = [sys.executable, "-m", module]
    with subprocess.Popen(
        command, env={**os.environ, **_KEEP_MEMORY}, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            addresses: dict[str, str] = json.loads(process.stdout.readline())
            yield addresses
        finally:
            process.terminate()


def ask(
    rest: str, path: str, method: str, body: bytes | None = None, query: str = ""
) -> dict[str, float]:
    """Steer the server, or ask what it has counted."""
    url = f"http://{rest}/bench/{path}{query}"
    request = urllib.request.Request(url, data=body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 - our server
            found: dict[str, float] = json.load(answer)
    except urllib.error.HTTPError as error:
        raise RuntimeError(error.read().decode()) from error
    return found
