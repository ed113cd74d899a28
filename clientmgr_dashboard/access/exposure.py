"""Who can reach the dashboard: this machine alone, or others, who then have to sign in."""

import ipaddress

from clientmgr.base.errors import SettingsError
from clientmgr.base.settings import Settings


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def ensure_not_open_to_others(settings: Settings) -> None:
    """Refuse to serve others than this machine without users."""
    if not is_loopback(settings.dashboard_host) and not settings.dashboard_users_file:
        raise SettingsError(
            f"DASHBOARD_USERS_FILE: not set, and DASHBOARD_HOST {settings.dashboard_host} can be reached by others; "
            "make a file with lines from `clientmgr dashboard user`, or listen on 127.0.0.1"
        )
