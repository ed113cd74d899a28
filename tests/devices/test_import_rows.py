"""What a row of a file says of a device: by column, by field, and as the changes that events would be. No database."""

import json
import re
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clientmgr.base.csv_cells import as_written, harmless
from clientmgr.base.errors import InvalidInputError
from clientmgr.contracts.device_events import DecodedEvent, decode_event
from clientmgr.devices.fold import TenantHashes, fold, touched_by
from clientmgr.devices.imports.changes import changes_of
from clientmgr.devices.imports.columns import ColumnMap
from clientmgr.devices.imports.copying import COLUMNS as COPIED
from clientmgr.devices.imports.copying import CopiedRows
from clientmgr.devices.imports.files import LONGEST_CELL, Format, RawRow, header_of, read_rows
from clientmgr.devices.imports.row_columns import RowColumns, usual_rows_by_customer
from clientmgr.devices.imports.rows import EPOCH, ImportedRow, RowConverter, RowError
from clientmgr.devices.rows import row_of
from tests.devices.histories import CUSTOMER, HASHES
from tests.examples import examples

NOW = 1_763_248_000_123


def converter(application: str | None = None) -> RowConverter:
    return RowConverter(now_ms=NOW, default_version=NOW - 1, customer_id=CUSTOMER, application_code=application)


def convert(row: dict[str, Any], *, application: str | None = None, **mapped: str) -> ImportedRow:
    return converter(application).convert(ColumnMap(mapped).plan(tuple(row)), tuple(row.values()))


def device(**more: Any) -> dict[str, Any]:
    return {"applicationCode": "A", "clientId": "c1", **more}


def test_columns_are_known_by_their_name_in_camel_or_snake_case() -> None:
    row = convert({"application_code": "A", "ClientId": "c1", "push_enabled": "true", "osVersion": "17", "kind": ""})
    assert (row.application_code, row.client_id, row.info) == ("A", "c1", {"push_enabled": True, "os_version": "17"})


def test_columns_are_mapped_to_fields_to_members_of_objects_or_to_nothing() -> None:
    row = {"app": "A", "id": "c1", "tier": "gold", "age": 7, "notes": "x", "attributes": '{"a": 1}'}
    mapped = {
        "app": "applicationCode",
        "id": "client_id",
        "tier": "attributes.tier",
        "age": "attributes.age",
        "notes": "",
    }
    assert convert(row, **mapped).info == {"attributes": {"a": 1, "tier": "gold", "age": 7}}


@pytest.mark.parametrize("target", ["no_such_field", "provider", "language.member", "attributes.", "updatedAt"])
def test_a_column_can_not_be_mapped_to_what_no_row_may_say(target: str) -> None:
    with pytest.raises(InvalidInputError, match="--map"):
        ColumnMap({"x": target})


def test_two_columns_for_one_field_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="clientId"):
        ColumnMap().plan(("client_id", "clientId"))


@pytest.mark.parametrize("empty", ["", None])
def test_an_empty_cell_says_nothing(empty: str | None) -> None:
    row = convert(device(language=empty, contactId=empty, pushToken=empty, pushEnabled=empty, occurredAt=empty))
    assert (row.info, row.contact_id, row.token, row.version) == ({}, None, None, NOW - 1)


