"""The memory of long requests is kept: the system is not asked for it, and clears it, each time."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

REQUESTS = """
import asyncio, resource, sys
from pubsub_aio._wire.transports import make_transport

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def requests():
    return [bytes(1) * 134_000 for _ in range(50)]

async def main():
    transport, _ = make_transport(sys.argv[1])
    await transport.open()
    requests()
    before = faults()
    for _ in range(50):
        requests()
    print(faults() - before)
    await transport.close()

asyncio.run(main())
"""
PAGES = 50 * 134_000 // 4_096
"""That the requests of one round fill."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep it or do not")
@pytest.mark.parametrize("transport", ["grpc", "rest"])
def test_an_open_transport_has_the_process_keep_its_memory(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "localhost:1")
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)

    command = [sys.executable, "-c", REQUESTS, transport]
    faults = int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)

    assert faults < PAGES  # otherwise it is all of them in each of the rounds
