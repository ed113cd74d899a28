"""What a query and a connection string become on a cluster's node."""

from psycopg.conninfo import conninfo_to_dict

from clientmgr.base.customer_ids import CustomerId
from clientmgr_dagster.spark.nodes import conninfo_of, named_on
from clientmgr_dagster.spark.packing import HERE, Place

TWELVE = CustomerId(12)
QUERY = """SELECT pg_total_relation_size('"tenant_12".devices'::regclass) FROM "tenant_12".devices, "tenant_12".links"""


def test_a_slice_is_asked_of_the_shards_and_all_else_by_the_tables_own_names() -> None:
    place = Place("a:1", (("devices", 102008), ("links", 102009)), "moment")

    assert named_on(QUERY, TWELVE, place) == (
        """SELECT pg_total_relation_size('"tenant_12".devices_102008'::regclass) """
        """FROM "tenant_12".devices_102008, "tenant_12".links_102009"""
    )
    assert named_on(QUERY, TWELVE, HERE) == named_on(QUERY, TWELVE, Place("a:1")) == QUERY
    assert named_on(QUERY, CustomerId(1), place) == QUERY


def test_a_node_is_asked_with_the_same_login() -> None:
    login = "postgresql://reader:secret@coordinator:5432/clientmgr?hostaddr=10.0.0.1&options=-c%20role%3Dx"

    found = conninfo_to_dict(conninfo_of(login, "worker-1:5433"))

    assert (found["host"], found["port"], found["user"], found["password"]) == ("worker-1", "5433", "reader", "secret")
    assert found["options"] == "-c role=x"
    assert "hostaddr" not in found
