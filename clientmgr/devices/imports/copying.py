"""Rows of new devices as lines of COPY: many times as quick as an upsert, where nothing is known yet. Pure.

Columns go straight to lines: a state of each row in between would take as long as all the rest. A line is that of the
state that the row's events would make, and a test holds it to that.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import msgspec

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.contracts.device_events import PushTokenPayload, WebPush
from clientmgr.contracts.device_fields import INFO_FIELDS
from clientmgr.contracts.providers import PROVIDER_OF_KIND
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.devices.contact_history import NO_CONTACT
from clientmgr.devices.imports.row_columns import RowColumns
from clientmgr.devices.imports.rows import EPOCH, token_text

_BEFORE_INFO: Final = (
    "device_hash", "application_code", "client_id", "contact_id", "contact_version", "push_token", "push_token_kind",
    "push_token_hash", "push_token_status", "push_token_version", "push_token_status_version", "web_push",
    "last_seen_version", "info_versions",
)  # fmt: skip
COLUMNS: Final = (*_BEFORE_INFO, *INFO_FIELDS, "provider", "last_seen_at", "orphaned_since")
"""As the query `copy_devices` names them."""
_ESCAPED: Final = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_NULL: Final = r"\N"


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """Rows of one tenant, each with the hashes that it is known by and its lines."""

    devices: list[bytes]
    tokens: list[bytes | None]
    contacts: list[bytes | None]
    device_lines: list[str]
    link_lines: list[str]
    """Empty where a row says nothing of a contact."""
    claim_lines: list[str]
    """Empty where it has no token."""

    @classmethod
    def of(cls, columns: RowColumns, customer_id: CustomerId, hashes: KeyedHashes) -> "CopiedRows":
        devices = hashes.devices(customer_id, columns.application_codes, columns.client_ids)
        tokens = _token_hashes(columns, customer_id, hashes)
        ids = {one: hashes.contact(customer_id, one) for one in set(columns.contact_ids) if one is not None}
        contacts = [None if one is None else ids[one] for one in columns.contact_ids]
        device_cells = _hash_cells(devices)
        token_cells = _hash_cells(tokens)
        versions = list(map(str, columns.versions))
        return cls(
            devices,
            tokens,
            contacts,
            _device_lines(columns, device_cells, token_cells, versions),
            _link_lines(columns, device_cells, _hash_cells(contacts), versions),
            [
                "" if token is _NULL else f"{token}\t{device}\t{version}\n"
                for token, device, version in zip(token_cells, device_cells, versions, strict=True)
            ],
        )

    @property
    def several(self) -> set[bytes]:
        """Devices that more than one row is about, or that want a token that another row's device wants."""
        found: set[bytes] = set()
        if len(set(self.devices)) < len(self.devices):
            found = {device for device, count in Counter(self.devices).items() if count > 1}
        claims = {claim for claim in zip(self.tokens, self.devices, strict=True) if claim[0] is not None}
        wanted = Counter(token for token, _ in claims)
        if len(wanted) < len(claims):
            found |= {device for token, device in claims if wanted[token] > 1}
        return found


def _token_hashes(columns: RowColumns, customer_id: CustomerId, hashes: KeyedHashes) -> list[bytes | None]:
    if not any(columns.tokens):
        return [None] * len(columns)
    digests = [None if token is None else token_digest(token_text(token)) for token in columns.tokens]
    return hashes.tokens(customer_id, columns.application_codes, digests)


def _device_lines(columns: RowColumns, devices: list[str], tokens: list[str], versions: list[str]) -> list[str]:
    payloads, contacts, unlinked = columns.tokens, columns.contact_ids, columns.unlinked_at
    contact_versions = [
        version if contact is not None else str(since or 0)
        for version, contact, since in zip(versions, contacts, unlinked, strict=True)
    ]
    orphaned = [
        None if contact is not None else (since or version)
        for version, contact, since in zip(columns.versions, contacts, unlinked, strict=True)
    ]
    cells: list[Iterable[str]] = [
        devices,
        _escaped(columns.application_codes),
        _escaped(columns.client_ids),
        [_NULL if contact is None else str(contact) for contact in contacts],
        contact_versions,
        _escaped([None if one is None or one.kind == "webpush" else str(one.push_token) for one in payloads]),
        [_NULL if one is None else one.kind for one in payloads],
        tokens,
        ["none" if one is None else "valid" for one in payloads],
        ["0" if one is None else version for one, version in zip(payloads, versions, strict=True)],
        itertools.repeat("0"),
        _escaped([_subscription(one) for one in payloads]),
        versions,
        _info_versions(columns, versions),
        *(_escaped(columns.info[name]) if name in columns.info else itertools.repeat(_NULL) for name in INFO_FIELDS),
        ["none" if one is None else PROVIDER_OF_KIND[one.kind] for one in payloads],
        _moments(columns.versions),
        _moments(orphaned),
    ]
    return [f"{line}\n" for line in map("\t".join, zip(*cells, strict=False))]


def _link_lines(columns: RowColumns, devices: list[str], contacts: list[str], versions: list[str]) -> list[str]:
    nobody = rf"\\x{NO_CONTACT.hex()}"
    lines = []
    for device, contact, version, contact_id, since in zip(
        devices, contacts, versions, columns.contact_ids, columns.unlinked_at, strict=True
    ):
        if contact_id is not None:
            lines.append(f"{device}\t{version}\t{contact}\t{contact_id}\n")
        else:
            lines.append("" if since is None else f"{device}\t{since}\t{nobody}\t{_NULL}\n")
    return lines


def _info_versions(columns: RowColumns, versions: list[str]) -> list[str]:
    """JSON of the fields that a row has, all with the row's version."""
    names = list(columns.info)
    if not names:
        return ["{}"] * len(versions)
    known: dict[tuple[bool, ...], str] = {}
    made = []
    for there, version in zip(
        zip(*[[cell is not None for cell in cells] for cells in columns.info.values()], strict=True),
        versions,
        strict=True,
    ):
        if (form := known.get(there)) is None:
            form = known[there] = "{" + ",".join(f'"{name}":?' for name in itertools.compress(names, there)) + "}"
        made.append(form.replace("?", version))
    return made


def _moments(milliseconds: Sequence[int | None]) -> list[str]:
    """In ISO 8601. Neighbours have their second in common, and what is before the point is made once for it."""
    seconds: dict[int, str] = {}
    made = []
    for moment in milliseconds:
        if moment is None:
            made.append(_NULL)
            continue
        second, rest = divmod(moment, 1000)
        if (text := seconds.get(second)) is None:
            text = seconds[second] = (EPOCH + timedelta(seconds=second)).isoformat()[:19]
        made.append(f"{text}.{rest:03d}+00")
    return made


def _escaped(cells: Sequence[str | None]) -> list[str]:
    """Hardly any has something to escape: they are looked through once, as a whole."""
    whole = "".join([cell for cell in cells if cell is not None])
    if "\\" in whole or "\t" in whole or "\n" in whole or "\r" in whole:
        return [_NULL if cell is None else cell.translate(_ESCAPED) for cell in cells]
    return [_NULL if cell is None else cell for cell in cells]


def _subscription(token: PushTokenPayload | None) -> str | None:
    if token is None or not isinstance(token.web_push, WebPush):
        return None
    return msgspec.json.encode(token.web_push).decode()


def _hash_cells(hashes: Iterable[bytes | None]) -> list[str]:
    return [_NULL if one is None else rf"\\x{one.hex()}" for one in hashes]
