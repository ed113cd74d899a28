"""The batch work as a program of its own, for tests that run it elsewhere: `python -m tests.spark.run_jobs CUSTOMER…`.

Where Spark runs is in the settings.
"""

import sys
from datetime import UTC, datetime, timedelta

from clientmgr.base.customer_ids import parse_customer_id
from clientmgr.base.database import Database
from clientmgr.base.settings import load_settings
from clientmgr_dagster.spark.orphans import find_orphans
from clientmgr_dagster.spark.session import start_session
from clientmgr_dagster.spark.tenant_metrics import collect_metrics


def main() -> None:
    settings = load_settings()
    database = Database.from_settings(settings)
    customers = [parse_customer_id(text) for text in sys.argv[1:]]
    spark = start_session(settings)
    now = datetime.now(UTC)
    before = now - timedelta(days=30)
    run = "elsewhere"
    find_orphans(spark, database, settings, customers, orphaned_before=before, found_at=now, run_id=run)
    collect_metrics(spark, database, settings, customers, orphaned_before=before, collected_at=now, run_id=run)
    spark.stop()


if __name__ == "__main__":
    main()
