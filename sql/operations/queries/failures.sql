-- Messages that failed, wherever they lie: dead letters, error topics, and the queues of what is tried again by itself.
-- `matching` is what a filter selects; `newest`, `groups` and the chunks of an action all read from it. Of each place it
-- looks at the newest %(look_at)s that have the wanted state.

-- name: matching
SELECT 'd' || d.id AS ref, 'dead letters' AS place, c.topic, d.group_id AS subscription, d.topic_id, d.id AS number,
    d.host_id AS tenant, d.user_id AS key, d.error_class, d.exception AS error, d.attempts, d.failed_at,
    octet_length(d.payload) AS bytes, CASE WHEN d.replayed_at IS NULL THEN 'open' ELSE 'replayed' END AS state,
    d.replayed_at AS handled_at, NULL::timestamptz AS next_try_at
FROM (
    SELECT * FROM clientmgr.dead_letter_queue AS q
    WHERE (%(states)s::text[] && CASE WHEN q.replayed_at IS NULL THEN '{open}'::text[] ELSE '{replayed}' END)
        AND (%(letters)s::bigint[] IS NULL OR q.id = ANY (%(letters)s))
        AND (%(tenant)s::text IS NULL OR q.host_id = %(tenant)s)
    ORDER BY q.id DESC LIMIT %(look_at)s
) AS d
JOIN clientmgr.log_counter AS c ON c.id = d.topic_id
WHERE (%(topic)s::text IS NULL OR c.topic = %(topic)s)
    AND (%(subscription)s::text IS NULL OR d.group_id = %(subscription)s)
    AND (%(error_class)s::text IS NULL OR d.error_class = %(error_class)s)
    AND (%(since)s::timestamptz IS NULL OR d.failed_at >= %(since)s)
    AND (%(until)s::timestamptz IS NULL OR d.failed_at < %(until)s)
    AND (%(not_after)s::timestamptz IS NULL OR d.failed_at <= %(not_after)s)
    AND (
        %(contains)s::text IS NULL OR strpos(d.exception, %(contains)s) > 0
        OR position(convert_to(%(contains)s, 'UTF8') IN d.payload) > 0
    )
UNION ALL
SELECT 'e' || e.topic_id || '-' || e.c_offset, c.topic, coalesce(nullif(o.origin, ''), c.topic), '', e.topic_id,
    e.c_offset, e.host_id, e.user_id, e.error_class, e.error,
    -- What a daemon tried itself: once, and as often as it says. No delivery of the error topic.
    1 + CASE WHEN e.attributes ->> 'retryCount' ~ '^[0-9]{1,6}$' THEN (e.attributes ->> 'retryCount')::integer ELSE 0 END,
    e.published_at, octet_length(e.payload), coalesce(e.action, 'open'), e.handled_at, NULL
FROM unnest(%(error_topics)s::text[], %(origins)s::text[]) AS o (topic, origin)
JOIN clientmgr.log_counter AS c ON c.topic = o.topic
CROSS JOIN LATERAL (
    SELECT m.*, h.action, h.handled_at, coalesce(m.attributes ->> 'errorClass', '') AS error_class,
        coalesce(m.attributes ->> 'error', '') AS error
    FROM clientmgr.outbox_message_t AS m
    LEFT JOIN clientmgr.error_messages_handled AS h ON (h.topic_id, h.c_offset) = (m.topic_id, m.c_offset)
    -- Retries of a group (group_id) repeat a message: the message itself counts once.
    WHERE m.topic_id = c.id AND m.group_id IS NULL AND coalesce(h.action, 'open') = ANY (%(states)s::text[])
        AND (%(error_topic_ids)s::bigint[] IS NULL OR (m.topic_id, m.c_offset) IN (
            SELECT * FROM unnest(%(error_topic_ids)s::bigint[], %(error_offsets)s::bigint[])
        ))
        AND (%(tenant)s::text IS NULL OR m.host_id = %(tenant)s)
    ORDER BY m.c_offset DESC LIMIT %(look_at)s
) AS e
WHERE (%(topic)s::text IS NULL OR %(topic)s IN (c.topic, o.origin))
    AND %(subscription)s::text IS NULL
    AND (%(error_class)s::text IS NULL OR e.error_class = %(error_class)s)
    AND (%(since)s::timestamptz IS NULL OR e.published_at >= %(since)s)
    AND (%(until)s::timestamptz IS NULL OR e.published_at < %(until)s)
    AND (%(not_after)s::timestamptz IS NULL OR e.published_at <= %(not_after)s)
    AND (
        %(contains)s::text IS NULL OR strpos(e.error, %(contains)s) > 0
        OR position(convert_to(%(contains)s, 'UTF8') IN e.payload) > 0
    )
