-- Snapshots of the gateway. One that has ended does not exist, also while its row is still there.

-- name: find
SELECT name, topic, labels, expires_at, created_at, tenants FROM clientmgr.gateway_snapshots
WHERE name = %(name)s AND expires_at > now();

-- name: made_by
-- Locked against another that the same caller makes at this moment.
SELECT count(n.name)
FROM (SELECT pg_advisory_xact_lock(hashtextextended('gateway snapshots of ' || %(made_by)s, 0))) AS alone
LEFT JOIN clientmgr.gateway_snapshots AS n ON n.made_by = %(made_by)s AND n.expires_at > now();

-- name: take
SELECT clientmgr.gateway_take_snapshot(
    %(subscription)s, %(name)s, %(labels)s::jsonb, %(made_by)s, %(lifetime)s::interval, %(least_lifetime)s::interval
);

-- name: change
UPDATE clientmgr.gateway_snapshots SET labels = %(labels)s::jsonb, expires_at = %(expires_at)s WHERE name = %(name)s;

-- name: list
SELECT name, topic, labels, expires_at, created_at, tenants FROM clientmgr.gateway_snapshots
WHERE starts_with(name, %(prefix)s) AND name > %(after)s AND expires_at > now() ORDER BY name LIMIT %(limit)s;

-- name: of_topic
SELECT name FROM clientmgr.gateway_snapshots
WHERE topic = %(topic)s AND name > %(after)s AND expires_at > now() ORDER BY name LIMIT %(limit)s;

-- name: forget
WITH held AS (
    DELETE FROM clientmgr.consumer_offsets WHERE group_id = %(name)s
)
DELETE FROM clientmgr.gateway_snapshots WHERE name = %(name)s RETURNING name;

-- name: forget_expired
WITH gone AS (
    DELETE FROM clientmgr.gateway_snapshots WHERE expires_at <= now() RETURNING name, topic_id
)
DELETE FROM clientmgr.consumer_offsets AS o USING gone AS g WHERE o.group_id = g.name AND o.topic_id = g.topic_id;

-- name: seek
SELECT clientmgr.gateway_seek_snapshot(%(subscription)s, %(name)s);
