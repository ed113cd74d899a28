"""`clientmgr up`, the real command: one run that most tests share, and two more to see it end otherwise.

The tests that need the shared run stand before those that need its end.
"""

import json
import os
import random
import re
import shlex
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # it ships no types
import psycopg
import pytest
from google.cloud import pubsub_v1

from clientmgr.base.settings import load_settings, sensitive_setting_names
from clientmgr.contracts.daemons import DAGSTER
from clientmgr.contracts.handing_out import secrets_of, settings_of
from clientmgr.local.embedded.server import free_port, port_is_free
from clientmgr.local.processes.programs import all_programs, own_commands, sharing
from clientmgr_dagster.defs.lineage.daemons import daemon_assets
from tests.cli.conftest import CLIENTMGR
from tests.keys import TEST_KEY
from tests.process_table import (
    listening_beyond_loopback,
    listens_on,
    mentioning,
    running,
    wait_until_gone,
    with_descendants,
)
from tests.waiting import eventually
from tools.docs.metric_names import Measured, collectors_of

pytestmark = pytest.mark.server

# A busy machine takes its time to import Dagster four times over.
START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 120.0

ALWAYS_LOGGED = {"@timestamp", "ecs.version", "log.level", "log.logger", "message", "process.name", "service.name"}
SOMETIMES_LOGGED = {"clientmgr", "error.message", "error.type", "error.stack_trace"}


def free_ports_in_a_row(count: int) -> int:
    """The first of them, below those that the system hands out: somebody's connection may have one of these by then."""

    def first() -> int:
        port = random.randrange(20_000, 32_000)
        return port if all(map(port_is_free, range(port, port + count))) else 0

    return eventually(first, f"{count} free ports in a row")


SECRETS = {
    "AUDIT_HASH_KEY": f"audit-{TEST_KEY}",
    "LIVE_TOKEN_KEY": f"live-{TEST_KEY}",
    "INTAKE_SIGNING_KEY": f"intake-{TEST_KEY}",
    "DASHBOARD_SESSION_KEY": f"session-{TEST_KEY}",
    "AWS_SECRET_ACCESS_KEY": "aws-0123456789abcdef",
    "GOOGLE_APPLICATION_CREDENTIALS": "/nowhere/google.json",
    "PGPASSWORD": "of-whoever-started-it",
}
"""What `up` is given by its environment. It makes the logins by itself."""


UNSET = {"AUDIT_ANCHORS", "ALERT_WEBHOOK_URL", "METRICS_TOKEN", "SPARK_CONF"}
"""Nobody sets them here."""


class Up:
    """A running `clientmgr up`, with what it wrote."""

    def __init__(self, folder: Path, command: str = "up") -> None:
        self.folder = folder
        self.port = free_port()
        self.metrics_port = free_ports_in_a_row(len(own_commands()))
        self.environment = {
            **os.environ,
            "DATA_DIR": str(folder / "data"),
            "DAGSTER_PORT": str(self.port),
            "METRICS_PORT": str(self.metrics_port),
            "EMBEDDED_MINIMUM_FREE_MB": "0",
            "SHUTDOWN_TIMEOUT_S": "8",
            **SECRETS,
        }
        self.stdout, self.stderr = folder / "stdout", folder / "stderr"
        with self.stdout.open("w") as out, self.stderr.open("w") as err:
            self.process = subprocess.Popen(
                [CLIENTMGR, command], cwd=folder, env=self.environment, stdout=out, stderr=err, start_new_session=True
            )

    @property
    def password(self) -> str:
        """Of PostgreSQL's owner."""
        return (self.folder / "data" / "postgres" / "clientmgr_owner_password").read_text()

    def lines(self) -> list[str]:
        """Standard error, without a line that is still being written."""
        return self.stderr.read_text().split("\n")[:-1]

    def records(self, message: str) -> list[dict[str, Any]]:
        return [record for record in map(json.loads, self.lines()) if record["message"] == message]

    def names(self, message: str) -> list[str]:
        return [record["clientmgr"]["name"] for record in self.records(message)]

    def wait_until(self, look: Callable[[], object], what: str) -> None:
        def look_while_it_runs() -> object:
            assert self.process.poll() is None, f"it ended before: {what}\n{self.stderr.read_text()}"
            return look()

        eventually(look_while_it_runs, what, within_s=START_TIMEOUT_S)

    def wait_until_up(self) -> None:
        self.wait_until(lambda: "Client Manager is up" in self.stdout.read_text(), "it says that it is up")

    def programs(self, module: str) -> list[psutil.Process]:
        """The processes of a Dagster program, without its guardian."""
        found = mentioning(module, among=with_descendants(self.process.pid))
        guardians = mentioning("guardian.py", among=found)
        return [process for process in found if process not in guardians]

    def clean_up(self) -> None:
        left = running(with_descendants(self.process.pid)) if self.process.poll() is None else []
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        wait_until_gone(left)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("up")


