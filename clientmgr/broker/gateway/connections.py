"""Ending a client's connection, for which gRPC has no call: it goes by the socket itself."""

import ipaddress
import os
import socket
import stat
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
    return any(_end_if_it_is(int(file.name), wanted) for file in list(OPEN_FILES.iterdir()))


def _end_if_it_is(file: int, wanted: tuple[str, int]) -> bool:
    """A copy is looked at: the file of this number may be closed, and be another, from one moment to the next."""
    try:
        copy = os.dup(file)
    except OSError:
        return False
    try:
        if not stat.S_ISSOCK(os.fstat(copy).st_mode):
            return False
        connection = socket.socket(fileno=copy)
        try:
            name = connection.getpeername()
            if not isinstance(name, tuple) or (_plain(name[0]), name[1]) != wanted:
                return False
            connection.shutdown(socket.SHUT_RDWR)
        finally:
            connection.detach()
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(copy)


def _plain(host: str) -> str:
    """One way of writing an address, whether or not it came through a socket for both kinds."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
