"""A tenant that an older release filled: its migration to keyed hashes loses nothing, and leaves no name in clear."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.base.sqlfiles import sql_root
from clientmgr.contracts.push_tokens import token_digest
from clientmgr.tenants.schema_manager import Change, TenantSchemaManager
from tests.devices.histories import HASHES, Happening
from tests.devices.test_store import STORE, arrive, devices

Query = Callable[..., list[tuple[Any, ...]]]

TENANT = CustomerId(7)
FILLED = """
INSERT INTO tenant_7.devices (
    application_code, client_id, contact_id, contact_version, push_token, push_token_kind, push_token_status,
    push_token_version, push_token_digest, info_versions, last_seen_version
) VALUES
    ('A', 'phone-ü', 42, 5, 'token-1', 'fcm_token', 'valid', 4, sha256('token-1'), '{}', 6),
    ('A', 'tablet', NULL, 0, NULL, NULL, 'superseded', 3, sha256('token-1'), '{}', 3);
INSERT INTO tenant_7.device_tombstones VALUES ('A', 'gone', 9);
INSERT INTO tenant_7.contact_tombstones VALUES (41, 8);
INSERT INTO tenant_7.contact_links VALUES (41, 'A', 'gone', 7), (42, 'A', 'phone-ü', 5);
INSERT INTO tenant_7.push_token_claims VALUES ('A', sha256('token-1'), 'phone-ü', 4);
"""


@pytest.fixture
def migrated(database: Database, settings: Settings, tmp_path: Path) -> None:
    (first,) = (sql_root() / "tenant").glob("0001_*.sql")
    shutil.copy(first, tmp_path)
    TenantSchemaManager(database, settings, migrations_folder=tmp_path).activate([TENANT], actor="test")
    with database.connect(Role.OWNER) as connection:
        connection.execute(FILLED.encode())
    (result,) = TenantSchemaManager(database, settings).migrate(actor="test")
    assert (result.change, result.error) == (Change.MIGRATED, None)


@pytest.mark.usefixtures("migrated")
def test_the_hashes_are_those_that_the_workers_make(query: Query) -> None:
    phone, gone = (HASHES.device(TENANT, "A", client) for client in ("phone-ü", "gone"))
    token = HASHES.token(TENANT, "A", token_digest("token-1"))
    assert query("SELECT device_hash, push_token_hash FROM tenant_7.devices ORDER BY client_id") == [
        (phone, token),
        (HASHES.device(TENANT, "A", "tablet"), token),
    ]
    assert query("SELECT device_hash, deleted_version FROM tenant_7.device_tombstones") == [(gone, 9)]
    assert query("SELECT contact_hash, deleted_version FROM tenant_7.contact_tombstones") == [
        (HASHES.contact(TENANT, 41), 8)
    ]
    assert query("SELECT * FROM tenant_7.contact_links ORDER BY linked_version") == [
        (phone, 5, HASHES.contact(TENANT, 42), 42),
        (gone, 7, HASHES.contact(TENANT, 41), None),
    ]
    assert query("SELECT * FROM tenant_7.push_token_claims") == [(token, phone, 4)]


@pytest.mark.anyio
@pytest.mark.usefixtures("migrated")
async def test_what_was_known_goes_on_to_count(database: Database) -> None:
    await arrive(
        database,
        TENANT,
        [
            Happening("client.registered", 8, "A", "gone", '{"language": "en"}'),
            Happening("client.pushTokenSet", 2, "A", "old", '{"kind": "fcm_token", "pushToken": "token-1"}'),
        ],
    )
    found = devices(database, TENANT)
    assert ("A", "gone") not in found
    assert found["A", "old"].token_status == "superseded"
    async with await database.connect_async(Role.WRITER) as connection:
        assert await STORE.delete_contacts(connection, {TENANT: {42: [10]}}) == {TENANT: {42: 1}}
    assert ("A", "phone-ü") not in devices(database, TENANT)
