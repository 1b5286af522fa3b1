"""What another emulator has, as a seed file of ours."""

from datetime import timedelta
from pathlib import Path

from pubsub_aio.emulator import EmulatorThread, export_seed
from tests.emulator.conformance.servers import Server


def test_what_any_emulator_has_can_be_a_seed(server: Server, tmp_path: Path) -> None:
    dead = server.create_topic()
    topic = server.create_topic(labels={"a": "no"}, message_retention_duration=timedelta(hours=1))
    server.create_subscription(dead)
    server.create_subscription(
        topic,
        ack_deadline_seconds=30,
        dead_letter_policy={"dead_letter_topic": dead},
        retry_policy={"minimum_backoff": timedelta(seconds=5)},
        enable_message_ordering=True,
    )
    text = export_seed(server.address, server.project).text
    path = tmp_path / "pubsub.yaml"
    path.write_text(text)

    with EmulatorThread(seed=path) as emulator:
        assert export_seed(emulator.address, server.project).text == text
    _, _, written = text.partition("project: ")
    assert (
        written
        == f"""\
{server.project}
topics:
  topic-1:
    subscriptions:
      subscription-3:
  topic-2:
    labels:
      a: 'no'
    message_retention_duration: 1h
    subscriptions:
      subscription-4:
        ack_deadline_seconds: 30
        dead_letter_policy:
          dead_letter_topic: topic-1
        enable_message_ordering: true
        retry_policy:
          minimum_backoff: 5s
"""
    )
