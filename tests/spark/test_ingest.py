"""`pubsub-aio ingest`, run as a user runs it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pubsub_aio.cli.sinks import sink_for
from pubsub_aio.emulator import Emulator
from pubsub_aio.spark.frames import dataframe
from tests.program import PUBSUB_AIO
from tests.spark.wire import TOPIC, WORKER, publish, until

WITHIN = 200.0
COMMAND = [*PUBSUB_AIO, "ingest"]


class Ran:
    """The command, from its start to its end."""

    def __init__(self, emulator: Emulator | None, *arguments: str) -> None:
        environment = dict(os.environ)
        if emulator:
            environment["PUBSUB_EMULATOR_HOST"] = emulator.address
            environment["GOOGLE_CLOUD_PROJECT"] = emulator.project
        self._process = subprocess.Popen(
            [*COMMAND, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def is_over(self) -> bool:
        return self._process.poll() is not None

    def jvm(self) -> psutil.Process:
        """Where its Spark runs."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        (jvm,) = [child for child in children if child.name() == "java"]
        return jvm

    async def ended(self) -> tuple[int, str, str]:
        """Its exit status, what it printed, and what it said beside that."""
        try:
            out, err = await asyncio.to_thread(self._process.communicate, timeout=WITHIN)
        finally:
            self._process.kill()
        assert "Traceback" not in err
        return self._process.returncode, out, err


async def test_everything_is_written_until_nothing_comes(
    emulator: Emulator, tmp_path: Path
) -> None:
    ids = publish(emulator, 3_000)
    to = str(tmp_path / "lake")
    ran = Ran(emulator, WORKER, "--to", to, "--until-empty", "--idle", "1", "--batch-messages=1000")
    status, out, _ = await ran.ended()

    assert status == 0
    assert Counter(pq.read_table(to)["message_id"].to_pylist()) == dict.fromkeys(ids, 1)
    assert out.startswith(f"{to} (parquet)\n")
    assert re.search(r"  rows +3,000   [\d,]+ a second, .*\n  batches +3   median [\d.]+ s", out)
    assert emulator.backlog(WORKER) == 0


