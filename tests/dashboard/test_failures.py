"""Messages that failed, wherever they lie: what operators see and do, and what became of it."""

import json
from typing import Any

import pytest

from clientmgr.contracts import topics
from tests.dashboard.house import BUSY, SECRET, House, Visit, hidden
from tests.streaming.rig import event, read_topic

FAILURES = "/failures"


def letter_of(house: House, client: str, **payload: Any) -> str:
    """A dead letter that would do no harm if it were read again."""
    body = event("updated", customer=BUSY, client=client, platform="ios", **payload)
    return f"d{house.dead_letter(json.dumps(body).encode())}"


def newest_error(house: House, client: object) -> str:
    """A message that the writer gave up on: of a device whose id is a number."""
    house.publish_and_write(json.dumps({**event(client="x", customer=BUSY), "clientId": client}).encode())
    ((topic_id, offset),) = house.query(
        "SELECT m.topic_id, max(c_offset) FROM clientmgr.outbox_message_t AS m"
        " JOIN clientmgr.log_counter AS c ON c.id = m.topic_id WHERE topic = %s GROUP BY m.topic_id",
        topics.WRITER_ERRORS,
    )
    return f"e{topic_id}-{offset}"


def outcomes(visit: Visit, ref: str) -> list[tuple[str, str | None]]:
    replays = visit.get(f"/api/v1/failures/{ref}").json()["replays"]
    return [(one["outcome"], one["diedRef"]) for one in replays]


def test_both_kinds_are_in_one_list_and_a_group_for_each_error_and_tenant(house: House, visit: Visit) -> None:
    letter, error = letter_of(house, "both"), newest_error(house, 5)
    refs = [row["ref"] for row in visit.get("/api/v1/failures?limit=500").json()["items"]]
    assert refs.index(error) < refs.index(letter), "the newest first"
    of_writer = visit.get(f"/api/v1/failures?limit=500&topic={topics.WRITER}").json()["items"]
    assert {letter, error} <= {row["ref"] for row in of_writer}, "both came from there"
    kinds = visit.get(f"/api/v1/failures/groups?customerId={BUSY}").json()["groups"]
    assert {(one["errorClass"], one["tenant"]) for one in kinds} >= {
        ("InvalidMessageError", str(BUSY)),
        ("SomeError", str(BUSY)),
    }
    found = visit.see(f"{FAILURES}?customerId={BUSY}&errorClass=InvalidMessageError")
    assert error in found
    assert '<span class="code muted">c9</span>' in visit.see(FAILURES), "rows are told apart by their keys"
    assert f">{letter}<" not in found
    assert "Nothing matches" in visit.see(f"{FAILURES}?until=2020-01-01T00:00")
    seen, before = [], None
    while True:
        page = visit.get("/api/v1/failures", params={"limit": 1, **({"before": before} if before else {})}).json()
        seen += [row["ref"] for row in page["items"]]
        if (before := page["next"]) is None:
            break
    assert seen == refs, "page by page, none twice and none left out"


def test_a_letter_is_replayed_after_it_was_confirmed_once_and_its_outcome_shown(house: House, visit: Visit) -> None:
    letter = letter_of(house, "back")
    confirm = visit.submit(f"{FAILURES}/confirm", {"action": "replay", "ids": [letter]}).text
    assert "Replay 1 message?" in confirm
    assert "back" not in house.devices()
    for _ in range(3):
        answer = visit.submit(f"{FAILURES}/replay", hidden(confirm))
    assert answer.headers["location"] == f"{FAILURES}/{letter}"
    assert outcomes(visit, letter) == [("under way", None)]
    house.publish_and_write()
    assert "back" in house.devices()
    assert outcomes(visit, letter) == [("done", None)]
    assert "did not come back" in visit.see(f"{FAILURES}/{letter}")
    chain, actor, _, details = house.audited("dead-letters.replay")[-1]
    assert (chain, actor, f"d{details['first_id']}") == (BUSY, "dashboard:local", letter)


