-- Messages that could not be handled. `matching` is what a filter selects; `counts` and `next_page` read from it, so
-- that what is counted, replayed and dropped under one filter is always the same.

-- name: matching
SELECT d.*, c.topic
FROM clientmgr.dead_letter_queue AS d
JOIN clientmgr.log_counter AS c ON c.id = d.topic_id
WHERE (%(topic)s::text IS NULL OR c.topic = %(topic)s)
    AND (%(subscription)s::text IS NULL OR d.group_id = %(subscription)s)
    AND (%(tenant)s::text IS NULL OR d.host_id = %(tenant)s)
    AND (%(error_class)s::text IS NULL OR d.error_class = %(error_class)s)
    AND (%(since)s::timestamptz IS NULL OR d.failed_at >= %(since)s)
    AND (%(until)s::timestamptz IS NULL OR d.failed_at < %(until)s)
    AND (%(not_after)s::timestamptz IS NULL OR d.failed_at <= %(not_after)s)
    AND (%(ids)s::bigint[] IS NULL OR d.id = ANY (%(ids)s))
    AND (%(newest_id)s::bigint IS NULL OR d.id <= %(newest_id)s)
    AND (%(replayed)s::boolean IS NULL OR (d.replayed_at IS NOT NULL) = %(replayed)s)
    AND (
        %(contains)s::text IS NULL OR strpos(d.exception, %(contains)s) > 0
        OR position(convert_to(%(contains)s, 'UTF8') IN d.payload) > 0
    )

-- name: counts
SELECT topic, topic_id, group_id AS subscription, error_class, count(*) AS letters, count(replayed_at) AS replayed,
    min(failed_at) AS first_failed_at, max(failed_at) AS last_failed_at, max(id) AS newest_id
FROM matching GROUP BY topic, topic_id, group_id, error_class ORDER BY topic, group_id, letters DESC, error_class;

-- name: next_page
-- In the order of the log. Topic and group as constants: so the index of all three gives the rows in order, and no page
-- reads more than itself.
SELECT id, c_offset, transaction_id FROM matching
WHERE group_id = %(subscription)s AND topic_id = %(topic_id)s AND c_offset > %(after_offset)s
ORDER BY c_offset LIMIT %(most)s;

-- name: group_exists
SELECT EXISTS (
    SELECT FROM clientmgr.consumer_offsets WHERE group_id = %(subscription)s AND topic_id = %(topic_id)s
);

-- name: lock
-- Whoever waits here for somebody who replays the same letters finds them replayed afterwards, and leaves them.
SELECT id, host_id FROM clientmgr.dead_letter_queue
WHERE id = ANY (%(ids)s::bigint[]) AND (%(again)s OR replayed_at IS NULL)
ORDER BY id FOR UPDATE;

-- name: mark_replayed
UPDATE clientmgr.dead_letter_queue SET replayed_at = clock_timestamp() WHERE id = ANY (%(ids)s::bigint[]);

-- name: append_again
-- At the end of the topic's log, for the group that failed alone; bytes, attributes, tenant and key never leave the
-- database. What one transaction published for a tenant stays one transaction, under a new id: it may be replayed more than
-- once.
WITH reserved AS MATERIALIZED (
    SELECT * FROM clientmgr.reserve_offsets(
        %(topic)s::text, cardinality(%(ids)s::bigint[]), gen_random_uuid(), %(cut_off_ms)s::integer
    )
), letters AS (
    -- Transactions of before 0005 may have several tenants: each one's letters have to lie together.
    SELECT d.*, row_number() OVER (ORDER BY d.begins_at, d.c_offset) AS position
    FROM (
        SELECT q.*, min(q.c_offset) OVER (PARTITION BY q.transaction_id, q.host_id) AS begins_at
        FROM clientmgr.dead_letter_queue AS q WHERE q.id = ANY (%(ids)s::bigint[])
    ) AS d
), transactions AS MATERIALIZED (
    SELECT transaction_id, host_id, gen_random_uuid() AS new_id, max(position) AS last_position
    FROM letters GROUP BY transaction_id, host_id
)
INSERT INTO clientmgr.outbox_message_t (
    topic_id, partition_id, c_offset, tx_last_offset, transaction_id, host_id, user_id, payload, attributes, group_id,
    original_offset, original_published_at
)
SELECT r.topic_id, clientmgr.partition_of(l.host_id, r.total_partitions), r.first_offset + l.position - 1,
    r.first_offset + t.last_position - 1, t.new_id, l.host_id, l.user_id, l.payload, l.attributes, l.group_id,
    l.c_offset, l.published_at
FROM reserved AS r
CROSS JOIN letters AS l
JOIN transactions AS t ON t.transaction_id = l.transaction_id AND t.host_id = l.host_id;

-- name: wait_again
-- The Pub/Sub transport's way: a retry whose time has come, which only this subscription's workers see. Its id is the
-- number that the letter has in the place of an offset.
INSERT INTO clientmgr.pubsub_delayed (
    subscription, topic, not_before, message_id, attempts, host_id, user_id, payload, attributes, published_at, reason
)
SELECT d.group_id, c.topic, clock_timestamp(), d.c_offset::text, 0, d.host_id, d.user_id, d.payload, d.attributes,
    d.published_at, 'replayed'
FROM clientmgr.dead_letter_queue AS d JOIN clientmgr.log_counter AS c ON c.id = d.topic_id
WHERE d.id = ANY (%(ids)s::bigint[]) ORDER BY d.c_offset
ON CONFLICT (subscription, message_id) DO UPDATE SET not_before = excluded.not_before, attempts = 0;

-- name: drop
DELETE FROM clientmgr.dead_letter_queue WHERE id = ANY (%(ids)s::bigint[]) RETURNING host_id;
