"""The servers that are measured, each in a process of its own."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import psutil

from pubsub_aio._wire import schema

OURS = "pubsub-aio"
GOOGLE = "Google's"


@dataclass(frozen=True)
class Server:
    """A server that has answered its first call."""

    name: str
    address: str
    process: psutil.Process
    start_time: float

    def memory(self) -> float:
        """Resident memory in MiB."""
        return float(self.process.memory_info().rss / 2**20)

    def cpu(self) -> float:
        """CPU seconds used so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


def commands() -> dict[str, Sequence[str]]:
    """How to start each server that is on this machine; the port is appended."""
    found: dict[str, Sequence[str]] = {
        OURS: (sys.executable, "-m", "pubsub_aio", "emulator", "--port")
    }
    jar = _google_jar()
    java = shutil.which("java")
    if jar and java:
        found[GOOGLE] = (java, "-jar", str(jar), "--host=127.0.0.1", "--port")
    return found


def _google_jar() -> Path | None:
    gcloud = shutil.which("gcloud")
    if not gcloud:
        return None
    asked = subprocess.run(
        [gcloud, "info", "--format=value(installation.sdk_root)"],
        capture_output=True,
        text=True,
        check=False,
    )
    found = Path(asked.stdout.strip()).glob("platform/pubsub-emulator/lib/*emulator*.jar")
    return next(found, None)


@contextlib.contextmanager
def running(name: str, *options: str) -> Iterator[Server]:
    """Start a server on a free port, with these options; ends it afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    *head, option = commands()[name]
    arguments = [f"{option}={port}"] if option.startswith("--") else [option, str(port)]
    began = time.perf_counter()
    process = subprocess.Popen(
        [*head, *arguments, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _first_call(f"127.0.0.1:{port}", process)
        taken = time.perf_counter() - began
        yield Server(name, f"127.0.0.1:{port}", psutil.Process(process.pid), taken)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _first_call(address: str, process: subprocess.Popen[bytes]) -> None:
    """Return once the server has answered an RPC."""
    host, port = address.split(":")
    while True:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode}")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            break
        except OSError:
            time.sleep(0.001)
    with grpc.insecure_channel(address) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/google.pubsub.v1.Publisher/ListTopics"
        )
        request = schema.ListTopicsRequest(project="projects/first")
        call(request.SerializeToString(), wait_for_ready=True, timeout=30)