def read_json(folder: Path) -> list[dict[str, str]]:
    lines = [line for path in folder.glob("*.json") for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


async def test_no_more_is_written_than_was_asked_for(emulator: Emulator, tmp_path: Path) -> None:
    """The rest comes again, to others; and what is written as JSON can be read by anybody."""
    publish(emulator, 400)
    arguments = [WORKER, "--to", str(tmp_path), "--format=json", "--max-messages=150"]
    arguments += ["--batch-messages=100", "--transport=rest"]
    status, out, _ = await Ran(emulator, *arguments).ended()

    rows = await asyncio.to_thread(read_json, tmp_path)
    assert status == 0
    assert len({row["message_id"] for row in rows}) == len(rows) == 150
    assert rows[0].keys() >= {"message_id", "data", "publish_time"}
    assert re.search(r"  rows +150 ", out)
    assert emulator.backlog(WORKER) == 250


async def test_acks_are_waited_for_although_another_batch_ends_meanwhile(
    emulator: Emulator, tmp_path: Path
) -> None:
    """The second waits while the first is written, and then there is no room for it."""
    publish(emulator, 300)
    emulator.faults.delay("Acknowledge", 1.0, times=10)
    arguments = [WORKER, "--to", str(tmp_path / "lake"), "--max-messages=100"]
    status, out, _ = await Ran(emulator, *arguments, "--batch-messages=100").ended()

    assert status == 0
    assert re.search(r"  rows +100 .*\n  batches +1 ", out)
    assert emulator.backlog(WORKER) == 200


async def test_an_interrupt_lets_it_finish_what_has_begun(
    emulator: Emulator, tmp_path: Path
) -> None:
    """And the table is one that Delta Lake reads."""
    ids = publish(emulator, 500)
    ran = Ran(emulator, WORKER, "--to", str(tmp_path / "table"), "--format=delta")
    await until(lambda: emulator.backlog(WORKER) == 0)
    ran.interrupt()
    status, out, _ = await ran.ended()

    assert status == 0
    assert re.search(r"  rows +500 ", out)
    table = DeltaTable(tmp_path / "table").to_pyarrow_table()
    assert sorted(table["message_id"].to_pylist()) == sorted(ids)


async def test_what_cannot_be_written_ends_it_with_the_reason(
    emulator: Emulator, tmp_path: Path
) -> None:
    """After a few attempts, and nothing is lost."""
    publish(emulator, 10)
    (tmp_path / "file").write_text("no folder")
    status, out, err = await Ran(emulator, WORKER, "--to", str(tmp_path / "file")).ended()

    assert status == 1
    assert re.search(r"  rows +0\n  batches +0\n  failed +3   their messages come again\n", out)
    assert len(err.splitlines()) < 6
    assert re.search(r"stopped, 3 batches in a row failed: .*file", err)
    assert emulator.backlog(WORKER) == 10


async def test_one_that_ends_after_a_failure_does_not_pass_for_one_that_went_well(
    emulator: Emulator, tmp_path: Path
) -> None:
    """Nothing comes for long enough, because what failed comes again later than that."""
    publish(emulator, 10)
    (tmp_path / "file").write_text("no folder")
    arguments = [WORKER, "--to", str(tmp_path / "file"), "--until-empty", "--idle=0.2"]
    status, out, err = await Ran(emulator, *arguments, "--batch-latency=0.1").ended()

    assert status == 1
    assert re.search(r"  rows +0\n", out)
    assert re.search(r"stopped, (a batch|2 batches in a row) failed: .*file", err)
    assert emulator.backlog(WORKER) == 10


async def test_an_interrupt_after_a_failure_is_no_failure(
    emulator: Emulator, tmp_path: Path
) -> None:
    """It stopped because it was told to; the summary has what failed."""
    emulator.publish(TOPIC, b"x")
    (tmp_path / "file").write_text("no folder")
    ran = Ran(emulator, WORKER, "--to", str(tmp_path / "file"))
    await until(lambda: emulator.messages(TOPIC)[0].modacks)  # given back
    ran.interrupt()
    status, out, err = await ran.ended()

    assert status == 0
    assert re.search(r"  failed +[12]   their messages come again", out)
    assert "stopped" not in err


async def test_a_second_interrupt_stops_at_once_and_says_what_goes_back(
    emulator: Emulator, tmp_path: Path
) -> None:
    """Even if Spark does not answer any more; and nothing is said but what matters."""
    ran = Ran(emulator, WORKER, "--to", str(tmp_path / "lake"), "--batch-latency=0")
    await until(lambda: emulator.streams(WORKER))
    jvm = ran.jvm()
    jvm.suspend()
    try:
        publish(emulator, 50)
        await until(lambda: all(message.modacks for message in emulator.messages(TOPIC)))
        ran.interrupt()
        await until(lambda: not emulator.streams(WORKER))
        ran.interrupt()
        await until(ran.is_over)
    finally:
        jvm.kill()  # it writes to the same pipes
    status, out, err = await ran.ended()

    assert status == 0
    assert re.search(r"  rows +0\n  batches +0\n  given back +50   begun when it ended", out)
    assert len(err.splitlines()) < 4
    assert (emulator.backlog(WORKER), emulator.outstanding(WORKER)) == (50, 0)


async def test_a_delta_table_is_not_filled_with_other_files(
    emulator: Emulator, tmp_path: Path
) -> None:
    """Nobody who reads the table would find them."""
    publish(emulator, 10)
    (tmp_path / "_delta_log").mkdir()
    status, _, err = await Ran(emulator, WORKER, "--to", str(tmp_path)).ended()

    assert status == 1
    assert f"--to: {tmp_path} is a Delta table: give --format delta, or another folder" in err
    assert emulator.backlog(WORKER) == 10


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_several_write_to_one_folder_and_no_row_is_lost(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """Where Spark's own files are mixed, the first that is done removes those of the others."""
    append = sink_for(kind, str(tmp_path))

    def write(batch: int) -> None:
        ids = pa.array([f"{batch}-{row}" for row in range(100)])
        records = pa.record_batch({"message_id": ids})
        append(dataframe(spark, records), records)

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        assert len([*pool.map(write, range(30))]) == 30

    written = spark.read.format(kind).load(str(tmp_path))
    assert written.count() == written.dropDuplicates(["message_id"]).count() == 3_000
    assert not [*tmp_path.glob("_*")]


def test_what_could_not_be_written_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = pa.record_batch({"message_id": pa.array(["1"])})
    broken = dataframe(spark, records).selectExpr("CAST(raise_error('broken') AS STRING) AS id")

    with pytest.raises(Exception, match="broken"):
        sink_for("parquet", str(tmp_path))(broken, records)

    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", ["part-0.parquet", "part-0.json"])
async def test_other_files_are_not_taken_for_a_delta_table(
    emulator: Emulator, tmp_path: Path, name: str
) -> None:
    """They would not be in it."""
    (tmp_path / name).write_bytes(b"")
    ran = Ran(emulator, WORKER, "--to", str(tmp_path), "--format=delta")
    status, _, err = await ran.ended()

    assert status == 1
    assert f"--to: {tmp_path} has files that are in no Delta table" in err
    assert not (tmp_path / "_delta_log").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to=nothing://x/y"], '--to: nothing://x/y .*scheme "nothing"; .*--jars CONNECTOR.jar'),
        (["--to=x", "--master=nonsense"], "pubsub-aio: master must be local"),
    ],
)
async def test_what_spark_cannot_use_is_said_in_a_line(
    emulator: Emulator, arguments: list[str], said: str
) -> None:
    status, _, err = await Ran(emulator, WORKER, *arguments).ended()

    assert status == 1
    assert re.search(said, err)
    assert len(err.splitlines()) < 6


