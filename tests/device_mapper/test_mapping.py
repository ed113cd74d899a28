"""Which devices a message is for, why the others get nothing, and which reason stands for a contact."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clientmgr.contracts.decoding import InvalidMessageError
from clientmgr.contracts.sending import decode_message
from clientmgr.devices.contact_devices import ContactDevice
from clientmgr.sending.mapping import Mapped, MessageMapper, Reason, distinct
from tests.device_mapper.samples import NOW, browser, decoded, device, message, recipient, unhurried

ALL_STAGES: dict[Reason, dict[str, Any]] = {
    Reason.CRITERIA: {"platform": "windows"},
    Reason.PUSH_DISABLED: {"push_enabled": False},
    Reason.MISSING_PUSH_TOKEN: {"push_token": None, "push_token_status": "none", "push_token_kind": None},
    Reason.INVALID_PUSH_TOKEN: {"push_token_status": "invalid"},
    Reason.NO_CONTENT: {"language": "hu"},
    Reason.PAYLOAD_TOO_LARGE: {"language": "de"},
}
"""What stops a device at each stage of the message below. EXPIRED is the message's."""


def run(devices: list[ContactDevice], **changes: Any) -> Mapped:
    sent = decoded(**changes)
    mapped = Mapped()
    mapper = MessageMapper(sent, now_ms=NOW, max_message_bytes=1_000_000)
    mapper.map(sent.recipients, {42: devices} if devices else {}, mapped)
    return mapped


def staged(devices: list[ContactDevice], *, expired: bool = False) -> Mapped:
    """A message that each of `ALL_STAGES` fails at its stage."""
    contents = {"en": {"title": "Hi"}, "hu": {"title": ""}, "de": {"body": "x" * 5000}}
    return run(
        devices,
        filter={"not": {"field": "platform", "op": "=", "value": "windows"}},
        expiresAt=NOW if expired else NOW + 1,
        defaultLanguage=None,
        recipients=[recipient(42, **contents)],
    )


def sent_to(mapped: Mapped, provider: str) -> list[dict[str, Any]]:
    return [json.loads(one.data) for one in mapped.sent[provider]]


def counts(mapped: Mapped) -> dict[str, int]:
    return {provider: len(messages) for provider, messages in mapped.sent.items()}


def events(mapped: Mapped) -> list[dict[str, Any]]:
    """The not-sent ones."""
    assert sum(mapped.reasons.values()) == len(mapped.not_sent)
    return [json.loads(one.data) for one in mapped.not_sent]


def test_each_device_of_a_contact_gets_a_message_for_its_provider() -> None:
    mapped = run(
        [
            device("a"),
            device("b", language="fr-CA"),
            device("c", push_token_kind="fcm_fid", platform="android"),
            device("d", push_token_kind="hms"),
            browser("e"),
        ]
    )
    clients = {provider: [json.loads(one.data)["clientId"] for one in some] for provider, some in mapped.sent.items()}
    assert clients == {"apple": ["a", "b"], "fcm": ["c"], "huawei": ["d"]}
    assert [one["language"] for one in sent_to(mapped, "apple")] == ["en", "fr"]
    assert [(one.tenant, one.key) for one in mapped.sent["fcm"]] == [("7", "c")]


def test_web_push_goes_to_browsers_alone() -> None:
    mapped = run([device("a"), browser("b")], channel="webpush")
    assert [one["clientId"] for one in sent_to(mapped, "vapid")] == ["b"]
    assert counts(mapped) == {"vapid": 1}


@pytest.mark.parametrize("channel", ["inbox", "em"])
def test_a_contact_gets_one_message_in_the_language_of_the_device_seen_last(channel: str) -> None:
    devices = [
        device("a", language="en", last_seen_at=5),
        browser("b", language="fr", last_seen_at=9, push_enabled=False),
        device("c", language="en", last_seen_at=None, push_token=None, push_token_status="none"),
    ]
    (one,) = sent_to(run(devices, channel=channel), channel)
    assert (one["language"], one["clientId"], one["provider"]) == ("fr", None, channel)


