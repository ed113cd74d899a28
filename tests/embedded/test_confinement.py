"""An embedded server reads none of our keys, not even for its superuser."""

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from clientmgr.local.children.confinement import landlock_version
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.local.embedded.redis import EmbeddedRedis
from tests.embedded.conftest import SMALL
from tests.process_table import mentioning

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock, and says so in the log"),
]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Of a data folder."""
    file = tmp_path / "audit_hash_key"
    file.write_text("key")
    return file


@pytest.fixture
def superuser(keys: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection]:
    """Whoever has become the superuser of a server beside the keys."""
    monkeypatch.setenv("AUDIT_HASH_KEY", "key-in-the-environment")
    server = EmbeddedPostgres(keys.parent / "postgres", tuning=SMALL)
    server.start()
    with psycopg.connect(server.superuser_url(), autocommit=True) as connection:
        connection.execute("CREATE TEMPORARY TABLE seen (line text)")
        yield connection
    server.stop()


def output(superuser: psycopg.Connection, command: str) -> str:
    superuser.execute("TRUNCATE seen")
    superuser.execute(f"COPY seen FROM PROGRAM '{command}'".encode())
    return "\n".join(line for (line,) in superuser.execute("SELECT line FROM seen"))


def test_postgresql_s_superuser_reads_no_key_and_touches_no_process_of_ours(
    superuser: psycopg.Connection, keys: Path
) -> None:
    assert output(superuser, "echo it runs programs") == "it runs programs"
    assert "key-in-the-environment" not in output(superuser, "env")
    for command in (
        f"cat {keys}",
        f"ls {keys.parent}",
        f"cat {keys.parent}/postgres/password",
        f"cat {keys.parent}/postgres/clientmgr_owner_password",
        f"cat /proc/{os.getpid()}/environ",
        f"kill -0 {os.getpid()}",
        f"touch {keys.parent}/planted",
        "cat /etc/shadow",
    ):
        with pytest.raises(psycopg.errors.ExternalRoutineException):
            output(superuser, command)
    for function in ("pg_read_file", "pg_ls_dir"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            superuser.execute(f"SELECT {function}(%s)".encode(), (str(keys if "file" in function else keys.parent),))


def test_redis_is_confined_too(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path / "redis")
    server.start()
    try:
        (pid,) = [one.pid for one in mentioning(tmp_path) if "guardian" not in " ".join(one.cmdline())]
        assert "NoNewPrivs:\t1" in Path(f"/proc/{pid}/status").read_text()
        assert Path(f"/proc/{pid}/environ").read_text().count("=") < 8
    finally:
        server.stop()
