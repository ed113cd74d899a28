"""Whatever an event may hold goes into the tables and comes back the same: a second arrival changes nothing."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.contracts.device_events import decode_event
from tests.devices.malformed import GOOD
from tests.devices.test_store import STORE, row_versions, rows

pytestmark = pytest.mark.anyio

# Anything but NUL, which no text of PostgreSQL holds, and half characters, which no UTF-8 does.
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(-(10**4000), 10**4000) | st.floats(allow_nan=False, allow_infinity=False)
attributes = st.dictionaries(
    texts,
    st.recursive(
        st.none() | st.booleans() | numbers | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)
NESTED: Any = json.loads("[" * 98 + "]" * 98)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(texts.filter(bool), texts.filter(bool), texts, attributes), min_size=1, max_size=10))
async def test_odd_values_are_kept_as_they_are(
    database: Database, tenant: CustomerId, odd: list[tuple[str, str, str, dict[str, Any]]]
) -> None:
    events = [
        decode_event(
            json.dumps(
                GOOD
                | {"applicationCode": application, "clientId": client}
                | {"payload": {"language": text, "attributes": content | {"deep": NESTED}}}
            ).encode()
        )
        for application, client, text, content in {(one[0], one[1]): one for one in odd}.values()
    ]
    async with await database.connect_async(Role.WRITER) as connection:
        await STORE.apply_events(connection, {tenant: events})
    written = row_versions(database, tenant)
    async with await database.connect_async(Role.WRITER) as connection:
        await STORE.apply_events(connection, {tenant: events})
    assert row_versions(database, tenant) == written

    found = {(row["application_code"], row["client_id"]) for row in rows(database, tenant)}
    assert {(application, client) for application, client, _, _ in odd} <= found
