"""Looks up which of the contacts, devices and tokens that some messages name are deleted.

Tenants' tables know deleted ones by hash alone. So what a message names is hashed, and the hashes are looked up.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg import Connection
from psycopg.rows import tuple_row

from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.base.portions import portions
from clientmgr.base.sqlfiles import named_queries
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.devices.lookup import application_codes
from clientmgr.erasure.recognition import Mentions
from clientmgr.erasure.rule import GoneAccount, GoneContact, GoneDevice, Known

QUERIES = named_queries("erasure/queries/deleted.sql")

TENANTS_A_CONNECTION: Final = 500
"""The server's process remembers every table that it has read, and grows."""
GONE_MEANWHILE: Final = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)


@dataclass(frozen=True)
class Standing:
    """Who has deletions, when a sweep begins."""

    accounts: Mapping[CustomerId, GoneAccount]
    tenants: frozenset[CustomerId]
    """With any deletion."""
    changed: frozenset[CustomerId]
    """Tenants and accounts with a deletion since the last sweep."""

    @property
    def interesting(self) -> frozenset[CustomerId]:
        return self.tenants.union(self.accounts)


def standing(connect: Callable[[], Connection[Any]], since: datetime) -> Standing:
    """`since`: from when on a deletion is new to the sweep."""
    accounts: dict[CustomerId, GoneAccount] = {}
    tenants: set[CustomerId] = set()
    changed: set[CustomerId] = set()
    with connect() as connection:
        for customer, deleted_at, back_at in _rows(connection, QUERIES["accounts"]):
            accounts[customer] = GoneAccount(_millis(deleted_at), None if back_at is None else _millis(back_at))
            changed |= {customer} if deleted_at > since else set()
        existing = tenants_with_hashes(connection)
    for portion in portions(existing, TENANTS_A_CONNECTION):
        with connect() as connection:
            for customer in portion:
                any_deletion, any_new = _deletions_of(connection, customer, since)
                tenants |= {customer} if any_deletion else set()
                changed |= {customer} if any_new else set()
    return Standing(accounts, frozenset(tenants), frozenset(changed))


def tenants_with_hashes(connection: Connection[Any]) -> list[CustomerId]:
    """The tenants whose tables know deletions by hash: all, once `tenants migrate` has been at them."""
    return [customer for (customer,) in _rows(connection, QUERIES["tenants"])]


def _deletions_of(connection: Connection[Any], customer: CustomerId, since: datetime) -> tuple[bool, bool]:
    try:
        ((any_deletion, any_new),) = _rows(connection, in_schema(QUERIES["standing"], customer), since=since)
    except GONE_MEANWHILE:
        return False, False  # its account is being deleted
    return any_deletion, any_new


