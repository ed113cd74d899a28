-- name: nightly_work
-- When each kind of nightly work was last done for anybody. The last column counts what failed in the last day and a half.
SELECT 'tenant metrics' AS work, (SELECT max(collected_at) FROM clientmgr.dashboard_tenant_metrics) AS done_at,
    (SELECT count(*) FROM clientmgr.dashboard_tenant_metrics WHERE status = 'failed') AS failures
UNION ALL
SELECT 'orphan search', (SELECT max(searched_at) FROM clientmgr.orphan_searches),
    (
        SELECT count(*) FROM clientmgr.batch_failures
        WHERE step = 'orphan_candidates' AND failed_at > now() - interval '36 hours'
    )
UNION ALL
SELECT 'orphan deletion', max(finished_at),
    count(*) FILTER (WHERE outcome IN ('failed', 'guarded') AND finished_at > now() - interval '36 hours')
FROM clientmgr.orphan_deletion_results
UNION ALL
SELECT 'contact deletion', max(updated_at), 0 FROM clientmgr.contact_deletion_watermarks
UNION ALL
SELECT 'contact deletion reconciliation', (SELECT max(searched_at) FROM clientmgr.contact_deletion_reconciliations),
    (
        SELECT count(*) FROM clientmgr.batch_failures
        WHERE step = 'contact_deletion_reconciliation' AND failed_at > now() - interval '36 hours'
    );
