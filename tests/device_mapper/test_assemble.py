"""What is sent to each provider: golden files, checked by others' code, and the published limits.

`GOLDEN=write pytest tests/device_mapper/test_assemble.py` writes the files anew; look at the difference before you
commit it.
"""

import base64
import json
import os
import re
import uuid
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from firebase_admin import messaging
from hypothesis import given
from hypothesis import strategies as st
from pywebpush import WebPusher

from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.contracts.sending import Content, decode_message
from clientmgr.sending.assemble import apple, fcm, huawei, webpush
from clientmgr.sending.assemble.interface import Delivery
from clientmgr.sending.identity import NAMESPACE, OutMessageIds
from clientmgr.sending.mapping import OutMessage, Reason
from tests.device_mapper.cases import CASES, PLAIN, assembled, judged
from tests.device_mapper.samples import (
    APPLICATION,
    NOW,
    as_read,
    browser,
    decoded,
    device,
    message,
    recipient,
    unhurried,
)

with warnings.catch_warnings():
    # It is moving from tokens to installation ids, and so are we: both are sent for as long as FCM takes both.
    warnings.simplefilter("ignore", DeprecationWarning)
    from firebase_admin import _messaging_encoder

GOLDEN = Path(__file__).with_name("golden")


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_the_golden_file_says(name: str) -> None:
    file = GOLDEN / f"{name}.json"
    document = assembled(name)
    if os.environ.get("GOLDEN") == "write":
        file.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    assert document == json.loads(file.read_text())


@pytest.mark.parametrize("name", CASES)
def test_a_message_takes_an_address_and_nothing_else_of_a_device(name: str) -> None:
    changes, content, one = CASES[name]
    assert judged(changes, content, as_read(one, [])) == judged(changes, content, one)


def test_no_golden_file_is_left_over() -> None:
    assert {file.stem for file in GOLDEN.glob("*.json")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_envelope_is_the_contracts(name: str) -> None:
    document = assembled(name)
    assert list(document) == [
        "outMessageId", "messageId", "customerId", "contactId", "applicationCode", "clientId", "provider", "language",
        "request",
    ]  # fmt: skip
    channel = name.partition("-")[0]
    assert document["provider"] == {"webpush": "vapid"}.get(channel, channel)
    assert (document["clientId"] is None) is (channel in ("inbox", "em"))


# FCM: Google's own types take it, and write the same.


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("fcm")])
@pytest.mark.filterwarnings("ignore:Message.token is deprecated:DeprecationWarning")
def test_googles_own_encoder_writes_the_same_fcm_message(name: str) -> None:
    ours = assembled(name)["request"]["message"]
    android, apns = ours.get("android"), ours.get("apns")
    theirs = messaging.Message(
        fid=ours.get("fid"),
        token=ours.get("token"),
        data=ours["data"],
        notification=messaging.Notification(**ours["notification"]) if "notification" in ours else None,
        android=android and _android_config(android),
        apns=apns and _apns_config(apns),
    )
    written = json.loads(json.dumps(theirs, cls=_messaging_encoder.MessageEncoder))
    if android:
        # They write the enumeration's values in lower case; the reference has them in capitals, and FCM takes both.
        written["android"]["priority"] = written["android"]["priority"].upper()
    assert written == ours


def _android_config(android: dict[str, Any]) -> Any:
    notification = dict(android.get("notification", {}))
    return messaging.AndroidConfig(
        collapse_key=android.get("collapse_key"),
        priority=android["priority"].lower(),
        ttl=int(android["ttl"].removesuffix("s")),
        notification=messaging.AndroidNotification(**notification) if notification else None,
    )


def _apns_config(apns: dict[str, Any]) -> Any:
    options = apns.get("fcm_options")
    return messaging.APNSConfig(
        headers=apns["headers"],
        payload=_apns_payload(apns["payload"]),
        fcm_options=options and messaging.APNSFCMOptions(**options),
    )


def _apns_payload(payload: dict[str, Any]) -> Any:
    """Firebase knows what is in an `aps` and refuses what is not: the nearest to a judge of Apple's that there is."""
    aps = dict(payload["aps"])
    alert = aps.pop("alert", None)
    known = {
        "alert": alert and messaging.ApsAlert(**alert),
        "badge": aps.pop("badge", None),
        "sound": aps.pop("sound", None),
        "content_available": aps.pop("content-available", 0) == 1 or None,
        "mutable_content": aps.pop("mutable-content", 0) == 1 or None,
    }
    assert aps == {}
    return messaging.APNSPayload(messaging.Aps(**known), **{key: payload[key] for key in payload if key != "aps"})


@pytest.mark.parametrize(
    ("name", "push_type", "priority"), [("fcm-on-ios", "alert", "10"), ("fcm-on-ios-silent", "background", "5")]
)
def test_apple_is_told_by_fcm_what_kind_of_push_it_is(name: str, push_type: str, priority: str) -> None:
    apns = assembled(name)["request"]["message"]["apns"]
    assert (apns["headers"]["apns-push-type"], apns["headers"]["apns-priority"]) == (push_type, priority)
    assert ("alert" in apns["payload"]["aps"]) is (push_type == "alert")