@pytest.mark.parametrize("at_work", [False, True])
async def test_when_spark_is_gone_it_ends_and_says_so_in_a_line(
    emulator: Emulator, tmp_path: Path, *, at_work: bool
) -> None:
    """It cannot even stop Spark then."""
    ran = Ran(emulator, WORKER, "--to", str(tmp_path / "lake"), "--batch-latency=0")
    publish(emulator, 10)
    await until(lambda: emulator.backlog(WORKER) == 0)
    jvm = ran.jvm()
    if at_work:
        jvm.suspend()  # so that it does not answer any more
        publish(emulator, 10)
        await until(lambda: all(message.modacks for message in emulator.messages(TOPIC)[-10:]))
        jvm.kill()  # as the system does when there is no memory left
    else:
        jvm.kill()
        publish(emulator, 10)
    status, out, err = await ran.ended()

    assert status == 1
    assert re.search(r"  rows +10 ", out)
    assert len(err.splitlines()) < 4
    assert re.search(
        r"pubsub-aio: Spark was stopped, or its JVM has died: start this process anew", err
    )
    assert (emulator.backlog(WORKER), emulator.outstanding(WORKER)) == (10, 0)


async def test_a_subscription_that_there_is_not_is_said_in_a_few_lines(
    emulator: Emulator, tmp_path: Path
) -> None:
    status, out, err = await Ran(emulator, "nothing", "--to", str(tmp_path)).ended()

    assert status == 1
    assert "subscriptions/nothing" in err
    assert len(err.splitlines()) < 12
    assert out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([WORKER], "--to"),
        ([WORKER, "--to=x", "--format=csv"], "csv"),
        ([WORKER, "--to=x", "--max-messages=0"], "'0' is not a number of messages"),
        ([WORKER, "--to=x", "--idle=soon"], "'soon' is not a number of seconds"),
        ([WORKER, "--to="], "--to: it is empty"),
        ([WORKER, "--to=x", "--idle=3"], "--idle goes with --until-empty"),
        ([WORKER, "--to=x", "--until-empty", "--idle=0"], "--idle must be more than 0"),
        (["", "--to=x", "--project=p"], "subscription: must be NAME or projects/"),
        (["projects/p", "--to=x"], "subscription: must be NAME or projects/"),
        ([WORKER, "--to=x", "--project="], "project: must be an id"),
    ],
)
async def test_bad_arguments_are_usage_errors(arguments: list[str], said: str) -> None:
    status, _, err = await Ran(None, *arguments).ended()

    assert status == 2
    assert said in err


@pytest.mark.parametrize("missing", ["rich", "pyspark", "deltalake"])
async def test_what_is_not_installed_is_told_with_its_cure(missing: str) -> None:
    program = f"""
import sys
sys.modules[{missing!r}] = None
from pubsub_aio.cli import main
sys.exit(main(["ingest", "projects/p/subscriptions/s", "--to", "x", "--format", "delta"]))
"""
    ran = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert ran.returncode == 1
    assert re.search(
        r'needs more packages: pip install "pubsub-aio\[spark,cli(,delta)?\]"', ran.stderr
    )
    assert "Traceback" not in ran.stderr
