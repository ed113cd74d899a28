"""A customer with a contact that was deleted three days ago, and ways to leave something of it behind."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import redis

from clientmgr.audit.log import AuditEntry
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.erasure.places import Stores
from clientmgr.erasure.subject import Keys
from clientmgr.operations.dagster_addresses import dagster_database_url
from clientmgr.tenants.schema_manager import TenantSchemaManager

CUSTOMER = CustomerId(1007)
CONTACT = 424242
OTHER = 515151
APP, CLIENT = "EMS11-C3FD3", "client-0123456789abcdef"
TOKEN = "7d1c0f3b5a9e2468ace013579bdf7d1c0f3b5a9e2468ace013579bdf2468ace0"
EMAIL = "ada.lovelace@example.com"
DELETED_AT = datetime.now(UTC).replace(microsecond=0) - timedelta(days=3)
VERSION = int(DELETED_AT.timestamp() * 1000)
BEFORE = VERSION - 60_000


@dataclass(frozen=True)
class Ground:
    """Where things are planted."""

    database: Database
    settings: Settings

    @property
    def stores(self) -> Stores:
        return Stores(self.database, self.settings, dagster_database_url(self.settings))

    @property
    def keys(self) -> Keys:
        return Keys.from_settings(self.settings)

    @property
    def device_hash(self) -> bytes:
        return self.keys.hashes.device(CUSTOMER, APP, CLIENT)

    @property
    def contact_hash(self) -> bytes:
        return self.keys.hashes.contact(CUSTOMER, CONTACT)

    @property
    def token_hash(self) -> bytes:
        return self.keys.hashes.token(CUSTOMER, APP, token_digest(TOKEN))

    def execute(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        with self.database.connect(Role.OWNER, autocommit=True) as connection:
            cursor = connection.execute(sql.encode(), parameters or None)
            return cursor.fetchall() if cursor.description is not None else []

    def insert(self, table: str, **values: object) -> Callable[[], object]:
        """Insert a row; what is returned removes it."""
        columns, places = ", ".join(values), ", ".join(["%s"] * len(values))
        ((place,),) = self.execute(
            f"INSERT INTO {table} ({columns}) VALUES ({places}) RETURNING ctid::text", *values.values()
        )
        return lambda: self.execute(f"DELETE FROM {table} WHERE ctid = %s::tid", place)

    def held_queue(self) -> object:
        ((queue_id,),) = self.execute(
            "INSERT INTO clientmgr.held_queues (group_id, topic_id, partition_id, host_id, not_before)"
            " VALUES ('g', 1, 0, '', now()) RETURNING id"
        )
        return queue_id

    def times_of(self, table: str) -> dict[str, object]:
        """A value for every column of a table that holds a time."""
        columns = self.execute(
            "SELECT column_name FROM information_schema.columns"
            " WHERE (table_schema, table_name) = ('clientmgr', %s) AND data_type = 'timestamp with time zone'",
            table,
        )
        return {name: DELETED_AT for (name,) in columns}

    def message(
        self, body: object, *, topic: str = "client-manager.writer", host: str = str(CUSTOMER), user: str = CLIENT
    ) -> Callable[[], object]:
        """A message in the log, as it is published."""
        self.execute("INSERT INTO clientmgr.log_counter (topic) VALUES (%s) ON CONFLICT DO NOTHING", topic)
        ((topic_id, offset),) = self.execute(
            "UPDATE clientmgr.log_counter SET next_offset = next_offset + 1 WHERE topic = %s"
            " RETURNING id, next_offset - 1",
            topic,
        )
        return self.insert(
            "clientmgr.outbox_message_t",
            topic_id=topic_id,
            partition_id=0,
            c_offset=offset,
            tx_last_offset=offset,
            transaction_id="00000000-0000-4000-8000-000000000001",
            host_id=host,
            user_id=user,
            payload=body if isinstance(body, bytes) else json.dumps(body).encode(),
            published_at=DELETED_AT - timedelta(minutes=1),
        )


def event(name: str, payload: dict[str, Any], *, at: int = BEFORE, client: str = CLIENT) -> dict[str, Any]:
    return {
        "eventId": f"e-{name}-{at}",
        "eventType": f"client.{name}",
        "customerId": CUSTOMER,
        "applicationCode": APP,
        "clientId": client,
        "occurredAt": at,
        "payload": payload,
    }


def prepare(ground: Ground, *, deleted: bool = True) -> None:
    """The customer, somebody else's device, and what is left of the contact when all went well: hashes."""
    TenantSchemaManager(ground.database, ground.settings).activate([CUSTOMER], actor="test")
    add_device(ground, OTHER, "somebody-elses-client", "f" * 64)
    ground.insert(
        "tenant_1007.contact_links",
        device_hash=ground.device_hash,
        linked_version=BEFORE,
        contact_hash=ground.contact_hash,
        contact_id=None if deleted else CONTACT,
    )
    ground.insert(
        "tenant_1007.push_token_claims",
        token_hash=ground.token_hash,
        device_hash=ground.device_hash,
        claimed_version=BEFORE,
    )
    if not deleted:
        add_device(ground, CONTACT, CLIENT, TOKEN)
        return
    ground.insert(
        "tenant_1007.contact_tombstones",
        contact_hash=ground.contact_hash,
        deleted_version=VERSION,
        recorded_at=DELETED_AT,
    )
    ground.insert(
        "tenant_1007.device_tombstones",
        device_hash=ground.device_hash,
        contact_deleted_version=VERSION,
        recorded_at=DELETED_AT,
    )
    entry = AuditEntry(CUSTOMER, "contact-deletion", "contact.delete", "deleted", CONTACT, 1)
    with ground.database.connect(Role.WRITER) as connection:
        ground.keys.audit.append(connection, [entry])


