"""Secrets of devices are masked wherever they stand; what else there is stays as it is."""

import json
import time

import pytest

from clientmgr.base.masking import (
    is_secret_name,
    mask,
    masked,
    masked_data,
    masked_text,
    masked_traceback,
    masked_words,
    plain_text,
)
from clientmgr.contracts.device_fields import FIELDS, Kind
from clientmgr.contracts.providers import PROVIDERS

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


APNS = "0123456789abcdef" * 4
FCM = "dGhpc0lzQW5JZA:APA91bHPRgkF3JUikC4ENAHEeMrd41Zxv3hVZjC9KtT8OvPVGJ-hQMRKRrZuJAEcl7B338qju59zJMjw2DELjzEvxwYv7"
FID = "cAb3kf0xQ0-9Zk2hZ7pX1a"
ENDPOINT = "https://updates.push.services.mozilla.com/wpush/v2/gAAAAABl"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
P256DH = "BNcRdreALRFXTkOOUHK1EtK2wtaz5Ry4YfYCA_0QTpQtUbVlUls0VJXg7A8u-Ts1XbjhazAkj7I99e8QcYP7DkM0"
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\n-----END PRIVATE KEY-----"
BY_LOOKS = [APNS, APNS.upper(), FCM, FID, ENDPOINT, "https://fcm.googleapis.com/fcm/send/abc", JWT, P256DH, PEM]


@pytest.mark.parametrize(
    "name",
    [
        *("pushToken", "push_token", "PUSH_TOKEN", "push-token", "deviceToken", "device_token", "apnsToken", "apns"),
        *("registrationId", "registration_ids", "fcmToken", "fcm_registration_id", "fid", "endpoint", "p256dh", "auth"),
        *("secret", "clientSecret", "password", "Authorization", "api_key", "apiKey", "X-Api-Key", "credentials"),
        *("webPushAuth", "web_push_auth", "subscriptionAuth", "authKey", "AUTH_KEY", "signingKey", "encryption-key"),
        *(
            "pushTokenIos",
            "push_token_old",
            "tokenV2",
            "token_2",
            "apnsTokenSandbox",
            "APNSTokenSandbox",
            "jwt",
            "userJWT",
        ),
        *("regId", "gcmRegId", "reg_ids", "clientSecretValue", "passwordNew", "endpointUrl", "tokenStatusToken"),
    ],
)
def test_a_member_of_a_likely_name_is_masked_in_documents_and_in_texts(name: str) -> None:
    assert TOKEN not in json.dumps(masked({name: TOKEN, "deep": [{name: [TOKEN]}]}))
    for text in (
        f"refused: {name}={TOKEN} is wrong",
        f"refused: {name}: '{TOKEN}'",
        f'refused {{"{name}": "{TOKEN}", "more": 1',
        json.dumps(json.dumps({"why": json.dumps({name: TOKEN})})),
        f"?a=1&{name}={TOKEN}&b=2",
    ):
        assert TOKEN not in masked_words(text), text
        assert TOKEN.encode() not in masked_data(text.encode())


@pytest.mark.parametrize("secret", BY_LOOKS)
def test_a_secret_is_known_by_its_looks_wherever_it_stands(secret: str) -> None:
    for text in (secret, f"could not push to {secret}: gone", f"<{secret}>", json.dumps({"note": f"see {secret}"})):
        assert secret not in masked_words(text), text
    assert secret not in json.dumps(masked({"note": [secret]}))


def test_every_secret_that_our_contracts_name_is_known_by_its_name() -> None:
    """The rule stands below the contracts, so it can't ask them."""
    fields = [field for field in FIELDS if field.masked]
    members = [member for provider in PROVIDERS for member in provider.address_members]
    members += [field.json_name for field in fields if field.kind is Kind.TEXT]
    members += [path.rpartition(",")[2] for field in fields for path in field.exported_members or ()]
    assert [name for name in members if not is_secret_name(name)] == []
    assert {"pushToken", "endpoint", "auth", "deviceToken"} <= set(members)


def test_a_password_in_an_address_is_masked() -> None:
    text = "no answer from postgresql://writer:hunter2@db.example:5432/main?sslmode=require (1 of 3)"
    assert masked_words(text) == text.replace("hunter2", "…")


@pytest.mark.parametrize("password", ["pa/ss", "pa@ss", "p/a:s/s", "1234", "p%2Fss"])
def test_a_password_in_an_address_is_masked_whatever_it_is_made_of(password: str) -> None:
    for before, after in (("postgresql://u:", "@h/db"), ("redis://:", "@127.0.0.1:6379/0")):
        assert masked_words(f"no answer from {before}{password}{after}") == f"no answer from {before}…{after}"


@pytest.mark.parametrize("address", ["http://h:8080/users/a@b.example", "http://[::1]:80/a@b", "http://h/x:y@z"])
def test_a_path_with_an_at_sign_is_no_password(address: str) -> None:
    assert masked_words(address) == address


