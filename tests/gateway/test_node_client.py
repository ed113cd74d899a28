"""Google's client for Node against the gateway, where it is installed: `make node-clients` does that."""

import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.gateway.process import GatewayProcess

MODULES = Path(os.environ.get("GOOGLE_PUBSUB_NODE_MODULES") or Path(__file__).parents[2] / ".node/node_modules")

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (MODULES / "@google-cloud/pubsub").is_dir(),
    reason=f"needs node, and @google-cloud/pubsub in {MODULES}: `make node-clients` installs it there, or set "
    "GOOGLE_PUBSUB_NODE_MODULES",
)


def test_a_client_in_node_publishes_reads_in_order_seeks_and_detaches(gateway: GatewayProcess) -> None:
    done = subprocess.run(
        ["node", Path(__file__).with_name("node_client.js"), f"node-{uuid.uuid4().hex[:12]}"],
        env={**os.environ, "NODE_PATH": str(MODULES), "PUBSUB_EMULATOR_HOST": gateway.address},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    numbers = [str(n) for n in range(20)]
    assert json.loads(done.stdout) == {"received": numbers + numbers, "detached": True, "listed": True}
