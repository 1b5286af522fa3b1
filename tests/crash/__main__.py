"""Kill a query over and over, and compare what is in the sink with what was published.

nox -s crash [-- --messages 200000 --rounds 3]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from pubsub_aio.emulator import EmulatorThread
from tests.crash.lives import Crashes, compare

SHARES_A_ROUND = 11
"""How often messages are published in a round, at least."""


def main() -> int:
    """Run it; returns 1 if a message was lost or is there twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3, help="each kills 9 times or more")
    given = parser.parse_args()
    share = -(-given.messages // (given.rounds * SHARES_A_ROUND))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, EmulatorThread() as emulator:
        crashes = Crashes(Path(folder), emulator, share)
        for number in range(given.rounds):
            for die in crashes.deaths:
                die()
                kills, count = sum(crashes.kills.values()), len(crashes.published)
                print(f"round {number + 1}: {kills} kills, {count:,} messages", flush=True)
        found = crashes.drain()
        wrong = compare(crashes.published, found)
        dropped = crashes.duplicates
    print(f"\n{len(crashes.published):,} published, {len(found):,} in the sink, {len(wrong)} wrong")
    print(f"{dropped:,} duplicates dropped, {time.monotonic() - began:.0f} s")
    for told, count in crashes.kills.items():
        print(f"{count:>4} x killed {told}")
    print(*wrong[:20], sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
