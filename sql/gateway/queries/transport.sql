-- The Pub/Sub transport's own records, written in the transaction of the batch.

-- name: attempts
SELECT message_id, attempts FROM clientmgr.pubsub_attempts
WHERE subscription = %(subscription)s AND message_id = ANY (%(message_ids)s::text[]);

-- name: count_failures
INSERT INTO clientmgr.pubsub_attempts AS a (subscription, message_id, attempts)
SELECT %(subscription)s, id, 1 FROM unnest(%(message_ids)s::text[]) AS id
ON CONFLICT (subscription, message_id) DO UPDATE SET attempts = a.attempts + 1, updated_at = now();

-- name: forget_failures
DELETE FROM clientmgr.pubsub_attempts
WHERE subscription = %(subscription)s AND message_id = ANY (%(message_ids)s::text[]);

-- name: forget_old_failures
DELETE FROM clientmgr.pubsub_attempts WHERE updated_at < now() - interval '31 days';

-- name: delay
INSERT INTO clientmgr.pubsub_delayed AS d (
    subscription, topic, not_before, message_id, attempts, host_id, user_id, payload, attributes, published_at, reason
)
SELECT %(subscription)s, %(topic)s, clock_timestamp() + make_interval(secs => m.delay_s), m.message_id, m.attempts,
    m.host_id, m.user_id, m.payload, m.attributes::jsonb, m.published_at, m.reason
FROM unnest(
    %(delays_s)s::float8[], %(message_ids)s::text[], %(attempts)s::integer[], %(host_ids)s::text[],
    %(user_ids)s::text[], %(payloads)s::bytea[], %(attributes)s::text[], %(published_at)s::timestamptz[],
    %(reasons)s::text[]
) AS m (delay_s, message_id, attempts, host_id, user_id, payload, attributes, published_at, reason)
ON CONFLICT (subscription, message_id) DO UPDATE SET
    not_before = excluded.not_before, attempts = greatest(d.attempts, excluded.attempts), reason = excluded.reason;

-- name: take_due
-- Deleted in the transaction that handles them: they are back if it fails, and nobody else gets them meanwhile.
DELETE FROM clientmgr.pubsub_delayed AS d USING (
    SELECT id FROM clientmgr.pubsub_delayed
    WHERE subscription = %(subscription)s AND not_before <= clock_timestamp()
    ORDER BY not_before LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) AS due
WHERE d.id = due.id
RETURNING d.message_id, d.attempts, d.host_id, d.user_id, d.payload, d.attributes, d.published_at;

-- name: take
DELETE FROM clientmgr.pubsub_delayed AS d USING (
    SELECT id FROM clientmgr.pubsub_delayed
    WHERE subscription = %(subscription)s AND message_id = %(message_id)s FOR UPDATE SKIP LOCKED
) AS one
WHERE d.id = one.id
RETURNING d.message_id, d.attempts, d.host_id, d.user_id, d.payload, d.attributes, d.published_at;

-- name: postpone
-- After a failure of the handler: the same messages a little later, with one attempt more on their count.
UPDATE clientmgr.pubsub_delayed
SET attempts = attempts + 1, not_before = clock_timestamp() + make_interval(secs => %(delay_s)s)
WHERE subscription = %(subscription)s AND message_id = ANY (%(message_ids)s::text[]);

-- name: next_due
SELECT extract(epoch FROM (min(not_before) - clock_timestamp()))::float8 FROM clientmgr.pubsub_delayed
WHERE subscription = %(subscription)s;

-- name: bury
-- Into the same table as the PostgreSQL log's dead letters, so that one tool shows and replays both. A Pub/Sub message
-- has a numeric id in the place of the offset.
WITH known AS (
    INSERT INTO clientmgr.log_counter (topic) SELECT %(topic)s
    WHERE NOT EXISTS (SELECT FROM clientmgr.log_counter WHERE topic = %(topic)s)
    ON CONFLICT (topic) DO NOTHING RETURNING id, total_partitions
), target AS (
    SELECT id, total_partitions FROM known
    UNION ALL SELECT id, total_partitions FROM clientmgr.log_counter WHERE topic = %(topic)s
    LIMIT 1
)
INSERT INTO clientmgr.dead_letter_queue (
    group_id, topic_id, c_offset, partition_id, host_id, user_id, transaction_id, payload, attributes, error_class,
    exception, attempts, published_at
)
SELECT %(subscription)s, t.id, m.number, clientmgr.partition_of(m.host_id, t.total_partitions), m.host_id, m.user_id,
    gen_random_uuid(), m.payload, m.attributes::jsonb, m.error_class, m.exception, m.attempts, m.published_at
FROM target AS t, unnest(
    %(numbers)s::bigint[], %(host_ids)s::text[], %(user_ids)s::text[], %(payloads)s::bytea[], %(attributes)s::text[],
    %(error_classes)s::text[], %(exceptions)s::text[], %(attempts)s::integer[], %(published_at)s::timestamptz[]
) AS m (number, host_id, user_id, payload, attributes, error_class, exception, attempts, published_at)
ON CONFLICT (group_id, topic_id, c_offset) DO UPDATE SET
    error_class = excluded.error_class, exception = excluded.exception, attempts = excluded.attempts,
    failed_at = excluded.failed_at, replayed_at = NULL;