def test_of_devices_that_the_filter_leaves_out_the_inbox_takes_no_language() -> None:
    devices = [device("a", language="fr", last_seen_at=9, platform="android"), device("b", last_seen_at=5)]
    ios = {"field": "platform", "op": "=", "value": "ios"}
    (one,) = sent_to(run(devices, channel="inbox", filter=ios), "inbox")
    assert one["language"] == "en"


def test_a_text_that_says_nothing_is_none() -> None:
    """The next best is taken, by the same rules."""
    contents = {"fr-CA": {"title": ""}, "fr": {"url": "https://x.example"}, "en": {"body": "Hello"}}
    (one,) = sent_to(run([device(language="fr-CA")], recipients=[recipient(42, **contents)]), "apple")
    assert one["language"] == "en"
    (one,) = sent_to(
        run(
            [device(language="fr-CA")],
            recipients=[recipient(42, **contents, de={"body": "Hallo"})],
            defaultLanguage="de",
        ),
        "apple",
    )
    assert one["language"] == "de"


@pytest.mark.parametrize(
    ("contents", "default", "language"),
    [({}, None, "und"), ({}, "hu", "hu"), ({"fr": {"data": {"n": 1}}}, "hu", "fr"), ({"hu": {}, "en": {}}, "hu", "en")],
)
def test_a_silent_message_needs_no_text(contents: dict[str, Any], default: str | None, language: str) -> None:
    one = {"contactId": 42, "contents": contents}
    mapped = run(
        [device(language="en")],
        options={"silent": True, "appleTopic": "com.acme.app"},
        defaultLanguage=default,
        recipients=[one],
    )
    (sent,) = sent_to(mapped, "apple")
    assert sent["language"] == language
    assert sent["request"]["payload"]["aps"] == {"content-available": 1}


def test_a_contact_without_devices_is_not_sent_to() -> None:
    (event,) = events(run([]))
    assert event == {
        "messageId": "m-1",
        "customerId": 7,
        "contactId": 42,
        "campaignId": "9001",
        "channel": "push",
        "reason": "NO_DEVICES",
        "devices": [],
        "occurredAt": NOW,
    }


@pytest.mark.parametrize("channel", ["inbox", "em"])
def test_neither_is_an_inbox_filled_for_nobody(channel: str) -> None:
    assert [event["reason"] for event in events(run([], channel=channel))] == ["NO_DEVICES"]


def test_devices_of_another_channel_are_no_devices() -> None:
    assert [event["reason"] for event in events(run([browser()]))] == ["NO_DEVICES"]
    assert [event["reason"] for event in events(run([device()], channel="webpush"))] == ["NO_DEVICES"]


@pytest.mark.parametrize("reason", ALL_STAGES)
def test_each_stage_has_its_reason(reason: Reason) -> None:
    (event,) = events(staged([device(**ALL_STAGES[reason])]))
    assert (event["reason"], event["devices"]) == (reason, [{"clientId": "c1", "reason": reason}])


def test_what_would_have_been_sent_in_time_is_expired() -> None:
    assert [event["reason"] for event in events(staged([device()], expired=True))] == ["EXPIRED"]
    assert events(staged([device()])) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"push_token_status": "superseded", "push_token": None}, "MISSING_PUSH_TOKEN"),
        ({"provider": "none", "push_token": None, "push_token_status": "none"}, "MISSING_PUSH_TOKEN"),
        ({"push_token": None}, "MISSING_PUSH_TOKEN"),
        ({"push_enabled": False, "push_token_status": "invalid"}, "PUSH_DISABLED"),
    ],
)
def test_odd_devices(changes: dict[str, Any], reason: str) -> None:
    assert [event["reason"] for event in events(run([device(**changes)]))] == [reason]


