"""One bad message costs only itself, however large the batch: it is in the errors as it came, the rest is written."""

import pytest

from clientmgr.broker.interface import Message
from clientmgr.contracts import topics
from streaming import republisher, writer
from tests.devices.malformed import MALFORMED
from tests.streaming.rig import NOW, Rig, event

pytestmark = pytest.mark.anyio


async def test_every_malformed_message_is_in_the_errors_as_it_came_with_its_field_named(rig: Rig) -> None:
    good = [event(client=f"good-{n}") for n in range(20)]
    await rig.publish(*good[:10], *(message for message, _ in MALFORMED.values()), *good[10:], trace="x")
    await rig.burst(writer.DAEMON)

    errors = {error.data: error.attributes for error in rig.errors}
    assert len(rig.errors) == len(MALFORMED)
    for message, field in MALFORMED.values():
        attributes = errors[message]
        assert attributes["error"].startswith(field)
        assert attributes["errorClass"] == "InvalidMessageError"
        assert (attributes["retryCount"], attributes["trace"]) == ("0", "x")
    assert rig.devices().keys() == {one["clientId"] for one in good}
    assert rig.retries == []


async def test_bytes_are_not_touched_on_their_way_to_the_errors(rig: Rig) -> None:
    odd = b'  {"eventId" : "\\u00e9\xc3\xa9",\n\t"customerId": 1.0e0, "customerId": 0, "z": 1e999 }  '
    await rig.publish(odd)
    await rig.burst(writer.DAEMON)

    assert [error.data for error in rig.errors] == [odd]


GARBAGE = [b"", b"{", b"\xff\xfe\x00", b"null", b'{"n": NaN}', b"[" * 100_000, b'{"eventId": "\xff"}']


async def test_what_is_no_json_is_in_the_errors_byte_for_byte(rig: Rig) -> None:
    await rig.put_into_log(topics.WRITER, *(Message(data, "7", attributes={"from": "afar"}) for data in GARBAGE))
    await rig.publish(event())
    await rig.burst(writer.DAEMON)

    assert [error.data for error in rig.errors] == GARBAGE
    assert {error.attributes["errorClass"] for error in rig.errors} == {"InvalidMessageError"}
    assert {error.attributes["from"] for error in rig.errors} == {"afar"}
    assert rig.devices().keys() == {"c1"}
    assert rig.dead_letters() == []


async def test_a_message_with_no_room_for_another_attribute_is_a_dead_letter(rig: Rig) -> None:
    crowded = {f"name-{n}": "x" for n in range(100)}
    await rig.put_into_log(topics.WRITER, Message(b"[]", "7", attributes=crowded))
    await rig.publish(event())
    await rig.burst(writer.DAEMON)

    assert [(data, error_class) for data, error_class, _ in rig.dead_letters()] == [(b"[]", "InvalidMessageError")]
    assert rig.errors == []
    assert rig.devices().keys() == {"c1"}


async def test_one_bad_message_in_a_batch_of_500_costs_only_itself(rig: Rig) -> None:
    batch = [event(client=f"c{n}") for n in range(500)]
    batch[123] = event(client="bad", occurred="never") | {"occurredAt": "never"}
    await rig.publish(*batch)
    await rig.burst(writer.DAEMON)

    assert [error.event["clientId"] for error in rig.errors] == ["bad"]
    assert len(rig.devices()) == 499


@pytest.mark.parametrize(
    "refusal",
    [
        "ALTER TABLE tenant_7.devices ADD CHECK (language IS DISTINCT FROM 'refused')",
        """CREATE FUNCTION tenant_7.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF NEW.language = 'refused' THEN RAISE SQLSTATE '22003'; END IF; RETURN NEW; END $$;
           CREATE TRIGGER refuse BEFORE INSERT ON tenant_7.devices FOR EACH ROW EXECUTE FUNCTION tenant_7.refuse()""",
    ],
    ids=["a constraint", "a number out of range"],
)
async def test_a_message_that_only_the_database_refuses_costs_only_itself(rig: Rig, refusal: str) -> None:
    rig.query(refusal)
    batch = [event(client=f"c{n}", language="en") for n in range(500)]
    for bad in (0, 250, 499):
        batch[bad] = event(client=f"bad-{bad}", language="refused")
    await rig.publish(*batch)
    await rig.burst(writer.DAEMON)

    assert sorted(error.event["clientId"] for error in rig.errors) == ["bad-0", "bad-250", "bad-499"]
    assert {error.attributes["retryCount"] for error in rig.errors} == {"0"}
    assert len(rig.devices()) == 497
    assert rig.retries == []


async def test_a_message_that_fails_as_nobody_foresaw_is_retried_alone(rig: Rig) -> None:
    rig.query(
        """CREATE FUNCTION tenant_7.limits() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.language = 'too much' THEN RAISE SQLSTATE '54000'; END IF; RETURN NEW; END $$;
        CREATE TRIGGER limits BEFORE INSERT ON tenant_7.devices FOR EACH ROW EXECUTE FUNCTION tenant_7.limits()"""
    )
    await rig.publish(*(event(client=f"c{n}") for n in range(60)), event(client="bad", language="too much"))
    await rig.burst(writer.DAEMON)

    assert [retry.event["clientId"] for retry in rig.retries] == ["bad"]
    assert len(rig.devices()) == 60


async def test_the_writers_of_other_tenants_in_the_batch_lose_nothing(rig: Rig) -> None:
    rig.activate(8, 9)
    rig.query("ALTER TABLE tenant_8.devices ADD CHECK (language IS DISTINCT FROM 'refused')")
    await rig.publish(
        *(event(customer=customer, client=f"c{n}") for n in range(20) for customer in (7, 8, 9)),
        event(customer=8, client="bad", language="refused"),
    )
    await rig.burst(writer.DAEMON)

    assert [len(rig.devices(customer)) for customer in (7, 8, 9)] == [20, 20, 20]
    assert [error.event["clientId"] for error in rig.errors] == ["bad"]


async def test_the_republisher_gives_a_malformed_message_to_the_errors_with_the_count_it_came_with(rig: Rig) -> None:
    bad = event(client="bad") | {"clientId": 5}
    await rig.publish(event(at=NOW), bad, topic=topics.REPUBLISHER, retryCount="3")
    rig.make_due()
    await rig.burst(republisher.DAEMON)

    assert [(error.event["clientId"], error.attributes["retryCount"]) for error in rig.errors] == [(5, "3")]
    assert rig.devices().keys() == {"c1"}
