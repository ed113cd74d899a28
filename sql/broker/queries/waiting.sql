-- name: make_due
-- What somebody has in hand is left alone: it is due already.
UPDATE clientmgr.delayed_message_t AS d SET not_before = clock_timestamp()
FROM (
    SELECT id FROM clientmgr.delayed_message_t
    WHERE host_id = ANY (%(tenants)s::text []) AND not_before > clock_timestamp() FOR UPDATE SKIP LOCKED
) AS waiting
WHERE d.id = waiting.id;

-- name: make_due_on_pubsub
UPDATE clientmgr.pubsub_delayed AS d SET not_before = clock_timestamp()
FROM (
    SELECT id FROM clientmgr.pubsub_delayed
    WHERE host_id = ANY (%(tenants)s::text []) AND not_before > clock_timestamp() FOR UPDATE SKIP LOCKED
) AS waiting
WHERE d.id = waiting.id;