def add_device(ground: Ground, contact: int | None, client: str, token: str, **values: object) -> Callable[[], object]:
    return ground.insert(
        "tenant_1007.devices",
        application_code=APP,
        client_id=client,
        contact_id=contact,
        push_token=token,
        push_token_kind="apns",
        push_token_status="valid",
        push_token_hash=ground.keys.hashes.token(CUSTOMER, APP, token_digest(token)),
        device_hash=ground.keys.hashes.device(CUSTOMER, APP, client),
        **values,
    )


Remove = Callable[[], object]
Plant = Callable[[Ground, Path, str], Remove]

DEAD = {
    "group_id": "client-manager.writer",
    "topic_id": 1,
    "c_offset": 5,
    "partition_id": 0,
    "transaction_id": "00000000-0000-4000-8000-000000000001",
    "attributes": "{}",
    "error_class": "SomeError",
    "exception": "it broke",
    "attempts": 1,
    "published_at": DELETED_AT - timedelta(minutes=1),
}


def _file(name: str, text: str) -> Plant:
    def plant(_ground: Ground, folder: Path, _redis: str) -> Remove:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file.unlink

    return plant


def _in_redis(key: str, put: Callable[[Any], object]) -> Plant:
    def plant(_ground: Ground, _folder: Path, url: str) -> Remove:
        client = redis.Redis.from_url(url)
        put(client)
        return lambda: client.delete(key)

    return plant


def _in_dagster(ddl: str, row: str) -> Plant:
    def plant(ground: Ground, _folder: Path, _redis: str) -> Remove:
        ground.execute(ddl)
        table = ddl.split()[2]
        ground.execute(f"ALTER TABLE {table} OWNER TO clientmgr_dagster")
        ground.execute(row)
        return lambda: ground.execute(f"DROP TABLE {table}")

    return plant


NAMED = json.dumps({"customerId": CUSTOMER, "contactId": CONTACT})

