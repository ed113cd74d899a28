"""What can't be derived from the registries agrees with them: the tables, the load, and the names in JSON."""

import re
from typing import Any

import pytest

from clientmgr.base.customer_ids import CustomerId, in_schema, schema_name
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import MigrationError
from clientmgr.contracts.device_events import InfoPayload
from clientmgr.contracts.device_fields import FIELDS, INFO, Compares, Facet, Kind, info
from clientmgr.contracts.providers import PROVIDERS, TOKEN_KINDS
from clientmgr.devices import queries
from clientmgr.devices.contact_devices import ADDRESS_FIELDS, ContactDevice
from clientmgr.devices.queries import contact_devices_query, device_queries
from clientmgr.devices.rows import DEVICE_ROW
from clientmgr.local.load.traits import traits_of
from tests.devices.conftest import tenant

__all__ = ["tenant"]


def test_the_fields_are_the_columns_of_the_table(database: Database, tenant: CustomerId) -> None:
    columns = ask(
        database,
        "SELECT column_name, data_type FROM information_schema.columns"
        " WHERE table_schema = %(schema)s AND table_name = 'devices'",
        schema=schema_name(tenant),
    )
    assert dict(columns) == {field.name: field.kind.sql_type for field in FIELDS}


def test_the_tables_take_the_providers_and_their_tokens_and_no_others(database: Database, tenant: CustomerId) -> None:
    constraints = dict(
        ask(
            database,
            "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %(table)s::regclass",
            table=f"{schema_name(tenant)}.devices",
        )
    )
    of_devices = {provider.name for provider in PROVIDERS if provider.token_kinds}
    assert quoted(constraints["devices_provider_check"]) == {*of_devices, "none"}
    assert quoted(constraints["devices_push_token_kind_check"]) == set(TOKEN_KINDS)


def test_a_row_of_a_device_has_its_columns_where_they_are_looked_for(database: Database, tenant: CustomerId) -> None:
    devices = in_schema(device_queries("devices")["devices"], tenant)
    assert columns_of(database, devices, devices=[], application_codes=[], client_ids=[]) == list(DEVICE_ROW)
    by_hash = in_schema(device_queries("devices")["devices_by_hash"], tenant)
    assert columns_of(database, by_hash, devices=[]) == list(DEVICE_ROW)
    claims = in_schema(device_queries("devices")["claims"], tenant)
    found = columns_of(database, claims, tokens=[])
    assert [*found[:3], *found[5:-4]] == [*DEVICE_ROW[:3], *DEVICE_ROW[5:]]
    assert found[-4:] == ["token_hash", "claimed_version", "verdict_version", "status"]


def test_a_contacts_device_is_read_in_the_order_of_its_fields(database: Database, tenant: CustomerId) -> None:
    query = in_schema(device_queries("contact_devices")["find_by_contact_keys"], tenant)
    found = columns_of(database, query, application_code="A", contact_ids=[])
    times = {field.name for field in FIELDS if field.kind is Kind.TIME}
    assert [name for name in found if name != "int8"] == [
        name for name in ContactDevice.__struct_fields__ if name not in times
    ]
    assert len(found) == len(ContactDevice.__struct_fields__)


@pytest.mark.parametrize("field", [None, *ContactDevice.__struct_fields__])
def test_a_device_of_which_little_is_read_has_it_in_its_place(
    database: Database, tenant: CustomerId, field: str | None
) -> None:
    query = in_schema(contact_devices_query(frozenset({field} if field else ())), tenant)
    found = columns_of(database, query, application_code="A", contact_ids=[])
    wanted = {*ADDRESS_FIELDS, field}
    for name, column in zip(ContactDevice.__struct_fields__, found, strict=False):
        is_time = next(one for one in FIELDS if one.name == name).kind is Kind.TIME
        assert column == (("int8" if is_time else name) if name in wanted else "?column?")
    assert len(found) >= len(ADDRESS_FIELDS)
    assert field is None or ContactDevice.__struct_fields__.index(field) < len(found)


def test_an_event_spells_the_info_fields_as_filters_do() -> None:
    assert InfoPayload.__struct_encode_fields__ == tuple(field.json_name for field in INFO)


def test_the_generated_load_sends_info_fields_that_there_are() -> None:
    assert traits_of(1, 2, 3).info.keys() <= {field.json_name for field in INFO}


def test_only_what_an_event_can_carry_may_be_an_info_field() -> None:
    with pytest.raises(ValueError, match="installed_at: no event can carry timestamp"):
        info("installed_at", Kind.TIME, Compares.NUMBER)


def test_whoever_sends_gets_every_info_field_and_no_bookkeeping_but_times() -> None:
    fields = set(ContactDevice.__struct_fields__)
    assert {field.name for field in INFO} <= fields
    bookkeeping = {field.name for field in FIELDS if field.facet is Facet.BOOKKEEPING}
    assert fields & bookkeeping == {"last_seen_at", "created_at", "updated_at"}


def test_a_placeholder_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(MigrationError, match=":token_columns"):
        queries._completed("SELECT d.client_id::text, :token_columns, :info_columns FROM x")


def ask(database: Database, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
    with database.connect(Role.OWNER) as connection:
        return connection.execute(query.encode(), parameters).fetchall()


def columns_of(database: Database, query: str, **parameters: Any) -> list[str]:
    with database.connect(Role.READER) as connection:
        return [column.name for column in connection.execute(query.encode(), parameters).description or ()]


def quoted(text: str) -> set[str]:
    return set(re.findall(r"'(\w+)'", text))
