"""docs/intake.md: what it tells to type works, and its vectors and operations are those of the code."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import anyio.to_thread
import pytest

from clientmgr.contracts import topics
from streaming.intake.routes import DEVICE_ROUTES
from tests.house.source_code import ROOT
from tests.intake import test_keys
from tests.intake.door import Door, until_answered

pytestmark = pytest.mark.anyio

PAGE = (ROOT / "docs" / "intake.md").read_text()


@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples are typed with curl")
async def test_what_it_tells_to_type_works(door: Door, tmp_path: Path) -> None:
    door.rig.activate(1001)
    (make,) = re.findall(r"^KEY=\$\((.*)\)$", PAGE, re.MULTILINE)
    calls = re.findall(r"^curl .*$", PAGE, re.MULTILINE)
    command = [sys.executable, "-c", "from clientmgr.cli import main; main()", *shlex.split(make)[1:]]
    made = await anyio.to_thread.run_sync(_typed, command, door.rig.settings.environment(), tmp_path)
    key = made.stdout.strip()
    await until_answered(lambda: door.call("POST", "/v1/devices/c0/seen", key=key), 202)
    for call in calls:
        typed = shlex.split(call.replace("$KEY", key).replace("127.0.0.1:8789", f"127.0.0.1:{door.port}"))
        answer = await anyio.to_thread.run_sync(_typed, [*typed, "-sS"], {}, tmp_path)
        assert json.loads(answer.stdout)["accepted"] >= 1, (call, answer.stdout)
    assert [one.event["eventType"] for one in door.rig.topic(topics.WRITER)][1:] == [
        "client.registered",
        "client.pushTokenSet",
        "client.contactLinked",
        "client.updated",
        "client.updated",
        "client.contactUnlinked",
    ]


def _typed(command: list[str], environment: dict[str, str], folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **environment}
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)


def test_it_names_every_operation_and_the_tested_vectors() -> None:
    told = re.findall(r"^\| `(\w+) (\S+)` \| `(client\.\w+)` \|", PAGE, re.MULTILINE)
    short = {route: route.path if not route.part else f"…/{route.part}" for route in DEVICE_ROUTES}
    assert told == [(route.method, short[route], route.event_type) for route in DEVICE_ROUTES]
    tested = Path(test_keys.__file__).read_text()
    vectors = re.findall(r"`([0-9a-f]{64})`", PAGE)
    assert len(vectors) == 2
    assert all(vector in tested for vector in vectors)
