"""Contacts that customers deleted in the BigQuery stand-in, and what was published of them."""

import json
from datetime import UTC, datetime, timedelta

from clientmgr.base.database import Database
from clientmgr.contracts.topics import CONTACT_DELETION
from clientmgr.local.standins.bigquery import BigQueryStandIn
from tests.streaming.rig import read_topic

START = datetime(2026, 1, 1, tzinfo=UTC)
TABLE = "contacts.deleted_contacts"
COLUMNS = "customer_id INT64, contact_id INT64, deleted_at TIMESTAMP"


def add(bigquery: BigQueryStandIn, customer: int, first: int, last: int, *, day: int = 0) -> None:
    """Contacts that the customer deleted, a second apart."""
    bigquery.execute(
        f"""INSERT INTO {TABLE} SELECT {customer}, n,
            TIMESTAMP_ADD(TIMESTAMP '{START + timedelta(days=day):%Y-%m-%d} 00:00:00+00:00', INTERVAL n SECOND)
        FROM UNNEST(GENERATE_ARRAY({first}, {last})) AS n"""
    )


def add_one(bigquery: BigQueryStandIn, customer: int, contact: int, deleted_at: datetime) -> None:
    moment = f"TIMESTAMP '{deleted_at:%Y-%m-%d %H:%M:%S}+00:00'"
    bigquery.execute(f"INSERT INTO {TABLE} VALUES ({customer}, {contact}, {moment})")


def published(database: Database) -> list[tuple[int, int]]:
    """Customer and contact of each message, none of them twice."""
    messages = [json.loads(one.data) for one in read_topic(database, CONTACT_DELETION)]
    assert len({one["eventId"] for one in messages}) == len(messages)
    return sorted((one["customerId"], one["contactId"]) for one in messages)
