"""Whether a tenant's devices are the same here and in the legacy store, DynamoDB: a sample of them, by field. Pure.

The sample is of the devices whose keys have the smallest hashes, so that both stores pick the same ones without knowing
of each other, and do so again the next night. Neither values nor contacts nor tokens are kept of what differs: which
device it is and which fields of it is all that a person needs to look it up.
"""

import hashlib
import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from clientmgr.contracts.decoding import is_identifier
from clientmgr.contracts.device_fields import INFO_FIELDS, JSON_INFO_FIELDS
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.devices.legacy.items import device_of
from clientmgr.devices.state import canonical

MOST_KEPT: Final = 20
"""Differences of a tenant that are kept to be shown; all are counted."""
CONTACT: Final = "contact_id"
UNREADABLE: Final = "unreadable item"
"""In the place of fields, where DynamoDB holds what no device of ours could be."""
HASH_DIGITS: Final = 16

DIFFERENT: Final = "different"
MISSING_IN_DYNAMODB: Final = "missing in DynamoDB"
MISSING_IN_POSTGRES: Final = "missing in PostgreSQL"


class Sampled(NamedTuple):
    """A device of the sample as one store has it."""

    device_key: str
    """`<applicationCode>#<clientId>`, as DynamoDB has it."""
    sample_hash: str
    contact_id: str
    fields: str | None
    """JSON of what is compared, by our names of the fields; None: it can't be read."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A device that is not the same in both stores."""

    device_key: str
    difference: str
    fields: tuple[str, ...] = ()

    @property
    def is_nameable(self) -> bool:
        """DynamoDB takes keys that no table of ours can hold."""
        application_code, _, client_id = self.device_key.partition("#")
        return is_identifier(application_code) and is_identifier(client_id)

    def shown(self) -> dict[str, object]:
        application_code, _, client_id = self.device_key.partition("#")
        return {
            "application_code": application_code,
            "client_id": client_id,
            "difference": self.difference,
            "fields": list(self.fields),
        }


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What came of comparing one tenant's sample."""

    sampled: int
    differences: tuple[Difference, ...]

    def count(self, difference: str) -> int:
        return sum(1 for one in self.differences if one.difference == difference)

    def different_fields(self) -> dict[str, int]:
        """In how many devices each field differs, the most frequent first."""
        return dict(Counter(name for one in self.differences for name in one.fields).most_common())

    def shown(self) -> list[dict[str, object]]:
        nameable = (one for one in self.differences if one.is_nameable)
        return [one.shown() for one in itertools.islice(nameable, MOST_KEPT)]


def sample_hash(customer: str, device_key: str) -> str:
    """By this the sample is chosen; `sync_sample` in sql/tenant/queries/batch.sql has the same."""
    return hashlib.sha256(f"{customer}#{device_key}".encode()).hexdigest()[:HASH_DIGITS]


class Smallest:
    """Tells of values that come one by one which may be among the `size` smallest. Keeps those and no others."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._largest_first: list[int] = []
        self._kept: set[int] = set()

    def admits(self, value: int) -> bool:
        """False: there are `size` smaller ones already. A value may come again: a device can have several contacts."""
        if value in self._kept:
            return True
        if len(self._kept) < self._size:
            heapq.heappush(self._largest_first, -value)
        elif value < -self._largest_first[0]:
            self._kept.remove(-heapq.heapreplace(self._largest_first, -value))
        else:
            return False
        self._kept.add(value)
        return True


def fields_of_item(item: Mapping[str, Mapping[str, Any]]) -> str | None:
    """What of an item in DynamoDB is compared, as `sync_sample` has it for a row. A token is there as its digest.

    None: it can't be read. The store is not ours, and one odd item must not cost all tenants their numbers.
    """
    try:
        return _fields_of_item(item)
    except (LookupError, TypeError, ValueError):
        return None


def _fields_of_item(item: Mapping[str, Mapping[str, Any]]) -> str:
    device = device_of(0, "", item)
    fields: dict[str, Any] = {name: getattr(device, name) for name in INFO_FIELDS}
    for name in JSON_INFO_FIELDS:
        fields[name] = None if fields[name] is None else msgspec.json.decode(fields[name])
    kind = fields["push_token_kind"] = device.push_token_kind
    token = device.push_token if kind is not None else None
    if kind == "webpush" and device.web_push:
        endpoint = msgspec.json.decode(device.web_push).get("endpoint")
        token = endpoint if isinstance(endpoint, str) else None
    fields["push_token"] = None if token is None else token_digest(token).hex()
    if "pushTokenStatus" in item:
        fields["push_token_status"] = device.push_token_status
    return msgspec.json.encode(fields).decode()


def compare(postgres: Iterable[Sampled], dynamodb: Iterable[Sampled], size: int) -> SyncResult:
    """The `size` devices with the smallest hashes in either store, compared.

    Each store has to bring its own `size` smallest, and may bring more: what is among the smallest of both together is
    then there from every store that has it.
    """
    here = {one.device_key: one for one in postgres}
    there: dict[str, list[Sampled]] = {}
    for one in dynamodb:
        there.setdefault(one.device_key, []).append(one)
    hashes = {one.device_key: one.sample_hash for items in there.values() for one in items}
    hashes |= {key: one.sample_hash for key, one in here.items()}
    sample = heapq.nsmallest(size, hashes, key=lambda key: (hashes[key], key))
    found = (_difference(key, here.get(key), there.get(key, [])) for key in sample)
    return SyncResult(len(sample), tuple(one for one in found if one is not None))


def _difference(device_key: str, row: Sampled | None, items: list[Sampled]) -> Difference | None:
    if row is None:
        return Difference(device_key, MISSING_IN_POSTGRES)
    if not items:
        return Difference(device_key, MISSING_IN_DYNAMODB)
    # An item for each contact that ever had the device, where the older system forgot to remove one.
    item = min(items, key=lambda one: (one.contact_id != row.contact_id, one.contact_id))
    fields = _different_fields(row.fields, item.fields)
    if len(items) > 1 or item.contact_id != row.contact_id:
        fields = [CONTACT, *fields]
    return Difference(device_key, DIFFERENT, tuple(fields)) if fields else None


def _different_fields(row: str | None, item: str | None) -> list[str]:
    """What only one of them knows of (a token's status, in old items) is not compared."""
    if row is None or item is None:
        return [UNREADABLE]
    here, there = msgspec.json.decode(row), msgspec.json.decode(item)
    return [name for name, value in here.items() if name in there and _comparable(value) != _comparable(there[name])]


def _comparable(value: Any) -> bytes:
    """DynamoDB's empty texts and maps say no more than an absent one."""
    return canonical(None if value in ("", {}, []) else value)
