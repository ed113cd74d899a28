"""Whatever the order, the duplicates and the batches: the same events leave the same devices. Without a database."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clientmgr.devices.decide import Decider, Stored, Writes, forget_contacts
from clientmgr.devices.fold import TenantChanges, fold
from clientmgr.devices.state import DeviceKey, DeviceState, PushToken, TokenFacet, merge
from tests.devices.histories import Device, Happening, Model, happenings, histories
from tests.examples import examples

CAMEL = {"language": "language", "application_version": "applicationVersion", "push_enabled": "pushEnabled"}


class Tables:
    """The tenant's tables in memory: what `store` does, without the SQL."""

    def __init__(self) -> None:
        self.stored = Stored()
        self.links: dict[tuple[int, DeviceKey], int] = {}

    def apply(self, batch: list[Happening]) -> None:
        events = [happening.decoded() for happening in batch if happening.kind != "contact.deleted"]
        self._merge(fold(events))
        for happening in batch:
            if happening.kind == "contact.deleted":
                self._delete_contact(happening.content["contactId"], happening.at)

    def _delete_contact(self, contact_id: int, at: int) -> None:
        at = max(at, self.stored.contact_tombstones.get(contact_id, 0))
        self.stored.contact_tombstones[contact_id] = at
        links = {link: version for link, version in self.links.items() if link[0] == contact_id}
        self._merge(forget_contacts({contact_id: at}, links))

    def _merge(self, changes: TenantChanges) -> None:
        decider = Decider(changes, self.stored)
        self._write(decider.first())
        for key in changes.keys() | decider.former_holders:
            self._write(decider.about([key]))

    def _write(self, writes: Writes) -> None:
        for key in writes.deleted_devices:
            del self.stored.devices[key]
        self.stored.devices.update(writes.devices)
        self.stored.device_tombstones.update(writes.device_tombstones)
        self.stored.claims.update(writes.claims)
        for link, version in writes.links.items():
            self.links[link] = max(version, self.links.get(link, 0))

    def as_model(self) -> dict[tuple[str, str], Device]:
        return {(app, client): as_device(state) for (app, client), state in self.stored.devices.items()}


def as_device(state: DeviceState) -> Device:
    names: dict[str, str] = {**CAMEL, "attributes": "attributes"}
    info: dict[str, Any] = {names[name]: entry.value for name, entry in state.info.items()}
    token = None if state.token.token is None else state.token.digest.hex()
    return Device(info, token, state.token.status, state.contact.contact_id, state.last_seen)


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[Happening], list[list[Happening]]]:
    """A history, and one way in which it may arrive: shuffled, with duplicates, cut into batches."""
    history = draw(histories)
    arriving = draw(st.permutations(history + draw(st.lists(st.sampled_from(history), max_size=4))))
    cuts = draw(st.lists(st.integers(0, len(arriving)), max_size=4).map(sorted))
    edges = [0, *cuts, len(arriving)]
    return history, [arriving[start:end] for start, end in pairwise(edges)]


@settings(max_examples=examples(1500), deadline=None)
@given(arrivals())
def test_any_arrival_leaves_what_the_sorted_history_leaves(
    arrival: tuple[list[Happening], list[list[Happening]]],
) -> None:
    history, batches = arrival
    tables = Tables()
    for batch in batches:
        tables.apply(batch)

    assert tables.as_model() == Model(history).devices


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(happenings, max_size=12))
def test_no_two_devices_of_an_application_hold_one_token(batch: list[Happening]) -> None:
    tables = Tables()
    tables.apply(batch)
    held = [
        (key.application_code, state.token.digest)
        for key, state in tables.stored.devices.items()
        if state.token.token is not None
    ]
    assert len(held) == len(set(held))


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(happenings, max_size=12))
def test_no_device_belongs_to_a_deleted_contact(batch: list[Happening]) -> None:
    tables = Tables()
    tables.apply(batch)
    owners = {state.contact.contact_id for state in tables.stored.devices.values()}
    assert owners.isdisjoint(tables.stored.contact_tombstones)


@pytest.mark.parametrize(
    "contents",
    [
        [PushToken("fcm_token", "t"), PushToken("fcm_fid", "t")],
        [PushToken("webpush", None, {"endpoint": "e", "keys": {"auth": auth}}) for auth in "ab"],
    ],
    ids=["another kind", "other keys"],
)
def test_a_token_set_twice_in_a_moment_is_the_same_in_any_order(contents: list[PushToken]) -> None:
    first, second = (DeviceState(token=TokenFacet(5, b"digest", token, "valid", 5), last_seen=5) for token in contents)
    assert first != second
    assert merge(first, second) == merge(second, first)
