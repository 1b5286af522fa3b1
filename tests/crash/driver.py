"""The driver that crash tests kill: a subscription into Parquet files, exactly once."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pubsub_aio.spark import session
from tests.crash.mortal import MortalDataSource


def main() -> None:
    """Run the query; with --until-empty until nothing comes, and then tell what is in the files."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master", default="local[2,4]")
    parser.add_argument("--setting", action="append", default=[])
    parser.add_argument("--until-empty", action="store_true")
    parser.add_argument("--option", action="append", default=[])
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    settings = dict(setting.split("=", 1) for setting in arguments.setting)
    spark = session("crash", master=arguments.master, config=settings)
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(MortalDataSource)
    query = (
        spark.readStream.format("mortal")
        .options(**dict(option.split("=", 1) for option in arguments.option))
        .option("walLocation", str(folder / "wal"))
        .load()
        .select("message_id", "data", "sequence")
        .writeStream.format("parquet")
        .option("path", str(folder / "lake"))
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    if not arguments.until_empty:
        query.start().awaitTermination()
        return
    last = query.trigger(availableNow=True).start()
    last.awaitTermination()
    rows = spark.read.parquet(str(folder / "lake")).collect()
    found = [(row.message_id, bytes(row.data).decode(), row.sequence) for row in rows]
    (folder / "found.json").write_text(json.dumps(found))
    (folder / "progress.json").write_text(json.dumps([each.json for each in last.recentProgress]))


if __name__ == "__main__":
    main()
