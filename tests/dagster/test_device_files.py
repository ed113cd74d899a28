"""`device_files`: files in a bucket of an S3 server, or in a folder, become devices; what is wrong stays beside."""

import json
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import boto3
import dagster as dg
import pytest
from moto.server import ThreadedMotoServer

from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.base.stopping import StoppedError
from clientmgr.devices.imports import importer
from clientmgr.devices.imports.folder_import import FolderImport
from clientmgr.devices.imports.folders import BucketFolder, FolderError, open_folder
from clientmgr.local.standins.dynamodb import CREDENTIALS
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster.defs.device_files.assets import device_files
from clientmgr_dagster.resources import TenantsResource

KEY = dg.AssetKey("device_files")
CUSTOMER, OTHER = CustomerId(7), CustomerId(8)
GOOD = "applicationCode,clientId,language,contactId\nA,c1,en,41\nA,c2,fr,42\n"
ONE_BAD = GOOD + "A,c3,de,nobody\n"


class Place(Protocol):
    """A folder for each customer, as its owner fills it and looks at it."""

    url: str

    def write(self, customer: CustomerId, name: str, text: str) -> None: ...

    def names(self, customer: CustomerId) -> list[str]: ...

    def read(self, customer: CustomerId, name: str) -> str: ...


class Bucket:
    def __init__(self, endpoint: str) -> None:
        self._client = boto3.client("s3", endpoint_url=endpoint)
        self._client.create_bucket(Bucket="crm", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        self.url = f"s3://crm/devices/{{customer}}?endpoint={endpoint}"

    def write(self, customer: CustomerId, name: str, text: str) -> None:
        self._client.put_object(Bucket="crm", Key=f"devices/{customer}/{name}", Body=text.encode())

    def names(self, customer: CustomerId) -> list[str]:
        found = self._client.list_objects_v2(Bucket="crm", Prefix=f"devices/{customer}/").get("Contents", [])
        return [Path(one["Key"]).name for one in found]

    def read(self, customer: CustomerId, name: str) -> str:
        body = self._client.get_object(Bucket="crm", Key=f"devices/{customer}/{name}")["Body"].read()
        return str(body, "utf-8")


class Local:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = f"file://{folder}/{{customer}}"

    def write(self, customer: CustomerId, name: str, text: str) -> None:
        (self._folder / str(customer)).mkdir(exist_ok=True)
        (self._folder / str(customer) / name).write_text(text)

    def names(self, customer: CustomerId) -> list[str]:
        return sorted(one.name for one in (self._folder / str(customer)).iterdir())

    def read(self, customer: CustomerId, name: str) -> str:
        return (self._folder / str(customer) / name).read_text()


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["s3", "file"])
def place(request: pytest.FixtureRequest, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    if request.param == "file":
        return Local(tmp_path)
    for name, value in (CREDENTIALS | {"AWS_DEFAULT_REGION": "eu-central-1"}).items():
        monkeypatch.setenv(name, value)
    urllib.request.urlopen(urllib.request.Request(f"{s3}/moto-api/reset", method="POST"), timeout=30).close()  # noqa: S310
    return Bucket(s3)


@pytest.fixture
def settings(database: Database, settings_for: Any, place: Place, monkeypatch: pytest.MonkeyPatch) -> Settings:
    settings: Settings = settings_for(database).model_copy(update={"device_import_folder": place.url})
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    TenantSchemaManager(database, settings).activate([CUSTOMER, OTHER], actor="test")
    return settings


@dataclass(frozen=True)
class Run:
    success: bool
    numbers: dict[str, dict[str, Any]]
    """Of the partitions that it materialised."""
    summary: Mapping[str, dg.MetadataValue[Any]]

    def table(self, name: str) -> list[dict[str, Any]]:
        return [dict(record.data) for record in self.summary[name].value.records]


def run(**config: Any) -> Run:
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("tenants", ["7", "8"])
        result = dg.materialize(
            [device_files],
            instance=instance,
            resources={"tenants": TenantsResource()},
            run_config={"ops": {"device_files": {"config": config}}},
            tags={"dagster/asset_partition_range_start": "7", "dagster/asset_partition_range_end": "8"},
            raise_on_error=False,
        )
        # Of a step that fails only the instance has what it told.
        made = [one.asset_materialization for one in instance.fetch_materializations(KEY, limit=10).records]
        numbers = {
            str(one.partition): {name: value.value for name, value in one.metadata.items()} for one in made if one
        }
        (told,) = instance.fetch_observations(KEY, limit=10).records
        assert told.asset_observation is not None
        return Run(result.success, numbers, told.asset_observation.metadata)


def clients(database: Database, customer: CustomerId = CUSTOMER) -> list[tuple[Any, ...]]:
    query = f"SELECT client_id, language, contact_id FROM {quoted_schema(customer)}.devices ORDER BY 1"
    with database.connect(Role.READER) as connection:
        return connection.execute(query.encode()).fetchall()


def audited(database: Database) -> list[tuple[Any, ...]]:
    query = "SELECT actor, rows_affected, details->>'file' FROM clientmgr.audit_log WHERE action = 'devices.import'"
    with database.connect(Role.OWNER) as connection:
        return connection.execute(query).fetchall()


def test_files_become_devices_bad_rows_stay_beside_and_what_is_done_is_passed_over(
    settings: Settings, database: Database, place: Place
) -> None:
    place.write(CUSTOMER, "crm.csv", ONE_BAD)
    place.write(CUSTOMER, "read me.txt", "no devices")
    place.write(OTHER, "more.ndjson", '{"applicationCode": "A", "clientId": "o1"}\n')

    tried = run(dry_run=True)
    assert tried.success
    assert tried.numbers == {}, "nothing was made"
    assert [record["rejected"] for record in tried.table("files")] == [1, 0]
    assert place.names(CUSTOMER) == ["crm.csv", "read me.txt"]
    assert (clients(database), audited(database)) == ([], [])

    done = run()
    assert done.success
    assert done.numbers == {
        "7": {"files": 1, "imported": 2, "rejected": 1, "unchanged": 0},
        "8": {"files": 1, "imported": 1, "rejected": 0, "unchanged": 0},
    }
    assert clients(database) == [("c1", "en", 41), ("c2", "fr", 42)]
    assert clients(database, OTHER) == [("o1", None, None)]
    assert place.names(CUSTOMER) == ["crm.csv", "crm.csv.imported", "crm.csv.rejected.csv", "read me.txt"]
    assert place.read(CUSTOMER, "crm.csv.rejected.csv").splitlines()[1].endswith("A,c3,de,nobody")
    assert json.loads(place.read(CUSTOMER, "crm.csv.imported"))["totals"]["reasons"] == {"contactId": 1}
    assert sorted(audited(database)) == [
        ("dagster:device_files", 1, "more.ndjson"),
        ("dagster:device_files", 2, "crm.csv"),
    ]

    assert run().numbers["7"] == {"files": 0, "imported": 0, "rejected": 0, "unchanged": 1}
    place.write(CUSTOMER, "crm.csv", ONE_BAD.replace("nobody", "43"))
    assert run().numbers["7"] == {"files": 1, "imported": 3, "rejected": 0, "unchanged": 0}
    assert place.names(CUSTOMER) == ["crm.csv", "crm.csv.imported", "read me.txt"], "no row is bad any more"
    assert run(restart=True).numbers["7"]["files"] == 1


def test_a_customer_whose_file_is_wrong_costs_only_itself_and_is_named(
    settings: Settings, database: Database, place: Place
) -> None:
    place.write(CUSTOMER, "crm.csv", "applicationCode,clientId,shoeSize\nA,c1,42\n")
    place.write(OTHER, "crm.csv", GOOD)
    failed = run()
    assert not failed.success
    ((customer, why),) = [record.values() for record in failed.table("failed")]
    assert (customer, "column shoeSize" in str(why)) == ("7", True)
    assert list(failed.numbers) == ["8"]
    assert len(clients(database, OTHER)) == 2
    assert run(mapping={"shoeSize": "attributes.shoeSize"}).success, "the other one's file is imported, and passed over"


def test_an_import_that_is_stopped_goes_on_where_it_was_with_its_bad_rows(
    settings: Settings, database: Database, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "ROWS_A_PORTION", 2)
    place.write(CUSTOMER, "crm.csv", "applicationCode,clientId,contactId\nA,c1,x\nA,c2,2\nA,c3,3\nA,c4,x\nA,c5,5\n")

    def work(**more: Any) -> FolderImport:
        return FolderImport(settings, database, CUSTOMER, open_folder(place.url, CUSTOMER), "test", **more)

    asked = iter([True, True, True, False])  # of the file, at its beginning, after each portion
    with pytest.raises(StoppedError, match=r"4 rows of crm\.csv"):
        list(work(still_wanted=lambda: next(asked)).run())
    assert place.names(CUSTOMER) == ["crm.csv", "crm.csv.import", "crm.csv.rejected.csv"]
    assert [client for client, _, _ in clients(database)] == ["c2", "c3"]

    told: list[int] = []
    ((_, totals),) = work(on_progress=lambda _, rows: told.append(rows)).run()
    assert told == [4, 5]
    assert totals is not None
    assert (totals.rows, totals.imported, totals.rejected) == (5, 3, 2)
    assert [line.split(",")[0] for line in place.read(CUSTOMER, "crm.csv.rejected.csv").splitlines()[1:]] == ["2", "5"]
    assert place.names(CUSTOMER) == ["crm.csv", "crm.csv.imported", "crm.csv.rejected.csv"]


def test_a_bucket_that_is_not_there_is_an_error_that_names_it(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(FolderError, match=r"s3://nowhere/7/.*NoSuchBucket"):
        open_folder(f"s3://nowhere/{{customer}}?endpoint={s3}", CUSTOMER).files()


def test_no_link_in_a_customers_folder_leads_out_of_it(tmp_path: Path) -> None:
    secret, folder, copy = tmp_path / "audit_hash_key", tmp_path / "7", tmp_path / "copy"
    secret.write_text("of ours")
    folder.mkdir()
    (folder / "theirs.csv").symlink_to(secret)
    (folder / "crm.csv").write_text(GOOD)
    opened = open_folder(f"file://{tmp_path}/{{customer}}", CUSTOMER)
    assert [found.name for found in opened.files()] == ["crm.csv"]
    with pytest.raises(FolderError, match=r"theirs\.csv: expected a file that can be read and is no link"):
        opened.fetch("theirs.csv", copy)
    assert not copy.exists()
    assert opened.fetch("crm.csv", copy)
    assert copy.read_text() == GOOD


def test_one_client_serves_all_files_of_a_customers_bucket() -> None:
    folder = open_folder("s3://crm/devices/{customer}?endpoint=http://127.0.0.1:1", CUSTOMER)
    assert isinstance(folder, BucketFolder)
    with folder._client() as first, folder._client() as another:
        assert first is another
