"""A Spark standalone cluster on the loopback address: a master and workers, each a real JVM.

    with standalone_cluster(tmp_path) as cluster:
        spark = session(master=cluster.url, config=cluster.settings)  # in a process of its own

A driver may end and another come; the cluster stays. An executor that is killed is replaced by its
worker. Everything is killed at the end, whatever had become of it meanwhile, and also if this
process is killed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TypeVar

import psutil
import pyspark

from pubsub_aio.spark.java import find_java, java_home

LOOPBACK = "127.0.0.1"
WITHIN = 100.0
"""Seconds in which the cluster must have started, or ended."""

_LOOK_AGAIN = 0.02
_BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""Options of JVMs that run for seconds: they start sooner, and leave no file behind."""

_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_PYTHON_WORKER = "pyspark.daemon"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """A JVM that runs tasks; its Python functions run in processes below it.

    Attributes:
        executor_id: What the driver calls it, such as `"0"`. One that replaces it has another.
        pid: Its process id.
        worker: The process id of the worker that started it.
    """

    executor_id: str
    pid: int
    worker: int

    def kill(self) -> None:
        """Kill it as a machine that fails would: it can tell nobody."""
        os.kill(self.pid, signal.SIGKILL)

    def python_workers(self) -> list[int]:
        """The process ids of what runs its Python functions, idle or not.

        The daemon that forks them is not among them. Killed, a worker fails its task, which is
        tried again with another.
        """
        with suppress(psutil.NoSuchProcess):
            daemons = [each for each in psutil.Process(self.pid).children() if _is_daemon(each)]
            return [worker.pid for daemon in daemons for worker in daemon.children()]
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster that runs.

    Attributes:
        url: What `session(master=...)` takes.
        settings: What `session(config=...)` takes: the driver can be reached, has one executor on
            each worker, starts its first job when it has them all, and runs Python functions with
            this interpreter.
        master: The process id of the master.
        workers: The process ids of the workers. One that is killed stays in this list.
        folder: Their logs, and below `work` those of the executors.
        page: The address of the master's page, as host and port.
    """

    url: str
    settings: Mapping[str, str]
    master: int
    workers: Sequence[int]
    folder: Path
    page: str

    def executors(self) -> list[Executor]:
        """The executors that run now, of every driver, in the order in which they began."""
        found = []
        for worker in self.workers:
            for process in _session_of(worker):
                with suppress(psutil.NoSuchProcess):
                    line = process.cmdline()
                    if _EXECUTOR in line:
                        name = line[line.index("--executor-id") + 1]
                        found.append(Executor(executor_id=name, pid=process.pid, worker=worker))
        return sorted(found, key=lambda executor: int(executor.executor_id))

    def alive_workers(self) -> int:
        """How many workers the master counts on."""
        states = [worker["state"] for worker in self._told()["workers"]]
        return states.count("ALIVE")

    def _told(self) -> dict[str, list[dict[str, object]]]:
        """What the master says of itself; no workers as long as it does not answer."""
        connection = HTTPConnection(self.page, timeout=WITHIN)
        try:
            connection.request("GET", "/json/")
            told: dict[str, list[dict[str, object]]] = json.load(connection.getresponse())
        except (OSError, HTTPException):
            return {"workers": []}
        finally:
            connection.close()
        return told


@contextmanager
def standalone_cluster(
    folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "512m"
) -> Iterator[Cluster]:
    """Run a master and workers, on free ports; all of them are there when the body begins.

    The JVMs take the options in `SPARK_SUBMIT_OPTS`, where noxfile.py puts an archive of classes,
    and executors take them too.

    Args:
        folder: Where logs and what executors write go. It is made if it is not there.
        workers: How many; each has one executor for a driver.
        cores: Of each worker: so many tasks run in it at once.
        memory: Of each executor; Spark needs 450m.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = f"{_BRIEF} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".strip()
    with ExitStack() as stack:
        java = find_java(pyspark.__version__)
        # Workers start executors with this, for as long as they live.
        environment = _environment(folder, stack.enter_context(java_home(java)))
        # Not the launcher of `java_home`: what that starts does not pass the launcher on.
        line = [str(java.home / "bin" / "java"), "-Xmx256m", *shlex.split(options)]
        line += ["-Dspark.master.rest.enabled=false", "-cp", _class_path()]  # its port is fixed

        def start(name: str, kind: str, *arguments: str) -> _Jvm:
            whole = [*line, f"org.apache.spark.deploy.{kind}", "--host", LOOPBACK, *arguments]
            return stack.enter_context(_jvm(whole, folder / f"{name}.log", environment))

        master = start("master", "master.Master", "--port", "0", "--webui-port", "0")
        url = master.says(r"Starting Spark master at (spark://\S+)")
        page = master.says(r"service 'MasterUI' on port (\d+)")
        own = ("--cores", str(cores), "--memory", memory, "--work-dir", str(folder / "work"))
        begun = [
            start(f"worker-{number}", "worker.Worker", *own, "--webui-port", "0", url)
            for number in range(workers)
        ]
        cluster = Cluster(
            url=url,
            settings=_settings(cores=cores * workers, memory=memory, options=options),
            master=master.pid,
            workers=[worker.pid for worker in begun],
            folder=folder,
            page=f"{LOOPBACK}:{page}",
        )
        for worker in begun:
            worker.says(r"(Successfully registered with master)")
        wait_for(lambda: cluster.alive_workers() == workers, "all workers are alive")
        yield cluster


