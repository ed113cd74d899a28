"""The operators' dashboard."""

from pydantic import Field, SecretStr

from clientmgr.base.settings.kinds import OriginUrl, Port, StrongKey


class Dashboard:
    """Dashboard"""

    dashboard_host: str = Field(
        "127.0.0.1", description="Address of the dashboard. One that others can reach needs DASHBOARD_USERS_FILE."
    )
    dashboard_port: Port = Field(8788, description="Port of the dashboard. 0: a free one.")
    dashboard_users_file: str = Field(
        "",
        description="Who may sign in to the dashboard and to Dagster's UI: lines made by `clientmgr dashboard user`. "
        "Empty: no sign-in, on a loopback address only.",
    )
    dashboard_session_key: StrongKey = Field(
        SecretStr(""),
        description="Key that the dashboard's sessions are signed with. Empty: made and kept in DATA_DIR.",
    )
    dashboard_session_hours: float = Field(
        12.0, gt=0, le=24 * 30, description="How long a sign-in to the dashboard is good for."
    )
    dashboard_max_connections: int = Field(
        1000,
        ge=10,
        description="Connections to the dashboard. Where it is full, the one that kept it waiting longest is closed.",
    )
    dashboard_max_connections_per_address: int = Field(
        100,
        ge=2,
        description="Connections to the dashboard from one address (IPv6: one /64), unless a trusted proxy has it.",
    )
    dashboard_trusted_proxies: str = Field(
        "",
        description="Addresses and networks of the proxies in front of the dashboard, with commas. Their "
        "X-Forwarded-For says who asks; nobody else's does.",
    )
    dashboard_tls_certificate: str = Field(
        "",
        description="PEM file with the certificate of the dashboard and Dagster's UI. Empty: plain HTTP, for loopback "
        "or behind a proxy.",
    )
    dashboard_tls_key: str = Field("", description="PEM file with the certificate's key.")
    dashboard_url: OriginUrl = Field(
        "", description="Where browsers see the dashboard, where that is not DASHBOARD_HOST:DASHBOARD_PORT."
    )
    dashboard_cookie_domain: str = Field(
        "",
        pattern=r"^([A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+)?$",
        description="The domain above DASHBOARD_URL and DAGSTER_URL, where their host names differ: every host below "
        "it gets the session's cookie. Empty: only the dashboard's host name, whatever the port.",
    )
    live_url: OriginUrl = Field(
        "", description="Where browsers see the live page, where that is not LIVE_WS_HOST:LIVE_WS_PORT."
    )
    dagster_url: OriginUrl = Field(
        "", description="Where browsers see the Dagster UI, where that is not DAGSTER_HOST:DAGSTER_PORT."
    )
