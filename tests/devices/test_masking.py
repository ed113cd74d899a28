"""Secrets of devices are masked wherever they stand; what else there is stays as it is."""

import json

import pytest

from clientmgr.devices.masking import mask, masked, masked_data, masked_text, plain_text

TOKEN = "a-token-of-some-length-0123456789"


@pytest.mark.parametrize(("secret", "shown"), [(TOKEN, "a-toke…6789"), ("short", "…"), (None, None)])
def test_a_secret_is_shown_as_what_tells_it_from_others(secret: str | None, shown: str | None) -> None:
    assert mask(secret) == shown


def test_secrets_are_found_however_deep_they_stand() -> None:
    document = {"payload": [{"webPush": {"endpoint": TOKEN, "keys": {"auth": TOKEN, "p256dh": TOKEN}}, "model": TOKEN}]}
    found = masked(document)
    assert json.dumps(found).count(TOKEN) == 1
    assert found["payload"][0]["model"] == TOKEN


@pytest.mark.parametrize(
    "data",
    [
        json.dumps({"payload": {"pushToken": TOKEN}}).encode(),
        f'{{"pushToken": "{TOKEN}", "broken'.encode(),
        f'{{"endpoint"  :"{TOKEN}"'.encode() + b"\xff",
    ],
    ids=["JSON", "half of it", "not even text"],
)
def test_a_messages_text_shows_no_secret_even_if_it_is_not_json(data: bytes) -> None:
    assert TOKEN not in masked_text(data)


def test_what_is_masked_stays_as_it_was_otherwise() -> None:
    number = b'{"auth":"short","big":123456789012345678901234567890,"price":1.10}'
    assert masked_data(number) == number.replace(b"short", "…".encode())
    assert masked_data(b'\xff {"token":"short"') == b'\xff {"token":"' + "…".encode() + b'"'


def test_a_secret_that_stands_twice_is_shown_neither_time() -> None:
    assert TOKEN.encode() not in masked_data(f'{{"token":"{TOKEN}","token":null}}'.encode())


def test_json_that_is_too_deep_to_read_is_shown_as_text() -> None:
    data = b"[" * 100_000
    assert masked_text(data) == data.decode()


def test_what_is_not_json_is_shown_as_it_is() -> None:
    assert plain_text(b"\xff not json") == "\\xff not json"
    assert plain_text(b'{"a":1}') == '{\n  "a": 1\n}'
