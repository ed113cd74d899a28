-- Whether the group has something to read or to try again that a look did not get: another session has it in hand, or it
-- rests. That session may die, and nobody is notified of it: an idle consumer that hears true has to look again soon.
CREATE FUNCTION clientmgr.is_behind(group_id text, topic_id integer, only_partition integer) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
BEGIN
    -- One index probe a partition, as in claim_batch.
    PERFORM FROM clientmgr.consumer_offsets AS o
    CROSS JOIN LATERAL (
        SELECT FROM clientmgr.outbox_message_t AS m
        WHERE m.topic_id = o.topic_id AND m.partition_id = o.partition_id AND m.c_offset >= o.next_offset
        ORDER BY m.c_offset LIMIT 1
    ) AS unread
    WHERE o.group_id = is_behind.group_id AND o.topic_id = is_behind.topic_id
        AND (only_partition IS NULL OR o.partition_id = only_partition)
    LIMIT 1;
    RETURN FOUND OR EXISTS (
        SELECT FROM clientmgr.held_queues AS q
        WHERE q.group_id = is_behind.group_id AND q.topic_id = is_behind.topic_id
            AND (only_partition IS NULL OR q.partition_id = only_partition)
    );
END
$$;
