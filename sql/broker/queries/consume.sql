-- What the consumer's loop sends. The work is done by the functions of sql/broker/0002_claim.sql and 0006_held.sql.

-- name: claim
-- Of a paused subscription nothing is claimed: the function is not even called.
SELECT * FROM clientmgr.claim_batch(
    %(group_id)s, %(topic_id)s, %(only_partition)s, %(after_partition)s, %(batch_size)s, %(in_hand)s::integer[],
    %(held_first)s
)
WHERE NOT EXISTS (SELECT FROM clientmgr.paused_subscriptions WHERE group_id = %(group_id)s);

-- name: postpone
SELECT clientmgr.postpone_partition(
    %(group_id)s, %(topic_id)s, %(partition_id)s, %(expected_offset)s, %(failed_through)s,
    %(attempts)s, %(delay_s)s
);

-- name: park
SELECT clientmgr.park_messages(
    %(group_id)s, %(topic_id)s, %(offsets)s, %(attempts)s, %(delays_s)s, %(reasons)s
);

-- name: bury
SELECT clientmgr.bury_messages(
    %(group_id)s, %(topic_id)s, %(offsets)s, %(attempts)s, %(error_classes)s, %(exceptions)s
);

-- name: hold
SELECT clientmgr.hold_messages(
    %(group_id)s, %(topic_id)s, %(partition_id)s, %(offsets)s, %(failures)s, %(reason)s, %(delay_s)s
);

-- name: settle_queues
SELECT clientmgr.settle_queue(
    q.id,
    ARRAY(
        SELECT s.id FROM unnest(%(settled_of)s::bigint[], %(settled)s::bigint[]) AS s (queue_id, id)
        WHERE s.queue_id = q.id
    ),
    ARRAY(
        SELECT f.id FROM unnest(%(failed_of)s::bigint[], %(failed)s::bigint[]) AS f (queue_id, id)
        WHERE f.queue_id = q.id
    ),
    q.failures, q.reason, q.delay_s
)
FROM unnest(%(queues)s::bigint[], %(failures)s::integer[], %(reasons)s::text[], %(delays_s)s::float8[])
    AS q (id, failures, reason, delay_s);

-- name: rest_queues
UPDATE clientmgr.held_queues SET not_before = clock_timestamp() + %(delay_s)s * interval '1 second'
WHERE id = ANY (%(queues)s::bigint[]);

-- name: park_held
SELECT clientmgr.park_held(%(held_ids)s, %(attempts)s, %(delays_s)s, %(reasons)s);

-- name: bury_held
SELECT clientmgr.bury_held(%(held_ids)s, %(attempts)s, %(error_classes)s, %(exceptions)s);

-- name: requeue_due
-- The group's own retries, and what was published to the topic for later; when more is due, and when a partition that
-- rests may be tried again.
SELECT r.requeued + p.appended, least(r.next_due_s, p.next_due_s),
    clientmgr.next_retry_s(%(group_id)s, %(topic_id)s)
FROM clientmgr.requeue_due(%(group_id)s, %(topic)s, %(topic_id)s, %(most)s) AS r
CROSS JOIN clientmgr.append_due(%(topic_id)s, %(most)s) AS p;
