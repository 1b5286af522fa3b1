"""Makes an archive of the classes that Spark loads; with it each JVM of the tests starts sooner.

`python -m tests.spark.class_archive FILE`; then `SPARK_SUBMIT_OPTS` as `noxfile.py` sets it.
"""

from __future__ import annotations

import os
import sys
import tempfile

from pubsub_aio.spark import session


def main(file: str) -> None:
    os.environ["SPARK_SUBMIT_OPTS"] = f"'-XX:ArchiveClassesAtExit={file}' -Xlog:disable"
    spark = session()
    with tempfile.TemporaryDirectory() as folder:
        rows = spark.range(10).selectExpr("id", "cast(id as string) as data")
        for kind in ("parquet", "json"):
            rows.write.format(kind).save(f"{folder}/{kind}")
            spark.read.format(kind).load(f"{folder}/{kind}").groupBy("id").count().collect()
    gateway = spark.sparkContext._gateway
    assert gateway
    spark.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=200)  # it writes the archive last


if __name__ == "__main__":
    main(*sys.argv[1:])
