-- Nothing waits for a neighbour's failure. A transaction group whose handler failed for a reason that nobody foresaw is
-- set aside with its own count and its own pauses, and what its tenant publishes later waits behind it, in order. The
-- rest of the partition goes on. Whoever has claimed the partition also owns the queues of its tenants: one lock for
-- both, so that no message can slip past a queue that is just being emptied.

CREATE TABLE clientmgr.held_queues (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id text NOT NULL,
    topic_id integer NOT NULL REFERENCES clientmgr.log_counter,
    partition_id integer NOT NULL,
    host_id text NOT NULL, -- '': messages without a tenant have no order, so each of their groups has a queue of its own
    not_before timestamptz NOT NULL
);
CREATE UNIQUE INDEX held_queue_of_tenant ON clientmgr.held_queues (group_id, topic_id, host_id) WHERE host_id <> '';
CREATE INDEX held_queues_by_time ON clientmgr.held_queues (group_id, topic_id, not_before);

-- Copies, so that retention need not wait for them.
CREATE TABLE clientmgr.held_message_t (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id bigint NOT NULL REFERENCES clientmgr.held_queues,
    c_offset bigint NOT NULL,
    tx_last_offset bigint NOT NULL,
    transaction_id uuid NOT NULL,
    attempts integer NOT NULL, -- deliveries before it was set aside that count
    failures integer NOT NULL DEFAULT 0, -- deliveries that ended in an exception; 0: it only waits behind another
    host_id text NOT NULL,
    user_id text NOT NULL,
    payload bytea NOT NULL,
    attributes jsonb NOT NULL,
    original_offset bigint NOT NULL,
    original_published_at timestamptz NOT NULL,
    reason text NOT NULL DEFAULT '',
    UNIQUE (queue_id, c_offset)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON clientmgr.held_queues, clientmgr.held_message_t TO clientmgr_writer;
GRANT SELECT ON clientmgr.held_queues, clientmgr.held_message_t TO clientmgr_reader;

-- Claims a partition of which held queues are due, and returns what is to be tried: of a queue whose first group failed
-- before, that group alone; of another, about batch_size messages in whole groups. A queue that was emptied by somebody
-- else (an account that was deleted) is one row without a message.
CREATE FUNCTION clientmgr.claim_held(
    group_id text, topic_id integer, only_partition integer, after_partition integer, batch_size integer
)
RETURNS TABLE (
    partition_id integer, next_offset bigint, c_offset bigint, tx_last_offset bigint, message_id bigint,
    host_id text, user_id text, payload bytea, attributes jsonb, attempt integer, failures integer,
    published_at timestamptz, more_elsewhere boolean, queue_id bigint, held_id bigint
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    claimed record;
BEGIN
    SELECT o.partition_id, o.next_offset INTO claimed
    FROM clientmgr.consumer_offsets AS o
    WHERE o.group_id = claim_held.group_id AND o.topic_id = claim_held.topic_id
        AND (only_partition IS NULL OR o.partition_id = only_partition)
        AND (o.retry_at IS NULL OR o.retry_at <= clock_timestamp())
        AND o.partition_id IN (
            SELECT q.partition_id FROM clientmgr.held_queues AS q
            WHERE q.group_id = claim_held.group_id AND q.topic_id = claim_held.topic_id
                AND q.not_before <= clock_timestamp()
        )
    ORDER BY o.partition_id <= after_partition, o.partition_id
    LIMIT 1
    FOR NO KEY UPDATE OF o SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT claimed.partition_id, claimed.next_offset, m.c_offset, m.tx_last_offset, m.original_offset,
        m.host_id, m.user_id, m.payload, nullif(m.attributes, '{}'), m.attempts + m.failures + 1, m.failures,
        m.original_published_at, true, due.id, m.id
    FROM (
        SELECT q.id, q.not_before FROM clientmgr.held_queues AS q
        WHERE q.group_id = claim_held.group_id AND q.topic_id = claim_held.topic_id
            AND q.partition_id = claimed.partition_id AND q.not_before <= clock_timestamp()
        ORDER BY q.not_before LIMIT 8
    ) AS due
    LEFT JOIN LATERAL (
        SELECT h.failures FROM clientmgr.held_message_t AS h
        WHERE h.queue_id = due.id ORDER BY h.c_offset LIMIT 1
    ) AS head ON true
    LEFT JOIN LATERAL (
        SELECT h.tx_last_offset FROM clientmgr.held_message_t AS h
        WHERE h.queue_id = due.id
        ORDER BY h.c_offset OFFSET CASE WHEN head.failures > 0 THEN 0 ELSE batch_size - 1 END LIMIT 1
    ) AS last ON true
    LEFT JOIN clientmgr.held_message_t AS m
        ON m.queue_id = due.id AND m.c_offset <= coalesce(last.tx_last_offset, 9223372036854775807)
    ORDER BY due.not_before, due.id, m.c_offset;
END
$$;

-- As before (0002), and: held_first: what is due of held queues comes before the log, otherwise after it.
-- queue_id: the message's tenant is held, and the message has to wait in this queue. held_id: it comes from there.
DROP FUNCTION clientmgr.claim_batch (text, integer, integer, integer, integer, integer []);
CREATE FUNCTION clientmgr.claim_batch(
    group_id text, topic_id integer, only_partition integer, after_partition integer, batch_size integer,
    in_hand integer[], held_first boolean
)
RETURNS TABLE (
    partition_id integer, next_offset bigint, c_offset bigint, tx_last_offset bigint, message_id bigint,
    host_id text, user_id text,
    payload bytea, -- null: a retry that another group is to see; only pass it
    attributes jsonb, -- null: none
    attempt integer, -- this delivery's number
    failures integer, -- deliveries that ended in an exception since the partition last moved on
    published_at timestamptz,
    more_elsewhere boolean, -- another partition, that is not in_hand, has something to read as well
    queue_id bigint, held_id bigint
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    claimed record;
    last_offset bigint;
    more_elsewhere boolean;
    any_due boolean;
    any_held boolean;
BEGIN
    SELECT true INTO any_due FROM clientmgr.held_queues AS q
    WHERE q.group_id = claim_batch.group_id AND q.topic_id = claim_batch.topic_id
        AND q.not_before <= clock_timestamp() LIMIT 1;
    IF any_due AND held_first THEN
        RETURN QUERY SELECT * FROM clientmgr.claim_held(
            claim_batch.group_id, claim_batch.topic_id, only_partition, after_partition, batch_size
        );
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
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
            IF any_due AND NOT held_first THEN
                RETURN QUERY SELECT * FROM clientmgr.claim_held(
                    claim_batch.group_id, claim_batch.topic_id, only_partition, after_partition, batch_size
                );
            END IF;
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

    -- Only now, with the partition in hand: a queue may have been made just before.
    PERFORM FROM clientmgr.held_queues AS q
    WHERE q.group_id = claim_batch.group_id AND q.topic_id = claim_batch.topic_id LIMIT 1;
    any_held := FOUND;

    RETURN QUERY
    SELECT claimed.partition_id, claimed.next_offset, m.c_offset, m.tx_last_offset,
        coalesce(m.original_offset, m.c_offset), m.host_id, m.user_id,
        CASE WHEN m.group_id IS NULL OR m.group_id = claim_batch.group_id THEN m.payload END,
        nullif(m.attributes, '{}'),
        m.attempts + 1 + failed.times, failed.times, coalesce(m.original_published_at, m.published_at),
        more_elsewhere,
        CASE WHEN any_held AND m.host_id <> '' THEN (
            SELECT q.id FROM clientmgr.held_queues AS q
            WHERE q.group_id = claim_batch.group_id AND q.topic_id = claim_batch.topic_id AND q.host_id = m.host_id
                AND q.host_id <> ''
        ) END,
        NULL::bigint
    FROM clientmgr.outbox_message_t AS m
    CROSS JOIN LATERAL (
        SELECT CASE WHEN m.c_offset <= claimed.failed_through THEN claimed.attempts ELSE 0 END AS times
    ) AS failed
    WHERE m.topic_id = claim_batch.topic_id AND m.partition_id = claimed.partition_id
        AND m.c_offset >= claimed.next_offset AND m.c_offset <= last_offset
    ORDER BY m.c_offset;
END
$$;

-- Copies messages of a claimed partition into the queues of their tenants, and makes a queue where there is none: that one
-- is tried again in delay_s. Messages without a tenant: all of one call are one group, with a queue of its own.
CREATE FUNCTION clientmgr.hold_messages(
    group_id text, topic_id integer, partition_id integer, offsets bigint[], failures integer[], reason text,
    delay_s float8
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    own_queue bigint;
    due timestamptz := clock_timestamp() + delay_s * interval '1 second';
BEGIN
    INSERT INTO clientmgr.held_queues (group_id, topic_id, partition_id, host_id, not_before)
    SELECT DISTINCT hold_messages.group_id, m.topic_id, hold_messages.partition_id, m.host_id, due
    FROM clientmgr.outbox_message_t AS m
    WHERE m.topic_id = hold_messages.topic_id AND m.c_offset = ANY (offsets) AND m.host_id <> ''
    ON CONFLICT (group_id, topic_id, host_id) WHERE host_id <> '' DO NOTHING;
    PERFORM FROM clientmgr.outbox_message_t AS m
    WHERE m.topic_id = hold_messages.topic_id AND m.c_offset = ANY (offsets) AND m.host_id = '' LIMIT 1;
    IF FOUND THEN
        INSERT INTO clientmgr.held_queues (group_id, topic_id, partition_id, host_id, not_before)
        VALUES (hold_messages.group_id, hold_messages.topic_id, hold_messages.partition_id, '', due)
        RETURNING id INTO own_queue;
    END IF;
    INSERT INTO clientmgr.held_message_t (
        queue_id, c_offset, tx_last_offset, transaction_id, attempts, failures, host_id, user_id, payload, attributes,
        original_offset, original_published_at, reason
    )
    SELECT coalesce(q.id, own_queue), m.c_offset, m.tx_last_offset, m.transaction_id, m.attempts, h.failures,
        m.host_id, m.user_id, m.payload, m.attributes,
        coalesce(m.original_offset, m.c_offset), coalesce(m.original_published_at, m.published_at),
        hold_messages.reason
    FROM unnest(offsets, failures) AS h (c_offset, failures)
    JOIN clientmgr.outbox_message_t AS m ON m.topic_id = hold_messages.topic_id AND m.c_offset = h.c_offset
    LEFT JOIN clientmgr.held_queues AS q ON q.group_id = hold_messages.group_id AND q.topic_id = m.topic_id
        AND q.host_id = m.host_id AND q.host_id <> '';
END
$$;

-- What became of a queue that was tried: `settled` are done, dead or parked, and go. `failed` have failed once more. An
-- empty queue goes too, and its tenant is free; any other is tried again in delay_s.
CREATE FUNCTION clientmgr.settle_queue(
    queue_id bigint, settled bigint[], failed bigint[], failures integer, reason text, delay_s float8
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    gone bigint;
BEGIN
    DELETE FROM clientmgr.held_message_t AS h WHERE h.queue_id = settle_queue.queue_id AND h.id = ANY (settled);
    GET DIAGNOSTICS gone = ROW_COUNT;
    IF gone <> cardinality(settled) THEN
        RAISE EXCEPTION 'messages of held queue % have been removed meanwhile', queue_id
            USING ERRCODE = 'serialization_failure';
    END IF;
    UPDATE clientmgr.held_message_t AS h SET failures = settle_queue.failures, reason = settle_queue.reason
    WHERE h.id = ANY (failed);
    UPDATE clientmgr.held_queues AS q SET not_before = clock_timestamp() + delay_s * interval '1 second'
    WHERE q.id = queue_id AND EXISTS (SELECT FROM clientmgr.held_message_t AS h WHERE h.queue_id = q.id);
    IF NOT FOUND THEN
        DELETE FROM clientmgr.held_queues AS q WHERE q.id = queue_id;
    END IF;
END
$$;

-- park_messages and bury_messages (0002) for messages of held queues, which the log may have trimmed by now.
CREATE FUNCTION clientmgr.park_held(
    held_ids bigint[], attempts integer[], delays_s float8[], reasons text[]
) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
    INSERT INTO clientmgr.delayed_message_t (
        group_id, topic_id, not_before, attempts, host_id, user_id, payload, attributes,
        original_offset, original_published_at, reason
    )
    SELECT q.group_id, q.topic_id, clock_timestamp() + r.delay_s * interval '1 second', r.attempts,
        m.host_id, m.user_id, m.payload, m.attributes, m.original_offset, m.original_published_at, r.reason
    FROM unnest($1, $2, $3, $4) WITH ORDINALITY AS r (id, attempts, delay_s, reason, position)
    JOIN clientmgr.held_message_t AS m ON m.id = r.id
    JOIN clientmgr.held_queues AS q ON q.id = m.queue_id
    ORDER BY r.position;
$$;

CREATE FUNCTION clientmgr.bury_held(
    held_ids bigint[], attempts integer[], error_classes text[], exceptions text[]
) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
    INSERT INTO clientmgr.dead_letter_queue (
        group_id, topic_id, c_offset, partition_id, host_id, user_id, transaction_id, payload, attributes,
        error_class, exception, attempts, published_at
    )
    SELECT q.group_id, q.topic_id, m.c_offset, q.partition_id, m.host_id, m.user_id, m.transaction_id, m.payload,
        m.attributes, d.error_class, d.exception, d.attempts, m.original_published_at
    FROM unnest($1, $2, $3, $4) WITH ORDINALITY AS d (id, attempts, error_class, exception, position)
    JOIN clientmgr.held_message_t AS m ON m.id = d.id
    JOIN clientmgr.held_queues AS q ON q.id = m.queue_id
    ORDER BY d.position
    ON CONFLICT (group_id, topic_id, c_offset) DO UPDATE SET
        error_class = excluded.error_class, exception = excluded.exception, attempts = excluded.attempts,
        failed_at = excluded.failed_at, replayed_at = NULL;
$$;

-- As before (0002), and the held queues' next time.
CREATE OR REPLACE FUNCTION clientmgr.next_retry_s(group_id text, topic_id integer) RETURNS float8
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT extract(epoch FROM min(at) - clock_timestamp())::float8 FROM (
        SELECT min(retry_at) AS at FROM clientmgr.consumer_offsets
        WHERE group_id = $1 AND topic_id = $2 AND retry_at > clock_timestamp() - interval '50 milliseconds'
        UNION ALL
        SELECT min(not_before) FROM clientmgr.held_queues
        WHERE group_id = $1 AND topic_id = $2 AND not_before > clock_timestamp() - interval '50 milliseconds'
    ) AS times;
$$;

-- The first offset of the transaction group that `at` lies in, so that no reader begins in the middle of one.
CREATE FUNCTION clientmgr.group_start(topic_id integer, at bigint) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    group_end bigint;
    before bigint;
BEGIN
    SELECT m.tx_last_offset INTO group_end FROM clientmgr.outbox_message_t AS m
    WHERE m.topic_id = group_start.topic_id AND m.c_offset = at;
    IF NOT FOUND THEN
        RETURN at;
    END IF;
    SELECT m.c_offset INTO before FROM clientmgr.outbox_message_t AS m
    WHERE m.topic_id = group_start.topic_id AND m.c_offset < at AND m.tx_last_offset <> group_end
    ORDER BY m.c_offset DESC LIMIT 1;
    SELECT m.c_offset INTO before FROM clientmgr.outbox_message_t AS m
    WHERE m.topic_id = group_start.topic_id AND m.c_offset > coalesce(before, 0) ORDER BY m.c_offset LIMIT 1;
    RETURN before;
END
$$;
