"""A daemon is added by its module and its entry in the registry: everything else follows. (docs/how_to.md)

`greeter` lives in a folder of its own on PYTHONPATH, with a `sitecustomize` that adds its entry before anything else is
imported. So every process started here knows it, as it would if the entry stood in clientmgr/contracts/daemons.py.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import Message
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contracts import daemons
from tests.house.source_code import ROOT
from tests.streaming.rig import read_topic

pytestmark = pytest.mark.anyio

PORT = str(9100 + len(list(daemons.started())))
"""The one after the last daemon's that there is."""

MODULE = '''
"""The greeter: answers each name with a greeting."""

from clientmgr.broker.interface import Batch, ConsumerOptions, Message
from clientmgr.contracts import daemons
from streaming.runtime.daemon import Daemon, Services


class Greeter:
    def __init__(self, services: Services) -> None:
        pass

    async def __call__(self, batch: Batch) -> None:
        for message in batch.messages:
            batch.publish("greetings", [Message(b'{"hello": %s}' % message.data, message.tenant)])


DAEMON = Daemon.of(daemons.process("greeter"), Greeter, lambda settings: ConsumerOptions(batch_size=10))
'''

ENTRY = """
from clientmgr.base.database import Role
from clientmgr.contracts import daemons
from clientmgr.contracts.daemon_entry import DaemonEntry, Subscription

daemons.ALL = (
    *daemons.ALL,
    DaemonEntry(
        "greeter",
        "greets whoever gives a name",
        "Greet whoever gives a name.",
        "greeter:DAEMON.work",
        options=(daemons.BURST,),
        reads=(Subscription("names"),),
        publishes=("greetings",),
        roles=(Role.WRITER,),
        settings=("BROKER_WAIT_PERIOD_MS",),
        metrics=("clientmgr.broker.message_metrics:CONSUMED",),
        judged_by="unread messages",
    ),
)
"""

WHAT_FOLLOWS = """
import json
from pathlib import Path

from clientmgr.base.settings import load_settings
from clientmgr.contracts.daemons import entry_of_process
from clientmgr.local.processes.programs import all_programs
from clientmgr.operations.daemon_health import judge_all
from clientmgr_dagster.defs.lineage.daemons import daemon_assets
from tools.deploy import DEPLOY, generated
from tools.docs import page_of, render_page
from tools.docs.daemon_pages import enable_block, index_blocks

entry = entry_of_process("greeter")
settings = load_settings(data_dir=Path("data"), database_url="postgresql://nobody@localhost/none", metrics_port=9100)
(program,) = [one for one in all_programs(settings, log_format="json") if one.name == "greeter"]
(health,) = [one for one in judge_all([], late_after_s=1) if one.daemon == "greeter"]
print(json.dumps({
    "command": list(program.command),
    "metrics_port": program.env["METRICS_PORT"],
    "health": health.state,
    "lineage": [spec.key.to_user_string() for spec in daemon_assets],
    "page": render_page(entry),
    "page_path": page_of(entry).name,
    "index": index_blocks()["index"],
    "enable": enable_block()["enable"],
    "deploy": {path.relative_to(DEPLOY).as_posix(): text for path, text in generated().items()},
}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of a process that knows the greeter."""
    folder = tmp_path_factory.mktemp("overlay")
    (folder / "greeter.py").write_text(MODULE)
    (folder / "sitecustomize.py").write_text(ENTRY)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "COLUMNS": "200"}


@pytest.fixture(scope="module")
def follows(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the parts of the system make of the registry."""
    command = [sys.executable, "-c", WHAT_FOLLOWS]
    return json.loads(_output(command, environment, cwd=tmp_path_factory.mktemp("cwd")))


def test_the_command_line_knows_it(environment: dict[str, str]) -> None:
    assert "Greet whoever gives a name." in _output([sys.executable, "-m", "clientmgr", "run", "--help"], environment)


def test_the_supervisor_starts_it_with_a_port_for_its_metrics(follows: Any) -> None:
    assert follows["command"][1:] == ["-m", "clientmgr", "run", "greeter"]
    assert follows["metrics_port"] == PORT


def test_its_health_is_judged(follows: Any) -> None:
    assert follows["health"] == "never started"


def test_it_is_in_the_lineage(follows: Any) -> None:
    assert "daemons/greeter" in follows["lineage"]


def test_it_is_documented(follows: Any) -> None:
    assert follows["page_path"] == "greeter.md"
    for part in (
        "# greeter\n",
        "clientmgr run greeter",
        "`names`",
        "`greetings`",
        "BROKER_WAIT_PERIOD_MS",
        "_consumed_",
    ):
        assert part in follows["page"]
    assert "| [greeter](daemons/greeter.md) | greets whoever gives a name | `names` | `greetings` |" in follows["index"]


def test_it_can_be_deployed_and_is_scraped(follows: Any) -> None:
    deploy = follows["deploy"]
    note, port, *secrets = deploy["systemd/env/greeter.env"].splitlines()
    assert (note[:1], port) == ("#", f"METRICS_PORT={PORT}")
    assert [line.partition("=")[0] for line in secrets] == ["DATABASE_WRITER_URL"], "the login of its role"
    assert "@greeter" in deploy["systemd/clientmgr@.service"]
    assert ",greeter}" in follows["enable"]
    assert "args: [run, greeter]" in deploy["kubernetes/greeter.yaml"]
    assert "  - greeter.yaml\n" in deploy["kubernetes/kustomization.yaml"]
    assert f'["127.0.0.1:{PORT}"], labels: {{daemon: greeter}}' in deploy["prometheus/prometheus.yml"]


async def test_it_runs(
    follows: Any,
    environment: dict[str, str],
    database: Database,
    settings_for: Callable[[Database], Settings],
) -> None:
    settings = settings_for(database)
    async with PostgresBroker(database, settings) as broker:
        await broker.ensure_topic("names")
        await broker.publish("names", [Message(b'"Ada"', "7")])

    _output([*follows["command"], "--burst"], {**environment, **settings.environment(), "LOG_FORMAT": "json"})

    (greeting,) = read_topic(database, "greetings")
    assert (greeting.event, greeting.tenant) == ({"hello": "Ada"}, "7")


def _output(command: list[str], environment: dict[str, str], *, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
