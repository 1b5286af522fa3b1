"""What a data directory costs: publishing, starting, and room on the disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.bench.load import Load, traffic
from tests.bench.report import Figure
from tests.bench.servers import OURS, Server, running

PUBLISHED = 200_000
STORED = 1_000_000


def durable(rounds: int) -> Iterator[Figure]:
    """The emulator with a data directory, side by side with one in memory."""
    with tempfile.TemporaryDirectory() as folder:
        option = f"--data-dir={folder}"
        with running(OURS) as memory, running(OURS, option) as disk:
            yield from rates(memory, disk, rounds)
            yield from room(disk, Path(folder))
            with Load(disk.address) as load:
                topic, _ = load.create()
                load.publish(topic, STORED)
        starts = []
        for _ in range(3):
            with running(OURS, option) as disk:
                starts.append(disk.start_time)
    yield Figure("start with 1,000,000 stored messages", starts, 5, " s", at_least=False)


def rates(memory: Server, disk: Server, rounds: int) -> Iterator[Figure]:
    """Publishing in batches of 1,000, answered when it is on disk, to the same in memory."""
    found: dict[str, list[float]] = {"in memory": [], "on disk": []}
    with Load(memory.address) as first, Load(disk.address) as second:
        for turn in range(rounds + 1):
            for name, load in zip(found, (first, second), strict=True):
                with traffic(load) as (topic, _):
                    seconds = load.publish(topic, PUBLISHED)
                if turn:  # the first turn warms up
                    found[name].append(PUBLISHED / seconds)
    for name, values in found.items():
        print(f"{name:<12} {median(values):>10,.0f} messages a second published")
    pairs = zip(found["on disk"], found["in memory"], strict=True)
    yield Figure("published with --data-dir, to in memory", [a / b for a, b in pairs], 0.5, "x")


def room(disk: Server, folder: Path) -> Iterator[Figure]:
    """What the files take while 2,000,000 messages come and go."""
    sizes = []
    with Load(disk.address) as load, traffic(load) as (topic, subscription):
        for _ in range(10):
            load.publish(topic, PUBLISHED)
            load.drain(subscription, PUBLISHED)
            sizes.append(sum(path.stat().st_size for path in folder.iterdir()) / 2**20)
    yield Figure("files while 2,000,000 messages pass", sizes, 256, " MiB", at_least=False)
