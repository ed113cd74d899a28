"""What the sweep's tests are made of: messages anywhere, deletions as their hashes, and a look at what is left."""

import json
from dataclasses import dataclass
from typing import Any

from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.database import Role
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.broker.interface import Message
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.erasure.sweep import Report, sweep
from tests.streaming.rig import NOW, Rig

TOPIC = "client-manager.writer"


@dataclass(frozen=True)
class Erasing(Rig):
    """A rig on the PostgreSQL log."""

    @property
    def hashes(self) -> KeyedHashes:
        return KeyedHashes.from_settings(self.settings)

    def delete_contact(self, contact: int, *, customer: int = 7, at: int = NOW) -> None:
        self.query(
            f"INSERT INTO {_schema(customer)}.contact_tombstones (contact_hash, deleted_version) VALUES (%s, %s)",
            self.hashes.contact(customer, contact),
            at,
        )

    def delete_device(self, client: str, *, customer: int = 7, application: str = "A", at: int = NOW) -> None:
        self.query(
            f"INSERT INTO {_schema(customer)}.device_tombstones (device_hash, contact_deleted_version) VALUES (%s, %s)",
            self.hashes.device(customer, application, client),
            at,
        )

    def claim_token(self, token: str, client: str, *, customer: int = 7, application: str = "A") -> None:
        self.query(
            f"INSERT INTO {_schema(customer)}.push_token_claims VALUES (%s, %s, %s)",
            self.hashes.token(customer, application, token_digest(token)),
            self.hashes.device(customer, application, client),
            NOW,
        )

    async def log(self, message: dict[str, Any] | bytes, label: str = "7", key: str = "", **attributes: str) -> None:
        """Put a message into the writer's topic, under whatever label."""
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        await self.put_into_log(TOPIC, Message(data, label, key, attributes))

    def sweep(self) -> Report:
        return sweep(self.database, self.settings)

    def payloads(self, topic: str = TOPIC) -> list[Any]:
        return [one.event for one in self.topic(topic)]

    def dump(self) -> str:
        """Every row of every table of the control schema, as text."""
        with self.database.connect(Role.OWNER) as connection:
            tables = connection.execute(
                "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c"
                " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
                " WHERE c.relkind = 'r' AND n.nspname !~ '^(pg_|information)'"
            ).fetchall()
            rows = []
            for (table,) in tables:
                for (row,) in connection.execute(f"SELECT t::text FROM {table} AS t").fetchall():
                    rows.append(row)
            held = ("delayed_message_t", "held_message_t", "dead_letter_queue", "pubsub_delayed")
            for table in ("outbox_message_t", *held):
                found = connection.execute(f"SELECT payload FROM clientmgr.{table}").fetchall()
                rows += [bytes(payload).decode(errors="replace") for (payload,) in found]
        return "\n".join(rows)


def _schema(customer: int) -> str:
    return quoted_schema(CustomerId(customer))
