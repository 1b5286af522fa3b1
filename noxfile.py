"""Everything that is run on this project; each session installs what it needs.

`nox -s demo` shows it, `nox -s tests` tests it, `nox -l` lists the rest.
"""

from __future__ import annotations

from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "types", "tests", "spark"]

TESTS = [
    "cryptography>=42",
    "hypothesis>=6.100",
    "opentelemetry-sdk>=1.27",
    "psutil>=5.9",
    "pyjwt[crypto]>=2.8",  # reads push tokens, also for google-auth
    "pytest>=8.3",
    "pytest-asyncio>=0.25",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "requests>=2.31",
]
PYTEST = ["pytest", "--dist", "loadfile", "-n"]  # how many processes
STUBS = [
    "grpcio-tools>=1.66",
    "mypy>=1.13",
    "types-grpcio",
    "types-protobuf",
    "types-psutil",
    "types-PyYAML",
    "types-requests",
]


@nox.session
def demo(session: nox.Session) -> None:
    """Run the main job on the embedded emulator and end with a summary."""
    session.install(".[emulator,spark]")
    session.run("python", "examples/demo.py", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests, all but most of Spark; arguments go to pytest."""
    session.install("-e", ".[emulator,transforms,rest,jobs,cli,spark]", *TESTS)
    # Three on two cores: one of them waits most of the time, for Google's emulator or a process.
    session.run(*PYTEST, "3", "--ignore=tests/spark", *session.posargs)


@nox.session
@nox.parametrize(
    "pyspark",
    [
        nox.param("pyspark[connect]>=4.3", id="newest"),
        nox.param("pyspark[connect]==4.0.*", id="4.0"),
        nox.param("pyspark==3.5.*", id="3.5"),
    ],
)
def spark(session: nox.Session, pyspark: str) -> None:
    """Run the tests of Spark, on several versions of it: `nox -s "spark(4.0)"`."""
    # moto speaks S3's protocol, for logs in object stores.
    session.install("-e", ".[emulator,rest,spark,cli,delta]", pyspark, "moto[server]>=5", *TESTS)
    # Before 4.0 there is no decode_json, and a test says so; the demo needs it. Nor are there data
    # sources in Python, and Spark Connect.
    without = [
        "--ignore=tests/spark/streaming",
        "--ignore=tests/spark/test_ingest_streaming.py",
        "--ignore=tests/spark/decoding/test_json.py",
        "--ignore=tests/spark/test_connect.py",
        "--deselect=tests/spark/test_examples_with_spark.py",
    ]
    less = without if "3.5" in pyspark else []
    if session.posargs:
        session.run(*PYTEST, "3", *session.posargs)
    else:
        # Three on two cores: mostly they wait, for a query that listens or a JVM that starts.
        session.run(*PYTEST, "3", "tests/spark", *less, env=_brief_jvms(session))


@nox.session
def crash(session: nox.Session) -> None:
    """Kill a streaming query over and over, and count its messages: `nox -s crash`."""
    session.install("-e", ".[emulator,spark]", "psutil>=5.9")
    session.run("python", "-m", "tests.crash", *session.posargs)


@nox.session
def durability(session: nox.Session) -> None:
    """Kill an emulator with a data directory over and over, under load: `nox -s durability`."""
    session.install("-e", ".[emulator]")
    session.run("python", "-m", "tests.durability", *session.posargs)


SYSTEM_TESTS = "google-cloud-pubsub==2.44.0"  # its sdist has them
NEEDS_GOOGLE = {"TestBasicRBAC": "the keys of four service accounts of one role each"}


@nox.session
def suites(session: nox.Session) -> None:
    """Run the system tests of Google's own client on the emulator; arguments go to pytest."""
    folder = Path(session.create_tmp()).resolve()
    session.install("-e", ".[emulator,cli]", SYSTEM_TESTS, "google-cloud-testutils", "flaky")
    session.install(*TESTS, "pip", "setuptools")
    download = ("pip", "download", "--quiet", "--no-deps", "--no-build-isolation")
    session.run("python", "-m", *download, "--no-binary=:all:", f"--dest={folder}", SYSTEM_TESTS)
    session.run("python", "-m", "tarfile", "-e", str(next(folder.glob("*.tar.gz"))), str(folder))
    # By itself: its package is called `tests`, as ours is.
    system = next(folder.glob("*/tests/system.py")).replace(folder / "system.py")
    for name, why in NEEDS_GOOGLE.items():
        session.log(f"without {name}: it needs {why}")
    session.run(
        # Eight on two cores: nearly all of their time they sleep.
        *("python", "-m", "pytest", "-n", "8", "--timeout=300", f"--rootdir={folder}"),
        *("-p", "tests.suites.on_emulator", "-k", f"not ({' or '.join(NEEDS_GOOGLE)})"),
        *(str(system), *session.posargs),
    )


def _brief_jvms(session: nox.Session) -> dict[str, str]:
    """Settings for the dozens of JVMs that run for a few seconds each."""
    classes = Path(session.virtualenv.location, "spark.jsa").resolve()
    session.run("python", "-m", "tests.spark.class_archive", str(classes))
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable")
    return {"SPARK_SUBMIT_OPTS": f"'-XX:SharedArchiveFile={classes}' {' '.join(options)}"}


@nox.session
def lint(session: nox.Session) -> None:
    """Check format and style."""
    session.install("ruff==0.17.4")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types, strictly."""
    session.install("-e", ".[all]", *TESTS, *STUBS, "matplotlib")
    # Stubs of the protobuf classes, from the same descriptors that the classes are made of.
    session.run(
        *("python", "-m", "grpc_tools.protoc", "--pyi_out=."),
        "--descriptor_set_in=pubsub_aio/_wire/descriptors.binpb",
        *("pubsub_aio/_wire/pubsub.proto", "pubsub_aio/_wire/schema.proto"),
    )
    session.run("mypy")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure side by side with rivals: `nox -s bench -- emulator`."""
    names = session.posargs[:1] or ["emulator"]
    session.install(".[emulator,rest,spark]", "matplotlib>=3.8", "psutil>=5.9")
    session.run("python", "-m", f"tests.bench.{names[0]}", *session.posargs[1:])


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation, warnings as errors."""
    session.install(".[emulator,spark]", "mkdocs>=1.6", "mkdocstrings[python]>=0.26")
    session.run("mkdocs", "build", "--strict", *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """Build the distribution, and try the wheel in an empty environment."""
    folder = Path(session.create_tmp())
    session.install("build")
    session.run("python", "-m", "build", "--outdir", str(folder))
    wheel = next(folder.glob("*.whl"))
    session.install(f"{wheel}[emulator]")
    with session.chdir(folder):  # away from the source
        session.run("pubsub-aio", "--version")
        session.run("python", "-c", "from pubsub_aio.emulator import Emulator; print(Emulator)")
