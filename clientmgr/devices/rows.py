"""Devices between the tables and us: rows of the queries in `sql/tenant/queries/devices.sql` as states, and back."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from clientmgr.base.arrays import bigint_array, bytea_array, text_array
from clientmgr.contracts.device_fields import INFO_FIELDS, JSON_INFO_FIELDS
from clientmgr.devices.contact_history import Link, Merge
from clientmgr.devices.decide import Tombstone
from clientmgr.devices.fold import Claim
from clientmgr.devices.state import (
    NO_HASH,
    ContactFacet,
    DeviceKey,
    DeviceState,
    Info,
    PushToken,
    TokenFacet,
    provider_of,
)

_FACET_COLUMNS: Final = (
    "contact_id",
    "contact_version",
    "push_token",
    "push_token_kind",
    "push_token_hash",
    "push_token_status",
    "push_token_version",
    "push_token_status_version",
    "web_push",
    "last_seen_version",
    "info_versions",
)
STATE_COLUMNS: Final = (*_FACET_COLUMNS, *INFO_FIELDS)
"""The columns of `devices` that a state is made from. The queries select them in this order, as `:state_columns`."""
DEVICE_ROW: Final = (
    "device_hash",
    "application_code",
    "client_id",
    "deleted_version",
    "contact_deleted_version",
    *STATE_COLUMNS,
)
"""A row of `devices`; one of `claims` begins like this."""
TOMBSTONE: Final = slice(3, 5)
"""Where a row has it; nulls: there is none."""
_PLACES: Final = {name: place for place, name in enumerate(DEVICE_ROW)}
LAST_SEEN: Final = _PLACES["last_seen_version"]
"""Where a row has it; null: there is no such device."""
_facets_of = operator.itemgetter(*(_PLACES[name] for name in _FACET_COLUMNS))
_INFO_VERSIONS = msgspec.json.Decoder(dict[str, int])


def state_of(row: Sequence[Any]) -> DeviceState:
    """A row of `devices` as a state."""
    (
        contact_id,
        contact_version,
        push_token,
        kind,
        token_hash,
        status,
        version,
        status_version,
        web_push,
        last_seen,
        info_versions,
    ) = _facets_of(row)
    token = None if kind is None else PushToken(kind, push_token, _undecoded(web_push))
    versions = _INFO_VERSIONS.decode(info_versions)
    info = {name: Info(set_at, row[_PLACES[name]]) for name, set_at in versions.items()}
    for name in JSON_INFO_FIELDS:
        if (known := info.get(name)) is not None:
            info[name] = Info(known.version, _undecoded(known.value))
    return DeviceState(
        info,
        TokenFacet(version, NO_HASH if token_hash is None else bytes(token_hash), token, status, status_version),
        ContactFacet(contact_version, contact_id),
        last_seen,
    )


def _undecoded(text: str | None) -> msgspec.Raw | None:
    """JSON that goes back as it came: hardly anybody looks into it."""
    return None if text is None else msgspec.Raw(text)


def row_of(device: bytes, key: DeviceKey, state: DeviceState) -> dict[str, Any]:
    """A state as the JSON that `upsert_devices` reads; what is absent is null there."""
    token = state.token
    row: dict[str, Any] = {
        "device_hash": f"\\x{device.hex()}",
        "application_code": key.application_code,
        "client_id": key.client_id,
        "contact_id": state.contact.contact_id,
        "contact_version": state.contact.version,
        "push_token_hash": None if token.hash == NO_HASH else f"\\x{token.hash.hex()}",
        "push_token_status": token.status,
        "push_token_version": token.version,
        "push_token_status_version": token.status_version,
        "last_seen_version": state.last_seen,
        "info_versions": {name: info.version for name, info in state.info.items()},
        "provider": provider_of(state),
    }
    if token.token is not None:
        row |= {
            "push_token": token.token.token,
            "push_token_kind": token.token.kind,
            "web_push": token.token.web_push,
        }
    for name, info in state.info.items():
        row[name] = info.value
    return row


def named_columns(devices: Sequence[bytes], names: Mapping[bytes, DeviceKey]) -> dict[str, str]:
    keys = [names[device] for device in devices]
    return {
        "devices": bytea_array(devices),
        "application_codes": text_array(key.application_code for key in keys),
        "client_ids": text_array(key.client_id for key in keys),
    }


def tombstone_columns(tombstones: Mapping[bytes, Tombstone]) -> dict[str, str]:
    return {
        "devices": bytea_array(tombstones),
        "versions": bigint_array(tombstone.own for tombstone in tombstones.values()),
        "contact_versions": bigint_array(tombstone.by_contact for tombstone in tombstones.values()),
    }


def claim_columns(claims: Mapping[bytes, Claim]) -> dict[str, str]:
    return {
        "tokens": bytea_array(claims),
        "devices": bytea_array(claim.device for claim in claims.values()),
        "versions": bigint_array(claim.version for claim in claims.values()),
    }


def link_columns(links: Mapping[bytes, Iterable[Link]]) -> dict[str, str]:
    flat = [(device, link) for device, of_device in links.items() for link in of_device]
    return {
        "devices": bytea_array(device for device, _ in flat),
        "versions": bigint_array(link.version for _, link in flat),
        "contacts": bytea_array(link.contact for _, link in flat),
        "contact_ids": bigint_array(link.contact_id for _, link in flat),
    }


def merge_columns(merges: Mapping[bytes, Iterable[Merge]]) -> dict[str, str]:
    flat = [(contact, merge) for contact, of_contact in merges.items() for merge in of_contact]
    return {
        "contacts": bytea_array(contact for contact, _ in flat),
        "versions": bigint_array(merge.version for _, merge in flat),
        "into": bytea_array(merge.into for _, merge in flat),
        "into_contact_ids": bigint_array(merge.into_contact_id for _, merge in flat),
    }
