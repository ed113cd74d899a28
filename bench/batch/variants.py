"""The ways to do the work: ours, Spark's JDBC as it comes, a Spark job per tenant, and SQL without Spark."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bench.batch.session import Driver
from bench.batch.workload import NOW, ORPHANED_BEFORE, Workload
from clientmgr.base.customer_ids import CustomerId, in_schema, quoted_schema
from clientmgr.base.database import Database, Role
from clientmgr.devices.queries import SILENT_SINCE, device_queries
from clientmgr_dagster.spark.orphans import find_orphans
from clientmgr_dagster.spark.tenant_metrics import collect_metrics
from clientmgr_dagster.spark.tenant_source import IN_CONTACTS, IN_PAGES

CONNECTIONS = 2
"""Of plain SQL: as many as a small machine has cores."""
FETCH_SIZE = "10000"
RUN_ID = "bench"

Task = Callable[[Driver, Workload], None]


@dataclass(frozen=True)
class Variant:
    """One way to do each work."""

    name: str
    tasks: dict[str, Task]
    most_tenants: int | None = None
    """It does the work of so many, and its time is scaled up."""

    def part_of(self, workload: Workload) -> Workload:
        if self.most_tenants is None or len(workload.customers) <= self.most_tenants:
            return workload
        return workload.with_customers(workload.customers[: self.most_tenants])

    def run(self, work: str, driver: Driver, workload: Workload) -> None:
        self.tasks[work](driver, workload)


def _find(driver: Driver, workload: Workload, customers: Sequence[CustomerId]) -> None:
    find_orphans(
        driver.spark,
        workload.database,
        workload.settings,
        customers,
        orphaned_before=ORPHANED_BEFORE,
        threshold=NOW - ORPHANED_BEFORE,
        found_at=NOW,
        run_id=RUN_ID,
    )


def _collect(driver: Driver, workload: Workload, customers: Sequence[CustomerId]) -> None:
    collect_metrics(
        driver.spark,
        workload.database,
        workload.settings,
        customers,
        orphaned_before=ORPHANED_BEFORE,
        collected_at=NOW,
        run_id=RUN_ID,
    )


def _for_each(task: Callable[[Driver, Workload, Sequence[CustomerId]], None]) -> Task:
    def run(driver: Driver, workload: Workload) -> None:
        for customer in workload.customers:
            task(driver, workload, [customer])

    return run


def _silent_since() -> Column:
    return F.greatest("orphaned_since", "last_seen_at")


def _is_orphan() -> Column:
    return F.col("contact_id").isNull() & (_silent_since() < F.lit(ORPHANED_BEFORE))


def _jdbc_orphans(driver: Driver, workload: Workload) -> None:
    found = _all_devices(driver, workload).filter(_is_orphan())
    columns = found.select(
        "customer_id",
        "application_code",
        "client_id",
        _silent_since().alias("silent_since"),
        F.lit(NOW).alias("found_at"),
    )
    _write(columns, workload, "bench.orphans")


def _jdbc_numbers(driver: Driver, workload: Workload) -> None:
    devices = _all_devices(driver, workload)
    created = F.col("created_at")
    numbers = devices.groupBy("customer_id").agg(
        F.count("*").alias("devices"),
        *(F.count_if(F.col("platform") == name).alias(name) for name in ("ios", "android", "web")),
        F.count_if(F.col("push_enabled")).alias("push_enabled"),
        *(
            F.count_if(F.col("push_token_status") == status).alias(f"tokens_{status}")
            for status in ("valid", "invalid")
        ),
        F.countDistinct("contact_id").alias("contacts"),
        F.count("contact_id").alias("linked_devices"),
        F.count_if(F.col("contact_id").isNull()).alias("without_contact"),
        F.count_if(_is_orphan()).alias("orphans"),
        F.count_if(created > F.lit(NOW) - F.expr("INTERVAL 24 HOURS")).alias("created_24h"),
        F.count_if(created > F.lit(NOW) - F.expr("INTERVAL 7 DAYS")).alias("created_7d"),
        F.max("updated_at").alias("last_write_at"),
    )
    _write(numbers, workload, "bench.numbers")


def _all_devices(driver: Driver, workload: Workload) -> DataFrame:
    """The tenants' tables put together as a tree: one after the other, Spark would take a minute to plan a thousand."""
    options = {**_jdbc_options(workload.database, Role.READER), "fetchsize": FETCH_SIZE}
    tables = [
        driver.spark.read.format("jdbc")
        .options(**options, dbtable=f"{quoted_schema(customer)}.devices")
        .load()
        .select(F.lit(int(customer)).alias("customer_id"), *_USED)
        for customer in workload.customers
    ]
    while len(tables) > 1:
        pairs = [tables[start : start + 2] for start in range(0, len(tables), 2)]
        tables = [pair[0].union(pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    return tables[0]


_USED = (
    *("application_code", "client_id", "contact_id", "orphaned_since", "last_seen_at", "platform", "push_enabled"),
    *("push_token_status", "created_at", "updated_at"),
)


def _jdbc_options(database: Database, role: Role) -> dict[str, str]:
    found = {name: str(value) for name, value in conninfo_to_dict(database.conninfo(role)).items()}
    return {
        "url": f"jdbc:postgresql://{found['host']}:{found['port']}/{found['dbname']}",
        "driver": "org.postgresql.Driver",
        "user": found["user"],
        "password": found.get("password", ""),
        "options": f"-c role={role}",
    }


def _write(rows: DataFrame, workload: Workload, table: str) -> None:
    options = _jdbc_options(workload.database, Role.WRITER)
    rows.write.format("jdbc").options(**options, dbtable=table).mode("append").save()


def _sql_orphans(driver: Driver, workload: Workload) -> None:
    statement = f"""
        INSERT INTO clientmgr.orphan_candidates (customer_id, application_code, client_id, silent_since, found_at)
        SELECT %(customer_id)s, application_code, client_id, {SILENT_SINCE}, %(now)s FROM :"schema".devices AS d
        WHERE orphaned_since IS NOT NULL AND {SILENT_SINCE} < %(orphaned_before)s
    """
    _sql_for_each(workload, statement)


def _sql_numbers(driver: Driver, workload: Workload) -> None:
    query = device_queries("batch")["dashboard_metrics"].rstrip().rstrip(";")
    statement = f"""
        INSERT INTO bench.numbers
        SELECT %(customer_id)s, devices, (devices_by_platform::jsonb ->> 'ios')::bigint,
            (devices_by_platform::jsonb ->> 'android')::bigint, (devices_by_platform::jsonb ->> 'web')::bigint,
            push_enabled, tokens_valid, tokens_invalid, contacts, linked_devices, without_contact, orphans,
            created_24h, created_7d, last_write_at
        FROM ({query}) AS q
    """
    _sql_for_each(workload, statement)


def _sql_for_each(workload: Workload, statement: str) -> None:
    """A transaction a tenant, as many at once as there are connections."""

    def work(customers: Sequence[CustomerId]) -> None:
        values = {"now": NOW, "collected_at": NOW, "orphaned_before": ORPHANED_BEFORE}
        with psycopg.connect(workload.database.conninfo(Role.WRITER), autocommit=True) as connection:
            for customer in customers:
                text = in_schema(statement, customer).replace(IN_PAGES, "true").replace(IN_CONTACTS, "true")
                for name, value in {**values, "customer_id": int(customer)}.items():
                    text = text.replace(f"%({name})s", sql.Literal(value).as_string())
                connection.execute(text.encode())

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        list(threads.map(work, [workload.customers[number::CONNECTIONS] for number in range(CONNECTIONS)]))


OURS = Variant(
    "ours",
    {
        "orphan detection": lambda driver, workload: _find(driver, workload, workload.customers),
        "dashboard collection": lambda driver, workload: _collect(driver, workload, workload.customers),
    },
)
JDBC = Variant("Spark, JDBC by default", {"orphan detection": _jdbc_orphans, "dashboard collection": _jdbc_numbers})
A_JOB_PER_TENANT = Variant(
    "Spark, a job per tenant",
    {"orphan detection": _for_each(_find), "dashboard collection": _for_each(_collect)},
    most_tenants=200,
)
PLAIN_SQL = Variant("plain SQL", {"orphan detection": _sql_orphans, "dashboard collection": _sql_numbers})


def variants_for(driver: Driver) -> list[Variant]:
    """Ours first; JDBC where its driver is there."""
    return [OURS, *([JDBC] if driver.jdbc_jar else []), A_JOB_PER_TENANT, PLAIN_SQL]