@pytest.mark.parametrize(
    ("value", "version"),
    [
        (1_700_000_000_123, 1_700_000_000_123),
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
        ("2023-11-14 23:13:20.123+01:00", 1_700_000_000_123),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        (datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC), 1_700_000_000_123),
    ],
)
def test_a_rows_time_is_its_version(value: Any, version: int) -> None:
    assert convert(device(occurredAt=value)).version == version
    assert convert(device(last_seen_at=value)).version == version
    assert convert(device(last_seen_at=1, occurred_at=value)).version == version


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"clientId": "c1"}, "applicationCode"),
        (device(clientId=""), "clientId"),
        (device(clientId="x" * 513), "clientId"),
        (device(clientId="a\0b"), "clientId"),
        (device(clientId="\udcff"), "clientId"),
        (device(contactId="12a"), "contactId"),
        (device(contactId="0"), "contactId"),
        (device(contactId=-1), "contactId"),
        (device(contactId=True), "contactId"),
        (device(contactId=1.5), "contactId"),
        (device(contactId=2**63), "contactId"),
        (device(pushEnabled="maybe"), "pushEnabled"),
        (device(pushEnabled=1), "pushEnabled"),
        (device(language=7), "language"),
        (device(attributes="[]"), "attributes"),
        (device(attributes="{"), "attributes"),
        (device(attributes='{"a": "\\u0000"}'), "attributes"),
        (device(attributes=json.loads("[" * 3 + "]" * 3)), "attributes"),
        (device(occurredAt="yesterday"), "occurredAt"),
        (device(occurredAt=0), "occurredAt"),
        (device(occurredAt=NOW + 10**7), "occurredAt"),
        (device(occurredAt=float("nan")), "occurredAt"),
        (device(pushToken="t"), "pushTokenKind"),
        (device(pushToken="t", pushTokenKind="webpush"), "pushTokenKind"),
        (device(pushToken="t", pushTokenKind="carrier-pigeon"), "pushTokenKind"),
        (device(pushToken="t", pushTokenKind="apns", pushTokenStatus="none"), "pushTokenStatus"),
        (device(pushToken="740f47…78ad", pushTokenKind="apns"), "pushToken"),
        (device(web_push_endpoint="https://x"), "webPush"),
        (device(web_push_endpoint="https…/abcd", web_push_p256dh="p", web_push_auth="a"), "webPush"),
        (device(webPush={"endpoint": "https://x"}), "webPush"),
        (device(customerId="8"), "customerId"),
        (device(customerId="abc"), "customerId"),
        (device(tierr="gold"), "tierr"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_its_field(row: dict[str, Any], named: str) -> None:
    with pytest.raises(RowError, match=f"^{named}: "):
        convert(row)


def test_no_reason_quotes_a_token() -> None:
    for row in (
        device(pushToken="s3cret" * 10 + "\0", pushTokenKind="apns"),
        device(webPush={"endpoint": 7, "keys": "s3cret"}),
    ):
        with pytest.raises(RowError) as refused:
            convert(row)
        assert "s3cret" not in str(refused.value)


@given(st.text(max_size=20))
def test_a_cell_that_was_made_harmless_comes_back_as_it_was(text: str) -> None:
    assert as_written(harmless(text)) == text


# A row is what events of its moment would be


def events_of(row: ImportedRow) -> list[DecodedEvent]:
    """What an application would have published instead."""
    head = {"eventId": "e", "customerId": row.customer_id, "occurredAt": row.version,
            "applicationCode": row.application_code, "clientId": row.client_id}  # fmt: skip
    names = {"language": "language", "push_enabled": "pushEnabled", "attributes": "attributes"}
    info = {names[name]: value for name, value in row.info.items()}
    told: list[tuple[str, dict[str, Any]]] = [("client.registered", info)]
    if row.token is not None:
        told.append(("client.pushTokenSet", {"kind": row.token.kind, "pushToken": row.token.push_token}))
    if row.contact_id is not None:
        told.append(("client.contactLinked", {"contactId": row.contact_id}))
    messages = [{**head, "eventType": kind, "payload": payload} for kind, payload in told]
    if row.unlinked_at is not None:
        messages.append({**head, "eventType": "client.contactUnlinked", "payload": {}, "occurredAt": row.unlinked_at})
    return [decode_event(json.dumps(message).encode()) for message in messages]


imported = st.fixed_dictionaries(
    {
        "applicationCode": st.sampled_from("AB"),
        "clientId": st.sampled_from(["c1", "c2", "c3"]),
        "occurredAt": st.integers(1, 9),
    },
    optional={
        "language": st.sampled_from(["en", "fr"]),
        "pushEnabled": st.booleans(),
        "attributes": st.sampled_from([{"a": 1}, {"a": [2.0, "x"]}]),
        "contactId": st.sampled_from([41, 42]),
        "orphanedSince": st.integers(1, 9),
        "pushToken": st.sampled_from(["t1", "t2"]),
    },
).map(lambda row: convert({**row, "pushTokenKind": "apns"}))


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(imported, min_size=1, max_size=8))
def test_rows_are_the_changes_that_events_would_be(rows: list[ImportedRow]) -> None:
    events = [event for row in rows for event in events_of(row)]
    hashes = TenantHashes(HASHES, CUSTOMER)
    expected, touched = fold(events, hashes), touched_by(events, hashes)
    assert changes_of(rows, HASHES) == (touched, expected)


