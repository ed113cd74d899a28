-- name: ensure_days
SELECT live.ensure_position_days(%(days)s);

-- name: drop_days
SELECT live.drop_position_days(%(oldest)s);

-- name: insert
-- What is there already came before: the stream delivers at least once.
INSERT INTO live.positions (
    device_id, ts, latitude, longitude, altitude, speed, course, accuracy, satellites, codec, attributes
)
SELECT * FROM unnest(
    %(device_id)s::text[], %(ts)s::timestamptz[], %(latitude)s::float8[], %(longitude)s::float8[],
    %(altitude)s::float8[], %(speed)s::float8[], %(course)s::float8[], %(accuracy)s::float8[],
    %(satellites)s::smallint[], %(codec)s::text[], %(attributes)s::jsonb[]
)
ON CONFLICT (device_id, ts) DO NOTHING;

-- name: reject
INSERT INTO live.rejected_records (stream, entry_id, reason, fields)
SELECT %(stream)s, * FROM unnest(%(entry_id)s::text[], %(reason)s::text[], %(fields)s::bytea[])
ON CONFLICT (stream, entry_id) DO NOTHING;

-- name: forget_rejected
DELETE FROM live.rejected_records WHERE rejected_at < %(before)s;

-- name: newest
-- Of each device that takes part in something, by its primary key: a scan of all positions would take seconds.
SELECT p.*
FROM (SELECT DISTINCT device_id FROM live.entry_devices) AS d
CROSS JOIN LATERAL (
    SELECT
        device_id, (extract(epoch FROM ts) * 1000)::bigint, latitude, longitude, speed, course, accuracy,
        nullif(attributes, '{}')::text
    FROM live.positions
    WHERE device_id = d.device_id AND ingested_at >= to_timestamp(%(since_ms)s / 1000.0) - interval '1 minute'
    ORDER BY ts DESC LIMIT 1
) AS p;
