-- The sweep over the log. Each statement reads or changes one page of one topic.

-- name: topics
SELECT c.id, c.topic, c.next_offset - 1, coalesce(p.swept_to, 0)
FROM clientmgr.log_counter AS c LEFT JOIN clientmgr.erasure_progress AS p ON p.topic_id = c.id
ORDER BY c.id;

-- name: page
-- Rows from after_offset through last_offset, of these labels (null: of all); those without a customer's label count
-- among them. No page holds much more than max_bytes.
SELECT c_offset, payload, host_id, user_id, attributes, published_at FROM (
    SELECT m.*, sum(octet_length(m.payload)) OVER (ORDER BY m.c_offset) - octet_length(m.payload) AS bytes_before
    FROM (
        SELECT o.c_offset, o.payload, o.host_id, o.user_id, o.attributes,
            coalesce(o.original_published_at, o.published_at) AS published_at
        FROM clientmgr.outbox_message_t AS o
        WHERE o.topic_id = %(topic_id)s AND o.c_offset > %(after_offset)s AND o.c_offset <= %(last_offset)s
            AND (
                %(hosts)s::text[] IS NULL OR o.host_id = ANY (%(hosts)s::text[])
                OR o.host_id !~ '^[1-9][0-9]{0,17}$'
            )
        ORDER BY o.c_offset LIMIT %(limit)s
    ) AS m
) AS sized
WHERE bytes_before < %(max_bytes)s ORDER BY c_offset;

-- name: first_offset
SELECT min(c_offset) FROM clientmgr.outbox_message_t WHERE topic_id = %(topic_id)s;

-- name: strays
SELECT m.c_offset, m.payload, m.host_id, m.user_id, m.attributes,
    coalesce(m.original_published_at, m.published_at) AS published_at
FROM (
    SELECT DISTINCT s.c_offset FROM clientmgr.erasure_strays AS s
    WHERE s.named_customer = ANY (%(customers)s::bigint[]) AND s.topic_id = %(topic_id)s
        AND s.c_offset > %(after_offset)s
    ORDER BY s.c_offset LIMIT %(limit)s
) AS s
JOIN clientmgr.outbox_message_t AS m ON m.topic_id = %(topic_id)s AND m.c_offset = s.c_offset
ORDER BY m.c_offset;

-- name: note_strays
INSERT INTO clientmgr.erasure_strays (named_customer, topic_id, c_offset)
SELECT s.named_customer, %(topic_id)s, s.c_offset
FROM unnest(%(customers)s::bigint[], %(offsets)s::bigint[]) AS s (named_customer, c_offset)
ON CONFLICT DO NOTHING;

-- name: forget_strays
DELETE FROM clientmgr.erasure_strays AS s
WHERE NOT EXISTS (
    SELECT FROM clientmgr.outbox_message_t AS m WHERE (m.topic_id, m.c_offset) = (s.topic_id, s.c_offset)
);

-- name: change
-- In the order of the log, as everybody locks its rows. What is not a customer in the label may be a person.
WITH wanted AS (
    SELECT * FROM unnest(
        %(keys)s::bigint[], %(payloads)s::bytea[], %(host_ids)s::text[], %(user_ids)s::text[],
        %(attributes)s::text[]
    ) AS w (c_offset, payload, host_id, user_id, attributes)
), locked AS MATERIALIZED (
    SELECT m.c_offset FROM clientmgr.outbox_message_t AS m
    WHERE m.topic_id = %(topic_id)s AND m.c_offset = ANY (%(keys)s::bigint[])
    ORDER BY m.c_offset FOR NO KEY UPDATE
)
UPDATE clientmgr.outbox_message_t AS m
SET payload = w.payload, host_id = w.host_id, user_id = w.user_id, attributes = w.attributes::jsonb
FROM wanted AS w JOIN locked AS l USING (c_offset)
WHERE m.topic_id = %(topic_id)s AND m.c_offset = w.c_offset;

-- name: note_progress
INSERT INTO clientmgr.erasure_progress AS p (topic_id, swept_to) VALUES (%(topic_id)s, %(swept_to)s)
ON CONFLICT (topic_id) DO UPDATE SET swept_to = greatest(p.swept_to, excluded.swept_to);

-- name: deliveries_by_key
-- Messages in a gateway subscription's hands whose ordering key is no customer's id.
SELECT s.name, array_agg(d.c_offset ORDER BY d.c_offset)
FROM clientmgr.gateway_subscriptions AS s
JOIN clientmgr.gateway_deliveries AS d ON d.subscription_id = s.id
WHERE s.topic_id = %(topic_id)s AND d.c_offset = ANY (%(offsets)s::bigint[])
    AND d.ordering_key <> '' AND d.ordering_key !~ '^[1-9][0-9]{0,17}$'
GROUP BY s.name ORDER BY s.name;

-- name: lock_subscription
SELECT id FROM clientmgr.gateway_lock(%(name)s);

-- name: drop_ordering_keys
-- An erased message waits for nobody, and nobody for it.
WITH freed AS (
    UPDATE clientmgr.gateway_deliveries AS d SET ordering_key = '',
        available_at = CASE WHEN d.available_at = 'infinity' THEN clock_timestamp() ELSE d.available_at END
    FROM (
        SELECT c_offset, ordering_key FROM clientmgr.gateway_deliveries
        WHERE subscription_id = %(id)s AND c_offset = ANY (%(offsets)s::bigint[])
    ) AS was
    WHERE d.subscription_id = %(id)s AND d.c_offset = was.c_offset
    RETURNING was.ordering_key
)
SELECT array_agg(DISTINCT ordering_key) FROM freed;

-- name: promote
SELECT clientmgr.gateway_promote(%(id)s, %(keys)s::text[]);
