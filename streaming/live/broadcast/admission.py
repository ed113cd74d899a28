"""Which requests are answered: by the host they ask for, and the page that sent them."""

from urllib.parse import urlsplit

from websockets.http11 import Request

from clientmgr.base.exposure import is_loopback
from clientmgr.base.listening import in_url
from clientmgr.base.settings import Settings

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


def own_hosts(settings: Settings) -> frozenset[str] | None:
    """The hosts that a request may ask for. None: any.

    On a loopback address the browser's name for us is what tells our page from one whose name was made to point here
    (DNS rebinding). On any other address nothing is served without a token, and a foreign page has none.
    """
    if not is_loopback(settings.live_ws_host):
        return None
    named = {urlsplit(settings.live_url).hostname or ""} if settings.live_url else set()
    return frozenset({*_LOOPBACK_NAMES, in_url(settings.live_ws_host).lower(), *(in_url(name) for name in named)})


def host_is_own(request: Request, own: frozenset[str] | None) -> bool:
    """Whether the request is for us. The port does not matter: a tunnel may lead here from another one."""
    hosts = request.headers.get_all("Host")
    if len(hosts) != 1:
        return False  # HTTP wants exactly one
    host = hosts[0].lower()
    name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    return own is None or name in own


def origin_is_allowed(request: Request, allowed: str) -> bool:
    """Whether the page that connects, if it is a page, was served by us or is on the list."""
    origins = request.headers.get_all("Origin")
    if not origins:
        return True  # not a page: browsers always send it
    others = {other.strip().rstrip("/") for other in allowed.split(",")}
    if "*" in others or (len(origins) == 1 and origins[0] in others):
        return True
    try:
        return len(origins) == 1 and urlsplit(origins[0]).netloc == request.headers.get("Host")
    except ValueError:
        return False  # not an address
