"""Adding an asset per tenant takes four files, and nothing else has to know of it: `docs/how_to.md` says how.

Here they are added to a copy of `sql/` and to a package beside `defs/`. The asset is found, computed by Spark for a
chunk of tenants, and emptied by an account deletion.
"""

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from clientmgr.base import migrations as base_migrations
from clientmgr.base import sqlfiles
from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.operations import migrations
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster.definitions import build_definitions
from clientmgr_dagster.partitions import partition_range
from clientmgr_dagster.spark.registration import register_once
from clientmgr_dagster.spark.results_writer import results_writer
from tests.spark.tenants import BROKEN, EMPTY, ORDINARY, Tenants

FILES = {
    "sql/muted_devices/0001_muted_devices.sql": """
        CREATE TABLE clientmgr.muted_devices (
            customer_id bigint NOT NULL,
            client_id text NOT NULL,
            platform text,
            PRIMARY KEY (customer_id, client_id)
        );
        CREATE UNLOGGED TABLE clientmgr.muted_devices_staged (
            LIKE clientmgr.muted_devices,
            attempt_id text NOT NULL,
            staged_at timestamptz NOT NULL DEFAULT now()
        );
        GRANT SELECT, INSERT, DELETE ON clientmgr.muted_devices, clientmgr.muted_devices_staged TO clientmgr_writer;
        GRANT SELECT ON clientmgr.muted_devices TO clientmgr_reader;
    """,
    "sql/muted_devices/results/muted_devices.sql": """
        -- name: staged
        SELECT count(*) FROM clientmgr.muted_devices_staged WHERE attempt_id = ANY(%(attempts)s::text []);

        -- name: clear
        DELETE FROM clientmgr.muted_devices WHERE customer_id = ANY(%(customers)s::bigint []);

        -- name: move
        INSERT INTO clientmgr.muted_devices (customer_id, client_id, platform)
        SELECT s.customer_id, s.client_id, s.platform
        FROM clientmgr.muted_devices_staged AS s
        JOIN clientmgr.tenants AS t ON t.customer_id = s.customer_id AND t.status = 'active'
        WHERE s.attempt_id = ANY(%(attempts)s::text []) AND s.customer_id = ANY(%(customers)s::bigint []);

        -- name: forget
        DELETE FROM clientmgr.muted_devices_staged
        WHERE attempt_id = ANY(%(attempts)s::text []) OR staged_at < now() - interval '1 day';
    """,
    "more_defs/muted_devices/transform.py": """
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F


        def muted(devices: DataFrame) -> DataFrame:
            # Whose owner turned push messages off; and tenants that could not be read.
            found = devices.filter(F.col("error").isNotNull() | ~F.col("push_enabled"))
            return found.drop("push_enabled")
    """,
    "more_defs/muted_devices/assets.py": """
        import dagster as dg

        from clientmgr.base.database import Role
        from clientmgr_dagster.chunks import active_customers_of, written
        from clientmgr_dagster.failing import fail_if_tenants_failed
        from clientmgr_dagster.metadata import log_partitions, log_summary
        from clientmgr_dagster.policies import PER_TENANT
        from clientmgr_dagster.resources import TenantsResource
        from clientmgr_dagster.spark.devices import read_devices
        from clientmgr_dagster.spark.results_writer import ResultWrite, write_results
        from clientmgr_dagster.spark.session import SparkResource
        from more_defs.muted_devices.transform import muted

        NAME = "muted_devices"


        @dg.asset(**PER_TENANT, deps=["devices"], group_name=NAME, pool="spark", output_required=False)
        def muted_devices(context: dg.AssetExecutionContext, tenants: TenantsResource, spark: SparkResource):
            customers = active_customers_of(context, tenants)
            devices = read_devices(
                spark.spark_session,
                tenants.database,
                tenants.settings,
                customers,
                ["client_id", "platform", "push_enabled"],
                failures_as_rows=True,
            )
            write = ResultWrite(NAME, context.run.run_id, NAME, tuple(customers))
            write_results(muted(devices), tenants.database.conninfo(Role.WRITER), write)
            counts, failures = written(tenants, write)
            log_partitions(context, NAME, ((one, {"dagster/row_count": count}) for one, count in counts.items()))
            log_summary(context, NAME, counts, unit="devices")
            fail_if_tenants_failed(tenants, customers, failures)
            yield from ()  # each tenant's partition is materialised already


        muted_devices_job = dg.define_asset_job("muted_devices_job", dg.AssetSelection.assets(NAME))
    """,
}

