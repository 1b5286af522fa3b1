"""A broker that is started again and again goes on as the reference model says."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from pubsub_aio.emulator.broker import Broker
from tests.emulator.storage.disk import Disk
from tests.emulator.test_model import BrokerAgainstModel, seldom

EXAMPLES = os.environ.get("PUBSUB_AIO_FUZZ_EXAMPLES")
pytestmark = [pytest.mark.timeout(0)] if EXAMPLES else []


class BrokerThatRestarts(BrokerAgainstModel):
    """What is saved at any time is all that the next life needs."""

    @initialize(full=st.sampled_from([1, 500, 2_000, 100_000]))
    def keep(self, full: int) -> None:
        self.full = full
        self.disk = Disk()
        self.disk.read(self.broker, now=self.now, full=full)

    @rule(look=st.booleans(), most=st.integers(1, 5))
    def save(self, look: bool, most: int) -> None:
        """Write what has changed, and sometimes begin to clear files."""
        if look:
            self.disk.ledger.look_after_files()
        self.disk.save(self.disk.ledger, most=most)

    @rule(torn=st.integers(0, 60), fails=seldom, look=st.booleans(), most=st.integers(1, 3))
    def restart(self, torn: int, fails: bool, look: bool, most: int) -> None:
        """Save what has changed, and be killed in the middle of a further write."""
        if look:
            self.disk.ledger.look_after_files()
        if fails and (batch := self.disk.ledger.next_batch()):
            self.disk.ledger.failed(batch)  # none of it was written
        self.disk.save(self.disk.ledger, most=most)
        last = max(self.disk.files)
        if torn:
            self.disk.files[last] += os.urandom(torn) if fails else bytes(torn)
        self.broker = Broker(instance=0)
        self.disk.read(self.broker, now=self.now, full=self.full)
        for model in self.subscriptions.values():
            model.streams.clear()
            for copy in model.copies:
                model.begin_anew(copy)
        self.streams.clear()
        self.offers.clear()
        self.check_settings()

    def check_settings(self) -> None:
        for name, model in self.subscriptions.items():
            real = self._real(model)
            assert real.config.detached == model.detached, name
            gone = model.topic not in self.topics.values()
            assert real.config.topic == (
                "_deleted-topic_" if gone and not model.detached else real.config.topic
            )
        assert set(self.broker.topics) == {f"projects/p/topics/{name}" for name in self.topics}


TestBrokerThatRestarts = BrokerThatRestarts.TestCase
TestBrokerThatRestarts.settings = settings(
    max_examples=int(EXAMPLES or 200),
    stateful_step_count=40,
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    phases=[Phase.generate] + [Phase.shrink] * bool(EXAMPLES),
    suppress_health_check=list(HealthCheck),
)
