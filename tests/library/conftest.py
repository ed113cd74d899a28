"""A database in which nobody but a library user has been."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from clientmgr.base.database import Database
from clientmgr.broker import SyncBroker, open_broker_sync
from clientmgr.local.embedded.postgres import EmbeddedPostgres

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def sync_broker(empty_database: Database) -> Iterator[SyncBroker]:
    """The plain broker, with a topic `orders` and its subscription `billing`."""
    with open_broker_sync(empty_database.url) as broker:
        broker.migrate()
        broker.ensure_topic("orders")
        broker.ensure_subscription("billing", "orders")
        yield broker


@pytest.fixture
def login(postgres_server: EmbeddedPostgres, empty_database: Database) -> Iterator[str]:
    """The connection string of a login `shop` that may connect, and nothing else."""
    name = conninfo_to_dict(empty_database.url)["dbname"]
    with psycopg.connect(postgres_server.superuser_url(str(name)), autocommit=True) as server:
        server.execute("CREATE ROLE shop LOGIN PASSWORD 'shop'")
        yield make_conninfo(empty_database.url, user="shop", password="shop")
        server.execute("DROP OWNED BY shop")
        server.execute("DROP ROLE shop")


@pytest.fixture
def writing_login(login: str, sync_broker: SyncBroker, postgres_server: EmbeddedPostgres) -> str:
    """`login`, after the one statement that docs/library.md names."""
    with psycopg.connect(postgres_server.superuser_url(), autocommit=True) as server:
        server.execute("GRANT clientmgr_writer TO shop")
    return login


@pytest.fixture
def fresh_process(tmp_path: Path) -> Run:
    """Runs Python code in a process of its own, with an empty folder and environment."""

    def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "program.py"
        file.write_text(code)
        return subprocess.run(
            [sys.executable, "-W", "error", file],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    return run
