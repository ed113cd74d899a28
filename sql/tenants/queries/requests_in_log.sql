-- Requests for activation and deletion that are in the message log and that no sensor has recorded yet.

-- name: unread_from
-- Where the sensor's group stands: all before it is recorded in tenant_wishes. No group: nobody has read anything yet.
SELECT c.topic, c.id, coalesce(min(o.next_offset), 1)
FROM clientmgr.log_counter AS c
LEFT JOIN clientmgr.consumer_offsets AS o ON o.topic_id = c.id AND o.group_id = c.topic
WHERE c.topic = ANY (%(topics)s::text [])
GROUP BY c.id;

-- name: read
-- Of retries only the group's own: they are dead letters that somebody had delivered again.
SELECT c_offset, payload FROM clientmgr.outbox_message_t
WHERE topic_id = %(topic_id)s AND c_offset >= %(from_offset)s AND (group_id IS NULL OR group_id = %(topic)s)
ORDER BY c_offset LIMIT %(limit)s;

-- name: recorded
-- After `unread_from`: what the sensor records meanwhile is then seen here, and nothing is seen in neither place.
SELECT i.customer_id, t.status, w.wish, w.asked_at
FROM unnest(%(customer_ids)s::bigint []) AS i (customer_id)
LEFT JOIN clientmgr.tenants AS t USING (customer_id)
LEFT JOIN clientmgr.tenant_wishes AS w USING (customer_id);
