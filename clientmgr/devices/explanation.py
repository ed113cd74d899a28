"""Says in sentences why a device is as it is: deleted, superseded, unlinked. Pure."""

from datetime import UTC, datetime

from clientmgr.devices.lookup import StoredDevice
from clientmgr.devices.traces import KnownDevice, Link, TokenClaim


def time_of(version: int | None) -> datetime | None:
    """A version as the time it stands for; 0 and None: never."""
    return datetime.fromtimestamp(version / 1000, UTC) if version else None


def explain(known: KnownDevice) -> list[str]:
    """Why the device is as it is, in sentences."""
    notes = []
    deleted_at = _moment(known.deleted_version)
    device = known.device
    if device is None:
        notes.append(
            f"deleted{_by(known)}: events up to {deleted_at} change nothing, a later one would bring it back"
            if known.deleted_version
            else "never there: all that is known is the contact it was linked to"
        )
    elif known.deleted_version:
        notes.append(f"it was deleted at {deleted_at}{_by(known)}; what is known of it came later")
    notes += [_explain_link(link) for link in known.links if link.contact_deleted_version]
    if device is not None:
        notes += [_explain_token(device, known.claim), _explain_contact(device)]
    return [note for note in notes if note]


def _by(known: KnownDevice) -> str:
    tombstone = known.tombstone
    is_contacts = tombstone is not None and tombstone.contact_version > tombstone.own_version
    return " with the contact that it belonged to" if is_contacts else ""


def _explain_link(link: Link) -> str:
    return (
        f"a contact to which it was linked at {_moment(link.linked_version)} was deleted at "
        f"{_moment(link.contact_deleted_version)}: if the device was still that contact's then, what was known of it "
        "until then is gone"
    )


def _explain_token(device: StoredDevice, claim: TokenClaim | None) -> str:
    match device.push_token_status:
        case "superseded" if claim is not None and claim.client_id is not None and not claim.is_its_own:
            return (
                f"superseded: client {claim.client_id} claimed its push token at {_moment(claim.version)}; "
                "it has none until it sets another"
            )
        case "superseded":
            return "superseded: another device claimed its push token; it has none until it sets another"
        case "invalid":
            return f"the provider called its push token invalid at {_moment(device.push_token_status_version)}"
        case "none" if device.push_token_version:
            return f"its push token was cleared at {_moment(device.push_token_version)}"
        case "none":
            return "it has not set a push token"
        case _:
            return ""


def _explain_contact(device: StoredDevice) -> str:
    if device.contact_id is not None:
        return ""
    if device.contact_version:
        return f"it was unlinked from its contact at {_moment(device.contact_version)}"
    return "it is linked to no contact"


def _moment(version: int | None) -> str:
    time = time_of(version)
    return "?" if time is None else time.strftime("%Y-%m-%d %H:%M:%S UTC")
