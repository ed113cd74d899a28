-- Switches that change what running daemons do, for everybody or for one customer, without a restart.
CREATE TABLE clientmgr.flippers (
    name text NOT NULL CHECK (name ~ '^[A-Z][A-Z0-9_]*$'),
    customer_id bigint REFERENCES clientmgr.tenants, -- null: for every customer that has no row of its own
    enabled boolean NOT NULL,
    updated_by text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE NULLS NOT DISTINCT (name, customer_id)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON clientmgr.flippers TO clientmgr_writer;
GRANT SELECT ON clientmgr.flippers TO clientmgr_ddl, clientmgr_reader;
