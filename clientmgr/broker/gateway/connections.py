"""Ending a client's connection, for which gRPC has no call: it goes by the socket itself."""

import contextlib
import ipaddress
import socket
from pathlib import Path
from urllib.parse import unquote

OPEN_FILES = Path("/dev/fd")


def end_connection(peer: str) -> bool:
    """End the connection of a `peer` as gRPC names it ("ipv4:127.0.0.1:50012"). False: it has none any more."""
    scheme, _, address = unquote(peer).partition(":")
    host, _, port = address.rpartition(":")
    if scheme not in {"ipv4", "ipv6"}:
        return False
    wanted = (_plain(host.strip("[]")), int(port))
    for file in OPEN_FILES.iterdir():
        # A copy is looked at: the file of this number may be closed, and be another, from one moment to the next.
        with (
            contextlib.suppress(OSError),
            socket.fromfd(int(file.name), socket.AF_INET, socket.SOCK_STREAM) as connection,
        ):
            name = connection.getpeername()
            if isinstance(name, tuple) and (_plain(name[0]), name[1]) == wanted:
                connection.shutdown(socket.SHUT_RDWR)
                return True
    return False


def _plain(host: str) -> str:
    """One way of writing an address, whether or not it came through a socket for both kinds."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
