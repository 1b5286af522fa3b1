"""`pubsub-aio dlq` as a user runs it, and dead letters for it."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

from pubsub_aio.emulator import EmulatorThread
from tests.program import PUBSUB_AIO

WITHIN = 30.0
"""Seconds of real time in which a process must have done what a test waits for."""

PROJECT = "shop"
SOURCE = "CloudPubSubDeadLetterSource"
TEA = 'attributes.kind = "tea"'


@contextlib.contextmanager
def emulator_with_dead_letters() -> Iterator[EmulatorThread]:
    """A server with dead letters: `letters`, of `worker`, has 6, and `jobs.dead-letter` one."""
    with EmulatorThread(project=PROJECT) as emulator:
        emulator.create_topic("buried")
        policy = {"dead_letter_topic": f"projects/{PROJECT}/topics/buried"}
        emulator.create_subscription("worker", "orders", dead_letter_policy=policy)
        emulator.create_subscription("letters", "buried")
        labels = {"pubsub_aio_role": "dead-letter"}
        emulator.create_subscription("jobs.dead-letter", "jobs.dead-letter", labels=labels)
        emulator.create_subscription("jobs.return", "jobs.return")
        for number in range(6):
            kind = "tea" if number % 3 else "coffee"
            emulator.publish("buried", b"order %d" % number, attributes={"kind": kind})
        emulator.publish(
            "jobs.dead-letter",
            b"\x1b[31mred",
            attributes={
                "pubsub_aio_job_id": "j1",
                "pubsub_aio_resurrections": "2",
                "pubsub_aio_error": "ValueError: it cannot be done",
                f"{SOURCE}Subscription": "jobs",
                f"{SOURCE}SubscriptionProject": PROJECT,
                f"{SOURCE}DeliveryCount": "3",
            },
        )
        yield emulator


def environment(emulator: EmulatorThread) -> dict[str, str]:
    return os.environ | {
        "PUBSUB_EMULATOR_HOST": emulator.address,
        "GOOGLE_CLOUD_PROJECT": PROJECT,
        "PYTHONUNBUFFERED": "1",
        "TERM": "xterm",
        "COLUMNS": "100",
    }


def command(*arguments: str) -> list[str]:
    idle = [] if "--idle" in arguments else ["--idle", "1"]
    return [*PUBSUB_AIO, "dlq", *arguments, *idle]


def run(emulator: EmulatorThread, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it without a terminal."""
    return subprocess.run(
        command(*arguments),
        env=environment(emulator),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )


def on_terminal(
    emulator: EmulatorThread,
    *arguments: str,
    answer: str = "",
    meanwhile: Callable[[], object] = lambda: None,
) -> tuple[int, str]:
    """Run it on a terminal, and answer when it asks; gives its exit status and what it showed."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command(*arguments), env=environment(emulator), stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        giving_up = threading.Timer(WITHIN, process.kill)
        giving_up.start()
        try:
            while chunk := _read(ours):
                shown += chunk
                if answer and b"[y/N] " in shown:
                    meanwhile()
                    os.write(ours, answer.encode())
                    answer = ""
            status = process.wait(WITHIN)
        finally:
            giving_up.cancel()
            os.close(ours)
    return status, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # as Linux tells that the other side is closed
        return b""


def wait_for(condition: object) -> None:
    assert callable(condition)
    ends_at = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.01)  # another process is at work
