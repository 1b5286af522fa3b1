"""Virtual time and an emulator in memory, for tests of programs that use Pub/Sub.

    async def scenario(emulator):
        emulator.create_subscription("worker", "orders")
        async with SubscriberClient(transport=emulator.transport()) as client:
            ...
            await asyncio.sleep(3_600)  # takes no time

    def test_an_hour():
        run_scenario(scenario)

With pytest, the fixture `pubsub_virtual_time` is `run_scenario`.
"""

from pubsub_aio.testing.loop import DeadlockError, VirtualTimeLoop, run
from pubsub_aio.testing.memory import LoopClock, MemoryEmulator, RunScenario, run_scenario
from pubsub_aio.testing.transport import MemoryTransport

__all__ = [
    "DeadlockError",
    "LoopClock",
    "MemoryEmulator",
    "MemoryTransport",
    "RunScenario",
    "VirtualTimeLoop",
    "run",
    "run_scenario",
]
