"""The source with its log on a disk that is full for as long as a file beside it says so."""

from __future__ import annotations

import os
from pathlib import Path

from pubsub_aio.spark import PubSubDataSource
from pubsub_aio.spark.streaming import stores
from pubsub_aio.spark.streaming.stores import Buffer

FULL = "full"


class FullDiskDataSource(PubSubDataSource):
    """Whoever unpickles it has this module, and so the disk."""

    @classmethod
    def name(cls) -> str:
        return "fulldisk"


_write_all = stores._write_all


def write_all(descriptor: int, part: Buffer) -> None:
    log = Path(os.readlink(f"/proc/self/fd/{descriptor}")).parents[1]
    if (log.parent / FULL).exists():
        Path("/dev/full").write_bytes(b"x")  # the kernel says what it says of any full disk
    _write_all(descriptor, part)


stores._write_all = write_all
