"""A customer on its way out of the legacy store: items there, live events here, and the order in which they may meet.

An item counts as the events that would have made it, so the model of events is the model of an import as well.
"""

import json
import random
from dataclasses import dataclass, replace
from typing import Any

from clientmgr.legacy_migration.events import OLDEST, StoredItem
from tests.devices.histories import APPLICATIONS, CLIENTS, CONTACTS, LATEST, TOKENS, Device, Happening, Model
from tests.devices.test_store import random_history
from tests.legacy_migration.items import stored_item


@dataclass(frozen=True)
class LegacyItem:
    """What the older system kept of a device and a contact."""

    application_code: str
    client_id: str
    contact_id: int
    language: str
    updated_at: int | None
    seen_at: int | None
    token: str | None
    is_invalid: bool

    def stored(self) -> StoredItem:
        values: dict[str, Any] = {"language": self.language, "updatedAt": self.updated_at, "lastSeenAt": self.seen_at}
        if self.token is not None:
            values |= {"kind": "fcm_token", "pushToken": self.token}
        if self.is_invalid:
            values["pushTokenStatus"] = "invalid"
        known = {name: value for name, value in values.items() if value is not None}
        return stored_item(f"{self.application_code}#{self.client_id}", self.contact_id, **known)

    def said(self) -> list[Happening]:
        at = self.updated_at or self.seen_at or OLDEST
        told: list[tuple[str, int, dict[str, Any]]] = [
            ("client.registered", at, {"language": self.language}),
            ("client.contactLinked", at, {"contactId": self.contact_id}),
            ("client.updated", max(at, self.seen_at or 0), {}),
        ]
        if self.token is not None:
            told.append(("client.pushTokenSet", at, {"kind": "fcm_token", "pushToken": self.token}))
            if self.is_invalid:
                told.append(("token.verdict", at, {"pushToken": self.token, "status": "invalid"}))
        return [
            Happening(kind, moment, self.application_code, self.client_id, json.dumps(payload))
            for kind, moment, payload in told
        ]


def random_items(choose: random.Random, count: int) -> list[LegacyItem]:
    """At most one for each device and contact, of the same few as `random_history` has, in the same few moments."""
    chosen = choose.sample([(a, c, n) for a in APPLICATIONS for c in CLIENTS for n in CONTACTS], count)
    return [
        LegacyItem(
            *names,
            language=choose.choice(["en", "fr"]),
            updated_at=choose.choice([None, *range(1, LATEST)]),
            seen_at=choose.choice([None, choose.randint(1, LATEST)]),
            token=choose.choice([None, *TOKENS]),
            is_invalid=choose.random() < 0.3,
        )
        for names in chosen
    ]


def deletions_in_time(
    before: list[Happening], imported: list[Happening], after: list[Happening]
) -> tuple[list[Happening], list[Happening]]:
    """What arrives before an import and after it, each contact's deletion after all links to others that precede it.

    The rules leave open what becomes of a device whose link to somebody else, or whose merge, is heard of too late.
    """
    arriving = [*before, *imported, *after]

    def comes_too_early(place: int) -> bool:
        deletion = arriving[place]
        own = deletion.content.get("contactId")
        told = [one for one in arriving[place:] if one.kind in ("client.contactLinked", "client.contactMerged")]
        return any(one.at <= deletion.at and one.content.get("contactId") != own for one in told)

    early = [one for place, one in enumerate(arriving) if one.kind == "contact.deleted" and comes_too_early(place)]
    return [one for one in before if one not in early], [one for one in after if one not in early] + early


@dataclass(frozen=True)
class Household:
    """Some devices, contacts and tokens that nobody else has anything to do with: one model's worth of a customer."""

    items: list[LegacyItem]
    before: list[Happening]
    """Live events that may arrive at any moment until the import is over."""
    after: list[Happening]

    @classmethod
    def random(cls, seed: int, *, items: int, events: int) -> "Household":
        choose = random.Random(seed)
        own = [_moved(seed, one) for one in random_items(choose, items)]
        live = [_renamed(seed, one) for one in random_history(seed, events)]
        # Where the items come last a deletion may wait for most, and that is enough wherever they come.
        said = [one for item in own for one in item.said()]
        return cls(own, *deletions_in_time(live, said, []))

    def expected(self) -> dict[tuple[str, str], Device]:
        return model([*self.before, *self.after, *(one for item in self.items for one in item.said())])


def model(history: list[Happening]) -> dict[tuple[str, str], Device]:
    """What the rules say is left, of the fields that tests look at."""
    found = Model(history).devices
    for device in found.values():
        device.info.pop("platform", None)
    return found


def _moved(household: int, item: LegacyItem) -> LegacyItem:
    token = None if item.token is None else f"{household}-{item.token}"
    client_id, contact_id = f"{household}-{item.client_id}", household * 100 + item.contact_id
    return replace(item, client_id=client_id, contact_id=contact_id, token=token)


def _renamed(household: int, happening: Happening) -> Happening:
    content = happening.content
    for name in ("contactId", "fromContactId", "intoContactId"):
        if name in content:
            content[name] += household * 100
    if "pushToken" in content:
        content["pushToken"] = f"{household}-{content['pushToken']}"
    client = f"{household}-{happening.client_id}" if happening.client_id else ""
    return replace(happening, client_id=client, payload=json.dumps(content))