def test_fcm_is_given_a_token_or_an_installation_never_both() -> None:
    targets = [set(assembled(name)["request"]["message"]) & {"fid", "token"} for name in CASES if "fcm" in name]
    assert sorted(map(sorted, targets)) == [["fid"], ["fid"], ["fid"], ["token"], ["token"]]


def test_fcm_data_is_text_throughout() -> None:
    data = assembled("fcm-token-rich")["request"]["message"]["data"]
    assert all(isinstance(value, str) for value in data.values())
    assert (data["orderId"], data["express"], data["lines"]) == ("7", "true", '[{"sku":"A-1"}]')


def test_what_is_shown_on_ios_counts_once_towards_fcms_limit() -> None:
    one = device(push_token_kind="fcm_token", platform="ios")
    assert isinstance(judged({}, {"title": "T", "body": "x" * 3500}, one), OutMessage)
    assert judged({}, {"title": "T", "body": "x" * 4096}, one) is Reason.PAYLOAD_TOO_LARGE


@pytest.mark.parametrize("kind", ["fcm_token", "hms"])
def test_data_of_the_content_does_not_pass_for_ours(kind: str) -> None:
    content = {**PLAIN, "url": "https://x.example", "data": {"messageId": "X", "campaignId": "Y", "url": "Z", "n": 1}}
    out = judged({}, content, device(push_token_kind=kind, platform="android"))
    assert isinstance(out, OutMessage)
    data = json.loads(msgspec.json.encode(out.request))["message"]["data"]
    data = json.loads(data) if isinstance(data, str) else data
    assert (data["messageId"], data["campaignId"], data["url"]) == ("m-1", "9001", "https://x.example")
    assert str(data["n"]) == "1"


def with_data(channel: str, **data: Any) -> bytes:
    """A message whose second recipient has these keys in one of its languages."""
    contents = {"en": PLAIN, "fr": {**PLAIN, "data": data}}
    return msgspec.json.encode(message(channel=channel, recipients=[recipient(41), recipient(42, **contents)]))


@pytest.mark.parametrize("key", ["from", "message_type", "google.x", "gcm.notification", "google", "gcmx", "googleId"])
def test_a_key_that_fcm_keeps_for_itself_is_refused_whoever_has_which_phone(key: str) -> None:
    with pytest.raises(InvalidMessageError, match=r"recipients\[1\]\.contents\[\.\.\.\]\.data: .*'" + re.escape(key)):
        decode_message(with_data("push", fine=1, **{key: "x"}))


@pytest.mark.parametrize("channel", ["webpush", "inbox", "em"])
def test_where_fcm_has_no_part_any_key_will_do(channel: str) -> None:
    decode_message(with_data(channel, **{"from": "x"}))


@pytest.mark.parametrize("key", ["From", "fromage", "message-type", "my.google", "url"])
def test_a_key_that_only_looks_like_one_of_fcms_is_taken(key: str) -> None:
    decode_message(with_data("push", **{key: "x"}))


# Apple


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("apple")])
def test_an_aps_is_what_firebase_knows_of_it(name: str) -> None:
    payload = assembled(name)["request"]["payload"]
    theirs = messaging.Message(topic="t", apns=messaging.APNSConfig(payload=_apns_payload(payload)))
    assert json.loads(json.dumps(theirs, cls=_messaging_encoder.MessageEncoder))["apns"]["payload"] == payload


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("apple")])
def test_apples_headers_are_text_of_the_documented_kind(name: str) -> None:
    document = assembled(name)
    headers = document["request"]["headers"]
    assert set(headers) <= {
        "apns-id", "apns-push-type", "apns-priority", "apns-expiration", "apns-topic", "apns-collapse-id",
    }  # fmt: skip
    assert headers["apns-id"] == document["outMessageId"]
    assert headers["apns-push-type"] == ("background" if "silent" in name else "alert")
    assert headers["apns-priority"] == ("5" if "silent" in name else "10")
    assert all(isinstance(value, str) for value in headers.values())


def test_a_collapse_id_that_apple_would_refuse_is_refused_here() -> None:
    for collapse_id in ("é" * 32, "x" * 64):
        decoded(options={"collapseId": collapse_id})
    for collapse_id in ("é" * 33, "x" * 65, "a\nb", ""):
        body = msgspec.json.encode(message(options={"collapseId": collapse_id}))
        with pytest.raises(InvalidMessageError, match=r"options\.collapseId"):
            decode_message(body)
    decoded(channel="webpush", options={"collapseId": "x" * 65})


# What holds for all


@pytest.mark.parametrize("badge", [-1, 2**31, 1.5])
def test_a_badge_is_a_number_that_every_provider_can_count_to(badge: float) -> None:
    body = msgspec.json.encode(message(recipients=[recipient(42, en={**PLAIN, "badge": badge})]))
    with pytest.raises(InvalidMessageError, match="badge"):
        decode_message(body)


# Web push