@pytest.fixture(scope="module")
def up(folder: Path) -> Iterator[Up]:
    """The shared run."""
    command = Up(folder)
    try:
        command.wait_until_up()
        yield command
    finally:
        command.clean_up()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names of what `up` runs besides the servers, in the order it is started."""
    settings = load_settings(data_dir=tmp_path_factory.mktemp("other"), database_url="postgresql://host/db")
    return [program.name for program in all_programs(settings, log_format="json")]


@dataclass(frozen=True)
class Ended:
    """A run that was told to stop."""

    up: Up
    exit_code: int
    processes: list[psutil.Process]


@pytest.fixture(scope="module")
def terminated(up: Up) -> Ended:
    """The shared run after SIGTERM."""
    processes = with_descendants(up.process.pid)
    assert len(processes) >= 18, "programs, servers with their backends, and guardians"
    up.process.terminate()
    return Ended(up, up.process.wait(timeout=STOP_TIMEOUT_S), processes)


@pytest.fixture
def another_up(folder: Path, programs: list[str]) -> Iterator[Up]:
    """A run on the same data, started after the shared one has ended, and waited for until its programs run."""
    command = Up(folder)
    try:
        command.wait_until(lambda: command.names("program started") == programs, "all programs are started")
        yield command
    finally:
        command.clean_up()


def command_line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def fetch(url: str) -> str:
    """What is there; nothing while nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310  # ours
            return str(answer.read().decode())
    except OSError:
        return ""


