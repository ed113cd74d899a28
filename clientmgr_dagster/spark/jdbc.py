"""Devices by Spark's own JDBC source, for clusters that have PostgreSQL's jar and want nothing else.

The same packs of tenants as our own source reads, each a query of its own. Its user and password are options, which
Spark redacts in plans and logs by the pattern that the session sets.
"""

from collections.abc import Sequence

from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import DataFrame, SparkSession

from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr_dagster.spark.device_columns import CUSTOMER, ERROR, select_list

DRIVER = "org.postgresql.Driver"


def jdbc_options(database: Database) -> dict[str, str]:
    """Where the database is, as JDBC says it. The role is taken at log-in, as everywhere."""
    found = {name: str(value) for name, value in conninfo_to_dict(database.conninfo(Role.READER)).items()}
    url = f"jdbc:postgresql://{found.get('host', 'localhost')}:{found.get('port', '5432')}/{found.get('dbname', '')}"
    options = {"url": url, "driver": DRIVER, "user": found.get("user", ""), "password": found.get("password", "")}
    if found.get("options"):
        options["options"] = found["options"]
    return options


def read_devices_by_jdbc(
    spark: SparkSession,
    database: Database,
    settings: Settings,
    customers: Sequence[CustomerId],
    columns: Sequence[str],
    *,
    with_errors: bool,
) -> DataFrame:
    """All tenants as one view, cut by customer into as many partitions as the settings say."""
    names = [CUSTOMER, *columns, *([ERROR] if with_errors else [])]
    union = "\nUNION ALL\n".join(
        f"SELECT {select_list(names, customer)} FROM {quoted_schema(customer)}.devices" for customer in customers
    )
    packs = _packs(customers, settings.spark_partitions)
    predicates = [f"{CUSTOMER} IN ({', '.join(map(str, pack))})" for pack in packs]
    options = jdbc_options(database)
    return spark.read.jdbc(options.pop("url"), f"({union}) AS devices", predicates=predicates, properties=options)


def _packs(customers: Sequence[CustomerId], partitions: int) -> list[Sequence[CustomerId]]:
    return [pack for pack in (customers[number::partitions] for number in range(partitions)) if pack]