PLANTS: dict[str, tuple[str, Plant]] = {
    "a device": ("tenant_1007.devices", lambda g, _f, _r: add_device(g, CONTACT, "another-client", "e" * 64)),
    "a device that should have gone": (
        "devices that were deleted with the contact",
        lambda g, _f, _r: add_device(g, None, CLIENT, TOKEN, created_at=DELETED_AT - timedelta(days=1)),
    ),
    "a link in clear": (
        "tenant_1007.contact_links",
        lambda g, _f, _r: g.insert(
            "tenant_1007.contact_links",
            device_hash=b"x" * 16,
            linked_version=5,
            contact_hash=g.contact_hash,
            contact_id=CONTACT,
        ),
    ),
    "a merge in clear": (
        "tenant_1007.contact_merges",
        lambda g, _f, _r: g.insert(
            "tenant_1007.contact_merges",
            from_contact_hash=b"x" * 16,
            merged_version=5,
            into_contact_hash=g.contact_hash,
            into_contact_id=CONTACT,
        ),
    ),
    "an event about the device": (
        "clientmgr.outbox_message_t",
        lambda g, _f, _r: g.message(event("registered", {"hardwareId": "hw", "attributes": {"email": EMAIL}})),
    ),
    "a link event": (
        "clientmgr.outbox_message_t",
        lambda g, _f, _r: g.message(event("contactLinked", {"contactId": CONTACT}, client="another")),
    ),
    "an event labelled with another tenant": (
        "clientmgr.outbox_message_t",
        lambda g, _f, _r: g.message(event("contactLinked", {"contactId": CONTACT}), host="9"),
    ),
    "an event without a label": (
        "clientmgr.outbox_message_t",
        lambda g, _f, _r: g.message(event("contactLinked", {"contactId": CONTACT}), host="", user=""),
    ),
    "an event cut off in the middle": (
        "clientmgr.outbox_message_t",
        lambda g, _f, _r: g.message(json.dumps(event("contactLinked", {"contactId": CONTACT})).encode()[:-1]),
    ),
    "a sending": (
        "clientmgr.outbox_message_t",
        lambda g, _f, _r: g.message(
            {"messageId": "m", "customerId": CUSTOMER, "recipients": [{"contactId": OTHER}, {"contactId": CONTACT}]},
            topic="sending-tx-devicemapper-dg00",
            user="",
        ),
    ),
    "a message in an error topic": (
        "clientmgr.outbox_message_t",
        lambda g, _f, _r: g.message({"customerId": CUSTOMER, "contactId": CONTACT}, topic="sending-mg-errors"),
    ),
    "a verdict on its token": (
        "clientmgr.outbox_message_t",
        lambda g, _f, _r: g.message(
            {
                "eventId": "v",
                "customerId": CUSTOMER,
                "applicationCode": APP,
                "clientId": CLIENT,
                "pushToken": TOKEN,
                "status": "invalid",
                "occurredAt": BEFORE,
            },
            topic="client-manager.push-token-status",
        ),
    ),
    "a dead letter": (
        "clientmgr.dead_letter_queue",
        lambda g, _f, _r: g.insert(
            "clientmgr.dead_letter_queue",
            **DEAD,
            host_id=str(CUSTOMER),
            user_id="",
            payload=json.dumps(event("contactLinked", {"contactId": CONTACT})).encode(),
        ),
    ),
    "a dead letter's exception": (
        "clientmgr.dead_letter_queue",
        lambda g, _f, _r: g.insert(
            "clientmgr.dead_letter_queue",
            **{**DEAD, "exception": f"contact {CONTACT} is odd"},
            host_id=str(CUSTOMER),
            user_id="",
            payload=b"{}",
        ),
    ),
    "a message that waits": (
        "clientmgr.delayed_message_t",
        lambda g, _f, _r: g.insert(
            "clientmgr.delayed_message_t",
            group_id="g",
            topic_id=1,
            not_before=DELETED_AT,
            attempts=1,
            host_id=str(CUSTOMER),
            user_id="",
            payload=NAMED.encode(),
            attributes="{}",
            original_offset=1,
            original_published_at=DELETED_AT,
        ),
    ),
    "a message that is held": (
        "clientmgr.held_message_t",
        lambda g, _f, _r: g.insert(
            "clientmgr.held_message_t",
            queue_id=g.held_queue(),
            c_offset=1,
            tx_last_offset=1,
            transaction_id="00000000-0000-0000-0000-000000000001",
            attempts=0,
            failures=1,
            host_id=str(CUSTOMER),
            user_id="",
            payload=NAMED.encode(),
            attributes="{}",
            original_offset=1,
            original_published_at=DELETED_AT,
        ),
    ),
    "a message that waits for Pub/Sub": (
        "clientmgr.pubsub_delayed",
        lambda g, _f, _r: g.insert(
            "clientmgr.pubsub_delayed",
            subscription="s",
            topic="t",
            not_before=DELETED_AT,
            message_id="1",
            attempts=1,
            host_id=str(CUSTOMER),
            user_id="",
            payload=NAMED.encode(),
            attributes="{}",
            published_at=DELETED_AT,
        ),
    ),
    "a contact found in BigQuery": (
        "clientmgr.deleted_contacts",
        lambda g, _f, _r: g.insert(
            "clientmgr.deleted_contacts",
            customer_id=CUSTOMER,
            contact_id=CONTACT,
            deleted_at=DELETED_AT,
            found_at=DELETED_AT,
        ),
    ),
    "one that Spark left half-way": (
        "clientmgr.deleted_contacts_staged",
        lambda g, _f, _r: g.insert(
            "clientmgr.deleted_contacts_staged",
            customer_id=CUSTOMER,
            contact_id=CONTACT,
            deleted_at=DELETED_AT,
            found_at=DELETED_AT,
            attempt_id="a",
        ),
    ),
    "an orphan candidate": (
        "clientmgr.orphan_candidates",
        lambda g, _f, _r: g.insert(
            "clientmgr.orphan_candidates",
            customer_id=CUSTOMER,
            application_code=APP,
            client_id=CLIENT,
            **g.times_of("orphan_candidates"),
        ),
    ),
    "an error text": (
        "clientmgr.batch_failures",
        lambda g, _f, _r: g.insert(
            "clientmgr.batch_failures",
            run_id="r",
            step="s",
            customer_id=CUSTOMER,
            error=f'bad row: {{"contact_id": {CONTACT}}}',
        ),
    ),
    "an entry of the live map": (
        "live.entries",
        lambda g, _f, _r: g.insert("live.entries", id=1, event_id=NAMED),
    ),
    "a string in Redis": ("Redis", _in_redis("left", lambda client: client.set("left", NAMED))),
    "a hash in Redis": ("Redis", _in_redis("left", lambda client: client.hset("left", "field", NAMED))),
    "a list in Redis": ("Redis", _in_redis("left", lambda client: client.rpush("left", "x", NAMED))),
    "a set in Redis": ("Redis", _in_redis("left", lambda client: client.sadd("left", NAMED))),
    "a sorted set in Redis": ("Redis", _in_redis("left", lambda client: client.zadd("left", {NAMED: 1}))),
    "a stream in Redis": ("Redis", _in_redis("left", lambda client: client.xadd("left", {"payload": NAMED}))),
    "a key in Redis": (
        "Redis",
        _in_redis(f"{CUSTOMER}#{CONTACT}", lambda client: client.set(f"{CUSTOMER}#{CONTACT}", "")),
    ),
    "Dagster's event log": (
        "Dagster's event_logs",
        _in_dagster(
            "CREATE TABLE dagster.event_logs (id int, event text)",
            f"INSERT INTO dagster.event_logs VALUES (1, '{NAMED}')",
        ),
    ),
    "Dagster's tags": (
        "Dagster's run_tags",
        _in_dagster(
            "CREATE TABLE dagster.run_tags (key text, value text)",
            f"INSERT INTO dagster.run_tags VALUES ('customer {CUSTOMER}', 'contact {CONTACT}')",
        ),
    ),
    "a log file": ("files of the data folder", _file("logs/writer.log", f"customer={CUSTOMER} contact={CONTACT}\n")),
    "a server's log": ("files of the data folder", _file("postgres/server.log", f"DETAIL: {NAMED}\n")),
    "an export in JSON": (
        "files of the data folder",
        _file("export.json", json.dumps({"customerId": CUSTOMER, "contactId": CONTACT}, indent=2)),
    ),
    "an export in CSV": (
        "files of the data folder",
        _file("devices.csv", f"application_code,client_id,contact_id\n{APP},{CLIENT},{CONTACT}\n"),
    ),
    "an export a line": (
        "files of the data folder",
        _file("devices.ndjson", json.dumps({"application_code": APP, "client_id": CLIENT}) + "\n"),
    ),
}
"""What may be left behind: where a proof must find it, and how it gets there."""


def planted(ground: Ground, name: str) -> Iterator[str]:
    """Gives the place where it must be found, and removes it afterwards."""
    place, plant = PLANTS[name]
    remove = plant(ground, ground.settings.data_dir, ground.settings.redis_url)
    yield place
    remove()
