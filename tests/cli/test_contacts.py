"""`clientmgr contacts`: a stranger erases a contact, exports what is kept about it, and proves that nothing is left."""

import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.erasure.sweep import sweep
from tests.cli.calling import Cli
from tests.cli.conftest import CLIENTMGR
from tests.erasure.planting import CLIENT, CONTACT, CUSTOMER, EMAIL, OTHER, TOKEN, Ground, event, prepare
from tests.waiting import eventually

WHO = ("--customer", str(CUSTOMER), "--contact", str(CONTACT))


@pytest.fixture
def ground(database: Database, settings_for: Callable[[Database], Settings]) -> Ground:
    return Ground(database, settings_for(database))


@pytest.fixture
def cli(database: Database, tmp_path: Path) -> Cli:
    return Cli.on(database, tmp_path)


def plant_all(ground: Ground) -> None:
    prepare(ground, deleted=False)
    ground.message(event("registered", {"attributes": {"email": EMAIL}}))
    ground.message(event("pushTokenSet", {"pushToken": TOKEN, "kind": "apns"}))
    ground.message(
        {
            "messageId": "m",
            "customerId": CUSTOMER,
            "recipients": [{"contactId": OTHER, "greeting": "theirs"}, {"contactId": CONTACT, "greeting": "mine"}],
        },
        topic="sending-tx-devicemapper-dg00",
        user="",
    )


def test_a_contacts_data_is_exported_as_one_json_file(cli: Cli, ground: Ground, tmp_path: Path) -> None:
    plant_all(ground)
    file = tmp_path / "out" / "contact.json"
    file.parent.mkdir()
    assert "exported" in cli.ok("contacts", "export", *WHO, "--output", str(file)).err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    document = json.loads(file.read_text())
    assert [device["client_id"] for device in document["devices"]] == [CLIENT]
    assert len(document["links"]) == 1
    assert [message["where"] for message in document["messages"]] == [
        "client-manager.writer, offset 1",
        "client-manager.writer, offset 2",
        "sending-tx-devicemapper-dg00, offset 1",
    ]
    assert document["messages"][2]["message"]["recipients"] == [{"contactId": CONTACT, "greeting": "mine"}]
    text = file.read_text()
    assert EMAIL in text
    assert TOKEN not in text
    assert "theirs" not in text
    assert "somebody-elses-client" not in text
    audited = ground.execute(
        "SELECT outcome, details ->> 'tokens' FROM clientmgr.audit_log WHERE action = 'contact.export' ORDER BY seq"
    )
    assert audited == [("started", "false"), ("done", "false")]


def test_tokens_are_exported_when_they_are_asked_for(cli: Cli, ground: Ground) -> None:
    plant_all(ground)
    document = cli.ok("contacts", "export", *WHO, "--output", "-", "--reveal").json
    assert document["devices"][0]["push_token"] == TOKEN
    assert document["tokensIncluded"] is True


def test_a_file_is_replaced_only_by_force(cli: Cli, ground: Ground, tmp_path: Path) -> None:
    prepare(ground)
    file = tmp_path / "contact.json"
    file.write_text("mine")
    assert cli("contacts", "export", *WHO, "--output", str(file)).code == 2
    assert cli("contacts", "prove", *WHO, "--output", str(file)).code == 2
    assert file.read_text() == "mine"
    cli.ok("contacts", "export", *WHO, "--output", str(file), "--force")
    assert json.loads(file.read_text())["contactId"] == CONTACT


@pytest.mark.parametrize("command", ["erase", "export", "prove"])
@pytest.mark.parametrize(
    ("who", "said"),
    [
        (("--customer", "x", "--contact", "1"), "--customer"),
        (("--customer", "1007", "--contact", "-1"), "--contact"),
        (("--customer", "1007", "--contact", "9" * 19 + "9"), "--contact"),
    ],
)
def test_what_is_no_customer_or_contact_is_refused_by_name(
    cli: Cli, command: str, who: tuple[str, ...], said: str
) -> None:
    result = cli("contacts", command, *who)
    assert result.code == 2
    assert said in result.err


