"""Tokens, certificates and Google's clients that show them."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.cloud import pubsub_v1
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from clientmgr.base.private_files import write_private
from clientmgr.broker.gateway.identities import digest_of
from tests.gateway.conftest import Clients


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates that live for a day."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority of a test")])
        self.file = folder / "authority.pem"
        self.file.write_bytes(_pem(self._signed(self._name, self._key.public_key(), is_authority=True)))

    def pair(self, common_name: str, alternatives: Sequence[x509.GeneralName] = ()) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
        files = Pair(self._folder / f"{common_name}.pem", self._folder / f"{common_name}.key")
        files.certificate.write_bytes(_pem(self._signed(subject, key.public_key(), alternatives)))
        files.key.touch(mode=0o600)
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files

    def server_pair(self) -> Pair:
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return self.pair("gateway", names)

    def _signed(
        self,
        subject: x509.Name,
        public_key: Any,
        alternatives: Sequence[x509.GeneralName] = (),
        *,
        is_authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return builder.sign(self._key, hashes.SHA256())


class ShowToken(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):  # type: ignore[misc]
    """Plain metadata: gRPC itself gives credentials to nobody without TLS."""

    def __init__(self, token: str) -> None:
        self._header = ("authorization", f"Bearer {token}")

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(self._shown(details), request)

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        return continuation(self._shown(details), requests)

    def _shown(self, details: Any) -> Any:
        return details._replace(metadata=[*(details.metadata or ()), self._header])


def identities_file(folder: Path, **entries: str) -> Path:
    """Each identity's token is its name with -token."""
    file = folder / "identities.toml"
    write_identities(file, **entries)
    return file


def write_identities(file: Path, **entries: str) -> None:
    parts = []
    for name, rights in entries.items():
        tokens = "" if "certificate" in rights else f'tokens = [{{ sha256 = "{digest_of(token_of(name))}" }}]\n'
        parts.append(f"[{name}]\n{tokens}{rights}\n")
    write_private(file, "\n".join(parts))


def token_of(name: str) -> str:
    return f"{name}-token"


def channel_with_token(address: str, token: str) -> Any:
    return grpc.intercept_channel(grpc.insecure_channel(address), ShowToken(token))


def clients_on(channel: Any) -> Clients:
    """Google's own, on a channel of ours."""
    options = pubsub_v1.types.PublisherOptions(enable_message_ordering=True)
    return Clients(
        pubsub_v1.PublisherClient(publisher_options=options, transport=PublisherGrpcTransport(channel=channel)),
        pubsub_v1.SubscriberClient(transport=SubscriberGrpcTransport(channel=channel)),
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