@dataclass(frozen=True)
class Lookup:
    """Answers for one sweep."""

    hashes: KeyedHashes
    standing: Standing
    _applications: dict[CustomerId, set[str]] = field(default_factory=dict)

    def known(self, connection: Connection[Any], found: Sequence[Mentions]) -> Known:
        """What is deleted of all that these messages name."""
        by_tenant: defaultdict[CustomerId, list[Mentions]] = defaultdict(list)
        for mentions in found:
            for customer in mentions.customers & self.standing.tenants:
                by_tenant[customer].append(mentions)
        contacts: dict[tuple[CustomerId, int], GoneContact] = {}
        devices: dict[tuple[CustomerId, str, str], GoneDevice] = {}
        held: set[tuple[CustomerId, str, str, str]] = set()
        tokens: dict[tuple[CustomerId, str], GoneDevice] = {}
        for customer, named in by_tenant.items():
            try:
                contacts |= self._contacts(connection, customer, named)
                gone, holding = self._devices(connection, customer, named)
                tokens |= self._tokens(connection, customer, named)
            except GONE_MEANWHILE:
                continue  # its account is being deleted, and then all of its messages go
            devices |= gone
            held |= holding
        return Known(self.standing.accounts, contacts, devices, frozenset(held), tokens)

    def gone_devices(
        self, connection: Connection[Any], customer: CustomerId, devices: Iterable[tuple[str, str]]
    ) -> dict[tuple[str, str], GoneDevice]:
        """Which of these devices, by application code and client id, are or were deleted."""
        found = self.known(connection, [Mentions(frozenset({customer}), devices=frozenset(devices))])
        return {(application, client): gone for (_, application, client), gone in found.devices.items()}

    def _contacts(
        self, connection: Connection[Any], customer: CustomerId, named: Iterable[Mentions]
    ) -> dict[tuple[CustomerId, int], GoneContact]:
        by_hash = {self.hashes.contact(customer, contact): contact for one in named for contact in one.contacts}
        rows = _by_hash(connection, "contacts", customer, by_hash)
        return {(customer, by_hash[contact]): GoneContact(version, contact) for contact, version in rows}

    def _devices(
        self, connection: Connection[Any], customer: CustomerId, named: Sequence[Mentions]
    ) -> tuple[dict[tuple[CustomerId, str, str], GoneDevice], set[tuple[CustomerId, str, str, str]]]:
        wanted: defaultdict[bytes, set[tuple[str, str]]] = defaultdict(set)
        for one in named:
            for device in one.devices:
                for application in self._candidates(connection, customer, device[0], one):
                    wanted[self._device(customer, application, device[1])].add(device)
        gone: dict[tuple[CustomerId, str, str], GoneDevice] = {}
        token_hashes: dict[tuple[str, str], bytes | None] = {}
        for device_hash, version, recorded_at, exists, token_hash in _by_hash(connection, "devices", customer, wanted):
            for application, client in wanted[device_hash]:
                gone[customer, application, client] = GoneDevice(version, _millis(recorded_at), exists)
                token_hashes[application, client] = token_hash
        held = {
            (customer, *device, token)
            for one in named
            if one.is_verdict
            for device in one.devices
            for token in one.tokens
            if token_hashes.get(device) == self._token(customer, device[0], token)
        }
        return gone, held

    def _tokens(
        self, connection: Connection[Any], customer: CustomerId, named: Sequence[Mentions]
    ) -> dict[tuple[CustomerId, str], GoneDevice]:
        """Only of messages that name no device."""
        wanted = {
            self._token(customer, application, token): token
            for one in named
            if not one.devices
            for token in one.tokens
            for application in one.applications or self._known_applications(connection, customer)
        }
        rows = _by_hash(connection, "tokens", customer, wanted)
        return {
            (customer, wanted[token_hash]): GoneDevice(version, _millis(recorded_at), exists)
            for token_hash, version, recorded_at, exists in rows
        }

    def _candidates(
        self, connection: Connection[Any], customer: CustomerId, application: str, named: Mentions
    ) -> Iterable[str]:
        """The applications that a device may be of. Those that messages name are remembered: devices may be gone."""
        if application:
            self._known_applications(connection, customer).add(application)
            return (application,)
        return named.applications or tuple(self._known_applications(connection, customer))

    def _known_applications(self, connection: Connection[Any], customer: CustomerId) -> set[str]:
        if customer not in self._applications:
            self._applications[customer] = application_codes(connection, customer)
        return self._applications[customer]

    def _device(self, customer: CustomerId, application: str, client: str) -> bytes:
        return self.hashes.device(customer, _encodable(application), _encodable(client))

    def _token(self, customer: CustomerId, application: str, token: str) -> bytes:
        return self.hashes.token(customer, _encodable(application), token_digest(_encodable(token)))


def _by_hash(
    connection: Connection[Any], query: str, customer: CustomerId, wanted: Mapping[bytes, Any]
) -> list[tuple[Any, ...]]:
    if not wanted:
        return []
    return _rows(connection, in_schema(QUERIES[query], customer), hashes=list(wanted))


def _rows(connection: Connection[Any], query: str, **parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor(row_factory=tuple_row) as cursor:
        # Not prepared: each tenant's text is another one.
        return cursor.execute(query.encode(), parameters or None, prepare=False).fetchall()


def _encodable(text: str) -> str:
    """Half a pair of surrogates is no character: what has one was never a device's."""
    return text.encode(errors="replace").decode()


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
