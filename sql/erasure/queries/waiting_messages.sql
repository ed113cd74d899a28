-- Tables of messages that are not the log. `:"table"` and the like are filled in by clientmgr/erasure/waiting_messages.py.

-- name: page
SELECT id, payload, host_id, user_id, attributes, published_at FROM (
    SELECT m.*, sum(octet_length(m.payload)) OVER (ORDER BY m.id) - octet_length(m.payload) AS bytes_before
    FROM (
        SELECT id, payload, host_id, user_id, attributes, :"published_at" AS published_at
        FROM :"table" WHERE id > %(after)s ORDER BY id LIMIT %(limit)s
    ) AS m
) AS sized
WHERE bytes_before < %(max_bytes)s ORDER BY id;

-- name: change
-- In the order in which a replay locks them.
WITH wanted AS (
    SELECT * FROM unnest(
        %(keys)s::bigint[], %(payloads)s::bytea[], %(host_ids)s::text[], %(user_ids)s::text[], %(attributes)s::text[]
    ) AS w (id, payload, host_id, user_id, attributes)
), locked AS MATERIALIZED (
    SELECT id FROM :"table" WHERE id = ANY (%(keys)s::bigint[]) ORDER BY id FOR UPDATE
)
UPDATE :"table" AS m
SET payload = w.payload, host_id = w.host_id, user_id = w.user_id, attributes = w.attributes::jsonb, :"why" = ''
FROM wanted AS w JOIN locked AS l USING (id)
WHERE m.id = w.id;
