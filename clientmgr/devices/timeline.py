"""A device's story, the newest first: what its tables keep, joined with what the log still has. Pure.

An entry says where it comes from. Tables keep the newest time of each part, all links, the newest verdict and deletion;
what is older is known only while its message is in the log.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from clientmgr.contracts.device_fields import INFO_FIELDS
from clientmgr.devices.explanation import time_of
from clientmgr.devices.log_traces import LoggedTrace
from clientmgr.devices.lookup import StoredDevice
from clientmgr.devices.traces import KnownDevice

_KIND_OF: Final = {
    "registered": "set",
    "updated": "set",
    "pushTokenSet": "token",
    "pushTokenCleared": "token",
    "contactLinked": "linked",
    "contactUnlinked": "linked",
    "deleted": "deleted",
    "verdict": "verdict",
}
"""Which entries of the tables an event may be the cause of."""
_SHOWN: Final = {
    "registered": "registered",
    "updated": "updated",
    "pushTokenSet": "push token set",
    "pushTokenCleared": "push token cleared",
    "contactLinked": "linked to a contact",
    "contactUnlinked": "unlinked from its contact",
    "deleted": "deleted",
    "verdict": "verdict on its push token",
    "sent": "sent",
    "not sent": "not sent",
    "failed": "an event failed",
}


class TimelineEntry(Struct, frozen=True, rename="camel"):
    """Something that happened to a device."""

    at: datetime
    """When it happened, by whoever reported it."""
    what: str
    detail: str
    source: str
    """Where this is known from."""
    kind: str
    contact_id: int | None = None
    event_id: str = ""
    """Of the message; empty: no message about it is in the log any more."""
    topic: str = ""
    offset: int | None = None
    published_at: datetime | None = None


def timeline(known: KnownDevice, logged: Sequence[LoggedTrace]) -> list[TimelineEntry]:
    """The newest first."""
    kept = list(_kept(known))
    places = {(entry.kind, _millis(entry.at)): place for place, entry in reversed(list(enumerate(kept)))}
    alone = []
    for one in logged:
        place = places.get((_KIND_OF.get(one.what, ""), one.occurred_ms or 0))
        if place is None or kept[place].event_id:
            alone.append(_of_log(one))
        else:
            kept[place] = replace(
                kept[place],
                what=_SHOWN[one.what],
                event_id=one.id,
                topic=one.topic,
                offset=one.offset,
                published_at=one.published_at,
            )
    return sorted([*kept, *alone], key=lambda entry: entry.at, reverse=True)


def _kept(known: KnownDevice) -> Iterator[TimelineEntry]:
    device = known.device
    if device is not None:
        yield from _parts(device)
    for link in known.links:
        whom = "a contact that is deleted" if link.contact_id is None else f"contact {link.contact_id}"
        for entry in _entry(link.linked_version, "linked to a contact", whom, "links", "linked"):
            yield replace(entry, contact_id=link.contact_id)
        if link.contact_deleted_version:
            yield from _entry(
                link.contact_deleted_version,
                "a contact of its was deleted",
                f"the one linked at {time_of(link.linked_version):%Y-%m-%d %H:%M:%S} UTC",
                "contact's tombstone",
                "contact deleted",
            )
    for version in known.unlinked_versions:
        yield from _entry(version, "unlinked from its contact", "", "links", "linked")
    claim = known.claim
    if claim is not None and not claim.is_its_own:
        who = "a device that is deleted" if claim.client_id is None else f"client {claim.client_id}"
        yield from _entry(claim.version, "its push token was claimed", f"by {who}", "claims", "claimed")
    stone = known.tombstone
    if stone is not None:
        noted = f"carried out {stone.recorded_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        by_itself = f"by its own event, or as an orphan; {noted}"
        yield from _entry(stone.own_version, "deleted", by_itself, "tombstone", "deleted")
        yield from _entry(
            stone.contact_version, "deleted with its contact", noted, "tombstone", "deleted with its contact"
        )


def _parts(device: StoredDevice) -> Iterator[TimelineEntry]:
    by_version: dict[int, list[str]] = {}
    for name in INFO_FIELDS:
        if name in device.info_versions:
            by_version.setdefault(device.info_versions[name], []).append(name.replace("_", " "))
    for version, names in by_version.items():
        yield from _entry(version, "set", ", ".join(names), "device", "set")
    has_token = device.push_token_status in ("valid", "invalid", "superseded")
    last = "push token set" if has_token else "push token cleared"
    yield from _entry(device.push_token_version, last, device.push_token_kind or "", "device", "token")
    if device.push_token_status_version > device.push_token_version:
        said = f"the provider called it {device.push_token_status}"
        yield from _entry(device.push_token_status_version, "verdict on its push token", said, "device", "verdict")
    if device.orphaned_since is not None:
        yield TimelineEntry(device.orphaned_since, "became an orphan", "without a contact since", "device", "orphaned")
    yield TimelineEntry(device.created_at, "first written here", "by our clock", "device", "stored")


def _entry(version: int, what: str, detail: str, source: str, kind: str) -> Iterable[TimelineEntry]:
    """None for version 0: it never happened."""
    at = time_of(version)
    return [] if at is None else [TimelineEntry(at, what, detail, source, kind)]


def _of_log(one: LoggedTrace) -> TimelineEntry:
    return TimelineEntry(
        time_of(one.occurred_ms) or one.published_at,
        _SHOWN.get(one.what, one.what),
        one.detail,
        "log",
        _KIND_OF.get(one.what, one.what),
        None,
        one.id,
        one.topic,
        one.offset,
        one.published_at,
    )


def _millis(at: datetime) -> int:
    return round(at.timestamp() * 1000)
