"""Where Dagster is: its UI, and its own tables in PostgreSQL."""

from urllib.parse import quote

from clientmgr.base.connection_rights import connect_checked
from clientmgr.base.errors import SettingsError
from clientmgr.base.logins import DAGSTER, DAGSTER_SCHEMA
from clientmgr.base.settings import Settings


def dagster_database_url(settings: Settings) -> str:
    """As DAGSTER_DATABASE_URL says. Without it, DATABASE_URL's login acts as clientmgr_dagster."""
    if settings.dagster_database_url:
        return settings.dagster_database_url
    if not settings.database_url:
        raise SettingsError(f"DAGSTER_DATABASE_URL: not set, and this needs the login of {DAGSTER}")
    separator = "&" if "?" in settings.database_url else "?"
    options = quote(f"-csearch_path={DAGSTER_SCHEMA} -crole={DAGSTER}")
    return f"{settings.database_url}{separator}options={options}"


def ensure_dagster_login(settings: Settings) -> None:
    """Refuse to start Dagster on a login that can do more than Dagster needs: it opens its connections by itself."""
    connect_checked(dagster_database_url(settings)).close()


def ui_url(settings: Settings) -> str:
    return f"http://{settings.dagster_host}:{settings.dagster_port}"
