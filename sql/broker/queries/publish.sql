-- Putting messages into the log, in the caller's transaction: at its COMMIT, or as late in it as can be.

-- name: stage
SELECT clientmgr.stage_messages(
    %(topic)s::text, %(host_ids)b::text[], %(user_ids)b::text[], %(payloads)b::bytea[], %(attributes)b::text[],
    %(deliver_ats)s::timestamptz[], %(key_digests)b::bytea[]
);

-- name: append_staged
-- What the transaction has staged is appended now, in the order of the topics; what it stages later, at its COMMIT.
SET CONSTRAINTS clientmgr.append_at_commit IMMEDIATE;
SET CONSTRAINTS clientmgr.append_at_commit DEFERRED;

-- name: note_keys
-- Notes dedup keys, and tells which positions have one that nobody has published before. Whoever has noted the same key
-- for this topic has let go of its counter, and so has committed, or never will: nobody ever waits for a key.
WITH counter AS MATERIALIZED (
    SELECT c.id FROM clientmgr.log_counter AS c WHERE c.topic = %(topic)s::text FOR NO KEY UPDATE
), keyed AS (
    SELECT k.digest, min(k.position) AS position
    FROM unnest(%(digests)b::bytea[]) WITH ORDINALITY AS k (digest, position)
    WHERE k.digest IS NOT NULL GROUP BY k.digest
), added AS (
    INSERT INTO clientmgr.publish_keys (topic_id, digest)
    SELECT c.id, k.digest FROM counter AS c CROSS JOIN keyed AS k
    ON CONFLICT DO NOTHING RETURNING digest
)
SELECT EXISTS (SELECT FROM counter), ARRAY(SELECT k.position FROM keyed AS k JOIN added AS a ON a.digest = k.digest);

-- name: append_rows
-- Few messages: one round trip for all, and in autocommit a transaction of its own. each_alone: each is a transaction group.
WITH reserved AS MATERIALIZED (
    SELECT * FROM clientmgr.reserve_offsets(
        %(topic)s::text, %(count)s::bigint, %(own_transaction_id)s::uuid, %(cut_off_ms)s::integer
    )
), appended AS (
    INSERT INTO clientmgr.outbox_message_t (
        topic_id, partition_id, c_offset, tx_last_offset, transaction_id, host_id, user_id, payload, attributes, group_id
    )
    SELECT
        r.topic_id,
        clientmgr.partition_of(m.host_id, r.total_partitions),
        r.first_offset + m.position - 1,
        r.first_offset + CASE WHEN a.each_alone THEN m.position ELSE coalesce(m.last_position, %(count)s::bigint) END - 1,
        CASE WHEN a.each_alone THEN gen_random_uuid() ELSE coalesce(m.transaction_id, r.transaction_id) END,
        m.host_id, m.user_id, m.payload, coalesce(m.attributes::jsonb, '{}'), %(group_id)s::text
    FROM reserved AS r
    CROSS JOIN (SELECT %(each_alone)s::boolean) AS a (each_alone)
    CROSS JOIN unnest(
        %(host_ids)b::text[], %(user_ids)b::text[], %(payloads)b::bytea[], %(attributes)b::text[],
        %(transaction_ids)b::uuid[], %(last_positions)b::bigint[]
    ) WITH ORDINALITY AS m (host_id, user_id, payload, attributes, transaction_id, last_position, position)
)
SELECT first_offset FROM reserved;

-- name: reserve
-- Many messages: the offsets, the time, and the partition of each tenant, for the COPY that follows. The time is in
-- microseconds since 2000, as a timestamptz is sent, and taken once the topic is ours: later offsets are no earlier.
SELECT
    topic_id, first_offset,
    (date_part('epoch', clock_timestamp() - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint,
    ARRAY(
        SELECT clientmgr.partition_of(t.host_id, total_partitions)
        FROM unnest(%(host_ids)s::text[]) WITH ORDINALITY AS t (host_id, position) ORDER BY t.position
    )
FROM clientmgr.reserve_offsets(
    %(topic)s::text, %(count)s::bigint, %(own_transaction_id)s::uuid, %(cut_off_ms)s::integer
);

-- name: copy_rows
COPY clientmgr.outbox_message_t (
    topic_id, published_at, partition_id, tx_last_offset, transaction_id, host_id, group_id, attributes, c_offset,
    user_id, payload
) FROM STDIN (FORMAT binary);