def subscription() -> dict[str, Any]:
    """A browser's subscription with keys that are keys."""
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    point = public.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
    encoded = base64.urlsafe_b64encode(point).decode().rstrip("=")
    return {"endpoint": "https://push.example.com/x", "keys": {"p256dh": encoded, "auth": "BTBZMqHH6r4Tts7J_aSIgg"}}


def test_pywebpush_takes_the_subscription_and_the_largest_plaintext_fits() -> None:
    one = browser(web_push=json.dumps(subscription()))
    empty = judged({"channel": "webpush"}, {"title": "", "body": "x"}, one)
    assert isinstance(empty, OutMessage)
    room = webpush.MAX_PLAINTEXT_BYTES - len(json.loads(msgspec.json.encode(empty.request))["plaintext"].encode())

    largest = judged({"channel": "webpush"}, {"title": "", "body": "x" * (room + 1)}, one)
    assert isinstance(largest, OutMessage)
    request = json.loads(msgspec.json.encode(largest.request))
    assert len(request["plaintext"].encode()) == webpush.MAX_PLAINTEXT_BYTES
    encrypted = WebPusher(request["subscription"]).encode(request["plaintext"].encode(), content_encoding="aes128gcm")
    assert len(encrypted["body"]) == 4096
    assert judged({"channel": "webpush"}, {"title": "", "body": "x" * (room + 2)}, one) is Reason.PAYLOAD_TOO_LARGE


@unhurried
@given(st.text(min_size=1, max_size=80))
def test_a_topic_is_one_that_push_services_take(collapse_id: str) -> None:
    topic = webpush.topic_of(collapse_id)
    assert topic is not None
    assert 1 <= len(topic) <= 32
    assert all(character.isascii() and (character.isalnum() or character in "-_") for character in topic)
    assert topic == webpush.topic_of(collapse_id)


@pytest.mark.parametrize(
    ("expires_at", "ttl"), [(NOW + 61_999, "61"), (NOW + 1, "0"), (None, "2419200"), (NOW + 10**12, "2419200")]
)
def test_the_time_that_is_left_is_told_in_whole_seconds(expires_at: int | None, ttl: str) -> None:
    out = judged({"channel": "webpush", "expiresAt": expires_at}, PLAIN, browser())
    assert isinstance(out, OutMessage)
    assert json.loads(msgspec.json.encode(out.request))["headers"]["TTL"] == ttl


# Limits, of what counts towards them: all but the device's address.


@pytest.mark.parametrize(
    ("make", "limit"),
    [(apple.AppleAssembler, 4096), (fcm.FcmAssembler, 4096), (huawei.HuaweiAssembler, 4096)],
)
@pytest.mark.parametrize("character", ["x", "é", "😀", '"'])
def test_a_payload_at_the_limit_goes_and_a_byte_more_does_not(make: Any, limit: int, character: str) -> None:
    assembler = make(Delivery(decoded(), NOW))
    kind = {"apple": "apns", "fcm": "fcm_fid", "huawei": "hms"}[assembler.provider]
    one = device(push_token_kind=kind, platform="android", push_token="t" * 3000)
    shortest = len(assembler.payload(Content(title="T", body="x"), "android")) - 1
    fits = (limit - shortest) // (len(msgspec.json.encode(character)) - 2)
    assert isinstance(judged({}, {"title": "T", "body": character * fits}, one), OutMessage)
    assert judged({}, {"title": "T", "body": character * (fits + 1)}, one) is Reason.PAYLOAD_TOO_LARGE


# Placeholders and ids


@unhurried
@given(st.text(min_size=1, max_size=50))
@pytest.mark.parametrize("name", ["apple-plain", "fcm-fid-plain", "huawei-rich", "webpush-plain", "inbox-rich"])
def test_text_arrives_as_it_was_written(name: str, text: str) -> None:
    changes, _, one = CASES[name]
    out = judged(changes, {"title": text, "body": text}, one)
    assert isinstance(out, OutMessage)
    request = json.loads(msgspec.json.encode(out.request))
    shown = {
        "apple-plain": lambda: request["payload"]["aps"]["alert"],
        "fcm-fid-plain": lambda: request["message"]["notification"],
        "huawei-rich": lambda: request["message"]["android"]["notification"],
        "webpush-plain": lambda: json.loads(request["plaintext"]),
        "inbox-rich": lambda: request,
    }[name]()
    assert (shown["title"], shown["body"]) == (text, text)


identifiers = st.text(min_size=1, max_size=20)


@unhurried
@given(identifiers, st.integers(1, 2**63 - 1), identifiers, st.one_of(st.none(), identifiers))
def test_an_id_is_the_uuid5_of_what_it_stands_for(
    message_id: str, contact_id: int, application: str, client_id: str | None
) -> None:
    name = msgspec.json.encode([message_id, contact_id, application, client_id]).decode()
    assert OutMessageIds(message_id, application).of(contact_id, client_id) == str(uuid.uuid5(NAMESPACE, name))


def test_ids_never_change_from_one_release_to_the_next() -> None:
    assert OutMessageIds("m-1", APPLICATION).of(42, "c1") == assembled("apple-rich")["outMessageId"]
