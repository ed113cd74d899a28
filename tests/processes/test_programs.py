"""What runs as part of the system besides its servers, and what the demo adds."""

import json
from pathlib import Path

import pytest

from clientmgr.base.data_folder import with_audit_key
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import load_settings, secret_setting_names, sensitive_setting_names
from clientmgr.contracts import daemons, topics
from clientmgr.contracts.device_events import decode_event
from clientmgr.contracts.handing_out import secrets_of
from clientmgr.local.demo.scenario import DEMO_CUSTOMERS, FLEET, TRAFFIC, open_to_all, prepare
from clientmgr.local.processes.programs import OwnCommand, all_programs
from clientmgr.local.processes.supervisor import Program
from clientmgr.tenants.flippers import Flipper
from tests.cli.calling import Cli
from tests.keys import TEST_KEY

ENTRIES = {process.name: daemons.entry_of_process(process.name) for process in daemons.started()}
OWN = list(dict.fromkeys(entry.shares or name for name, entry in ENTRIES.items()))
SHARED = [entry for entry in daemons.ALL if entry.shares]
ALONE = [name for name, entry in ENTRIES.items() if not entry.shares and entry.run]


def programs(folder: Path, *more: OwnCommand, metrics_port: int = 0) -> dict[str, Program]:
    settings = load_settings(
        database_url="postgresql://nobody@localhost/none", data_dir=folder, metrics_port=metrics_port
    )
    return {program.name: program for program in all_programs(settings, log_format="json", more=more)}


def test_every_daemon_is_run_by_the_command_that_runs_it_alone(tmp_path: Path) -> None:
    found = programs(tmp_path)
    for name in ALONE:
        assert found[name].command[1:] == ["-m", "clientmgr", "run", name]


def test_those_that_may_share_a_process_run_in_one_as_they_would_by_themselves(tmp_path: Path) -> None:
    assert programs(tmp_path)["workers"].command[1:] == [
        *("-m", "clientmgr", "run", "writer", "republisher", "push-token-status", "contact-deletion"),
        *("telemetry-writer", "device-mapper", "--type", "batch", "device-mapper", "--type", "tx"),
    ]


def test_those_that_share_a_process_have_the_same_roles_and_take_no_connections() -> None:
    assert len(SHARED) >= 6
    for entry in SHARED:
        assert entry.roles == (Role.WRITER,), entry.name
        assert entry.listens is None, entry.name


def test_the_daemons_are_those_that_the_command_line_knows(tmp_path: Path) -> None:
    for name in (entry.name for entry in daemons.ALL if entry.run):
        assert "Usage: clientmgr run" in Cli({}).ok("run", name, "--help").out


def test_the_daemons_start_after_dagster_and_what_is_added_after_them(tmp_path: Path) -> None:
    found = list(programs(tmp_path, OwnCommand("more", ("topics",), (daemons.entry_of_process("writer"),))))
    assert found == ["spark", "dagster-code-server", "dagster-daemon", "dagster-webserver", *OWN, "more"]
    assert OWN == ["pubsub-gateway", "workers", "broadcast", "dashboard", "intake"]


