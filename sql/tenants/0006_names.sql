-- What people call a customer. For display and search alone: nothing is found or decided by it.
CREATE TABLE clientmgr.tenant_names (
    customer_id bigint PRIMARY KEY REFERENCES clientmgr.tenants,
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 100 AND name = btrim(name)),
    named_by text NOT NULL,
    named_at timestamptz NOT NULL DEFAULT now()
);

GRANT SELECT, INSERT, UPDATE, DELETE ON clientmgr.tenant_names TO clientmgr_writer;
GRANT SELECT ON clientmgr.tenant_names TO clientmgr_ddl, clientmgr_reader;
