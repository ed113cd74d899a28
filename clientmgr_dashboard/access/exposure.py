"""Who can reach the dashboard and Dagster's UI: this machine alone, or others, who then have to sign in."""

from clientmgr.base import exposure
from clientmgr.base.settings import Settings

_PROTECT_BY = "set DASHBOARD_USERS_FILE to a file with lines from `clientmgr dashboard user`"


def ensure_not_open_to_others(settings: Settings) -> None:
    """Refuse to serve others than this machine without users."""
    _ensure("the dashboard", "DASHBOARD_HOST", settings.dashboard_host, settings)


def ensure_dagster_is_not_open_to_others(settings: Settings) -> None:
    """So with Dagster's UI: who may use it can delete accounts."""
    _ensure("Dagster's UI", "DAGSTER_HOST", settings.dagster_host, settings)


def _ensure(listener: str, host_setting: str, host: str, settings: Settings) -> None:
    protected = bool(settings.dashboard_users_file)
    exposure.ensure_not_open_to_others(listener, host_setting, host, protected=protected, protect_by=_PROTECT_BY)
