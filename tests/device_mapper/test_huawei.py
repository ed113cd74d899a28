"""Huawei: whatever is sent is as Push Kit documents it, and what it would refuse finds another way or is left out."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clientmgr.sending.assemble import huawei
from clientmgr.sending.mapping import OutMessage
from tests.device_mapper.cases import CASES, PLAIN, assembled, judged
from tests.device_mapper.huawei_reference import SHOWN, violations
from tests.device_mapper.samples import NOW, device, unhurried


def whole_request(content: dict[str, Any], **changes: Any) -> dict[str, Any] | None:
    """None: the device gets nothing."""
    out = judged(changes, content, device(push_token_kind="hms", platform="android-huawei", push_token="IQAAA-hms"))
    request: dict[str, Any] = json.loads(msgspec.json.encode(out.request)) if isinstance(out, OutMessage) else {}
    return request or None


def huawei_request(content: dict[str, Any], **changes: Any) -> dict[str, Any]:
    request = whole_request(content, **changes)
    assert request is not None
    message: dict[str, Any] = request["message"]
    return message


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("huawei")])
def test_it_is_as_huawei_documents_it(name: str) -> None:
    assert violations(assembled(name)["request"]) == []


texts = st.sampled_from([None, "", " ", "Hi", "😀 ü"]) | st.text(max_size=30)
links = texts | st.sampled_from(["https://shop.example.com", "HTTPS://x", "http://x", "https://", "myapp://orders/7"])
contents = st.fixed_dictionaries(
    {
        "title": texts,
        "body": texts | st.integers(3700, 4100).map(lambda length: "x" * length),
        "imageUrl": links,
        "url": links,
        "sound": texts,
        "badge": st.none() | st.integers(0, 2**31 - 1),
        "data": st.none() | st.dictionaries(st.sampled_from(["a", "ü", ""]), st.booleans() | texts),
    }
)
collapse_ids = st.none() | st.integers(-2, 200).map(str) | st.text(min_size=1, max_size=16).filter(str.isprintable)
options = st.fixed_dictionaries(
    {},
    optional={"priority": st.sampled_from(["high", "normal"]), "collapseId": collapse_ids, "silent": st.booleans()},
)
expiries = st.none() | st.integers(NOW + 1, NOW + 10**11)


@unhurried
@given(contents, options, expiries)
def test_whatever_the_content_it_is_as_huawei_documents_it(
    content: dict[str, Any], options: dict[str, Any], expires_at: int | None
) -> None:
    request = whole_request(content, options=options, expiresAt=expires_at)
    assert request is None or violations(request) == []


def changed(path: str, value: Any) -> dict[str, Any]:
    """The rich request with one member changed; None: without it."""
    request: dict[str, Any] = assembled("huawei-rich")["request"]
    *parents, name = path.split(".")
    place = request
    for parent in parents:
        place = place[parent]
    place[name] = value
    if value is None:
        del place[name]
    return request


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("message", None),
        ("message.token", None),
        ("message.token", []),
        ("message.token", ["t"] * 1001),
        ("message.token", [None]),
        ("message.token", "t"),
        ("message.data", {}),
        ("message.android.urgency", "high"),
        ("message.android.collapse_key", 101),
        ("message.android.collapse_key", -2),
        ("message.android.collapse_key", "7"),
        ("message.android.ttl", "3600"),
        ("message.android.ttl", 3600),
        ("message.android.ttl", "1296001s"),
        ("message.android.priority", "HIGH"),
        (f"{SHOWN}.importance", "MAX"),
        (f"{SHOWN}.title", ""),
        (f"{SHOWN}.body", None),
        (f"{SHOWN}.click_action", None),
        (f"{SHOWN}.click_action.type", 4),
        (f"{SHOWN}.click_action.url", None),
        (f"{SHOWN}.click_action.url", "http://x"),
        (f"{SHOWN}.image", "http://x"),
        (f"{SHOWN}.badge.set_num", 100),
        (f"{SHOWN}.badge.add_num", 0),
        (f"{SHOWN}.visibility", "public"),
        (f"{SHOWN}.subtitle", "x"),
    ],
)
def test_the_reference_refuses_what_huawei_would(path: str, value: Any) -> None:
    assert path in violations(changed(path, value))


def test_the_reference_measures_as_huawei_does() -> None:
    assert violations(changed(f"{SHOWN}.body", "ü" * 1500)) == []
    assert violations(changed("message.token", ["t" * 100] * 1000)) == []
    assert violations(changed(f"{SHOWN}.body", "ü" * 2048)) == ["message: larger than 4096 bytes"]


@pytest.mark.parametrize("url", ["myapp://orders/7", "http://shop.example.com", ""])
def test_a_link_that_huawei_would_refuse_is_left_to_the_application(url: str) -> None:
    request = huawei_request({**PLAIN, "url": url, "imageUrl": "http://img.example.com/7.png"})
    assert request["android"]["notification"] == {
        "click_action": {"type": 3},
        "title": "Hi",
        "body": "Hello",
        "tag": "order-7",
    }
    assert json.loads(request["data"])["url"] == url


def test_a_silent_message_for_huawei_keeps_its_link() -> None:
    request = huawei_request({"url": "https://shop.example.com"}, options={"silent": True})
    assert json.loads(request["data"])["url"] == "https://shop.example.com"


@pytest.mark.parametrize("content", [{"title": "Hi"}, {"body": "Hi", "title": ""}])
def test_huawei_gets_title_and_body_where_there_is_one_text(content: dict[str, Any]) -> None:
    shown = huawei_request(content)["android"]["notification"]
    assert (shown["title"], shown["body"]) == ("Hi", "Hi")


@pytest.mark.parametrize(("badge", "shown"), [(0, 0), (99, 99), (100, 99), (2**31 - 1, 99)])
def test_huaweis_badge_ends_at_99(badge: int, shown: int) -> None:
    assert huawei_request({**PLAIN, "badge": badge})["android"]["notification"]["badge"] == {"set_num": shown}


@pytest.mark.parametrize(
    ("collapse_id", "key"),
    [(None, None), ("0", 0), ("100", 100), ("101", None), ("-1", None), ("x", None), ("٧", None)],
)
def test_huaweis_collapse_key_is_never_made_up(collapse_id: str | None, key: int | None) -> None:
    assert huawei.collapse_key_of(collapse_id) == key
