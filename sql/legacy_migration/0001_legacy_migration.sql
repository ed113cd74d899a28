-- Customers on their way from DynamoDB to PostgreSQL.

-- How far a customer is. No row: nobody has started; its flippers tell where the mapper reads.
CREATE TABLE clientmgr.legacy_migrations (
    customer_id bigint PRIMARY KEY REFERENCES clientmgr.tenants,
    stage text NOT NULL
        CHECK (stage IN ('legacy', 'importing', 'in sync', 'postgres with fallback', 'postgres only')),
    changed_at timestamptz NOT NULL DEFAULT now(),
    changed_by text NOT NULL
);

-- The last scan of a customer's items, how far their import has come, and what comparing both stores came to.
CREATE TABLE clientmgr.legacy_imports (
    customer_id bigint PRIMARY KEY,
    run_id text NOT NULL,
    scanned_at timestamptz NOT NULL,
    items bigint NOT NULL,
    -- The last item that is imported. The import goes on behind it after a kill. null: none is.
    through_device_key text,
    through_contact_id text,
    imported bigint NOT NULL DEFAULT 0, -- items
    passed_over bigint NOT NULL DEFAULT 0, -- of deleted contacts, or under keys that no device can have
    rejected bigint NOT NULL DEFAULT 0,
    rejections jsonb NOT NULL DEFAULT '{}', -- {reason: how many}; names no device
    imported_at timestamptz, -- null: not all of them are
    checked_at timestamptz,
    different bigint,
    different_fields jsonb -- {field: how many devices}
);

-- A customer's items as the scan found them. They are deleted as soon as they are imported and compared.
CREATE TABLE clientmgr.legacy_devices (
    customer_id bigint NOT NULL,
    device_key text NOT NULL,
    contact_id text NOT NULL, -- as text: the store is not ours
    item text NOT NULL, -- DynamoDB's JSON
    scanned_at timestamptz NOT NULL,
    PRIMARY KEY (customer_id, device_key, contact_id)
);
CREATE UNLOGGED TABLE clientmgr.legacy_devices_staged (
    LIKE clientmgr.legacy_devices,
    attempt_id text NOT NULL,
    staged_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX legacy_devices_staged_by_attempt ON clientmgr.legacy_devices_staged (attempt_id);

-- Where the mapper found the devices of contacts that it looked up in PostgreSQL first.
CREATE TABLE clientmgr.legacy_fallback_answers (
    customer_id bigint NOT NULL,
    hour timestamptz NOT NULL,
    contacts bigint NOT NULL,
    from_fallback bigint NOT NULL,
    PRIMARY KEY (customer_id, hour)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON clientmgr.legacy_migrations, clientmgr.legacy_imports, clientmgr.legacy_devices,
    clientmgr.legacy_devices_staged, clientmgr.legacy_fallback_answers TO clientmgr_writer;
GRANT SELECT ON clientmgr.legacy_migrations, clientmgr.legacy_imports, clientmgr.legacy_devices,
    clientmgr.legacy_fallback_answers TO clientmgr_reader;
