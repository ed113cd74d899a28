-- Which schema is a customer's, and whose a schema is: in SQL here alone, in Python in clientmgr/base/customer_ids.py alone.
CREATE FUNCTION clientmgr.tenant_schema(customer_id bigint) RETURNS name
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN ('tenant_' || customer_id)::name;

CREATE FUNCTION clientmgr.customer_of_schema(schema name) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN schema ~ '^tenant_[1-9][0-9]{0,17}$' THEN substr(schema::text, 8)::bigint END;

REVOKE EXECUTE ON FUNCTION clientmgr.tenant_schema (bigint), clientmgr.customer_of_schema (name) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION clientmgr.tenant_schema (bigint), clientmgr.customer_of_schema (name)
TO clientmgr_ddl, clientmgr_writer, clientmgr_reader;
