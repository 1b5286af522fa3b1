"""Settings that do nothing here: kept, told, and checked all the same."""

from datetime import timedelta

import pytest
from google.api_core.exceptions import InvalidArgument
from google.pubsub_v1 import (
    BigQueryConfig,
    BigtableConfig,
    CloudStorageConfig,
    ExpirationPolicy,
    IngestionDataSourceSettings,
    MessageStoragePolicy,
    Subscription,
    Topic,
    UpdateSubscriptionRequest,
    UpdateTopicRequest,
)

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.servers import Server

A_DAY = timedelta(days=1)
KINESIS = IngestionDataSourceSettings.AwsKinesis
STORAGE = IngestionDataSourceSettings.CloudStorage
HUBS = IngestionDataSourceSettings.AzureEventHubs
KAFKA = IngestionDataSourceSettings.AwsMsk
CONFLUENT = IngestionDataSourceSettings.ConfluentCloud


@pytest.mark.parametrize(
    ("field", "config"),
    [
        (
            "bigquery_config",
            BigQueryConfig(
                table="project.dataset.table",
                use_table_schema=True,
                write_metadata=True,
                drop_unknown_fields=True,
                service_account_email="me@example.com",
            ),
        ),
        (
            "cloud_storage_config",
            CloudStorageConfig(
                bucket="my-bucket",
                filename_prefix="log_",
                filename_suffix=".txt",
                filename_datetime_format="YYYY-MM-DD/hh_mm_ssZ",
                text_config={},
                max_duration=timedelta(minutes=1),
                max_bytes=1_024,
                max_messages=1_000,
            ),
        ),
        (
            "cloud_storage_config",
            CloudStorageConfig(
                bucket="my-bucket",
                avro_config={"write_metadata": True},
                max_duration=timedelta(minutes=10),
            ),
        ),
        (
            "bigtable_config",
            BigtableConfig(table="projects/p/instances/i/tables/t", write_metadata=True),
        ),
    ],
    ids=["bigquery", "text files", "avro files", "bigtable"],
)
def test_bigquery_and_storage_subscription_config_round_trips(
    server: Server, field: str, config: BigQueryConfig | CloudStorageConfig | BigtableConfig
) -> None:
    # Files may not stay open for longer than the ack deadline.
    _, subscription = server.create_pair(**{field: config, "ack_deadline_seconds": 600})
    told = getattr(server.get_subscription(subscription), field)
    told.state = type(config).State.STATE_UNSPECIFIED  # only told, by whoever tells it

    assert told == config


@google_falls_short("does not check them")
@pytest.mark.parametrize(
    ("settings", "naming"),
    [
        pytest.param({"bigquery_config": {"table": "table"}}, "table", id="not a table"),
        pytest.param({"bigquery_config": {"write_metadata": True}}, "table", id="no table"),
        pytest.param(
            {
                "bigquery_config": {
                    "table": "p.d.t",
                    "use_topic_schema": True,
                    "use_table_schema": True,
                }
            },
            "schema",
            id="two schemas",
        ),
        pytest.param({"cloud_storage_config": {"filename_prefix": "a"}}, "bucket", id="no bucket"),
        pytest.param(
            {"cloud_storage_config": {"bucket": "gs://bucket"}}, "bucket", id="not a bucket"
        ),
        pytest.param(
            {"cloud_storage_config": {"bucket": "bucket", "filename_suffix": "a/"}},
            "filename_suffix",
            id="suffix ends in a slash",
        ),
        pytest.param(
            {"cloud_storage_config": {"bucket": "bucket", "max_duration": timedelta(seconds=59)}},
            "max_duration",
            id="files open for too short",
        ),
        pytest.param(
            {"cloud_storage_config": {"bucket": "bucket", "max_duration": timedelta(seconds=601)}},
            "max_duration",
            id="files open for too long",
        ),
        pytest.param(
            {"cloud_storage_config": {"bucket": "bucket", "max_bytes": 999}},
            "max_bytes",
            id="files too small",
        ),
        pytest.param(
            {"cloud_storage_config": {"bucket": "bucket", "max_bytes": 10 * 2**30 + 1}},
            "max_bytes",
            id="files too large",
        ),
        pytest.param(
            {"cloud_storage_config": {"bucket": "bucket", "max_messages": 999}},
            "max_messages",
            id="files of too few messages",
        ),
        pytest.param({"bigtable_config": {"table": "table"}}, "table", id="not a Bigtable table"),
        pytest.param(
            {
                "bigquery_config": {"table": "p.d.t"},
                "cloud_storage_config": {"bucket": "bucket"},
            },
            "cloud_storage_config",
            id="two destinations",
        ),
    ],
)
def test_bigquery_and_storage_subscription_config_is_validated(
    server: Server, settings: dict[str, object], naming: str
) -> None:
    topic = server.create_topic()

    with server.refuses(InvalidArgument, naming=naming):
        server.create_subscription(topic, ack_deadline_seconds=600, **settings)


@google_falls_short("does not know it in an update mask")
def test_bigquery_config_can_be_updated(server: Server) -> None:
    _, name = server.create_pair(bigquery_config={"table": "project.dataset.one"})
    request = UpdateSubscriptionRequest(
        subscription=Subscription(name=name, bigquery_config={"table": "project.dataset.two"}),
        update_mask={"paths": ["bigquery_config"]},
    )
    updated = server.call(server.subscriber.update_subscription, request)

    assert updated.bigquery_config.table == "project.dataset.two"
    assert server.get_subscription(name) == updated