def damaged_parquet(file: Path) -> None:
    pq.write_table(pa.table({"clientId": [str(number) for number in range(20_000)]}), file)
    data = bytearray(file.read_bytes())
    data[2_000:3_000] = b"\xff" * 1_000
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("form", "write", "why"),
    [
        ("csv", lambda file: file.write_text("clientId," + "x" * (LONGEST_CELL + 1)), "line longer than"),
        ("parquet", lambda file: file.write_bytes(b"PAR1"), "a Parquet file"),
        ("parquet", damaged_parquet, "a whole Parquet file; after row 0"),
    ],
)
def test_a_damaged_file_is_refused_by_its_name(tmp_path: Path, form: Format, write: Any, why: str) -> None:
    file = tmp_path / "theirs"
    write(file)
    with pytest.raises(InvalidInputError, match=rf"FILE: expected .*{why}.*'theirs'"):
        _ = header_of(file, form), list(read_rows(file, form))


# What a small file can stand for, and a line that never ends


def written(file: Path, columns: dict[str, Any], **options: Any) -> None:
    pq.write_table(pa.table(columns), file, compression="zstd", **{"write_statistics": False, **options})


def one_text_many_times(length: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), pa.array(["x" * length]))


@pytest.mark.parametrize(
    ("columns", "options", "why"),
    [
        ({"language": one_text_many_times(100_000)}, {}, "268,435,456 bytes in 5,000 rows"),
        ({"s": pa.StructArray.from_arrays([one_text_many_times(100_000)], ["x"])}, {}, "268,435,456 bytes in 5,000"),
        (
            {"language": pa.array(["x" * 8_000_000] * 64)},
            {"use_dictionary": False, "column_encoding": {"language": "DELTA_BYTE_ARRAY"}},
            "268,435,456 bytes in 64 rows",
        ),
        ({"language": ["x" * 1_000_000] * 40}, {"use_dictionary": False}, "1000 times its size"),
        ({"attributes": [["x"] * 1_000_000]}, {}, "elements in the lists"),
        ({"language": pa.array([b"x" * 60_000], pa.binary(60_000))}, {}, "rows of at most"),
    ],
    ids=["dictionary", "in an object", "prefixes", "compression", "lists", "wide"],
)
def test_a_small_parquet_file_that_stands_for_much_is_refused(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], why: str
) -> None:
    file = tmp_path / "bomb.parquet"
    written(file, columns, **options)
    assert file.stat().st_size < 50_000
    with pytest.raises(InvalidInputError, match=rf"FILE: expected .*{why}.*'bomb.parquet'"):
        list(read_rows(file, "parquet"))


def test_what_repeats_in_a_common_parquet_file_is_read(tmp_path: Path) -> None:
    columns = {
        "language": pa.array(["en"] * 5001).dictionary_encode(),
        "deviceModel": pa.array(["x" * 10_000] * 5001, pa.large_string()),
        "attributes": pa.array([{"a": "b" * 100, "l": ["c"] * 5}, None, {"a": None, "l": []}] * 1667),
        "pushSettings": pa.array([[("a", "b")]] * 5001, pa.map_(pa.string(), pa.string())),
        "hardwareId": pa.array([b"1234"] * 5001, pa.binary(4)),
        "occurredAt": pa.array(range(5001), pa.timestamp("ms")),
    }
    written(tmp_path / "file", columns)
    rows = [row.values for row in read_rows(tmp_path / "file", "parquet")]
    assert rows == list(zip(*(column.to_pylist() for column in columns.values()), strict=True))


