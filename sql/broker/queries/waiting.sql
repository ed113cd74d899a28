-- Messages that wait for a tenant say so in their reason: the customer is not always in host_id, for not everybody
-- publishes with an ordering key. What somebody has in hand is left alone.

-- name: make_due
UPDATE clientmgr.delayed_message_t AS d SET not_before = clock_timestamp()
FROM (
    SELECT id FROM clientmgr.delayed_message_t
    WHERE substring(reason FROM '^waits: customer ([0-9]+) ') = ANY (%(tenants)s::text [])
        AND not_before > clock_timestamp()
    FOR UPDATE SKIP LOCKED
) AS waiting
WHERE d.id = waiting.id;

-- name: make_due_on_pubsub
UPDATE clientmgr.pubsub_delayed AS d SET not_before = clock_timestamp()
FROM (
    SELECT id FROM clientmgr.pubsub_delayed
    WHERE substring(reason FROM '^waits: customer ([0-9]+) ') = ANY (%(tenants)s::text [])
        AND not_before > clock_timestamp()
    FOR UPDATE SKIP LOCKED
) AS waiting
WHERE d.id = waiting.id;
