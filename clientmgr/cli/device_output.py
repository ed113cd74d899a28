"""How a device is shown: a row of a list, a JSON object with everything, or parts and sentences for people."""

from typing import Any

from clientmgr.base.customer_ids import CustomerId
from clientmgr.cli.output import console, show_rows
from clientmgr.contracts.device_fields import FIELDS, INFO_FIELDS
from clientmgr.devices.explanation import explain, time_of
from clientmgr.devices.lookup import StoredDevice
from clientmgr.devices.traces import KnownDevice


def as_row(device: StoredDevice) -> dict[str, Any]:
    """A device for a list: what is set, without the bookkeeping of when."""
    values = {field.name: getattr(device, field.name) for field in FIELDS if field.exported}
    if device.push_token is None and device.web_push is not None:
        values["push_token"] = device.web_push["endpoint"]
    return values


def as_object(customer_id: CustomerId, known: KnownDevice, *, reveal: bool) -> dict[str, Any]:
    head = {
        "customer_id": customer_id,
        "application_code": known.application_code,
        "client_id": known.client_id,
        "exists": known.device is not None,
        "deleted_at": time_of(known.deleted_version),
        "contact_links": [
            {
                "contact_id": link.contact_id,
                "linked_at": time_of(link.linked_version),
                "contact_deleted_at": time_of(link.contact_deleted_version),
            }
            for link in known.links
        ],
        "notes": explain(known),
    }
    if known.device is None:
        return head
    device = known.device if reveal else known.device.masked()
    claim = known.claim
    return {
        **head,
        "provider": device.provider,
        "last_seen_at": device.last_seen_at,
        "created_at": device.created_at,
        "updated_at": device.updated_at,
        "info": {
            name: {"value": getattr(device, name), "set_at": time_of(device.info_versions.get(name))}
            for name in INFO_FIELDS
        },
        "push_token": {
            "status": device.push_token_status,
            "status_at": time_of(device.push_token_status_version),
            "kind": device.push_token_kind,
            "token": device.push_token,
            "web_push": device.web_push,
            "set_at": time_of(device.push_token_version),
            "claimed_by": None if claim is None else claim.client_id,
            "claimed_at": None if claim is None else time_of(claim.version),
        },
        "contact": {
            "contact_id": device.contact_id,
            "set_at": time_of(device.contact_version),
            "orphaned_since": device.orphaned_since,
        },
    }


def show_device(customer_id: CustomerId, known: KnownDevice, *, reveal: bool) -> None:
    title = f"customer {customer_id}, application {known.application_code}, client {known.client_id}"
    console.print(title, style="bold", markup=False, highlight=False)
    if known.device is not None:
        device = known.device if reveal else known.device.masked()
        show_rows(_parts(device), ["part", "value", "set_at"], as_json=False, empty="", wrapped={"value"})
    for link in known.links:
        contact = "a deleted contact" if link.contact_id is None else f"contact {link.contact_id}"
        linked = f"linked to {contact} at {time_of(link.linked_version):%Y-%m-%d %H:%M:%S} UTC"
        console.print(linked, highlight=False)
    for note in explain(known):
        console.print(f"· {note}", markup=False, highlight=False)


def _parts(device: StoredDevice) -> list[dict[str, Any]]:
    """What is known, a line each: nothing that was never set."""
    rows = [
        {"part": name, "value": getattr(device, name), "set_at": time_of(device.info_versions[name])}
        for name in INFO_FIELDS
        if name in device.info_versions
    ]
    contact = {"part": "contact", "value": device.contact_id, "set_at": time_of(device.contact_version)}
    token = device.push_token if device.web_push is None else device.web_push
    rows += [
        contact,
        {"part": "push_token", "value": token, "set_at": time_of(device.push_token_version)},
        {
            "part": "push_token_status",
            "value": device.push_token_status,
            "set_at": time_of(device.push_token_status_version or device.push_token_version),
        },
        {"part": "push_token_kind", "value": device.push_token_kind, "set_at": None},
        {"part": "provider", "value": device.provider, "set_at": None},
        {"part": "last_seen", "value": None, "set_at": device.last_seen_at},
        {"part": "orphaned", "value": None, "set_at": device.orphaned_since},
        {"part": "row created", "value": None, "set_at": device.created_at},
        {"part": "row updated", "value": None, "set_at": device.updated_at},
    ]
    return [
        {**row, "part": str(row["part"]).replace("_", " ")}
        for row in rows
        if row["value"] is not None or row["set_at"] is not None
    ]
