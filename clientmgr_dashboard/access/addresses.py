"""Where our services listen, and at which addresses browsers find them."""

from urllib.parse import urlsplit

from clientmgr.base.listening import in_url
from clientmgr.base.settings import Settings

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


def service_url(configured: str, host: str, port: int, *, tls: bool = False) -> str:
    """Where browsers find one of our services: as configured, else where it listens."""
    reachable = "127.0.0.1" if host in {"0.0.0.0", "::", ""} else host  # noqa: S104  # compared, not listened on
    return configured or f"{'https' if tls else 'http'}://{in_url(reachable)}:{port}"


def own_hosts(settings: Settings, port: int) -> frozenset[str]:
    """What a request's Host may be where nobody signs in: only names of this machine. Otherwise a web page whose name
    points to 127.0.0.1 (DNS rebinding) could use our pages."""
    names = LOOPBACK_NAMES | {in_url(settings.dashboard_host)}
    hosts = {f"{name}:{port}" for name in names} | ({*names} if port in (80, 443) else set())
    if settings.dashboard_url:
        hosts.add(urlsplit(settings.dashboard_url).netloc)
    return frozenset(host.lower() for host in hosts)
