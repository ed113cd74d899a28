"""Whose address counts: the peer's, or what a trusted proxy says. Nobody else's header counts."""

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

from clientmgr.base.errors import SettingsError

SETTING: Final = "DASHBOARD_TRUSTED_PROXIES"
_IPV6_HOST_BITS: Final = 64

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class TrustedProxies:
    """The proxies in front of us, by address or network."""

    def __init__(self, listed: str) -> None:
        self._networks = tuple(_network(word) for word in listed.replace(",", " ").split())

    def trusts(self, address: str) -> bool:
        found = _address(address) if self._networks else None
        return found is not None and any(found in network for network in self._networks)

    def client(self, peer: str, forwarded: Sequence[str]) -> str:
        """Who asks. `forwarded`: the X-Forwarded-For headers, in their order.

        Each proxy appends whom it heard. So the last entry that is no proxy of ours is the nearest that we know; what
        stands before it is what that client claims.
        """
        client = peer
        for hop in reversed(",".join(forwarded).split(",")):
            if not self.trusts(client):
                break
            found = _address(_without_port(hop.strip()))
            if found is None:
                break
            client = str(found)
        return client


def counted_as(address: str) -> str:
    """What limits count by. One machine may take any IPv6 address of its /64."""
    found = _address(address)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, 128 - _IPV6_HOST_BITS), strict=False))
    return address if found is None else str(found)


def forwarded_for(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    return [value.decode("latin-1") for name, value in headers if name == b"x-forwarded-for"]


def _address(text: str) -> Address | None:
    """An address. IPv4 written as IPv6 is IPv4, or it would be counted twice."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else found


def _without_port(hop: str) -> str:
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


def _network(word: str) -> Network:
    try:
        return ipaddress.ip_network(word, strict=False)
    except ValueError:
        raise SettingsError(f"{SETTING}: {word!r} is neither an address nor a network such as 10.0.0.0/8") from None
