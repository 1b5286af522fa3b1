"""`pubsub-aio dlq` that ends before it is done: what it holds is given back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from pubsub_aio.cli.dlq_actions import _go
from pubsub_aio.emulator import EmulatorThread
from pubsub_aio.jobs.sifting import Report
from tests.dlq_command import (
    TEA,
    WITHIN,
    command,
    emulator_with_dead_letters,
    environment,
    run,
    wait_for,
)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def emulator() -> Iterator[EmulatorThread]:
    with emulator_with_dead_letters() as emulator:
        yield emulator


@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_it_ends_quietly_when_nobody_reads_what_it_says(
    emulator: EmulatorThread, unbuffered: str
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen(
        command("peek", "letters"),
        env=environment(emulator) | {"PYTHONUNBUFFERED": unbuffered},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(writer)
        _, said = process.communicate(timeout=WITHIN)

    assert (process.returncode, said) == (141, "")
    assert "6 messages in letters" in run(emulator, "peek", "letters").stdout


def test_an_interrupt_says_what_was_done_so_far(emulator: EmulatorThread) -> None:
    arguments = command("redrive", "letters", "--to", "orders", "--rate", "0.5")
    with subprocess.Popen(
        arguments, env=environment(emulator), stdout=subprocess.PIPE, text=True
    ) as process:
        wait_for(lambda: len(emulator.messages("orders")) == 2)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=WITHIN)

    assert process.returncode == 130
    assert said == "interrupted: 2 moved from letters to orders; the rest is where it was\n"
    assert emulator.backlog("letters") == 4


def test_an_interrupt_before_anything_was_looked_at_is_told_as_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def interrupted(_: Callable[[Report], None]) -> Report:
        raise asyncio.CancelledError

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # also in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            _go(interrupted, done="moved", where="from a to b", limit=None, limited=False)
    finally:
        signal.signal(signal.SIGINT, before)

    assert capsys.readouterr().out == "interrupted: 0 moved from a to b; the rest is where it was\n"


def test_a_second_interrupt_gives_everything_back_as_well(emulator: EmulatorThread) -> None:
    emulator.faults.delay("Publish", 1_000, times=1_000)
    tea = command("redrive", "letters", "--to", "orders", "--filter", TEA, "--idle", "30")
    with subprocess.Popen(
        tea, env=environment(emulator), stdout=subprocess.PIPE, text=True
    ) as process:
        wait_for(lambda: all(one.deliveries for one in emulator.messages("buried")))
        process.send_signal(signal.SIGINT)
        wait_for(lambda: not emulator.streams("letters"))  # it was heeded: two at once are one
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=WITHIN)

    assert process.returncode == 130
    assert said.startswith("interrupted: 0 moved from letters to orders")
    emulator.faults.clear()
    assert "6 messages in letters" in run(emulator, "peek", "letters").stdout
