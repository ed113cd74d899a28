"""Where Dagster is: its UI, and its own tables in PostgreSQL."""

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings

DAGSTER_SCHEMA = "dagster"


def dagster_database_url(settings: Settings) -> str:
    return settings.dagster_database_url or Database.from_settings(settings).url_in_schema(DAGSTER_SCHEMA)


def ui_url(settings: Settings) -> str:
    return f"http://{settings.dagster_host}:{settings.dagster_port}"
