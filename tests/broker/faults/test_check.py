"""The check itself: a clean run has no findings, and each kind of damage to it is found and named."""

import pytest

from clientmgr.base.database import Database, Role
from tests.broker.faults.check import Violation, find_violations, install_schema

# Tenant 1 published three transactions of 3, 2 and 3 messages; the second one is poison.
CLEAN_RUN = """
INSERT INTO clientmgr.log_counter (id, topic, next_offset) VALUES (90, 'faults', 9), (91, 'faults-echo', 2);
INSERT INTO clientmgr.consumer_offsets (group_id, topic_id, partition_id, next_offset)
VALUES ('faults-group', 90, 0, 9);

INSERT INTO faults.published (tx, tenant, publisher, number, size, poison, echoes) VALUES
    ('00000000-0000-0000-0000-00000000000a', '1', 'p', 1, 3, false, '{2}'),
    ('00000000-0000-0000-0000-00000000000b', '1', 'p', 2, 2, true, '{}'),
    ('00000000-0000-0000-0000-00000000000c', '1', 'p', 3, 3, false, '{}');

INSERT INTO clientmgr.outbox_message_t
    (topic_id, partition_id, c_offset, tx_last_offset, transaction_id, host_id, user_id, payload)
SELECT 90, 0, row_number() OVER (ORDER BY p.tx, seq), 0, p.tx, p.tenant, format('%s:%s', p.tx, seq), '{}'::bytea
FROM faults.published AS p CROSS JOIN LATERAL generate_series(1, p.size) AS seq
UNION ALL
SELECT 91, 0, 1, 1, tx, tenant, format('%s:2', tx), '{}'::bytea FROM faults.published WHERE number = 1;

INSERT INTO faults.handled (tx, seq, tenant, message_id, xact)
SELECT transaction_id, split_part(user_id, ':', 2)::integer, host_id, c_offset, '700'::xid8
FROM clientmgr.outbox_message_t WHERE topic_id = 90 AND c_offset NOT IN (4, 5) ORDER BY c_offset;

SELECT clientmgr.bury_messages('faults-group', 90, '{4,5}', '{1,1}', '{E,E}', '{poison,poison}');
"""

DAMAGES = {
    "a message was handled by nobody": (
        "DELETE FROM faults.handled WHERE message_id = 2",
        {Violation.LOST, Violation.WRONGLY_ECHOED},  # what it published is there without it
    ),
    "half of an unconfirmed transaction is missing": (
        "UPDATE faults.published SET confirmed = false; DELETE FROM faults.handled WHERE message_id = 7",
        {Violation.LOST},
    ),
    "a poison message is not among the dead": (
        "DELETE FROM clientmgr.dead_letter_queue WHERE c_offset = 4",
        {Violation.LOST},
    ),
    "a message was handled twice": (
        """INSERT INTO faults.handled (tx, seq, tenant, message_id, xact)
        SELECT tx, seq, tenant, message_id, xact FROM faults.handled WHERE message_id = 1""",
        {Violation.DOUBLED},
    ),
    "a message was handled that nobody committed": (
        "INSERT INTO faults.handled (tx, seq, tenant, message_id) VALUES (gen_random_uuid(), 1, '1', 9)",
        {Violation.INVENTED},
    ),
    "offsets changed places": (
        "UPDATE faults.handled SET message_id = 10 - message_id WHERE message_id IN (3, 7)",
        {Violation.OUT_OF_ORDER},
    ),
    "the publisher committed in another order": (
        "UPDATE faults.published SET number = 4 WHERE number = 1",
        {Violation.OUT_OF_ORDER},
    ),
    "the end of a transaction was handled in another one": (
        "UPDATE faults.handled SET xact = '701' WHERE message_id = 8",
        {Violation.SPLIT},
    ),
    "good messages are among the dead": ("UPDATE faults.published SET poison = false", {Violation.WRONGLY_DEAD}),
    "poison was handled": ("UPDATE faults.published SET poison = true WHERE number = 1", {Violation.POISON_HANDLED}),
    "an offset has no message": (
        "UPDATE clientmgr.log_counter SET next_offset = 10 WHERE topic = 'faults'",
        {Violation.GAP},
    ),
    "what the handler published is missing": (
        "UPDATE faults.published SET echoes = '{3}' WHERE number = 3",
        {Violation.WRONGLY_ECHOED},
    ),
}
NO_DAMAGES = {
    "nothing is done to it": "SELECT 1",
    "the rest is not read yet": """
        DELETE FROM faults.handled WHERE message_id > 5;
        UPDATE clientmgr.consumer_offsets SET next_offset = 6""",
    "an unconfirmed transaction was never published": """
        INSERT INTO faults.published (tx, tenant, publisher, number, size, poison, echoes, confirmed)
        VALUES (gen_random_uuid(), '1', 'p', 4, 3, false, '{1}', false)""",
    "a retried message comes later": """
        INSERT INTO faults.retried SELECT tx, seq FROM faults.handled WHERE message_id = 1;
        UPDATE faults.handled SET message_id = 9, xact = '701' WHERE message_id = 1""",
    "what was read is trimmed": "DELETE FROM clientmgr.outbox_message_t WHERE topic_id = 90 AND c_offset < 4",
}


@pytest.fixture
def clean_run(database: Database) -> Database:
    with database.connect(Role.OWNER) as connection:
        install_schema(connection)
        connection.execute(CLEAN_RUN)
    return database


def violations_after(statements: str, database: Database) -> set[Violation]:
    with database.connect(Role.OWNER) as connection:
        connection.execute(statements.encode())
    return {finding.violation for finding in find_violations(database.url)}


@pytest.mark.parametrize("case", DAMAGES)
def test_damage_is_found_and_named(case: str, clean_run: Database) -> None:
    statements, violations = DAMAGES[case]
    assert violations_after(statements, clean_run) == violations


@pytest.mark.parametrize("case", NO_DAMAGES)
def test_nothing_is_found_where_nothing_is_wrong(case: str, clean_run: Database) -> None:
    assert violations_after(NO_DAMAGES[case], clean_run) == set()


def test_every_violation_has_a_damage_that_shows_it() -> None:
    assert set().union(*(violations for _, violations in DAMAGES.values())) == set(Violation)
