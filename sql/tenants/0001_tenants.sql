-- The registry of customers and the record of which migration each tenant schema has had.
CREATE TABLE clientmgr.tenants (
    customer_id bigint PRIMARY KEY CHECK (customer_id BETWEEN 1 AND 999999999999999999),
    status text NOT NULL CHECK (status IN ('activating', 'active', 'deleting', 'deleted')),
    schema_version integer NOT NULL DEFAULT 0,
    -- Digest of the migrations applied so far, contents included. Equal to the head's digest: nothing is pending.
    schema_digest text COLLATE "C" NOT NULL DEFAULT '',
    registered_at timestamptz NOT NULL DEFAULT now(),
    activated_at timestamptz,
    deleted_at timestamptz,
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- "Which tenants are not at the head?" is asked as two ranges below and above one digest, so that it costs the same
-- with ten tenants and with a million.
CREATE INDEX tenants_by_digest ON clientmgr.tenants (schema_digest) WHERE status IN ('activating', 'active');
CREATE INDEX tenants_by_status ON clientmgr.tenants (status);

-- Each tenant migration as it was when first applied to any tenant: a version never stands for two texts.
CREATE TABLE clientmgr.tenant_migration_files (
    version integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    UNIQUE (version, checksum)
);

CREATE TABLE clientmgr.tenant_migrations (
    customer_id bigint NOT NULL REFERENCES clientmgr.tenants,
    version integer NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (customer_id, version),
    FOREIGN KEY (version, checksum) REFERENCES clientmgr.tenant_migration_files (version, checksum)
);

GRANT SELECT, INSERT, UPDATE ON clientmgr.tenants TO clientmgr_ddl;
GRANT SELECT, INSERT, UPDATE ON clientmgr.tenant_migration_files TO clientmgr_ddl;
GRANT SELECT, INSERT, DELETE ON clientmgr.tenant_migrations TO clientmgr_ddl;
GRANT SELECT ON clientmgr.tenants, clientmgr.tenant_migration_files, clientmgr.tenant_migrations
    TO clientmgr_writer, clientmgr_reader;
