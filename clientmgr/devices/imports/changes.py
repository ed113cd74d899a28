"""Rows of one tenant as the changes that events of the same contents would be. Pure.

A row is an info event, a token's and a contact's, all of its one moment. Tests hold it to that.
"""

from collections.abc import Iterable, Sequence

from clientmgr.base.keyed_hashes import KeyedHashes
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.contracts.verdicts import Verdict
from clientmgr.devices.contact_history import NO_CONTACT, Link
from clientmgr.devices.fold import Claim, TenantChanges, TenantHashes, Touched, claim_token, push_token_of
from clientmgr.devices.imports.rows import ImportedRow, token_text
from clientmgr.devices.state import ContactFacet, DeviceState, Info, TokenFacet, merge


def changes_of(rows: Sequence[ImportedRow], keyed_hashes: KeyedHashes) -> tuple[Touched, TenantChanges]:
    """What the rows say together."""
    hashes = TenantHashes(keyed_hashes, rows[0].customer_id)
    changes, touched = TenantChanges(hashes.names), Touched()
    for row in rows:
        _add(row, hashes, changes, touched)
    return touched, changes


def verdicts_of(rows: Iterable[ImportedRow]) -> list[Verdict]:
    """That tokens are invalid."""
    return [
        Verdict(row.application_code, row.client_id, token_digest(token_text(row.token)), "invalid", row.version)
        for row in rows
        if row.is_invalid and row.token is not None
    ]


def _add(row: ImportedRow, hashes: TenantHashes, changes: TenantChanges, touched: Touched) -> None:
    device, version = hashes.device(row.application_code, row.client_id), row.version
    state = DeviceState({name: Info(version, value) for name, value in row.info.items()}, last_seen=version)
    touched.devices.add(device)
    if row.token is not None:
        token = hashes.token(row.application_code, row.token)
        state.token = TokenFacet(version, token, push_token_of(row.token), status="valid")
        claim_token(changes, token, Claim(version, device))
        touched.tokens.add(token)
    link = None
    if row.contact_id is not None:
        link = Link(version, hashes.contact(row.contact_id), row.contact_id)
        touched.contacts.add(link.contact)
    elif row.unlinked_at is not None:
        link = Link(row.unlinked_at, NO_CONTACT)
    if link is not None:
        state.contact = ContactFacet(link.version, link.contact_id)
        changes.links.setdefault(device, set()).add(link)
        touched.linked.add(device)
    known = changes.devices.get(device)
    changes.devices[device] = state if known is None else merge(known, state)
