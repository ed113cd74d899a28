"""What a customer id is, and the one function that makes a schema name from it."""

import re
from typing import NewType

from clientmgr.base.errors import InvalidInputError

CustomerId = NewType("CustomerId", int)

# [0-9], never \d: other alphabets' digits are not digits here. At most 18 of them fit a bigint.
_CUSTOMER_ID = re.compile(r"[1-9][0-9]{0,17}")


def parse_customer_id(value: object, *, field: str = "customerId") -> CustomerId:
    """The customer id that `value` (text or a JSON integer) stands for; all else is refused by the field's name."""
    if type(value) is int and 0 < value < 10**18:  # the way of nearly every message, and ten times as quick
        return CustomerId(value)
    if not isinstance(value, str) or _CUSTOMER_ID.fullmatch(value) is None:
        raise InvalidInputError(field, "a positive integer of at most 18 digits", value)
    return CustomerId(int(value))


def schema_name(customer_id: CustomerId) -> str:
    """The customer's schema, as the catalogue spells it."""
    return f"tenant_{parse_customer_id(customer_id)}"


def quoted_schema(customer_id: CustomerId) -> str:
    """The customer's schema as it is written in SQL: `"tenant_123"`."""
    return f'"{schema_name(customer_id)}"'


def in_schema(sql: str, customer_id: CustomerId) -> str:
    """SQL of ours for one customer: our files say `:"schema"`, as psql does, where the schema belongs."""
    return sql.replace(':"schema"', quoted_schema(customer_id))
