"""The names that users import. A change here is a change for them."""

from __future__ import annotations

from pubsub_aio import spark


def test_the_public_names_are_these() -> None:
    assert spark.__all__ == [
        "BatchReport",
        "MicroBatch",
        "PubSubAioDataSource",
        "PubSubDataSource",
        "dataframe",
        "decode_avro",
        "decode_json",
        "decode_protobuf",
        "microbatches",
        "session",
    ]
