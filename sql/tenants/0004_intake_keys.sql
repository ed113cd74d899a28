-- Keys of the HTTP intake: whose application a request is for. Of a key's secret only a hash is kept.
CREATE TABLE clientmgr.intake_keys (
    key_id text PRIMARY KEY CHECK (key_id ~ '^[0-9a-f]{12}$'),
    customer_id bigint NOT NULL REFERENCES clientmgr.tenants,
    application_code text NOT NULL CHECK (application_code <> ''),
    name text NOT NULL CHECK (name <> ''), -- two live keys at most have one name, so that a key can be rotated
    kind text NOT NULL CHECK (kind IN ('server', 'app')),
    secret_hash bytea NOT NULL CHECK (length(secret_hash) = 32),
    origins text[] NOT NULL DEFAULT '{}', -- web pages that may use it, as browsers spell them in Origin
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz, -- null: never
    revoked_by text,
    revoked_at timestamptz
);
CREATE INDEX intake_keys_by_application ON clientmgr.intake_keys (customer_id, application_code, name);

-- Whoever takes keys has them in memory: a revoked one is to stop at once.
CREATE FUNCTION clientmgr.tell_of_intake_keys() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('intake_keys', '');
    RETURN NULL;
END
$$;
CREATE TRIGGER intake_keys_changed AFTER INSERT OR UPDATE OR DELETE ON clientmgr.intake_keys
FOR EACH STATEMENT EXECUTE FUNCTION clientmgr.tell_of_intake_keys();

-- A revoked key stays as a row: it is what the audit log speaks of. It goes with its customer.
GRANT SELECT, INSERT ON clientmgr.intake_keys TO clientmgr_writer;
GRANT UPDATE (expires_at, revoked_by, revoked_at) ON clientmgr.intake_keys TO clientmgr_writer;
GRANT SELECT ON clientmgr.intake_keys TO clientmgr_reader;