def wait_for(condition: Callable[[], _T], what: str, *, timeout: float = WITHIN) -> _T:
    """Try until the condition holds, and give what it gave."""
    ends_at = time.monotonic() + timeout
    while not (given := condition()):
        if time.monotonic() > ends_at:
            raise TimeoutError(f"{what}: not within {timeout:g} seconds")
        time.sleep(_LOOK_AGAIN)
    return given


def _settings(*, cores: int, memory: str, options: str) -> dict[str, str]:
    return {
        "spark.cores.max": str(cores),
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.executor.extraJavaOptions": options,
        "spark.executor.memory": memory,
        "spark.pyspark.python": sys.executable,
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{WITHIN:.0f}s",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.sql.shuffle.partitions": str(cores),
    }


def _environment(folder: Path, home: Path) -> dict[str, str]:
    foreign = ("SPARK_", "PYSPARK_", "JAVA_HOME", "HADOOP_", "YARN_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return inherited | {
        "JAVA_HOME": str(home),
        "SPARK_HOME": str(_home()),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_SCALA_VERSION": _scala_version(),  # without it a worker looks for Spark's source
    }


def _home() -> Path:
    return Path(pyspark.__file__).parent


def _scala_version() -> str:
    library = next(_home().glob("jars/scala-library-*.jar"))
    return ".".join(library.stem.split("-")[-1].split(".")[:2])


def _class_path() -> str:
    """As Spark makes it for drivers and executors: their archive of classes fits no other."""
    first = (str(jar) for jar in _home().glob("jars/slf4j-api-*.jar"))
    return os.pathsep.join((f"{_home() / 'conf'}{os.sep}", *first, f"{_home() / 'jars'}{os.sep}*"))


class _Jvm:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self.pid = process.pid

    def says(self, pattern: str) -> str:
        """Wait until it logs a line that has this, and give the part in brackets."""

        def look() -> re.Match[str] | None:
            # Asked before it is read, so that the last words of one that ended are seen.
            ended = self._process.poll()
            logged = self._log.read_text(errors="replace")
            match = re.search(pattern, logged)
            if not match and ended is not None:
                raise RuntimeError(f"{self._log.stem} ended with {ended}: {logged[-2_000:]}")
            return match

        match = wait_for(look, f"{self._log.stem} logs {pattern!r}")
        assert match
        return match[1]


@contextmanager
def _jvm(line: Sequence[str], log: Path, environment: Mapping[str, str]) -> Iterator[_Jvm]:
    """Run one, and at the end kill it and all that it started."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            line,
            cwd=log.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # it tells what it started, even from an executor it left
        )
    try:
        with _killed_after_us(process.pid):
            yield _Jvm(process, log)
    finally:
        # Until it is waited for, its id is not given to another process.
        process.kill()
        wait_for(lambda: not _kill(_session_of(process.pid)), f"{log.stem} has ended")
        process.wait()


@contextmanager
def _killed_after_us(pid: int) -> Iterator[None]:
    """Have that process killed if this one ends without leaving the context.

    Executors end by themselves when their worker has.
    """
    line = ["/bin/sh", "-c", 'read _ || kill -9 "$0"', str(pid)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, start_new_session=True) as guard:
        try:
            yield
        finally:
            guard.kill()


def _session_of(leader: int) -> list[psutil.Process]:
    """The living processes that a process has started, directly or not, and itself."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _kill(processes: Sequence[psutil.Process]) -> bool:
    """Kill what still lives; say whether there was any."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return bool(processes)


def _is_daemon(process: psutil.Process) -> bool:
    return _PYTHON_WORKER in process.cmdline()
