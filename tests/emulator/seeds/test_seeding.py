"""What a seed file creates, and what it does to what is there already."""

import re
import textwrap
from pathlib import Path

import grpc
import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from google.pubsub_v1 import SubscriberClient
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from pubsub_aio._wire import schema
from pubsub_aio.emulator import EmulatorThread, Seeded, VirtualClock
from pubsub_aio.emulator.handlers import HANDLERS
from pubsub_aio.errors import SeedError

SHOP = """\
project: shop
topics:
  orders:
    labels: {team: kitchen, country: no}
    subscriptions:
      worker:
        ack_deadline_seconds: 60
        dead_letter_policy: {dead_letter_topic: refused}
      audit:
  refused:
"""
ORDERS, REFUSED = "projects/shop/topics/orders", "projects/shop/topics/refused"
WORKER, AUDIT = "projects/shop/subscriptions/worker", "projects/shop/subscriptions/audit"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "pubsub.yaml"
    path.write_text(SHOP)
    return path


def write(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text))
    return path


def topic(emulator: EmulatorThread, name: str) -> dict[str, object]:
    return shown(emulator._emulator._broker.topic(name).config)


def subscription(emulator: EmulatorThread, name: str) -> dict[str, object]:
    return shown(emulator._emulator._broker.subscription(name).config)


def shown(message: Message) -> dict[str, object]:
    shown = json_format.MessageToDict(
        message, preserving_proto_field_name=True, descriptor_pool=schema.pool
    )
    del shown["name"], shown["state"]
    if not shown.get("push_config"):
        shown.pop("push_config", None)
    return shown


DEFAULTS = {
    "ack_deadline_seconds": 10,
    "message_retention_duration": "604800s",
    "expiration_policy": {"ttl": "2678400s"},
}


def test_a_seed_is_there_before_the_first_client_comes(path: Path) -> None:
    with (
        EmulatorThread(seed=path) as emulator,
        grpc.insecure_channel(emulator.address) as channel,
    ):
        client = SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        found = client.get_subscription(subscription=WORKER)

    assert (found.topic, found.ack_deadline_seconds) == (ORDERS, 60)
    assert found.dead_letter_policy.dead_letter_topic == REFUSED
    assert found.dead_letter_policy.max_delivery_attempts == 5


def test_the_project_of_the_file_is_the_emulators_unless_one_is_given(path: Path) -> None:
    with EmulatorThread(seed=path) as emulator:
        assert emulator.project == "shop"
        assert emulator.publish("orders", b"soup")
        assert emulator.backlog("worker") == 1
    with EmulatorThread(seed=path, project="other") as emulator:
        assert emulator.project == "other"
        assert emulator.seeded is not None
        assert "projects/other/topics/orders" in emulator.seeded.created
    with EmulatorThread(project="mine") as emulator:
        emulator.load_seed(write(path, "topics: [orders]"))
        assert topic(emulator, "projects/mine/topics/orders") == {}


def test_what_was_done_is_told(path: Path) -> None:
    with EmulatorThread(seed=path) as emulator:
        assert emulator.seeded == Seeded("shop", (ORDERS, REFUSED, WORKER, AUDIT), (), ())
        assert emulator.load_seed(path) == Seeded("shop", (), (), (ORDERS, REFUSED, WORKER, AUDIT))


@pytest.mark.parametrize(
    "text",
    [
        """\
        topics: {orders: , other: {labels: {a: b}}}
        subscriptions: {worker: {topic: orders}, audit: {topic: orders, filter: "attributes:a"}}
        """,
        """\
        subscriptions:
          - name: worker
            topic: orders
          - {name: audit, topic: projects/shop/topics/orders, filter: "attributes:a"}
        topics:
          - orders
          - name: projects/shop/topics/other
            labels: {a: b}
        """,
        """\
        topics:
          orders:
            subscriptions:
              - worker
              - {name: audit, filter: "attributes:a"}
          other: {labels: {a: b}}
        """,
    ],
    ids=["sections", "lists", "below"],
)
def test_every_form_says_the_same(path: Path, text: str) -> None:
    write(path, text)
    with EmulatorThread(seed=path, project="shop") as emulator:
        assert topic(emulator, "projects/shop/topics/other") == {"labels": {"a": "b"}}
        assert subscription(emulator, WORKER) == DEFAULTS | {"topic": ORDERS}
        assert subscription(emulator, AUDIT) == DEFAULTS | {
            "topic": ORDERS,
            "filter": "attributes:a",
        }


