"""Where DynamoDB, the legacy store, is: found out by AWS's own library, also for our own client of its queries.

AWS's library finds its credentials where it is asked. So an access can be passed to another process without a secret.
"""

import functools
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from clientmgr.base.settings import Settings, aws_region
from clientmgr.devices.legacy.connections import Address

REGION_OF_A_STAND_IN = "us-east-1"
"""The client needs a region, but a stand-in accepts any."""


@dataclass(frozen=True)
class Endpoint:
    """All that a request of our own needs."""

    url: str
    region: str
    credentials: Any
    """botocore's, which refresh themselves."""
    tls: ssl.SSLContext | None
    is_behind_proxy: bool

    @property
    def address(self) -> Address:
        parts = urlsplit(self.url)
        return Address(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80), self.tls)

    @property
    def host_header(self) -> str:
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else str(parts.hostname)
        return host if parts.port in (None, {"http": 80, "https": 443}[parts.scheme]) else f"{host}:{parts.port}"

    @property
    def path(self) -> str:
        return quote(urlsplit(self.url).path or "/", safe="/-_.~%")


@dataclass(frozen=True)
class DynamoDbAccess:
    """Where the table of devices is, with the limits of a request."""

    table: str
    endpoint: str = ""
    timeout_s: float = 5.0
    attempts: int = 3
    """Attempts of one request, with AWS's backoff between them."""
    connections: int = 1

    @classmethod
    def from_settings(cls, settings: Settings, *, attempts: int, connections: int = 1) -> "DynamoDbAccess":
        timeout_s = settings.dynamodb_timeout_ms / 1000
        return cls(settings.dynamodb_devices_table, settings.dynamodb_endpoint, timeout_s, attempts, connections)

    def client(self) -> Any:
        """AWS's own client, as boto3 has it: for scans and whatever else is rare."""
        return self._client(_session())

    def resolve(self) -> Endpoint:
        """Where AWS's library would send a query, and with whose keys. It reads files, and may ask servers for keys."""
        from botocore.exceptions import NoCredentialsError
        from botocore.httpsession import get_cert_path
        from botocore.utils import get_environ_proxies

        session = _session()
        client = self._client(session)
        try:
            url, region = client.meta.endpoint_url, client.meta.region_name
        finally:
            client.close()
        credentials = session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        tls = None
        if url.startswith("https:"):
            bundle = session.get_config_variable("ca_bundle")
            tls = ssl.create_default_context(cafile=get_cert_path(bundle or True))
        proxies = get_environ_proxies(url)
        return Endpoint(url, region, credentials, tls, is_behind_proxy=urlsplit(url).scheme in proxies)

    def _client(self, session: Any) -> Any:
        from botocore.config import Config

        endpoint = self.endpoint or None
        return session.create_client(
            "dynamodb",
            endpoint_url=endpoint,
            region_name=aws_region()
            or session.get_config_variable("region")
            or (REGION_OF_A_STAND_IN if endpoint else None),
            config=Config(
                connect_timeout=self.timeout_s,
                read_timeout=self.timeout_s,
                retries={"mode": "standard", "total_max_attempts": self.attempts},
                max_pool_connections=self.connections,
            ),
        )


def _session() -> Any:
    # Imported late: it takes most of a second, and processes that read only PostgreSQL do not need it.
    import botocore.session

    session = botocore.session.get_session()
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    return session


@functools.cache
def _loader(data_path: str | None) -> Any:
    """What AWS's library knows of all services: megabytes, which each session would read for itself."""
    from botocore.loaders import create_loader

    return create_loader(data_path)
