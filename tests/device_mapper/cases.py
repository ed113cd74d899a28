"""Messages that the golden files show the outcome of, and what the mapper makes of any such message for one device."""

import json
from typing import Any

import msgspec

from clientmgr.devices.contact_devices import ContactDevice
from clientmgr.sending.mapping import MessageMapper, OutMessage, Reason
from tests.device_mapper.samples import NOW, browser, decoded, device, recipient

RICH = {
    "title": "Hi {{ first_name }}",
    "subtitle": "Order 7",
    "body": "It's here: %NAME%, naïve 😀",
    "imageUrl": "https://img.example.com/7.png",
    "url": "https://shop.example.com/orders/7?a=1&b=2",
    "sound": "ding.caf",
    "badge": 3,
    "data": {"orderId": 7, "express": True, "note": "à la carte", "lines": [{"sku": "A-1"}]},
}
PLAIN = {"title": "Hi", "body": "Hello"}
ANDROID = {"platform": "android", "push_token": "dGVzdC10b2tlbg:APA91bH-token"}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], ContactDevice]] = {
    "apple-rich": ({}, RICH, device()),
    "apple-plain": ({"options": {"appleTopic": "com.acme.app"}, "expiresAt": None}, PLAIN, device()),
    "apple-silent": ({"options": {"silent": True, "appleTopic": "com.acme.app"}}, RICH, device()),
    "fcm-token-rich": ({}, RICH, device(push_token_kind="fcm_token", **ANDROID)),
    "fcm-fid-plain": ({"options": {}}, PLAIN, device(push_token_kind="fcm_fid", platform="android", push_token="fid1")),
    "fcm-silent": ({"options": {"silent": True}}, RICH, device(push_token_kind="fcm_fid", **ANDROID)),
    "fcm-on-ios": ({}, RICH, device(push_token_kind="fcm_token")),
    "fcm-on-ios-silent": ({"options": {"silent": True}}, RICH, device(push_token_kind="fcm_fid", push_token="fid1")),
    "huawei-rich": ({}, RICH, device(push_token_kind="hms", platform="android-huawei", push_token="IQAAA-hms")),
    "huawei-silent": (
        {"options": {"silent": True, "collapseId": "7", "priority": "normal"}},
        RICH,
        device(push_token_kind="hms", push_token="IQAAA-hms"),
    ),
    "webpush-rich": ({"channel": "webpush"}, RICH, browser()),
    "webpush-plain": ({"channel": "webpush", "options": {"priority": "normal"}, "expiresAt": None}, PLAIN, browser()),
    "inbox-rich": ({"channel": "inbox"}, RICH, device()),
    "em-plain": ({"channel": "em", "options": {}}, PLAIN, device()),
}


def judged(changes: dict[str, Any], content: dict[str, Any], one: ContactDevice) -> OutMessage | Reason:
    sent = decoded(**changes, recipients=[recipient(42, en=content)])
    mapper = MessageMapper(sent, now_ms=NOW, max_message_bytes=1_000_000)
    return mapper.judge(sent.recipients[0], one)


def assembled(name: str) -> dict[str, Any]:
    out = judged(*CASES[name])
    assert isinstance(out, OutMessage)
    document: dict[str, Any] = json.loads(msgspec.json.encode(out))
    return document
