"""What a running emulator has as a seed file: `seed(export(x)) == x`."""

import textwrap
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pubsub_aio._wire import schema
from pubsub_aio.emulator import EmulatorThread, VirtualClock, export_seed
from pubsub_aio.emulator.handlers import HANDLERS
from pubsub_aio.emulator.seeds.reading import read_seed
from pubsub_aio.emulator.seeds.survey import Survey
from pubsub_aio.emulator.seeds.writing import as_text
from pubsub_aio.errors import ServiceError, UnavailableError

DAY = 86_400


def exported(emulator: EmulatorThread, project: str = "shop") -> str:
    return export_seed(emulator.address, project).text


def body(text: str) -> str:
    """A file without what it says of itself."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


def test_a_file_has_what_differs_from_the_defaults(tmp_path: Path) -> None:
    text = """\
        project: shop
        topics:
          orders:
            labels:
              country: 'no'
              team: kitchen
            message_retention_duration: 10m
            iam:
              roles/pubsub.publisher:
              - allUsers
              - user:me@example.com
            subscriptions:
              audit:
              worker:
                ack_deadline_seconds: 60
                dead_letter_policy:
                  dead_letter_topic: refused
                expiration_policy: {}
                filter: attributes:a
                retry_policy:
                  minimum_backoff: 0.5s
          refused:
            subscriptions:
              lake:
                cloud_storage_config:
                  bucket: my-bucket
                  max_duration: 90s
                  text_config: {}
                iam:
                  bindings:
                  - condition:
                      expression: 'true'
                      title: soon
                    members:
                    - allUsers
                    role: roles/pubsub.viewer
        """
    path = tmp_path / "pubsub.yaml"
    path.write_text(textwrap.dedent(text))
    with EmulatorThread(seed=path) as emulator:
        export = export_seed(emulator.address, "shop")

    assert body(export.text) == textwrap.dedent(text)
    assert (export.count, export.left_out) == (5, ())


def test_what_has_only_defaults_is_a_name(tmp_path: Path) -> None:
    path = tmp_path / "pubsub.yaml"
    path.write_text(
        "project: shop\ntopics: {orders: {subscriptions: {worker: {retry_policy: {}}}}}"
    )
    with EmulatorThread(seed=path) as emulator:
        assert body(exported(emulator)) == textwrap.dedent(
            """\
            project: shop
            topics:
              orders:
                subscriptions:
                  worker:
                    retry_policy: {}
            """
        )


def test_what_is_needed_of_other_projects_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "pubsub.yaml"
    path.write_text("topics: {orders: {labels: {a: b}}, refused: , unseen: }")
    with EmulatorThread(seed=path, project="other") as emulator:
        emulator.project = "shop"
        emulator.create_subscription(
            "worker",
            "projects/other/topics/orders",
            dead_letter_policy={"dead_letter_topic": "projects/other/topics/refused"},
        )
        text = exported(emulator)
    path.write_text(text)
    with EmulatorThread(seed=path) as emulator:
        assert exported(emulator) == text

    assert body(text) == textwrap.dedent(
        """\
        project: shop
        topics:
          projects/other/topics/orders:
            labels:
              a: b
            subscriptions:
              worker:
                dead_letter_policy:
                  dead_letter_topic: projects/other/topics/refused
          projects/other/topics/refused:
        """
    )


def test_what_cannot_be_in_a_file_is_told(tmp_path: Path) -> None:
    with EmulatorThread(project="shop") as emulator:
        emulator.create_subscription("detached", "orders")
        emulator.create_subscription("orphaned", "deleted")
        emulator.create_topic("refused")
        policy = {"dead_letter_topic": "projects/shop/topics/refused"}
        emulator.create_subscription("worker", "orders", dead_letter_policy=policy)
        broker, now = emulator._emulator._broker, emulator.clock.now()

        def change() -> None:
            broker.detach_subscription("projects/shop/subscriptions/detached", now=now)
            broker.delete_topic("projects/shop/topics/deleted", now=now)
            broker.delete_topic("projects/shop/topics/refused", now=now)
            shot = schema.Snapshot(name="projects/shop/snapshots/shot")
            broker.create_snapshot(shot, "projects/shop/subscriptions/worker", now=now)

        emulator.call(change)
        export = export_seed(emulator.address, "shop")
    path = tmp_path / "pubsub.yaml"
    path.write_text(export.text)
    with EmulatorThread(seed=path) as emulator:
        assert exported(emulator) == export.text

    assert export.left_out == (
        "projects/shop/subscriptions/detached: it is detached",
        "projects/shop/subscriptions/orphaned: its topic was deleted",
        "projects/shop/subscriptions/worker: its dead_letter_policy, whose topic was deleted",
        "projects/shop/snapshots/shot: a snapshot is of messages",
    )
    assert export.count == 2


@pytest.mark.parametrize(
    "text",
    [
        """\
        project: shop
        topics:
          orders:
            subscriptions:
              pushed:
                push_config:
                  no_wrapper:
                    write_metadata: true
                  oidc_token:
                    audience: shop
                    service_account_email: push@example.iam.gserviceaccount.com
                  push_endpoint: http://localhost:8080/push
        """,
        """\
        project: shop
        topics:
          orders:
            message_transforms:
            - javascript_udf:
                code: |
                  function clean(message, metadata) {
                    return message;
                  }
                function_name: clean
            subscriptions:
              thinking:
                message_transforms:
                - ai_inference:
                    endpoint: projects/p/locations/l/publishers/google/models/m
                    service_account_email: ai@example.iam.gserviceaccount.com
                    unstructured_inference:
                      parameters:
                        deep:
                        - a
                        -
                        - true
                        max_tokens: 0.5
                  disabled: true
        """,
    ],
    ids=["push", "transforms"],
)
def test_every_kind_of_setting_is_exported_as_it_was(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pubsub.yaml"
    path.write_text(textwrap.dedent(text))
    with EmulatorThread() as emulator:
        emulator.load_seed(path)
        assert body(exported(emulator)) == textwrap.dedent(text)
        assert emulator.load_seed(path).changed == ()


def test_schemas_are_exported_with_their_revisions(tmp_path: Path) -> None:
    text = """\
        project: shop
        schemas:
          coffee:
            type: AVRO
            definition: |
              {
                "type": "record", "name": "Coffee",
                "fields": [{"name": "cups", "type": "int"}]
              }
          order:
            type: AVRO
            revisions:
            - definition: '{"type": "record", "name": "Order", "fields": []}'
            - definition: '{"type": "record", "name": "Order", "fields": [{"name": "dish", "type":
                "string", "default": ""}]}'
        topics:
          orders:
            schema_settings:
              encoding: JSON
              schema: order
        """
    path = tmp_path / "pubsub.yaml"
    path.write_text(textwrap.dedent(text))
    with EmulatorThread(seed=path) as emulator:
        export = export_seed(emulator.address, "shop")
    path.write_text(export.text)
    with EmulatorThread(seed=path) as emulator:
        assert exported(emulator) == export.text

    joined = textwrap.dedent(text).replace('"type":\n        "string"', '"type": "string"')
    assert body(export.text) == joined
    assert export.count == 3


def test_all_pages_are_read(tmp_path: Path) -> None:
    path = tmp_path / "pubsub.yaml"
    names = [f"topic-{number:04}" for number in range(1_205)]
    path.write_text(f"project: shop\ntopics: {names}")
    with EmulatorThread(seed=path) as emulator:
        export = export_seed(emulator.address, "shop")

    assert export.count == 1_205


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid:80", "127.0.0.1:port", "::1"])
def test_nobody_there_is_said_so(address: str) -> None:
    with pytest.raises(UnavailableError, match=f"no emulator answers at {address} "):
        export_seed(address, "shop")


def test_an_impossible_project_is_refused() -> None:
    with (
        EmulatorThread() as emulator,
        pytest.raises(ServiceError, match="INVALID_ARGUMENT: project"),
    ):
        export_seed(emulator.address, "not a project")


# Whatever there is

_LABEL = st.text(st.sampled_from("abcxyz0189_-\u00e4\u6f22"), max_size=5)
_LABELS = st.dictionaries(_LABEL.map("k".__add__), _LABEL | st.sampled_from(["no", "1_0", "null"]))
_EMAIL = st.sampled_from(["", "me@example.com"])


def durations(least: int, most: int) -> st.SearchStrategy[schema.Duration]:
    whole = st.integers(least, most - 1)
    nanos = st.just(0) | st.integers(0, 999_999_999)
    return st.builds(lambda s, n: schema.Duration(seconds=s, nanos=n), whole, nanos)


def maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


TOPICS = maybe(
    labels=_LABELS,
    message_retention_duration=durations(600, 31 * DAY),
    kms_key_name=st.just("projects/p/locations/l/keyRings/r/cryptoKeys/k"),
    message_storage_policy=st.fixed_dictionaries(
        {
            "allowed_persistence_regions": st.lists(
                st.sampled_from(["europe-west1", "on", "1.0"]), min_size=1
            )
        },
        optional={"enforce_in_transit": st.booleans()},
    ),
    ingestion_data_source_settings=maybe(
        cloud_storage=maybe(
            bucket=st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
            text_format=maybe(delimiter=st.text(max_size=3)),
            match_glob=st.text(
                st.sampled_from("*{}[]&!|>%@`'\"#:- ,\n\t\r\x85\u2028~0e1yn"), max_size=9
            ),
            minimum_object_create_time=st.builds(
                schema.Timestamp, seconds=st.integers(0, 2**31), nanos=st.integers(0, 10**9 - 1)
            ),
        )
    ),
    tags=st.dictionaries(st.sampled_from(["123/env", "a"]), st.sampled_from(["456", "null", ""])),
)
EXPORTS = st.sampled_from(
    [
        {},
        {"bigquery_config": {"table": "p.d.t", "use_topic_schema": True}},
        {"bigtable_config": {"table": "projects/p/instances/i/tables/t", "write_metadata": True}},
        {"cloud_storage_config": {"bucket": "bucket", "avro_config": {}, "max_bytes": 2**33}},
    ]
)
SUBSCRIPTIONS = st.builds(
    dict.__or__,
    EXPORTS,
    maybe(
        labels=_LABELS,
        ack_deadline_seconds=st.integers(10, 600),
        retain_acked_messages=st.booleans(),
        message_retention_duration=durations(600, 31 * DAY),
        enable_message_ordering=st.booleans(),
        enable_exactly_once_delivery=st.booleans(),
        expiration_policy=st.just({}) | st.fixed_dictionaries({"ttl": durations(DAY, 365 * DAY)}),
        filter=st.sampled_from(["", 'attributes.a = "b\\n"', "attributes:a AND NOT attributes:b"]),
        retry_policy=maybe(minimum_backoff=durations(0, 10), maximum_backoff=durations(10, 600)),
        dead_letter_policy=st.fixed_dictionaries(
            {"dead_letter_topic": st.just("projects/shop/topics/refused")},
            optional={"max_delivery_attempts": st.integers(5, 100)},
        ),
        tags=st.dictionaries(st.just("123/env"), st.just("456")),
    ),
)
POLICIES = st.lists(
    st.builds(
        lambda role, members, condition: {
            "role": role,
            "members": members,
            **({"condition": condition} if condition else {}),
        },
        st.sampled_from(["roles/a", "roles/b"]),
        st.lists(st.sampled_from(["allUsers", "user:me@example.com"]), min_size=1, unique=True),
        st.none() | st.just({"title": "soon", "expression": "true"}),
    ),
    max_size=3,
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    topics=st.lists(st.tuples(TOPICS, POLICIES, st.lists(SUBSCRIPTIONS, max_size=2)), max_size=3)
)
def test_what_is_exported_and_seeded_is_the_same(
    tmp_path: Path, topics: list[tuple[dict[str, Any], list[Any], list[dict[str, Any]]]]
) -> None:
    path = tmp_path / "pubsub.yaml"
    with EmulatorThread(project="shop", clock=VirtualClock()) as emulator:
        emulator.create_topic("refused")
        for number, (fields, bindings, below) in enumerate(topics):
            name = emulator.create_topic(f"topic-{number}", **fields)
            for index, subscription in enumerate(below):
                emulator.create_subscription(f"sub-{number}-{index}", name, **subscription)
            policy = schema.Policy(bindings=bindings, version=3)
            request = schema.SetIamPolicyRequest(resource=name, policy=policy)
            broker = emulator._emulator._broker
            emulator.call(HANDLERS["SetIamPolicy"], broker, request, 0)
        before, text = everything(emulator), exported(emulator)
        path.write_text(text, encoding="utf-8")
        assert emulator.load_seed(path).changed == ()
        assert everything(emulator) == before
    with EmulatorThread(seed=path, clock=VirtualClock()) as emulator:
        assert everything(emulator) == before
        assert exported(emulator) == text


def everything(emulator: EmulatorThread) -> list[Message | tuple[str, ...]]:
    broker = emulator._emulator._broker
    found = sorted(broker.topics.items())
    configs: list[Message | tuple[str, ...]] = [topic.config for _, topic in found]
    configs += [subscription.config for _, subscription in sorted(broker.subscriptions.items())]
    for name, topic in found:
        configs += sorted(
            (name, binding.role, *sorted(binding.members), binding.condition.title)
            for binding in broker.policies.get(topic, version=3).bindings
        )
    return configs


@given(
    definitions=st.lists(
        st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t\r\x85"))
        | st.sampled_from(["a\n", "\na", " a\n b", "a\n\n", "a \nb", "# a\nb: c\n", "\t{\n\t}\n"]),
        min_size=1,
        max_size=3,
    )
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_definitions_of_schemas_are_kept_to_the_letter(
    tmp_path: Path, definitions: list[str]
) -> None:
    found = Survey("shop")
    name, kind = "projects/shop/schemas/order", schema.Schema.Type.AVRO
    found.schemas[name] = [
        schema.Schema(name=name, type_=kind, definition=definition) for definition in definitions
    ]
    path = tmp_path / "pubsub.yaml"
    path.write_text(as_text(found), encoding="utf-8", newline="")
    seed = read_seed(path, project=None, default_project="")
    seed.mistakes.tell()

    assert [revision.message for revision in seed.schemas[name]] == found.schemas[name]


def test_a_definition_of_several_lines_is_written_as_it_is() -> None:
    found = Survey("shop")
    found.schemas["projects/shop/schemas/order"] = [
        schema.Schema(type_=schema.Schema.Type.AVRO, definition='{\n  "type": "string"\n}\n')
    ]

    assert body(as_text(found)) == textwrap.dedent(
        """\
        project: shop
        schemas:
          order:
            type: AVRO
            definition: |
              {
                "type": "string"
              }
        """
    )
