"""Google Pub/Sub, and the gateway that speaks its protocol."""

from pydantic import Field

from clientmgr.base.settings.kinds import Port


class PubSub:
    """Google Pub/Sub"""

    pubsub_project: str = Field("client-manager", description="Google Cloud project of the topics.")
    pubsub_emulator_host: str = Field(
        "",
        description="host:port of a Pub/Sub emulator or of our gateway, as Google's client reads it. Empty: Google's.",
    )
    pubsub_gateway_address: str = Field(
        "", description="host:port of a gateway that is reached with TLS. Empty: PUBSUB_EMULATOR_HOST, or Google."
    )
    pubsub_token_file: str = Field("", description="File with the token that our own clients show to a gateway.")
    pubsub_tls_ca: str = Field(
        "", description="PEM file of who signed the gateway's certificate. Empty: who the system trusts."
    )
    pubsub_tls_certificate: str = Field("", description="PEM file of our own certificate, for a gateway with mTLS.")
    pubsub_tls_key: str = Field("", description="PEM file of our certificate's key, for its owner's eyes only.")
    pubsub_create_missing: bool = Field(
        True, description="Create missing topics and subscriptions. False: name them and stop."
    )
    pubsub_ack_deadline_s: int = Field(60, ge=10, le=600, description="Acknowledgement deadline of our subscriptions.")
    pubsub_max_outstanding_messages: int = Field(
        1000, ge=1, description="Flow control: messages held by a consumer at once."
    )
    pubsub_max_outstanding_bytes: int = Field(
        100 * 1024 * 1024, ge=1, description="Flow control: bytes held by a consumer at once."
    )
    pubsub_dead_letter_topic: str = Field(
        "",
        description="Dead-letter topic put on subscriptions that we create. Empty: none, our own error topics serve.",
    )
    pubsub_max_delivery_attempts: int = Field(
        10, ge=5, le=100, description="Deliveries before Pub/Sub moves a message to the dead-letter topic."
    )


class PubSubGateway:
    """Pub/Sub gateway"""

    pubsub_gateway_host: str = Field("127.0.0.1", description="Address that `clientmgr pubsub-gateway` listens on.")
    pubsub_gateway_port: Port = Field(
        8085, description="Port that `clientmgr pubsub-gateway` listens on. 0: a free one."
    )
    pubsub_gateway_identities: str = Field(
        "",
        description="File that says who may call the gateway and with which rights; `clientmgr pubsub-gateway token` "
        "makes entries. Empty: whoever reaches it may do everything, on loopback only.",
    )
    pubsub_gateway_tls_certificate: str = Field(
        "", description="PEM file of the gateway's certificate and its chain. Empty: no TLS."
    )
    pubsub_gateway_tls_key: str = Field("", description="PEM file of the certificate's key, for its owner's eyes only.")
    pubsub_gateway_client_ca: str = Field(
        "", description="PEM file of who signs clients' certificates. Set: every client must show one (mTLS)."
    )
    pubsub_gateway_tls_by_proxy: bool = Field(
        False, description="A proxy in front of the gateway does TLS, and nobody reaches the gateway past it."
    )
    pubsub_gateway_max_bytes: int = Field(
        40_000_000,
        ge=10_500_000,
        description="Bytes of requests, and of answers, that the gateway holds at once, of all clients.",
    )
    pubsub_gateway_max_client_bytes: int = Field(
        21_000_000, ge=10_500_000, description="Bytes of requests, and of answers, that it holds at once of one client."
    )
    pubsub_gateway_max_connections: int = Field(
        1000,
        ge=10,
        description="Connections to the gateway. Where it is full, one that has said nothing yet is closed.",
    )
    pubsub_gateway_max_connections_per_address: int = Field(
        200,
        ge=2,
        description="Connections to the gateway from one address (IPv6: one /64), unless a proxy does its TLS.",
    )
    pubsub_gateway_max_topics: int = Field(1000, ge=0, description="Topics that a caller of the gateway may make.")
    pubsub_gateway_max_subscriptions: int = Field(
        1000, ge=0, description="Subscriptions that a caller of the gateway may make."
    )
