-- The questions that an operator asks. Each view answers one, the most urgent tenant first.

CREATE VIEW clientmgr.dashboard_worst_sync AS
SELECT customer_id, sync_difference_share, linked_devices, sync_dynamodb_devices, sync_sampled, sync_missing_in_dynamodb,
    sync_missing_in_postgres, sync_different, sync_different_fields, collected_at
FROM clientmgr.dashboard_tenant_metrics
WHERE sync_status = 'checked'
ORDER BY sync_difference_share DESC, customer_id;

CREATE VIEW clientmgr.dashboard_fastest_growth AS
SELECT customer_id, devices, growth_24h, growth_7d, growth_24h::double precision / nullif(devices - growth_24h, 0)
    AS growth_24h_share, growth_7d::double precision / nullif(devices - growth_7d, 0) AS growth_7d_share, collected_at
FROM clientmgr.dashboard_tenant_metrics
WHERE growth_24h IS NOT NULL OR growth_7d IS NOT NULL
ORDER BY growth_24h DESC NULLS LAST, growth_7d DESC NULLS LAST, customer_id;

CREATE VIEW clientmgr.dashboard_most_invalid_tokens AS
SELECT customer_id, tokens_invalid, tokens_invalid_share, tokens_valid, devices, collected_at
FROM clientmgr.dashboard_tenant_metrics
WHERE tokens_invalid > 0
ORDER BY tokens_invalid_share DESC, tokens_invalid DESC, customer_id;

CREATE VIEW clientmgr.dashboard_never_written AS
SELECT m.customer_id, t.activated_at, m.collected_at
FROM clientmgr.dashboard_tenant_metrics AS m
JOIN clientmgr.tenants AS t USING (customer_id)
WHERE m.status = 'ok' AND m.last_write_at IS NULL
ORDER BY t.activated_at, m.customer_id;

-- From the registry itself: true at once, whenever the numbers were last collected.
CREATE VIEW clientmgr.dashboard_behind_on_migrations AS
SELECT t.customer_id, t.status, t.schema_version, head.version AS head_version,
    head.version - t.schema_version AS behind_by
FROM clientmgr.tenants AS t,
    (SELECT coalesce(max(version), 0) AS version FROM clientmgr.tenant_migration_files) AS head
WHERE t.status IN ('activating', 'active') AND t.schema_version < head.version
ORDER BY behind_by DESC, t.customer_id;

CREATE VIEW clientmgr.dashboard_failed_tenants AS
SELECT customer_id, failure, collected_at
FROM clientmgr.dashboard_tenant_metrics
WHERE status = 'failed'
ORDER BY customer_id;

GRANT SELECT ON
    clientmgr.dashboard_worst_sync, clientmgr.dashboard_fastest_growth, clientmgr.dashboard_most_invalid_tokens,
    clientmgr.dashboard_never_written, clientmgr.dashboard_behind_on_migrations, clientmgr.dashboard_failed_tenants
    TO clientmgr_reader, clientmgr_writer;
