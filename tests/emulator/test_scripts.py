"""Scripts that mean harm, and what there is when there is no engine to run any."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest
from google.api_core.exceptions import GoogleAPICallError, InvalidArgument, NotFound
from google.pubsub_v1 import (
    GetTopicRequest,
    PublisherAsyncClient,
    PublishRequest,
    PubsubMessage,
    PullRequest,
    StreamingPullRequest,
    SubscriberAsyncClient,
    Topic,
)
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

from pubsub_aio.emulator import Emulator, EmulatorThread
from pubsub_aio.emulator.javascript import ScriptRunner, engine_path
from pubsub_aio.emulator.transforms import Script, ScriptError

WITHIN = 20.0
"""Seconds of real time in which a script must be over, on a machine that is busy."""

SLOW = {
    "a loop": "while (true) {}",
    "a loop that catches": "while (true) { try { while (true) {} } finally { continue; } }",
    "regular expression": "/^(a+)+$/.test('a'.repeat(40) + 'b');",
    "a getter": "return {get data() { while (true) {} }};",
    "a proxy": "return new Proxy({}, {get() { while (true) {} }});",
    "attributes": "return {data: 'a', attributes: new Proxy({}, {ownKeys() { while (true) {} }})};",
    "an engine that does not look": "return {data: new Array(2 ** 31).join('xxxxxxxx')};",
    "sorting": "const a = Array.from({length: 1e5}, Math.random); while (true) a.sort();",
}
DEEP_OR_LARGE = {
    "recursion": "return change(message);",
    "numbers": "const a = []; while (true) a.push(a.length + 0.5);",
    "strings": "const a = []; while (true) a.push('x'.repeat(1e7) + a.length);",
    "one string": "let s = 'x'; while (true) s += s;",
    "buffers": "const a = []; while (true) a.push(new Uint8Array(5e7).fill(1));",
    "one array": "return {data: String(new Array(4e8).fill(1.5).length)};",
    "big number": "return {data: String(3n ** 500000000n)};",
    "nested": "let a = []; for (let i = 0; i < 1e6; i++) a = [a]; return {data: String(a)};",
    "nested JSON": "return {data: JSON.stringify(JSON.parse('['.repeat(1e6)))};",
    "nested code": "return {data: eval('('.repeat(1e6))};",
    "nested expression": "return {data: String(new RegExp('('.repeat(1e6)))};",
    "generators": "function* g() { yield* g(); } return {data: [...g()].join()};",
    "waiting": "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1e6);",
    "symbol": "return {data: 'a', attributes: {a: Symbol()}};",
    "surrogate": "throw new Error('\\ud800');",
    "null": "throw null;",
    "hostile error": "throw {get message() { while (true) {} }, toString() { while (true) {} }};",
    "json": "JSON.parse = JSON.stringify = Object.keys = null; return 1;",
}
HARMLESS = {
    "toJSON": "return {data: 'a', attributes: {}, toJSON() { while (true) {} }};",
    "prototypes": (
        "Object.prototype.toJSON = String.prototype.toJSON = () => { while (true) {} };"
        "Object.defineProperty(Object.prototype, 'data', {set() { while (true) {} }});"
        "return {__proto__: null, data: 'a', attributes: {}};"
    ),
    "jobs": "const again = () => Promise.resolve().then(again); again(); return {data: 'a'};",
    "import": "import('os').then(os => os.exit()); return {data: 'a'};",
    "names": (
        "return {data: [typeof require, typeof process, typeof fetch, typeof std, typeof os]"
        ".every(kind => kind === 'undefined') ? 'a' : 'b'};"
    ),
    "__proto__": "return {data: 'a', attributes: JSON.parse('{\"__proto__\": \"a\"}')};",
}


def udf(body: str) -> dict[str, object]:
    code = f"function change(message, metadata) {{ {body} }}"
    return {"javascript_udf": {"function_name": "change", "code": code}}


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator(transform_timeout=0.6) as emulator:
        yield emulator


@pytest.fixture
def publisher(channel: grpc.aio.Channel) -> PublisherAsyncClient:
    return PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))


@pytest.fixture
def subscriber(channel: grpc.aio.Channel) -> SubscriberAsyncClient:
    return SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=channel))


async def publish(publisher: PublisherAsyncClient, topic: str, *data: bytes) -> list[str]:
    messages = [PubsubMessage(data=each) for each in data]
    request = PublishRequest(topic=topic, messages=messages)
    response = await publisher.publish(request=request, retry=None, timeout=60)
    return list(response.message_ids)


async def get_topic(publisher: PublisherAsyncClient, topic: str) -> Topic:
    return await publisher.get_topic(request=GetTopicRequest(topic=topic), retry=None, timeout=60)


# Scripts that mean harm


@pytest.mark.parametrize("body", SLOW.values(), ids=SLOW.keys())
async def test_a_slow_script_is_ended_and_others_are_answered_meanwhile(
    emulator: Emulator, publisher: PublisherAsyncClient, body: str
) -> None:
    topic = emulator.create_topic("slow", message_transforms=[udf(body)])
    quick = emulator.create_topic("quick", message_transforms=[udf("return message;")])
    async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as tasks:
        slow = tasks.create_task(_refusal(publisher, topic))
        await asyncio.sleep(0)
        await get_topic(publisher, topic)
        await publish(publisher, quick, b"a")
        assert not slow.done()

    assert "the transform change failed: it " in slow.result()


async def _refusal(publisher: PublisherAsyncClient, topic: str) -> str:
    with pytest.raises(InvalidArgument) as caught:
        await publish(publisher, topic, b"a")
    return str(caught.value.message)


@pytest.mark.parametrize("body", DEEP_OR_LARGE.values(), ids=DEEP_OR_LARGE.keys())
async def test_a_script_that_takes_too_much_is_refused(
    emulator: Emulator, publisher: PublisherAsyncClient, body: str
) -> None:
    topic = emulator.create_topic("greedy", message_transforms=[udf(body)])
    async with asyncio.timeout(WITHIN):
        refusal = await _refusal(publisher, topic)

    assert refusal.startswith("messages[0]: the transform change failed: ")
    assert emulator.messages() == []


@pytest.mark.parametrize("body", HARMLESS.values(), ids=HARMLESS.keys())
async def test_what_a_script_leaves_for_later_is_never_done(
    emulator: Emulator, publisher: PublisherAsyncClient, body: str
) -> None:
    topic = emulator.create_topic("sly", message_transforms=[udf(body)])
    async with asyncio.timeout(WITHIN):
        await publish(publisher, topic, b"b")

    assert [message.data for message in emulator.messages()] == [b"a"]


async def test_a_script_that_harms_when_it_is_read_cannot_be_set(emulator: Emulator) -> None:
    code = "while (true) {} function change(message) { return message; }"
    transform = {"javascript_udf": {"function_name": "change", "code": code}}

    with pytest.raises(ValueError, match=r"code: it (took|was ended)"):
        emulator.create_topic("bad", message_transforms=[transform])


async def test_a_subscription_that_is_deleted_while_its_script_runs_is_not_found(
    emulator: Emulator, subscriber: SubscriberAsyncClient
) -> None:
    loop = udf(SLOW["a loop"])
    subscription = emulator.create_subscription("slow", "topic", message_transforms=[loop])
    emulator.publish("topic", b"a")
    request = StreamingPullRequest(subscription=subscription, stream_ack_deadline_seconds=10)
    stream = await subscriber.streaming_pull(requests=_only(request), timeout=60)
    assert not (await anext(aiter(stream))).received_messages
    await emulator.until(lambda: emulator.outstanding("slow") == 1)
    await subscriber.delete_subscription(subscription=subscription)

    with pytest.raises(NotFound):
        await anext(aiter(stream))


async def _only(request: StreamingPullRequest) -> AsyncIterator[StreamingPullRequest]:
    yield request
    await asyncio.Event().wait()


async def test_many_slow_publishes_leave_other_calls_alone(
    emulator: Emulator, publisher: PublisherAsyncClient
) -> None:
    topic = emulator.create_topic("slow", message_transforms=[udf(SLOW["a loop"])])
    plain = emulator.create_topic("plain")
    async with asyncio.TaskGroup() as tasks:
        slow = [tasks.create_task(_refusal(publisher, topic)) for _ in range(6)]
        for _ in range(20):
            await publish(publisher, plain, b"a")
        assert not all(task.done() for task in slow)
    assert len(emulator.messages("plain")) == 20


async def test_a_slow_script_of_a_subscription_leaves_other_calls_alone(
    emulator: Emulator, publisher: PublisherAsyncClient, subscriber: SubscriberAsyncClient
) -> None:
    loop = udf(SLOW["a loop"])
    subscription = emulator.create_subscription("slow", "topic", message_transforms=[loop])
    topic = emulator.create_topic("plain")
    emulator.publish("topic", b"a")
    request = PullRequest(subscription=subscription, max_messages=1)
    async with asyncio.TaskGroup() as tasks:
        pull = tasks.create_task(subscriber.pull(request=request, retry=None, timeout=60))
        await emulator.until(lambda: emulator.outstanding("slow") == 1)
        await get_topic(publisher, topic)
        assert emulator.outstanding("slow") == 1
        pull.cancel()


async def test_what_a_cancelled_pull_had_taken_counts_as_never_delivered(
    emulator: Emulator, subscriber: SubscriberAsyncClient
) -> None:
    loop = udf(SLOW["a loop"])
    subscription = emulator.create_subscription("slow", "topic", message_transforms=[loop])
    emulator.publish("topic", b"a")
    request = PullRequest(subscription=subscription, max_messages=10)
    pull = asyncio.create_task(subscriber.pull(request=request, retry=None, timeout=60))
    await emulator.until(lambda: emulator.outstanding("slow") == 1)
    pull.cancel()

    await emulator.until(lambda: emulator.outstanding("slow") == 0)
    (message,) = emulator.messages()
    assert (message.deliveries, message.modacks) == ([], [])


async def test_leaving_the_emulator_ends_a_script_that_runs() -> None:
    async with asyncio.timeout(WITHIN):
        async with Emulator(transform_timeout=3_600.0) as emulator:
            topic = emulator.create_topic("slow", message_transforms=[udf(SLOW["a loop"])])
            channel = grpc.aio.insecure_channel(emulator.address)
            client = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))
            call = asyncio.create_task(publish(client, topic, b"a"))
            await emulator.until(lambda: emulator._service.working == 1)
        with pytest.raises(GoogleAPICallError):
            await call
        await channel.close()

    assert [thread.name for thread in threading.enumerate() if "transforms" in thread.name] == []


# The processes


def runner(time_limit: float = 0.3) -> ScriptRunner:
    engine = engine_path()
    assert engine
    return ScriptRunner(engine, time_limit=time_limit)


SAME = Script("same", "function same(message) { return message; }")
TEXT = '[{"data": "a", "attributes": {}}, {}]'


def test_a_script_has_no_more_time_than_it_was_given() -> None:
    used = os.times().children_user
    scripts = runner(time_limit=0.3)
    with pytest.raises(ScriptError, match=r"it took longer than 0\.3 s|it was ended"):
        scripts.run(Script("loop", "function loop() { while (true) {} }"), TEXT)
    scripts.close()

    assert os.times().children_user - used < 1.0


def test_a_child_that_was_killed_is_replaced() -> None:
    scripts = runner()
    assert scripts.run(SAME, TEXT) == '{"data":"a","attributes":{}}'
    (child,) = scripts._children
    os.kill(child._process.pid, signal.SIGKILL)

    with pytest.raises(ScriptError, match="it was ended"):
        scripts.run(SAME, TEXT)
    assert scripts.run(SAME, TEXT) == '{"data":"a","attributes":{}}'
    scripts.close()


def test_an_engine_that_does_not_start_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "quickjs.py").write_text("raise ImportError('broken')")
    scripts = ScriptRunner(str(tmp_path), time_limit=0.3)

    with pytest.raises(ScriptError, match="does not start"):
        scripts.run(SAME, TEXT)
    scripts.close()


def test_nothing_runs_once_it_is_closed() -> None:
    scripts = runner()
    scripts.check(SAME)
    scripts.close()

    for _ in range(3):
        with pytest.raises(ScriptError, match=r"stopping|ended"):
            scripts.run(SAME, TEXT)
    assert scripts._children == []


# In process


def test_publish_in_process_is_transformed() -> None:
    shout = udf(
        "if (message.data == 'drop') return null; if (message.data == 'bad') throw 1;"
        "message.data = message.data.toUpperCase(); return message;"
    )
    with EmulatorThread() as emulator:
        emulator.create_topic("topic", message_transforms=[shout])
        first, left_out = emulator.publish("topic", b"a"), emulator.publish("topic", b"drop")
        with pytest.raises(ValueError, match=r"messages\[0\]: the transform change failed: 1"):
            emulator.publish("topic", b"bad")
        last = emulator.publish("topic", b"b")
        messages = emulator.messages("topic")

    assert [message.data for message in messages] == [b"A", b"B"]
    assert [message.message_id for message in messages] == [first, last]
    assert int(first) < int(left_out) < int(last)


# Without an engine

WITHOUT_ENGINE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "quickjs":
            raise ModuleNotFoundError("No module named 'quickjs'")
sys.meta_path.insert(0, Missing())

import logging
from pubsub_aio.emulator import EmulatorThread
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)
code = "function change(message) { return null; }"
udf = {"javascript_udf": {"function_name": "change", "code": code}}
model = {"ai_inference": {"endpoint": "projects/p/locations/l/endpoints/e"}}
with EmulatorThread() as emulator:
    emulator.create_topic("topic", message_transforms=[udf])
    emulator.create_topic("other", message_transforms=[udf, model])
    emulator.create_subscription("subscription", "topic", message_transforms=[udf, model])
    emulator.publish("topic", b"a")
    emulator.publish("topic", b"b")
    print([message.data for message in emulator.messages("topic")])
"""