def test_every_kind_of_value_is_understood_by_its_field(path: Path) -> None:
    write(
        path,
        """\
        topics:
          orders:
            labels: {country: no, version: 1_0, on: "yes", empty: ""}
            messageRetentionDuration: 1h30m
            message_storage_policy:
              allowed_persistence_regions: [europe-west1, europe-west3]
              enforce_in_transit: yes
            ingestion_data_source_settings:
              cloud_storage:
                bucket: my-bucket
                text_format: {delimiter: "\\n"}
                minimum_object_create_time: 2026-01-31T12:00:00Z
              platform_logs_settings: {severity: warning}
          refused:
        subscriptions:
          worker:
            topic: orders
            ack_deadline_seconds: 1m
            retain_acked_messages: true
            message_retention_duration: 1w
            expiration_policy: {}
            retry_policy: {minimumBackoff: 0.5s, maximum_backoff: 100}
            deadLetterPolicy: {deadLetterTopic: refused, max_delivery_attempts: "7"}
          tables:
            topic: orders
            bigtable_config:
              table: projects/p/instances/i/tables/t
              column_family_mapping: {delimited_key: {key_fields: [a, b], delimiter: Iw==}}
          files:
            topic: orders
            cloud_storage_config: {bucket: my-bucket, text_config: {}, max_bytes: 1000000}
        """,
    )
    with EmulatorThread(seed=path, project="shop") as emulator:
        assert topic(emulator, ORDERS) == {
            "labels": {"country": "no", "version": "1_0", "on": "yes", "empty": ""},
            "message_retention_duration": "5400s",
            "message_storage_policy": {
                "allowed_persistence_regions": ["europe-west1", "europe-west3"],
                "enforce_in_transit": True,
            },
            "ingestion_data_source_settings": {
                "cloud_storage": {
                    "bucket": "my-bucket",
                    "text_format": {"delimiter": "\n"},
                    "minimum_object_create_time": "2026-01-31T12:00:00Z",
                },
                "platform_logs_settings": {"severity": "WARNING"},
            },
        }
        assert subscription(emulator, WORKER) == {
            "topic": ORDERS,
            "ack_deadline_seconds": 60,
            "retain_acked_messages": True,
            "message_retention_duration": "604800s",
            "topic_message_retention_duration": "5400s",
            "expiration_policy": {},
            "retry_policy": {"minimum_backoff": "0.500s", "maximum_backoff": "100s"},
            "dead_letter_policy": {"dead_letter_topic": REFUSED, "max_delivery_attempts": 7},
        }
        tables = subscription(emulator, "projects/shop/subscriptions/tables")["bigtable_config"]
        assert tables == {
            "table": "projects/p/instances/i/tables/t",
            "column_family_mapping": {
                "delimited_key": {"key_fields": ["a", "b"], "delimiter": "Iw=="}
            },
            "state": "ACTIVE",
        }
        files = subscription(emulator, "projects/shop/subscriptions/files")["cloud_storage_config"]
        assert files == {
            "bucket": "my-bucket",
            "text_config": {},
            "max_bytes": "1000000",
            "state": "ACTIVE",
        }


def test_settings_are_shared_by_anchors_and_merged(path: Path) -> None:
    write(
        path,
        """\
        x-patient: &patient {ack_deadline_seconds: 600, retain_acked_messages: true}
        topics:
          orders:
            subscriptions:
              worker: *patient
              audit: {<<: *patient, ack_deadline_seconds: 20}
        """,
    )
    with EmulatorThread(seed=path, project="shop") as emulator:
        worker, audit = subscription(emulator, WORKER), subscription(emulator, AUDIT)

    assert (worker["ack_deadline_seconds"], worker["retain_acked_messages"]) == (600, True)
    assert (audit["ack_deadline_seconds"], audit["retain_acked_messages"]) == (20, True)


