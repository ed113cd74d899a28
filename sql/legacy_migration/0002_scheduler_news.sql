-- A customer whose migration is started is imported at once.
CREATE TRIGGER tell_of_legacy_migrations AFTER INSERT OR UPDATE ON clientmgr.legacy_migrations
FOR EACH STATEMENT EXECUTE FUNCTION clientmgr.tell_scheduler('legacy migrations');
