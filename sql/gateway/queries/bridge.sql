-- The bridge from Pub/Sub into the log.

-- name: remember
-- Returns those that were not there before. One that another bridge is copying at this moment is waited for.
INSERT INTO clientmgr.bridge_seen (subscription, message_id)
SELECT %(subscription)s, id FROM unnest(%(message_ids)s::text[]) AS id ORDER BY id
ON CONFLICT (subscription, message_id) DO NOTHING
RETURNING message_id;

-- name: forget
DELETE FROM clientmgr.bridge_seen WHERE seen_at < now() - %(keep)s::interval;

-- name: topic_behind_gateway
-- Which topic of this very log a subscription of our own gateway reads.
SELECT c.topic FROM clientmgr.gateway_subscriptions AS s JOIN clientmgr.log_counter AS c ON c.id = s.topic_id
WHERE s.name = %(name)s;