@pytest.mark.parametrize("command", ["erase", "export", "prove"])
def test_an_unknown_customer_is_refused(cli: Cli, command: str) -> None:
    more = ("--yes",) if command == "erase" else ()
    result = cli("contacts", command, "--customer", "9", "--contact", "1", *more)
    assert result.code == 1
    assert "customer 9 was never activated" in result.err


def test_a_proof_is_printed_written_and_checked(cli: Cli, ground: Ground, tmp_path: Path) -> None:
    prepare(ground)
    file = tmp_path / "proof.json"
    shown = cli.ok("contacts", "prove", *WHO, "--search", EMAIL, "--output", str(file)).out
    assert "verdict: nothing left" in shown
    assert "audit chain: intact" in shown
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "as it was written" in cli.ok("audit", "check-proof", str(file)).out
    # A report that lies in the data folder names the contact, and is no trace of it.
    cli.ok("contacts", "prove", *WHO)
    file.write_text(file.read_text().replace("nothing left", "nothing  left", 1))
    refused = cli("audit", "check-proof", str(file))
    assert refused.code == 1
    assert "the signature does not fit" in refused.err


def test_a_proof_fails_while_something_is_left(cli: Cli, ground: Ground) -> None:
    prepare(ground)
    remove = ground.message(event("contactLinked", {"contactId": CONTACT}))
    result = cli("contacts", "prove", *WHO, "--json")
    assert result.code == 1
    assert result.json["verdict"] == "left: clientmgr.outbox_message_t (1)"
    remove()
    assert cli.ok("contacts", "prove", *WHO, "--json").json["outcome"] == "nothing left"


def test_an_account_is_proven_gone(cli: Cli, ground: Ground) -> None:
    prepare(ground)
    assert cli("tenants", "prove", "--customer", str(CUSTOMER)).code == 1
    cli.ok("tenants", "delete", str(CUSTOMER), "--yes")
    shown = cli.ok("tenants", "prove", "--customer", str(CUSTOMER)).out
    assert "There is no such schema." in shown
    assert "verdict: nothing left" in shown


def test_erasing_publishes_the_deletion_and_says_who_asked(cli: Cli, ground: Ground) -> None:
    prepare(ground, deleted=False)
    assert cli("contacts", "erase", *WHO, stdin=b"n\n").code == 1
    assert ground.execute("SELECT count(*) FROM clientmgr.outbox_message_t") == [(0,)]
    moment = "2026-01-02T03:04:05Z"
    assert "is published" in cli.ok("contacts", "erase", *WHO, "--yes", "--deleted-at", moment).out
    ((payload, host, user),) = ground.execute("SELECT payload, host_id, user_id FROM clientmgr.outbox_message_t")
    body = json.loads(payload)
    assert (body["customerId"], body["contactId"], body["deletedAt"]) == (CUSTOMER, CONTACT, 1767323045000)
    assert (host, user) == (str(CUSTOMER), str(CONTACT))
    audited = ground.execute(
        "SELECT actor LIKE 'cli:%%', outcome, contact_hash FROM clientmgr.audit_log WHERE action = %s",
        "contact.erase_requested",
    )
    assert audited == [(True, "published", ground.keys.audit.contact_hash(CUSTOMER, CONTACT))]


def test_a_deletion_in_the_future_is_refused(cli: Cli, ground: Ground) -> None:
    prepare(ground)
    result = cli("contacts", "erase", *WHO, "--yes", "--deleted-at", "2999-01-01T00:00:00Z")
    assert result.code == 2
    assert "--deleted-at" in result.err


def test_waiting_for_a_deletion_that_nobody_carries_out_fails(cli: Cli, ground: Ground) -> None:
    prepare(ground, deleted=False)
    result = cli("contacts", "erase", *WHO, "--yes", "--wait", "--timeout", "0.3")
    assert result.code == 1
    assert "clientmgr run contact-deletion" in result.err


