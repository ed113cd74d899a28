"""Where a service of ours listens: the socket, and the host as it stands in a URL."""

import contextlib
import socket
from collections.abc import Iterator

from clientmgr.base.errors import SettingsError


@contextlib.contextmanager
def listening(host: str, port: int, *, settings: str, backlog: int) -> Iterator[socket.socket]:
    """A socket that listens, closed at the end. `settings`: whose value it is if that can't be."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address, family=family, backlog=backlog)
    except OSError as error:
        raise SettingsError(f"{settings}: can't listen on {host}:{port} ({error})") from None
    with listener:
        listener.setblocking(False)
        yield listener


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