def clientmgr(up: Up, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in up.environment.items() if name not in ("DAGSTER_PORT", "METRICS_PORT")
    }
    return subprocess.run(
        [CLIENTMGR, *arguments], cwd=up.folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_ui_answers_where_it_says(up: Up) -> None:
    url = f"http://127.0.0.1:{up.port}"
    assert url in up.stdout.read_text()
    with urllib.request.urlopen(f"{url}/server_info", timeout=30) as answer:  # noqa: S310  # ours
        assert json.load(answer)["dagster_webserver_version"]


def test_its_examples_work_in_another_terminal(up: Up) -> None:
    (example,) = re.findall(r"(DATA_DIR=\S+ \S+) tenants list", up.stdout.read_text())
    listed = subprocess.run(shlex.split(f"env {example} tenants list"), cwd=up.folder, capture_output=True, check=False)
    assert listed.returncode == 0, listed.stderr


def test_the_pubsub_gateway_answers_where_it_says(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    (address,) = re.findall(r"PUBSUB_EMULATOR_HOST=(\S+)", up.stdout.read_text())
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", address)
    with pubsub_v1.PublisherClient() as publisher:
        project = publisher.common_project_path("client-manager")
        names = [topic.name for topic in publisher.list_topics(project=project, timeout=30)]
    assert f"{project}/topics/outbox" in names


def test_every_process_of_ours_serves_its_metrics_and_its_health(up: Up) -> None:
    for number, command in sharing(own_commands()):
        address = f"http://127.0.0.1:{up.metrics_port + number}"
        up.wait_until(lambda address=address: fetch(f"{address}/healthz") == "ok", f"{command.name} is healthy")  # type: ignore[misc]
        served = {line.split()[2] for line in fetch(f"{address}/metrics").splitlines() if line.startswith("# TYPE")}
        promised = {Measured.of(one).name for entry in command.entries for one in collectors_of(entry)}
        assert promised <= served, f"{command.name} does not serve what its page says"
        assert ("clientmgr_audit_findings" in served) == (command.name == "pubsub-gateway"), "one tells of the whole"


def test_no_process_listens_for_other_machines(up: Up) -> None:
    processes = with_descendants(up.process.pid)
    assert {up.port, *(up.metrics_port + number for number, _ in sharing(own_commands()))} <= listens_on(processes)
    assert not listening_beyond_loopback(processes)


def test_all_programs_are_started_in_order(up: Up, programs: list[str]) -> None:
    assert {"dagster-code-server", "dagster-daemon", "dagster-webserver"} <= set(programs)
    assert up.names("program started") == programs


def test_dagster_observes_the_daemons(up: Up) -> None:
    (shown,) = re.findall(r"postgresql://clientmgr_owner:\*+@\S+", up.stdout.read_text())
    observed = "SELECT DISTINCT asset_key FROM dagster.event_logs WHERE dagster_event_type = 'ASSET_MATERIALIZATION'"
    daemons = {asset.key.to_string() for asset in daemon_assets}
    with psycopg.connect(re.sub(r"\*+", up.password, shown), autocommit=True) as connection:
        up.wait_until(lambda: {key for (key,) in connection.execute(observed)} >= daemons, "the daemons get on")


def test_no_password_is_shown(up: Up) -> None:
    password = up.password
    assert "postgresql://clientmgr_owner:********@127.0.0.1:" in up.stdout.read_text()
    assert password not in up.stdout.read_text() + up.stderr.read_text()
    assert not mentioning(password)


def test_each_process_is_handed_what_its_entry_names_and_nothing_else_that_opens_something(up: Up) -> None:
    opening = {*sensitive_setting_names(), *SECRETS}
    own = {one.name: one for _, one in sharing(own_commands())}
    commands = {name: ["-m", "clientmgr", *one.arguments] for name, one in own.items()}
    commands["dagster-code-server"] = ["-m", "clientmgr_dagster.code_server"]
    commands["dagster-daemon"] = ["-m", "clientmgr_dagster.daemon"]
    commands["dagster-webserver"] = ["-m", "clientmgr_dashboard.dagster_ui"]
    entries = {name: one.entries for name, one in own.items()} | {entry.name: (entry,) for entry in DAGSTER}
    among = with_descendants(up.process.pid)
    for name, command in commands.items():
        found = [one for one in running(among) if command_line(one)[1 : 1 + len(command)] == command]
        assert found, name
        environment = found[0].environ()
        handed = {variable for variable in opening if environment.get(variable, "") not in ("", "{}")}
        expected = {one for entry in entries[name] for one in secrets_of(entry) if one not in UNSET}
        read = {one for entry in entries[name] for one in settings_of(entry)}
        # Of other libraries' credentials, those of the stores that it reads.
        if {"DYNAMODB_ENDPOINT", "AUDIT_ANCHORS"} & read:
            expected.add("AWS_SECRET_ACCESS_KEY")
        if {"PUBSUB_PROJECT", "BIGQUERY_PROJECT"} & read:
            expected.add("GOOGLE_APPLICATION_CREDENTIALS")
        assert handed == expected, name
        assert "clientmgr_owner" not in " ".join(environment.values()), f"{name} can log in as the owner"
    for server in [*mentioning("bin/postgres", among=among), *mentioning("valkey-server", among=among)]:
        assert not opening & server.environ().keys(), server


def test_another_command_finds_the_running_servers(up: Up) -> None:
    assert clientmgr(up, "tenants", "activate", "7").returncode == 0
    listed = clientmgr(up, "tenants", "list", "--json")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert [(tenant["customer_id"], tenant["status"]) for tenant in json.loads(listed.stdout)] == [(7, "active")]


def test_a_second_one_in_the_same_folder_is_told_who_is_there(up: Up) -> None:
    second = clientmgr(up, "up")
    assert second.returncode == 3
    (line,) = second.stderr.splitlines()
    assert f"is in use by another clientmgr (process {up.process.pid})" in json.loads(line)["message"]


def test_a_killed_program_is_restarted_and_named(up: Up) -> None:
    (daemon, *_) = up.programs("clientmgr_dagster.daemon")
    daemon.kill()
    up.wait_until(lambda: "dagster-daemon" in up.names("process restarted"), "the daemon is restarted")
    (died, *_) = [died for died in up.records("process died") if died["clientmgr"]["name"] == "dagster-daemon"]
    assert died["clientmgr"] == {"name": "dagster-daemon", "cause": "signal 9", "restart_in_s": 1.0}
    assert eventually(lambda: up.programs("clientmgr_dagster.daemon"), "it runs again")[0].pid != daemon.pid


def test_a_killed_server_is_restarted_on_its_port_and_named(up: Up) -> None:
    os.kill(int((up.folder / "data" / "redis" / "redis.pid").read_text()), signal.SIGKILL)
    up.wait_until(lambda: "Redis" in up.names("process restarted"), "Redis is restarted")


def test_sigterm_stops_everything_in_order(terminated: Ended) -> None:
    up = terminated.up
    assert terminated.exit_code == 0
    assert not running(terminated.processes)
    assert not mentioning(up.folder)
    assert up.names("program stopped") == up.names("program started")[::-1]
    assert up.names("server stopped") == ["Redis", "PostgreSQL"]
    messages = [json.loads(line)["message"] for line in up.lines()]
    assert messages[-1] == "stopped"
    assert messages.index("stopping") < messages.index("program stopped") < messages.index("server stopped")


def test_every_line_of_the_log_is_a_record_with_ecs_names(terminated: Ended) -> None:
    records = [json.loads(line) for line in terminated.up.lines()]
    assert len(records) > 10
    for record in records:
        assert set(record) >= ALWAYS_LOGGED
        assert set(record) <= ALWAYS_LOGGED | SOMETIMES_LOGGED


def test_the_log_holds_nothing_of_dagsters_chatter(terminated: Ended) -> None:
    records = [json.loads(line) for line in terminated.up.lines()]
    levels = {record["log.level"] for record in records if record["log.logger"].startswith("dagster")}
    assert levels <= {"warning", "error", "critical"}


@pytest.mark.parametrize("command", ["up", "demo"])
@pytest.mark.parametrize("moment", ["before its first line", "server started"])
def test_ctrl_c_while_it_starts_ends_it_without_a_traceback(folder: Path, command: str, moment: str) -> None:
    starting = Up(folder, command)
    try:
        if moment == "before its first line":
            starting.wait_until(
                lambda: mentioning(folder, among=with_descendants(starting.process.pid)), "a child runs"
            )
        else:
            starting.wait_until(lambda: starting.names(moment), moment)
        everything = with_descendants(starting.process.pid)
        os.killpg(starting.process.pid, signal.SIGINT)
        assert starting.process.wait(timeout=STOP_TIMEOUT_S) in (0, 130)
        assert not running(everything)
        assert "Traceback" not in starting.stderr.read_text()
        assert not starting.names("program started")
    finally:
        starting.clean_up()


def test_ctrl_c_stops_everything(another_up: Up) -> None:
    everything = with_descendants(another_up.process.pid)
    # A terminal sends it to the whole group.
    os.killpg(another_up.process.pid, signal.SIGINT)
    assert another_up.process.wait(timeout=STOP_TIMEOUT_S) == 0
    assert not running(everything)
    assert not mentioning(another_up.folder)
    assert another_up.names("program stopped") == another_up.names("program started")[::-1]
    assert "Traceback" not in another_up.stderr.read_text()


def test_nothing_outlives_a_killed_one(another_up: Up) -> None:
    module = "clientmgr_dagster.code_server"

    def with_its_fork() -> bool:
        return sum(module in one.cmdline() for one in another_up.programs(module)) > 1

    another_up.wait_until(with_its_fork, "a code server runs, and what runs are forked from")
    everything = with_descendants(another_up.process.pid)
    another_up.process.kill()
    another_up.process.wait()
    wait_until_gone(everything, within_s=STOP_TIMEOUT_S)
    assert not mentioning(another_up.folder)