UNION ALL
-- The one that failed, not those that only wait behind it. A reason begins with the kind of error, if it has one.
SELECT 'h' || h.id, 'held', c.topic, q.group_id, q.topic_id, h.id, h.host_id, h.user_id,
    CASE WHEN h.reason ~ '^\w+: ' THEN split_part(h.reason, ':', 1) ELSE '' END,
    h.reason, h.attempts + h.failures, h.original_published_at, octet_length(h.payload), 'waiting', NULL, q.not_before
FROM clientmgr.held_message_t AS h
JOIN clientmgr.held_queues AS q ON q.id = h.queue_id
JOIN clientmgr.log_counter AS c ON c.id = q.topic_id
WHERE 'waiting' = ANY (%(states)s::text[]) AND h.failures > 0
    AND (%(held)s::bigint[] IS NULL OR h.id = ANY (%(held)s))
    AND (%(tenant)s::text IS NULL OR h.host_id = %(tenant)s)
    AND (%(topic)s::text IS NULL OR c.topic = %(topic)s)
    AND (%(subscription)s::text IS NULL OR q.group_id = %(subscription)s)
    AND (%(error_class)s::text IS NULL OR h.reason LIKE replace(replace(%(error_class)s, '%%', ''), '_', '\_') || ':%%')
    AND (%(since)s::timestamptz IS NULL OR h.original_published_at >= %(since)s)
    AND (%(until)s::timestamptz IS NULL OR h.original_published_at < %(until)s)
    AND (%(not_after)s::timestamptz IS NULL OR h.original_published_at <= %(not_after)s)
    AND (
        %(contains)s::text IS NULL OR strpos(h.reason, %(contains)s) > 0
        OR position(convert_to(%(contains)s, 'UTF8') IN h.payload) > 0
    )

-- name: newest
SELECT ref, place, topic, subscription, tenant, key, error_class, error, attempts, failed_at, bytes, state, handled_at,
    next_try_at
FROM matching
WHERE %(before_at)s::timestamptz IS NULL OR (failed_at, ref) < (%(before_at)s, %(before_ref)s)
ORDER BY failed_at DESC, ref DESC LIMIT %(limit)s;

-- name: groups
SELECT place, topic, tenant, error_class, count(*) AS messages, min(failed_at) AS first_failed_at,
    max(failed_at) AS last_failed_at, (array_agg(error ORDER BY failed_at DESC, ref DESC))[1] AS example
FROM matching GROUP BY place, topic, tenant, error_class
ORDER BY messages DESC, last_failed_at DESC, place, topic, tenant, error_class LIMIT %(limit)s;

-- name: count
SELECT count(*) AS messages, max(failed_at) AS newest_at, count(DISTINCT tenant) AS tenants FROM matching;

-- name: next_errors
-- Of an error topic, in the order of the log.
SELECT number FROM matching WHERE place = %(place)s AND number > %(after)s ORDER BY number LIMIT %(most)s;

-- name: error_places
SELECT DISTINCT place, topic_id FROM matching WHERE place NOT IN ('dead letters', 'held') ORDER BY place;

-- name: mapper_topics
SELECT topic FROM clientmgr.log_counter WHERE topic ~ '^sending-(batch|tx)-devicemapper-' ORDER BY topic;

-- name: letter
SELECT d.payload AS data, d.attributes, d.partition_id AS partition, d.c_offset AS offset, d.published_at,
    d.transaction_id::text AS transaction_id, NULL AS handled_by
FROM clientmgr.dead_letter_queue AS d WHERE d.id = %(number)s;

-- name: error_message
SELECT m.payload AS data, m.attributes, m.partition_id AS partition, m.c_offset AS offset, m.published_at,
    m.transaction_id::text AS transaction_id, h.handled_by
FROM clientmgr.outbox_message_t AS m
LEFT JOIN clientmgr.error_messages_handled AS h ON (h.topic_id, h.c_offset) = (m.topic_id, m.c_offset)
WHERE m.topic_id = %(topic_id)s AND m.c_offset = %(number)s;

-- name: held_message
SELECT h.payload AS data, h.attributes, q.partition_id AS partition, h.original_offset AS offset,
    h.original_published_at AS published_at, h.transaction_id::text AS transaction_id, NULL AS handled_by
FROM clientmgr.held_message_t AS h JOIN clientmgr.held_queues AS q ON q.id = h.queue_id
WHERE h.id = %(number)s;

