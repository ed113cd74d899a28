"""Which column of a file is which field of a device: by name, or as somebody maps it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from clientmgr.base.errors import InvalidInputError
from clientmgr.contracts.device_fields import FIELDS, INFO, DeviceField, Facet, Kind

CUSTOMER, APPLICATION, CLIENT, OCCURRED_AT = "customerId", "applicationCode", "clientId", "occurredAt"
CONTACT, ORPHANED_SINCE, LAST_SEEN = "contactId", "orphanedSince", "lastSeenAt"
TOKEN, KIND, STATUS, WEB_PUSH = "pushToken", "pushTokenKind", "pushTokenStatus", "webPush"
ENDPOINT, P256DH, AUTH = "webPushEndpoint", "webPushP256dh", "webPushAuth"

SINGLE: Final = (
    CUSTOMER, APPLICATION, CLIENT, OCCURRED_AT, CONTACT, ORPHANED_SINCE, LAST_SEEN,
    TOKEN, KIND, STATUS, WEB_PUSH, ENDPOINT, P256DH, AUTH,
)  # fmt: skip
"""What a row may say besides its info fields."""
REJECTED_LINE, REJECTED_REASON = "rejectedLine", "rejectedReason"
SAY_NOTHING: Final = (
    "provider", *(one.json_name for one in FIELDS if one.facet is Facet.BOOKKEEPING and one.exported), REJECTED_LINE,
    REJECTED_REASON,
)  # fmt: skip
"""Columns of an export, or of a file of rejected rows, that follow from others."""

_INFO: Final = {one.json_name: one for one in INFO}


def _loose(name: str) -> str:
    return name.strip().replace("_", "").replace("-", "").lower()


_KNOWN: Final = {_loose(name): name for name in (*SAY_NOTHING, *_INFO, *SINGLE)} | {"kind": KIND}


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the values of a row go, for files or rows with the same columns."""

    single: dict[str, int] = field(default_factory=dict)
    """Places of what is not info."""
    info: list[tuple[int, str, str, Kind]] = field(default_factory=list)
    """Of each info field: its place, its name, its name in events, its type."""
    members: list[tuple[int, DeviceField, str]] = field(default_factory=list)
    """Columns that are members of an object: `attributes.tier`."""
    unknown: tuple[str, ...] = ()


class ColumnMap:
    """Plans for columns: those that are mapped, then those that are called like a field, in camel or snake case."""

    def __init__(self, mapped: Mapping[str, str] | None = None) -> None:
        self.mapped = dict(mapped or {})
        """Column → field; an empty field leaves the column out."""
        for column, name in self.mapped.items():
            if name and _target(name) is None:
                expected = (
                    f"a field of a device for column {column} ({', '.join((*SINGLE, *_INFO))}, attributes.NAME, …)"
                )
                raise InvalidInputError("--map", expected, name)
        self._plans: dict[tuple[str, ...], Plan] = {}

    def plan(self, columns: Sequence[str]) -> Plan:
        key = tuple(columns)
        if key not in self._plans:
            self._plans[key] = self._made(key)
        return self._plans[key]

    def _made(self, columns: tuple[str, ...]) -> Plan:
        single: dict[str, int] = {}
        info: dict[str, tuple[int, str, str, Kind]] = {}
        members: list[tuple[int, DeviceField, str]] = []
        unknown = []
        for place, column in enumerate(columns):
            name = _target(self.mapped[column]) if self.mapped.get(column) else _KNOWN.get(_loose(column))
            if column in self.mapped and not self.mapped[column]:
                continue
            if name is None:
                unknown.append(column)
            elif name in single or name in info:
                raise InvalidInputError("columns", f"one column for {name}", column)
            elif name in _INFO:
                info[name] = place, _INFO[name].name, name, _INFO[name].kind
            elif "." in name:
                whole, _, member = name.partition(".")
                members.append((place, _INFO[whole], member))
            elif name not in SAY_NOTHING or name in SINGLE:
                single[name] = place
        return Plan(single, list(info.values()), members, tuple(unknown))


def _target(name: str) -> str | None:
    """The field that somebody names, or the member of one that is an object."""
    whole, dot, member = name.partition(".")
    known = _KNOWN.get(_loose(whole))
    if not dot:
        return known if known not in SAY_NOTHING or known in SINGLE else None
    is_object = known in _INFO and _INFO[known].kind is Kind.JSON
    return f"{known}.{member}" if is_object and member else None
