"""The HTTP intake."""

from pydantic import Field, SecretStr

from clientmgr.base.settings.kinds import Port, StrongKey


class HttpIntake:
    """HTTP intake"""

    intake_host: str = Field(
        "127.0.0.1",
        description="Address of the HTTP intake. One that others can reach needs INTAKE_TLS_CERTIFICATE or "
        "INTAKE_TLS_BY_PROXY.",
    )
    intake_port: Port = Field(8789, description="Port of the HTTP intake. 0: a free one.")
    intake_tls_certificate: str = Field(
        "", description="PEM file with the intake's certificate. Empty: plain HTTP, for loopback or behind a proxy."
    )
    intake_tls_key: str = Field("", description="PEM file with the certificate's key.")
    intake_tls_by_proxy: bool = Field(
        False, description="A proxy in front of the intake does TLS, and nobody reaches the intake past it."
    )
    intake_trusted_proxies: str = Field(
        "",
        description="Addresses and networks of the proxies in front of the intake, with commas. Their "
        "X-Forwarded-For says who asks; nobody else's does.",
    )
    intake_signing_key: StrongKey = Field(
        SecretStr(""),
        description="Key that the secrets of `app` keys are derived from; with another one they all stop. "
        "Empty: made and kept in DATA_DIR.",
    )
    intake_max_connections: int = Field(
        2000,
        ge=10,
        description="Connections to the intake. Where it is full, the one that kept it waiting longest is closed.",
    )
    intake_max_connections_per_address: int = Field(
        200,
        ge=2,
        description="Connections to the intake from one address (IPv6: one /64), unless a trusted proxy has it.",
    )
    intake_max_body_bytes: int = Field(
        1_048_576, ge=1024, le=16_777_216, description="Largest body of a request to the intake."
    )
    intake_max_events: int = Field(500, ge=1, le=10_000, description="Events in one request to the intake.")
    intake_key_events_per_s: float = Field(
        2000.0, gt=0, description="Events a second that one key may send in the long run. More are answered with 429."
    )
    intake_address_events_per_s: float = Field(
        100.0,
        gt=0,
        description="Events a second from one address (IPv6: one /64) in the long run, and requests without a valid "
        "key. Those with a `server` key do not count.",
    )
    intake_burst_s: float = Field(
        5.0, ge=1, le=3600, description="So many seconds' worth of events may come at once after a while of silence."
    )