def test_a_process_is_handed_what_its_entry_names_and_the_owner_s_login_to_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensitive = {
        name.lower(): f"postgresql://{name}@h/d" for name in sensitive_setting_names() if name.endswith("_URL")
    }
    sensitive |= {name.lower(): TEST_KEY for name in secret_setting_names() if name.endswith(("_KEY", "METRICS_TOKEN"))}
    sensitive |= {"redis_url": "redis://h", "alert_webhook_url": "https://h/x", "audit_anchors": "s3://bucket"}
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_REGION", "GOOGLE_APPLICATION_CREDENTIALS", "PGPASSWORD"):
        monkeypatch.setenv(name, "x")
    settings = load_settings(data_dir=tmp_path, spark_conf={"password": "x"}, **sensitive)
    entries = {one.name: entry for entry in (*daemons.ALL, *daemons.DAGSTER) for one in entry.processes}
    for program in all_programs(settings, log_format="json"):
        opened = {name for name in sensitive_setting_names() if program.env[name] not in ("", "{}")}
        # Data sources bring the logins that Spark needs.
        of_spark = {"SPARK_CONF", "SPARK_CONNECT_TOKEN"}
        named = SHARED if program.name == "workers" else [entries[program.name]] if program.name != "spark" else []
        needed = {name for entry in named for name in secrets_of(entry)}
        assert opened == (needed or of_spark), program.name
        assert "DATABASE_URL" not in opened
        assert ("DATABASE_DDL_URL" in opened) == (program.name == "dagster-code-server")
        assert "PGPASSWORD" not in program.env
        assert program.env["AWS_REGION"] == "x"
        load_settings(**{name.lower(): program.env[name] for name in ("REDIS_URL", "DATABASE_URL")})
    env = {program.name: program.env for program in all_programs(settings, log_format="json")}
    assert {name for name in env if "AWS_SECRET_ACCESS_KEY" in env[name]} == {
        "spark", "dagster-code-server", "pubsub-gateway", "workers", "dashboard",
    }  # fmt: skip
    assert "GOOGLE_APPLICATION_CREDENTIALS" not in env["broadcast"]
    assert env["workers"]["LIVE_TOKEN_KEY"] == ""
    assert env["broadcast"]["AUDIT_HASH_KEY"] == ""


def test_the_dashboard_is_run_by_the_command_that_runs_it_alone(tmp_path: Path) -> None:
    assert programs(tmp_path)["dashboard"].command[1:] == ["-m", "clientmgr", "run", "dashboard"]
    assert "Usage: clientmgr run dashboard" in Cli({}).ok("run", "dashboard", "--help").out


def test_no_metrics_are_served_unless_a_port_is_set(tmp_path: Path) -> None:
    found = programs(tmp_path)
    assert {found[name].env["METRICS_PORT"] for name in OWN} == {"0"}


def test_each_process_of_ours_has_a_metrics_port_of_its_own(tmp_path: Path) -> None:
    found = programs(tmp_path, metrics_port=9100)
    ports = [found[name].env["METRICS_PORT"] for name in OWN]
    first_of_own = {
        entry.shares or name: 9100 + number for number, (name, entry) in reversed([*enumerate(ENTRIES.items())])
    }
    assert ports == [str(first_of_own[name]) for name in OWN]
    assert len(set(ports)) == len(OWN)


def test_a_daemon_may_take_the_whole_time_to_drain_before_it_is_killed(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path)
    assert all(programs(tmp_path)[name].grace_seconds > settings.shutdown_timeout_s for name in OWN)


def test_the_demos_traffic_is_of_its_busy_tenants_and_every_event_of_it_can_be_read() -> None:
    arguments = [argument for argument in TRAFFIC.arguments if argument != "--forever"]
    lines = Cli({}).ok(*arguments, "--events", "2000", "--start-at", "1763248000123", "--dry-run").json_lines
    events = [json.dumps(line["message"]).encode() for line in lines if line["topic"] == topics.WRITER]
    assert {decode_event(event).customer_id for event in events} == set(DEMO_CUSTOMERS[:2])


def test_the_demos_tenants_can_be_activated_again(database: Database, tmp_path: Path) -> None:
    settings = with_audit_key(load_settings(database_url=database.url, data_dir=tmp_path))
    prepare(settings)
    prepare(settings)
    flippers = Cli.on(database, tmp_path).ok("flippers", "list", "--json").json
    assert {(one["name"], one["enabled"]) for one in flippers} == {(name, True) for name in Flipper}
    listed = Cli.on(database, tmp_path).ok("tenants", "list", "--json").json
    assert [(tenant["customer_id"], tenant["status"]) for tenant in listed] == [
        (customer_id, "active") for customer_id in DEMO_CUSTOMERS
    ]


def test_the_demos_fleet_is_a_command_that_there_is() -> None:
    assert "Usage: clientmgr live fleet" in Cli({}).ok(*FLEET.arguments, "--help").out


def test_the_demo_shows_its_map_without_tokens_unless_somebody_asks_for_them() -> None:
    assert open_to_all(load_settings()).live_auth == "off"
    assert open_to_all(load_settings(live_auth="on")).live_auth == "on"
