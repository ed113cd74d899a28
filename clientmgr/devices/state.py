"""What a set of events adds up to for a device, whatever their order and however often each came. Pure functions.

Every part of a device is a register: the write with the highest version wins, and between two writes of one millisecond
the greater value, so that the same events always leave the same state. `merge` is commutative, associative and
idempotent, and tests hold it to that.
"""

from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from clientmgr.contracts.providers import PROVIDER_OF_KIND

NO_HASH = b""
"""Of no token."""


class DeviceKey(NamedTuple):
    application_code: str
    client_id: str


# Structs, because millions of them are made: a dataclass takes nine times as long. None can be part of a cycle, so the
# garbage collector need not look at them.


class Info(Struct, frozen=True, gc=False):
    """One info field as it was last set. The value of a JSON field comes from the tables as text, undecoded (`Raw`)."""

    version: int
    value: Any


class PushToken(Struct, frozen=True, gc=False):
    """A token that a device may hold: a string, or for web push a subscription."""

    kind: str
    token: str | None = None
    web_push: dict[str, Any] | Raw | None = None


class TokenFacet(Struct, frozen=True, gc=False):
    """The token register. A hash without a token: another device has claimed it since (superseded)."""

    version: int = 0
    hash: bytes = NO_HASH
    token: PushToken | None = None
    status: str = "none"
    status_version: int = 0


class TokenVerdict(Struct, frozen=True, gc=False):
    """The newest that a provider said of a token. It counts for whoever set the token no later."""

    version: int
    status: str

    def order(self) -> tuple[int, bool]:
        """Of two verdicts of one millisecond `invalid` stands: a bad token costs more than a good one left out."""
        return self.version, self.status == "invalid"


class ContactFacet(Struct, frozen=True, gc=False):
    version: int = 0
    contact_id: int | None = None


_NO_TOKEN = TokenFacet()
_NO_CONTACT = ContactFacet()


class DeviceState(Struct, gc=False):
    """A device, or what some events say of one."""

    info: dict[str, Info] = msgspec.field(default_factory=dict)
    token: TokenFacet = _NO_TOKEN
    contact: ContactFacet = _NO_CONTACT
    last_seen: int = 0
    """The newest event that is not a deletion. A device is there while this is above its tombstone."""


def merge(left: DeviceState, right: DeviceState) -> DeviceState:
    """Both together. Neither is changed."""
    info = dict(left.info)
    for name, candidate in right.info.items():
        set_info(info, name, candidate.version, candidate.value)
    return DeviceState(
        info=info,
        token=merge_tokens(left.token, right.token),
        contact=later(left.contact, right.contact),
        last_seen=max(left.last_seen, right.last_seen),
    )


def set_info(info: dict[str, Info], name: str, version: int, value: Any) -> None:
    """Set an info field, unless it is known as of later."""
    known = info.get(name)
    is_newer = known is None or version > known.version
    if is_newer or (known is not None and version == known.version and canonical(value) > canonical(known.value)):
        info[name] = Info(version, value)


def erase_until(state: DeviceState, version: int) -> DeviceState | None:
    """The device after a deletion: what was set up to `version` is gone; None when nothing newer is left."""
    if state.last_seen <= version:
        return None
    if not version:
        return state
    return DeviceState(
        info={name: info for name, info in state.info.items() if info.version > version},
        token=state.token if state.token.version > version else _NO_TOKEN,
        contact=state.contact if state.contact.version > version else _NO_CONTACT,
        last_seen=state.last_seen,
    )


def supersede(state: DeviceState) -> DeviceState:
    """The device after another one claimed its token: the row stays, the token goes."""
    token = TokenFacet(version=state.token.version, hash=state.token.hash, status="superseded")
    return replace(state, token=token)


def judged(token: TokenFacet, verdict: TokenVerdict) -> TokenFacet:
    """The token after a verdict on it. One from before it was set says nothing of it."""
    known = TokenVerdict(token.status_version, token.status)
    if verdict.version < token.version or verdict.order() <= known.order():
        return token
    return replace(token, status=verdict.status, status_version=verdict.version)


def fields_changed(before: DeviceState | None, after: DeviceState) -> list[str]:
    """Which parts of a device differ, by the names of fields."""
    if before is None:
        return ["the device"]
    names = [name for name, info in after.info.items() if before.info.get(name) != info]
    names += [name for name in before.info if name not in after.info]
    if before.token != after.token:
        names.append("push_token")
    if before.contact != after.contact:
        names.append("contact_id")
    return names or ["last_seen_at"]


def provider_of(state: DeviceState) -> str:
    return "none" if state.token.token is None else PROVIDER_OF_KIND[state.token.token.kind]


def canonical(value: Any) -> bytes:
    """The value as bytes that are the same however it was written, for telling equal from greater."""
    plain = _plain(msgspec.json.decode(value) if isinstance(value, Raw) else value)
    return msgspec.json.encode(plain, order="deterministic")


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        # By its digits, as a jsonb keeps it: 1e23 comes back as 10**23, and int(1e23) is another number.
        return int(Decimal(repr(value)))
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def later(left: ContactFacet, right: ContactFacet) -> ContactFacet:
    return left if _order(left) > _order(right) else right


def _order(facet: ContactFacet) -> tuple[int, int]:
    return facet.version, facet.contact_id or 0


def _known_of(facet: TokenFacet) -> tuple[bool, int, str, bytes]:
    token = facet.token
    contents = b"" if token is None else canonical([token.kind, token.token]) + canonical(token.web_push)
    return facet.status == "superseded", facet.status_version, facet.status, contents


def merge_tokens(left: TokenFacet, right: TokenFacet) -> TokenFacet:
    if not right.version or not left.version:
        return left if left.version else right
    if left == right:
        return left
    if (left.version, left.hash) == (right.version, right.hash):
        # The same write twice: what is known of it besides (superseded, a verdict on it) is kept. Or one token that was
        # set twice in a moment with other keys, or as another kind: any order of arrival has to choose the same.
        return max(left, right, key=_known_of)
    newer, older = sorted((left, right), key=lambda facet: (facet.version, facet.hash), reverse=True)
    if newer.hash == older.hash and older.status_version >= newer.version:
        # Set again before the verdict on it was given: the verdict stands.
        return replace(newer, status=older.status, status_version=older.status_version)
    return newer
