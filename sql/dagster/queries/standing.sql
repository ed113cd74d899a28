-- What Dagster's own tables say of its runs and its daemon, for whoever watches. In its schema (the connection's
-- search_path). Each look-up is by an index.

-- name: runs
-- Of each job the newest run that succeeded and the newest that failed. Times are epoch seconds, of the run's end.
SELECT wanted.job, succeeded.run_id AS succeeded_run, succeeded.ended AS succeeded_at, failed.run_id AS failed_run,
    failed.ended AS failed_at, EXISTS (
        SELECT FROM runs AS r WHERE r.pipeline_name = wanted.job AND r.status IN ('QUEUED', 'STARTING', 'STARTED')
    ) AS is_under_way
FROM unnest(%(jobs)s::text[]) AS wanted (job)
LEFT JOIN LATERAL (
    SELECT r.run_id, coalesce(r.end_time, r.start_time) AS ended FROM runs AS r
    WHERE r.pipeline_name = wanted.job AND r.status = 'SUCCESS' ORDER BY r.id DESC LIMIT 1
) AS succeeded ON true
LEFT JOIN LATERAL (
    SELECT r.run_id, coalesce(r.end_time, r.start_time) AS ended FROM runs AS r
    WHERE r.pipeline_name = wanted.job AND r.status = 'FAILURE' ORDER BY r.id DESC LIMIT 1
) AS failed ON true;

-- name: daemon
-- Its threads that share a process, by how long nothing was heard of each; the newest process alone. Dagster keeps
-- neither its host nor its start.
SELECT h.daemon_type, extract(epoch FROM timezone('UTC', now()) - h."timestamp")::float8 AS silent_s
FROM daemon_heartbeats AS h
WHERE h.daemon_id = (SELECT n.daemon_id FROM daemon_heartbeats AS n ORDER BY n."timestamp" DESC LIMIT 1)
ORDER BY silent_s DESC;

-- name: last_work
-- The newest look of a sensor or a schedule, which the daemon has decided on, and the newest run, which the code server
-- was asked to start. Epoch seconds.
SELECT
    (SELECT extract(epoch FROM t."timestamp")::float8 FROM job_ticks AS t ORDER BY t.id DESC LIMIT 1) AS last_tick,
    (SELECT max(r.start_time) FROM (SELECT start_time FROM runs ORDER BY id DESC LIMIT 20) AS r) AS last_run;
