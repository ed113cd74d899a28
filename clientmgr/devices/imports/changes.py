"""Rows of one tenant as the changes that events of the same contents would be. Pure.

A row is an info event, a token's and a contact's, all of its one moment. Tests hold it to that.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.contracts.device_events import PushTokenPayload, WebPush
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.contracts.verdicts import Verdict
from clientmgr.devices.contact_history import NO_CONTACT, Link
from clientmgr.devices.fold import Claim, TenantChanges, TenantHashes, Touched, claim_token, push_token_of
from clientmgr.devices.imports.rows import ImportedRow
from clientmgr.devices.state import ContactFacet, DeviceState, Info, TokenFacet, merge


@dataclass(slots=True)
class TenantRows:
    """What rows of one tenant say together."""

    rows: list[ImportedRow]
    changes: TenantChanges = field(default_factory=TenantChanges)
    touched: Touched = field(default_factory=Touched)
    verdicts: list[Verdict] = field(default_factory=list)
    several: set[bytes] = field(default_factory=set)
    """Devices that more than one row is about, or that want a token that another row's device wants."""

    @classmethod
    def of(cls, rows: Iterable[ImportedRow], keyed_hashes: KeyedHashes) -> "TenantRows":
        made = cls(list(rows))
        hashes = TenantHashes(keyed_hashes, made.rows[0].customer_id)
        made.changes.names = hashes.names
        claimed: dict[bytes, bytes] = {}
        for row in made.rows:
            device = hashes.device(row.application_code, row.client_id)
            if device in made.changes.devices:
                made.several.add(device)
            made._add(row, device, hashes, claimed)
        return made

    def _add(self, row: ImportedRow, device: bytes, hashes: TenantHashes, claimed: dict[bytes, bytes]) -> None:
        version, changes = row.version, self.changes
        state = DeviceState({name: Info(version, value) for name, value in row.info.items()}, last_seen=version)
        self.touched.devices.add(device)
        if row.token is not None:
            token = hashes.token(row.application_code, row.token)
            state.token = TokenFacet(version, token, push_token_of(row.token), status="valid")
            claim_token(changes, token, Claim(version, device))
            self.touched.tokens.add(token)
            other = claimed.setdefault(token, device)
            if other != device:
                self.several |= {device, other}
            if row.is_invalid:
                self.verdicts.append(_invalid(row, row.token))
        if row.contact_id is not None:
            contact = hashes.contact(row.contact_id)
            self._link(device, state, Link(version, contact, row.contact_id))
            self.touched.contacts.add(contact)
        elif row.unlinked_at is not None:
            self._link(device, state, Link(row.unlinked_at, NO_CONTACT))
        known = changes.devices.get(device)
        changes.devices[device] = state if known is None else merge(known, state)

    def _link(self, device: bytes, state: DeviceState, link: Link) -> None:
        state.contact = ContactFacet(link.version, link.contact_id)
        self.changes.links.setdefault(device, set()).add(link)
        self.touched.linked.add(device)


def _invalid(row: ImportedRow, token: PushTokenPayload) -> Verdict:
    text = token.web_push.endpoint if isinstance(token.web_push, WebPush) else str(token.push_token)
    return Verdict(row.application_code, row.client_id, token_digest(text), "invalid", row.version)
