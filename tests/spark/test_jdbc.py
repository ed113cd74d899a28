"""The same jobs with JDBC in place of our own data source, for clusters that have PostgreSQL's jar."""

import os
from pathlib import Path

import pytest

from clientmgr.base.settings import Settings
from tests.spark.tenants import EMPTY, HUGE, ORDINARY, Tenants
from tests.spark.test_cluster import CANDIDATES, REFERENCE, run_jobs

DEBIANS_JAR = "/usr/share/java/postgresql.jar"
HOW_TO_GET_IT = (
    "no JDBC driver of PostgreSQL: POSTGRES_JDBC_JAR names its jar; Debian's is in libpostgresql-jdbc-java "
    "(`apt-get download` it and `dpkg-deb -x` it anywhere)"
)


def test_jdbc_gives_the_same_candidates(settings: Settings, tenants: Tenants) -> None:
    jar = Path(os.environ.get("POSTGRES_JDBC_JAR", DEBIANS_JAR))
    if not jar.is_file():
        pytest.skip(HOW_TO_GET_IT)
    tenants.activate(ORDINARY, HUGE, EMPTY)
    tenants.add_devices(ORDINARY, 200)
    tenants.add_devices(HUGE, 1000)
    how = {
        "spark_master": "local[2]",
        "spark_postgres_reader": "jdbc",
        "spark_conf": {"spark.jars": str(jar), "spark.driver.extraClassPath": str(jar)},
    }

    run_jobs(settings.model_copy(update=how), ORDINARY, HUGE, EMPTY)

    expected = [row for customer in (ORDINARY, HUGE) for row in tenants.query(REFERENCE.format(customer=customer))]
    assert tenants.query(CANDIDATES) == expected
    assert len(expected) > 100
