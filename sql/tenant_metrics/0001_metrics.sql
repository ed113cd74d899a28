-- What an operator wants to know of every tenant: as it stands, and how it came to be so. Filled by one Spark pass over
-- all tenants; one that could not be read is in here too, as failed.
CREATE TABLE clientmgr.dashboard_tenant_metrics (
    customer_id bigint PRIMARY KEY,
    collected_at timestamptz NOT NULL,
    run_id text NOT NULL,
    status text NOT NULL CHECK (status IN ('ok', 'failed')),
    failure text,
    schema_version integer,
    devices bigint,
    devices_by_platform jsonb,
    devices_by_provider jsonb,
    push_enabled bigint,
    push_enabled_share double precision,
    tokens_none bigint,
    tokens_valid bigint,
    tokens_invalid bigint,
    tokens_superseded bigint,
    tokens_none_share double precision,
    tokens_valid_share double precision,
    tokens_invalid_share double precision,
    tokens_superseded_share double precision,
    contacts bigint, -- with at least one device
    linked_devices bigint,
    without_contact bigint,
    orphans bigint, -- without a contact for longer than the threshold
    created_24h bigint,
    created_7d bigint,
    -- Against the history: deletions count too. Null while there is no history that old.
    growth_24h bigint,
    growth_7d bigint,
    last_write_at timestamptz,
    table_bytes bigint,
    sync_status text NOT NULL CHECK (sync_status IN ('not checked', 'checked', 'failed')),
    sync_dynamodb_devices bigint,
    sync_sampled bigint,
    sync_missing_in_dynamodb bigint,
    sync_missing_in_postgres bigint,
    sync_different bigint,
    sync_different_fields jsonb,
    -- The larger of two shares: by how much the counts differ, and how much of the sample does.
    sync_difference_share double precision
);

CREATE TABLE clientmgr.dashboard_tenant_metrics_history (
    LIKE clientmgr.dashboard_tenant_metrics INCLUDING CONSTRAINTS,
    PRIMARY KEY (customer_id, collected_at)
);
CREATE INDEX dashboard_tenant_metrics_history_by_time
    ON clientmgr.dashboard_tenant_metrics_history (collected_at);

-- Where Spark's tasks put their rows; see sql/batch/0001_orphans.sql. JSON comes as text.
CREATE UNLOGGED TABLE clientmgr.dashboard_tenant_metrics_staged (
    customer_id bigint NOT NULL,
    collected_at timestamptz NOT NULL,
    run_id text NOT NULL,
    status text NOT NULL,
    failure text,
    devices bigint,
    devices_by_platform text,
    devices_by_provider text,
    push_enabled bigint,
    tokens_none bigint,
    tokens_valid bigint,
    tokens_invalid bigint,
    tokens_superseded bigint,
    contacts bigint,
    linked_devices bigint,
    without_contact bigint,
    orphans bigint,
    created_24h bigint,
    created_7d bigint,
    last_write_at timestamptz,
    table_bytes bigint,
    sync_status text NOT NULL,
    sync_dynamodb_devices bigint,
    sync_sampled bigint,
    sync_missing_in_dynamodb bigint,
    sync_missing_in_postgres bigint,
    sync_different bigint,
    sync_different_fields text,
    attempt_id text NOT NULL,
    staged_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX dashboard_tenant_metrics_staged_by_attempt
    ON clientmgr.dashboard_tenant_metrics_staged (attempt_id);

GRANT SELECT, INSERT, UPDATE, DELETE ON
    clientmgr.dashboard_tenant_metrics, clientmgr.dashboard_tenant_metrics_history,
    clientmgr.dashboard_tenant_metrics_staged
    TO clientmgr_writer;
GRANT SELECT ON clientmgr.dashboard_tenant_metrics, clientmgr.dashboard_tenant_metrics_history TO clientmgr_reader;
