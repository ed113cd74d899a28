-- What consumers do to the log. Functions rather than statements, because a function can bring its own planner settings:
-- a plan made while the log was small (or not yet analysed) must not read the whole of it once it is large.

-- Claims a partition of the group that is free and has something to read, and returns its next messages: at least one,
-- about batch_size, and never only a part of a transaction. Nothing to read: no rows, and nothing is written.
-- The claim is the lock on the offset's row; it lasts until the transaction ends.
-- after_partition: where the caller was last; partitions take turns from there, so that a busy one starves nobody.
-- in_hand: partitions that the caller's process is at already, and will look at again by itself.
CREATE FUNCTION clientmgr.claim_batch(
    group_id text, topic_id integer, only_partition integer, after_partition integer, batch_size integer,
    in_hand integer[]
)
RETURNS TABLE (
    partition_id integer, next_offset bigint, c_offset bigint, tx_last_offset bigint, message_id bigint,
    host_id text, user_id text,
    payload bytea, -- null: a retry that another group is to see; only pass it
    attributes jsonb, -- null: none
    attempt integer, -- this delivery's number
    failures integer, -- deliveries that ended in an exception since the partition last moved on
    published_at timestamptz,
    more_elsewhere boolean -- another partition, that is not in_hand, has something to read as well
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    claimed record;
    last_offset bigint;
    more_elsewhere boolean;
BEGIN
    LOOP
        SELECT o.partition_id, o.next_offset, o.attempts, o.failed_through INTO claimed
        FROM clientmgr.consumer_offsets AS o
        -- LATERAL with LIMIT is one index probe a partition; EXISTS was planned as a scan of everything unread.
        CROSS JOIN LATERAL (
            SELECT FROM clientmgr.outbox_message_t AS m
            WHERE m.topic_id = o.topic_id AND m.partition_id = o.partition_id AND m.c_offset >= o.next_offset
            ORDER BY m.c_offset LIMIT 1
        ) AS unread
        WHERE o.group_id = claim_batch.group_id AND o.topic_id = claim_batch.topic_id
            AND (only_partition IS NULL OR o.partition_id = only_partition)
            AND (o.retry_at IS NULL OR o.retry_at <= clock_timestamp())
        ORDER BY o.partition_id <= after_partition, o.partition_id
        LIMIT 1
        FOR NO KEY UPDATE OF o SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN;
        END IF;

        -- Each statement here sees all that is committed by now. That is safe: a topic is only ever seen as a prefix.
        SELECT m.tx_last_offset INTO last_offset FROM clientmgr.outbox_message_t AS m
        WHERE m.topic_id = claim_batch.topic_id AND m.partition_id = claimed.partition_id
            AND m.c_offset >= claimed.next_offset
        ORDER BY m.c_offset OFFSET batch_size - 1 LIMIT 1;
        IF NOT FOUND THEN
            SELECT m.tx_last_offset INTO last_offset FROM clientmgr.outbox_message_t AS m
            WHERE m.topic_id = claim_batch.topic_id AND m.partition_id = claimed.partition_id
                AND m.c_offset >= claimed.next_offset
            ORDER BY m.c_offset DESC LIMIT 1;
        END IF;
        -- Another consumer may have read the partition to its end just before it let go of it: look at the others then.
        EXIT WHEN last_offset IS NOT NULL;
    END LOOP;

    -- Whether another look is worth a round trip: at a modest rate nearly every one would come back empty.
    PERFORM FROM clientmgr.consumer_offsets AS o
    CROSS JOIN LATERAL (
        SELECT FROM clientmgr.outbox_message_t AS m
        WHERE m.topic_id = o.topic_id AND m.partition_id = o.partition_id AND m.c_offset >= o.next_offset
        ORDER BY m.c_offset LIMIT 1
    ) AS unread
    WHERE o.group_id = claim_batch.group_id AND o.topic_id = claim_batch.topic_id AND only_partition IS NULL
        AND o.partition_id <> claimed.partition_id AND o.partition_id <> ALL (in_hand)
        AND (o.retry_at IS NULL OR o.retry_at <= clock_timestamp())
    LIMIT 1;
    more_elsewhere := FOUND;

    RETURN QUERY
    SELECT claimed.partition_id, claimed.next_offset, m.c_offset, m.tx_last_offset,
        coalesce(m.original_offset, m.c_offset), m.host_id, m.user_id,
        CASE WHEN m.group_id IS NULL OR m.group_id = claim_batch.group_id THEN m.payload END,
        nullif(m.attributes, '{}'),
        m.attempts + 1 + failed.times, failed.times, coalesce(m.original_published_at, m.published_at),
        more_elsewhere
    FROM clientmgr.outbox_message_t AS m
    CROSS JOIN LATERAL (
        SELECT CASE WHEN m.c_offset <= claimed.failed_through THEN claimed.attempts ELSE 0 END AS times
    ) AS failed
    WHERE m.topic_id = claim_batch.topic_id AND m.partition_id = claimed.partition_id
        AND m.c_offset >= claimed.next_offset AND m.c_offset <= last_offset
    ORDER BY m.c_offset;
END
$$;

-- Moves a claimed partition on. To find the offset elsewhere than the claim did means that the claim was lost on the
-- way: then nothing of the transaction may be kept.
CREATE FUNCTION clientmgr.advance_offset(
    group_id text, topic_id integer, partition_id integer, expected_offset bigint, new_offset bigint
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE clientmgr.consumer_offsets AS o
    SET next_offset = new_offset, attempts = 0, failed_through = NULL, retry_at = NULL, updated_at = now()
    WHERE o.group_id = advance_offset.group_id AND o.topic_id = advance_offset.topic_id
        AND o.partition_id = advance_offset.partition_id AND o.next_offset = expected_offset;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'partition % of topic % is no longer claimed at offset % by group %',
            partition_id, topic_id, expected_offset, group_id USING ERRCODE = 'serialization_failure';
    END IF;
END
$$;

-- Notes that a batch failed once more, attempts times in all: the partition rests for delay_s. What joins the batch later
-- has not failed yet: the first failure says how far the count goes. Whoever has the partition in hand by now knows
-- better: then nothing is noted.
CREATE FUNCTION clientmgr.postpone_partition(
    group_id text, topic_id integer, partition_id integer, expected_offset bigint, failed_through bigint,
    attempts integer, delay_s float8
) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE clientmgr.consumer_offsets AS o
    SET attempts = $6, failed_through = coalesce(o.failed_through, $5),
        retry_at = clock_timestamp() + $7 * interval '1 second', updated_at = now()
    FROM (
        SELECT group_id, topic_id, partition_id FROM clientmgr.consumer_offsets
        WHERE group_id = $1 AND topic_id = $2 AND partition_id = $3 AND next_offset = $4
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS failed
    WHERE (o.group_id, o.topic_id, o.partition_id) = (failed.group_id, failed.topic_id, failed.partition_id);
$$;

-- Sets messages aside until their time has come; the log keeps its own copies until they are trimmed.
CREATE FUNCTION clientmgr.park_messages(
    group_id text, topic_id integer, offsets bigint[], attempts integer[], delays_s float8[], reasons text[]
) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
    INSERT INTO clientmgr.delayed_message_t (
        group_id, topic_id, not_before, attempts, host_id, user_id, payload, attributes,
        original_offset, original_published_at, reason
    )
    SELECT $1, m.topic_id, clock_timestamp() + r.delay_s * interval '1 second', r.attempts,
        m.host_id, m.user_id, m.payload, m.attributes,
        coalesce(m.original_offset, m.c_offset), coalesce(m.original_published_at, m.published_at), r.reason
    FROM unnest($3, $4, $5, $6) WITH ORDINALITY AS r (c_offset, attempts, delay_s, reason, position)
    JOIN clientmgr.outbox_message_t AS m ON m.topic_id = $2 AND m.c_offset = r.c_offset
    ORDER BY r.position;
$$;

CREATE FUNCTION clientmgr.bury_messages(
    group_id text, topic_id integer, offsets bigint[], attempts integer[], error_classes text[], exceptions text[]
) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
    INSERT INTO clientmgr.dead_letter_queue (
        group_id, topic_id, c_offset, partition_id, host_id, user_id, transaction_id, payload, attributes,
        error_class, exception, attempts, published_at
    )
    SELECT $1, m.topic_id, m.c_offset, m.partition_id, m.host_id, m.user_id, m.transaction_id, m.payload, m.attributes,
        d.error_class, d.exception, d.attempts, coalesce(m.original_published_at, m.published_at)
    FROM unnest($3, $4, $5, $6) WITH ORDINALITY AS d (c_offset, attempts, error_class, exception, position)
    JOIN clientmgr.outbox_message_t AS m ON m.topic_id = $2 AND m.c_offset = d.c_offset
    ORDER BY d.position
    -- A group that was dropped and made anew reads old messages again, and its dead letters have stayed.
    ON CONFLICT (group_id, topic_id, c_offset) DO UPDATE SET
        error_class = excluded.error_class, exception = excluded.exception, attempts = excluded.attempts,
        failed_at = excluded.failed_at, replayed_at = NULL;
$$;

-- Appends the group's due retries to the end of the topic's log, each as a transaction of its own, and tells in how many
-- seconds the next one is due (null: none waits). Writes nothing when nothing is due.
CREATE FUNCTION clientmgr.requeue_due(
    group_id text, topic text, topic_id integer, most integer, OUT requeued integer, OUT next_due_s float8
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    due bigint[];
    reserved record;
BEGIN
    requeued := 0;
    due := ARRAY(
        SELECT d.id FROM clientmgr.delayed_message_t AS d
        WHERE d.group_id = requeue_due.group_id AND d.topic_id = requeue_due.topic_id
            AND d.not_before <= clock_timestamp()
        ORDER BY d.not_before, d.id LIMIT most
        FOR UPDATE SKIP LOCKED
    );
    IF cardinality(due) > 0 THEN
        SELECT * INTO reserved
        FROM clientmgr.reserve_offsets(requeue_due.topic, cardinality(due), gen_random_uuid(), NULL);
        INSERT INTO clientmgr.outbox_message_t (
            topic_id, partition_id, c_offset, tx_last_offset, transaction_id, attempts, host_id, user_id, payload,
            attributes, group_id, original_offset, original_published_at
        )
        SELECT d.topic_id, clientmgr.partition_of(d.host_id, reserved.total_partitions),
            reserved.first_offset + r.position - 1, reserved.first_offset + r.position - 1, gen_random_uuid(),
            d.attempts, d.host_id, d.user_id, d.payload, d.attributes, d.group_id,
            d.original_offset, d.original_published_at
        FROM unnest(due) WITH ORDINALITY AS r (id, position)
        JOIN clientmgr.delayed_message_t AS d ON d.id = r.id;
        DELETE FROM clientmgr.delayed_message_t AS d WHERE d.id = ANY (due);
        requeued := cardinality(due);
    END IF;
    SELECT extract(epoch FROM min(d.not_before) - clock_timestamp()) INTO next_due_s
    FROM clientmgr.delayed_message_t AS d
    WHERE d.group_id = requeue_due.group_id AND d.topic_id = requeue_due.topic_id;
END
$$;

-- In how many seconds a partition that rests after a failure may be tried again; null: none rests. One whose time came
-- longer ago is in somebody's hands, or it would have been claimed.
CREATE FUNCTION clientmgr.next_retry_s(group_id text, topic_id integer) RETURNS float8
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT extract(epoch FROM min(retry_at) - clock_timestamp())::float8 FROM clientmgr.consumer_offsets
    WHERE group_id = $1 AND topic_id = $2 AND retry_at > clock_timestamp() - interval '50 milliseconds';
$$;
