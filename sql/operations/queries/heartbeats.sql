-- name: beat
INSERT INTO clientmgr.heartbeats (instance, process, host, pid, version, last_work_at)
SELECT instance, process, %(host)s, %(pid)s, %(version)s, CASE WHEN has_worked THEN clock_timestamp() END
FROM unnest(%(instances)s::uuid[], %(processes)s::text[], %(has_worked)s::boolean[]) AS one (instance, process, has_worked)
ON CONFLICT (instance) DO UPDATE SET
    beat_at = clock_timestamp(),
    last_work_at = coalesce(excluded.last_work_at, heartbeats.last_work_at),
    stopped_at = CASE WHEN %(is_stopping)s THEN clock_timestamp() END;

-- name: signs
-- Of each process those that run; where none does, the one that ran last.
SELECT process, host, pid, version, started_at, beat_at, last_work_at, stopped_at
FROM (
    SELECT h.*, bool_or(h.is_alive) OVER (PARTITION BY h.process) AS any_alive,
        row_number() OVER (PARTITION BY h.process ORDER BY h.beat_at DESC) AS place
    FROM (
        SELECT *, stopped_at IS NULL AND beat_at > clock_timestamp() - %(dead_after_s)s * interval '1 second' AS is_alive
        FROM clientmgr.heartbeats
    ) AS h
) AS latest
WHERE is_alive OR (NOT any_alive AND place = 1)
ORDER BY process, started_at;

-- name: instances
SELECT process, host, pid, version, started_at, beat_at, last_work_at, stopped_at
FROM clientmgr.heartbeats WHERE process = %(process)s ORDER BY started_at DESC LIMIT 100;

-- name: forget
-- Starts of long ago. The last of each process stays: that it is gone is what somebody wants to know.
DELETE FROM clientmgr.heartbeats AS h
WHERE h.beat_at < clock_timestamp() - interval '1 hour' AND EXISTS (
    SELECT FROM clientmgr.heartbeats AS later WHERE later.process = h.process AND later.beat_at > h.beat_at
);
