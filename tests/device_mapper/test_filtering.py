"""Filters: what matches, what is refused, and what can't be compared."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.devices.contact_devices import ContactDevice
from clientmgr.sending.filter_fields import (
    BOOLEAN_FIELDS,
    JSON_FIELDS,
    NUMBER_FIELDS,
    TEXT_FIELDS,
    VERSION_FIELDS,
)
from clientmgr.sending.filtering import COMPARISONS, MAX_NESTING, compile_filter, fields_of
from clientmgr.sending.versions import parse_version
from tests.device_mapper.samples import as_read, device, unhurried


def matches(node: Any, one: ContactDevice) -> bool:
    criterion = compile_filter(node)
    return criterion is None or criterion.matches(one)


def is_(field: str, op: str, *value: Any) -> dict[str, Any]:
    return {"field": field, "op": op, **({"value": value[0]} if value else {})}


IOS, ANDROID = is_("platform", "=", "ios"), is_("platform", "=", "android")


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (None, True),
        ({}, True),
        (IOS, True),
        (ANDROID, False),
        ({"all": []}, True),
        ({"any": []}, False),
        ({"all": [IOS, ANDROID]}, False),
        ({"any": [IOS, ANDROID]}, True),
        ({"not": ANDROID}, True),
        ({"not": {"all": [IOS, {"not": {"any": [ANDROID]}}]}}, False),
        (is_("platform", "!=", "android"), True),
        (is_("platform", "in", ["ios", "android"]), True),
        (is_("platform", "in", []), False),
        (is_("language", "<", "fr"), True),
        (is_("pushEnabled", "=", True), True),
        (is_("pushEnabled", "!=", True), False),
        (is_("contactId", ">", 41.5), True),
        (is_("applicationVersion", ">=", "4.10"), True),
        (is_("applicationVersion", "<", "4.9"), False),
        (is_("applicationVersion", "in", ["4.10.2.0"]), True),
        (is_("osVersion", ">", 17), True),
        (is_("hardwareId", "exists"), False),
        (is_("hardwareId", "exists", False), True),
        (is_("platform", "exists", True), True),
        (is_("attributes.tier", "=", "gold"), True),
        (is_("attributes.tier", "in", ["silver", "gold"]), True),
        (is_("attributes.visits", ">=", 3), True),
        (is_("attributes.visits", "=", "3"), False),
        (is_("attributes.visits", "<", "9"), False),
        (is_("attributes.vip", "=", 1), False),
        (is_("attributes.vip", "=", True), True),
        (is_("attributes.none", "exists"), False),
        (is_("pushSettings.news", "exists"), False),
    ],
)
def test_what_matches(node: Any, expected: bool) -> None:
    one = device(attributes='{"tier": "gold", "visits": 3, "vip": true, "list": [1]}')
    assert matches(node, one) is expected


@pytest.mark.parametrize(
    ("node", "place"),
    [
        (is_("shoeSize", "=", "43"), "filter.field"),
        (is_("push_token", "=", "x"), "filter.field"),
        (is_("attributes", "=", "x"), "filter.field"),
        (is_("attributes.", "=", "x"), "filter.field"),
        (is_("platform.name", "=", "x"), "filter.field"),
        (is_(7, "=", "x"), "filter.field"),  # type: ignore[arg-type]
        (is_("platform", "~", "x"), "filter.op"),
        (is_("platform", ["="], "x"), "filter.op"),  # type: ignore[arg-type]
        (is_("platform", "="), "filter.value"),
        (is_("platform", "=", 5), "filter.value"),
        (is_("platform", "=", None), "filter.value"),
        (is_("platform", "in", "ios"), "filter.value"),
        (is_("platform", "in", ["ios", 7]), "filter.value[1]"),
        (is_("platform", "exists", "yes"), "filter.value"),
        (is_("pushEnabled", "<", True), "filter.op"),
        (is_("pushEnabled", "=", 1), "filter.value"),
        (is_("contactId", "=", True), "filter.value"),
        (is_("applicationVersion", ">=", 4.10), "filter.value"),
        (is_("attributes.x", "=", [1]), "filter.value"),
        ({"all": [IOS, {"any": [is_("size", "=", "x")]}]}, "filter.all[1].any[0].field"),
        ({"all": IOS}, "filter.all"),
        ({"not": [IOS]}, "filter.not"),
        ({"all": [], "any": []}, "filter"),
        ({"none": []}, "filter"),
        ({**IOS, "caseSensitive": True}, "filter"),
        ({"op": "="}, "filter"),
        ([], "filter"),
        ("platform = ios", "filter"),
        (5, "filter"),
    ],
)
def test_what_can_not_be_understood_is_refused_by_its_place(node: Any, place: str) -> None:
    with pytest.raises(InvalidMessageError) as refused:
        compile_filter(node)
    assert str(refused.value).startswith(f"{place}: expected")


def test_the_application_is_not_for_a_filter_and_the_error_says_why() -> None:
    with pytest.raises(
        InvalidMessageError, match=r"^filter\.field: .* which the message itself has, got 'applicationCode'"
    ):
        compile_filter(is_("applicationCode", "=", "EMS11-C3FD3"))


def test_nesting_has_an_end() -> None:
    def nested(levels: int) -> Any:
        return IOS if levels == 1 else {"not": nested(levels - 1)}

    compile_filter(nested(MAX_NESTING))
    with pytest.raises(InvalidMessageError, match="levels"):
        compile_filter(nested(MAX_NESTING + 1))


@pytest.mark.parametrize(
    ("node", "reasons"),
    [
        ({"all": [IOS, ANDROID]}, ["platform = \"android\": the device has 'ios'"]),
        (is_("hardwareId", "exists"), ["hardwareId exists: the device has none"]),
        ({"not": IOS}, ['matches what it must not: {"field":"platform","op":"=","value":"ios"}']),
        ({"any": []}, ["any of nothing"]),
        ({"any": [ANDROID]}, ["platform = \"android\": the device has 'ios'"]),
    ],
)
def test_it_tells_why_a_device_does_not_match(node: Any, reasons: list[str]) -> None:
    criterion = compile_filter(node)
    assert criterion is not None
    assert not criterion.matches(device())
    assert criterion.reasons(device()) == reasons


# Properties

numbers = st.lists(st.integers(0, 30), min_size=1, max_size=4)
versions = numbers.map(lambda parts: ".".join(map(str, parts)))
no_versions = st.sampled_from(["", " ", "v4", "4.", ".4", "4..1", "4.1-beta", "4,1", "٤", "4.1 ", "nightly", "9" * 19])
fields = st.sampled_from([*TEXT_FIELDS, *VERSION_FIELDS, *NUMBER_FIELDS, *BOOLEAN_FIELDS])
comparisons = st.sampled_from(list(COMPARISONS))


def longest(left: list[int], right: list[int]) -> tuple[list[int], list[int]]:
    size = max(len(left), len(right))
    return left + [0] * (size - len(left)), right + [0] * (size - len(right))


@unhurried
@given(numbers, numbers, comparisons)
def test_versions_compare_as_their_numbers_do(left: list[int], right: list[int], op: str) -> None:
    one = device(application_version=".".join(map(str, left)))
    node = is_("applicationVersion", op, ".".join(map(str, right)))
    assert matches(node, one) is COMPARISONS[op](*longest(left, right))


@unhurried
@given(st.one_of(no_versions, versions), st.one_of(no_versions, versions), comparisons)
def test_a_version_that_is_none_matches_no_comparison(has: str, wanted: str, op: str) -> None:
    comparable = parse_version(has) is not None and parse_version(wanted) is not None
    one = device(application_version=has)
    assert comparable or not matches(is_("applicationVersion", op, wanted), one)
    assert comparable or not matches(is_("applicationVersion", "in", [wanted]), one)


@unhurried
@given(no_versions)
def test_what_is_not_made_of_numbers_is_no_version(text: str) -> None:
    assert parse_version(text) is None


def value_for(field: str) -> Any:
    if field in NUMBER_FIELDS:
        return 1
    return True if field in BOOLEAN_FIELDS else "1"


@unhurried
@given(fields, comparisons)
def test_a_field_without_a_value_matches_no_comparison(field: str, op: str) -> None:
    nothing = ContactDevice(contact_id=1, client_id="c")
    kept = {"clientId", "provider", "pushTokenStatus", "contactId"}
    if field not in kept and not (field in BOOLEAN_FIELDS and op not in ("=", "!=")):
        assert not matches(is_(field, op, value_for(field)), nothing)
        assert matches({"not": is_(field, op, value_for(field))}, nothing)
        assert not matches(is_(field, "exists"), nothing)


leaves = st.sampled_from(
    [
        IOS,
        ANDROID,
        is_("applicationVersion", ">=", "4.10"),
        is_("language", "in", ["en", "fr"]),
        is_("hardwareId", "exists"),
        is_("pushEnabled", "=", False),
    ]
)
trees = st.recursive(
    leaves,
    lambda below: st.one_of(
        st.lists(below, max_size=3).map(lambda parts: {"all": parts}),
        st.lists(below, max_size=3).map(lambda parts: {"any": parts}),
        below.map(lambda part: {"not": part}),
    ),
    max_leaves=8,
)
devices = st.builds(
    device,
    platform=st.sampled_from(["ios", "android", None]),
    application_version=st.sampled_from(["4.9", "4.10", "5", "x", None]),
    language=st.sampled_from(["en", "hu", None]),
    hardware_id=st.sampled_from(["h", None]),
    push_enabled=st.sampled_from([True, False, None]),
)


def by_hand(node: dict[str, Any], one: ContactDevice) -> bool:
    """The same, decided anew at each node."""
    if "all" in node:
        return all(by_hand(part, one) for part in node["all"])
    if "any" in node:
        return any(by_hand(part, one) for part in node["any"])
    if "not" in node:
        return not by_hand(node["not"], one)
    return matches(node, one)


@unhurried
@given(trees, devices)
def test_nested_criteria_mean_what_logic_says(node: dict[str, Any], one: ContactDevice) -> None:
    assert matches(node, one) is by_hand(node, one)


@unhurried
@given(trees, devices)
def test_de_morgan_holds(node: dict[str, Any], one: ContactDevice) -> None:
    assert matches({"not": {"all": [node, IOS]}}, one) is matches({"any": [{"not": node}, {"not": IOS}]}, one)


@unhurried
@given(trees, devices)
def test_a_filter_asks_for_all_that_it_looks_at(node: dict[str, Any], one: ContactDevice) -> None:
    """The daemon reads no other fields: one that it does not ask for would be none of any device's."""
    assert matches(node, as_read(one, fields_of(node))) is matches(node, one)


@unhurried
@given(trees, devices)
def test_whoever_does_not_match_is_told_why(node: dict[str, Any], one: ContactDevice) -> None:
    criterion = compile_filter(node)
    assert criterion is not None
    assert criterion.matches(one) or criterion.reasons(one)


def test_all_fields_of_a_device_but_secrets_can_be_asked_for() -> None:
    for name, attribute in (TEXT_FIELDS | VERSION_FIELDS | NUMBER_FIELDS | BOOLEAN_FIELDS).items():
        assert list(fields_of({"not": is_(name, "exists")})) == [attribute]
    for name, attribute in JSON_FIELDS.items():
        assert list(fields_of({"any": [is_(f"{name}.tier.x", "exists")]})) == [attribute]
    known = {*TEXT_FIELDS.values(), *VERSION_FIELDS.values(), *NUMBER_FIELDS.values(), *BOOLEAN_FIELDS.values()}
    assert set(ContactDevice.__struct_fields__) - known - set(JSON_FIELDS.values()) == {"push_token", "web_push"}
