-- name: tenants
SELECT customer_id FROM clientmgr.tenants WHERE status <> 'deleted' ORDER BY customer_id;

-- name: messages
-- How many messages for these tenants the device mappers were sent in the last hour. Of each topic the newest
-- %(look_at)s are looked at; beyond that the number is a lower bound.
SELECT count(*) FILTER (WHERE m.published_at > now() - interval '1 hour' AND m.host_id = ANY (%(tenants)s::text[])),
    coalesce(bool_or(m.place = %(look_at)s AND m.published_at > now() - interval '1 hour'), false)
FROM clientmgr.log_counter AS c
CROSS JOIN LATERAL (
    SELECT newest.*, row_number() OVER (ORDER BY newest.c_offset DESC) AS place FROM (
        SELECT c_offset, host_id, published_at FROM clientmgr.outbox_message_t
        WHERE topic_id = c.id AND group_id IS NULL ORDER BY c_offset DESC LIMIT %(look_at)s
    ) AS newest
) AS m
WHERE c.topic ~ '^sending-(batch|tx)-devicemapper-';
