-- name: pause
-- No row comes back where it was paused already.
INSERT INTO clientmgr.paused_subscriptions (group_id, reason, paused_by)
VALUES (%(group_id)s, %(reason)s, %(paused_by)s) ON CONFLICT DO NOTHING RETURNING group_id;

-- name: resume
DELETE FROM clientmgr.paused_subscriptions WHERE group_id = %(group_id)s RETURNING group_id;

-- name: wake
-- Whoever reads the topic looks at once: for messages, and for what has become due meanwhile.
SELECT pg_notify('event_channel', id::text), pg_notify('event_channel', 'due ' || id)
FROM clientmgr.log_counter WHERE topic = %(topic)s;

-- name: is_paused
SELECT 1 FROM clientmgr.paused_subscriptions WHERE group_id = %(group_id)s;

-- name: all
SELECT group_id, reason, paused_by, paused_at FROM clientmgr.paused_subscriptions
WHERE %(subscription)s::text IS NULL OR group_id = %(subscription)s ORDER BY group_id;

-- name: topic_of
SELECT c.topic FROM clientmgr.log_counter AS c
WHERE c.id = (SELECT o.topic_id FROM clientmgr.consumer_offsets AS o WHERE o.group_id = %(group_id)s LIMIT 1);
