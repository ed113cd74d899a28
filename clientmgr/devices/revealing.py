"""Who has seen a device's secrets, as the audit log tells it, wherever they were shown."""

from clientmgr.audit.log import AuditEntry
from clientmgr.base.customer_ids import CustomerId
from clientmgr.devices.lookup import StoredDevice


def revealed(customer_id: CustomerId, device: StoredDevice, *, actor: str, command: str) -> AuditEntry:
    """To be written before anything is shown. The device stands there as its keyed hash, as contacts do."""
    details = {"command": command, "device": None if device.device_hash is None else device.device_hash.hex()}
    return AuditEntry(
        customer_id, actor, "device.reveal", "revealed", device.contact_id, rows_affected=1, details=details
    )
