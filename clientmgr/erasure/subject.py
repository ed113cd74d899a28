"""Whom a proof or an export is about, a contact or a whole account, and how to recognise what is about it.

A deleted contact's devices and tokens are known by keyed hashes alone. So whatever names a device or a token is hashed,
and the hashes are compared. Which messages must be gone by then is the rule's business (`rule.py`).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from psycopg import Connection

from clientmgr.audit.log import AuditLogger
from clientmgr.base.customer_ids import CustomerId, in_schema, schema_name
from clientmgr.base.errors import MigrationError
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries
from clientmgr.broker.erased import is_erased
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.devices.lookup import application_codes
from clientmgr.erasure.recognition import Mentions
from clientmgr.erasure.rule import GoneAccount, GoneDevice, Keep, Known, Stored, verdict_on

_QUERIES = named_queries("tenant/queries/subject.sql")

# What may stand between a name and its number: `"contactId": 42`, `contact_id=42`, `contact 42`, `tenant:7`, and JSON
# within JSON.
_BETWEEN: Final = r"""[\\"':= ]{1,8}"""


@dataclass(frozen=True, slots=True)
class Keys:
    """What makes the hashes: of what outlives a deletion, and of the audit log."""

    hashes: KeyedHashes
    audit: AuditLogger

    @classmethod
    def from_settings(cls, settings: Settings) -> "Keys":
        return cls(KeyedHashes.from_settings(settings), AuditLogger.from_settings(settings))


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deletion of the contact that its tenant's tables have recorded."""

    deleted_at: datetime
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class Subject:
    """A contact of a customer, or, where `contact_id` is None, all of the customer."""

    customer_id: CustomerId
    contact_id: int | None
    hashes: KeyedHashes
    audit_hash: str | None = None
    """What stands for the contact in the audit log."""
    deletions: tuple[Deletion, ...] = ()
    devices: frozenset[bytes] = frozenset()
    """Hashes of the devices that are the contact's now."""
    tokens: frozenset[bytes] = frozenset()
    """Hashes of their tokens."""
    gone: Mapping[bytes, GoneDevice] = field(default_factory=dict)
    """Devices that went with the contact, by hash."""
    gone_tokens: Mapping[bytes, GoneDevice] = field(default_factory=dict)
    """Tokens that those were the last to claim."""
    held: frozenset[tuple[bytes, bytes]] = frozenset()
    """Which of those devices came back, and with which token."""
    applications: frozenset[str] = frozenset()
    texts: tuple[str, ...] = ()
    """To be looked for literally, everywhere."""
    schema_is_there: bool = True
    account_deleted_at: datetime | None = None

    @property
    def contact_hash(self) -> bytes:
        return b"" if self.contact_id is None else self.hashes.contact(self.customer_id, self.contact_id)

    @property
    def pattern(self) -> str:
        """A regular expression, for PostgreSQL and Python alike, of how texts name the subject."""
        if self.contact_id is None:
            number = rf"{self.customer_id}(?![0-9])"
            return rf"(?:customer|tenant)[_ ]?(?:id)?{_BETWEEN}{number}|{schema_name(self.customer_id)}(?![0-9])"
        return (
            rf"contact[_ ]?(?:id|key)?{_BETWEEN}{self.contact_id}(?![0-9])"
            rf"|(?<![0-9]){self.customer_id}#{self.contact_id}(?![0-9])"
        )

    @property
    def customer_pattern(self) -> str:
        """The customer's number: a contact's number alone may be any customer's contact."""
        return rf"(?<![0-9]){self.customer_id}(?![0-9])"

    def is_asked_for_in(self, text: str) -> bool:
        """Whether one of the texts that somebody asked for stands there."""
        return any(form in text for literal in self.texts for form in written_forms(literal))

    def is_named_in(self, text: str) -> bool:
        """Whether a text with no more structure than that names the subject."""
        if self.is_asked_for_in(text):
            return True
        if re.search(self.pattern, text, re.IGNORECASE) is None:
            return False
        return self.contact_id is None or re.search(self.customer_pattern, text) is not None

    def concerns(self, stored: Stored) -> bool:
        """Whether a message is about the subject; once the contact is deleted, whether it must be gone."""
        named = stored.mentions()
        if self.customer_id not in named.customers:
            return False
        if self.contact_id is None:
            return self.account_deleted_at is None or self._is_of_the_account(stored, named, self.account_deleted_at)
        if self.contact_id in named.contacts:
            return True
        if self.deletions:
            return not isinstance(verdict_on(stored, named, self._known(named)), Keep)
        return any(one in self.devices for one in self._devices_of(named).values()) or (
            not named.devices and any(one in self.tokens for one in self._tokens_of(named).values())
        )

    def _is_of_the_account(self, stored: Stored, named: Mentions, deleted_at: datetime) -> bool:
        if is_erased(stored.attributes, stored.payload):
            return False
        gone = GoneAccount(int(deleted_at.timestamp() * 1000))
        return not isinstance(verdict_on(stored, named, Known(accounts={self.customer_id: gone})), Keep)

    def is_device(self, application_code: str, client_id: str) -> bool:
        hashed = self.hashes.device(self.customer_id, application_code, client_id)
        return hashed in self.devices or hashed in self.gone

    def _known(self, named: Mentions) -> Known:
        """Of what the message names, what went with the contact."""
        devices = {name: one for name, hashed in self._devices_of(named).items() if (one := self.gone.get(hashed))}
        tokens = {name: one for name, hashed in self._tokens_of(named).items() if (one := self.gone_tokens.get(hashed))}
        held = {
            (self.customer_id, application, client, token)
            for application, client in named.devices
            for token in named.tokens
            if self._holds(application, client, token)
        }
        customer = self.customer_id
        return Known(
            devices={(customer, *name): one for name, one in devices.items()},
            tokens={(customer, token): one for token, one in tokens.items()},
            held=frozenset(held),
        )

    def _holds(self, application: str, client: str, token: str) -> bool:
        device = self.hashes.device(self.customer_id, application, client)
        return (device, self.hashes.token(self.customer_id, application, token_digest(token))) in self.held

    def _devices_of(self, named: Mentions) -> dict[tuple[str, str], bytes]:
        """The devices that a message names, hashed. Where it does not say in which application, any may be meant."""
        known = self.devices | self.gone.keys()
        found = {}
        for application_code, client_id in named.devices:
            for application in [application_code] if application_code else self.applications:
                hashed = self.hashes.device(self.customer_id, application, client_id)
                if hashed in known:
                    found[application_code, client_id] = hashed
        return found

    def _tokens_of(self, named: Mentions) -> dict[str, bytes]:
        known = self.tokens | self.gone_tokens.keys()
        found = {}
        for token in named.tokens if known else ():
            for application in named.applications or self.applications:
                hashed = self.hashes.token(self.customer_id, application, token_digest(token))
                if hashed in known:
                    found[token] = hashed
        return found


def written_forms(text: str) -> list[str]:
    """A text as it stands, and as JSON may write it."""
    return sorted({text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]})


