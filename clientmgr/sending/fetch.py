"""Where a contact's devices come from: PostgreSQL, DynamoDB, or one after the other, as flippers and settings say."""

import enum
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace
from psycopg import AsyncConnection

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.base.settings import Settings
from clientmgr.devices.contact_devices import DevicesByContact
from clientmgr.devices.legacy.manager import DeviceManager
from clientmgr.devices.repository import DeviceRepository
from clientmgr.sending.metrics import CONTACTS, FETCH_SECONDS
from clientmgr.tenants.flippers import Flipper, Flippers


class Strategy(enum.StrEnum):
    POSTGRES_THEN_DYNAMODB = "postgres-then-dynamodb"
    """PostgreSQL in bulk; DynamoDB for the contacts that have no device there."""
    DYNAMODB = "dynamodb"
    """DynamoDB alone, a query for each contact."""
    POSTGRES = "postgres"
    """PostgreSQL alone."""


def choose_strategy(flippers: Flippers, customer_id: CustomerId, settings: Settings) -> Strategy:
    if not flippers.legacy_store_is_read(customer_id, fallback_enabled=settings.mapper_reads_legacy_store):
        return Strategy.POSTGRES
    if flippers.is_on(Flipper.USE_POSTGRES_DEVICE_MAPPER, customer_id):
        return Strategy.POSTGRES_THEN_DYNAMODB
    return Strategy.DYNAMODB


@dataclass(frozen=True, slots=True)
class Fetched:
    """Devices by contact, and which contacts' come from DynamoDB."""

    devices: DevicesByContact
    from_dynamodb: frozenset[int] = frozenset()
    failure: Exception | None = None
    """Why DynamoDB did not answer, or not all. What was found is good all the same."""
    unanswered: frozenset[int] = frozenset()
    """The contacts that it was asked for then."""


class DeviceFetcher:
    """Finds the devices of contacts in an application, and counts which store had them.

    The legacy store may lack what events have changed since. So contacts that were deleted are not looked up there. And
    where PostgreSQL is asked first, a device there does not count if events reported to PostgreSQL whose it is: it has
    been deleted or unlinked, or is another contact's by now. If they did not, the legacy store says whose it is, and
    every field that they did report is PostgreSQL's.
    """

    def __init__(self, manager: DeviceManager, hashes: KeyedHashes) -> None:
        self._repository = DeviceRepository(hashes)
        self._manager = manager

    async def fetch(
        self,
        connection: AsyncConnection[Any],
        customer_id: CustomerId,
        application_code: str,
        contact_ids: Collection[int],
        strategy: Strategy,
        *,
        fields: frozenset[str] | None = None,
    ) -> Fetched:
        """`fields`: what PostgreSQL is asked for besides addresses. None: everything. DynamoDB has no such choice."""
        found: DevicesByContact = {}
        missing = contact_ids
        if strategy is not Strategy.DYNAMODB:
            started = time.monotonic()
            found = await self._repository.find_by_contact_keys(
                connection, customer_id, application_code, contact_ids, fields=fields
            )
            FETCH_SECONDS.labels("postgres").observe(time.monotonic() - started)
            missing = [contact_id for contact_id in contact_ids if contact_id not in found]
        CONTACTS.labels(strategy, "postgres").inc(len(contact_ids) - len(missing))
        if strategy is Strategy.POSTGRES or not missing:
            CONTACTS.labels(strategy, "none").inc(len(missing))
            return Fetched(found)
        deleted = await self._repository.find_deleted_contacts(connection, customer_id, missing)
        asked = [contact_id for contact_id in missing if contact_id not in deleted]
        waited_s = await self._repository.transaction_age_s(connection)
        started = time.monotonic()
        answers = await self._manager.ask(customer_id, application_code, asked, waited_s=waited_s)
        if answers.failure is None:
            FETCH_SECONDS.labels("dynamodb").observe(time.monotonic() - started)
        legacy = answers.devices
        if strategy is Strategy.POSTGRES_THEN_DYNAMODB:
            legacy = await self._as_reported_here(connection, customer_id, application_code, legacy)
        legacy = await self._as_judged(connection, customer_id, application_code, legacy)
        CONTACTS.labels(strategy, "dynamodb").inc(len(legacy))
        CONTACTS.labels(strategy, "none").inc(len(missing) - len(answers.unanswered) - len(legacy))
        return Fetched(found | legacy, frozenset(legacy), answers.failure, answers.unanswered)

    async def _as_judged(
        self,
        connection: AsyncConnection[Any],
        customer_id: CustomerId,
        application_code: str,
        legacy: DevicesByContact,
    ) -> DevicesByContact:
        """The same with what providers said of their tokens since: the legacy store is told of no verdict."""
        tokens = {token for devices in legacy.values() for device in devices if (token := device.token_text)}
        verdicts = await self._repository.find_verdicts(connection, customer_id, application_code, tokens)
        if not verdicts:
            return legacy
        return {
            contact_id: [
                replace(device, push_token_status=verdicts.get(device.token_text or "", device.push_token_status))
                for device in devices
            ]
            for contact_id, devices in legacy.items()
        }

    async def _as_reported_here(
        self,
        connection: AsyncConnection[Any],
        customer_id: CustomerId,
        application_code: str,
        legacy: DevicesByContact,
    ) -> DevicesByContact:
        """The legacy store's devices without those that PostgreSQL knows better, and the others as it knows them."""
        client_ids = [device.client_id for devices in legacy.values() for device in devices]
        reported = await self._repository.find_reported(connection, customer_id, application_code, client_ids)
        if not reported:
            return legacy
        left = {
            contact_id: [
                replace(device, **reported[device.client_id].fields) if device.client_id in reported else device
                for device in devices
                if device.client_id not in reported or not reported[device.client_id].knows_contact
            ]
            for contact_id, devices in legacy.items()
        }
        return {contact_id: devices for contact_id, devices in left.items() if devices}
