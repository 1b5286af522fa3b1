"""Google's Node client, where Node is on the machine, finds nothing to complain of."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pubsub_aio.emulator import EmulatorThread

PACKAGE = "@google-cloud/pubsub@^5"
PROGRAM = Path(__file__).with_name("node_client.js")

NODE, NPM = shutil.which("node"), shutil.which("npm")


@pytest.fixture(scope="session")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the client is installed."""
    if not NODE or not NPM:
        pytest.skip("Node and npm are not on this machine")
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text('{"private": true}')
    subprocess.run(
        [NPM, "install", "--no-audit", "--no-fund", "--ignore-scripts", PACKAGE],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=110,
    )
    return folder / "node_modules"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "step",
    [
        "topics and subscriptions are created, changed, listed and deleted",
        "what is published is received once and acked",
        "ordering keys arrive in order",
        "exactly-once acks are confirmed and stale ones refused",
        "a nacked message comes again",
        "a message goes to the dead-letter topic after five attempts",
        "a snapshot brings messages back",
        "a filter lets through what matches",
        "flow control holds",
        "a large message arrives whole",
        "a missing topic is code 5",
        "the REST fallback works",
    ],
)
def test_the_node_client_can_tell_no_difference(
    step: str, node_modules: Path, pubsub_emulator: EmulatorThread
) -> None:
    environment = {
        **os.environ,
        "NODE_PATH": str(node_modules),
        "PUBSUB_EMULATOR_HOST": pubsub_emulator.address,
        "PROJECT": pubsub_emulator.project,
    }
    ran = subprocess.run(
        [NODE or "node", str(PROGRAM), step],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == {"passed": step}