@pytest.mark.parametrize(
    ("source", "config"),
    [
        (
            "aws_kinesis",
            KINESIS(
                stream_arn="arn:aws:kinesis:us-west-2:111111111111:stream/my-stream",
                consumer_arn="arn:aws:kinesis:us-west-2:111111111111:stream/my-stream/consumer/c:1",
                aws_role_arn="arn:aws:iam::111111111111:role/my-role",
                gcp_service_account="me@example.com",
            ),
        ),
        (
            "cloud_storage",
            STORAGE(
                bucket="my-bucket",
                text_format=STORAGE.TextFormat(delimiter=","),
                match_glob="**.txt",
            ),
        ),
        (
            "azure_event_hubs",
            HUBS(
                resource_group="group",
                namespace="namespace",
                event_hub="hub",
                client_id="11111111-1111-1111-1111-111111111111",
                tenant_id="22222222-2222-2222-2222-222222222222",
                subscription_id="33333333-3333-3333-3333-333333333333",
                gcp_service_account="me@example.com",
            ),
        ),
        (
            "aws_msk",
            KAFKA(
                cluster_arn="arn:aws:kafka:us-east-1:111111111111:cluster/my-cluster/c-1",
                topic="their-topic",
                aws_role_arn="arn:aws:iam::111111111111:role/my-role",
                gcp_service_account="me@example.com",
            ),
        ),
        (
            "confluent_cloud",
            CONFLUENT(
                bootstrap_server="server.us-east1.gcp.confluent.cloud:9092",
                cluster_id="lkc-1",
                topic="their-topic",
                identity_pool_id="pool-1",
                gcp_service_account="me@example.com",
            ),
        ),
    ],
    ids=["kinesis", "cloud storage", "event hubs", "msk", "confluent"],
)
def test_ingestion_settings_round_trip(
    server: Server, source: str, config: KINESIS | STORAGE | HUBS | KAFKA | CONFLUENT
) -> None:
    topic = server.create_topic(ingestion_data_source_settings={source: config})
    told = server.get_topic(topic).ingestion_data_source_settings
    assert source in told
    kept = getattr(told, source)
    kept.state = type(config).State.STATE_UNSPECIFIED  # only told, by whoever tells it

    assert kept == config


@pytest.mark.parametrize(
    "policy",
    [ExpirationPolicy(ttl=A_DAY), ExpirationPolicy(ttl=365 * A_DAY), ExpirationPolicy()],
    ids=["a day", "a year", "never"],
)
def test_expiration_policy_round_trips(server: Server, policy: ExpirationPolicy) -> None:
    _, name = server.create_pair(
        expiration_policy=policy, message_retention_duration=timedelta(minutes=10)
    )
    subscription = server.get_subscription(name)

    assert "expiration_policy" in subscription
    assert subscription.expiration_policy == policy


@google_falls_short("does not know the expiration policy in an update mask")
def test_expiration_policy_can_be_updated(server: Server) -> None:
    _, name = server.create_pair(message_retention_duration=timedelta(minutes=10))
    for policy in (ExpirationPolicy(ttl=A_DAY), ExpirationPolicy()):
        request = UpdateSubscriptionRequest(
            subscription=Subscription(name=name, expiration_policy=policy),
            update_mask={"paths": ["expiration_policy"]},
        )
        updated = server.call(server.subscriber.update_subscription, request)

        assert "expiration_policy" in updated
        assert updated.expiration_policy == policy
        assert server.get_subscription(name) == updated


@google_falls_short("takes any lifetime")
@pytest.mark.parametrize("ttl", [-A_DAY, timedelta(0), A_DAY - timedelta(seconds=1)])
def test_expiration_policy_round_trips_and_is_validated(server: Server, ttl: timedelta) -> None:
    topic = server.create_topic()

    with server.refuses(InvalidArgument, naming="ttl"):
        server.create_subscription(
            topic, expiration_policy={"ttl": ttl}, message_retention_duration=timedelta(minutes=10)
        )


def test_topic_key_and_storage_policy_round_trip(server: Server) -> None:
    key = "projects/p/locations/l/keyRings/r/cryptoKeys/k"
    policy = MessageStoragePolicy(
        allowed_persistence_regions=["europe-west1", "europe-west3"], enforce_in_transit=True
    )
    topic = server.get_topic(server.create_topic(kms_key_name=key, message_storage_policy=policy))

    assert topic.kms_key_name == key
    assert topic.message_storage_policy == policy


@google_falls_short("does not check it")
def test_storage_policy_without_regions_is_invalid_argument(server: Server) -> None:
    topic = server.create_topic(message_storage_policy={"allowed_persistence_regions": ["here"]})
    request = UpdateTopicRequest(
        topic=Topic(name=topic, message_storage_policy={}),
        update_mask={"paths": ["message_storage_policy"]},
    )

    with server.refuses(InvalidArgument, naming="allowed_persistence_regions"):
        server.create_topic(message_storage_policy={})
    with server.refuses(InvalidArgument, naming="allowed_persistence_regions"):
        server.call(server.publisher.update_topic, request)


@google_falls_short("does not check it")
def test_topic_malformed_key_is_invalid_argument(server: Server) -> None:
    with server.refuses(InvalidArgument, naming="kms_key_name"):
        server.create_topic(kms_key_name="my-key")


def test_tags_are_taken(server: Server) -> None:
    topic = server.create_topic(tags={"123/environment": "test"})

    assert server.create_subscription(topic, tags={"123/environment": "test"})