def test_places_in_a_traceback_stay_and_secrets_in_it_do_not() -> None:
    place = f'  File "/srv/{"Long3Name" * 12}/writer.py", line 5, in store'
    shown = masked_traceback(f"Traceback:\n{place}\n    store(token='{TOKEN}')\nValueError: {PEM} {APNS}")
    assert place in shown
    assert not [secret for secret in (TOKEN, PEM, APNS) if secret in shown], shown


def test_credentials_in_a_header_are_masked() -> None:
    assert masked_words("sent Authorization: Bearer abcdef123456") == "sent Authorization: Bearer …"


@pytest.mark.parametrize(
    "text",
    [
        "0b6f9e1c-6c1e-4b3b-9b0a-0f6f2f0e7c11",
        "eventId=0b6f9e1c-6c1e-4b3b-9b0a-0f6f2f0e7c11 customerId=123 contactId=42",
        f'{{"clientId": "{FID}", "hardwareId": "{APNS}"}}',
        "client device-1234567890-abcd of EMS11-C3FD3 is unknown",
        "Expected `str`, got `int` - at `$.payload.pushToken`",
        "pushTokenKind: fcm_fid, pushTokenStatus: invalid",
        "the token: expired",
        "2026-01-01T00:00:00+00:00 http://127.0.0.1:8788/tenants/1001",
        "DeadlineExceeded: no answer in 15000 ms (sending-batch-devicemapper-dg00-sub)",
    ],
)
def test_what_operators_need_stays(text: str) -> None:
    assert masked_words(text) == text


@pytest.mark.parametrize(
    "name",
    [
        *("pushTokenStatus", "push_token_kind", "tokensValid", "tokens_superseded_share", "PUSH_TOKEN_STATUS_WAIT_MS"),
        *("tokenType", "tokenExpiresAt", "push_token_version", "push_token_claims", "credentials_file", "cookieDomain"),
        *(
            "author",
            "authority",
            "tokenizer",
            "secretary",
            "authMethod",
            "primaryKey",
            "messageKey",
            "key",
            "region_id",
        ),
    ],
)
def test_what_is_only_about_a_secret_stays(name: str) -> None:
    document = {name: "a value of some length"}
    assert masked(document) == document
    assert masked_words(json.dumps(document)) == json.dumps(document)


@pytest.mark.parametrize("secret", BY_LOOKS)
def test_a_secret_is_masked_where_it_is_a_members_name(secret: str) -> None:
    document = {"results": {secret: "NotRegistered"}}
    assert list(masked(document)["results"]) == [mask(secret)]
    assert secret not in masked_data(json.dumps(document).encode()).decode()
    assert secret not in str(masked({(secret, 1): 2}, whatever=True))


def test_what_stands_in_a_secret_is_masked_where_it_is_a_members_name() -> None:
    assert masked({"pushTokens": {TOKEN: True, "ios": "short"}}) == {"pushTokens": {mask(TOKEN): True, "ios": "…"}}


def test_two_members_whose_masked_names_are_the_same_are_both_kept() -> None:
    one, other = APNS, APNS[:20] + "0" + APNS[21:]
    shown = str(mask(one))
    assert masked({one: 1, other: 2, shown: 3, "a": 4}) == {shown: 1, f"{shown} (2)": 2, f"{shown} (3)": 3, "a": 4}


def test_a_number_is_masked_where_a_secret_is_expected_and_what_is_no_value_stays() -> None:
    data = b'{"password":1234567890,"token":[998877665544332211,1.5],"secret":null,"pushToken":false,"attempts":3}'
    masked_ones = '{"password":"…","token":["…","…"],"secret":null,"pushToken":false,"attempts":3}'
    assert masked_data(data) == masked_ones.encode()


@pytest.mark.parametrize(
    "value", ['pa"ssw0rdRest', 'pa\\"ssw0rdRest', "pa\nssw0rdRest", 'pa]}"ssw0rdRest', "'ssw0rdRest\\"]
)
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_a_quote_in_a_secret_does_not_end_it(value: str, depth: int) -> None:
    for secret in (value, [value, value], {"deep": {"a": [value]}, "b": value}):
        text = json.dumps({"password": secret, "model": "iPhone"})
        for _ in range(depth):
            text = json.dumps({"why": text})
        shown = masked_words(f"refused: {text}")
        assert "ssw0rd" not in shown
        assert "iPhone" in shown, "what follows the secret stays"


def test_ids_stay_in_documents_whatever_they_look_like() -> None:
    document = {"clientId": FID, "eventId": APNS, "customerId": 7, "pushTokenKind": "apns"}
    assert masked(document) == document


def test_a_hostile_text_is_searched_quickly() -> None:
    started = time.process_time()
    for text in ('token:"' * 20_000, "a" * 200_000, "https://" + "push." * 30_000, "aB3" * 60_000, "a=" * 80_000):
        masked_words(text)
    for text in (
        "\\" * 100_000,
        'token:"' + '\\"' * 100_000,
        "token:[" * 20_000,
        'token:["' * 20_000,
        "://a:b/" * 20_000,
    ):
        masked_words(text)
    for name in ("token" * 20_000, "tokenA" * 20_000, "Auth" * 20_000):
        is_secret_name(name)
    assert time.process_time() - started < 5
