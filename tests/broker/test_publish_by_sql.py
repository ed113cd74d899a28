"""`clientmgr.publish` and its siblings: what any language can call, what they refuse, and what their role can't do."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest

from clientmgr.base.database import Database, Role
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contracts.publishers import PUBLISHER_ATTRIBUTE, STAMPED
from clientmgr.contracts.topics import ACCOUNT_DELETION, CONTACT_DELETION
from clientmgr.local.embedded.postgres import EmbeddedPostgres
from tests.broker.recording import TOPIC, drain, ready

pytestmark = pytest.mark.anyio

Query = Callable[..., list[tuple[Any, ...]]]
Publisher = psycopg.Connection[tuple[Any, ...]]

LOGIN = "shop"
LOGGED = """
    SELECT convert_from(payload, 'UTF8'), host_id, user_id, attributes FROM clientmgr.outbox_message_t
    JOIN clientmgr.log_counter ON id = topic_id WHERE topic = %s ORDER BY c_offset
"""
REFUSED = [
    ("publish('orders', NULL)", "payload: expected a value"),
    ("publish(NULL, '1')", "topic: "),
    ("publish('orders', '1', tenant => repeat('x', 1025))", "tenant: "),
    ("publish('orders', '1', key => repeat('ü', 513))", "key: "),
    ("publish('orders', '1', dedup_key => '')", "dedup_key: "),
    ("publish('orders', '1', deliver_at => now() + interval '2 years')", "deliver_at: "),
    ("publish('orders', '1', deliver_at => 'infinity')", "deliver_at: "),
    ("publish('orders', '1', attributes => '[]')", "attributes: "),
    ("publish('orders', '1', attributes => '{\"\": \"x\"}')", "attributes: "),
    ("publish('orders', '1', attributes => '{\"a\": 1}')", "attributes.a: "),
    ("publish('orders', '1', attributes => jsonb_build_object('a', repeat('x', 1025)))", "attributes.a: "),
    ("publish('orders', '1', attributes => jsonb_build_object(repeat('x', 257), ''))", "attributes: "),
    (
        "publish('orders', '1', attributes => (SELECT jsonb_object_agg(n, '') FROM generate_series(1, 101) AS n))",
        "attributes: expected at most 100",
    ),
    ("publish('orders', '1', attributes => '{\"clientmgr-erased\": \"x\"}')", "attributes: "),
    ("publish('orders', to_jsonb(repeat('x', 8388608)))", "payload: expected at most"),
    ("publish_bytes('orders', '\\x00')", "payload: expected JSON"),
    ("publish_bytes('orders', '\\xff')", "payload: expected JSON"),
    ("publish_bytes('orders', 'NaN')", "payload: expected JSON"),
    ("publish_bytes('orders', convert_to(repeat('[', 100000), 'UTF8'))", "payload: expected JSON"),
    ("publish_batch('orders', '{}')", "messages: "),
    ("publish_batch('orders', NULL)", "messages: "),
    ("publish_batch('orders', '[1]')", "messages[0]: "),
    ("publish_batch('orders', '[{\"payload\": 1}, {}]')", "messages[1].payload: "),
    ('publish_batch(\'orders\', \'[{"payload": 1, "tennant": "7"}]\')', "messages[0].tennant: "),
    ('publish_batch(\'orders\', \'[{"payload": 1, "deliver_at": "soon"}]\')', "messages[0].deliver_at: "),
    ('publish_batch(\'orders\', \'[{"payload": 1, "attributes": {"a": {}}}]\')', "messages[0].attributes.a: "),
]


@pytest.fixture
async def publisher(
    log_broker: PostgresBroker, database: Database, postgres_server: EmbeddedPostgres, query: Query
) -> AsyncIterator[Publisher]:
    """Connected as a login that may publish to every topic but account deletions, and do nothing else."""
    for topic in (TOPIC, ACCOUNT_DELETION, CONTACT_DELETION):
        await log_broker.ensure_topic(topic)
    with psycopg.connect(postgres_server.superuser_url(), autocommit=True) as superuser:
        superuser.execute(f"DROP ROLE IF EXISTS {LOGIN}")
        superuser.execute(f"CREATE ROLE {LOGIN} LOGIN PASSWORD 'secret' IN ROLE clientmgr_publisher")
    query("INSERT INTO clientmgr.publish_rights (role, topic) VALUES (%s, '*')", LOGIN)
    host = database.url.partition("@")[2]
    with psycopg.connect(f"postgresql://{LOGIN}:secret@{host}", autocommit=True) as connection:
        yield connection
    with psycopg.connect(postgres_server.superuser_url(), autocommit=True) as superuser:
        superuser.execute(f"DROP ROLE {LOGIN}")


def fetch(connection: Publisher, sql: str, *parameters: object) -> Any:
    row = connection.execute(sql, parameters or None).fetchone()
    return None if row is None else row[0]


def test_a_message_is_published_with_all_that_belongs_to_it(publisher: Publisher, query: Query) -> None:
    assert fetch(publisher, 'SELECT clientmgr.publish(\'orders\', \'{"b": 1, "a": "ü"}\')') is True
    attributes = {"source": "shop", "quoted": '"\\'}
    given = ('{"n": 2}', "7", "c-9", json.dumps(attributes))
    call = "SELECT clientmgr.publish('orders', %s, tenant => %s, key => %s, attributes => %s)"
    assert fetch(publisher, call, *given) is True
    exact = b'{ "b" :1,"a": "\\u0000" }'
    assert fetch(publisher, "SELECT clientmgr.publish_bytes('orders', %s, tenant => '7')", exact) is True
    assert query(LOGGED, TOPIC) == [
        ('{"a": "ü", "b": 1}', "", "", {}),
        ('{"n": 2}', "7", "c-9", attributes),
        (exact.decode(), "7", "", {}),
    ]


def test_a_batch_is_one_call_and_its_tenants_are_groups_of_their_own(publisher: Publisher, query: Query) -> None:
    batch: list[dict[str, Any]] = [
        {"payload": {"n": n}, "tenant": str(n % 4), "key": f"k{n}", "attributes": None} for n in range(1000)
    ]
    batch += [{"payload": 1, "dedup_key": "x"}, {"payload": 2, "dedup_key": "x"}, {"payload": None, "dedup_key": None}]
    answers = fetch(publisher, "SELECT clientmgr.publish_batch('orders', %s)", json.dumps(batch))
    assert answers == [True] * 1001 + [False, True]
    groups = query(
        "SELECT host_id, count(*) FROM clientmgr.outbox_message_t GROUP BY transaction_id, host_id ORDER BY 1"
    )
    assert groups == [("", 2), *((str(n), 250) for n in range(4))]
    assert fetch(publisher, "SELECT clientmgr.publish_batch('orders', '[]')") == []


async def test_it_is_part_of_the_callers_transaction(publisher: Publisher, log_broker: PostgresBroker) -> None:
    await ready(log_broker)
    publisher.autocommit = False
    fetch(publisher, "SELECT clientmgr.publish('orders', '{\"n\": 1}')")
    publisher.rollback()
    fetch(publisher, "SELECT clientmgr.publish('orders', '{\"n\": 2}', deliver_at => now() - interval '1 minute')")
    publisher.commit()
    fetch(publisher, "SELECT clientmgr.publish('orders', '{\"n\": 3}', deliver_at => now() + interval '1 day')")
    publisher.commit()
    recorder, _ = await drain(log_broker)
    assert recorder.numbers == [2]


def test_a_key_is_taken_once_and_the_answer_says_so(publisher: Publisher, query: Query) -> None:
    call = "SELECT clientmgr.publish('orders', '1', dedup_key => 'order-1')"
    publisher.autocommit = False
    assert [fetch(publisher, call), fetch(publisher, call)] == [True, False]
    publisher.rollback()
    assert fetch(publisher, call) is True
    publisher.commit()
    assert fetch(publisher, call) is False
    publisher.commit()
    assert len(query(LOGGED, TOPIC)) == 1


def test_what_is_wrong_is_named(publisher: Publisher, query: Query) -> None:
    for call, complaint in REFUSED:
        with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
            publisher.execute(f"SELECT clientmgr.{call}")
        assert str(refused.value).startswith(complaint), call
    assert query("SELECT count(*) FROM clientmgr.outbox_message_t") == [(0,)]


def test_an_unknown_topic_and_another_isolation_level_are_refused(publisher: Publisher) -> None:
    with pytest.raises(psycopg.errors.NoDataFound, match="topic no-such-topic does not exist"):
        publisher.execute("SELECT clientmgr.publish('no-such-topic', '1')")
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        publisher.execute(f"BEGIN ISOLATION LEVEL {level}")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match=f"READ COMMITTED.*{level}"):
            publisher.execute("SELECT clientmgr.publish('orders', '1')")
        publisher.execute("ROLLBACK")


def test_the_publisher_of_what_is_acted_on_is_stamped_and_can_not_be_forged(publisher: Publisher, query: Query) -> None:
    publisher.execute("SELECT clientmgr.publish(%s, '1')", (CONTACT_DELETION,))
    publisher.execute("SELECT clientmgr.publish_batch(%s, '[{\"payload\": 2}]')", (CONTACT_DELETION,))
    publisher.execute("SET application_name = 'cli:root'")
    for forged in (
        "publish('orders', '1', attributes => '{\"clientmgr-publisher\": \"cli:root\"}')",
        'publish_batch(\'orders\', \'[{"payload": 1, "attributes": {"clientmgr-publisher": "cli:root"}}]\')',
    ):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="clientmgr-publisher"):
            publisher.execute(f"SELECT clientmgr.{forged}")
    stamp = {PUBLISHER_ATTRIBUTE: f"sql:{LOGIN}"}
    assert [row[3] for row in query(LOGGED, CONTACT_DELETION)] == [stamp, stamp]
    stamped = query(
        "SELECT topic FROM unnest(%s::text[]) AS topic WHERE clientmgr.is_stamped(topic)", [*STAMPED, TOPIC]
    )
    assert {topic for (topic,) in stamped} == STAMPED


def test_a_login_publishes_only_to_topics_that_it_was_given(publisher: Publisher, query: Query) -> None:
    def refused(topic: str) -> None:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f"{LOGIN} may not publish to {topic}"):
            publisher.execute("SELECT clientmgr.publish(%s, '1')", (topic,))

    refused(ACCOUNT_DELETION)
    query("INSERT INTO clientmgr.publish_rights (role, topic) VALUES ('clientmgr_publisher', %s)", ACCOUNT_DELETION)
    assert fetch(publisher, "SELECT clientmgr.publish(%s, '1')", ACCOUNT_DELETION) is True
    query("DELETE FROM clientmgr.publish_rights WHERE role = %s", LOGIN)
    refused(TOPIC)
    refused("no-such-topic")


def test_a_publisher_can_do_nothing_else(publisher: Publisher, query: Query) -> None:
    tables = query(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('clientmgr', 'live')"
    )
    for (table,) in tables:
        for statement in ("SELECT FROM {}", "DELETE FROM {}", "INSERT INTO {} DEFAULT VALUES", "TRUNCATE {}"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                publisher.execute(statement.format(table).encode())
    for statement in (
        "SELECT clientmgr.reserve_offsets('orders', 1, gen_random_uuid(), NULL)",
        "SELECT clientmgr.stage_messages('orders', '{}', '{}', '{}', NULL, NULL, NULL)",
        "SELECT clientmgr.append_due(1, 1)",
        "SELECT clientmgr.publish_checked('orders', '1', '', '', '{}', NULL, NULL)",
        "SELECT * FROM clientmgr.dead_letters",
        "CREATE TEMPORARY TABLE mine ()",
        "CREATE FUNCTION clientmgr.mine() RETURNS integer LANGUAGE sql RETURN 1",
        "SET ROLE clientmgr_writer",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            publisher.execute(statement.encode())
    with_owners_rights = query("""
        SELECT proname FROM pg_proc WHERE pronamespace = 'clientmgr'::regnamespace AND prosecdef
            AND has_function_privilege('clientmgr_publisher', oid, 'EXECUTE') ORDER BY 1
    """)
    assert with_owners_rights == [("publish",), ("publish_batch",), ("publish_bytes",)]


def test_dead_letters_are_read_by_the_specifications_names(database: Database, query: Query) -> None:
    letters: dict[bytes, object] = {
        b'{"a": [1, "x"]}': {"a": [1, "x"]},
        b"null": None,
        b"not JSON": None,
        b'"\\u0000"': None,
        b"\x00": None,
        b"\xff\xfe": None,
        b"[" * 100_000: None,
    }
    query(
        """
        INSERT INTO clientmgr.dead_letter_queue (group_id, topic_id, c_offset, partition_id, host_id, user_id,
            transaction_id, payload, attributes, error_class, exception, attempts, published_at)
        SELECT 'g', 1, position, 0, '7', 'c', gen_random_uuid(), payload, '{}', 'ValueError', 'bad', 1, now()
        FROM unnest(%s::bytea[]) WITH ORDINALITY AS p (payload, position)
        """,
        list(letters),
    )
    with database.connect(Role.READER) as reader:
        rows = reader.execute("""
            SELECT topic, c_offset, host_id, user_id, payload, payload_bytes, exception, created_dt <= clock_timestamp()
            FROM clientmgr.dead_letters ORDER BY c_offset
        """).fetchall()
    assert rows == [
        ("outbox", position, "7", "c", as_json, payload, "bad", True)
        for position, (payload, as_json) in enumerate(letters.items(), start=1)
    ]