def test_without_an_engine_messages_pass_unchanged_and_one_warning_says_so() -> None:
    command = [sys.executable, "-c", WITHOUT_ENGINE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    lines = done.stdout.splitlines()

    assert (done.returncode, done.stderr) == (0, "")
    assert lines[-1] == "[b'a', b'b']"
    warnings = [line for line in lines if line.startswith("WARNING")]
    assert len(warnings) == 2
    assert sum("pip install 'pubsub-aio[transforms]'" in line for line in warnings) == 1
    assert sum("ai_inference" in line for line in warnings) == 1


def test_nothing_of_it_is_loaded_before_it_is_needed() -> None:
    program = (
        "import sys; from pubsub_aio.emulator import EmulatorThread\n"
        "with EmulatorThread() as emulator:\n"
        "    emulator.create_subscription('subscription', 'topic')\n"
        "    emulator.publish('topic', b'a')\n"
        "    print([n for n in sys.modules if 'javascript' in n or 'quickjs' in n])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout, done.stderr) == ("[]\n", "")


async def test_a_transform_that_is_not_applied_is_warned_of(
    emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    compression = {"compression_algorithm": "ZLIB", "compression_mode": "COMPRESS"}
    with caplog.at_level(logging.WARNING):
        emulator.create_topic("one", message_transforms=[{"compression": compression}])
        emulator.create_topic("two", message_transforms=[{"compression": compression}])

    assert len(caplog.messages) == 1
    assert "compression" in caplog.messages[0]
