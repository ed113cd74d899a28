"""An export holds everything that is kept about a contact, wherever it is kept, and nobody else's data."""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from clientmgr.base.database import Database
from clientmgr.base.errors import TransientError
from clientmgr.base.settings import Settings
from clientmgr.erasure.proof import prove_contact
from clientmgr.erasure.subject_access import export_contact
from tests.device_mapper.dynamodb import CREDENTIALS, DynamoDb
from tests.erasure.planting import APP, CONTACT, CUSTOMER, OTHER, TOKEN, Ground, prepare


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def dynamodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoDb]:
    server = DynamoDb(tmp_path_factory.mktemp("dynamodb") / "server.log")
    server.start()
    server.put(CUSTOMER, CONTACT, APP, "legacy-client", pushToken=TOKEN)
    server.put(CUSTOMER, OTHER, APP, "somebody-elses-client")
    yield server
    server.kill()


@pytest.fixture
def ground(database: Database, settings_for: Callable[[Database], Settings], dynamodb: DynamoDb) -> Ground:
    ground = Ground(database, settings_for(database).model_copy(update={"dynamodb_endpoint": dynamodb.url}))
    prepare(ground, deleted=False)
    return ground


def export(ground: Ground, *, reveal: bool = False) -> Any:
    text = io.StringIO()
    export_contact(ground.stores, CUSTOMER, CONTACT, text.write, actor="test", reveal=reveal)
    return json.loads(text.getvalue())


def test_devices_of_the_legacy_store_are_exported_while_the_customer_is_read_from_there(ground: Ground) -> None:
    (device,) = export(ground)["legacyDevices"]
    assert device["deviceKey"] == f"{APP}#legacy-client"
    assert device["pushToken"] != TOKEN
    assert export(ground, reveal=True)["legacyDevices"][0]["pushToken"] == TOKEN
    ground.execute(
        "INSERT INTO clientmgr.flippers (name, customer_id, enabled, updated_by) VALUES"
        " ('USE_POSTGRES_DEVICE_MAPPER', NULL, true, 'test'),"
        " ('CLIENT_FETCHER_FALLBACK_DISABLED_PER_CUSTOMER', NULL, true, 'test')"
    )
    assert export(ground)["legacyDevices"] == []


def test_a_legacy_store_that_does_not_answer_fails_the_export(ground: Ground) -> None:
    away = replace(ground, settings=ground.settings.model_copy(update={"dynamodb_endpoint": "http://127.0.0.1:1"}))
    with pytest.raises(TransientError, match="DynamoDB"):
        export(away)


def test_a_proof_names_what_the_legacy_store_has_and_does_not_judge_by_it(ground: Ground) -> None:
    report = prove_contact(ground.stores, CUSTOMER, CONTACT, actor="test")
    (legacy,) = [place for place in report.places if place.place == "DynamoDB"]
    assert (legacy.state, legacy.found, legacy.note) == ("not ours", 1, "Its owner has to delete them.")
    assert "DynamoDB" not in report.verdict


def test_rows_of_other_tables_are_exported(ground: Ground) -> None:
    ground.insert(
        "clientmgr.deleted_contacts",
        customer_id=CUSTOMER,
        contact_id=CONTACT,
        deleted_at=datetime.now(UTC),
        found_at=datetime.now(UTC),
    )
    (row,) = export(ground)["otherRows"]
    assert (row["table"], row["row"]["contact_id"]) == ("clientmgr.deleted_contacts", CONTACT)
