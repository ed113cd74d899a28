"""Charts: what is drawn is what is known, whatever it is called."""

from datetime import UTC, datetime, timedelta, timezone
from xml.etree import ElementTree

import pytest

from clientmgr_dashboard import charts
from tests.dashboard.house import MISCHIEF

START = datetime(2026, 1, 1, tzinfo=UTC)


def days(count: int) -> list[datetime]:
    return [START + timedelta(days=day) for day in range(count)]


def parse(markup: str) -> ElementTree.Element:
    """It must be well-formed, or a browser would guess."""
    return ElementTree.fromstring(f"<root>{markup}</root>")  # noqa: S314  # our own


def heights(root: ElementTree.Element) -> list[float]:
    """Of each area, at its right end."""
    found = []
    for polygon in root.iter("polygon"):
        points = [tuple(map(float, point.split(","))) for point in polygon.get("points", "").split()]
        middle = len(points) // 2
        found.append(points[middle][1] - points[middle - 1][1])
    return found


def test_areas_stand_on_each_other_and_are_as_high_as_their_values() -> None:
    root = parse(charts.stacked_areas("Devices", days(3), {"ios": [10, 20, 40], "android": [10, 10, 20]}))
    ios, android = heights(root)
    assert ios == pytest.approx(2 * android, rel=0.01)


def test_what_is_unknown_leaves_a_gap_in_no_line() -> None:
    root = parse(charts.lines("Shares", days(4), {"valid": [0.5, None, 0.7, 0.8], "none": [None] * 4}))
    valid, none = root.iter("polyline")
    assert len(valid.get("points", "").split()) == 3
    assert none.get("points") == ""


@pytest.mark.parametrize("count", [1, 2, 500])
def test_any_number_of_collections_can_be_drawn(count: int) -> None:
    values = [float(number) for number in range(count)]
    assert list(parse(charts.stacked_areas("Devices", days(count), {"ios": values})).iter("polygon"))
    assert list(parse(charts.lines("Shares", days(count), {"ios": [0.5] * count})).iter("polyline"))
    assert list(parse(charts.sparkline("Rate", values)).iter("polyline"))


def test_a_name_is_text_whatever_it_is() -> None:
    markup = charts.stacked_areas(MISCHIEF, days(2), {MISCHIEF: [1, 2]}) + charts.sparkline(MISCHIEF, [1.0])
    root = parse(markup)
    assert "<script" not in markup
    assert MISCHIEF in [element.text for element in root.iter("title")]


def test_one_number_over_time_has_a_gap_where_it_is_unknown_and_its_own_unit() -> None:
    hours = [START + timedelta(hours=hour) for hour in range(5)]
    root = parse(charts.trend("Lag", hours, [1.0, 2.0, None, 3.0, 0.5], lambda value: f"{value:g} s"))
    assert [len(line.get("points", "").split()) for line in root.iter("polyline")] == [2, 2]
    assert [element.text for element in root.iter("desc")] == ["Most recently: now 0.5 s, most 3 s"]
    texts = [tick.text for tick in root.iter("text")]
    assert {"4 s", "Jan 01, 00:00 UTC", "Jan 01, 04:00 UTC"} <= set(texts)


def test_times_are_in_utc_whatever_zone_they_come_in() -> None:
    midnight_in_india = datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    root = parse(charts.lines("Shares", [midnight_in_india], {"valid": [0.5]}))
    assert [mark.findtext("title") for mark in root.iter("circle")] == ["2026-01-01 18:30 UTC, valid: 50%"]
    assert "2026-01-01" in [tick.text for tick in root.iter("text")]


def test_a_screen_reader_gets_the_last_values() -> None:
    root = parse(charts.lines("Shares", days(2), {"valid": [0.5, 0.25], "none": [None, None]}))
    assert [element.text for element in root.iter("desc")] == ["Most recently: valid 25%, none unknown"]


@pytest.mark.parametrize(("value", "top"), [(0, 4), (3, 4), (5, 6), (95, 100), (100, 100), (101, 120), (1450, 1600)])
def test_the_axis_ends_at_a_round_number(value: float, top: float) -> None:
    assert charts._round_up(value) == top