def test_a_deletion_that_is_done_is_not_published_again(cli: Cli, ground: Ground) -> None:
    prepare(ground, deleted=False)
    moment = "2026-01-02T03:04:05Z"
    ground.insert("tenant_1007.contact_tombstones", contact_hash=ground.contact_hash, deleted_version=1767323045000)
    result = cli.ok("contacts", "erase", *WHO, "--yes", "--deleted-at", moment, "--wait")
    assert "already deleted" in result.out
    assert ground.execute("SELECT count(*) FROM clientmgr.outbox_message_t") == [(0,)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 130), (signal.SIGINT, 130)])
def test_a_proof_that_is_stopped_leaves_nothing_behind(
    ground: Ground, cli: Cli, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    prepare(ground)
    ground.execute("CREATE TABLE clientmgr.of_tomorrow (note text)")
    ground.execute("GRANT SELECT ON clientmgr.of_tomorrow TO clientmgr_reader")
    folder = tmp_path / "out"
    folder.mkdir()
    query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%%of_tomorrow%%' AND wait_event_type = %s"
    with (
        ground.database.connect(Role.OWNER) as holding,
        ground.database.connect(Role.OWNER, autocommit=True) as watching,
    ):
        # The proof waits for this table, in the middle of its work, until it is stopped.
        holding.execute("LOCK TABLE clientmgr.of_tomorrow IN ACCESS EXCLUSIVE MODE")
        proving = subprocess.Popen(
            [CLIENTMGR, "contacts", "prove", *WHO, "--output", str(folder / "proof.json")],
            env={**os.environ, **cli.environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually(lambda: watching.execute(query, ("Lock",)).fetchone() == (1,), "the proof waits for the table")
        proving.send_signal(number)
        assert proving.wait(30) == code
        eventually(lambda: watching.execute(query, ("Lock",)).fetchone() == (0,), "the server has noticed")
        holding.execute("DROP TABLE clientmgr.of_tomorrow")
    assert list(folder.iterdir()) == []
    assert cli.ok("contacts", "prove", *WHO, "--output", str(folder / "proof.json")).code == 0


def test_a_contact_is_erased_and_proven_gone_by_the_commands_alone(cli: Cli, ground: Ground, tmp_path: Path) -> None:
    cli.ok("tenants", "activate", str(CUSTOMER))
    now = int(time.time() * 1000)
    history = [
        event("registered", {"hardwareId": "hw-0815", "attributes": {"email": EMAIL}}, at=now - 5000),
        event("pushTokenSet", {"pushToken": TOKEN, "kind": "apns"}, at=now - 4000),
        event("contactLinked", {"contactId": CONTACT}, at=now - 3000),
    ]
    lines = "\n".join(json.dumps(one) for one in history).encode()
    cli.ok("publish", "client-manager.writer", "--file", "-", "--create", stdin=lines)
    cli.ok("run", "writer", "--burst")
    search = ("--search", EMAIL, "--search", TOKEN, "--search", CLIENT, "--search", "hw-0815")
    kept = cli("contacts", "prove", *WHO, *search, "--json")
    assert kept.code == 1
    assert {place["place"] for place in kept.json["places"] if place["found"]} == {
        "tenant_1007.devices",
        "tenant_1007.contact_links",
        "clientmgr.outbox_message_t",
    }

    cli.ok("contacts", "erase", *WHO, "--yes")
    cli.ok("run", "contact-deletion", "--burst")
    due = cli("contacts", "prove", *WHO, *search, "--json")
    assert (due.code, due.json["outcome"]) == (1, "within the erasure period")
    assert {place["place"] for place in due.json["places"] if place["found"]} == {"clientmgr.outbox_message_t"}
    sweep(ground.database, ground.settings)
    file = tmp_path / "proof.json"
    proven = cli("contacts", "prove", *WHO, *search, "--output", str(file))
    assert proven.code == 0, proven
    cli.ok("audit", "check-proof", str(file))
    assert [row["action"] for row in json.loads(file.read_text())["auditRows"]] == [
        "contact.prove",
        "contact.erase_requested",
        "contact.delete",
        "contact.prove",
    ]
    empty = cli.ok("contacts", "export", *WHO).json
    assert (empty["devices"], empty["messages"], empty["otherRows"]) == ([], [], [])
