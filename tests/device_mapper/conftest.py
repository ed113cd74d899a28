"""A rig on each transport with tenant 7, its devices, and a DynamoDB server."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from clientmgr.base.database import Role
from tests.device_mapper.dynamodb import CREDENTIALS, DynamoDb, MoodyDynamoDb
from tests.device_mapper.samples import APPLICATION
from tests.streaming.conftest import rig
from tests.streaming.rig import Rig

__all__ = ["rig"]

# What does not depend on the transport is tested on one of them.
ON_THE_LOG = pytest.mark.parametrize("rig", ["postgres"], indirect=True)


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def dynamodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoDb]:
    server = DynamoDb(tmp_path_factory.mktemp("dynamodb") / "server.log")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def moody(dynamodb: DynamoDb) -> Iterator[tuple[MoodyDynamoDb, str]]:
    server = MoodyDynamoDb(dynamodb)
    with server.serving() as url:
        yield server, url


def add_device(rig: Rig, contact: int, client: str, *, customer: int = 7, **columns: Any) -> None:
    """A row of `devices`; by default an iPhone that can be reached."""
    row = {
        "application_code": APPLICATION,
        "client_id": client,
        "contact_id": contact,
        "platform": "ios",
        "provider": "apple",
        "push_enabled": True,
        "push_token": f"token-of-{client}",
        "push_token_kind": "apns",
        "push_token_status": "valid",
        "language": "en",
        **columns,
    }
    with rig.database.connect(Role.OWNER) as connection:
        connection.execute(
            f'INSERT INTO "tenant_{customer}".devices'
            f' SELECT * FROM json_populate_record(NULL::"tenant_{customer}".devices, %s)',
            (
                msgspec.json.encode(
                    {
                        "info_versions": {},
                        "push_token_version": 0,
                        "push_token_status_version": 0,
                        "contact_version": 0,
                        "last_seen_version": 0,
                        "created_at": "2025-01-01T00:00:00Z",
                        "updated_at": "2025-01-01T00:00:00Z",
                        **row,
                    }
                ).decode(),
            ),
        )
