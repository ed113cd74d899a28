"""Where there is no Citus: told apart by one look, and CITUS=on refused."""

import pytest

from clientmgr.base.citus import spreads_tenants
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import SettingsError
from clientmgr.operations.migrations import migrate_database


@pytest.mark.parametrize("wanted", ["auto", "off"])
def test_tenants_of_a_plain_database_are_not_spread(database: Database, wanted: str) -> None:
    with database.connect(Role.DDL) as connection:
        assert not spreads_tenants(connection, wanted)


def test_on_names_the_database_that_is_no_coordinator(database: Database) -> None:
    with pytest.raises(SettingsError, match=r"CITUS=on, but PostgreSQL: database test_\w+ on .* no extension citus"):
        migrate_database(database, citus="on")
