"""Who is let in: keys and signatures, and how keys are made, rotated and revoked."""

from datetime import timedelta

import pytest

from clientmgr.audit.log import AuditLogger
from clientmgr.base.database import Role
from clientmgr.base.errors import InvalidInputError, SettingsError
from clientmgr.base.settings import Settings
from clientmgr.contracts import topics
from clientmgr.contracts.intake_keys import KeyKind, authorization, derived_secret, parse_key, text_to_sign
from clientmgr.tenants.intake_keys import list_keys, rotate_key
from streaming.intake import keyring
from streaming.intake.server import ensure_encrypted
from tests.broker.recording import until
from tests.databases import cut_readers
from tests.intake.door import Door, now_ms, until_answered

pytestmark = pytest.mark.anyio

SEEN = "/v1/devices/c/seen"
# docs/intake.md shows these: whoever writes an SDK checks theirs against them.
SIGNING_KEY = b"0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"
SECRET = "6b0b0f1d31e9b1d31a4fd4cbe0a3d42cbf12e1cf38a7e1a1b0e6ea2e3bd3be8f"


SIGNED_AT = "CMK1-HMAC-SHA256 Key=0123456789ab, Timestamp=1763248000456, Signature="


def test_the_documents_vectors_are_ours() -> None:
    key = f"cmk_0123456789ab_{SECRET}"
    body = b'{"platform":"ios","language":"de"}'
    assert text_to_sign("PUT", "/v1/devices/c%2F1?occurredAt=1763248000123", 1763248000456, "event-1", body) == (
        "CMK1-HMAC-SHA256\nPUT\n/v1/devices/c%2F1?occurredAt=1763248000123\n1763248000456\nevent-1\n"
        "204d8827e78b5acad235d14690d2b81b5c196f6a27084934cdf2cfa3c170eff7"
    )
    assert authorization(
        key, "PUT", "/v1/devices/c%2F1?occurredAt=1763248000123", 1763248000456, idempotency_key="event-1", body=body
    ) == (f"{SIGNED_AT}27f12ba79fb39dbe0449b0beb583309606d839763cff6ab8c56528256c997d89")
    assert authorization(key, "POST", SEEN, 1763248000456) == (
        f"{SIGNED_AT}41578d2050249047a38096cb2e5205a9ad888a52e732f79487c3d7d406f000e1"
    )
    assert (
        derived_secret(SIGNING_KEY, "0123456789ab")
        == "188d398b93b42aed0ac6a28d5d27134a4cadb02a3070d3e18280bab317db629e"
    )


async def test_only_a_key_that_counts_is_let_in(door: Door) -> None:
    wrong = door.server_key[:-1] + ("0" if door.server_key[-1] != "0" else "1")
    for key in ("", "nothing", wrong, "cmk_000000000000_" + "0" * 64, door.app_key):
        answer = await door.call("POST", SEEN, key=key)
        assert answer.status_code == 401, key
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.headers["content-type"] == "application/problem+json"
    assert (await door.call("POST", SEEN)).status_code == 202
    assert len(door.rig.topic(topics.WRITER)) == 1


async def test_a_revoked_key_stops_and_a_new_one_counts_without_a_restart(door: Door) -> None:
    assert (await door.call("POST", SEEN)).status_code == 202
    door.revoke(door.server_key)
    await until_answered(lambda: door.call("POST", SEEN), 401)
    fresh = door.make_key(name="fresh")
    await until_answered(lambda: door.call("POST", SEEN, key=fresh), 202)
    brief = door.make_key(name="brief", lifetime=timedelta(milliseconds=1))
    after = door.make_key(name="after")
    await until_answered(lambda: door.call("POST", SEEN, key=after), 202)
    assert (await door.call("POST", SEEN, key=brief)).status_code == 401


async def test_a_new_key_counts_although_the_kept_connection_was_cut(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring, "READ_AGAIN_S", 600.0)
    await until(lambda: cut_readers(door.rig.database, "intake_keys") == 1, "a connection that is kept")
    key = door.make_key(name="another")
    await until_answered(lambda: door.call("POST", SEEN, key=key), 202, within_s=30)


async def test_a_key_is_for_its_own_customer_and_goes_with_it(door: Door) -> None:
    door.rig.activate(8)
    other = door.make_key(customer=8, application="B")
    await until_answered(lambda: door.call("POST", SEEN, key=other), 202)
    (logged,) = door.rig.topic(topics.WRITER)
    assert (logged.event["customerId"], logged.event["applicationCode"], logged.tenant) == (8, "B", "8")
    door.rig.delete(8)
    await until_answered(lambda: door.call("POST", SEEN, key=other), 401)
    assert door.rig.query("SELECT count(*) FROM clientmgr.intake_keys WHERE customer_id = 8") == [(0,)]


