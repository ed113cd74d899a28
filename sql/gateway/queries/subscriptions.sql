-- Subscriptions of the gateway.

-- name: find
SELECT id, name, topic, topic_id, config, ordered, exactly_once, dead_letter_topic, max_delivery_attempts, tenants,
    detached
FROM clientmgr.gateway_subscriptions WHERE name = %(name)s;

-- name: made_by
-- Locked against another that the same caller makes at this moment.
SELECT count(s.id)
FROM (SELECT pg_advisory_xact_lock(hashtextextended('gateway subscriptions of ' || %(made_by)s, 0))) AS alone
LEFT JOIN clientmgr.gateway_subscriptions AS s ON s.made_by = %(made_by)s;

-- name: create
WITH made AS (
    INSERT INTO clientmgr.gateway_subscriptions (
        name, topic, topic_id, config, filter, ordered, exactly_once, ack_deadline, minimum_backoff, maximum_backoff,
        dead_letter_topic, max_delivery_attempts, retention, retain_acked, made_by, tenants
    ) VALUES (
        %(name)s, %(topic)s, %(topic_id)s, %(config)s, %(filter)s::jsonpath, %(ordered)s, %(exactly_once)s,
        %(ack_deadline)s, %(minimum_backoff)s, %(maximum_backoff)s, %(dead_letter_topic)s,
        %(max_delivery_attempts)s, %(retention)s, %(retain_acked)s, %(made_by)s, %(tenants)s
    )
    ON CONFLICT (name) DO NOTHING RETURNING id
)
SELECT id FROM made;

-- name: start
-- From now on: what is committed by now is before its time.
INSERT INTO clientmgr.gateway_cursors (subscription_id, next_offset)
SELECT %(id)s, c.next_offset FROM clientmgr.log_counter AS c WHERE c.id = %(topic_id)s;

-- name: hold_group
-- To the log's retention a subscription is a consumer group: what it has not passed stays.
INSERT INTO clientmgr.consumer_offsets (group_id, topic_id, partition_id, next_offset)
SELECT %(name)s, c.id, p, c.next_offset FROM clientmgr.log_counter AS c, generate_series(0, c.total_partitions - 1) AS p
WHERE c.id = %(topic_id)s
ON CONFLICT (group_id, topic_id, partition_id) DO NOTHING;

-- name: change
UPDATE clientmgr.gateway_subscriptions SET
    config = %(config)s, exactly_once = %(exactly_once)s, ack_deadline = %(ack_deadline)s,
    minimum_backoff = %(minimum_backoff)s, maximum_backoff = %(maximum_backoff)s,
    dead_letter_topic = %(dead_letter_topic)s, max_delivery_attempts = %(max_delivery_attempts)s,
    retention = %(retention)s, retain_acked = %(retain_acked)s
WHERE name = %(name)s;

-- name: lock
SELECT id FROM clientmgr.gateway_lock(%(name)s);

-- name: list
SELECT id, name, topic, topic_id, config, ordered, exactly_once, dead_letter_topic, max_delivery_attempts, tenants,
    detached
FROM clientmgr.gateway_subscriptions
WHERE starts_with(name, %(prefix)s) AND name > %(after)s ORDER BY name LIMIT %(limit)s;

-- name: forget
WITH deliveries AS (
    DELETE FROM clientmgr.gateway_deliveries WHERE subscription_id = %(id)s
), acknowledged AS (
    DELETE FROM clientmgr.gateway_acknowledged WHERE subscription_id = %(id)s
), freed_keys AS (
    DELETE FROM clientmgr.gateway_freed_keys WHERE subscription_id = %(id)s
), progress AS (
    DELETE FROM clientmgr.consumer_offsets WHERE group_id = %(name)s
)
DELETE FROM clientmgr.gateway_subscriptions WHERE id = %(id)s;

-- name: detach
SELECT clientmgr.gateway_detach(%(name)s);

-- name: seek
SELECT clientmgr.gateway_seek(%(name)s, %(time)s::timestamptz),
    clientmgr.gateway_replay_kept(%(name)s, %(time)s::timestamptz);
