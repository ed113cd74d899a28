-- Whoever waits for messages hears when a message is set aside, or its time changes: it need not look every second.

CREATE FUNCTION clientmgr.notify_due() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('event_channel', 'due ' || topic_id) FROM (SELECT DISTINCT topic_id FROM changed) AS topics;
    RETURN NULL;
END
$$;

CREATE TRIGGER due_trigger AFTER INSERT ON clientmgr.delayed_message_t
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION clientmgr.notify_due();
CREATE TRIGGER due_again_trigger AFTER UPDATE ON clientmgr.delayed_message_t
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION clientmgr.notify_due();
