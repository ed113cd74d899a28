-- How far into each customer's audit chain its deletions are shown in Dagster's lineage (clientmgr_dagster/defs/lineage/).
CREATE TABLE clientmgr.observed_deletions (
    customer_id bigint PRIMARY KEY,
    audit_seq bigint NOT NULL,
    observed_at timestamptz NOT NULL DEFAULT now()
);

GRANT SELECT, INSERT, UPDATE, DELETE ON clientmgr.observed_deletions TO clientmgr_writer;
GRANT SELECT ON clientmgr.observed_deletions TO clientmgr_reader;
