"""What is wrong in a seed file: told with its line, all at once, and nothing is done."""

import re
import sys
import textwrap
from pathlib import Path

import pytest

from pubsub_aio.emulator import EmulatorThread, export_seed
from pubsub_aio.errors import MissingExtraError, SeedError


def told(tmp_path: Path, text: str | bytes, name: str = "pubsub.yaml") -> list[str]:
    """The mistakes in a file, each without the file's name; nothing is created."""
    path = tmp_path / name
    data = textwrap.dedent(text).encode() if isinstance(text, str) else text
    path.write_bytes(data)
    with EmulatorThread() as emulator:
        with pytest.raises(SeedError) as raised:
            emulator.load_seed(path)
        assert emulator.call(lambda: created(emulator)) == 0
    lines = str(raised.value).split("\n")
    assert "nothing was created" in lines[0]
    assert len(raised.value.mistakes) == len(lines) - 1 - bool(raised.value.untold)
    return [line.removeprefix(f"{path}:") for line in lines[1:]]


def created(emulator: EmulatorThread) -> int:
    broker = emulator._emulator._broker
    return len(broker.topics) + len(broker.subscriptions)


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    assert told(
        tmp_path,
        """\
        topics:
          orders:
            labels: {Team: shop}
            subscriptions:
              worker:
                ack_deadline_seconds: 5
                filter: attributes.x =
                enable_message_ordering: maybe
        subscriptions:
          audit: {topic: ordres}
        """,
    ) == [
        "3:13: topics.orders.labels: the key 'Team' must be at most 63 lower-case letters, digits, "
        "_ or -, the first a letter",
        "6:31: topics.orders.subscriptions.worker.ack_deadline_seconds: 5 must be between 10 and "
        "600 seconds",
        "7:17: topics.orders.subscriptions.worker.filter: invalid filter at character 15: expected "
        "a string in double quotes",
        "8:34: topics.orders.subscriptions.worker.enable_message_ordering: must be true or false, "
        "not maybe",
        "10:18: subscriptions.audit.topic: projects/emulated-project/topics/ordres is neither in "
        "this file nor in the emulator; did you mean orders?",
    ]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        # Keys
        ("topicz: {a: }", "1:1: topicz: no such section; did you mean topics?"),
        ("queues: {a: }", "1:1: queues: no such section; there are project, schemas, topics, "),
        (
            "topics: {orders: {label: {}}}",
            "1:19: topics.orders.label: no such setting of a Topic; did you mean labels?",
        ),
        (
            "topics: {orders: {subscriptons: }}",
            "1:19: topics.orders.subscriptons: no such setting of a Topic; did you mean "
            "subscriptions?",
        ),
        ("topics: {orders: {state: ACTIVE}}", "1:19: topics.orders.state: is only told by the"),
        ("topics: {orders: {name: o}}", "1:19: topics.orders.name: is the key above: leave it out"),
        ("topics: {orders: , orders: }", "1:20: topics.orders: is given twice: leave one of them"),
        (
            "project: p\ntopics: {orders: , projects/p/topics/orders: }",
            "2:20: topics.projects/p/topics/orders: projects/p/topics/orders is given twice",
        ),
        (
            "topics: {one: {messageRetentionDuration: 1h, message_retention_duration: 1h}}",
            "1:46: topics.one.message_retention_duration: excludes messageRetentionDuration: leave",
        ),
        ("topics: {? [a] : b}", "1:12: topics: a key must be a name"),
        # Kinds of values
        ("topics: orders", "1:9: topics: must be a list of names, or names with settings"),
        ("topics: [[orders]]", "1:10: topics[0]: must be a name, or settings with a `name`"),
        ("topics: {orders: [a]}", "1:18: topics.orders: must be settings, each a line `name: val"),
        ("topics: {orders: {labels: [a]}}", "1:27: topics.orders.labels: must be names with a te"),
        ("topics: {orders: {labels: {a: }}}", '1:28: topics.orders.labels.a: must be a text; ""'),
        (
            "topics: {orders: {message_retention_duration: 10 fortnights}}",
            "1:47: topics.orders.message_retention_duration: '10 fortnights' is no duration: a "
            'duration is written like 600, "600s", "10m", "1h30m" or "7d"',
        ),
        (
            "topics: {orders: {message_retention_duration: 5m}}",
            "1:47: topics.orders.message_retention_duration: 300s must be between 600s and ",
        ),
        (
            "topics: {orders: {message_storage_policy: {allowed_persistence_regions: here}}}",
            "1:73: topics.orders.message_storage_policy.allowed_persistence_regions: must be a ",
        ),
        (
            "topics: {one: {subscriptions: {two: {ackDeadlineSeconds: a while}}}}",
            "1:58: topics.one.subscriptions.two.ack_deadline_seconds: must be a whole number",
        ),
        (
            "topics: {one: {subscriptions: {two: {cloud_storage_config: {bucket: bbb, max_bytes: "
            "9223372036854775808}}}}}",
            "1:85: topics.one.subscriptions.two.cloud_storage_config.max_bytes: must be a whole",
        ),
        (
            "topics: {one: {ingestion_data_source_settings: {platform_logs_settings: {severity: "
            "WARN}}}}",
            "1:84: topics.one.ingestion_data_source_settings.platform_logs_settings.severity: "
            "'WARN' must be one of DISABLED, DEBUG, INFO, WARNING, ERROR; did you mean WARNING?",
        ),
        (
            "topics: {one: {subscriptions: {two: {cloud_storage_config: {bucket: bbb, text_config: "
            "{}, avro_config: {}}}}}}",
            "1:91: topics.one.subscriptions.two.cloud_storage_config.avro_config: excludes text_",
        ),
        (
            "topics: {one: {message_storage_policy: {allowed_persistence_regions: [a], "
            'enforce_in_transit: "true"}}}',
            "1:95: topics.one.message_storage_policy.enforce_in_transit: must be true or false, "
            'not "true"',
        ),
        # Names
        (
            "topics: {goog: }",
            "1:10: topics.goog: the id in 'projects/emulated-project/topics/goog'",
        ),
        ("project: 'a/b'\ntopics: [one]", "1:10: project: 'a/b' is no valid project id"),
        ("subscriptions: [worker]", "1:17: subscriptions.worker.topic: must name its topic"),
        ("subscriptions: {two: {topic: [a]}}", "1:30: subscriptions.two.topic: must be a single"),
        (
            "topics: {one: {subscriptions: {two: {topic: one}}}}",
            "1:45: topics.one.subscriptions.two.topic: is the topic above: leave it out",
        ),
        (
            "topics: [one]\nsubscriptions: {two: {topic: projects/p/topic/one}}",
            "2:30: subscriptions.two.topic: 'projects/p/topic/one' must have the form projects/",
        ),
        (
            "topics: {one: {subscriptions: {two: {dead_letter_policy: {dead_letter_topic: ons}}}}}",
            "1:78: topics.one.subscriptions.two.dead_letter_policy.dead_letter_topic: "
            "projects/emulated-project/topics/ons is neither in this file nor in the emulator; "
            "did you mean one?",
        ),
        # What depends on each other
        (
            "topics: {one: {subscriptions: {two: {cloud_storage_config: {filename_prefix: a}}}}}",
            "1:60: topics.one.subscriptions.two.cloud_storage_config.bucket: '' must be the name",
        ),
        (
            "topics: {one: {subscriptions: {two: "
            "{retry_policy: {minimum_backoff: 1h, maximum_backoff: 5s}}}}}",
            "1:70: topics.one.subscriptions.two.retry_policy.minimum_backoff: 3600s must be betw",
        ),
        # IAM
        ("topics: {one: {iam: [a]}}", "1:21: topics.one.iam: must be roles with a list of members"),
        ("topics: {one: {iam: {roles/x: }}}", "1:22: topics.one.iam.roles/x: must be a list of m"),
        (
            "topics: {one: {iam: {bindings: [{members: ['user:a@b.c']}]}}}",
            "1:33: topics.one.iam.bindings[0].role: must be given",
        ),
        # Other files
        (
            "schemas: {one: {definition_file: nowhere.avsc}}",
            "1:34: schemas.one.definition_file: nowhere.avsc: cannot be read: No such file",
        ),
        (
            "schemas: {one: {definition: a, definition_file: b.avsc}}",
            "1:32: schemas.one.definition_file: excludes definition: leave one of them out",
        ),
        ("schemas: {one: {revisions: a}}", "1:28: schemas.one.revisions: must be a list, the ol"),
        (
            "schemas: {one: {definition: a, revisions: [{definition: b}]}}",
            "1:43: schemas.one.revisions: excludes definition: it is the last of these",
        ),
        # YAML
        ("topics:\n\torders:", "2:1: not YAML: found character"),
        ("topics: {", "not YAML: "),
        ("topics: 'a", "not YAML: "),
        ("a: 1\n---\nb: 2", "2:1: a second document begins: give one"),
        ("topics: !!python/name:os.system {}", "1:9: topics: the tag !!python/name:os.system has"),
        ("topics: {one: {labels: {a: !x b}}}", "1:28: topics.one.labels.a: the tag !x has no"),
        ("topics: !mine {one: }", "1:9: topics: the tag !mine has no meaning here"),
        ("topics: *other", "1:9: topics: the alias *other repeats nothing: no such anchor"),
        ("topics: &a {one: *a}", "1:18: topics.one: the alias *a stands inside of what it repeats"),
        ("topics: {one: {<<: [a]}}", "1:21: topics.one.<<: must be settings, as *name"),
        ("topics: \x00", "1:9: not YAML: the character"),
        ("- a", "1:1: must have one of project, schemas, topics, subscriptions, iam, such as `top"),
        ("[" * 100, "1:41: nested deeper than 40 levels"),
        ("- " * 100_000, "1:81: nested deeper than 40 levels"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_to_do(
    tmp_path: Path, text: str, mistake: str
) -> None:
    mistakes = told(tmp_path, text)

    assert any(mistake in line for line in mistakes), mistakes
    assert len(mistakes) == 1, mistakes


def test_a_file_that_is_empty_is_a_mistake(tmp_path: Path) -> None:
    assert ["must have one of" in line for line in told(tmp_path, "# nothing\n")] == [True]


@pytest.mark.parametrize(
    ("data", "mistake"),
    [
        (b"topics:\n  caf\xe9:\n", "line 2 is not UTF-8: save the file as UTF-8"),
        (b"# " + b"a" * (4 * 1024 * 1024), "is larger than 4 MiB: make it smaller"),
    ],
    ids=["not UTF-8", "too large"],
)
def test_a_file_that_cannot_be_taken_is_said_so(tmp_path: Path, data: bytes, mistake: str) -> None:
    assert told(tmp_path, data) == [f" {mistake}"]


def test_a_file_that_is_a_folder_or_missing_is_said_so(tmp_path: Path) -> None:
    with EmulatorThread() as emulator:
        with pytest.raises(SeedError, match="is a folder: name a file in it"):
            emulator.load_seed(tmp_path)
        with pytest.raises(SeedError, match="cannot be read: No such file"):
            emulator.load_seed(tmp_path / "nothing.yaml")


def test_a_file_that_multiplies_itself_is_refused(tmp_path: Path) -> None:
    lines = ["x-0: &a0 [a, a, a, a, a, a, a, a, a, a]"]
    lines += [f"x-{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    mistakes = told(tmp_path, "\n".join(lines))

    assert len(mistakes) == 1
    assert "more than 500,000 values, with what the aliases repeat" in mistakes[0]


def test_of_many_mistakes_some_are_told_and_the_rest_counted(tmp_path: Path) -> None:
    mistakes = told(tmp_path, "topics:\n" + "".join(f"  topic{n}: [a]\n" for n in range(1_000)))

    assert len(mistakes) == 51
    assert mistakes[-1] == "and 950 more"
    assert [line.split(":")[0] for line in mistakes[:-1]] == [str(n) for n in range(2, 52)]


def test_mistakes_have_their_places_as_data(tmp_path: Path) -> None:
    path = tmp_path / "pubsub.yaml"
    path.write_text("topics:\n  orders:\n    label: a\n")
    with EmulatorThread() as emulator, pytest.raises(ValueError, match="label") as raised:
        emulator.load_seed(path)

    assert isinstance(raised.value, SeedError)
    (mistake,) = raised.value.mistakes
    assert (mistake.file, mistake.line, mistake.column) == (str(path), 3, 5)
    assert mistake.path == "topics.orders.label"
    assert raised.value.file == str(path)


def test_what_must_be_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pubsub.yaml"
    path.write_text("topics: [orders]")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with EmulatorThread() as emulator:
        with pytest.raises(MissingExtraError, match=r'pip install "pubsub-aio\[emulator\]"'):
            emulator.load_seed(path)
        with pytest.raises(MissingExtraError, match=r'pip install "pubsub-aio\[emulator\]"'):
            export_seed(emulator.address, "shop")


def test_an_emulator_whose_seed_has_a_mistake_does_not_start(tmp_path: Path) -> None:
    path = tmp_path / "pubsub.yaml"
    path.write_text("topics: {orders: {label: a}}")
    emulator = EmulatorThread(seed=path)
    with pytest.raises(SeedError), emulator:
        pass
    assert re.search(r":0$", emulator.address)


def test_a_script_that_does_not_define_its_function_is_a_mistake(tmp_path: Path) -> None:
    text = """\
        topics:
          one:
            message_transforms:
              - javascript_udf: {function_name: f, code: "x("}
    """
    (mistake,) = told(tmp_path, text)

    assert mistake.startswith("4:")
    assert "topics.one.message_transforms[0].javascript_udf.code: " in mistake
    assert "must define the function f" in mistake
