"""What differs between versions of PySpark, and is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark
import pytest

from pubsub_aio import UnsupportedError
from pubsub_aio.spark import decode_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_json_is_decoded_from_4_0_on(spark: SparkSession) -> None:
    messages = spark.createDataFrame([(bytearray(b'{"number": 7}'),)], "data binary")

    if pyspark.__version__.startswith("3."):
        with pytest.raises(
            UnsupportedError, match=r"decode_json needs PySpark 4\.0, and this is 3\."
        ):
            decode_json(messages, "number INT")
    else:
        assert [row.number for row in decode_json(messages, "number INT").collect()] == [7]
