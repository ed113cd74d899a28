"""One furnished house for all tests of the dashboard, open to this machine and, on another port, with sign-in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from clientmgr.base.database import Database, Role
from clientmgr.base.migrations import ensure_database_grants
from clientmgr.base.settings import load_settings
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.local.embedded.server import free_port
from clientmgr_dashboard.access.authentication import COOKIE
from tests.conftest import _throwaway_database
from tests.dashboard.house import House, Visit, furnish, serving, sign_in, write_users
from tests.keys import TEST_KEY


@pytest.fixture(scope="session")
def house(
    postgres_server: EmbeddedPostgres, _template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[House]:
    yield from _furnished(postgres_server, _template, tmp_path_factory.mktemp("house"))


@pytest.fixture
def spare_house(postgres_server: EmbeddedPostgres, _template: str, tmp_path: Path) -> Iterator[House]:
    """One that may be left in any state."""
    yield from _furnished(postgres_server, _template, tmp_path)


def _furnished(server: EmbeddedPostgres, template: str, folder: Path) -> Iterator[House]:
    for database in _throwaway_database(server, template):
        with database.connect(Role.OWNER) as connection:
            ensure_database_grants(connection)
        settings = load_settings(
            database_url=database.url,
            data_dir=folder,
            audit_hash_key=TEST_KEY,
            dashboard_port=0,
            # Nobody is there; a refused connection is quicker than a name that has to be found.
            live_ws_port=free_port(),
            dagster_port=free_port(),
            broker_wait_period_ms=50,
        )
        house = House(settings, Database.from_settings(settings))
        furnish(house)
        yield house


@pytest.fixture(scope="session")
def address(house: House) -> Iterator[str]:
    """The dashboard for whoever is at this machine."""
    with serving(house.settings) as address:
        yield address


@pytest.fixture(scope="session")
def guarded_address(house: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The dashboard with sign-in."""
    users: Path = write_users(tmp_path_factory.mktemp("users"))
    with serving(house.settings.model_copy(update={"dashboard_users_file": str(users)})) as address:
        yield address


@pytest.fixture
def visit(address: str) -> Iterator[Visit]:
    with Visit(base_url=address, timeout=30) as visit:
        yield visit


@pytest.fixture
def stranger(guarded_address: str) -> Iterator[Visit]:
    """Somebody who has not signed in."""
    with Visit(base_url=guarded_address, timeout=30) as visit:
        yield visit


@pytest.fixture
def viewer(guarded_address: str) -> Iterator[Visit]:
    """Signed in anew: some tests end everybody's sessions."""
    with Visit(base_url=guarded_address, timeout=30, cookies={COOKIE: sign_in(guarded_address, "vera")}) as visit:
        yield visit


@pytest.fixture
def operator(guarded_address: str) -> Iterator[Visit]:
    with Visit(base_url=guarded_address, timeout=30, cookies={COOKIE: sign_in(guarded_address, "otto")}) as visit:
        yield visit
