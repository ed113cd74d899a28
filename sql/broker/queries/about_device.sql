-- name: about_device
-- The newest messages of a tenant that hold these bytes, in these topics, for a person who asks about a device: of each
-- topic the newest %(look_at)s of the tenant's partition are looked at. No index knows devices.
SELECT c.topic, m.c_offset AS offset, m.published_at, m.payload AS data, m.attributes
FROM clientmgr.log_counter AS c
CROSS JOIN LATERAL (
    SELECT * FROM clientmgr.outbox_message_t AS newest
    WHERE newest.topic_id = c.id AND newest.partition_id = clientmgr.partition_of(%(tenant)s, c.total_partitions)
    ORDER BY newest.c_offset DESC LIMIT %(look_at)s
) AS m
WHERE (c.topic = ANY (%(topics)s::text[]) OR c.topic ~ %(pattern)s)
    AND m.host_id = %(tenant)s AND m.group_id IS NULL AND position(%(needle)s::bytea IN m.payload) > 0
ORDER BY m.published_at DESC LIMIT %(limit)s;
