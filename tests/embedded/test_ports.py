"""A configured port that something else listens on is refused by the name of its setting."""

import socket
from collections.abc import Iterator

import pytest

from clientmgr.base.errors import EmbeddedServerError
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.local.embedded.redis import EmbeddedRedis
from clientmgr.local.embedded.server import EmbeddedServer, ensure_port_is_free, free_port, port_is_free
from tests.process_table import mentioning

pytestmark = pytest.mark.server


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("server_type", "setting"), [(EmbeddedPostgres, "POSTGRES_PORT"), (EmbeddedRedis, "REDIS_PORT")]
)
def test_a_server_refuses_a_taken_port(
    server_type: type[EmbeddedServer], setting: str, taken_port: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("server")
    with pytest.raises(EmbeddedServerError) as caught:
        server_type(folder, port=taken_port).start()
    assert str(caught.value) == (
        f"port {taken_port} ({setting}) can't be used: Address already in use. Choose another one, or 0 for a free one."
    )
    assert not mentioning(folder)


def test_a_free_port_can_be_listened_on() -> None:
    port = free_port()
    ensure_port_is_free(port, "ANY_PORT")
    assert port_is_free(port)


def test_a_port_that_somebody_listens_on_everywhere_is_taken() -> None:
    with socket.create_server(("", 0)) as listener:
        assert not port_is_free(listener.getsockname()[1])


def test_another_free_port_is_tried_when_somebody_was_faster(
    redis: EmbeddedRedis, taken_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = [taken_port, taken_port, free_port()]
    monkeypatch.setattr("clientmgr.local.embedded.server.free_port", lambda: offered.pop(0) if offered else free_port())
    redis.start()
    assert offered == []
    assert redis.port != taken_port
