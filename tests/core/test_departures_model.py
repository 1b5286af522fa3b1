"""What waits to be published, against a model of it, with callers that do as a publisher does.

PUBSUB_AIO_FUZZ_EXAMPLES sets how many sequences are tried; they are then drawn at random.
"""

from __future__ import annotations

import math
import os
from random import Random

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from pubsub_aio._core.departures import _SPARE, Departures
from pubsub_aio._core.outgoing import Batch, Lane

EXAMPLES = os.environ.get("PUBSUB_AIO_FUZZ_EXAMPLES")

TOPICS, KEYS = ("t", "u", "v"), ("", "", "k", "l")
USUAL, OTHER = "usual", "other"


class Message:
    """A message, and what the model knows of it."""

    batch: Batch[Message]
    index: int

    def __init__(self, number: int, size: int, options: object, due_at: float) -> None:
        self.number = number
        self.options = options
        self.wire = b"x" * size
        self.due_at = due_at
        self.awaited = False

    def __repr__(self) -> str:
        return f"{self.number}"


class Model:
    """Everybody leaves once, in order, in time, and never too many together.

    Args:
        random: What is drawn, here and in each step.
    """

    def __init__(self, random: Random) -> None:
        self.max_messages, self.max_bytes = random.choice([1, 3, 5, 8]), random.choice([1, 8, 20])
        self.max_latency = random.choice([0.0, 2.0])
        self.max_paused = random.randint(0, 3)
        self.queue: Departures[Message] = Departures(
            max_messages=self.max_messages,
            max_bytes=self.max_bytes,
            max_latency=self.max_latency,
            max_paused=self.max_paused,
        )
        self.queue.max_count = random.choice([math.inf, random.randint(1, 6 * self.max_messages)])
        self.queue.max_size = random.choice([math.inf, random.randint(1, 6 * self.max_bytes)])
        self.counts = random.random() < 0.5  # not always: to look puts right what was not counted
        self.now = 0.0
        self.woken = False
        """Whether the loop that lets batches depart was told to look."""
        self.next_at = math.inf
        """When it looks by itself."""
        self.made = self.peak = 0
        self.waiting: dict[tuple[str, str, object], list[Message]] = {}
        self.lent: dict[str, Batch[Message]] = {}
        self.away: list[Lane[Message]] = []
        self.blocked: set[str] = set()

    def step(self, random: Random) -> None:
        """Something happens."""
        actions = {
            self.publish_some: 30,
            self.publish_many: 15,
            self.wait_for: 5,
            self.withdraw: 10,
            self.take: 20,
            self.pass_time: 12,
            self.land: 10,
            self.pause: 5,
            self.resume: 5,
            self.block: 5,
            self.unblock: 5,
            self.now_and_then: 3,
        }
        (action,) = random.choices([*actions], [*actions.values()])
        action(random)
        if self.counts:
            self.count()
        self.no_more_is_remembered_than_waits()

    # What the model knows

    def everybody(self) -> list[Message]:
        return [one for line in self.waiting.values() for one in line]

    def make(self, size: int, options: object) -> Message:
        self.made += 1
        return Message(self.made, size, options, self.now + self.max_latency)

    def line(self, topic: str, key: str, options: object) -> list[Message]:
        return self.waiting.setdefault((topic, key, None if key else options), [])

    def leave(self, batch: Batch[Message]) -> None:
        """A batch has left: it is what was first in its line, and it is complete."""
        note(f"  {batch.passengers} left")
        assert batch.gone
        assert len(batch) == len(batch.passengers) == len(batch.wires) > 0
        lane = batch.lane
        line = self.line(lane.topic, lane.ordering_key, batch.options)
        assert line[: len(batch)] == batch.passengers
        del line[: len(batch)]
        assert batch.size == sum(map(len, batch.wires))
        for index, one in enumerate(batch.passengers):
            assert (one.batch, one.index) == (batch, index)
            assert (batch.wires[index], batch.options) == (one.wire, one.options)
            self.waits_no_more(one)

    def waits_no_more(self, one: Message) -> None:
        if one.awaited:
            self.queue.max_count -= 1
            self.queue.max_size -= len(one.wire)

    # In

    def find(self, topic: str, key: str, options: object) -> Lane[Message] | None:
        """The lane of a message, unless it is paused."""
        lane = self.queue.lane(topic, key, options)
        refused = key and (lane.paused_by is not None or self.queue.all_paused)
        return None if refused else lane

    def publish_some(self, random: Random) -> None:
        topic, key = random.choice(TOPICS), random.choice(KEYS)
        options = random.choice([USUAL, USUAL, OTHER])
        for _ in range(random.randint(1, 8)):
            self.publish(topic, key, options, random.randint(1, 6))

    def publish(self, topic: str, key: str, options: object, size: int) -> None:
        """As `PublisherClient.publish` does, which adds to what it was lent without asking."""
        batch = self.lent.get(topic) if not key and options == USUAL else None
        if batch is None or batch.size + size > batch.max_size:
            self.publish_by_asking(topic, key, options, size)
            return
        one = self.make(size, options)
        note(f"{one} of {size} joins what was lent of {topic}")
        one.batch, one.index = batch, len(batch.passengers)
        batch.passengers.append(one)
        batch.wires.append(one.wire)
        batch.size += size
        self.line(topic, "", options).append(one)
        if one.index >= batch.last:
            self.queue.close(batch)
            self.woken = True
        assert len(self.everybody()) <= self.queue.max_count
        assert sum(len(each.wire) for each in self.everybody()) <= self.queue.max_size

    def publish_by_asking(self, topic: str, key: str, options: object, size: int) -> None:
        count, total = len(self.everybody()), sum(len(one.wire) for one in self.everybody())
        full = count >= self.queue.max_count or total >= self.queue.max_size
        assert self.queue.is_full == full
        lane = None if full else self.find(topic, key, options)
        if lane is None:
            return
        one = self.make(size, options)
        note(f"{one} of {size} is published to {topic} {key} {options}")
        self.line(topic, key, options).append(one)
        if self.queue.add(lane, one, one.wire, options):
            self.woken = True
        if self.queue.is_tight:
            self.lent.clear()
        elif not key and options == USUAL and (batch := self.queue.lend(lane)):
            self.lent[topic] = batch

    def publish_many(self, random: Random) -> None:
        """As `publish_many` does, with what is left of a list, as far as there is room."""
        topic, key, options = (
            random.choice(TOPICS),
            random.choice(KEYS),
            random.choice([USUAL, OTHER]),
        )
        lane = None if self.queue.is_full else self.find(topic, key, options)
        if lane is None:
            return
        most = min(random.randint(1, 12), self.queue.max_count - len(self.everybody()))
        made = [self.make(random.randint(1, 6), options) for _ in range(random.randint(1, 12))]
        start, wires = random.randrange(len(made)), [one.wire for one in made]
        place = self.queue.add_some(lane, made, wires, options, start=start, most=int(most))
        note(f"{made[start:place]} of {made} are published to {topic} {key} {options}")
        self.line(topic, key, options).extend(made[start:place])
        self.woken = True

        assert start < place <= min(start + most, len(made))
        batch = made[start].batch
        assert [one.batch for one in made[start:place]] == [batch] * (place - start)
        assert not any(hasattr(one, "batch") for one in [*made[:start], *made[place:]])
        if place < min(start + most, len(made)):  # as many as fit
            assert batch.max_size < 0 or batch.size + len(wires[place]) > self.max_bytes
        if self.queue.is_tight:
            self.lent.clear()

    def wait_for(self, random: Random) -> None:
        """Somebody waits for a message to leave, so that it does not count."""
        for one in random.sample(self.everybody(), min(1, len(self.everybody()))):
            if not one.awaited:
                note(f"{one} is awaited")
                one.awaited = True
                self.queue.max_count += 1
                self.queue.max_size += len(one.wire)

    def withdraw(self, random: Random) -> None:
        everybody = self.everybody()
        for one in random.sample(everybody, random.randint(0, len(everybody))):
            self.take_back(one)

    def take_back(self, one: Message) -> None:
        note(f"{one} is taken back")
        lane = one.batch.lane
        self.line(lane.topic, lane.ordering_key, one.batch.options).remove(one)
        self.waits_no_more(one)
        self.queue.withdraw(one)

    # Out

    def look(self) -> None:
        """Ask what is due, if something has woken us or it is time."""
        if not self.woken and self.now < self.next_at:
            return
        self.next_at = self.queue.poll(now=self.now)
        assert self.next_at > self.now
        later = [one.due_at for one in self.everybody() if not one.batch.due]
        assert self.next_at <= min(later, default=math.inf)
        assert self.next_at == math.inf or any(lane.batches for lane in self.queue._lanes.values())
        assert not self.queue._fresh
        assert len(self.queue._aging) <= 2 * len(self.queue) + _SPARE
        self.woken = True

    def take(self, random: Random) -> None:
        self.look()
        self.take_one(random.randint(0, 6))

    def take_one(self, room: int) -> bool:
        batch = self.queue.take(room)
        if batch is None:
            return False
        self.leave(batch)
        assert len(batch) <= min(room, self.max_messages)
        assert batch.size <= self.max_bytes or len(batch) == 1
        assert batch.lane.topic not in self.blocked
        if batch.lane.ordering_key:
            assert batch.lane not in self.away
            assert batch.lane.paused_by is None
            self.away.append(batch.lane)
        return True

    def pass_time(self, random: Random) -> None:
        """Time passes, during a hold, or what may go departs."""
        held = random.random() < 0.5
        (self.look if held else self.take_what_may_go)()
        self.now += random.choice([0.0, 0.5, 1.5, 2.0, 5.0])
        note(f"it is {self.now}")
        (self.look if held else self.take_what_may_go)()
        self.woken = self.woken or held  # by the end of the hold

    def take_what_may_go(self) -> None:
        """Whatever has waited for long enough goes, unless something holds it back."""
        self.look()
        while self.take_one(1_000):
            assert self.woken
        self.woken = False
        busy = {(lane.topic, lane.ordering_key) for lane in self.away}
        for (topic, key, _), line in self.waiting.items():
            if topic not in self.blocked and not (key and (topic, key) in busy):
                assert not any(one.due_at <= self.now for one in line)
                assert len(line) < self.max_messages  # a full batch does not wait

    def land(self, random: Random) -> None:
        if self.away:
            self.landed(random.choice(self.away))

    def landed(self, lane: Lane[Message]) -> None:
        note(f"what was away of {lane.topic} {lane.ordering_key} landed")
        self.away.remove(lane)
        self.queue.landed(lane)
        self.woken = True

    # What may not go

    def block(self, random: Random) -> None:
        topic = random.choice(TOPICS)
        note(f"{topic} is blocked")
        self.blocked.add(topic)
        self.queue.block(topic)

    def unblock(self, random: Random) -> None:
        topic = random.choice(TOPICS)
        if random.random() < 0.5:
            self.refuse(topic)
            return
        note(f"{topic} is unblocked")
        self.blocked.discard(topic)
        self.queue.unblock(topic)
        self.woken = True

    def refuse(self, topic: str) -> None:
        note(f"{topic} is refused")
        self.blocked.discard(topic)
        for batches in self.queue.refuse(topic):
            assert {(batch.lane.topic, batch.lane) for batch in batches} == {
                (topic, batches[0].lane)
            }
            for batch in batches:
                self.leave(batch)
        assert not any(line for (name, _, _), line in self.waiting.items() if name == topic)

    def pause(self, random: Random) -> None:
        """The batch of a key has failed; that it has landed is told later."""
        if not self.away:
            return
        lane, error = random.choice(self.away), ValueError()
        note(f"{lane.topic} {lane.ordering_key} is paused")
        for batch in self.queue.pause(lane, error):
            assert batch.lane is lane
            self.leave(batch)
        assert not self.line(lane.topic, lane.ordering_key, None)
        assert lane.paused_by is error
        assert lane in self.queue.paused()

    def resume(self, random: Random) -> None:
        topic, key = random.choice(TOPICS), random.choice(["k", "l"])
        note(f"{topic} {key} is resumed")
        paused = (topic, key) in [(lane.topic, lane.ordering_key) for lane in self.queue.paused()]
        assert self.queue.resume(topic, key) == paused

    # Now and then

    def now_and_then(self, random: Random) -> None:
        action = random.choice(
            ["flush", "stop", "resume", "rush", "churn", "refusals", "forget", "give up"]
        )
        note(action)
        if action == "flush":
            self.flush()
        elif action == "stop":
            for batch in self.queue.take_all():
                self.leave(batch)
            assert not self.everybody()
        elif action == "resume":
            self.queue.resume_all()
            assert self.queue.paused() == []
        elif action == "forget":
            self.queue.forget_idle()
        elif action == "give up":
            self.lent.clear()  # as a publisher does when something departs
        else:
            self.rush(action)

    def rush(self, ending: str) -> None:
        """Much comes and leaves, is taken back or refused, maybe while something else waits."""
        for _ in range(40):
            made = self.made
            self.publish("v", "", USUAL, 1)
            self.publish("v", "", USUAL, self.max_bytes)
            if ending != "churn":
                self.take_what_may_go()
            if ending == "refusals":
                self.refuse("v")
            for one in [one for one in self.line("v", "", USUAL) if one.number > made]:
                self.take_back(one)

    def flush(self) -> None:
        self.queue.flush()
        self.max_latency = 0.0
        for one in self.everybody():
            one.due_at = self.now
        self.woken = True

    # Always

    def count(self) -> None:
        everybody = self.everybody()
        assert self.queue.count == len(everybody)
        assert self.queue.size == sum(len(one.wire) for one in everybody)

    def no_more_is_remembered_than_waits(self) -> None:
        everybody, lanes = self.everybody(), self.queue._lanes.values()
        self.peak = max(self.peak, len(everybody))
        assert all(len(lane.batches) <= 2 * self.peak + _SPARE + 1 for lane in lanes)
        batches = [batch for lane in lanes for batch in lane.batches]
        assert sum(len(batch.passengers) for batch in batches) <= 2 * len(everybody)
        assert self.queue._lent.keys() <= {*batches}
        assert self.queue._ready.keys() <= {*lanes}
        assert self.queue.all_paused == (len(self.queue.paused()) > self.max_paused)

    def end(self) -> None:
        """Once nothing holds them back all leave, and nothing of them is remembered."""
        note("the end")
        queue = self.queue
        self.flush()
        for topic in TOPICS:
            self.blocked.discard(topic)
            queue.unblock(topic)
        self.take_what_may_go()
        while self.away:
            self.landed(self.away[0])
            self.take_what_may_go()
        assert not self.everybody()
        self.count()
        queue.resume_all()
        queue.forget_idle()
        assert queue.poll(now=self.now) == math.inf
        assert (len(queue), len(queue._ready), len(queue._lent), len(queue._aging)) == (0, 0, 0, 0)


@settings(
    max_examples=int(EXAMPLES or 700),
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 2**32), min_size=60, max_size=120))
def test_everyone_leaves_once_in_order_in_time_and_within_the_limits(
    limits: int, steps: list[int]
) -> None:
    """M25, M30, P13, R9: whatever is added, taken back, held back and taken, in whatever order.

    A step is a number of which all that happens in it is drawn, none if it is zero: so a step costs
    little to draw, and of a sequence that fails few are left.
    """
    model = Model(Random(limits))  # noqa: S311 - it guards nothing
    for step in filter(None, steps):
        model.step(Random(step))  # noqa: S311 - nor does this
    model.end()
