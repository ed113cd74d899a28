-- As before (0002), with the messages of held queues.
CREATE OR REPLACE FUNCTION clientmgr.analyze_messages() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT clientmgr.analyze_anew(array_agg(format('clientmgr.%I', name)::regclass))
FROM unnest(ARRAY[
    'outbox_message_t', 'delayed_message_t', 'held_message_t', 'dead_letter_queue', 'pubsub_delayed',
    'gateway_deliveries', 'orphan_candidates', 'deleted_contacts', 'dashboard_tenant_metrics'
]) AS tables (name)
$$;
