"""TLS, tokens over it and clients' certificates: Google's clients, our own transport, and a stranger."""

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from google.api_core import exceptions

from clientmgr.base.database import Database
from clientmgr.base.private_files import write_private
from clientmgr.base.settings import load_settings
from clientmgr.broker.pubsub.client import PubSubClient
from tests.gateway.conftest import PROJECT, Clients
from tests.gateway.credentials import Authority, clients_on, identities_file, token_of
from tests.gateway.process import GatewayProcess

EVERYTHING = 'tenants = "all"\npublish = ["*"]\nsubscribe = ["*"]\nadmin = ["*"]'
Start = Callable[..., GatewayProcess]

# As docs/pubsub.md shows it.
STOCK_CLIENT = """
import sys
from google.cloud import pubsub_v1
from google.oauth2.credentials import Credentials

credentials = Credentials(token=sys.argv[2])
publisher = pubsub_v1.PublisherClient(credentials=credentials, client_options={"api_endpoint": sys.argv[1]})
publisher.create_topic(name=sys.argv[3])
print(publisher.publish(sys.argv[3], b"hello").result(timeout=20))
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def start(gateway_database: Database, authority: Authority, tmp_path: Path) -> Iterator[Start]:
    started: list[GatewayProcess] = []
    server = authority.server_pair()

    def run(**settings: Any) -> GatewayProcess:
        process = GatewayProcess(
            gateway_database,
            tmp_path / "gateway.log",
            pubsub_gateway_tls_certificate=server.certificate,
            pubsub_gateway_tls_key=server.key,
            **settings,
        )
        process.start()
        started.append(process)
        return process

    yield run
    for process in started:
        process.stop()


def topic_path() -> str:
    return f"projects/{PROJECT}/topics/tls-{uuid.uuid4().hex[:8]}"


def secure(address: str, credentials: Any) -> Clients:
    return clients_on(grpc.secure_channel(address, credentials))


def test_tokens_over_tls_with_googles_client_and_with_ours(start: Start, authority: Authority, tmp_path: Path) -> None:
    gateway = start(pubsub_gateway_identities=identities_file(tmp_path, boss=EVERYTHING))
    roots = authority.file.read_bytes()
    encrypted = grpc.ssl_channel_credentials(roots)
    token = grpc.access_token_call_credentials(token_of("boss"))
    clients = secure(gateway.address, grpc.composite_channel_credentials(encrypted, token))
    topic = clients.topic()
    subscription = clients.subscription(topic)
    clients.publish(topic, b"hello")
    assert clients.bodies(subscription) == [b"hello"]

    with pytest.raises(exceptions.Unauthenticated):
        secure(gateway.address, encrypted).publisher.get_topic(topic=topic, retry=None)
    with pytest.raises(exceptions.ServiceUnavailable):
        clients_on(grpc.insecure_channel(gateway.address)).publisher.get_topic(topic=topic, retry=None, timeout=5)

    stock = subprocess.run(
        [sys.executable, "-c", STOCK_CLIENT, gateway.address, token_of("boss"), topic_path()],
        env={**os.environ, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(authority.file)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert stock.stdout.strip() == "1", stock.stderr

    token_file = tmp_path / "token"
    write_private(token_file, token_of("boss") + "\n")
    own = PubSubClient(
        load_settings(
            pubsub_gateway_address=gateway.address, pubsub_tls_ca=str(authority.file), pubsub_token_file=str(token_file)
        ),
        retry_for_s=10,
    )
    assert asyncio.run(_exists(own, topic.rpartition("/")[2]))


async def _exists(client: PubSubClient, topic: str) -> bool:
    await client.open()
    try:
        return await client.topic_exists(topic)
    finally:
        await client.close()


def test_a_clients_certificate_is_an_identity(start: Start, authority: Authority, tmp_path: Path) -> None:
    gateway = start(
        pubsub_gateway_client_ca=authority.file,
        pubsub_gateway_identities=identities_file(
            tmp_path,
            crm=f'certificate = "crm"\n{EVERYTHING}',
            shop=f'certificate = "shop.example"\n{EVERYTHING}',
            other='tenants = "all"',
        ),
    )
    roots = authority.file.read_bytes()

    def shown(pair: Any) -> Any:
        return grpc.ssl_channel_credentials(roots, pair.key.read_bytes(), pair.certificate.read_bytes())

    crm, shop = authority.pair("crm"), authority.pair("the shop", [x509.DNSName("shop.example")])
    for pair in (crm, shop):
        secure(gateway.address, shown(pair)).publisher.create_topic(name=topic_path(), retry=None)
    with pytest.raises(exceptions.Unauthenticated):
        secure(gateway.address, shown(authority.pair("stranger"))).publisher.create_topic(name=topic_path(), retry=None)
    # Where a token is shown too, the token counts.
    both = grpc.composite_channel_credentials(shown(crm), grpc.access_token_call_credentials(token_of("other")))
    with pytest.raises(exceptions.PermissionDenied, match="other lacks the right"):
        secure(gateway.address, both).publisher.create_topic(name=topic_path(), retry=None)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    for credentials in (shown(Authority(foreign).pair("crm")), grpc.ssl_channel_credentials(roots)):
        with pytest.raises(exceptions.ServiceUnavailable):
            secure(gateway.address, credentials).publisher.create_topic(name=topic_path(), retry=None, timeout=5)
