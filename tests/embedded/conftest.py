"""Folders of a PostgreSQL that is made once and copied: `initdb` takes seconds, a copy does not."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from clientmgr.local.embedded.postgres import EmbeddedPostgres, PostgresTuning
from clientmgr.local.embedded.redis import EmbeddedRedis

SMALL = PostgresTuning(shared_buffers="16MB", max_connections=20, fsync=False)


@pytest.fixture(scope="session")
def made_postgres(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "postgres"
    server = EmbeddedPostgres(folder, tuning=SMALL)
    server.start()
    server.stop()
    return folder


@pytest.fixture
def data_dir(tmp_path: Path, made_postgres: Path) -> Path:
    """A data folder in which PostgreSQL has run before."""
    folder = tmp_path / "data"
    shutil.copytree(made_postgres, folder / "postgres")
    return folder


@pytest.fixture
def postgres(data_dir: Path) -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL that is not started yet, and will not be left behind."""
    server = EmbeddedPostgres(data_dir / "postgres", tuning=SMALL)
    yield server
    server.stop()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """A Redis that is not started yet, and will not be left behind."""
    server = EmbeddedRedis(tmp_path / "redis")
    yield server
    server.stop()
