"""What makes a cluster ready for tenants, and what is said of one that is not."""

import pytest

from clientmgr.base.citus import spreads_tenants
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import SettingsError
from clientmgr.operations.cluster import prepare_cluster
from tests.citus.cluster import ON_CLUSTER, WHY_SKIPPED
from tests.citus.conftest import Weak

pytestmark = pytest.mark.skipif(not ON_CLUSTER, reason=WHY_SKIPPED)


def test_a_node_that_is_not_let_in_to_is_named(database: Database, weak_node: Weak) -> None:
    weak_node.proxy.lose()

    with pytest.raises(SettingsError, match=f"127.0.0.1:{weak_node.proxy.port} does not let clientmgr_owner in"):
        prepare_cluster(database, "auto")

    prepare_cluster(database, "off")


def test_the_roles_act_on_every_node_and_control_tables_stay_on_the_coordinator(database: Database) -> None:
    prepare_cluster(database, "on")

    with database.connect(Role.DDL, autocommit=True) as connection:
        assert spreads_tenants(connection, "auto")
        assert not spreads_tenants(connection, "off")
        spread = connection.execute("SELECT logicalrelid::text FROM pg_dist_partition").fetchall()
    assert spread == []
