"""How the gateway is protected where others reach it, checked at start: identities, TLS, what belongs together."""

import ssl
from pathlib import Path
from typing import Any

import grpc

from clientmgr.base.errors import SettingsError
from clientmgr.base.exposure import ensure_not_open_to_others, is_loopback
from clientmgr.base.private_files import ensure_private
from clientmgr.base.settings import Settings
from clientmgr.broker.gateway.callers import Access
from clientmgr.broker.gateway.identities import SETTING, Identities
from clientmgr.broker.gateway.names import Names

CERTIFICATE, KEY = "PUBSUB_GATEWAY_TLS_CERTIFICATE", "PUBSUB_GATEWAY_TLS_KEY"
CLIENT_CA = "PUBSUB_GATEWAY_CLIENT_CA"


def access(settings: Settings, names: Names) -> Access:
    """Who may call. Raises SettingsError where that would let in others than it is meant for."""
    host = settings.pubsub_gateway_host
    ensure_not_open_to_others(
        "the Pub/Sub gateway",
        "PUBSUB_GATEWAY_HOST",
        host,
        protected=bool(settings.pubsub_gateway_identities),
        protect_by=f"set {SETTING} to a file that says who may call, and {CERTIFICATE} and {KEY}",
    )
    if not settings.pubsub_gateway_identities:
        if settings.pubsub_gateway_client_ca:
            raise SettingsError(f"{CLIENT_CA}: set, but no {SETTING} says what those with certificates may do")
        return Access(None, names)
    encrypted = bool(settings.pubsub_gateway_tls_certificate) or settings.pubsub_gateway_tls_by_proxy
    if not encrypted and not is_loopback(host):
        raise SettingsError(
            f"{CERTIFICATE}: expected a certificate and its key, because whoever is between a client and {host} could "
            "read the tokens; PUBSUB_GATEWAY_TLS_BY_PROXY=true says that a proxy does TLS"
        )
    identities = Identities(Path(settings.pubsub_gateway_identities))
    if identities.know_certificates and not settings.pubsub_gateway_client_ca:
        raise SettingsError(f"{CLIENT_CA}: expected who signs clients' certificates, which {SETTING} names")
    return Access(identities, names, certificates=bool(settings.pubsub_gateway_client_ca))


def server_credentials(settings: Settings) -> Any:
    """For `add_secure_port`; None: no TLS. Files that gRPC would not get on with are refused by name."""
    certificate, key = settings.pubsub_gateway_tls_certificate, settings.pubsub_gateway_tls_key
    client_ca = settings.pubsub_gateway_client_ca
    if bool(certificate) != bool(key):
        raise SettingsError(f"{KEY if certificate else CERTIFICATE}: expected a file, since its counterpart is set")
    if client_ca and not certificate:
        raise SettingsError(f"{CLIENT_CA}: certificates of clients need TLS: set {CERTIFICATE} and {KEY}")
    if not certificate:
        return None
    chain, secret = pem(certificate, CERTIFICATE), pem(key, KEY)
    ensure_private(Path(key), KEY)
    check = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        check.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, OSError) as error:
        raise SettingsError(f"{CERTIFICATE}: {certificate} and {key} are no certificate and its key: {error}") from None
    if client_ca:
        try:
            check.load_verify_locations(client_ca)
        except (ssl.SSLError, OSError) as error:
            raise SettingsError(f"{CLIENT_CA}: {client_ca} has no certificate: {error}") from None
    return grpc.ssl_server_credentials(
        [(secret, chain)], pem(client_ca, CLIENT_CA) if client_ca else None, require_client_auth=bool(client_ca)
    )


def pem(file: str, setting: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise SettingsError(f"{setting}: {file} can't be read: {error.strerror}") from None
