"""Rows of one tenant as the changes that events of the same contents would be. Pure.

A row is an info event, a token's and a contact's, all of its one moment. Tests hold it to that.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.contracts.device_events import WebPush
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.contracts.verdicts import Verdict
from clientmgr.devices.contact_history import NO_CONTACT, Link
from clientmgr.devices.fold import Claim, TenantChanges, TenantHashes, Touched, claim_token, push_token_of
from clientmgr.devices.imports.rows import ImportedRow
from clientmgr.devices.state import ContactFacet, DeviceKey, DeviceState, Info, TokenFacet, merge


class Named(NamedTuple):
    """A row, with the hashes that its device, token and contact are known by."""

    row: ImportedRow
    device: bytes
    token: bytes | None
    contact: bytes | None


@dataclass(slots=True)
class TenantRows:
    """What rows of one tenant are about. What they change is made only of those that are about something known."""

    named: list[Named]
    names: dict[bytes, DeviceKey]
    several: set[bytes]
    """Devices that more than one row is about, or that want a token that another row's device wants."""
    verdicts: list[Verdict]

    @classmethod
    def of(cls, rows: Iterable[ImportedRow], keyed_hashes: KeyedHashes) -> "TenantRows":
        rows = list(rows)
        hashes = TenantHashes(keyed_hashes, rows[0].customer_id)
        made = cls([], hashes.names, set(), [])
        claimed: dict[bytes, bytes] = {}
        for row in rows:
            device = hashes.device(row.application_code, row.client_id)
            token = None if row.token is None else hashes.token(row.application_code, row.token)
            contact = None if row.contact_id is None else hashes.contact(row.contact_id)
            if token is not None:
                if (other := claimed.setdefault(token, device)) != device:
                    made.several |= {device, other}
                if row.is_invalid:
                    made.verdicts.append(_invalid(row))
            made.named.append(Named(row, device, token, contact))
        if len(made.names) < len(rows):
            counted = Counter(one.device for one in made.named)
            made.several |= {device for device, count in counted.items() if count > 1}
        return made

    @property
    def customer_id(self) -> CustomerId:
        return self.named[0].row.customer_id

    def changes(self, without: Collection[bytes] = ()) -> tuple[Touched, TenantChanges]:
        """What the rows say together, but for those of some devices."""
        changes, touched = TenantChanges(self.names), Touched()
        for one in self.named:
            if one.device not in without:
                _add(one, changes, touched)
        return touched, changes


def _add(one: Named, changes: TenantChanges, touched: Touched) -> None:
    row, device = one.row, one.device
    version = row.version
    state = DeviceState({name: Info(version, value) for name, value in row.info.items()}, last_seen=version)
    touched.devices.add(device)
    if one.token is not None and row.token is not None:
        state.token = TokenFacet(version, one.token, push_token_of(row.token), status="valid")
        claim_token(changes, one.token, Claim(version, device))
        touched.tokens.add(one.token)
    link = None
    if one.contact is not None:
        link = Link(version, one.contact, row.contact_id)
        touched.contacts.add(one.contact)
    elif row.unlinked_at is not None:
        link = Link(row.unlinked_at, NO_CONTACT)
    if link is not None:
        state.contact = ContactFacet(link.version, link.contact_id)
        changes.links.setdefault(device, set()).add(link)
        touched.linked.add(device)
    known = changes.devices.get(device)
    changes.devices[device] = state if known is None else merge(known, state)


def _invalid(row: ImportedRow) -> Verdict:
    token = row.token
    web_push = None if token is None else token.web_push
    text = web_push.endpoint if isinstance(web_push, WebPush) else str(token and token.push_token)
    return Verdict(row.application_code, row.client_id, token_digest(text), "invalid", row.version)