@pytest.mark.parametrize("web_push", [None, "{}", '{"endpoint": "https://x", "keys": {"auth": "a"}}', "[]"])
def test_a_browser_whose_subscription_is_not_whole_costs_only_itself(web_push: str | None) -> None:
    mapped = run([browser("a"), browser("b", web_push=web_push)], channel="webpush")
    assert counts(mapped) == {"vapid": 1}
    assert [event["reason"] for event in events(run([browser(web_push=web_push)], channel="webpush"))] == [
        "MISSING_PUSH_TOKEN"
    ]


def test_a_device_that_never_said_whether_it_wants_push_gets_it() -> None:
    assert counts(run([device(push_enabled=None)])) == {"apple": 1}


def test_a_silent_message_needs_nothing_to_read() -> None:
    sent = {
        "options": {"silent": True, "appleTopic": "com.acme.app"},
        "recipients": [recipient(42, en={"data": {"refresh": "1"}})],
    }
    assert counts(run([device()], **sent)) == {"apple": 1}


def test_one_device_that_gets_it_is_enough_for_a_contact() -> None:
    mapped = staged([device(reason, **changes) for reason, changes in ALL_STAGES.items()] + [device("good")])
    assert (counts(mapped), events(mapped)) == ({"apple": 1}, [])


@unhurried
@given(st.lists(st.sampled_from([*ALL_STAGES, None]), max_size=6), st.booleans())
def test_a_contact_has_outputs_or_one_reason_and_it_is_the_furthest(stops: list[Reason | None], expired: bool) -> None:
    devices = [device(f"c{place}", **(ALL_STAGES[stop] if stop else {})) for place, stop in enumerate(stops)]
    mapped = staged(devices, expired=expired)
    reasons = [stop or Reason.EXPIRED for stop in stops]
    sent = 0 if expired else stops.count(None)
    assert sum(counts(mapped).values()) == sent
    found = events(mapped)
    assert len(found) == (0 if sent else 1)
    if not sent:
        stages = list(Reason)
        furthest = max(reasons, key=stages.index, default=Reason.NO_DEVICES)
        assert found[0]["reason"] == furthest
        assert found[0]["devices"] == [
            {"clientId": f"c{place}", "reason": reason} for place, reason in enumerate(reasons)
        ]


def test_a_contact_that_is_named_twice_gets_it_once_as_named_first() -> None:
    sent = decoded(recipients=[recipient(1, en={"title": "a"}), recipient(2), recipient(1, en={"title": "b"})])
    assert [(one.contact_id, one.contents["en"].title) for one in distinct(sent.recipients)] == [(1, "a"), (2, "Hi")]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"messageId": ""}, "messageId"),
        ({"customerId": -1}, "customerId"),
        ({"channel": "sms"}, "channel"),
        ({"recipients": None}, "recipients"),
        ({"recipients": [{"contactId": 0, "contents": {}}]}, "recipients[0].contactId"),
        ({"recipients": [{"contactId": 1}]}, "recipients[0].contents"),
        ({"recipients": [recipient(1, en={"title": 5})]}, "recipients[0].contents[...].title"),
        ({"options": {"priority": "urgent"}}, "options.priority"),
        ({"expiresAt": "soon"}, "expiresAt"),
    ],
)
def test_a_wrong_message_is_refused_by_the_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidMessageError) as refused:
        decode_message(json.dumps(message(**changes)).encode())
    assert str(refused.value).startswith(f"{field}:")


@pytest.mark.parametrize("field", ["messageId", "customerId", "applicationCode", "campaignId", "channel", "recipients"])
def test_what_is_missing_is_named(field: str) -> None:
    document = message()
    del document[field]
    with pytest.raises(InvalidMessageError, match=f"^{field}: expected, but missing"):
        decode_message(json.dumps(document).encode())


def test_a_field_that_nobody_knows_is_in_nobodys_way() -> None:
    decoded(extra={"x": 1}, recipients=[{**recipient(1), "extra": 5}])