def account(customer_id: CustomerId, deleted_at: datetime | None, keys: Keys, texts: Sequence[str] = ()) -> Subject:
    """`deleted_at`: None for an account that is not deleted."""
    return Subject(customer_id, None, keys.hashes, texts=tuple(texts), account_deleted_at=deleted_at)


def contact(
    connection: Connection[Any], customer_id: CustomerId, contact_id: int, keys: Keys, texts: Sequence[str] = ()
) -> Subject:
    """What the tenant's tables know of the contact, in the connection's snapshot."""
    queries = {name: in_schema(query, customer_id).encode() for name, query in _QUERIES.items()}
    subject = Subject(
        customer_id,
        contact_id,
        keys.hashes,
        keys.audit.contact_hash(customer_id, contact_id),
        texts=tuple(texts),
        schema_is_there=False,
    )
    there = connection.execute(queries["hashes_are_there"]).fetchone()
    if there is None or there[0] is None:
        return subject
    if not there[0]:
        raise MigrationError(f"customer {customer_id} is behind on migrations: clientmgr tenants migrate {customer_id}")
    wanted = {"contact_hash": subject.contact_hash, "contact_id": contact_id}
    deletions = tuple(
        Deletion(datetime.fromtimestamp(version / 1000, UTC), recorded_at)
        for version, recorded_at in connection.execute(queries["deletions"], wanted)
    )
    devices = connection.execute(queries["devices"], wanted).fetchall()
    deleted = connection.execute(queries["deleted_devices"], wanted).fetchall() if deletions else []
    gone = {
        device_hash: GoneDevice(version, int(recorded_at.timestamp() * 1000), exists=exists)
        for device_hash, version, recorded_at, exists, _ in deleted
    }
    claimed = connection.execute(queries["tokens"], {"devices": list(gone)})
    secrets = {secret for _, _, *both in devices for secret in both if secret}
    return replace(
        subject,
        deletions=deletions,
        devices=frozenset(device_hash for device_hash, *_ in devices),
        tokens=frozenset(token_hash for _, token_hash, *_ in devices if token_hash),
        gone=gone,
        gone_tokens={token_hash: gone[device_hash] for token_hash, device_hash in claimed},
        held=frozenset((device_hash, token_hash) for device_hash, _, _, _, token_hash in deleted if token_hash),
        applications=frozenset(application_codes(connection, customer_id)),
        texts=(*texts, *sorted(secrets)),
        schema_is_there=True,
    )
