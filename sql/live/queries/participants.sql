-- name: events_by_device
SELECT d.device_id, array_agg(DISTINCT e.event_id ORDER BY e.event_id)
FROM live.entry_devices AS d JOIN live.entries AS e ON e.id = d.entry_id
GROUP BY d.device_id;

-- name: enter_event
-- One entry per event for devices that take part together; asking again changes nothing.
WITH entry AS (
    INSERT INTO live.entries (event_id)
    SELECT %(event_id)s WHERE NOT EXISTS (SELECT FROM live.entries WHERE event_id = %(event_id)s)
    RETURNING id
)
INSERT INTO live.entry_devices (entry_id, device_id)
SELECT coalesce((SELECT id FROM entry), (SELECT min(id) FROM live.entries WHERE event_id = %(event_id)s)), device_id
FROM unnest(%(device_ids)s::text[]) AS device_id
ON CONFLICT DO NOTHING;
