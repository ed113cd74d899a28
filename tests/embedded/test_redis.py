"""The embedded Redis protocol server: closed to whoever has no password, and back with its data after any end."""

import os
import signal
import stat
from pathlib import Path

import pytest
import redis as client_library

from clientmgr.local.embedded.redis import EmbeddedRedis
from clientmgr.local.embedded.server import free_port
from tests.process_table import mentioning
from tests.waiting import eventually

pytestmark = pytest.mark.server


def connect(url: str) -> client_library.Redis:
    return client_library.Redis.from_url(url, decode_responses=True)


def read(server: EmbeddedRedis, key: str) -> object:
    with connect(server.url) as client:
        return client.get(key)


def write(server: EmbeddedRedis, key: str, value: str) -> None:
    with connect(server.url) as client:
        client.set(key, value)


def test_it_listens_on_a_free_port(redis: EmbeddedRedis) -> None:
    redis.start()
    assert redis.port > 0
    write(redis, "greeting", "hello")
    assert read(redis, "greeting") == "hello"


def test_it_listens_on_the_configured_port(tmp_path: Path) -> None:
    port = free_port()
    server = EmbeddedRedis(tmp_path / "redis", port=port)
    server.start()
    try:
        assert server.url.endswith(f"@127.0.0.1:{port}/0")
        assert read(server, "nothing") is None
    finally:
        server.stop()


def test_nobody_gets_in_without_the_password(redis: EmbeddedRedis) -> None:
    redis.start()
    for url in (redis.url.replace(f":{redis.password}@", ""), redis.url.replace(redis.password, "wrong")):
        with connect(url) as client, pytest.raises(client_library.AuthenticationError):
            client.get("anything")


def test_its_secrets_and_data_are_readable_by_their_owner_alone(redis: EmbeddedRedis) -> None:
    before = os.umask(0)
    try:
        redis.start()
    finally:
        os.umask(before)
    for secret in ("password", "redis.conf"):
        assert stat.S_IMODE((redis.folder / secret).stat().st_mode) == 0o600
    assert stat.S_IMODE(redis.folder.stat().st_mode) == 0o700


def test_the_password_is_in_no_command_line(redis: EmbeddedRedis) -> None:
    redis.start()
    assert mentioning(redis.folder)
    assert not mentioning(redis.password)


def test_data_is_kept_across_a_restart(redis: EmbeddedRedis) -> None:
    redis.start()
    write(redis, "kept", "42")
    redis.stop()
    assert not mentioning(redis.folder)
    redis.start()
    assert read(redis, "kept") == "42"


def test_a_crashed_server_comes_back_on_its_port_with_its_data(redis: EmbeddedRedis) -> None:
    redis.start()
    url = redis.url
    write(redis, "kept", "42")
    redis.crash()
    with connect(url) as client, pytest.raises(client_library.ConnectionError):
        client.get("kept")
    redis.restart_on_same_port()
    assert redis.url == url
    assert read(redis, "kept") == "42"
    assert "User requested shutdown" not in (redis.folder / "server.previous.log").read_text(), "the crash was none"


def test_the_end_of_a_killed_server_is_noticed(redis: EmbeddedRedis) -> None:
    redis.start()
    assert redis.exit_code() is None
    os.kill(int((redis.folder / "redis.pid").read_text()), signal.SIGKILL)
    assert eventually(redis.exit_code, "the end is noticed") == 128 + signal.SIGKILL


def test_its_folder_may_have_any_name(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path / 'it\'s a "folder" \\ ü $HOME')
    server.start()
    try:
        write(server, "greeting", "hello")
        assert (server.folder / "appendonlydir").is_dir()
    finally:
        server.stop()