async def test_a_signature_is_for_one_request_at_one_time(door: Door) -> None:
    body, path = {"platform": "ios"}, "/v1/devices/c"
    good = await door.signed("PUT", path, body, Idempotency_Key="k")
    assert good.status_code == 202, good.text
    for skew_ms, status in ((-299_000, 202), (299_000, 202), (-301_000, 401), (301_000, 401)):
        assert (await door.signed("PUT", path, body, at_ms=now_ms() + skew_ms)).status_code == status, skew_ms
    signed = authorization(door.app_key, "PUT", path, now_ms(), idempotency_key="k", body=b'{"platform":"ios"}')
    tampered = (
        ("PUT", path, b'{"platform":"web"}', "k"),
        ("PUT", "/v1/devices/d", b'{"platform":"ios"}', "k"),
        ("PUT", f"{path}?occurredAt=1", b'{"platform":"ios"}', "k"),
        ("PATCH", path, b'{"platform":"ios"}', "k"),
        ("PUT", path, b'{"platform":"ios"}', "l"),
    )
    for method, target, content, idempotency_key in tampered:
        headers = {"Authorization": signed, "Idempotency_Key": idempotency_key}
        assert (await door.call(method, target, content, key="", **headers)).status_code == 401, (method, target)
    assert (await door.signed("PUT", path, body, key=door.server_key)).status_code == 401


async def test_a_replayed_signature_brings_the_same_event(door: Door) -> None:
    at = now_ms() - 1000
    answers = [await door.signed("PUT", "/v1/devices/c/contact", {"contactId": 42}, at_ms=at) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    events = [one.event for one in door.rig.topic(topics.WRITER)]
    assert all(event == events[0] for event in events)
    assert events[0]["occurredAt"] == at


async def test_app_keys_stop_with_another_signing_key(door: Door) -> None:
    parsed = parse_key(door.app_key)
    assert parsed is not None
    door.rig.query("UPDATE clientmgr.intake_keys SET secret_hash = sha256('x') WHERE key_id = %s", parsed[0])
    other = door.make_key(name="other")
    await until_answered(lambda: door.call("POST", SEEN, key=other), 202)
    assert (await door.signed("POST", SEEN)).status_code == 401


async def test_keys_are_rotated_two_at_a_time_and_every_change_is_audited(door: Door) -> None:
    audit = AuditLogger.from_settings(door.rig.settings)
    old_id = door.server_key.split("_")[1]
    with door.rig.database.connect(Role.WRITER) as connection:
        made = rotate_key(connection, audit, door.rig.settings, old_id, grace=timedelta(hours=1), actor="test")
        states = {key.key_id: (key.state, key.expires_at is not None) for key in list_keys(connection)}
    assert states[old_id] == ("live", True)
    assert states[made.key_id] == ("live", False)
    await until_answered(lambda: door.call("POST", SEEN, key=made.key), 202)
    assert (await door.call("POST", SEEN)).status_code == 202
    with pytest.raises(InvalidInputError, match="at most 2 live keys"):
        door.make_key()
    door.revoke(door.server_key)
    door.make_key()
    stored = door.rig.query("SELECT * FROM clientmgr.intake_keys")
    assert made.key.split("_")[2] not in str(stored)
    actions = door.rig.query("SELECT action, details ->> 'key' FROM clientmgr.audit_log WHERE customer_id = 7")
    assert {("intake_key.created", made.key_id), ("intake_key.rotated", old_id), ("intake_key.revoked", old_id)} <= set(
        actions
    )


async def test_what_is_no_application_name_or_web_page_is_refused(door: Door) -> None:
    for wrong in (
        {"application": ""},
        {"application": "a\0"},
        {"name": "<b>"},
        {"origins": ("*",)},
        {"origins": ("https://shop.example/path",)},
        {"origins": ("https://Shop.example",)},
        {"origins": ("https://shop.example:443",)},
    ):
        with pytest.raises(InvalidInputError):
            door.make_key(**wrong, kind=KeyKind.APP)


def test_an_address_that_others_reach_needs_tls(settings: Settings) -> None:
    for host in ("::", "", "192.0.2.1"):
        with pytest.raises(SettingsError, match="INTAKE_TLS_CERTIFICATE"):
            ensure_encrypted(settings.model_copy(update={"intake_host": host}))
        assert ensure_encrypted(settings.model_copy(update={"intake_host": host, "intake_tls_by_proxy": True})) is None
