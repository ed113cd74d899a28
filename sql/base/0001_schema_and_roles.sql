-- The control schema and the roles that work in it. Whoever applies this owns the schema; no role below does.
-- Roles belong to the whole server, so another database of it may have made them already, or be making them right now.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['clientmgr_ddl', 'clientmgr_writer', 'clientmgr_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
        -- The login that DATABASE_URL names takes these roles; a superuser may do so anyway.
        IF NOT pg_has_role(current_user, wanted, 'SET') THEN
            EXECUTE format('GRANT %I TO CURRENT_USER', wanted);
        END IF;
    END LOOP;
END
$$;

REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA clientmgr TO clientmgr_ddl, clientmgr_writer, clientmgr_reader;

-- What clientmgr_ddl makes are tenant schemas: saying this once here spares every tenant its own grants.
ALTER DEFAULT PRIVILEGES FOR ROLE clientmgr_ddl
    GRANT USAGE ON SCHEMAS TO clientmgr_writer, clientmgr_reader;
ALTER DEFAULT PRIVILEGES FOR ROLE clientmgr_ddl
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO clientmgr_writer;
ALTER DEFAULT PRIVILEGES FOR ROLE clientmgr_ddl
    GRANT SELECT ON TABLES TO clientmgr_reader;
