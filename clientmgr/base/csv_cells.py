"""Cells of CSV files. A spreadsheet runs what looks like a formula, and strangers fill our tables."""

import re
from typing import Any, Final

# A spreadsheet trims spaces and quotes, and East Asian ones read the full-width signs as the plain ones.
_FORMULA: Final = re.compile(
    "^[\\s\"'`\\u200b\\ufeff\\x00-\\x1f]*[=+\\-@\\uff1d\\uff0b\\uff0d\\uff20\\u2212|%]|^[\t\r\n]"
)
_NUMBER: Final = re.compile(r"[+-]?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?")


def harmless(value: Any) -> Any:
    """The value as a cell that no spreadsheet runs: an apostrophe before it makes it text. Numbers stay numbers."""
    if isinstance(value, str) and _FORMULA.match(value) and _NUMBER.fullmatch(value) is None:
        return f"'{value}"
    return value


def as_written(cell: str) -> str:
    """What `harmless` made a cell of. Nothing else that it leaves alone looks like one of those."""
    return cell[1:] if cell.startswith("'") and harmless(cell[1:]) == cell else cell