def test_bindings_are_set_in_either_form(path: Path) -> None:
    write(
        path,
        """\
        topics:
          orders:
            iam:
              roles/pubsub.publisher: [user:a@example.com, user:b@example.com]
              roles/pubsub.viewer: allUsers
            subscriptions:
              worker:
                iam:
                  bindings:
                    - role: roles/pubsub.subscriber
                      members: [user:c@example.com]
                      condition: {title: soon, expression: "true"}
        """,
    )
    with EmulatorThread(seed=path, project="shop") as emulator:
        broker = emulator._emulator._broker
        of_topic = broker.policies.get(broker.topics[ORDERS], version=3)
        of_worker = broker.policies.get(broker.subscriptions[WORKER], version=3)
        again = emulator.load_seed(path)

    assert {binding.role: list(binding.members) for binding in of_topic.bindings} == {
        "roles/pubsub.publisher": ["user:a@example.com", "user:b@example.com"],
        "roles/pubsub.viewer": ["allUsers"],
    }
    assert of_worker.version == 3
    assert of_worker.bindings[0].condition.expression == "true"
    assert again.unchanged == (ORDERS, WORKER)


def test_a_revision_that_is_refused_where_it_goes_is_a_mistake(path: Path) -> None:
    write(path, f"schemas: {{order: {{type: AVRO, definition: '{RECORD}'}}}}\ntopics: [orders]")
    with EmulatorThread(seed=path, project="shop") as emulator:
        other = "syntax = 'proto3'; message Order { string dish = 1; }"
        write(
            path,
            f"""\
            topics: [others]
            schemas:
              order:
                type: PROTOCOL_BUFFER
                definition: "{other}"
            """,
        )
        with pytest.raises(SeedError, match="nothing was created") as raised:
            emulator.load_seed(path)
        assert "projects/shop/topics/others" not in emulator._emulator._broker.topics
        assert revisions(emulator) == [RECORD]

    assert [mistake.path.split(".")[:2] for mistake in raised.value.mistakes] == [
        ["schemas", "order"]
    ]


@pytest.mark.parametrize("number", range(3))
def test_the_files_of_the_guide_are_taken(path: Path, number: int) -> None:
    guide = Path(__file__).parents[3] / "docs" / "how-to" / "seed-the-emulator.md"
    blocks = re.findall(r"```yaml\n(.*?)```", guide.read_text(), re.DOTALL)
    write(path, [block for block in blocks if "services:" not in block][number])
    with EmulatorThread(seed=path) as emulator:
        assert emulator.seeded is not None
        assert emulator.seeded.created


# What is there already


def test_what_differs_is_changed_and_messages_stay(path: Path) -> None:
    with EmulatorThread(clock=VirtualClock(), seed=path) as emulator:
        emulator.publish("orders", b"soup")
        write(
            path,
            """\
            project: shop
            topics:
              orders:
                labels: {team: bar}
                subscriptions:
                  worker: {ack_deadline_seconds: 20}
                  late:
              refused:
            """,
        )
        seeded = emulator.load_seed(path)
        late = "projects/shop/subscriptions/late"

        assert seeded == Seeded("shop", (late,), (ORDERS, WORKER), (REFUSED,))
        assert topic(emulator, ORDERS) == {"labels": {"team": "bar"}}
        assert subscription(emulator, WORKER) == DEFAULTS | {
            "topic": ORDERS,
            "ack_deadline_seconds": 20,
        }
        assert subscription(emulator, AUDIT) == DEFAULTS | {"topic": ORDERS}  # not in the file
        assert (emulator.backlog("worker"), emulator.backlog("audit")) == (1, 1)
        assert emulator.load_seed(path).unchanged == (ORDERS, REFUSED, WORKER, late)


def test_what_cannot_be_changed_is_a_mistake_and_nothing_is_done(path: Path) -> None:
    with EmulatorThread(seed=path) as emulator:
        write(
            path,
            """\
            project: shop
            topics:
              orders:
              refused:
                subscriptions:
                  audit: {filter: "attributes:a", ack_deadline_seconds: 20}
              new-one:
            subscriptions:
              worker: {topic: orders, enable_message_ordering: yes}
            """,
        )
        with pytest.raises(SeedError) as raised:
            emulator.load_seed(path)
        after = subscription(emulator, AUDIT)
        assert "projects/shop/topics/new-one" not in emulator._emulator._broker.topics

    cannot = "where it is there already, and cannot be changed: delete that, or leave it so"
    assert [str(mistake).removeprefix(f"{path}:") for mistake in raised.value.mistakes] == [
        f"6:7: topics.refused.subscriptions.audit.topic: is '{ORDERS}' {cannot}",
        f"6:23: topics.refused.subscriptions.audit.filter: is '' {cannot}",
        f"9:52: subscriptions.worker.enable_message_ordering: is false {cannot}",
    ]
    assert after == DEFAULTS | {"topic": ORDERS}


