-- The planner's statistics keep values of rows that are gone until their table is analysed again. Only a table's owner may
-- do that, so these functions run as the owner. Those that others may call take no name: nobody can have anything else
-- analysed.
CREATE FUNCTION clientmgr.analyze_anew(tables regclass []) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target regclass;
BEGIN
    FOREACH target IN ARRAY tables LOOP
        -- ANALYZE leaves the statistics of an empty table as they were. Servers before 18 have no way to clear them.
        IF to_regproc('pg_catalog.pg_clear_attribute_stats') IS NOT NULL THEN
            EXECUTE 'SELECT pg_catalog.pg_clear_attribute_stats(s.schemaname, s.tablename, s.attname, s.inherited)
                FROM pg_catalog.pg_stats AS s JOIN pg_catalog.pg_class AS c ON c.oid = $1
                JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
                WHERE (s.schemaname, s.tablename) = (n.nspname, c.relname)' USING target;
        END IF;
        EXECUTE format('ANALYZE %s', target);
    END LOOP;
END
$$;

CREATE FUNCTION clientmgr.analyze_tenant(customer_id bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT clientmgr.analyze_anew(array_agg(format('%I.%I', 'tenant_' || customer_id, name)::regclass))
FROM unnest(ARRAY['devices', 'contact_links', 'contact_merges']) AS tables (name)
$$;

CREATE FUNCTION clientmgr.analyze_messages() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT clientmgr.analyze_anew(array_agg(format('clientmgr.%I', name)::regclass))
FROM unnest(ARRAY[
    'outbox_message_t', 'delayed_message_t', 'dead_letter_queue', 'pubsub_delayed', 'gateway_deliveries',
    'orphan_candidates', 'deleted_contacts', 'dashboard_tenant_metrics'
]) AS tables (name)
$$;

REVOKE EXECUTE ON FUNCTION clientmgr.analyze_anew (regclass []), clientmgr.analyze_tenant (bigint),
    clientmgr.analyze_messages () FROM PUBLIC;
GRANT EXECUTE ON FUNCTION clientmgr.analyze_tenant (bigint), clientmgr.analyze_messages () TO clientmgr_writer;
