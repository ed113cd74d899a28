"""Nobody but this machine reaches the servers, the stand-ins and Spark that the tests and the demo start."""

import os
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from clientmgr.local.embedded.postgres import EmbeddedPostgres
from clientmgr.local.embedded.redis import EmbeddedRedis
from clientmgr.local.standins.bigquery import BigQueryStandIn
from clientmgr.local.standins.dynamodb import DynamoDbStandIn
from tests.process_table import listening_beyond_loopback, listens_on, with_descendants
from tests.waiting import eventually


def test_stand_ins_embedded_servers_and_spark_listen_on_loopback_alone(
    postgres_server: EmbeddedPostgres,
    redis_server: EmbeddedRedis,
    bigquery_stand_in: BigQueryStandIn,
    dynamodb_stand_in: DynamoDbStandIn,
    spark: SparkSession,
) -> None:
    storage = urlsplit(f"//{bigquery_stand_in.settings['bigquery_storage_endpoint']}").port
    ports = {postgres_server.port, redis_server.port, bigquery_stand_in.port, storage, dynamodb_stand_in.port}
    processes = with_descendants(os.getpid())
    eventually(lambda: ports <= listens_on(processes), "all of them listen")
    # What a server opens after its main port, it has opened once it has answered.
    dynamodb_stand_in.client().list_tables()
    spark.range(10).count()
    assert not listening_beyond_loopback(with_descendants(os.getpid()))
