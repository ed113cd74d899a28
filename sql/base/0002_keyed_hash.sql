-- HMAC-SHA256, cut to 16 bytes, as clientmgr/base/keyed_hashes.py makes it. Only migrations compute it here, and only their
-- sessions hold the key; without it this fails.
CREATE FUNCTION clientmgr.keyed_hash(data bytea) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(
    sha256(
        decode(current_setting('clientmgr.hash_outer'), 'hex')
        || sha256(decode(current_setting('clientmgr.hash_inner'), 'hex') || data)
    )
    FROM 1 FOR 16
);

-- The customer whose schema a table is in, as it stands in a hash.
CREATE FUNCTION clientmgr.customer_of(table_id oid) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
RETURN (
    SELECT convert_to(substring(n.nspname FROM '[0-9]+'), 'UTF8')
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = table_id
);

CREATE FUNCTION clientmgr.contact_hash(table_id oid, contact_id bigint) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
RETURN clientmgr.keyed_hash(
    '\x636f6e7461637400'::bytea || clientmgr.customer_of(table_id) || '\x00'::bytea -- "contact", NUL
    || convert_to(contact_id::text, 'UTF8')
);

CREATE FUNCTION clientmgr.device_hash(table_id oid, application_code text, client_id text) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
RETURN clientmgr.keyed_hash(
    '\x64657669636500'::bytea || clientmgr.customer_of(table_id) || '\x00'::bytea -- "device", NUL
    || convert_to(application_code, 'UTF8') || '\x00'::bytea || convert_to(client_id, 'UTF8')
);

CREATE FUNCTION clientmgr.token_hash(table_id oid, application_code text, digest bytea) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
RETURN clientmgr.keyed_hash(
    '\x746f6b656e00'::bytea || clientmgr.customer_of(table_id) || '\x00'::bytea -- "token", NUL
    || convert_to(application_code, 'UTF8') || '\x00'::bytea || digest
);
