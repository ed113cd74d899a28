-- Dagster's own tables, in its schema (the connection's search_path). The log is walked by id, a page at a time: there is
-- no index by time, and ids grow with it. Other code locations may share the instance: only what is ours is deleted.

-- name: page
SELECT max(id), min("timestamp") FROM (
    SELECT id, "timestamp" FROM event_logs WHERE id > %(after_id)s ORDER BY id LIMIT %(most)s
) AS page;

-- name: prune_page
-- The newest event of each kind for each asset and partition stays, whatever its age: by it Dagster knows what is
-- materialised, observed or failed. So does what a check's newest result points to.
-- An event is ours if its run is, which Dagster stores with the label of its repository and location. What sensors and the
-- UI report has no run, and is ours if the asset is.
WITH gone AS (
    DELETE FROM event_logs AS e
    WHERE e.id > %(after_id)s AND e.id <= %(last_id)s AND e."timestamp" < %(before)s
        AND (e.asset_key IS NULL OR e.asset_key = ANY(%(asset_keys)s))
        AND (
            e.run_id = '' AND e.asset_key IS NOT NULL
            OR EXISTS (
                SELECT FROM run_tags AS t
                WHERE t.run_id = e.run_id AND t.key = '.dagster/repository' AND t.value = %(repository)s
            )
        )
        AND (
            e.asset_key IS NULL
            OR e.partition IS NOT NULL AND EXISTS (
                SELECT FROM event_logs AS n
                WHERE n.asset_key = e.asset_key AND n.dagster_event_type = e.dagster_event_type
                    AND n.partition = e.partition AND n.id > e.id
            )
            OR e.partition IS NULL AND EXISTS (
                SELECT FROM event_logs AS n
                WHERE n.asset_key = e.asset_key AND n.dagster_event_type = e.dagster_event_type
                    AND n.partition IS NULL AND n.id > e.id
            )
        )
        AND NOT EXISTS (SELECT FROM asset_check_executions AS c WHERE c.evaluation_event_storage_id = e.id)
    RETURNING e.id
), tags AS (
    DELETE FROM asset_event_tags AS t USING gone WHERE t.event_id = gone.id
)
SELECT count(*) FROM gone;

-- name: prune_checks
-- Of each check the newest result stays.
DELETE FROM asset_check_executions AS c
WHERE c.create_timestamp < %(before)s
    AND (c.asset_key, c.check_name) IN (SELECT * FROM unnest(%(check_assets)s::text[], %(check_names)s::text[]))
    AND EXISTS (
        SELECT FROM asset_check_executions AS n
        WHERE n.asset_key = c.asset_key AND n.check_name = c.check_name
            AND n.partition IS NOT DISTINCT FROM c.partition AND n.id > c.id
    );

-- name: size
SELECT pg_total_relation_size('event_logs');
