"""No cell of a CSV file is a formula, and whatever is none stays as it is."""

import pytest

from clientmgr.base.csv_cells import harmless


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+cmd|' /C calc'!A0",
        "-2+3",
        "@SUM(A1)",
        "  =1",
        '"=1',
        "'=1",
        "\t=1",
        "\rx",
        "\n=1",
        "\u00a0=1",
        "\ufeff=1",
        "\uff1d1+1",
        "\uff0b1",
        "\uff20SUM",
        "-5x",
        "-",
        "|calc",
        "%0A=1",
    ],
)
def test_a_formula_becomes_text(text: str) -> None:
    assert harmless(text) == f"'{text}"


@pytest.mark.parametrize(
    "value", ["-5", "+5", "-1.5e-3", -5, 1.5, None, True, "", "iPhone", "a=b", "2026-01-01", "Europe/Paris", '{"a":1}']
)
def test_what_is_none_stays(value: object) -> None:
    assert harmless(value) == value
