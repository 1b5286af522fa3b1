"""Pytest fixtures: a Pub/Sub server for tests. Installed with the package; nothing to import.

    def test_something(pubsub_emulator):
        subscription = pubsub_emulator.create_subscription("worker", "orders")
        ...  # any Pub/Sub client finds the server through PUBSUB_EMULATOR_HOST

`pubsub_emulator` is a project of its own on one server for the whole run, and so it is cheap;
`pubsub_emulator_virtual` is a server of its own whose clock only the test moves. Both point
PUBSUB_EMULATOR_HOST, PUBSUB_PROJECT_ID and GOOGLE_CLOUD_PROJECT to it, and restore them.

`pubsub_virtual_time` runs a coroutine function in virtual time, with an emulator in memory:

    def test_a_slow_service(pubsub_virtual_time):
        async def scenario(emulator):
            ...  # hours pass in no time; clients come in by emulator.transport()

        pubsub_virtual_time(scenario)

The ini option `pubsub_emulator_seed` names seed files: what they want is there in each test that
has `pubsub_emulator` or `pubsub_emulator_virtual`, in the test's own project.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pubsub_aio.emulator import EmulatorThread
    from pubsub_aio.testing import RunScenario

_numbers = itertools.count(1)
_SEED = "pubsub_emulator_seed"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names seed files."""
    what = "seed files of pubsub_emulator and pubsub_emulator_virtual, relative to this file"
    parser.addini(_SEED, what, type="paths", default=[])


@pytest.fixture(scope="session")
def pubsub_emulator_server() -> Iterator[EmulatorThread]:
    """One Pub/Sub server for the whole run; `PUBSUB_EMULATOR_HOST` points to it."""
    from pubsub_aio.emulator import EmulatorThread

    with EmulatorThread() as emulator, _environment(PUBSUB_EMULATOR_HOST=emulator.address):
        yield emulator


@pytest.fixture
def pubsub_emulator(
    pubsub_emulator_server: EmulatorThread, pytestconfig: pytest.Config
) -> Iterator[EmulatorThread]:
    """The session's server with a project of the test's own, deleted when the test is over."""
    emulator = pubsub_emulator_server
    before, project = emulator.project, f"test-project-{next(_numbers)}"
    emulator.project = project
    try:
        _seed(emulator, pytestconfig)
        with _pointing_to(emulator):
            yield emulator
    finally:
        emulator.faults.clear()
        emulator.project = project
        emulator.delete_project()
        emulator.project = before


@pytest.fixture
def pubsub_emulator_virtual(pytestconfig: pytest.Config) -> Iterator[EmulatorThread]:
    """A server of the test's own, whose clock only the test moves."""
    from pubsub_aio.emulator import EmulatorThread, VirtualClock

    project = f"test-project-{next(_numbers)}"
    with EmulatorThread(clock=VirtualClock(), project=project) as emulator, _pointing_to(emulator):
        _seed(emulator, pytestconfig)
        yield emulator


@pytest.fixture
def pubsub_virtual_time() -> Iterator[RunScenario]:
    """Runs `async def scenario(emulator)` in virtual time, with an emulator in memory."""
    from pubsub_aio.testing import run_scenario

    project = f"test-project-{next(_numbers)}"
    with _environment(PUBSUB_PROJECT_ID=project, GOOGLE_CLOUD_PROJECT=project):
        yield functools.partial(run_scenario, project=project)


def _seed(emulator: EmulatorThread, config: pytest.Config) -> None:
    for path in config.getini(_SEED):
        emulator.load_seed(path, project=emulator.project)


def _pointing_to(emulator: EmulatorThread) -> contextlib.AbstractContextManager[None]:
    return _environment(
        PUBSUB_EMULATOR_HOST=emulator.address,
        PUBSUB_PROJECT_ID=emulator.project,
        GOOGLE_CLOUD_PROJECT=emulator.project,
    )


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set environment variables, and restore them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
