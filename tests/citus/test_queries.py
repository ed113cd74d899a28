"""Every statement on a tenant's tables is one that Citus can plan for the tenant's node."""

import re
from collections.abc import Callable, Iterator, Mapping

import pytest

from clientmgr.base.customer_ids import CustomerId, in_schema
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import named_queries, sql_root
from clientmgr.devices.queries import device_queries
from clientmgr.tenants.schema_manager import TenantSchemaManager
from tests.citus.cluster import ON_CLUSTER, WHY_SKIPPED

pytestmark = pytest.mark.skipif(not ON_CLUSTER, reason=WHY_SKIPPED)
TENANT = CustomerId(1)
ON_NODES_ALONE = {"CREATE", "GRANT", "COPY"}


def all_queries() -> Iterator[tuple[str, Mapping[str, str]]]:
    for file in sorted((sql_root() / "tenant" / "queries").glob("*.sql")):
        yield file.stem, device_queries(file.stem)
    for path in sorted(sql_root().glob("*/queries/*.sql")):
        if path.parent.parent.name != "tenant" and ':"schema"' in path.read_text():
            yield path.stem, named_queries(str(path.relative_to(sql_root())))


def test_citus_plans_every_query_on_a_tenants_tables(
    database: Database, settings_for: Callable[[Database], Settings]
) -> None:
    TenantSchemaManager(database, settings_for(database)).activate([TENANT], actor="test")
    refused, planned = [], 0
    with database.connect(Role.WRITER, autocommit=True) as connection:
        for file, queries in all_queries():
            for name, text in queries.items():
                query = re.sub(r"%\(in_\w+\)s", "true", in_schema(text, TENANT).rstrip(";"))
                if '"tenant_1"' not in query or re.sub(r"--.*\n", "", query).split()[0] in ON_NODES_ALONE:
                    continue
                query = re.sub(r"%\((size|most|limit|customer_id|contact_id)\)s", "1", query)
                parameters = dict.fromkeys(re.findall(r"%\((\w+)\)s", query)) | {"rows": "[]"}
                try:
                    plan = connection.execute(f"EXPLAIN {query}", parameters).fetchall()
                    lines = "\n".join(line for (line,) in plan)
                    # What the node says of it is only in its log. A part that is pulled lacks its parameters' types.
                    assert "Could not get remote plan" not in lines or "pull to coordinator" in lines, lines
                    planned += 1
                except Exception as error:  # noqa: BLE001  # all of them are told together
                    refused.append(f"{file}: {name}: {error}")
    assert not refused
    assert planned > 40
