"""Where a service of ours listens: the socket, files enough for its connections, and the host as it stands in a URL."""

import contextlib
import resource
import socket
from collections.abc import Iterator

from clientmgr.base.errors import SettingsError
from clientmgr.base.logs import get_logger

log = get_logger(__name__)


@contextlib.contextmanager
def listening(host: str, port: int, *, settings: str, backlog: int) -> Iterator[socket.socket]:
    """A socket that listens, closed at the end. `settings`: whose value it is if that can't be."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address, family=family, backlog=backlog)
        # Accepted connections inherit it; asyncio does not set it where a listener is handed over. Without it, the
        # second part of an answer waits for the client's acknowledgement of the first: 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise SettingsError(f"{settings}: can't listen on {host}:{port} ({error})") from None
    with listener:
        listener.setblocking(False)
        yield listener


def allow_open_files(wanted: int, *, setting: str) -> None:
    """Raise the limit of open files: each connection is one, and many systems allow 1,024 by default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if possible > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    if possible < wanted and soft < wanted:
        log.warning(f"fewer connections than {setting} are possible", open_files=possible)


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def service_url(configured: str, host: str, port: int, *, tls: bool = False) -> str:
    """Where browsers find one of our services: as configured, else where it listens."""
    reachable = "127.0.0.1" if host in {"0.0.0.0", "::", ""} else host  # noqa: S104  # compared, not listened on
    return configured or f"{'https' if tls else 'http'}://{in_url(reachable)}:{port}"
