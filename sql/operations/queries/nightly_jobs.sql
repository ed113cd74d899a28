-- name: nightly_work
-- When each kind of regular work was last done for anybody, by what it left; how many failed in the last day and a half;
-- and when it last failed, where that is kept here. How runs ended, Dagster's own tables say
-- (sql/dagster/queries/standing.sql).
SELECT 'tenant metrics' AS work, (SELECT max(collected_at) FROM clientmgr.dashboard_tenant_metrics) AS done_at,
    (SELECT count(*) FROM clientmgr.dashboard_tenant_metrics WHERE status = 'failed') AS failures,
    NULL::timestamptz AS failed_at
UNION ALL
SELECT 'orphan search', (SELECT max(searched_at) FROM clientmgr.orphan_searches),
    (
        SELECT count(*) FROM clientmgr.batch_failures
        WHERE step = 'orphan_candidates' AND failed_at > now() - interval '36 hours'
    ), NULL
UNION ALL
SELECT 'orphan deletion', max(finished_at),
    count(*) FILTER (WHERE outcome IN ('failed', 'guarded') AND finished_at > now() - interval '36 hours'), NULL
FROM clientmgr.orphan_deletion_results
UNION ALL
SELECT 'contact deletion', max(updated_at), 0, NULL FROM clientmgr.contact_deletion_watermarks
UNION ALL
SELECT 'contact deletion reconciliation', (SELECT max(searched_at) FROM clientmgr.contact_deletion_reconciliations),
    (
        SELECT count(*) FROM clientmgr.batch_failures
        WHERE step = 'contact_deletion_reconciliation' AND failed_at > now() - interval '36 hours'
    ), NULL
UNION ALL
(
    SELECT 'audit verification', v.verified_at, coalesce(v.findings, 0), NULL
    FROM (SELECT) AS one LEFT JOIN LATERAL (
        SELECT * FROM clientmgr.audit_verifications ORDER BY verified_at DESC, id DESC LIMIT 1
    ) AS v ON true
)
UNION ALL
SELECT 'legacy migration', NULL, 0, NULL
UNION ALL
SELECT 'pruning of Dagster''s log', NULL, 0, NULL
UNION ALL
-- A sweep that failed never finishes; it is tried again.
SELECT 'erasure sweep', (SELECT max(finished_at) FROM clientmgr.erasure_sweeps), 0,
    (SELECT s.started_at FROM clientmgr.erasure_sweeps AS s WHERE s.error <> '' ORDER BY s.id DESC LIMIT 1);
