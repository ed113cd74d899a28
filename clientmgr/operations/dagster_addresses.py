"""Where Dagster is: its UI, and its own tables in PostgreSQL."""

import ssl

from clientmgr.base.database import Database
from clientmgr.base.listening import in_url
from clientmgr.base.settings import Settings

DAGSTER_SCHEMA = "dagster"


def dagster_database_url(settings: Settings) -> str:
    return settings.dagster_database_url or Database.from_settings(settings).url_in_schema(DAGSTER_SCHEMA)


def ui_url(settings: Settings) -> str:
    scheme = "https" if settings.dashboard_tls_certificate else "http"
    return f"{scheme}://{in_url(settings.dagster_host)}:{settings.dagster_port}"


def trusting_own_certificate(settings: Settings) -> ssl.SSLContext | None:
    """For our own calls of the UI where it has the dashboard's certificate: that one counts, whatever names it has."""
    if not settings.dashboard_tls_certificate:
        return None
    context = ssl.create_default_context(cafile=settings.dashboard_tls_certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
