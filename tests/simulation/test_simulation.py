"""Worlds drawn from seeds, in virtual time: whatever goes wrong, nothing is lost and all ends.

A seed that fails fails again: `simulate(draw_plan(seed))`. PUBSUB_AIO_SIM_SEEDS says which seeds
are tried: how many, from zero on, or a range such as `1000:2000`.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.simulation.history import Fault, History, check, summary
from tests.simulation.world import TRANSIENT, Plan, draw_plan, simulate

_USUAL = "50"


def _seeds() -> list[int]:
    """The worlds to look at."""
    first, colon, last = os.environ.get("PUBSUB_AIO_SIM_SEEDS", _USUAL).partition(":")
    return list(range(int(first), int(last)) if colon else range(int(first)))


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What callbacks raise is logged; to write it all down takes longer than the worlds do."""
    caplog.set_level(logging.CRITICAL, logger="pubsub_aio")


@functools.lru_cache(maxsize=100)
def _history(seed: int) -> History:
    return simulate(draw_plan(seed))


def fingerprint(history: History) -> str:
    """The same for the same events."""
    return hashlib.sha256(repr(history.events).encode()).hexdigest()


def assert_all_is_well(history: History, plan: Plan) -> None:
    violations = [str(each) for each in check(history)]
    shown = "\n  ".join(violations[:10])
    assert not violations, f"{len(violations)} violations in {plan}:\n  {shown}"


@pytest.mark.parametrize("seed", _seeds())
def test_whatever_goes_wrong_nothing_is_lost_and_all_ends(seed: int) -> None:
    """H1, H2, H3, H4, H5, H6, H9 hold, and no DeadlockError says that somebody waits for ever."""
    assert_all_is_well(_history(seed), draw_plan(seed))


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_without_faults_no_held_lease_ends(*, ordered: bool, exactly_once: bool) -> None:
    """H6: nothing but `max_lease_duration` ends a lease where nothing goes wrong."""
    plan = Plan(
        seed=1, faults=False, ordered=ordered, exactly_once=exactly_once, subscribers=2, messages=60
    )

    history = simulate(plan)

    assert not any(isinstance(event, Fault) for event in history.events)
    assert_all_is_well(history, plan)


@pytest.mark.parametrize("seed", _seeds()[:6])
def test_the_same_seed_gives_the_same_history(seed: int) -> None:
    assert fingerprint(simulate(draw_plan(seed))) == fingerprint(_history(seed))


def test_a_seed_gives_the_same_history_in_another_process() -> None:
    program = (
        "import logging, sys; logging.disable(); "
        "from tests.simulation import test_simulation as t, world as w; "
        "print(t.fingerprint(w.simulate(w.draw_plan(int(sys.argv[1])))))"
    )
    seed = _seeds()[0]
    elsewhere = subprocess.run(
        [sys.executable, "-c", program, str(seed)],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert elsewhere.stdout.strip() == fingerprint(_history(seed))


def test_other_seeds_give_other_histories() -> None:
    assert len({fingerprint(_history(seed)) for seed in _seeds()[:6]}) == len(_seeds()[:6])


@pytest.mark.skipif("PUBSUB_AIO_SIM_SEEDS" in os.environ, reason="it is about the usual seeds")
def test_the_usual_seeds_see_everything_happen() -> None:
    """A world in which nothing happens proves nothing."""
    plans = [draw_plan(seed) for seed in _seeds()]
    for name in ("ordered", "exactly_once", "dead_letters", "retry", "faults", "changes", "probes"):
        assert {getattr(plan, name) for plan in plans} == {False, True}, name
    events: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for seed in _seeds():
        history = _history(seed)
        events += summary(history)
        faults.update(e.what.split()[0] for e in history.events if isinstance(e, Fault))
        faults.update(
            code
            for e in history.events
            if isinstance(e, Fault) and e.what.startswith("fail ")
            for code in TRANSIENT
            if f" {code} " in e.what
        )
    for kind in (
        "Confirmed",
        "Expired",
        "DeadLettered",
        "Stopping",
        "Held",
        "Sent",
        "ServerModack",
    ):
        assert events[kind] > 0, kind
    for what in ("fail", "delay", "cut", "stall", "refuse", "duplicate", "confirmations", "lose"):
        assert faults[what] > 0, what
    for code in TRANSIENT:
        assert faults[code] > 0, code


def test_hours_pass_and_all_is_well() -> None:
    """H6: with little to do, leases are kept and streams reopened for hours."""
    plan = Plan(seed=3, horizon=20_000.0, restarts=False, faults=False)

    history = simulate(plan)

    assert history.events[-1].at > 20_000
    assert_all_is_well(history, plan)
