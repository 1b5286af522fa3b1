"""`pubsub-aio ingest --streaming`, run as a user runs it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psutil
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark.sql.datasource", reason="the source needs PySpark 4.0")

from pyspark.sql import SparkSession

from pubsub_aio.cli.folders import check_folders, refuse_streamed
from pubsub_aio.cli.query_progress import QueryTally
from pubsub_aio.cli.streaming import why
from pubsub_aio.emulator import Emulator
from pubsub_aio.errors import ConfigError
from tests.spark.test_ingest import Ran
from tests.spark.wire import WORKER, publish, until


class Streamed(Ran):
    """The command with a lake and a checkpoint in a folder."""

    def __init__(self, emulator: Emulator, folder: Path, *arguments: str) -> None:
        self.lake = folder / "lake"
        super().__init__(
            emulator,
            *(WORKER, "--to", str(self.lake), "--streaming"),
            *("--checkpoint", str(folder / "checkpoint"), *arguments),
        )

    def interrupt_group(self) -> None:
        """Interrupt it as a terminal does: with all that runs in its group, but for this one."""
        command = psutil.Process(self._process.pid)
        group = os.getpgid(command.pid)
        for each in [*command.children(recursive=True), command]:
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):  # it has ended
                if os.getpgid(each.pid) == group:
                    each.send_signal(signal.SIGINT)

    async def killed(self) -> None:
        """Kill it and all that it has started, as when the machine is switched off."""
        command = psutil.Process(self._process.pid)
        for each in [command, *command.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        await asyncio.to_thread(self._process.communicate)

    def batches(self) -> int:
        return len(logged(self.lake))


UNTIL_EMPTY = ("--until-empty", "--idle=1")


def logged(lake: Path) -> list[Path]:
    """What Spark has noted of batches that are written."""
    return [path for path in lake.glob("_spark_metadata/*") if not path.name.startswith(".")]


def files(lake: Path) -> set[Path]:
    """The files that Spark reads: those of a batch that was not finished are not among them."""
    entries = [json.loads(line) for log in logged(lake) for line in log.read_text().split("\n")[1:]]
    return {Path(unquote(urlsplit(entry["path"]).path)) for entry in entries}


def written(lake: Path) -> Counter[str]:
    """How often each message is there."""
    ids: Counter[str] = Counter()
    for path in files(lake):
        if path.suffix == ".json":
            ids.update(json.loads(line)["message_id"] for line in path.read_text().splitlines())
        else:
            ids.update(pq.read_table(path)["message_id"].to_pylist())
    return ids


async def test_each_run_adds_what_is_new_exactly_once(emulator: Emulator, tmp_path: Path) -> None:
    ids = publish(emulator, 2_000)
    status, out, err = await Streamed(
        emulator, tmp_path, *UNTIL_EMPTY, "--batch-messages=1000"
    ).ended()

    assert status == 0, err
    lake, wal = tmp_path / "lake", tmp_path / "checkpoint" / "wal"
    assert written(lake) == dict.fromkeys(ids, 1)
    assert out.startswith(f"{lake} (parquet, exactly once)\n")
    assert re.search(r"  rows +2,000   [\d,]+ a second, .*\n  batches +[12]   median [\d.]+ s", out)
    assert re.search(r"  duplicates +0\n", out)
    assert f"--checkpoint {tmp_path / 'checkpoint'} again: " in out
    assert f"in the log, {wal}, " in out
    assert (wal / "wal.json").exists()
    assert emulator.backlog(WORKER) == 0

    ids += publish(emulator, 100)
    status, out, err = await Streamed(emulator, tmp_path, *UNTIL_EMPTY).ended()

    assert status == 0, err
    assert written(lake) == dict.fromkeys(ids, 1)
    assert re.search(r"  rows +100 .*\n  batches +1 ", out)


async def test_one_that_was_killed_goes_on_and_nothing_is_there_twice(
    emulator: Emulator, tmp_path: Path
) -> None:
    ids = publish(emulator, 3_000)
    ran = Streamed(emulator, tmp_path, "--batch-messages=100", "--batch-latency=0")
    await until(lambda: emulator.backlog(WORKER) == 0 and ran.batches() > 1)
    await ran.killed()
    before = written(tmp_path / "lake")
    assert 0 < len(before) < 3_000

    status, out, err = await Streamed(emulator, tmp_path, *UNTIL_EMPTY).ended()

    assert status == 0, err
    assert written(tmp_path / "lake") == dict.fromkeys(ids, 1)
    assert re.search(rf"  rows +{3_000 - len(before):,} ", out)


async def test_an_interrupt_ends_it_with_all_that_it_has_begun(
    emulator: Emulator, tmp_path: Path
) -> None:
    """And the log may be elsewhere."""
    ids = publish(emulator, 50)
    wal = tmp_path / "log"
    ran = Streamed(emulator, tmp_path, "--format=json", f"--wal={wal}", "--transport=rest")
    await until(lambda: written(ran.lake))  # the first batch of a query may be an empty one
    ran.interrupt_group()
    status, out, err = await ran.ended()

    assert status == 0, err
    assert written(tmp_path / "lake") == dict.fromkeys(ids, 1)
    assert re.search(r"  rows +50 .*\n  batches +1 ", out)
    assert (wal / "wal.json").exists()
    assert not (tmp_path / "checkpoint" / "wal").exists()


async def test_a_second_interrupt_stops_at_once(emulator: Emulator, tmp_path: Path) -> None:
    """Even if Spark does not answer any more."""
    ran = Streamed(emulator, tmp_path)
    await until(lambda: emulator.streams(WORKER))
    jvm = ran.jvm()
    jvm.suspend()
    try:
        ran.interrupt()
        ran._process.terminate()  # two of the same might arrive as one
        await until(ran.is_over)
    finally:
        jvm.kill()  # it writes to the same pipes
    status, out, err = await ran.ended()

    assert status == 0
    assert re.search(r"  rows +0\n  batches +0\n", out)
    assert not re.search(r"Exception|\tat ", err)


async def test_when_spark_is_gone_it_ends_and_says_so_in_a_line(
    emulator: Emulator, tmp_path: Path
) -> None:
    ran = Streamed(emulator, tmp_path)
    await until(lambda: emulator.streams(WORKER))
    ran.jvm().kill()
    status, out, err = await ran.ended()

    assert status == 1
    assert out == ""
    assert "pubsub-aio: Spark was stopped, or its JVM has died" in err
    assert len(err.splitlines()) < 4


async def test_a_subscription_that_there_is_not_is_said_in_a_few_lines(
    emulator: Emulator, tmp_path: Path
) -> None:
    arguments = ["--streaming", "--checkpoint", str(tmp_path / "checkpoint"), *UNTIL_EMPTY]
    status, out, err = await Ran(
        emulator, "nothing", "--to", str(tmp_path / "lake"), *arguments
    ).ended()

    assert status == 1
    assert (
        f"pubsub-aio: cannot subscribe to projects/{emulator.project}/subscriptions/nothing:" in err
    )
    assert err.count("subscription exists: failed") == 1
    assert len(err.splitlines()) < 9
    assert out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--checkpoint=c"], "--checkpoint goes with --streaming"),
        (["--wal=w"], "--wal goes with --streaming"),
        (["--streaming"], "--streaming needs --checkpoint"),
        (["--streaming", "--checkpoint="], "--checkpoint: it is empty"),
        (["--streaming", "--checkpoint=x/"], "--checkpoint must be another folder than --to"),
        (["--streaming", "--checkpoint=c", "--wal=x"], "--wal must be another folder than --to"),
        (["--streaming", "--checkpoint=c", "--max-messages=5"], "--max-messages does not go with"),
        (["--streaming", "--checkpoint=c", "--idle=3"], "--idle goes with --until-empty"),
    ],
)
async def test_bad_arguments_are_usage_errors(arguments: list[str], said: str) -> None:
    status, _, err = await Ran(None, WORKER, "--to=x", *arguments).ended()

    assert status == 2
    assert said in err


# Folders


def put(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (["lake/a.parquet"], "lake has files already, .* give an empty folder"),
        (["lake"], "--to: .*/lake is a file: give a folder"),
        (["checkpoint"], "--checkpoint: .*/checkpoint.* is a file: give a folder"),
        (
            ["lake/_spark_metadata/0", "lake/a.json", "checkpoint/offsets/0"],
            "has json: give --format json",
        ),
        (["lake/_spark_metadata/0"], "was written with another --checkpoint"),
        (
            ["lake/_spark_metadata/9.compact", "checkpoint/offsets/8", "checkpoint/commits/8"],
            "was written with another --checkpoint",
        ),
        (["checkpoint/offsets/0", "checkpoint/commits/0"], "goes with another folder than .*/lake"),
    ],
)
def test_a_folder_whose_rows_would_not_be_read_is_refused(
    spark: SparkSession, tmp_path: Path, there: list[str], said: str
) -> None:
    put(tmp_path, *there)
    to, checkpoint = str(tmp_path / "lake"), str(tmp_path / "checkpoint")

    with pytest.raises(ConfigError, match=said):
        check_folders(spark, "parquet", to=to, checkpoint=checkpoint)


@pytest.mark.parametrize(
    "there",
    [
        [],
        ["lake/_ingest-1/a.parquet", "lake/.b.parquet"],
        ["checkpoint/offsets/0"],
        ["lake/_spark_metadata/0", "lake/a.parquet", "checkpoint/offsets/0"],
        ["lake/_spark_metadata/9.compact", "checkpoint/offsets/10", "checkpoint/commits/9"],
    ],
)
def test_a_folder_that_is_new_or_goes_with_the_checkpoint_is_taken(
    spark: SparkSession, tmp_path: Path, there: list[str]
) -> None:
    put(tmp_path, *there)
    to, checkpoint = str(tmp_path / "lake"), str(tmp_path / "checkpoint")

    check_folders(spark, "parquet", to=to, checkpoint=checkpoint)


def test_delta_needs_a_spark_that_has_it(spark: SparkSession, tmp_path: Path) -> None:
    to, checkpoint = str(tmp_path / "lake"), str(tmp_path / "checkpoint")

    with pytest.raises(ConfigError, match=r"has no Delta Lake: .* io\.delta:.*, or give --format"):
        check_folders(spark, "delta", to=to, checkpoint=checkpoint)


def test_plain_ingest_refuses_what_a_query_writes(spark: SparkSession, tmp_path: Path) -> None:
    refuse_streamed(spark, str(tmp_path))
    put(tmp_path, "_spark_metadata/0")

    with pytest.raises(ConfigError, match="was written with --streaming"):
        refuse_streamed(spark, str(tmp_path))


async def test_plain_ingest_asks_whether_a_query_writes_there(
    emulator: Emulator, tmp_path: Path
) -> None:
    publish(emulator, 10)
    put(tmp_path, "_spark_metadata/0")
    status, _, err = await Ran(emulator, WORKER, "--to", str(tmp_path)).ended()

    assert status == 1
    assert f"pubsub-aio: --to: {tmp_path} was written with --streaming" in err
    assert emulator.backlog(WORKER) == 10


# Words


def told(batch: int, rows: int, *, start: object, end: object, latest: object) -> dict[str, Any]:
    source = {"startOffset": str(start), "endOffset": str(end), "latestOffset": str(latest)}
    return {
        "batchId": batch,
        "numInputRows": rows,
        "batchDuration": 500,
        "timestamp": f"2026-01-01T00:00:0{batch}.000Z",
        "sources": [source],
    }


def test_batches_and_duplicates_of_this_run_count_once() -> None:
    """As PySpark tells offsets since 4.2, and as it did before."""
    before = {"seq": 3, "duplicatesDropped": 5, "rows": 100}
    first = {"seq": 4, "duplicatesDropped": 5, "backlogRows": 9_000, "segmentsWaiting": 2}
    second = {"seq": 5, "duplicatesDropped": 7, "backlogRows": 1_000, "segmentsWaiting": 1}
    tally = QueryTally()
    idle = told(3, 0, start=json.dumps(before), end=json.dumps(before), latest="null")
    one = told(3, 40, start=before, end=first, latest=None)
    two = told(4, 60, start=json.dumps(first), end=json.dumps(second), latest=json.dumps(second))

    tally.add([idle])
    tally.add([idle, one])
    tally.add([idle, one, two])

    assert (tally.rows, tally.batches, tally.duplicates) == (100, 2, 2)
    assert (tally.began, tally.reached) == (3, 5)
    assert tally.line() == "100 rows | 67 a second | 1,000 waiting in 1 segment | 2 duplicates"


OF_THE_SOURCE = """[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON] Failed:
Traceback (most recent call last):
  File "x.py", line 1, in y
pubsub_aio.errors.WalError: walLocation: x is not the log that the checkpoint goes with: give {more}
During handling of the above exception, another exception occurred:

UnboundLocalError: cannot access local variable 'reader'
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
"""
OF_A_TASK = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted: Lost task 0.0:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "x.py", line 1, in y
PermissionError: [Errno 13] Permission denied: 'x'

\tat org.apache.spark.api.python.BasePythonRunner
"""
OF_SPARK = """[STREAM_FAILED] Query [id = 1] terminated with exception: Mkdirs failed SQLSTATE: 1
=== Streaming Query ===
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OF_THE_SOURCE, "--wal: x is not the log that the checkpoint goes with: give {more}"),
        (OF_A_TASK, "PermissionError: [Errno 13] Permission denied: 'x'"),
        (OF_SPARK, "Mkdirs failed"),
    ],
)
def test_of_an_error_only_what_is_wrong_is_said(text: str, said: str) -> None:
    assert why(Exception(text)) == said
