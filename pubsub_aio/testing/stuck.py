"""Where tasks wait, for the error that says that nothing can happen any more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import FrameType

_ASYNCIO = str(Path(asyncio.__file__).parent)


def whereabouts(loop: asyncio.AbstractEventLoop) -> list[str]:
    """A line for each task of the loop: its name, and which line of which function it waits in."""
    tasks = sorted(asyncio.all_tasks(loop), key=hash)
    return [f"{task.get_name()}: {_where(task)}" for task in tasks]


def _where(task: asyncio.Task[object]) -> str:
    frames = _frames(task.get_coro())
    if not frames:
        return "has not begun, or waits in something that is not a coroutine"
    # Everybody waits in asyncio in the end; what called it says more.
    ours = [frame for frame in frames if not frame.f_code.co_filename.startswith(_ASYNCIO)]
    return " > ".join(
        f"{frame.f_code.co_qualname} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"
        for frame in ours or frames
    )


def _frames(coroutine: object) -> list[FrameType]:
    """The frames of a suspended coroutine and of those it awaits, the outermost first."""
    frames: list[FrameType] = []
    while coroutine is not None:
        for kind in ("cr", "gi", "ag"):
            frame = getattr(coroutine, f"{kind}_frame", None)
            if isinstance(frame, FrameType):
                frames.append(frame)
        following = (getattr(coroutine, name, None) for name in ("cr_await", "gi_yieldfrom"))
        coroutine = next((found for found in following if found is not None), None)
    return frames