-- name: claim_errors
-- Whoever comes second finds the mark and gets no row back: nothing is replayed twice by accident.
WITH marked AS (
    INSERT INTO clientmgr.error_messages_handled (topic_id, c_offset, action, handled_by)
    SELECT m.topic_id, m.c_offset, %(action)s, %(handled_by)s
    FROM clientmgr.outbox_message_t AS m
    WHERE m.topic_id = %(topic_id)s AND m.group_id IS NULL AND m.c_offset = ANY (%(offsets)s::bigint[])
    ORDER BY m.c_offset
    ON CONFLICT (topic_id, c_offset) DO NOTHING
    RETURNING topic_id, c_offset
)
SELECT m.c_offset, m.host_id, m.attributes, substring(m.payload FOR 64)
FROM marked JOIN clientmgr.outbox_message_t AS m USING (topic_id, c_offset) ORDER BY m.c_offset;

-- name: publish_errors_again
-- As they were before they failed, each a transaction of its own: one that fails again takes no other with it.
WITH reserved AS MATERIALIZED (
    SELECT * FROM clientmgr.reserve_offsets(
        %(target)s::text, cardinality(%(offsets)s::bigint[]), gen_random_uuid(), %(cut_off_ms)s::integer
    )
), again AS (
    SELECT m.*, r.topic_id AS target_id, r.total_partitions, coalesce(%(new_tenant)s::text, m.host_id) AS new_host_id,
        r.first_offset + row_number() OVER (ORDER BY m.c_offset) - 1 AS new_offset
    FROM reserved AS r CROSS JOIN clientmgr.outbox_message_t AS m
    WHERE m.topic_id = %(topic_id)s AND m.c_offset = ANY (%(offsets)s::bigint[])
), published AS (
    INSERT INTO clientmgr.outbox_message_t (
        topic_id, partition_id, c_offset, tx_last_offset, transaction_id, host_id, user_id, payload, attributes
    )
    SELECT target_id, clientmgr.partition_of(new_host_id, total_partitions), new_offset, new_offset, gen_random_uuid(),
        new_host_id, user_id, coalesce(%(data)s::bytea, payload), attributes - %(without)s::text[]
    FROM again
)
INSERT INTO clientmgr.failure_replays (ref, topic_id, c_offset, changed, errors_topic_id, errors_from, replayed_by)
SELECT 'e' || again.topic_id || '-' || again.c_offset, target_id, new_offset, %(changed)s::text[], c.id, c.next_offset,
    %(replayed_by)s
FROM again LEFT JOIN clientmgr.log_counter AS c ON c.topic = %(errors_topic)s;

-- name: publish_edited_letter
-- A message of its own, for the subscription that failed alone: should it fail again, the letter stays as it was.
WITH reserved AS MATERIALIZED (
    SELECT * FROM clientmgr.reserve_offsets(%(topic)s::text, 1, gen_random_uuid(), %(cut_off_ms)s::integer)
), published AS (
    INSERT INTO clientmgr.outbox_message_t (
        topic_id, partition_id, c_offset, tx_last_offset, transaction_id, host_id, user_id, payload, attributes, group_id
    )
    SELECT r.topic_id, clientmgr.partition_of(%(new_tenant)s, r.total_partitions), r.first_offset, r.first_offset,
        r.transaction_id, %(new_tenant)s, d.user_id, %(data)s, d.attributes, d.group_id
    FROM reserved AS r JOIN clientmgr.dead_letter_queue AS d ON d.id = %(number)s
    RETURNING topic_id, c_offset, group_id
)
INSERT INTO clientmgr.failure_replays (
    ref, topic_id, c_offset, subscription, changed, errors_topic_id, errors_from, replayed_by
)
SELECT 'd' || %(number)s::text, p.topic_id, p.c_offset, p.group_id, %(changed)s::text[], c.id, c.next_offset,
    %(replayed_by)s
FROM published AS p LEFT JOIN clientmgr.log_counter AS c ON c.topic = %(errors_topic)s;

-- name: note_letters
-- Where the letters of this transaction have just gone: the last offsets of their topic, whose counter we hold.
INSERT INTO clientmgr.failure_replays (
    ref, topic_id, c_offset, subscription, errors_topic_id, errors_from, replayed_by
)
SELECT 'd' || d.id, d.topic_id, m.c_offset, d.group_id, e.id, e.next_offset, %(replayed_by)s
FROM clientmgr.dead_letter_queue AS d
JOIN clientmgr.log_counter AS c ON c.id = d.topic_id
LEFT JOIN clientmgr.log_counter AS e ON e.topic = %(errors_topic)s
LEFT JOIN clientmgr.outbox_message_t AS m ON m.topic_id = d.topic_id AND m.original_offset = d.c_offset
    AND m.group_id = d.group_id AND m.c_offset >= c.next_offset - cardinality(%(ids)s::bigint[])
