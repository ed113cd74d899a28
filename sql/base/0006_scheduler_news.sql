-- Tells Dagster's daemon that there is something for a sensor to look at, so that it need not look every few seconds.
-- The payload is what is new: the trigger's argument.
CREATE FUNCTION clientmgr.tell_scheduler() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('scheduler_news', TG_ARGV[0]);
    RETURN NULL;
END
$$;
