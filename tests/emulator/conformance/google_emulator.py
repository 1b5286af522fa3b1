"""Google's own emulator, where the machine has it."""

import contextlib
import functools
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_STARTS_WITHIN = 60.0


class _Started(NamedTuple):
    process: subprocess.Popen[bytes]
    output: Path


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
def running(*, port: int | None = None) -> Iterator[str]:
    """Run the emulator, first on `port` if one is given; yields its address once it answers.

    Between the look for a free port and its use, another program can take it, one that speaks
    gRPC too: each emulator opens a second port for its own use. So what counts is what this very
    process says of itself, and one that lost its port is started again on another.
    """
    found = command()
    if found is None:
        raise RuntimeError("Google's emulator is not installed")
    ends_at = time.monotonic() + _STARTS_WITHIN
    chosen = _free_port() if port is None else port
    while True:
        with _process(found, chosen) as started:
            if _listens(started, chosen, ends_at):
                yield f"127.0.0.1:{chosen}"
                return
        chosen = _free_port()


@contextlib.contextmanager
def _process(found: tuple[str, ...], port: int) -> Iterator[_Started]:
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder, "output")
        with (
            said.open("wb") as output,
            subprocess.Popen([*found, f"--port={port}"], stdout=output, stderr=output) as process,
        ):
            try:
                yield _Started(process, said)
            finally:
                process.kill()


def _listens(started: _Started, port: int, ends_at: float) -> bool:
    """Wait until it listens; False if another program has the port."""
    while time.monotonic() < ends_at:
        said = started.output.read_text(errors="replace")
        if f"listening on {port}" in said:
            return True
        if "java.net.BindException" in said:
            return False
        if started.process.poll() is not None:
            raise RuntimeError(f"Google's emulator ended at its start: {said}")
        time.sleep(0.05)
    raise RuntimeError(f"Google's emulator did not start within {_STARTS_WITHIN:g} seconds")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