WHERE d.id = ANY (%(ids)s::bigint[]) ORDER BY d.id;

-- name: outcomes
-- What became of each replay. In its own topic a message that fails again is known by the offset at which it was first
-- published. Daemons publish anew to other topics: there it is known by its tenant and its bytes.
SELECT r.ref, r.replayed_by, r.replayed_at, r.changed, c.topic AS target, r.subscription,
    CASE
        WHEN died.ref IS NOT NULL THEN 'died again'
        WHEN r.c_offset IS NULL THEN 'handed over'
        WHEN m.c_offset IS NULL THEN 'done'
        WHEN held.reason IS NOT NULL OR waits.it THEN 'under way'
        ELSE 'done'
    END AS outcome,
    died.ref AS died_ref, coalesce(died.error_class, '') AS error_class, coalesce(died.error, held.reason, '') AS error
FROM clientmgr.failure_replays AS r
JOIN clientmgr.log_counter AS c ON c.id = r.topic_id
LEFT JOIN clientmgr.outbox_message_t AS m ON (m.topic_id, m.c_offset) = (r.topic_id, r.c_offset)
LEFT JOIN LATERAL (
    SELECT f.ref, f.error_class, f.error FROM (
        SELECT 'd' || q.id AS ref, q.error_class, q.exception AS error, q.failed_at
        FROM clientmgr.dead_letter_queue AS q
        WHERE q.topic_id = r.topic_id AND q.failed_at >= r.replayed_at
            AND (r.subscription IS NULL OR q.group_id = r.subscription)
            AND (r.ref = 'd' || q.id OR q.c_offset = r.c_offset OR EXISTS (
                -- Its retry, at another offset.
                SELECT FROM clientmgr.outbox_message_t AS x
                WHERE x.topic_id = q.topic_id AND x.c_offset = q.c_offset
                    AND x.original_offset = coalesce(m.original_offset, m.c_offset)
            ))
        UNION ALL
        SELECT 'e' || e.topic_id || '-' || e.c_offset, coalesce(e.attributes ->> 'errorClass', ''),
            coalesce(e.attributes ->> 'error', ''), e.published_at
        FROM (
            SELECT * FROM clientmgr.outbox_message_t AS o
            WHERE o.topic_id = r.errors_topic_id AND o.c_offset >= r.errors_from AND o.group_id IS NULL
            ORDER BY o.c_offset LIMIT 20000
        ) AS e
        WHERE e.host_id = m.host_id AND e.payload = m.payload
    ) AS f
    ORDER BY f.failed_at LIMIT 1
) AS died ON true
LEFT JOIN LATERAL (
    SELECT h.reason FROM clientmgr.held_message_t AS h JOIN clientmgr.held_queues AS q ON q.id = h.queue_id
    WHERE q.topic_id = r.topic_id AND h.original_offset = coalesce(m.original_offset, m.c_offset)
        AND (r.subscription IS NULL OR q.group_id = r.subscription) LIMIT 1
) AS held ON true
LEFT JOIN LATERAL (
    SELECT
        -- Not read yet, by somebody who is to read it; or nobody reads there yet.
        coalesce((
            SELECT bool_or(o.next_offset <= m.c_offset) FROM clientmgr.consumer_offsets AS o
            WHERE o.topic_id = m.topic_id AND o.partition_id = m.partition_id
                AND (r.subscription IS NULL OR o.group_id = r.subscription)
        ), true)
        OR EXISTS (
            SELECT FROM clientmgr.delayed_message_t AS d JOIN clientmgr.log_counter AS t ON t.id = d.topic_id
            WHERE CASE WHEN t.id = r.topic_id THEN d.original_offset = coalesce(m.original_offset, m.c_offset)
                ELSE t.topic = %(retries)s AND d.host_id = m.host_id AND d.payload = m.payload END
        )
        OR EXISTS (
            SELECT FROM clientmgr.log_counter AS t
            JOIN clientmgr.consumer_offsets AS o ON o.topic_id = t.id
            JOIN clientmgr.outbox_message_t AS again
                ON again.topic_id = t.id AND again.partition_id = o.partition_id AND again.c_offset >= o.next_offset
            WHERE c.topic = %(writer)s AND t.topic = %(retries)s AND again.host_id = m.host_id
                AND again.payload = m.payload
        ) AS it
) AS waits ON true
WHERE r.ref = ANY (%(refs)s::text[]) AND (NOT %(last_only)s OR r.id = (
    SELECT max(newest.id) FROM clientmgr.failure_replays AS newest WHERE newest.ref = r.ref
))
ORDER BY r.id DESC;

-- name: forget_replays
DELETE FROM clientmgr.failure_replays WHERE replayed_at < now() - interval '30 days';