# Spark's workers are processes of their own: this is how they come to know of the copy.
FOR_WORKERS = """
from pathlib import Path
from clientmgr.base import sqlfiles
sqlfiles.sql_root = lambda: Path({sql!r})
"""


@pytest.fixture
def four_more_files(
    spark: SparkSession, database: Database, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModuleType]:
    """The package that the asset is in."""
    shutil.copytree(sqlfiles.sql_root(), tmp_path / "sql")
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text).lstrip())
    for package in ("more_defs", "more_defs/muted_devices"):
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "sitecustomize.py").write_text(FOR_WORKERS.format(sql=str(tmp_path / "sql")))
    for module in (sqlfiles, base_migrations, migrations):
        monkeypatch.setattr(module, "sql_root", lambda: tmp_path / "sql")
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.MonkeyPatch.context() as workers:
        # Of Spark's workers only those that write need the copy. The others are shared with all tests. These are new
        # Pythons: one that the nursery forks has imported what it needs, and looks at no PYTHONPATH.
        workers.setattr(spark.sparkContext, "pythonExec", sys.executable)
        workers.setitem(spark.sparkContext.environment, "PYTHONPATH", str(tmp_path))
        register_once(spark, results_writer, database.conninfo(Role.WRITER))
    sqlfiles.result_tables.cache_clear()
    yield importlib.import_module("more_defs")
    sqlfiles.result_tables.cache_clear()
    for module_name in [name for name in sys.modules if name.split(".")[0] == "more_defs"]:
        del sys.modules[module_name]


def test_an_asset_per_tenant_works_from_four_files_on(
    four_more_files: ModuleType, database: Database, tenants: Tenants, instance: dg.DagsterInstance
) -> None:
    assert migrations.migrate_database(database) == ["muted_devices/0001_muted_devices.sql"]
    everybody = (ORDINARY, EMPTY, BROKEN)
    tenants.activate(*everybody)
    for customer in everybody:
        tenants.add_devices(customer, 200)
    tenants.break_tenant(BROKEN)
    instance.add_dynamic_partitions("tenants", [str(customer) for customer in everybody])

    result = (
        build_definitions(four_more_files)
        .resolve_job_def("muted_devices_job")
        .execute_in_process(instance=instance, tags=partition_range([str(ORDINARY), str(BROKEN)]), raise_on_error=False)
    )

    assert rows(tenants) == [(ORDINARY, 40), (EMPTY, 40)]
    assert instance.get_materialized_partitions(dg.AssetKey("muted_devices")) == {str(ORDINARY), str(EMPTY)}
    assert not result.success
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    assert "1 of 3 tenants" in str(failure.step_failure_data.user_failure_data)

    deleted = TenantSchemaManager(database, tenants.settings).delete(ORDINARY, actor="test")

    assert deleted.rows_deleted == 200
    assert rows(tenants) == [(EMPTY, 40)]
    ((details,),) = tenants.query("SELECT details FROM clientmgr.audit_log WHERE outcome = 'dropped'")
    assert details == {"muted_devices": 40}


def rows(tenants: Tenants) -> list[tuple[CustomerId, int]]:
    return tenants.query("SELECT customer_id, count(*) FROM clientmgr.muted_devices GROUP BY 1 ORDER BY 1")