def test_all_that_match_are_dropped_in_both_places_but_not_what_failed_after_somebody_agreed(
    house: House, visit: Visit
) -> None:
    chosen = {f"d{house.dead_letter(b'{}', error='a very special failure')}" for _ in range(2)}
    chosen.add(newest_error(house, {"very special": 1}))
    other = letter_of(house, "stays")
    confirm = visit.submit(f"{FAILURES}/confirm", {"action": "drop-all", "contains": "very special"}).text
    assert "Drop 3 messages?" in confirm
    late = f"d{house.dead_letter(b'{}', error='a very special failure')}"
    kept = len(read_topic(house.database, topics.WRITER_ERRORS))

    answer = visit.submit(f"{FAILURES}/drop", hidden(confirm))

    assert answer.headers["location"] == f"{FAILURES}?done=dropped&count=3"
    left = {row["ref"] for row in visit.get("/api/v1/failures?limit=500").json()["items"]}
    assert left.isdisjoint(chosen)
    assert {other, late} <= left
    assert len(read_topic(house.database, topics.WRITER_ERRORS)) == kept, "the log is never changed"
    assert house.audited("dead-letters.drop")[-1][1] == "dashboard:local"
    assert house.audited("error-messages.drop")[-1][1] == "dashboard:local"


def test_nothing_chosen_is_not_everything(house: House, visit: Visit) -> None:
    letter_of(house, "kept")
    before = house.query("SELECT count(*) FROM clientmgr.dead_letter_queue")
    assert visit.submit(f"{FAILURES}/drop", {}).headers["location"] == f"{FAILURES}?done=dropped&count=0"
    assert "none was chosen" in visit.submit(f"{FAILURES}/confirm", {"action": "drop"}).text
    assert visit.submit(f"{FAILURES}/confirm", {"action": "explode"}).status_code == 400
    assert visit.submit(f"{FAILURES}/drop", {"ids": ["x1"]}).status_code == 400
    assert house.query("SELECT count(*) FROM clientmgr.dead_letter_queue") == before


def test_secrets_are_masked_until_somebody_asks_and_asking_is_audited(house: House, visit: Visit) -> None:
    body = event("pushTokenSet", customer=BUSY, client="c1", pushToken=SECRET, kind="apns")
    letter = f"d{house.dead_letter(json.dumps(body).encode())}"
    for path in (f"{FAILURES}/{letter}", f"{FAILURES}/{letter}/edit"):
        page = visit.see(path)
        assert SECRET not in page
        assert "token-…6789" in page
    assert SECRET in visit.submit(f"{FAILURES}/{letter}/reveal", {}).text
    assert house.audited("dead-letter.reveal")[-1][3]["message"] == letter


def test_a_message_of_an_error_topic_dies_again_and_says_why_until_it_is_mended(house: House, visit: Visit) -> None:
    error = newest_error(house, 77)
    visit.submit(f"{FAILURES}/replay", {"ids": [error]})
    published = read_topic(house.database, topics.WRITER)[-1]
    assert (published.event["clientId"], published.attributes) == (77, {})
    house.publish_and_write()
    ((outcome, again),) = outcomes(visit, error)
    assert (outcome, again) == ("died again", newest_ref(visit))
    assert "clientId" in visit.see(f"{FAILURES}/{error}").split("died again")[1]
    assert again is not None

    form = f"{FAILURES}/{again}/edit"
    text = visit.get(f"/api/v1/failures/{again}").json()["payload"]
    wrong = visit.submit(form, {"text": text.replace("77", '""')})
    assert wrong.status_code == 400
    assert "Not published. clientId: expected" in wrong.text
    assert "&#34;clientId&#34;: &#34;&#34;" in wrong.text, "what somebody wrote stays in the form"
    assert "no change" in visit.submit(form, {"text": text}).text
    assert visit.submit(form, {"text": text.replace("77", '"mended"')}).headers["location"] == f"{FAILURES}/{again}"
    house.publish_and_write()
    assert "mended" in house.devices()
    page = visit.see(f"{FAILURES}/{again}")
    assert outcomes(visit, again) == [("done", None)]
    assert "edited" in page
    assert "&#34;clientId&#34;: 77" in page, "the original is kept"
    _, actor, _, details = house.audited("error-messages.replay")[-1]
    assert (actor, details["edited"], details["target"]) == ("dashboard:local", "clientId", topics.WRITER)


