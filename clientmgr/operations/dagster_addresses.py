"""Where Dagster is: its UI, and its own tables in PostgreSQL; and how its pages and the dashboard's find each other."""

import ssl
from urllib.parse import quote

from clientmgr.base.connection_rights import connect_checked
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import SettingsError
from clientmgr.base.listening import in_url, service_url
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
    scheme = "https" if settings.dashboard_tls_certificate else "http"
    return f"{scheme}://{in_url(settings.dagster_host)}:{settings.dagster_port}"


def ui_for_browsers(settings: Settings) -> str:
    tls = bool(settings.dashboard_tls_certificate)
    return service_url(settings.dagster_url, settings.dagster_host, settings.dagster_port, tls=tls)


def tenant_in_dagster(settings: Settings, asset: str, customer_id: CustomerId) -> str:
    """Where browsers find a tenant's partition of an asset."""
    return f"{ui_for_browsers(settings)}/assets/{asset}?view=partitions&partition={customer_id}"


def tenants_in_dashboard(settings: Settings) -> str:
    """Where browsers find the dashboard's page of tenants; one tenant's is below it."""
    tls = bool(settings.dashboard_tls_certificate)
    return f"{service_url(settings.dashboard_url, settings.dashboard_host, settings.dashboard_port, tls=tls)}/tenants"


def trusting_own_certificate(settings: Settings) -> ssl.SSLContext | None:
    """For our own calls of the UI where it has the dashboard's certificate: that one counts, whatever names it has."""
    if not settings.dashboard_tls_certificate:
        return None
    context = ssl.create_default_context(cafile=settings.dashboard_tls_certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