def test_a_subscription_that_is_detached_is_a_mistake(path: Path) -> None:
    with EmulatorThread(seed=path) as emulator:
        broker = emulator._emulator._broker
        emulator.call(lambda: broker.detach_subscription(AUDIT, now=0))
        with pytest.raises(SeedError, match=r"audit: is there, but detached from its topic"):
            emulator.load_seed(path)


def test_a_topic_may_be_there_already_and_not_in_the_file(path: Path) -> None:
    policy = "{dead_letter_topic: refused}"
    write(path, f"subscriptions: {{worker: {{topic: orders, dead_letter_policy: {policy}}}}}")
    with EmulatorThread(project="shop") as emulator:
        emulator.create_topic("orders", message_retention_duration={"seconds": 600})
        emulator.create_topic("refused")
        seeded = emulator.load_seed(path)
        found = subscription(emulator, WORKER)

    assert seeded.created == (WORKER,)
    assert found["topic_message_retention_duration"] == "600s"


def test_a_waiting_subscriber_sees_a_change_at_once(path: Path) -> None:
    """An emulator that was seeded in between goes on as if its API had been called."""
    with EmulatorThread(clock=VirtualClock(), seed=path) as emulator:
        before = emulator.call(emulator._emulator.activity)
        emulator.load_seed(path)
        assert emulator.call(emulator._emulator.activity) > before


# Schemas

RECORD = '{"type": "record", "name": "Order", "fields": [{"name": "dish", "type": "string"}]}'
WIDER = RECORD.replace("}]}", '}, {"name": "table", "type": "int", "default": 0}]}')


def test_a_schema_and_its_topic_are_created_whatever_their_order(path: Path) -> None:
    (path.parent / "order.avsc").write_text(RECORD)
    write(
        path,
        """\
        topics:
          orders: {schema_settings: {schema: order, encoding: JSON}}
        schemas:
          order: {definition_file: order.avsc}
        """,
    )
    with EmulatorThread(seed=path, project="shop") as emulator:
        assert emulator.seeded is not None
        assert emulator.seeded.created == ("projects/shop/schemas/order", ORDERS)
        assert topic(emulator, ORDERS) == {
            "schema_settings": {"schema": "projects/shop/schemas/order", "encoding": "JSON"}
        }
        assert revisions(emulator) == [RECORD]
        again = emulator.load_seed(path)
        assert again.unchanged == ("projects/shop/schemas/order", ORDERS)
        (path.parent / "order.avsc").write_text(WIDER)
        assert emulator.load_seed(path).changed == ("projects/shop/schemas/order",)
        assert revisions(emulator) == [RECORD, WIDER]
        assert emulator.load_seed(path).changed == ()


def test_a_schema_has_the_revisions_that_are_listed(path: Path) -> None:
    write(
        path,
        f"""\
        schemas:
          order:
            type: AVRO
            revisions:
              - definition: '{RECORD}'
              - definition: '{WIDER}'
        """,
    )
    with EmulatorThread(seed=path, project="shop") as emulator:
        assert revisions(emulator) == [RECORD, WIDER]
        assert emulator.load_seed(path).changed == ()
        assert revisions(emulator) == [RECORD, WIDER]


def test_a_definition_that_is_refused_is_a_mistake_and_its_topic_is_not(path: Path) -> None:
    write(
        path,
        """\
        schemas:
          order:
            type: AVRO
            definition: '{"type": "recrod"}'
        topics:
          orders: {schema_settings: {schema: order, encoding: JSON}}
          others: {schema_settings: {schema: odrer, encoding: JSON}}
        """,
    )
    with EmulatorThread() as emulator, pytest.raises(SeedError) as raised:
        emulator.load_seed(path)

    assert [(mistake.line, mistake.path) for mistake in raised.value.mistakes] == [
        (4, "schemas.order.definition"),
        (7, "topics.others.schema_settings.schema"),
    ]


def revisions(emulator: EmulatorThread) -> list[str]:
    request = schema.ListSchemaRevisionsRequest(name="projects/shop/schemas/order", view="FULL")
    broker = emulator._emulator._broker
    found = emulator.call(lambda: HANDLERS["ListSchemaRevisions"](broker, request, 0))
    assert isinstance(found, schema.ListSchemaRevisionsResponse)
    return [revision.definition for revision in found.schemas][::-1]
