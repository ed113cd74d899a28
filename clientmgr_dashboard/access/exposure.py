"""Who can reach the dashboard: this machine alone, or others, who then have to sign in."""

from clientmgr.base import exposure
from clientmgr.base.settings import Settings


def ensure_not_open_to_others(settings: Settings) -> None:
    """Refuse to serve others than this machine without users."""
    exposure.ensure_not_open_to_others(
        "the dashboard",
        "DASHBOARD_HOST",
        settings.dashboard_host,
        protected=bool(settings.dashboard_users_file),
        protect_by="set DASHBOARD_USERS_FILE to a file with lines from `clientmgr dashboard user`",
    )
