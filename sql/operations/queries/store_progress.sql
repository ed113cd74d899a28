-- name: store_progress
-- Positions by PostgreSQL's own counters: to count them would be to read them.
SELECT
    coalesce((
        SELECT sum(n_tup_ins) FROM pg_stat_all_tables WHERE schemaname = 'live' AND relname ~ '^positions_[0-9]{8}$'
    ), 0)::bigint AS positions_written,
    coalesce(last.id, 0) AS sweep,
    last.started_at AS sweep_began,
    coalesce((
        SELECT sum(c.value::bigint) FROM jsonb_each_text(last.counts) AS c WHERE c.value ~ '^[0-9]+$'
    ), 0)::bigint AS sweep_found
FROM (SELECT) AS one
LEFT JOIN LATERAL (
    SELECT id, started_at, counts FROM clientmgr.erasure_sweeps
    WHERE finished_at IS NOT NULL ORDER BY started_at DESC LIMIT 1
) AS last ON true;
