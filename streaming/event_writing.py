"""What writer and republisher share: the events of a batch, decoded and written, and what failed of them."""

from collections.abc import Sequence

from clientmgr.broker.interface import Batch
from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.contracts.device_events import decode_event
from clientmgr.devices.store import DeviceStore
from streaming.runtime.daemon import Services
from streaming.runtime.tenant_batches import Failures, TenantBatches, Work


class EventWriting:
    """Writes events to their tenants' tables; one bad message costs only itself."""

    def __init__(self, services: Services) -> None:
        self._tenants = TenantBatches(
            services.tenants,
            DeviceStore.from_settings(services.settings).apply_events,
            lock_timeout_ms=services.settings.writer_lock_timeout_ms,
        )

    async def write(self, batch: Batch, positions: Sequence[int]) -> Failures:
        """Write the messages at these places of the batch; returns why some of them could not be."""
        failures: Failures = {}
        work = []
        for position in positions:
            try:
                decoded = decode_event(batch.messages[position].data)
            except InvalidMessageError as error:
                failures[position] = error
            else:
                work.append(Work(position, decoded.customer_id, decoded))
        return failures | await self._tenants.run(batch.connection, work)
