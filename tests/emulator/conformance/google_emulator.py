"""Google's own emulator, where the machine has it."""

import contextlib
import functools
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc

_STARTS_WITHIN = 60.0


@functools.cache
def command() -> tuple[str, ...] | None:
    """What to run, less the port; None where Java, the Cloud SDK or the emulator is missing."""
    java, gcloud = shutil.which("java"), shutil.which("gcloud")
    if java is None or gcloud is None:
        return None
    asked = subprocess.run(
        [gcloud, "info", "--format=value(installation.sdk_root)"],
        capture_output=True,
        text=True,
        check=False,
    )
    library = Path(asked.stdout.strip(), "platform", "pubsub-emulator", "lib")
    jars = sorted(library.glob("cloud-pubsub-emulator-*.jar"))
    return (java, "-jar", str(jars[-1]), "--host=127.0.0.1") if jars else None


@contextlib.contextmanager
def running() -> Iterator[str]:
    """Run the emulator; yields its address once it answers."""
    found = command()
    if found is None:
        raise RuntimeError("Google's emulator is not installed")
    address = f"127.0.0.1:{_free_port()}"
    with subprocess.Popen(
        [*found, f"--port={address.rpartition(':')[2]}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            with grpc.insecure_channel(address) as channel:
                grpc.channel_ready_future(channel).result(timeout=_STARTS_WITHIN)
            yield address
        finally:
            process.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
