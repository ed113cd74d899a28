"""Who has seen a device's secrets, as the audit log tells it, wherever they were shown."""

import hashlib

from clientmgr.audit.log import AuditEntry
from clientmgr.base.customer_ids import CustomerId
from clientmgr.devices.lookup import StoredDevice


def revealed(customer_id: CustomerId, device: StoredDevice, *, actor: str, command: str) -> AuditEntry:
    """To be written before anything is shown. The device stands there as a digest, as contacts do."""
    digest = hashlib.sha256(f"{device.application_code}/{device.client_id}".encode()).hexdigest()
    details = {"command": command, "device": digest}
    return AuditEntry(
        customer_id, actor, "device.reveal", "revealed", device.contact_id, rows_affected=1, details=details
    )
