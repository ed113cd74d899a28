"""What every session of ours is told about Spark SQL, wherever it runs. No Dagster here: jobs elsewhere have none."""

from clientmgr.base.settings import Settings


def sql_config(settings: Settings) -> dict[str, str]:
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.shuffle.partitions": str(settings.spark_partitions),
    }
