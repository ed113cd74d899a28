-- As before, with the name from the one function that makes it.
CREATE OR REPLACE FUNCTION clientmgr.analyze_tenant(customer_id bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT clientmgr.analyze_anew(array_agg(format('%I.%I', clientmgr.tenant_schema(customer_id), name)::regclass))
FROM unnest(ARRAY['devices', 'contact_links', 'contact_merges']) AS tables (name)
$$;
