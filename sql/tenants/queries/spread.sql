-- What a tenant's schema on a Citus cluster needs besides. :"schema" is the tenant's schema.

-- name: grants
-- The default privileges of clientmgr_ddl (sql/base/0001_schema_and_roles.sql) are the coordinator's: nodes know none.
GRANT USAGE ON SCHEMA :"schema" TO clientmgr_writer, clientmgr_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA :"schema" TO clientmgr_writer;
GRANT SELECT ON ALL TABLES IN SCHEMA :"schema" TO clientmgr_reader;
