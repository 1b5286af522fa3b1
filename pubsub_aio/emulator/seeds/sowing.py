"""A seed on a broker: all of it, or nothing if there is a mistake in it.

Pure, as the broker is: it is told the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub_aio.emulator.seeds import Seeded
from pubsub_aio.emulator.seeds.calls import Calls, Check, nothing
from pubsub_aio.emulator.seeds.planning import Planner
from pubsub_aio.emulator.seeds.rehearsal import Rehearsal
from pubsub_aio.emulator.status import StatusError
from pubsub_aio.errors import SeedError, SeedMistake

if TYPE_CHECKING:
    from pubsub_aio.emulator.broker import Broker
    from pubsub_aio.emulator.seeds.reading import Seed


def sow(seed: Seed, broker: Broker, *, now: float, check: Check = nothing) -> Seeded:
    """Have everything on the broker that the seed wants.

    Args:
        seed: What is wanted.
        broker: Where.
        now: The time.
        check: Refuses what the broker itself cannot check, with StatusError.

    Raises:
        SeedError: There are mistakes in it; nothing was done.
    """
    real = Calls(broker, now)
    rehearsal = Rehearsal(seed, real, now, check)
    rehearsal.run()
    seed.mistakes.tell()
    planner = Planner(seed, rehearsal.calls, real)
    planner.run()
    seed.mistakes.tell()
    for step in planner.steps:
        try:
            step.run()
        except StatusError as refusal:
            at, file = step.settings.at, seed.mistakes.file
            told = SeedMistake(file, at.line, at.column, step.settings.path, str(refusal))
            outcome = "and some of it is there now"
            raise SeedError(file, [told], outcome=outcome) from refusal
    return _seeded(seed, planner)


def _seeded(seed: Seed, planner: Planner) -> Seeded:
    names = [*seed.schemas, *seed.topics, *seed.subscriptions]
    touched = {step.resource for step in planner.steps}
    there = planner.there
    return Seeded(
        project=seed.project,
        created=tuple(name for name in names if name not in there),
        changed=tuple(name for name in names if name in there and name in touched),
        unchanged=tuple(name for name in names if name in there and name not in touched),
    )
