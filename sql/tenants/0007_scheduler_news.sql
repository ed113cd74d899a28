-- Dagster's partitions are kept equal to the registry.
CREATE TRIGGER tell_of_tenants AFTER INSERT OR DELETE OR UPDATE OF status ON clientmgr.tenants
FOR EACH STATEMENT EXECUTE FUNCTION clientmgr.tell_scheduler('registry');
