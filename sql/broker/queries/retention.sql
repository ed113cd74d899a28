-- name: topics
SELECT c.id, c.topic, c.total_partitions FROM clientmgr.log_counter AS c
WHERE (%(topic)s::text IS NULL OR c.topic = %(topic)s)
    AND (NOT %(only_read)s OR EXISTS (SELECT FROM clientmgr.consumer_offsets AS o WHERE o.topic_id = c.id))
ORDER BY c.id;

-- name: lock_topic_layout
-- Shared with making a group: one that is to begin at the oldest message must find it still there afterwards.
SELECT pg_advisory_xact_lock(7106407, %(topic_id)s);

-- name: trim_partition
SELECT deleted, last_offset FROM clientmgr.trim_partition(
    %(topic_id)s, %(partition_id)s, %(after_offset)s, %(keep)s, %(most)s
);

-- name: forget_keys
-- Of messages that the log no longer keeps. A portion at a time: publishers of the topic wait for nobody here.
DELETE FROM clientmgr.publish_keys AS k USING (
    SELECT topic_id, digest FROM clientmgr.publish_keys
    WHERE published_at < clock_timestamp() - %(keep)s::interval
    ORDER BY published_at LIMIT %(most)s FOR UPDATE SKIP LOCKED
) AS old
WHERE (k.topic_id, k.digest) = (old.topic_id, old.digest);
