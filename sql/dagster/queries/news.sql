-- Dagster's own tables tell its daemon what is new, as ours do (clientmgr.tell_scheduler, which its login can't call).
-- In its schema (the connection's search_path).

-- name: is_told
SELECT count(*) = 7 AS is_told FROM pg_trigger
WHERE tgname LIKE 'tell\_scheduler%%' AND tgrelid = ANY(ARRAY[
    to_regclass('runs'), to_regclass('bulk_actions'), to_regclass('instigators'), to_regclass('dynamic_partitions')
]);

-- name: tell
-- Of several processes that start together, one makes them.
SELECT pg_advisory_xact_lock(7102068); -- "new"
CREATE OR REPLACE FUNCTION tell_scheduler() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('scheduler_news', TG_ARGV[0]);
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER tell_scheduler_of_new AFTER INSERT ON runs
FOR EACH ROW EXECUTE FUNCTION tell_scheduler('runs');
CREATE OR REPLACE TRIGGER tell_scheduler_of_changed AFTER UPDATE ON runs
FOR EACH ROW WHEN (new.status IS DISTINCT FROM old.status) EXECUTE FUNCTION tell_scheduler('runs');
CREATE OR REPLACE TRIGGER tell_scheduler_of_new AFTER INSERT ON bulk_actions
FOR EACH ROW EXECUTE FUNCTION tell_scheduler('backfills');
CREATE OR REPLACE TRIGGER tell_scheduler_of_changed AFTER UPDATE ON bulk_actions
FOR EACH ROW WHEN (new.status IS DISTINCT FROM old.status) EXECUTE FUNCTION tell_scheduler('backfills');
CREATE OR REPLACE TRIGGER tell_scheduler_of_new AFTER INSERT OR DELETE ON instigators
FOR EACH ROW EXECUTE FUNCTION tell_scheduler('automation');
CREATE OR REPLACE TRIGGER tell_scheduler_of_changed AFTER UPDATE ON instigators
FOR EACH ROW WHEN (new.status IS DISTINCT FROM old.status) EXECUTE FUNCTION tell_scheduler('automation');
CREATE OR REPLACE TRIGGER tell_scheduler_of_changed AFTER INSERT OR DELETE ON dynamic_partitions
FOR EACH STATEMENT EXECUTE FUNCTION tell_scheduler('partitions');