def newest_ref(visit: Visit) -> str:
    ref: str = visit.get(f"/api/v1/failures?limit=1&topic={topics.WRITER_ERRORS}").json()["items"][0]["ref"]
    return ref


def test_an_edited_letter_goes_to_its_own_subscription_and_dies_as_a_new_one(house: House, visit: Visit) -> None:
    letter = letter_of(house, "edited", deviceModel="old")
    text = visit.get(f"/api/v1/failures/{letter}").json()["payload"]
    headers = {"X-CSRF-Token": visit.token}
    answer = visit.post(
        "/api/v1/failures/edit", json={"ref": letter, "text": text.replace("old", "new")}, headers=headers
    )
    assert answer.json() == {"ref": letter, "target": topics.WRITER, "changed": ["payload.deviceModel"]}
    assert house.query(
        "SELECT group_id, convert_from(payload, 'UTF8') LIKE '%%\"new\"%%' FROM clientmgr.outbox_message_t"
        " ORDER BY published_at DESC LIMIT 1"
    ) == [(topics.WRITER, True)]
    house.query(
        "SELECT clientmgr.bury_messages(m.group_id, m.topic_id, ARRAY[m.c_offset], '{1}', '{AgainError}', '{no}')"
        " FROM clientmgr.outbox_message_t AS m ORDER BY published_at DESC LIMIT 1"
    )
    ((outcome, died),) = outcomes(visit, letter)
    assert (outcome, died != letter) == ("died again", True)
    again = visit.get(f"/api/v1/failures/{died}").json()
    assert (again["state"], again["errorClass"]) == ("open", "AgainError")
    assert visit.post(
        "/api/v1/failures/edit", json={"ref": letter, "text": text}, headers=headers
    ).status_code == 409  # fmt: skip
    house.publish_and_write()


def test_of_two_messages_with_the_same_contents_each_has_an_outcome_of_its_own(house: House, visit: Visit) -> None:
    first, second = (letter_of(house, "twins", eventId="e-twins") for _ in range(2))
    payload = event("updated", customer=BUSY, client="twins", platform="ios")
    for letter in (first, second):
        house.query("UPDATE clientmgr.dead_letter_queue SET payload = %s WHERE id = %s",
                    json.dumps(payload).encode(), int(letter[1:]))  # fmt: skip
        visit.submit(f"{FAILURES}/replay", {"ids": [letter]})
    house.query(
        "SELECT clientmgr.bury_messages(r.subscription, r.topic_id, ARRAY[r.c_offset], '{1}', '{AgainError}', '{no}')"
        " FROM clientmgr.failure_replays AS r WHERE r.ref = %s",
        first,
    )
    house.publish_and_write()
    assert [outcomes(visit, letter)[0][0] for letter in (first, second)] == ["died again", "done"]


@pytest.mark.parametrize(("target", "status"), [(topics.CONTACT_DELETION, 303), (topics.WRITER, 303)])
def test_a_message_of_an_error_topic_goes_nowhere_but_where_it_came_from(
    house: House, visit: Visit, target: str, status: int
) -> None:
    before = len(read_topic(house.database, topics.WRITER))
    error = newest_error(house, 9)
    assert visit.submit(f"{FAILURES}/replay", {"ids": [error], "target": target}).status_code == status
    assert len(read_topic(house.database, topics.WRITER)) == before + 2
    house.publish_and_write()
