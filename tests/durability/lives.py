"""A server that is killed and started again in the same data directory."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from tests.durability.load import Call, Settings, Traffic, connect, until_killed

_SHORTEST, _LONGEST = 0.05, 1.0  # seconds of load in a life


class Lives:
    """Traffic on a server that does not live long."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        self.traffic = [
            Traffic("single", ordered=False, exactly_once=True, batch=1, size=20),
            Traffic("batches", ordered=False, exactly_once=True, batch=200, size=100),
            Traffic("ordered", ordered=True, exactly_once=True, batch=3, size=20),
            Traffic("lenient", ordered=True, exactly_once=False, batch=5, size=20),
            Traffic("bulky", ordered=False, exactly_once=False, batch=10, size=50_000),
        ]
        self.settings = Settings()
        self.life = 0
        self.wrong: list[str] = []
        self._folder = folder
        self._random = random.Random(seed)  # noqa: S311 - when to kill is no secret

    async def live(self) -> None:
        """One life: start, check what is there, load, and a kill in the middle of it."""
        async with self._server() as (process, call):
            if not self.life:
                for traffic in self.traffic:
                    await traffic.create(call)
            self.wrong += await self.settings.check(call)
            self.life += 1
            clients = [c for traffic in self.traffic for c in traffic.clients(call, self.life)]
            killing = asyncio.create_task(self._kill(process))
            await until_killed([*clients, self.settings.change(call)])
            await killing

    async def _kill(self, process: asyncio.subprocess.Process) -> None:
        await asyncio.sleep(self._random.uniform(_SHORTEST, _LONGEST))
        process.kill()
        await process.wait()

    async def drain(self) -> list[str]:
        """A last life, in which all that is left is received; returns what is wrong."""
        async with self._server() as (process, call):
            self.wrong += await self.settings.check(call)
            self.life += 1
            for traffic in self.traffic:
                await traffic.subscribe(call, self.life, share=1)
            process.terminate()
            if status := await process.wait():
                self.wrong.append(f"the server ended with status {status}")
        for traffic in self.traffic:
            self.wrong += (f"{traffic.name}: {one}" for one in traffic.record.violations())
        return self.wrong

    @contextlib.asynccontextmanager
    async def _server(self) -> AsyncIterator[tuple[asyncio.subprocess.Process, Call]]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pubsub_aio", "emulator", "--port", str(port)),
            *("--data-dir", str(self._folder)),
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        try:
            async with asyncio.timeout(30):  # what was being written at the kill may be told first
                while b"ready" not in (said := await process.stderr.readline()):
                    assert said, "the server ended"
            channel, call = connect(f"127.0.0.1:{port}")
            try:
                yield process, call
            finally:
                await channel.close()
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    def size(self) -> float:
        """MiB in the directory."""
        return sum(path.stat().st_size for path in self._folder.iterdir()) / 2**20

    def figures(self) -> Iterator[str]:
        """What there was, a line for each topic."""
        for traffic in self.traffic:
            record = traffic.record
            again = len(record.delivered) - len({message for message, _, _ in record.delivered})
            yield (
                f"{traffic.name:<8} {len(record.answered):>8,} published, "
                f"{len(record.acked):>8,} acked, {again:>6,} delivered again, "
                f"{len(record.keys) - len(record.answered):>5,} cut off"
            )
