"""What is a customer id, and what is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clientmgr.base.customer_ids import CustomerId, parse_customer_id, quoted_schema, schema_name
from clientmgr.base.errors import InvalidInputError

REFUSED = [
    "0",
    "-1",
    "+1",
    "01",
    "1; drop schema x",
    "١٢٣",
    "9" * 30,
    "9" * 19,
    "",
    " 1",
    "1 ",
    "1\n",
    "1e3",
    "1.0",
    "0x10",
    'x"; --',
    0,
    -1,
    10**18,
    True,
    1.0,
    None,
    [1],
    b"1",
]


@pytest.mark.parametrize("value", REFUSED, ids=repr)
def test_refuses_what_is_not_a_customer_id_and_names_the_field(value: object) -> None:
    with pytest.raises(InvalidInputError, match=r"^customerId: expected a positive integer"):
        parse_customer_id(value)


def test_takes_text_and_integers() -> None:
    assert parse_customer_id("123") == 123
    assert parse_customer_id(123) == 123
    assert parse_customer_id("9" * 18) == 10**18 - 1


def test_makes_the_schema_name_and_its_quoted_form() -> None:
    assert schema_name(CustomerId(123)) == "tenant_123"
    assert quoted_schema(CustomerId(123)) == '"tenant_123"'


def test_a_schema_name_is_never_made_from_an_unparsed_value() -> None:
    with pytest.raises(InvalidInputError):
        schema_name('1"; drop schema x; --')  # type: ignore[arg-type]


@given(st.text())
def test_any_text_is_either_refused_or_read_back_unchanged(text: str) -> None:
    try:
        customer_id = parse_customer_id(text)
    except InvalidInputError:
        return
    assert str(customer_id) == text
