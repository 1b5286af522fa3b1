"""Threads that a program does not wait for when it ends."""

from __future__ import annotations

import contextvars
import subprocess
import sys
import threading

import pytest

from pubsub_aio.spark.threads import DaemonThreads

WITHIN = 100.0


def test_what_was_cancelled_while_it_waited_is_not_run_and_costs_no_thread() -> None:
    threads = DaemonThreads(1, "test")
    free = threading.Event()
    ran: list[str] = []
    first = threads.submit(free.wait, WITHIN)
    waiting = threads.submit(ran.append, "cancelled")
    assert waiting.cancel()
    free.set()

    assert first.result(WITHIN)
    threads.submit(ran.append, "next").result(WITHIN)
    assert ran == ["next"]
    threads.close()


def test_what_is_raised_is_told_whatever_it_is() -> None:
    threads = DaemonThreads(1, "test")

    with pytest.raises(SystemExit):
        threads.submit(sys.exit, 3).result(WITHIN)
    assert threads.submit(int, "7").result(WITHIN) == 7
    threads.close()


def test_functions_see_the_context_of_who_submitted_them() -> None:
    colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour")
    threads = DaemonThreads(1, "test")
    colour.set("blue")

    assert threads.submit(colour.get).result(WITHIN) == "blue"
    threads.close()


def test_nothing_is_taken_once_it_is_closed() -> None:
    threads = DaemonThreads(1, "test")
    threads.close()

    assert threads.submit(print, "never").cancelled()


def test_a_thread_that_hangs_does_not_keep_the_process() -> None:
    program = (
        "import threading; from pubsub_aio.spark.threads import DaemonThreads; "
        "DaemonThreads(1, 'test').submit(threading.Event().wait)"
    )

    assert (
        subprocess.run([sys.executable, "-c", program], timeout=WITHIN, check=False).returncode == 0
    )
