"""Whose connection it is, where proxies stand in front: only those that a setting names are believed."""

import ipaddress
from collections.abc import Sequence
from typing import TypeAlias

from clientmgr.base.errors import SettingsError

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def trusted_networks(setting: str, text: str) -> tuple[Network, ...]:
    """Addresses and networks, by comma. `setting` is named if one can't be read."""
    found: list[Network] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            found.append(ipaddress.ip_network(part))
        except ValueError:
            raise SettingsError(f"{setting}: expected addresses and networks, by comma, got {part!r}") from None
    return tuple(found)


def is_trusted(address: str, trusted: Sequence[Network]) -> bool:
    """Whether a proxy of ours has this address."""
    parsed = _parsed(address)
    return parsed is not None and any(parsed in network for network in trusted)


def client_address(peer: str, forwarded_for: str, trusted: Sequence[Network]) -> str:
    """The address of the client: the last that no trusted proxy has, and the peer's own where nobody is trusted.

    A client can write anything into X-Forwarded-For, and proxies append to it. So it is read from its end, and only for
    as long as whoever wrote the next part is trusted.
    """
    address = peer
    for part in reversed(forwarded_for.split(",")):
        if not is_trusted(address, trusted):
            break
        named = _parsed(_without_port(part.strip()))
        if named is None:
            break
        address = str(named)
    return address


def counted_as(address: str) -> str:
    """What limits per address count by. One IPv6 customer has 2^64 addresses: they count as one."""
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return address if parsed is None else str(parsed)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    # A socket for both versions reports IPv4 clients so.
    return getattr(parsed, "ipv4_mapped", None) or parsed


def _without_port(text: str) -> str:
    """Some proxies write 192.0.2.1:4711 or [2001:db8::1]:4711."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text
