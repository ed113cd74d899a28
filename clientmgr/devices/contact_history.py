"""Whose a device was, and when: links, merges of contacts, deletions of contacts, and what they add up to. Pure.

The rules, for any set of them, whatever their order:

- A merge makes all links of one contact up to its version links of the other. Merges apply one after the other.
- A deletion at D takes a device if, of its links up to D, the newest is to that contact as of D. Of several links in
  that millisecond one is enough.
- Any other link to a deleted contact, a newer one too, counts as an unlink of its version.

So a link or merge from before a deletion that arrives after it may spare a device that is erased already. It then comes
back with that link and what arrives from then on. This is the one case that depends on arrival.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

FOREVER = 2**63
NO_CONTACT = b""
"""In the place of a contact's hash: an unlink. A link that arrives late must not undo a newer one."""


class Link(NamedTuple):
    """A device was linked to a contact, or unlinked."""

    version: int
    contact: bytes
    """Its keyed hash, or NO_CONTACT."""
    contact_id: int | None = None
    """None: it is deleted, and nobody needs its id."""


class Merge(NamedTuple):
    """Links of one contact up to the version are links of the other."""

    version: int
    into: bytes
    into_contact_id: int | None


@dataclass(slots=True)
class Contacts:
    """What is known of some contacts, by hash: what became of them."""

    merges: dict[bytes, set[Merge]] = field(default_factory=dict)
    deletions: dict[bytes, set[int]] = field(default_factory=dict)

    def add(self, merges: Mapping[bytes, Iterable[Merge]]) -> None:
        for contact, of_contact in merges.items():
            self.merges.setdefault(contact, set()).update(of_contact)

    def erased_until(self, links: Iterable[Link]) -> int:
        """Up to when the deletions of contacts erase a device that has these links. 0: none does."""
        return max(self.erased_by(links, self.deletions).values(), default=0)

    def erased_by(self, links: Iterable[Link], deletions: Mapping[bytes, Collection[int]]) -> dict[bytes, int]:
        """The contacts whose deletions take a device with these links, each with the last moment at which it does."""
        known = [link for link in links if link.contact]
        if len(known) == 1 and not self.merges:  # nearly all are like this, and a day's deletions are many
            (only,) = known
            moment = max(deletions.get(only.contact, ()), default=0)
            return {only.contact: moment} if moment >= only.version else {}
        erased = {}
        for contact in self.holders(known) & deletions.keys():
            moments = [moment for moment in deletions[contact] if self.belonged(known, contact, moment)]
            if moments:
                erased[contact] = max(moments)
        return erased

    def belonged(self, links: Iterable[Link], contact: bytes, moment: int) -> bool:
        """Whether the newest of these links, at the moment, was one to this contact."""
        until_then = [link for link in links if link.contact and link.version <= moment]
        newest = max((link.version for link in until_then), default=0)
        return any(self._holder(link, moment)[0] == contact for link in until_then if link.version == newest)

    def contact_of(self, link: Link) -> int | None:
        """The contact that a link is to in the end. None: to one that is deleted, or to none."""
        contact, contact_id = self._holder(link, FOREVER)
        return None if contact in self.deletions else contact_id

    def holders(self, links: Iterable[Link]) -> set[bytes]:
        """All contacts that ever held one of the links."""
        waiting = {link.contact for link in links}
        if not self.merges:
            return waiting
        reached: set[bytes] = set()
        while waiting:
            reached |= waiting
            waiting = {merge.into for contact in waiting for merge in self.merges.get(contact, ())} - reached
        return reached

    def _holder(self, link: Link, until: int) -> tuple[bytes, int | None]:
        """Whose the link was at a moment: each merge from then on, the earliest first, may have passed it on."""
        contact, contact_id, since = link.contact, link.contact_id, link.version
        if not self.merges:
            return contact, contact_id
        # Contacts that were merged in a circle, all in one millisecond, end it where it began.
        used: set[tuple[bytes, Merge]] = set()
        while True:
            ahead = [
                merge
                for merge in self.merges.get(contact, ())
                if since <= merge.version <= until and (contact, merge) not in used
            ]
            if not ahead:
                return contact, contact_id
            version = min(merge.version for merge in ahead)
            # Of two merges of a contact in one millisecond the greater hash has it. One may have come without its id.
            first = (merge for merge in ahead if merge.version == version)
            merge = max(first, key=lambda merge: (merge.into, merge.into_contact_id or 0))
            used.add((contact, merge))
            contact, contact_id, since = merge.into, merge.into_contact_id, merge.version
