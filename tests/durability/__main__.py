"""Kill an emulator with a data directory over and over, under load, and count.

nox -s durability [-- --rounds 60 --seed 1]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tests.durability.lives import Lives


async def run(rounds: int, seed: int) -> int:
    """Returns 1 if something was lost, came back, or came out of order."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        lives = Lives(Path(folder), seed=seed)
        for number in range(1, rounds + 1):
            await lives.live()
            if number % 10 == 0:
                print(f"killed {number} times, {lives.size():,.0f} MiB are kept", flush=True)
        wrong = await lives.drain()
    print(*lives.figures(), sep="\n")
    print(f"{rounds} kills, {len(wrong)} wrong, {time.monotonic() - began:.0f} s")
    print(*wrong[:20], sep="\n")
    return bool(wrong)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    return asyncio.run(run(given.rounds, given.seed))


if __name__ == "__main__":
    sys.exit(main())
