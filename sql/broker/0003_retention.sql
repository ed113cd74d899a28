-- Deletes messages of one partition that every group has passed and that are older than `keep`, looking at no more than
-- `most` of them, from after_offset on. last_offset: where the next look begins; null: this was the end.
CREATE FUNCTION clientmgr.trim_partition(
    topic_id integer, partition_id integer, after_offset bigint, keep interval, most integer,
    OUT deleted bigint, OUT last_offset bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    passed bigint; -- by all groups; null: there is no group
    looked_at bigint;
BEGIN
    SELECT min(o.next_offset) INTO passed FROM clientmgr.consumer_offsets AS o
    WHERE o.topic_id = trim_partition.topic_id AND o.partition_id = trim_partition.partition_id;

    SELECT max(m.c_offset), count(*) INTO last_offset, looked_at FROM (
        SELECT m.c_offset FROM clientmgr.outbox_message_t AS m
        WHERE m.topic_id = trim_partition.topic_id AND m.partition_id = trim_partition.partition_id
            AND m.c_offset > after_offset AND (passed IS NULL OR m.c_offset < passed)
        ORDER BY m.c_offset LIMIT most
    ) AS m;

    DELETE FROM clientmgr.outbox_message_t AS m
    WHERE m.topic_id = trim_partition.topic_id AND m.partition_id = trim_partition.partition_id
        AND m.c_offset > after_offset AND m.c_offset <= last_offset AND m.published_at < clock_timestamp() - keep;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    -- What comes after a message that is kept for its age is younger still.
    IF deleted < most THEN
        last_offset := NULL;
    END IF;
END
$$;
