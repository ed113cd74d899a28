"""Whatever the order, the duplicates and the batches: the same events leave the same devices. Without a database."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from clientmgr.contracts import topics
from clientmgr.devices.contact_history import Link
from clientmgr.devices.decide import Decider, Stored, Writes
from clientmgr.devices.fold import TenantChanges, TenantHashes, fold, touched_by
from clientmgr.devices.state import DeviceState, PushToken, TokenFacet, TokenVerdict, judged, merge
from tests.devices.histories import (
    CUSTOMER,
    HASHES,
    Device,
    Happening,
    Model,
    happenings,
    histories,
    token_of,
    without_late_links,
)
from tests.examples import examples

CAMEL = {"language": "language", "application_version": "applicationVersion", "push_enabled": "pushEnabled"}


class Tables:
    """The tenant's tables in memory: what `store` does, without the SQL."""

    def __init__(self) -> None:
        self.stored = Stored()
        self._links: dict[bytes, set[Link]] = {}

    def apply(self, batch: list[Happening]) -> None:
        hashes = TenantHashes(HASHES, CUSTOMER)
        writer = [one for one in batch if one.topic == topics.WRITER]
        events = [one.decoded() for one in writer]
        changes, merges = fold(events, hashes), touched_by(events, hashes).merges
        self.stored.contacts.add(merges)
        touched = {*changes.devices, *changes.deletions}
        self._merge(changes, touched, set(changes.links) | (set(self._links) if merges else set()))
        for one in batch:
            if one.kind == "contact.deleted":
                contact = HASHES.contact(CUSTOMER, one.content["contactId"])
                self.stored.contacts.deletions.setdefault(contact, set()).add(one.at)
                self._merge(TenantChanges(), set(), set(self._links))
            elif one.kind == "token.verdict":
                self._judge(token_of(one), TokenVerdict(one.at, one.content["status"]))

    def _judge(self, token: bytes, verdict: TokenVerdict) -> None:
        known = self.stored.verdicts.get(token)
        if known is None or verdict.order() > known.order():
            self.stored.verdicts[token] = verdict
        for device, state in self.stored.devices.items():
            if state.token.hash == token and state.token.token is not None:
                self.stored.devices[device] = replace(state, token=judged(state.token, verdict))

    def _merge(self, changes: TenantChanges, devices: set[bytes], linked: set[bytes]) -> None:
        self.stored.links = {device: self._links[device] for device in linked if device in self._links}
        decider = Decider(changes, self.stored)
        self._write(decider.first())
        for device in devices | linked | decider.former_holders:
            self._write(decider.about([device]))

    def _write(self, writes: Writes) -> None:
        for device in writes.deleted_devices:
            del self.stored.devices[device]
        for device, (name, state) in writes.devices.items():
            self.stored.devices[device], self.stored.names[device] = state, name
        self.stored.tombstones.update(writes.tombstones)
        self.stored.claims.update(writes.claims)
        for device, links in writes.links.items():
            self._links.setdefault(device, set()).update(links)

    def as_model(self) -> dict[tuple[str, str], Device]:
        return {self.stored.names[device]: as_device(state) for device, state in self.stored.devices.items()}


def as_device(state: DeviceState) -> Device:
    names: dict[str, str] = {**CAMEL, "attributes": "attributes"}
    info: dict[str, Any] = {names[name]: entry.value for name, entry in state.info.items()}
    token = None if state.token.token is None else state.token.hash.hex()
    return Device(info, token, state.token.status, state.contact.contact_id, state.last_seen)


Arrival = tuple[list[Happening], list[list[Happening]]]
"""A history, and one way in which it may arrive: in batches."""


@st.composite
def arrivals(draw: st.DrawFn, *, late_links: bool) -> Arrival:
    """Shuffled, with duplicates, cut into batches."""
    history = draw(histories)
    arriving = draw(st.permutations(history + draw(st.lists(st.sampled_from(history), max_size=4))))
    if not late_links:
        arriving = without_late_links(arriving)
    cuts = draw(st.lists(st.integers(0, len(arriving)), max_size=4).map(sorted))
    edges = [0, *cuts, len(arriving)]
    return history, [arriving[start:end] for start, end in pairwise(edges)]


def after(batches: list[list[Happening]]) -> Tables:
    tables = Tables()
    for batch in batches:
        tables.apply(batch)
    return tables


@settings(max_examples=examples(1200), deadline=None)
@given(arrivals(late_links=False))
def test_any_arrival_leaves_what_the_rules_say_of_the_history(arrival: Arrival) -> None:
    history, batches = arrival
    assert after(batches).as_model() == Model(history).devices


@settings(max_examples=examples(600), deadline=None)
@given(arrivals(late_links=True))
def test_a_late_link_or_merge_leaves_no_more_than_the_ordered_history(arrival: Arrival) -> None:
    history, batches = arrival
    ordered = Model(history).devices
    for key, found in after(batches).as_model().items():
        assert key in ordered
        expected = ordered[key]
        assert found.last_seen <= expected.last_seen
        assert found.info.keys() <= expected.info.keys()
        assert found.contact_id in (None, expected.contact_id)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(happenings, max_size=12))
def test_no_two_devices_of_an_application_hold_one_token(batch: list[Happening]) -> None:
    held = [state.token.hash for state in after([batch]).stored.devices.values() if state.token.token is not None]
    assert len(held) == len(set(held))


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(happenings, max_size=12))
def test_no_device_belongs_to_a_deleted_contact(batch: list[Happening]) -> None:
    deleted = {one.content["contactId"] for one in batch if one.kind == "contact.deleted"}
    for happened in (batch, batch[::-1]):
        owners = {state.contact.contact_id for state in after([[one] for one in happened]).stored.devices.values()}
        assert owners.isdisjoint(deleted)


@pytest.mark.parametrize(
    "contents",
    [
        [PushToken("fcm_token", "t"), PushToken("fcm_fid", "t")],
        [PushToken("webpush", None, {"endpoint": "e", "keys": {"auth": auth}}) for auth in "ab"],
    ],
    ids=["another kind", "other keys"],
)
def test_a_token_set_twice_in_a_moment_is_the_same_in_any_order(contents: list[PushToken]) -> None:
    first, second = (DeviceState(token=TokenFacet(5, b"hash", token, "valid", 5), last_seen=5) for token in contents)
    assert first != second
    assert merge(first, second) == merge(second, first)
