"""One furnished house for all tests of the dashboard, open to this machine and, on another port, with sign-in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from clientmgr.base.database import Database
from clientmgr.base.settings import load_settings
from clientmgr.local.embedded.server import free_port
from clientmgr_dashboard.access.authentication import COOKIE
from tests.dashboard.house import House, Visit, furnish, serving, sign_in, write_users
from tests.databases import Databases
from tests.keys import TEST_KEY


@pytest.fixture(scope="session")
def _furnished(_databases: Databases, _template: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The database that all houses are copies of: to furnish one takes a hundred times as long."""
    name = "furnished"
    _databases.create(name, _template)
    furnish(_house_on(_databases.on(name), tmp_path_factory.mktemp("furnishing")))
    return name


@pytest.fixture(scope="module")
def house(_databases: Databases, _furnished: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A file's own: what one file does in it, another need not know."""
    with _databases.throwaway(_furnished) as database:
        yield _house_on(database, tmp_path_factory.mktemp("house"))


@pytest.fixture
def spare_house(_databases: Databases, _furnished: str, tmp_path: Path) -> Iterator[House]:
    """One that may be left in any state."""
    with _databases.throwaway(_furnished) as database:
        yield _house_on(database, tmp_path)


def _house_on(database: Database, folder: Path) -> House:
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
    return House(settings, Database.from_settings(settings))


@pytest.fixture(scope="module")
def address(house: House) -> Iterator[str]:
    """The dashboard for whoever is at this machine."""
    with serving(house.settings) as address:
        yield address


@pytest.fixture(scope="module")
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
