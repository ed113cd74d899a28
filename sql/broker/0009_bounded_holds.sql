-- As before (0005), and: where it comes before the COMMIT (SET CONSTRAINTS … IMMEDIATE), whoever publishes to the topic waits
-- for this transaction from here on. So the server ends it if it then stays idle for half a minute, or for less where
-- the session says so.
CREATE OR REPLACE FUNCTION clientmgr.append_pending() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    longest CONSTANT interval := '30 seconds';
    target record;
BEGIN
    IF current_setting('idle_in_transaction_session_timeout')::interval NOT BETWEEN interval '1 millisecond' AND longest THEN
        PERFORM set_config('idle_in_transaction_session_timeout', (extract(epoch FROM longest) * 1000)::integer::text, true);
    END IF;
    FOR target IN
        SELECT c.id, c.topic FROM clientmgr.log_counter AS c
        WHERE c.id IN (SELECT p.topic_id FROM clientmgr.pending_publish_t AS p WHERE p.xid = pg_current_xact_id())
        ORDER BY clientmgr.is_locked_last(c.topic), c.topic COLLATE "C"
    LOOP
        PERFORM clientmgr.append_pending_of(target.id, target.topic);
    END LOOP;
    DELETE FROM clientmgr.pending_publish_t AS p WHERE p.xid = pg_current_xact_id();
    RETURN NULL;
END
$$;

-- A session that fires no triggers of its own (session_replication_role = replica) would lose what it publishes.
ALTER TABLE clientmgr.pending_publish_t ENABLE ALWAYS TRIGGER append_at_commit;
