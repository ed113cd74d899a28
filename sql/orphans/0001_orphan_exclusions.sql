-- Customers whose orphans are never deleted, besides those that ORPHAN_EXCLUDED_CUSTOMERS names.
CREATE TABLE clientmgr.orphan_exclusions (
    customer_id bigint PRIMARY KEY REFERENCES clientmgr.tenants,
    reason text NOT NULL,
    updated_by text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);

GRANT SELECT, INSERT, UPDATE, DELETE ON clientmgr.orphan_exclusions TO clientmgr_writer;
GRANT SELECT ON clientmgr.orphan_exclusions TO clientmgr_ddl, clientmgr_reader;
