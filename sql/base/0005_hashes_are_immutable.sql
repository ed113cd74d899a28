-- The key and the customer of a schema never change, so these give the same for the same, always. On a Citus cluster an
-- UPDATE may call them with columns only if they say so. Their bodies do look things up, so PostgreSQL never inlines them
-- now, and calls them where the rows are.
ALTER FUNCTION clientmgr.contact_hash (oid, bigint) IMMUTABLE;
ALTER FUNCTION clientmgr.device_hash (oid, text, text) IMMUTABLE;
ALTER FUNCTION clientmgr.token_hash (oid, text, bytea) IMMUTABLE;