@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_a_line_that_never_ends_is_an_error_of_that_row_and_never_held(tmp_path: Path, form: Format) -> None:
    file = tmp_path / "file"
    good = "c1\n" if form == "csv" else '{"clientId":"c1"}\n'
    with file.open("w") as stream:
        stream.write(f"clientId\n{good}" if form == "csv" else good)
        stream.writelines("[1," * (LONGEST_CELL // 3) for _ in range(5))
        stream.write(f"\n{good}")
    tracemalloc.start()
    try:
        rows = list(read_rows(file, form))
        assert tracemalloc.get_traced_memory()[1] < 4 * LONGEST_CELL
    finally:
        tracemalloc.stop()
    assert [(list(row.values), row.problem) for row in (rows[0], rows[2])] == [(["c1"], None)] * 2
    assert rows[1].problem == "row: line longer than 16,777,216"
    assert rows[2].line == rows[1].line + 1


# A new device's line of COPY is the row that the store would write of its state

odd_rows = st.fixed_dictionaries(
    {
        "applicationCode": st.just("A"),
        "clientId": st.sampled_from(["c1", "c\\x2"]),
        "occurredAt": st.integers(1, 2**40),
    },
    optional={
        "language": st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5),
        "deviceModel": st.sampled_from(["\\N", "a\tb", "c\nd", "e\rf", "\\x00"]),
        "pushEnabled": st.booleans(),
        "attributes": st.dictionaries(st.text("ab\\\t", min_size=1), st.sampled_from([1, 2.5, "x\n"]), max_size=2),
        "contactId": st.integers(1, 2**63 - 1),
        "orphanedSince": st.integers(1, 2**40),
    },
)
tokens: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"pushToken": "t\\1", "pushTokenKind": "apns"},
        {"pushToken": "t2", "pushTokenKind": "fcm_fid", "pushTokenStatus": "invalid"},
        {"webPushEndpoint": "https://push/1", "webPushP256dh": "p", "webPushAuth": "a"},
    ]
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(odd_rows, tokens), min_size=1, max_size=3, unique_by=lambda one: str(one[0]["clientId"])))
def test_lines_of_copy_are_the_rows_of_the_states(said: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    rows = [convert({**one, **token_said}) for one, token_said in said]
    copied = CopiedRows.of(RowColumns.of([(row, RawRow(1, (), ())) for row in rows]), CUSTOMER, HASHES)
    for number, row in enumerate(rows):
        touched, changes = changes_of([row], HASHES)
        ((device, state),) = changes.devices.items()
        expected = row_of(device, changes.names[device], state)
        expected["last_seen_at"] = EPOCH + timedelta(milliseconds=state.last_seen)
        assert copied.devices[number] == device
        assert {copied.tokens[number]} - {None} == touched.tokens
        assert {copied.contacts[number]} - {None} == touched.contacts

        line = copied.device_lines[number]
        assert line.endswith("\n")
        cells = dict(zip(COPIED, map(cell, line.removesuffix("\n").split("\t")), strict=True))
        assert {name: as_cell(expected.get(name)) for name in COPIED} == {
            name: plain(name, text) if text else text for name, text in cells.items()
        }
        token, claim = next(iter(changes.claims.items()), (None, None))
        of_claim = [] if claim is None else [bytea(token), bytea(claim.device), str(claim.version)]
        assert of_claim == [cell(one) for one in copied.claim_lines[number].split()]
        links = [
            [
                bytea(device),
                str(one.version),
                bytea(one.contact),
                None if one.contact_id is None else str(one.contact_id),
            ]
            for of_device in changes.links.values()
            for one in of_device
        ]
        assert links == [[cell(one) for one in line.split("\t")] for line in copied.link_lines[number].splitlines()]
    wanted = [token for token in copied.tokens if token is not None]
    repeated = {token for token in wanted if wanted.count(token) > 1}
    rivals = {device for device, token in zip(copied.devices, copied.tokens, strict=True) if token in repeated}
    assert copied.several == rivals


# By column the same comes out as row by row

any_cell = st.one_of(
    st.none(),
    st.sampled_from(
        ["", "7", "true", "1", "en", "é", "a\0b", "\udcff", "…", '{"a": 1}', "{", "2023-11-14T22:13:20", "x" * 600]
    ),
    st.sampled_from([1, 0, -1, True, 2.0, 2**63, float("nan"), {"a": [1]}, [1], b"x", NOW + 10**7]),
)
usual_cells = {
    "applicationCode": st.sampled_from(["A", "B"]),
    "clientId": st.sampled_from(["c1", "c2", "c3"]),
    "customerId": st.sampled_from(["7", 7, ""]),
    "occurredAt": st.sampled_from(["5", "1700000000123", 7, None]),
    "lastSeenAt": st.sampled_from(["6", "2023-11-14T22:13:20", None]),
    "language": st.sampled_from(["en", "", "de"]),
    "pushEnabled": st.sampled_from(["true", "no", True, None]),
    "attributes": st.sampled_from(['{"a": 1}', "", {"b": [2]}]),
    "contactId": st.sampled_from(["41", 42, None]),
    "orphanedSince": st.sampled_from(["3", None]),
    "pushToken": st.sampled_from(["t1", "t\\2", ""]),
    "pushTokenKind": st.sampled_from(["apns", "fcm_fid"]),
    "pushTokenStatus": st.sampled_from(["valid", "invalid", None]),
    "webPushEndpoint": st.sampled_from([None, "https://push/1"]),
}
files = st.lists(st.sampled_from(sorted(usual_cells)), min_size=2, unique=True).flatmap(
    lambda names: st.tuples(
        st.just(tuple(names)),
        st.lists(
            st.tuples(
                *(st.one_of(usual_cells[name], usual_cells[name], usual_cells[name], any_cell) for name in names)
            ),
            min_size=1,
            max_size=4,
        ),
    )
)


@settings(max_examples=examples(1200), deadline=None)
@given(files, st.sampled_from([None, "A", "x" * 600]))
def test_by_column_a_file_says_what_it_says_row_by_row(
    file: tuple[tuple[str, ...], list[tuple[Any, ...]]], application: str | None
) -> None:
    names, cells = file
    plan, by_row = ColumnMap().plan(names), converter(application)
    raws = [RawRow(line, names, values) for line, values in enumerate(cells)]
    usual, odd = usual_rows_by_customer(plan, raws, by_row)
    converted = sorted(raw.line for columns in usual.values() for raw in columns.raws)
    assert sorted(converted + [raw.line for raw in odd]) == list(range(len(raws)))
    for customer_id, columns in usual.items():
        expected = RowColumns.of([(by_row.convert(plan, raw.values), raw) for raw in columns.raws])
        assert {by_row.convert(plan, raw.values).customer_id for raw in columns.raws} == {customer_id}
        columns.info = {name: cells for name, cells in columns.info.items() if any(cell is not None for cell in cells)}
        assert columns == expected
    for raw in odd:
        with pytest.raises(RowError):
            by_row.convert(plan, raw.values)


JSON_COLUMNS = ("info_versions", "attributes", "push_settings", "web_push")
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}


def plain(name: str, text: str) -> Any:
    """A cell as the JSON of `row_of` has it: there is more than one way to write a time."""
    if name in JSON_COLUMNS:
        return json.loads(text)
    return datetime.fromisoformat(text).isoformat() if name in ("last_seen_at", "orphaned_since") else text


def cell(text: str) -> str | None:
    """As COPY reads it."""
    return None if text == r"\N" else re.sub(r"\\(.)", lambda found: ESCAPES[found[1]], text)


def bytea(value: bytes | None) -> str:
    assert value is not None
    return f"\\x{value.hex()}"


def as_cell(value: Any) -> Any:
    match value:
        case bool():
            return "t" if value else "f"
        case int():
            return str(value)
        case datetime():
            return value.isoformat()
    return value
