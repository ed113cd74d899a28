-- Topics of the gateway. A topic exists when the log has it and the API did not delete it.

-- name: find
SELECT c.id, t.config
FROM clientmgr.log_counter AS c LEFT JOIN clientmgr.gateway_topics AS t ON t.topic_id = c.id
WHERE c.topic = %(log_topic)s AND t.deleted_at IS NULL;

-- name: made_by
-- Locked against another that the same caller makes at this moment.
SELECT count(t.topic_id)
FROM (SELECT pg_advisory_xact_lock(hashtextextended('gateway topics of ' || %(made_by)s, 0))) AS alone
LEFT JOIN clientmgr.gateway_topics AS t ON t.made_by = %(made_by)s AND t.deleted_at IS NULL;

-- name: add_to_log
INSERT INTO clientmgr.log_counter (topic, total_partitions) VALUES (%(log_topic)s, %(total_partitions)s)
ON CONFLICT (topic) DO NOTHING RETURNING id;

-- name: describe
INSERT INTO clientmgr.gateway_topics (topic_id, name, config, retention, made_by)
VALUES (%(topic_id)s, %(name)s, %(config)s, %(retention)s, %(made_by)s)
ON CONFLICT (topic_id) DO UPDATE SET config = excluded.config, retention = excluded.retention, deleted_at = NULL;

-- name: revive
-- Of two who create it at once, the second waits here and then finds that it exists.
UPDATE clientmgr.gateway_topics AS t SET config = %(config)s, retention = %(retention)s, deleted_at = NULL, made_by = %(made_by)s
FROM clientmgr.log_counter AS c
WHERE c.topic = %(log_topic)s AND t.topic_id = c.id AND t.deleted_at IS NOT NULL
RETURNING t.topic_id;

-- name: list
SELECT c.topic, t.config
FROM clientmgr.log_counter AS c LEFT JOIN clientmgr.gateway_topics AS t ON t.topic_id = c.id
WHERE t.deleted_at IS NULL AND c.topic > %(after)s
    AND CASE WHEN %(own)s THEN c.topic NOT LIKE 'projects/%%' ELSE starts_with(c.topic, %(prefix)s) END
ORDER BY c.topic LIMIT %(limit)s;

-- name: subscriptions_of
SELECT s.name FROM clientmgr.gateway_subscriptions AS s
WHERE s.topic = %(topic)s AND NOT s.detached AND s.name > %(after)s ORDER BY s.name LIMIT %(limit)s;

-- name: lock
SELECT c.id, c.next_offset FROM clientmgr.log_counter AS c WHERE c.id = %(topic_id)s FOR UPDATE;

-- name: mark_deleted
INSERT INTO clientmgr.gateway_topics (topic_id, name, config, deleted_at)
VALUES (%(topic_id)s, %(name)s, '{}', now())
ON CONFLICT (topic_id) DO UPDATE SET deleted_at = now(), retention = NULL;

-- name: orphan_subscriptions
-- They keep what was published up to here, and get nothing of a topic made later under the same name.
UPDATE clientmgr.gateway_subscriptions SET topic = '_deleted-topic_', end_offset = coalesce(end_offset, %(next_offset)s)
WHERE topic = %(name)s;

-- name: orphan_snapshots
UPDATE clientmgr.gateway_snapshots SET topic = '_deleted-topic_' WHERE topic = %(name)s;

-- name: drop_retention_group
DELETE FROM clientmgr.consumer_offsets WHERE group_id = %(name)s AND topic_id = %(topic_id)s;

-- name: hold_retention_group
-- A topic that keeps acknowledged messages is a group of its own to the log's retention.
INSERT INTO clientmgr.consumer_offsets (group_id, topic_id, partition_id, next_offset)
SELECT %(name)s, c.id, p, clientmgr.gateway_offset_at(c.id, now() - %(retention)s::interval)
FROM clientmgr.log_counter AS c, generate_series(0, c.total_partitions - 1) AS p
WHERE c.id = %(topic_id)s
ON CONFLICT (group_id, topic_id, partition_id) DO UPDATE SET next_offset = excluded.next_offset;
