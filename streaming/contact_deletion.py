"""The contact-deletion worker: a deleted contact's devices go, and a tombstone keeps late events from undoing it.

Each deletion is audited in the same transaction, with the contact as a keyed hash and the number of devices that went.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection

from clientmgr.audit.log import AuditEntry, AuditLogger, Detail
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import DONE, Batch, ConsumerOptions, Outcome, ReceivedMessage
from clientmgr.contracts import daemons, topics
from clientmgr.contracts.decoding import (
    InvalidMessageError,
)
from clientmgr.contracts.deletions import CONTACT_DELETED, ContactDeletion, decode_deletion
from clientmgr.contracts.publishers import PUBLISHER_ATTRIBUTE
from clientmgr.devices.store import DeviceStore
from streaming.runtime.daemon import Daemon, Services
from streaming.runtime.failures import error_attributes, pass_on
from streaming.runtime.retrying import settle_failures
from streaming.runtime.tenant_batches import TenantBatches, Work

ACTOR = "contact-deletion"

Published = tuple[ContactDeletion, str]
"""A deletion, and who published it; empty: our own nightly job, or somebody whom nobody asked."""


class ContactDeletionWorker:
    """Handles batches of `client-manager.contact-deletion`. Deleting twice is fine."""

    def __init__(self, services: Services) -> None:
        self._audit = AuditLogger.from_settings(services.settings)
        self._store = DeviceStore.from_settings(services.settings)
        self._most_attempts = services.settings.broker_max_attempts
        self._tenants = TenantBatches(services, self._delete)

    async def __call__(self, batch: Batch) -> Sequence[Outcome]:
        outcomes: list[Outcome] = [DONE] * len(batch.messages)
        work = []
        for position, message in enumerate(batch.messages):
            try:
                customer_id, deletion = decode_deletion(message.data)
            except InvalidMessageError as error:
                outcomes[position] = give_up(batch, message, error)
            else:
                work.append(Work(position, customer_id, (deletion, message.attributes.get(PUBLISHER_ATTRIBUTE, ""))))
        failures = await self._tenants.run(batch, work)
        settle_failures(batch, outcomes, failures, most_attempts=self._most_attempts, give_up=give_up)
        return outcomes

    async def _delete(
        self, connection: AsyncConnection[Any], deletions: Mapping[CustomerId, Sequence[Published]]
    ) -> None:
        contacts = {customer_id: _moments(of_tenant) for customer_id, of_tenant in deletions.items()}
        deleted = await self._store.delete_contacts(connection, contacts)
        publishers: dict[tuple[CustomerId, int], dict[str, Detail]] = {
            (customer_id, deletion.contact_id): {"published_by": publisher}
            for customer_id, of_tenant in deletions.items()
            for deletion, publisher in of_tenant
            if publisher
        }
        await self._audit.append_async(
            connection,
            [
                AuditEntry(
                    customer_id,
                    ACTOR,
                    CONTACT_DELETED,
                    "deleted",
                    contact_id=contact_id,
                    rows_affected=deleted.get(customer_id, {}).get(contact_id, 0),
                    details=publishers.get((customer_id, contact_id), {}),
                )
                for customer_id, of_tenant in contacts.items()
                for contact_id in of_tenant
            ],
        )


def _moments(deletions: Sequence[Published]) -> dict[int, set[int]]:
    """Contact → when it was deleted. Which devices go depends on the moment, so each of them counts."""
    contacts: dict[int, set[int]] = {}
    for deletion, _ in deletions:
        contacts.setdefault(deletion.contact_id, set()).add(deletion.deleted_at)
    return contacts


def give_up(batch: Batch, message: ReceivedMessage, error: Exception) -> Outcome:
    return pass_on(batch, message, topics.CONTACT_DELETION_ERRORS, error_attributes(error), error)


def options(settings: Settings) -> ConsumerOptions:
    return ConsumerOptions(
        batch_size=settings.contact_deletion_batch_size,
        wait_period_ms=settings.broker_wait_period_ms,
        max_attempts=settings.broker_max_attempts,
    )


DAEMON = Daemon.of(daemons.process("contact-deletion"), ContactDeletionWorker, options)
