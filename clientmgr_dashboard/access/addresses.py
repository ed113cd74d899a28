"""Where our services listen, and at which addresses browsers find them."""

from urllib.parse import urlsplit

from clientmgr.base.listening import in_url
from clientmgr.base.settings import Settings

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


def own_hosts(host: str, port: int, url: str) -> frozenset[str]:
    """What a request's Host may be where nobody signs in: only names of this machine. Otherwise a web page whose name
    points to 127.0.0.1 (DNS rebinding) could use our pages. `url`: where browsers see the service, as configured."""
    names = LOOPBACK_NAMES | {in_url(host)}
    hosts = {f"{name}:{port}" for name in names} | ({*names} if port in (80, 443) else set())
    if url:
        hosts.add(urlsplit(url).netloc)
    return frozenset(one.lower() for one in hosts)


def dashboard_beside(settings: Settings, host: str) -> str:
    """Where the browser that asked Dagster for `host` finds the dashboard."""
    return settings.dashboard_url or _beside(settings, host, settings.dashboard_port)


def dagster_beside(settings: Settings, host: str) -> str:
    """Where the browser that asked the dashboard for `host` finds Dagster's UI."""
    return settings.dagster_url or _beside(settings, host, settings.dagster_port)


def _beside(settings: Settings, host: str, port: int) -> str:
    """Both are asked for under one name: cookies belong to a name and know no ports."""
    try:
        name = urlsplit(f"//{host}").hostname or "127.0.0.1"
    except ValueError:
        name = "127.0.0.1"
    return f"{'https' if settings.dashboard_tls_certificate else 'http'}://{in_url(name)}:{port}"
