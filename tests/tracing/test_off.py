"""Without tracing nothing of it is there."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from pubsub_aio import ArrowBatch, SubscriberClient
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import TOPIC, WORKER, Calls, client_of, publish, virtual
from tests.tracing.conftest import Spans

PROGRAM = """
import asyncio, contextlib, sys
from pubsub_aio import SubscriberClient
from pubsub_aio.testing import run_scenario

async def handle(message):
    message.ack()

async def scenario(emulator):
    emulator.create_subscription("worker", "orders")
    async with SubscriberClient(emulator.project, transport=emulator.transport()) as client:
        for subscribe in (client.subscribe, client.subscribe_batches):
            emulator.publish("orders", b"x")
            live = subscribe("worker", handle)
            await emulator.until(lambda: emulator.backlog("worker") == 0)
            live.stop()
            await live
        emulator.publish("orders", b"x")
        async with contextlib.aclosing(client.messages("worker")) as messages:
            async for message in messages:
                message.ack()
                break

run_scenario(scenario)
print(*(name for name in sys.modules if "opentelemetry" in name or "tracing" in name))
"""


def test_a_program_without_tracing_loads_nothing_of_it() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, check=True
    )

    assert (ran.stdout.split(), ran.stderr) == ([], "")


@virtual
async def test_without_tracing_no_span_is_made(
    emulator: MemoryEmulator, global_spans: Spans
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    calls = Calls()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        assert live.settings["tracing"].value is False

    assert len(calls.messages) == 3
    assert (global_spans.ended, global_spans.open) == ([], {})


@virtual
async def test_record_batches_have_no_spans(emulator: MemoryEmulator, spans: Spans) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    async with SubscriberClient(
        emulator.project, transport=emulator.transport(), tracing=spans.provider
    ) as client:
        seen = asyncio.Event()

        async def work(batch: ArrowBatch) -> None:
            batch.ack()
            seen.set()

        live = client.subscribe_arrow(WORKER, work)
        await seen.wait()
        assert live.settings["tracing"].value is True

    assert spans.ended == []
